package badinput

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brine/internal/net/crypt"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// fails expects a daemon not to start, in the foreground and in the background, with this exit code
// and a message with these words.
func fails(t *testing.T, n *node, code int, wants ...string) {
	t.Helper()
	for _, args := range [][]string{{"-c", n.Dir}, {"-c", n.Dir, "-d"}} {
		out, got := program(t, n.Program, args...)
		if got != code {
			t.Errorf("%s %q: exit code %d, want %d: %s", n.Program, args, got, code, out)
		}
		demand(t, n.Program, out, wants...)
		if strings.Contains(out, "panic") || strings.Contains(out, "goroutine ") {
			t.Errorf("%s", out)
		}
	}
}

// put writes a file and the directories above it.
func put(t *testing.T, path string, data []byte, mode os.FileMode) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, data, mode))
}

func newKey(t *testing.T) *crypt.PrivateKey {
	t.Helper()
	k, err := crypt.GenerateKey(2048)
	must(t, err)
	return k
}

const (
	masterPKI = "etc/salt/pki/master"
	minionPKI = "etc/salt/pki/minion"
)

func TestAddressTrouble(t *testing.T) {
	t.Parallel()
	for name, port := range map[string]int{"publish_port": daemontest.PublishPort, "ret_port": daemontest.RetPort} {
		host := daemontest.Host()
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port))
		must(t, err)
		defer l.Close()
		n := daemontest.NewMaster(t, brine, "boss", host, "")
		fails(t, n, 4, name, l.Addr().String(), "in use")
		// All ports bound before are free again, and the daemon starts once the port is free.
		l.Close()
		n.Start()
	}
	n := daemontest.NewMaster(t, brine, "boss", "192.0.2.77", "")
	fails(t, n, 4, "192.0.2.77:24505", "interface", "publish_port", "this machine does not have that address")
	n = daemontest.NewMaster(t, brine, "boss", daemontest.Host(), "transport_opts: {tcp: {publish_port: 24505, ret_port: 24508}}\n")
	fails(t, n, 1, "transport_opts", "24505")
}

func TestSockDirTooLong(t *testing.T) {
	t.Parallel()
	long := "/tmp/" + strings.Repeat("x", 120)
	n := daemontest.NewMaster(t, brine, "boss", daemontest.Host(), "cachedir: "+long+"\nsock_dir: "+long+"\n")
	fails(t, n, 1, "master_event_pub.ipc", "sock_dir", "ipc_mode")
	n = daemontest.NewMinion(t, brine, "w", []string{"127.0.0.1"}, "cachedir: "+long+"\nsock_dir: "+long+"\n")
	fails(t, n, 1, "minion_event_", "sock_dir", "ipc_mode")
}

func TestMissingDirectories(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ option, place string }{
		{"pki_dir", masterPKI}, {"cachedir", "var/cache/salt/master"}, {"sock_dir", "var/run/salt/master"},
	} {
		n := daemontest.NewMaster(t, brine, "boss", daemontest.Host(), "")
		put(t, n.Path(c.place), []byte("a file"), 0o600)
		fails(t, n, 1, n.Path(c.place), "not a directory")
	}
	for _, place := range []string{minionPKI, "var/run/salt/minion"} {
		n := daemontest.NewMinion(t, brine, "w", []string{"127.0.0.1"}, "")
		put(t, n.Path(place), []byte("a file"), 0o600)
		fails(t, n, 1, n.Path(place), "not a directory")
	}
}

