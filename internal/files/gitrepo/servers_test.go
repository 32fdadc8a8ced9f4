package gitrepo

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/test/tools"
)

// tool returns the path of a program or skips the test.
func tool(t *testing.T, names ...string) string {
	t.Helper()
	for _, n := range names {
		if p, err := exec.LookPath(n); err == nil {
			return p
		}
	}
	if os.Getenv("BRINE_REQUIRE_TOOLS") != "" {
		t.Fatalf("there is no %s", names[0])
	}
	t.Skipf("there is no %s", names[0])
	return ""
}

// sshd runs a real SSH server on loopback that accepts one key. It returns its
// address and a known hosts file.
func sshd(t *testing.T, publicKey string) (addr, known string) {
	t.Helper()
	program := tool(t, "/usr/sbin/sshd", "sshd")
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // required by sshd
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	// A separate address, so that no other process takes the port meanwhile.
	host := fmt.Sprintf("127.%d.%d.77", 130+os.Getpid()>>8&0x3f, os.Getpid()&0xff)
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	l.Close() // sshd cannot inherit a listening socket
	_, port, _ := net.SplitHostPort(addr)
	makeKey(t, dir+"/host", "")
	pub, err := os.ReadFile(dir + "/host.pub")
	if err != nil {
		t.Fatal(err)
	}
	known = dir + "/known"
	for file, text := range map[string]string{
		known: "[" + host + "]:" + port + " " + string(pub), dir + "/authorized": publicKey,
		dir + "/config": fmt.Sprintf("ListenAddress %s\nPort %s\nHostKey %s/host\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin "+
			"prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nAuthorizedKeysFile %s/authorized\n", host, port, dir, dir),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(program, "-D", "-e", "-f", dir+"/config")
	var log syncBuffer
	c.Stderr = &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return addr, known
		}
		if time.Now().After(deadline) {
			t.Fatalf("sshd does not listen: %s", log.String())
		}
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func makeKey(t *testing.T, file, passphrase string) {
	t.Helper()
	tools.NeedAccount(t, "ssh-keygen")
	if out, err := exec.Command(tool(t, "ssh-keygen"), "-q", "-t", "ed25519", "-N", passphrase, "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
}

// TestSSH is not parallel, since it sets environment variables.
func TestSSH(t *testing.T) {
	o := newOrigin(t)
	o.commit("main", map[string]string{"a": "1"})
	keys := t.TempDir()
	makeKey(t, keys+"/key", "")
	makeKey(t, keys+"/locked", "a secret: $HOME 'x'")
	makeKey(t, keys+"/stranger", "")
	var public string
	for _, k := range []string{"key", "locked"} {
		b, err := os.ReadFile(keys + "/" + k + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		public += string(b)
	}
	addr, known := sshd(t, public)
	t.Setenv("SSH_AUTH_SOCK", "")
	t.Setenv("GIT_SSH_COMMAND", "ssh -F none -oUserKnownHostsFile="+known)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	url := "ssh://" + me.Username + "@" + addr + o.bare
	for name, c := range map[string]struct {
		auth Auth
		ok   bool
	}{
		"key":              {Auth{PrivKey: keys + "/key"}, true},
		"both keys":        {Auth{PrivKey: keys + "/key", PubKey: keys + "/key.pub"}, true},
		"passphrase":       {Auth{PrivKey: keys + "/locked", Passphrase: "a secret: $HOME 'x'"}, true},
		"wrong passphrase": {Auth{PrivKey: keys + "/locked", Passphrase: "no"}, false},
		"no passphrase":    {Auth{PrivKey: keys + "/locked"}, false},
		"stranger":         {Auth{PrivKey: keys + "/stranger"}, false},
	} {
		cl := openClone(t, Remote{URL: url, Auth: c.auth}, t.TempDir())
		_, err := cl.Update(t.Context(), 0)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "a secret") {
			t.Errorf("%s: the passphrase is told: %v", name, err)
		}
		if c.ok && fmt.Sprint(files(t, cl, "main")) != "map[a:1]" {
			t.Errorf("%s: %v", name, files(t, cl, "main"))
		}
	}
	// An unknown server must be rejected.
	t.Setenv("GIT_SSH_COMMAND", "ssh -F none -oUserKnownHostsFile=/dev/null -oGlobalKnownHostsFile=/dev/null")
	if _, err := openClone(t, Remote{URL: url, Auth: Auth{PrivKey: keys + "/key"}}, t.TempDir()).Update(t.Context(), 0); err == nil ||
		!strings.Contains(err.Error(), "Host key verification failed") {
		t.Error(err)
	}
}

// backend is git's own server for http, with a user.
func backend(t *testing.T, root string) http.Handler {
	t.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	h := &cgi.Handler{Path: tool(t, filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")),
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null"}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != "user" || p != "p@ss: $word'" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// TestHTTPS is not parallel, since it sets environment variables.
func TestHTTPS(t *testing.T) {
	o := newOrigin(t)
	o.commit("main", map[string]string{"a": "1"})
	h := backend(t, filepath.Dir(o.bare))
	secure, plain := httptest.NewTLSServer(h), httptest.NewServer(h)
	defer secure.Close()
	defer plain.Close()
	var leaked syncBuffer
	thief := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(&leaked, r.Header.Get("Authorization"))
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer thief.Close()
	away := httptest.NewTLSServer(http.RedirectHandler(thief.URL+"/origin.git/info/refs?service=git-upload-pack", http.StatusFound))
	defer away.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	good := Auth{User: "user", Password: "p@ss: $word'"}
	bad, insecure := good, good
	bad.Password, insecure.InsecureAuth = "wrong-one", true
	for name, c := range map[string]struct {
		url  string
		ca   string
		no   bool
		auth Auth
		ok   bool
	}{
		"known authority":   {secure.URL, ca, false, good, true},
		"unknown authority": {secure.URL, "", false, good, false},
		"not verified":      {secure.URL, "", true, good, true},
		"in the URL":        {strings.Replace(secure.URL, "https://", "https://user:p%40ss%3A%20$word'@", 1), ca, false, Auth{}, true},
		"wrong password":    {secure.URL, ca, false, bad, false},
		"no password":       {secure.URL, ca, false, Auth{}, false},
		"insecure":          {plain.URL, "", false, insecure, true},
		"sent elsewhere":    {away.URL, "", true, good, false},
	} {
		t.Setenv("GIT_SSL_CAINFO", c.ca)
		if c.ca == "" {
			os.Unsetenv("GIT_SSL_CAINFO")
		}
		cl := openClone(t, Remote{URL: c.url + "/origin.git", NoVerify: c.no, Auth: c.auth}, t.TempDir())
		_, err := cl.Update(t.Context(), 0)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (strings.Contains(err.Error(), "$word") || strings.Contains(err.Error(), "wrong-one")) {
			t.Errorf("%s: the password is told: %v", name, err)
		}
		if c.ok && fmt.Sprint(files(t, cl, "main")) != "map[a:1]" {
			t.Errorf("%s: %v", name, files(t, cl, "main"))
		}
	}
	if leaked.String() != "" {
		t.Errorf("another server got the password: %s", leaked.String())
	}
}
