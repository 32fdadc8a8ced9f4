package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/call/client"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// decided waits until all masters report a key's state, and by whom and how it was decided.
func (a *apart) decided(id, state, who, how string) {
	a.t.Helper()
	for _, m := range a.masters {
		eventually.Nil(a.t, soon, fmt.Sprintf("%s says that %s is %s: %s, %s", m.Name, id, state, who, how), func() error {
			var d struct{ Keys map[string]keyRecord }
			out, errs, _ := m.Run(brine, "salt-run", "--out=json", "cluster.keys", id)
			if err := json.Unmarshal([]byte(out), &d); err != nil {
				return fmt.Errorf("%w: %s%s", err, out, errs)
			}
			if r := d.Keys[id]; r.State != state || r.Who != who || r.How != how {
				return fmt.Errorf("%+v", d.Keys)
			}
			return nil
		})
	}
}

// pend puts the key of a nonexistent minion into the directory of pending keys.
func (a *apart) pend(at *node, ids ...string) {
	a.t.Helper()
	k, err := crypt.GenerateKey(2048)
	if err != nil {
		a.t.Fatal(err)
	}
	for _, id := range ids {
		at.Write("cluster/minions_pre/"+id, string(k.Public().PEM()))
		a.decided(id, "pending", "unknown", "file changed")
	}
}