// TestDirectoriesOfOthers starts daemons as a user without permission to write to the directories.
func TestDirectoriesOfOthers(t *testing.T) {
	t.Parallel()
	mustBeRoot(t, "become another user")
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip(err)
	}
	for _, n := range []*node{
		daemontest.NewMaster(t, brine, "boss", daemontest.Host(), "user: nobody\n"),
		daemontest.NewMinion(t, brine, "w", []string{"127.0.0.1"}, "user: nobody\n"),
	} {
		kind := strings.TrimPrefix(n.Program, "salt-")
		b, err := os.ReadFile(n.Path(kind))
		must(t, err)
		put(t, n.Path(kind), []byte(strings.Replace(string(b), "user: root\n", "", 1)), 0o644)
		must(t, os.Chmod(n.Path(kind), 0o644))
		must(t, os.Chmod(n.Dir, 0o755))
		must(t, os.MkdirAll(n.Path("var/log/salt"), 0o755))
		pki := n.Path("etc/salt/pki/" + kind)
		must(t, os.MkdirAll(filepath.Dir(pki), 0o755))
		c := brine.Command(t.Context(), t, n.Program, "-c", n.Dir)
		c.Path = setpriv
		c.Args = append([]string{"setpriv", "--reuid", "65534", "--clear-groups", openToAll(t, c.Args[0])}, c.Args[1:]...)
		out, err := c.CombinedOutput()
		if c.ProcessState == nil {
			t.Fatal(err)
		}
		if code := c.ProcessState.ExitCode(); code != 77 {
			t.Errorf("%s: exit code %d", n.Program, code)
		}
		demand(t, n.Program, string(out), pki, "permission denied")
	}
}

func TestMasterKeyTrouble(t *testing.T) {
	t.Parallel()
	one, two := newKey(t), newKey(t)
	encrypted, err := os.ReadFile("testdata/encrypted.pem")
	must(t, err)
	for name, c := range map[string]struct {
		more     string
		pem, pub []byte
		want     []string
	}{
		"half a copied pair": {"", one.PEM(), two.Public().PEM(), []string{"master.pub does not belong to master.pem", "copy both files"}},
		"a pem of garbage":   {"", []byte("garbage\n"), nil, []string{"master.pem", "restore the file"}},
		"an empty pem":       {"", nil, nil, []string{"master.pem", "restore the file"}},
		"half a pem":         {"", one.PEM()[:700], nil, []string{"master.pem", "restore the file"}},
		"a public key":       {"", one.Public().PEM(), nil, []string{"master.pem"}},
		"no passphrase":      {"", encrypted, nil, []string{"master.pem", "passphrase"}},
		"a wrong passphrase": {"key_pass: wrong\n", encrypted, nil, []string{"master.pem", "passphrase"}},
		"a pub of garbage":   {"", one.PEM(), []byte("garbage\n"), []string{"master.pub", "delete it"}},
		"no signing key": {"master_sign_pubkey: True\nmaster_use_pubkey_signature: True\n", one.PEM(), nil,
			[]string{"master_pubkey_signature", "salt-key --gen-signature"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := daemontest.NewMaster(t, brine, "boss", daemontest.Host(), c.more)
			put(t, n.Path(masterPKI+"/master.pem"), c.pem, 0o400)
			if c.pub != nil {
				put(t, n.Path(masterPKI+"/master.pub"), c.pub, 0o644)
			}
			fails(t, n, 1, append(c.want, n.Path(masterPKI))...)
			if b, _ := os.ReadFile(n.Path(masterPKI + "/master.pem")); string(b) != string(c.pem) {
				t.Error("the file was changed")
			}
		})
	}
	// With the right passphrase it runs.
	n := daemontest.NewMaster(t, brine, "boss", daemontest.Host(), "key_pass: sesame\n")
	put(t, n.Path(masterPKI+"/master.pem"), encrypted, 0o400)
	n.Start()
}

func TestMinionKeyTrouble(t *testing.T) {
	t.Parallel()
	for name, pem := range map[string][]byte{"garbage": []byte("garbage"), "empty": nil, "half": newKey(t).PEM()[:700]} {
		n := daemontest.NewMinion(t, brine, "w", []string{"127.0.0.1"}, "")
		put(t, n.Path(minionPKI+"/minion.pem"), pem, 0o400)
		fails(t, n, 1, n.Path(minionPKI+"/minion.pem"), "restore the file")
		if out, code := program(t, "salt-call", "-c", n.Dir, "test.ping"); code != 1 || !strings.Contains(out, n.Path(minionPKI+"/minion.pem")) {
			t.Errorf("%s: salt-call ends with %d: %s", name, code, out)
		}
	}
}

