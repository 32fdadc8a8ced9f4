package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/test/daemontest"
)

// TestKeysByExternalAuthentication: salt-key --eauth makes the master's wheel do the work, for
// users that external_auth permits.
func TestKeysByExternalAuthentication(t *testing.T) {
	users := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(users, []byte("ann:secret\nlow:secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	master := daemontest.NewMaster(t, daemontest.Brine, "master", daemontest.Host(), `token_file: `+users+`.token
external_auth:
  file:
    ^filename: `+users+`
    ann: ['@wheel']
    low: [{'@wheel': [key.list_all, key.name_match]}]
  auto:
    bob: [{'@wheel': ['key.*']}]
`).Start()
	key, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	put := func(directory string, ids ...string) {
		t.Helper()
		for _, id := range ids {
			path := master.Path("etc/salt/pki/master/" + directory + "/" + id)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, key.Public().PEM(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	has := func() string {
		var out []string
		for _, directory := range []string{"minions", "minions_pre", "minions_rejected", "minions_denied"} {
			entries, _ := os.ReadDir(master.Path("etc/salt/pki/master/" + directory))
			var ids []string
			for _, e := range entries {
				if salt.CheckID(e.Name()) == nil && !strings.HasPrefix(e.Name(), ".") {
					ids = append(ids, e.Name())
				}
			}
			if len(ids) > 0 {
				out = append(out, directory+":"+strings.Join(ids, ","))
			}
		}
		return strings.Join(out, " ")
	}
	put("minions_pre", "w1", "w2", "w3", "*")
	const ann, low, bob = "--eauth=file --username=ann --password=secret ", "--auth=file --username=low --password=secret ",
		"--external-auth=auto --username=bob --password=any "
	start := "minions_pre:*,w1,w2,w3"
	for _, c := range []struct {
		args string
		code int
		out  []string
		left string
	}{
		{ann + "-L", 0, []string{"Unaccepted Keys:\n*\nw1\nw2\nw3\n", "Accepted Keys:\n"}, start},
		{low + "-L", 0, []string{"Unaccepted Keys:\n*\nw1\nw2\nw3\n"}, start},
		{low, 0, []string{"Unaccepted Keys:"}, start},
		{ann + "-l pre", 0, []string{"Unaccepted Keys:\n*\nw1"}, start},
		{low + "-l pre", 77, []string{`Authentication failure of type "eauth" occurred for user low.`}, start},
		{low + "-y -a w1", 77, []string{"The following keys are going to be accepted:", `Authentication failure of type "eauth" occurred for user low.`},
			start},
		{"--eauth=file --username=ann --password=wrong -y -A", 77, []string{"Authentication failure"}, start},
		{"--eauth=nosuch --username=ann --password=secret -y -A", 77, []string{`The specified external authentication system "nosuch" is not available`},
			start},
		{"--eauth=pam --username=ann --password=secret -y -A", 77, []string{"Authentication failure"}, start},
		{"--username=ann --password=secret -y -D", 64, []string{"need --eauth"}, start},
		{ann + "-y -D w1", 64, []string{"Delete all takes no arguments"}, start},
		{ann + "--gen-keys=x", 64, []string{"--gen-keys"}, start},
		{ann + "-a nobody -y", 0, []string{"The key glob 'nobody' does not match any unaccepted keys."}, start},
		{ann + "-p w1", 0, []string{"BEGIN PUBLIC KEY"}, start},
		{ann + "-f w1", 0, []string{"w1:  "}, start},
		{ann + "-y -a w1", 0, []string{"The following keys are going to be accepted:\nUnaccepted Keys:\nw1\nKey for minion w1 accepted.\n"},
			"minions:w1 minions_pre:*,w2,w3"},
		{ann + "-y -a *", 0, []string{"Key for minion * accepted.\nKey for minion w2 accepted.\nKey for minion w3 accepted."}, "minions:*,w1,w2,w3"},
		{ann + "-y -r w2", 0, []string{"does not match any unaccepted keys"}, "minions:*,w1,w2,w3"},
		{ann + "-y -r w2,w3 --include-accepted", 0, []string{"Key for minion w2 rejected.\nKey for minion w3 rejected.\n"},
			"minions:*,w1 minions_rejected:w2,w3"},
		{bob + "-y -a w3 --include-rejected", 0, []string{"Key for minion w3 accepted.\n"}, "minions:*,w1,w3 minions_rejected:w2"},
		{bob + "-y -d w?", 0, []string{"Key for minion w1 deleted.\nKey for minion w3 deleted.\nKey for minion w2 deleted.\n"}, "minions:*"},
	} {
		stdout, stderr, code := master.Run(daemontest.Brine, "salt-key", strings.Fields(c.args)...)
		if got := has(); code != c.code || got != c.left {
			t.Errorf("%s: code %d, keys %s, want %d, %s\n%s%s", c.args, code, got, c.code, c.left, stdout, stderr)
		}
		for _, want := range c.out {
			if !strings.Contains(stdout+stderr, want) {
				t.Errorf("%s: no %q in\n%s%s", c.args, want, stdout, stderr)
			}
		}
	}
	// An id that looks like a glob means only that key.
	put("minions_pre", "w4")
	if stdout, stderr, code := master.Run(daemontest.Brine, "salt-key", append(strings.Fields(ann), "-y", "-d", "[*]")...); code != 0 ||
		has() != "minions_pre:w4" {
		t.Errorf("code %d, keys %s\n%s%s", code, has(), stdout, stderr)
	}
	// By a token.
	if stdout, stderr, code := master.Run(daemontest.Brine, "salt-key", append(strings.Fields(ann), "-T", "-L")...); code != 0 {
		t.Errorf("-T: code %d\n%s%s", code, stdout, stderr)
	}
	if stdout, stderr, code := master.Run(daemontest.Brine, "salt-key", "-a", "w4", "-y", "--eauth=file"); code != 0 || has() != "minions:w4" {
		t.Errorf("by the token: code %d, keys %s\n%s%s", code, has(), stdout, stderr)
	}
	master.Kill()
	if stdout, stderr, code := master.Run(daemontest.Brine, "salt-key", append(strings.Fields(ann), "-y", "-D")...); code != 1 || has() != "minions:w4" ||
		!strings.Contains(stderr, "could not be contacted") {
		t.Errorf("without a master: code %d, keys %s\n%s%s", code, has(), stdout, stderr)
	}
}
