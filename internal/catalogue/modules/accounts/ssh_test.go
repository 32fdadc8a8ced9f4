package accounts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/py/value"
)

const (
	keyA = "AAAAC3NzaC1lZDI1NTE5AAAAIGtP0wYDAUvWZ0MMKjYUEg7CjfzSx9kyWcSxS3kQH4hP"
	keyB = "AAAAC3NzaC1lZDI1NTE5AAAAIJ5BzE2T3kq0hQ0m8H1gP8wq8Wf7g2nPqUqK1N5rQxYz"
)

// TestSSHLikeSalt edits copies of the same files with Salt and with Brine.
func TestSSHLikeSalt(t *testing.T) {
	files := func() string {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"auth":             "# comment\nno-pty,command=\"a b\" ssh-ed25519 " + keyA + " one@two three\nbroken line\n",
			"known":            "example.com,10.0.0.1 ssh-ed25519 " + keyA + "\n# x\n[other]:2222 ssh-ed25519 " + keyB + "\n",
			"ssh_host_rsa_key": "private\n", "ssh_host_rsa_key.pub": "public\n", "ssh_host_x_key-cert.pub": "cert\n", "other": "no\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	jobs := func(dir string) [][]any {
		auth, known := "config="+dir+"/auth", "config="+dir+"/known"
		return [][]any{
			{"ssh.auth_keys", "root", auth}, {"ssh.auth_keys", "root", auth, "fingerprint_hash_type=md5"}, {"ssh.auth_keys", "no-such-user", auth},
			{"ssh.check_key", "root", keyA, "ed25519", "one@two three", []any{"no-pty", "command=\"a b\""}, auth},
			{"ssh.check_key", "root", keyA, "ed25519", "other", []any{}, auth},
			{"ssh.check_key", "root", keyB, "ssh-rsa", "", nil, auth}, {"ssh.check_key", "root", keyB, "wrong", "", nil, auth},
			{"ssh.set_auth_key", "root", keyB, "ed25519", "new", nil, auth}, {"ssh.set_auth_key", "root", keyB, "ed25519", "new", nil, auth},
			{"ssh.set_auth_key", "root", keyB, "ed25519", "changed", []any{"no-pty"}, auth}, {"ssh.set_auth_key", "root", "a b", auth},
			{"ssh.set_auth_key", "root", "!!!", auth},
			{"ssh.set_auth_key", "no-such-user", keyB, auth}, {"ssh.auth_keys", "root", auth}, {"ssh.rm_auth_key", "root", keyA, auth},
			{"ssh.rm_auth_key", "root", keyA, auth},
			{"ssh.auth_keys", "root", auth},
			{"ssh.get_known_host_entries", "root", "example.com", known}, {"ssh.get_known_host_entries", "root", "nobody", known},
			{"ssh.get_known_host_entries", "root", "other", known, "port=2222"},
			{"ssh.get_known_host_entries", "no-such-user", "x"},
			{"ssh.check_known_host", "root", "example.com", keyA, nil, dir + "/known"},
			{"ssh.check_known_host", "root", "example.com", keyB, nil, dir + "/known"},
			{"ssh.check_known_host", "root", "nobody", keyB, nil, dir + "/known"}, {"ssh.check_known_host", "root", "10.0.0.1", known},
			{"ssh.check_known_host"},
			{"ssh.set_known_host", "root", "example.com", "key=" + keyA, "enc=ssh-ed25519", known},
			{"ssh.host_keys", dir}, {"ssh.host_keys", dir, "private=False", "certs=False"},
		}
	}
	theirs, ours := files(), files()
	recorded := stocktest.Ask(t, nil, jobs(theirs)...)
	r, err := fn.NewRegistry(nil, sshModule(&host.Machine{}))
	if err != nil {
		t.Fatal(err)
	}
	for i, job := range jobs(ours) {
		args := make([]any, 0, len(job))
		for _, a := range job[1:] {
			args = append(args, value.From(a))
		}
		want := value.Repr(recorded[i].At("return"))
		if got := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: job[0].(string), Arg: args}); value.Repr(got.Return) != want &&
			!value.Equal(got.Return, recorded[i].At("return")) {
			t.Errorf("%v: returns %s\nSalt: %s", job, value.Repr(got.Return), want)
		}
	}
}

func TestKnownHosts(t *testing.T) {
	m := &host.Machine{}
	file := filepath.Join(t.TempDir(), "known")
	r, err := fn.NewRegistry(nil, sshModule(m))
	if err != nil {
		t.Fatal(err)
	}
	run := func(fun string, args ...any) string {
		t.Helper()
		d, ok := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: fun, Arg: append(args, "config="+file)}).Return.(*value.Dict)
		if !ok {
			return ""
		}
		return d.Str("status")
	}
	key := []any{nil, "example.com", "key=" + keyA, "enc=ssh-ed25519"}
	if got := run("ssh.set_known_host", key...); got != "updated" || !strings.HasPrefix(m.Text(file), "|1|") {
		t.Errorf("%s: %s", got, m.Text(file))
	}
	if got := run("ssh.set_known_host", key...); got != "exists" {
		t.Error(got)
	}
	if got := run("ssh.set_known_host", nil, "example.com", "key="+keyB, "enc=ssh-ed25519", "hash_known_hosts=False"); got != "updated" ||
		m.Text(file) != "example.com ssh-ed25519 "+keyB+"\n" {
		t.Errorf("%s: %s", got, m.Text(file))
	}
	given := r.Run(t.Context(), &fn.Call{},
		fn.Job{Fun: "ssh.set_known_host", Arg: []any{nil, "other.example", "key=AAAAnokey", "enc=ssh-rsa", "config=" + file}}).Return
	if got := value.Repr(given); got != "{'status': 'updated', 'old': None, 'new': [{'hostname': 'other.example', 'enc': 'ssh-rsa', 'key': 'AAAAnokey'}]}" {
		t.Error("a key that is none: ", got)
	}
	run("ssh.rm_known_host", nil, "other.example")
	if got := run("ssh.hash_known_hosts"); got != "updated" || strings.Contains(m.Text(file), "example") {
		t.Errorf("%s: %s", got, m.Text(file))
	}
	if got := run("ssh.rm_known_host", nil, "example.com"); got != "removed" || m.Text(file) != "" {
		t.Errorf("%s: %s", got, m.Text(file))
	}
	if got := run("ssh.set_known_host", nil, "a b", "key="+keyB, "enc=ssh-ed25519", "hash_known_hosts=False"); got != "" {
		t.Error("a name with a blank is taken: " + fmt.Sprint(m.Text(file)))
	}
}