// TestCorruptMasterKeyOnMinion: a minion's copy of the master's key is damaged. It reports what to
// do, does not overwrite the file, and continues once the operator has removed it.
func TestCorruptMasterKeyOnMinion(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	n := daemontest.NewMinion(t, brine, "w", []string{m.Host}, "")
	path := n.Path(minionPKI + "/minion_master.pub")
	put(t, path, []byte("-----BEGIN PUBLIC KEY-----\nbroken"), 0o644)
	n.Start()
	n.Logged(path, "remove the file to fetch it again")
	if b, _ := os.ReadFile(path); !strings.HasSuffix(string(b), "broken") || !n.Alive() {
		t.Errorf("alive %v, file %q", n.Alive(), b)
	}
	must(t, os.Remove(path))
	answers(t, m, "w")
}

// TestPIDFileThatCannotBe: a daemon runs even if it cannot write its pid file.
func TestPIDFileThatCannotBe(t *testing.T) {
	t.Parallel()
	m := newMaster(t, "pidfile: /etc/hostname/x.pid\n")
	b, _ := os.ReadFile(m.Path("master"))
	put(t, m.Path("master"), []byte(strings.Replace(string(b), "/etc/hostname", "/a-file", 1)), 0o600)
	put(t, m.Path("a-file"), nil, 0o600)
	m.Start()
	m.Logged("cannot write the pid file", m.Path("a-file"), "not a directory")
	minion(t, "w", "", m)
}

// TestTwoMastersInOnePlace: the second master is refused with the reason, and the first is
// unharmed. Masters with different ids may share cachedir, but a second process with the same id
// may not; no two may share sock_dir.
func TestTwoMastersInOnePlace(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	minion(t, "w", "", m)
	for _, shared := range []string{"cachedir", "sock_dir"} {
		id := map[string]string{"cachedir": m.Name, "sock_dir": "two"}[shared]
		other := daemontest.NewMaster(t, brine, id, daemontest.Host(), "")
		place := map[string]string{"cachedir": "var/cache/salt/master", "sock_dir": "var/run/salt/master"}[shared]
		must(t, os.MkdirAll(filepath.Dir(other.Path(place)), 0o755))
		must(t, os.Symlink(m.Path(place), other.Path(place)))
		fails(t, other, 1, map[string]string{
			"cachedir": "if two masters are meant to share a cachedir, give each an id of its own",
			"sock_dir": "master_event_pub.ipc",
		}[shared])
		mustPing(t, m, "w")
	}
	before := m.Events()
	if err := m.PingAll(brine, "w"); err != nil || !strings.Contains(before(), "/ret/w") {
		eventually.Nil(t, waitLimit, "the events of the first", func() error {
			if !strings.Contains(before(), "/ret/w") {
				return fmt.Errorf("%v, events %q", err, before())
			}
			return nil
		})
	}
}

// TestTwoMinionsInOnePlace is the same for minions.
func TestTwoMinionsInOnePlace(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	w := minion(t, "w", "", m)
	out, code := program(t, "salt-minion", "-c", w.Dir)
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	demand(t, "salt-minion", out, fmt.Sprintf("an instance is already running: process %d", w.PID()))
	out, code = program(t, "salt-minion", "-c", w.Dir, "--pid-file", w.Path("other.pid"))
	if code != 1 {
		t.Errorf("with another pid file: exit code %d", code)
	}
	demand(t, "salt-minion", out, "minion_event_")
	mustPing(t, m, "w")
	// The sockets and the pid file that a killed minion leaves do not prevent a start.
	must(t, syscall.Kill(w.PID(), syscall.SIGKILL))
	w.Wait(waitLimit)
	w.Start()
	answers(t, m, "w")
}