// sudo runs a program as another user.
func sudo(t *testing.T, n *node, user, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := brine.Command(ctx, t, program, append([]string{"-c", n.Dir}, args...)...)
	c.Env = append(c.Environ(), "SUDO_USER="+user)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestWhoDecidesByCommand: all masters know who used salt-key, an API, an orchestration or a
// reactor for a decision about a key. For a file moved by another program they know that this is
// unknown.
func TestWhoDecidesByCommand(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("the names are those of root")
	}
	a := newApart(t, 2, "")
	one, two := a.masters[0], a.masters[1]
	files := daemontest.ShortDir(t)
	for name, text := range map[string]string{
		"accept.sls":   "x:\n  wheel.key.accept:\n    - args:\n      - match: c6\n",
		"orch/key.sls": "x:\n  salt.wheel:\n    - name: key.reject\n    - match: c7\n",
	} {
		path := filepath.Join(files, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	two.Write("master", two.Read("master")+fmt.Sprintf(`
timeout: 10
sharedsecret: s3cret
netapi_enable_clients: [wheel, wheel_async]
external_auth:
  sharedsecret:
    carol: ['@wheel']
publisher_acl:
  nobody: ['@wheel']
file_roots: {base: [%s]}
reactor:
  - my/tag: [%s/accept.sls]
rest_cherrypy: {host: %s, port: 28000, disable_ssl: true}
`, files, files, two.Host))
	a.start()
	a.pend(one, "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9")

	one.Accept("c0")
	a.decided("c0", "accepted", "root", "salt-key")
	sudo(t, two, "bob", "salt-key", "-y", "-r", "c1")
	a.decided("c1", "rejected", "sudo_bob", "salt-key")
	sudo(t, one, "bob", "salt-key", "-y", "-d", "c0")
	a.decided("c0", "deleted", "sudo_bob", "salt-key")
	// Several decisions at once, by an ordinary user; and while no master runs.
	two.Kill()
	if _, errs, code := two.Run(brine, "salt-key", "-y", "-a", "c8,c9"); code != 0 {
		t.Fatal(errs)
	}
	two.Start()
	for _, id := range []string{"c8", "c9"} {
		a.decided(id, "accepted", "root", "salt-key")
	}
	for _, m := range a.masters {
		if left, _ := filepath.Glob(m.Path("var/cache/salt/master/brine/decisions/*")); len(left) > 0 {
			t.Errorf("%s has not taken %v", m.Name, left)
		}
	}

	// Decisions through the API, by a user with a name and password, or with a token.
	daemontest.NewAPI(two).Launch()
	url := fmt.Sprintf("http://%s:28000", two.Host)
	eventually.Nil(t, soon, "the API answers", func() error {
		resp, err := http.Get(url + "/health")
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
	post := func(path, body, token string) (answer string) {
		t.Helper()
		req, _ := http.NewRequest("POST", url+path, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json")
		req.Header.Set("X-Auth-Token", token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %d %s %v", path, resp.StatusCode, b, err)
		}
		return string(b)
	}
	var login struct{ Return []struct{ Token string } }
	if err := json.Unmarshal([]byte(post("/login", `{"username":"carol","password":"s3cret","eauth":"sharedsecret"}`, "")), &login); err != nil ||
		len(login.Return) != 1 {
		t.Fatal(err, login)
	}
	post("/", `{"client":"wheel","fun":"key.accept","match":"c2"}`, login.Return[0].Token)
	a.decided("c2", "accepted", "carol", "wheel key.accept (token)")
	post("/", `{"client":"wheel","fun":"key.delete","match":"c2"}`, login.Return[0].Token)
	a.decided("c2", "deleted", "carol", "wheel key.delete (token)")
	post("/run", `{"client":"wheel","fun":"key.reject","match":"c3","username":"carol","password":"s3cret","eauth":"sharedsecret"}`, "")
	a.decided("c3", "rejected", "carol", "wheel key.reject (eauth)")
	post("/", `{"client":"wheel","fun":"key.gen_accept","id_":"c4"}`, login.Return[0].Token)
	a.decided("c4", "accepted, pending", "carol", "wheel key.gen_accept (token)")

	// A decision by a user of this machine, permitted by publisher_acl.
	quiet := slog.New(slog.DiscardHandler)
	var sockets event.MasterOptions
	sockets.IPCMode, sockets.SockDir = "ipc", two.Path("var/run/salt/master")
	l, err := client.NewLocal(client.Place{Interface: two.Host, RetPort: daemontest.RetPort, Transport: "zeromq", Sockets: sockets.Sockets(),
		CacheDir: two.Path("var/cache/salt/master")}, "nobody", quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ret, err := l.Request(context.Background(), value.DictOf("cmd", "wheel", "key", "", "fun", "key.accept", "kwarg",
		value.DictOf("match", "c5"))); err != nil {
		t.Fatal(ret, err)
	}
	a.decided("c5", "accepted", "nobody", "wheel key.accept")

	two.Run(brine, "salt-run", "event.send", "my/tag")
	a.decided("c6", "accepted", "Reactor", "wheel key.accept (reactor)")
	if out, errs, code := two.Run(brine, "salt-run", "state.orchestrate", "orch.key"); code != 0 {
		t.Fatal(out, errs)
	}
	a.decided("c7", "rejected", "root", "wheel key.reject (orchestration)")

	// A program that does not record who decides, such as Salt's salt-key.
	if err := os.Rename(one.Path("cluster/minions_rejected/c1"), one.Path("cluster/minions/c1")); err != nil {
		t.Fatal(err)
	}
	a.decided("c1", "accepted", "unknown", "file changed")
}

// TestWhoDecidesByRule: all masters know the rule that accepted or rejected a minion, and the
// actions of minions themselves.
func TestWhoDecidesByRule(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "allow_minion_key_revoke: true\n")
	rules, all, open := a.masters[0], a.masters[1], a.masters[2]
	rules.Write("signed", "s0\n")
	rules.Write("refused", "r0\n")
	rules.Write("grains/role", "web\n")
	rules.Write("master", rules.Read("master")+fmt.Sprintf("autosign_file: %s\nautoreject_file: %s\nautosign_grains_dir: %s\n", rules.Path("signed"),
		rules.Path("refused"), rules.Path("grains")))
	all.Write("master", all.Read("master")+"auto_accept: true\n")
	open.Write("master", open.Read("master")+"open_mode: true\n")
	a.start()
	a.minion("p0", rules)
	a.decided("p0", "pending", "minion", "sign-in")
	a.minion("s0", rules)
	a.decided("s0", "accepted", "autosign_file", "sign-in")
	a.minion("r0", rules)
	a.decided("r0", "rejected", "autoreject_file", "sign-in")
	rules.Write("cluster/minions_autosign/stub", "")
	a.minion("stub", rules)
	a.decided("stub", "accepted", "minions_autosign", "sign-in")
	daemontest.NewMinion(t, brine, "g0", []string{rules.Host}, "grains: {role: web}\nautosign_grains: [role]\n").Start()
	a.decided("g0", "accepted", "autosign_grains_dir", "sign-in")
	m := a.minion("a0", all)
	a.decided("a0", "accepted", "auto_accept", "sign-in")
	a.minion("o0", open)
	a.decided("o0", "accepted", "open_mode", "sign-in")
	// A pending minion that a rule now accepts.
	rules.Write("signed", "s0\np0\n")
	a.decided("p0", "accepted", "autosign_file", "sign-in")
	// A second minion with the same id.
	daemontest.NewMinion(t, brine, "s0", []string{rules.Host}, "").Launch()
	a.decided("s0", "accepted, denied", "minion", "sign-in")
	// A minion that revokes its own key.
	eventually.Nil(t, soon, "it answers", func() error { return all.PingAll(brine, "a0") })
	if out, errs, code := m.Run(brine, "salt-call", "saltutil.revoke_auth", "preserve_minion_cache=True"); code != 0 {
		t.Log(out, errs)
	}
	m.Kill()
	if s := state(all, "a0"); s == "" {
		a.decided("a0", "deleted", "minion", "revoke_auth")
	}
}

// TestNotesOfNoUse: unexpected files in the directory where programs record who decides, by
// accident or by intent, do no harm and cause no wrong statement about other keys.
func TestNotesOfNoUse(t *testing.T) {
	t.Parallel()
	a := newApart(t, 1, "").start()
	one := a.masters[0]
	a.pend(one, "c0", "c1")
	dir := one.Path("var/cache/salt/master/brine/decisions")
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Fatal(fi, err)
	}
	sum := strings.Repeat("0", 64)
	for name, text := range map[string]string{
		"1.json": "", "2.json": "{", "3.json": `{"id":"../../x","to":"minions","sum":"` + sum + `"}`, "4.json": strings.Repeat("[", 1<<20),
		"5.json": `{"id":"c0","from":"minions_pre","to":"minions","sum":"` + sum + `","who":"mallory","how":"x"}`,
		"6.json": `{"id":"c0","from":"minions_pre","to":"/etc","sum":"` + sum + `","who":"mallory"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, "7.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "8.json/x"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"c0", "c1"} {
		if err := os.Rename(one.Path("cluster/minions_pre/"+id), one.Path("cluster/minions/"+id)); err != nil {
			t.Fatal(err)
		}
		a.decided(id, "accepted", "unknown", "file changed")
	}
	if _, errs, code := one.Run(brine, "salt-key", "-y", "-d", "c1"); code != 0 {
		t.Fatal(errs)
	}
	a.decided("c1", "deleted", "root", "salt-key")
	if left, _ := filepath.Glob(dir + "/[1-6]*"); len(left) > 0 {
		t.Error(left)
	}
	if b, err := os.ReadFile(one.Path("cluster/minions/c0")); err != nil || !bytes.Contains(b, []byte("PUBLIC KEY")) {
		t.Error(string(b), err)
	}
}