// TestOpenToOthers: neither daemon starts with keys that others can write, with keys that others
// can read and another user owns, or with a directory of sockets that others can write to.
func TestOpenToOthers(t *testing.T) {
	t.Parallel()
	for _, mode := range []os.FileMode{0o644, 0o440, 0o602, 0o660} {
		for _, n := range []*node{
			daemontest.NewMaster(t, brine, "boss", daemontest.Host(), ""),
			daemontest.NewMinion(t, brine, "w", []string{"127.0.0.1"}, ""),
		} {
			kind := strings.TrimPrefix(n.Program, "salt-")
			pem := n.Path("etc/salt/pki/" + kind + "/" + kind + ".pem")
			put(t, pem, newKey(t).PEM(), mode)
			must(t, os.Chmod(pem, mode))
			if mode&0o022 == 0 {
				out, _ := program(t, n.Program, "-c", n.Dir, "--check-config")
				demand(t, n.Program+" --check-config", out, "warning: others than its owner can read the private key "+pem)
				if os.Geteuid() != 0 {
					continue // only root can give the file to another user
				}
				must(t, os.Chown(pem, 65534, 65534))
			}
			fails(t, n, 77, pem, "chmod 400")
			out, code := program(t, n.Program, "-c", n.Dir, "--check-config")
			if code == 0 {
				t.Errorf("%s --check-config: %s", n.Program, out)
			}
			demand(t, n.Program+" --check-config", out, pem, "chmod 400")
		}
	}
	// A copied file often has the wrong mode: the owner's daemon corrects it and reports that.
	own := daemontest.NewMaster(t, brine, "boss", daemontest.Host(), "")
	pem := own.Path(masterPKI + "/master.pem")
	put(t, pem, newKey(t).PEM(), 0o644)
	must(t, os.Chmod(pem, 0o644))
	own.Start()
	if st, err := os.Stat(pem); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v, %v", pem, st.Mode(), err)
	}
	log, err := os.ReadFile(own.Path("var/log/salt/master"))
	must(t, err)
	demand(t, "the log", string(log), "private key was readable by other users; changed its mode", "path="+pem, "mode=0644", "changed_to=0600")
	reachable(t)
	n := daemontest.NewMaster(t, brine, "boss", daemontest.Host(), "")
	socks := n.Path("var/run/salt/master")
	must(t, os.MkdirAll(socks, 0o755))
	must(t, os.Chmod(socks, 0o777))
	fails(t, n, 77, socks, "chmod 755")
	// Permissions that can be narrowed are narrowed: the names of files there are secrets.
	must(t, os.Chmod(socks, 0o755))
	tokens := n.Path("var/cache/salt/master/tokens")
	must(t, os.MkdirAll(tokens, 0o777))
	must(t, os.Chmod(tokens, 0o777))
	n.Start()
	for path, want := range map[string]os.FileMode{
		tokens: 0o700, n.Path(masterPKI): 0o700, n.Path(masterPKI + "/master.pem"): 0o400, n.Path("var/cache/salt/master/.root_key"): 0o600,
		socks + "/master_event_pub.ipc": 0o660, socks + "/master_event_pull.ipc": 0o600, n.Path("var/cache/salt/master/brine"): 0o700,
	} {
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, want %o, %v", path, st.Mode(), want, err)
		}
	}
}

// reachable expects a master whose files others can write not to start, and to name the remedy. If
// others can only read the files, the master narrows their permissions and drops the secrets in
// them.
func reachable(t *testing.T) {
	t.Helper()
	cache := "var/cache/salt/master"
	for what, spoil := range map[string]func(n *node) (path, help string){
		"a writable cachedir": func(n *node) (string, string) {
			must(t, os.MkdirAll(n.Path(cache), 0o755))
			must(t, os.Chmod(n.Path(cache), 0o777))
			return n.Path(cache), "chmod o-w"
		},
		"writable keys": func(n *node) (string, string) {
			dir := n.Path(masterPKI + "/minions")
			must(t, os.MkdirAll(dir, 0o755))
			must(t, os.Chmod(dir, 0o777))
			return dir, "chmod o-w"
		},
		"a readable root key": func(n *node) (string, string) {
			key := n.Path(cache + "/.root_key")
			put(t, key, []byte("secret"), 0o644)
			must(t, os.Chmod(key, 0o644))
			return key, "rm " + key
		},
		"a root key that is a link": func(n *node) (string, string) {
			key := n.Path(cache + "/.root_key")
			put(t, n.Path("elsewhere"), []byte("secret"), 0o600)
			must(t, os.MkdirAll(filepath.Dir(key), 0o755))
			must(t, os.Symlink(n.Path("elsewhere"), key))
			return key, "rm " + key
		},
	} {
		n := daemontest.NewMaster(t, brine, "boss", daemontest.Host(), "")
		path, help := spoil(n)
		fails(t, n, 77, path, help)
		out, code := program(t, n.Program, "-c", n.Dir, "--check-config")
		if code == 0 {
			t.Errorf("%s: --check-config finds nothing: %s", what, out)
		}
		demand(t, what+": --check-config", out, path, help)
	}
	n := daemontest.NewMaster(t, brine, "boss", daemontest.Host(), "")
	session, token := n.Path(cache+"/sessions/web1"), n.Path(cache+"/tokens/planted")
	put(t, session, []byte("secret"), 0o644)
	put(t, token, []byte("planted"), 0o644)
	put(t, n.Path(cache+"/jobs/kept"), []byte("job"), 0o644)
	for dir, mode := range map[string]os.FileMode{"": 0o755, "/sessions": 0o755, "/tokens": 0o777, "/jobs": 0o755} {
		must(t, os.Chmod(n.Path(cache+dir), mode))
	}
	out, _ := program(t, n.Program, "-c", n.Dir, "--check-config")
	demand(t, "--check-config", out, "warning: other users can reach "+filepath.Dir(session))
	n.Start()
	for path, want := range map[string]os.FileMode{"": 0o750, "/sessions": 0o750, "/tokens": 0o700, "/jobs": 0o750} {
		if st, err := os.Stat(n.Path(cache + path)); err != nil || st.Mode().Perm() != want {
			t.Errorf("cachedir%s: %v, want %o, %v", path, st.Mode(), want, err)
		}
	}
	for _, gone := range []string{session, token} {
		if _, err := os.Stat(gone); err == nil {
			t.Errorf("%s is still there although others could reach it", gone)
		}
	}
	if _, err := os.Stat(n.Path(cache + "/jobs/kept")); err != nil {
		t.Errorf("a job was removed: %v", err)
	}
}

// TestSocketOfOthers: a user who may not open the master's socket is told who may and how, not that
// no master runs.
func TestSocketOfOthers(t *testing.T) {
	t.Parallel()
	setpriv, err := exec.LookPath("setpriv")
	if err != nil || os.Geteuid() != 0 {
		t.Skip("root and setpriv are needed to run a program as another user")
	}
	m := daemontest.NewMaster(t, brine, "boss", daemontest.Host(), "publisher_acl: {nobody: [test.ping]}\n").Start()
	for _, dir := range []string{m.Dir, m.Path("var"), m.Path("var/run"), m.Path("var/run/salt"), m.Path("var/run/salt/master")} {
		must(t, os.Chmod(dir, 0o755))
	}
	must(t, os.Chmod(m.Path("master"), 0o644))
	socket := m.Path("var/run/salt/master/master_event_pub.ipc")
	put(t, m.Path(masterPKI+"/minions/w"), newKey(t).Public().PEM(), 0o644)
	for _, run := range []struct {
		args  []string
		group string
		code  int
		wants []string
	}{
		{[]string{"salt-run", "-c", m.Dir, "test.arg"}, "65534", 77, []string{"permission denied on " + socket}},
		{[]string{"salt", "-c", m.Dir, "*", "test.ping"}, "65534", 77, []string{"permission denied on " + socket, "user nobody cannot connect to the master",
			"(root)", "use sudo"}},
		// publisher_acl applies only to commands to minions.
		{[]string{"salt-run", "-c", m.Dir, "test.arg"}, "0", 0,
			[]string{`Authentication failure of type "user" occurred for user nobody.`, "not authorized to run test.arg", "publisher_acl none of them"}},
	} {
		args := run.args
		c := brine.Command(t.Context(), t, args[0], args[1:]...)
		c.Path = setpriv
		c.Args = append([]string{"setpriv", "--reuid", "65534", "--regid", run.group, "--clear-groups", openToAll(t, c.Args[0])}, c.Args[1:]...)
		out, err := c.CombinedOutput()
		if c.ProcessState == nil {
			t.Fatal(err)
		}
		if code := c.ProcessState.ExitCode(); code != run.code || strings.Contains(string(out), "Is master running") {
			t.Errorf("%s: code %d\n%s", args[0], code, out)
		}
		demand(t, args[0], string(out), run.wants...)
	}
}
