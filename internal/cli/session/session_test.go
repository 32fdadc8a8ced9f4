package session

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/client"
	"brine/internal/call/client/clienttest"
	"brine/internal/call/output"
	"brine/internal/cli/frame"
	"brine/internal/py/value"
)

var command = frame.Command{Name: "salt-test"}

var runner = client.Runner{Fun: "test.arg"}

// open opens a session for a command line.
func open(t *testing.T, m *clienttest.Master, stdin string, args ...string) (*Session, *bytes.Buffer, *bytes.Buffer, error) {
	t.Helper()
	stdout, stderr := new(bytes.Buffer), new(bytes.Buffer)
	home := t.TempDir()
	env := &frame.Env{Stdin: strings.NewReader(stdin), Stdout: stdout, Stderr: stderr, IsTerminal: func(any) bool { return false },
		Getenv: func(name string) string { return map[string]string{"SALT_CONFIG_DIR": m.Dir, "HOME": home}[name] }}
	var o Options
	inv, _, ok := command.Parse(env, &o, args)
	if !ok {
		t.Fatalf("%v: %s", args, stderr)
	}
	s, err := Open(env, inv, &o, func(o *output.Options) { o.StateDiff = true })
	if err == nil {
		t.Cleanup(s.Close)
	}
	return s, stdout, stderr, err
}

func TestOpen(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{Config: map[string]any{"nodegroups": value.DictOf("web", "L@a"), "master_id": "x"}})
	s, _, stderr, err := open(t, m, "", "--out=json")
	if err != nil {
		t.Fatal(err)
	}
	if s.Conf.Files.MasterID != "x" || s.Settings.Client.Nodegroups.Str("web") != "L@a" || s.Show.Wanted() != "json" || stderr.Len() > 0 {
		t.Errorf("got %+v, stderr %s", s.Settings, stderr)
	}
	if _, _, _, err := open(t, m, "", "--out-file=/none/x"); !errors.As(err, new(UsageError)) {
		t.Errorf("a bad --out-file: %v", err)
	}
	var out bytes.Buffer
	if code := Fail(&frame.Env{Stderr: &out}, &command, UsageError{errors.New("no")}); code != frame.ExitUsage ||
		out.String() != "Usage: salt-test [options]\n\nsalt-test: error: no\n" {
		t.Errorf("code %d, %s", code, &out)
	}
	os.WriteFile(filepath.Join(m.Dir, "master"), []byte("transport: pigeon\n"), 0o600)
	if _, _, _, err := open(t, m, ""); err == nil {
		t.Error("a transport that does not exist")
	}
}

func TestAuthenticate(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{})
	// sent authenticates and returns the credentials of a runner request.
	sent := func(stdin string, args ...string) (creds, stdout, stderr string, err error) {
		s, out, errs, err := open(t, m, stdin, args...)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Authenticate(t.Context()); err != nil {
			return "", out.String(), errs.String(), err
		}
		s.Client.RunAsync(t.Context(), runner)
		loads := m.Loads()
		l := loads[len(loads)-1]
		for _, k := range []string{"cmd", "fun", "kwarg"} {
			l.Delete(k)
		}
		if l.Has("key") {
			l.Set("key", "K")
			l.Set("user", "U")
		}
		return value.Repr(l), out.String(), errs.String(), nil
	}
	for _, c := range []struct{ args, stdin, creds, stderr string }{
		{"", "", "{'key': 'K', 'user': 'U'}", ""},
		{"-a pam --username=ann --password=p", "", "{'username': 'ann', 'password': 'p', 'eauth': 'pam'}", ""},
		{"-a pam", "ann\np w\n", "{'username': 'ann', 'password': 'p w', 'eauth': 'pam'}", "username: password: "},
		{"-a oidc --username=ann --password=t", "", "{'username': 'ann', 'password': 't', 'eauth': 'oidc'}", ""},
		{"--eauth=ldap --username ann", "secret", "{'username': 'ann', 'password': 'secret', 'eauth': 'ldap'}", "password: "},
	} {
		creds, stdout, stderr, err := sent(c.stdin, strings.Fields(c.args)...)
		if err != nil || creds != c.creds || stderr != c.stderr || stdout != "" {
			t.Errorf("%s: %s, %q, %q, %v", c.args, creds, stdout, stderr, err)
		}
	}
	if _, stdout, _, err := sent("", "-a", "nosuch"); !errors.Is(err, ErrAuthentication) ||
		!strings.HasPrefix(stdout, `The specified external authentication system "nosuch" is not available`) {
		t.Errorf("unknown system: %v, %s", err, stdout)
	}
	if _, _, _, err := sent("", "-a", "pam"); err == nil {
		t.Error("no answer to the question")
	}
	if _, _, _, err := sent("", "-a", "pam", "-T", "--username=a", "--password=b"); !errors.Is(err, ErrAuthentication) {
		t.Errorf("a token that the master does not give: %v", err)
	}
}

func TestToken(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{})
	s, _, _, err := open(t, m, "", "-a", "pam")
	if err != nil {
		t.Fatal(err)
	}
	path := s.tokenPath()
	if err := os.WriteFile(path, []byte("abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Authenticate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Client.RunAsync(t.Context(), runner)
	loads := m.Loads()
	if l := loads[len(loads)-1]; l.Str("token") != "abc" || l.Has("key") {
		t.Errorf("sent %s", value.Repr(l))
	}
}

// TestUnusableSystem: a warning names a system that the master cannot use, before the master
// refuses it.
func TestUnusableSystem(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{Config: map[string]any{
		"external_auth": value.DictOf("pam", value.DictOf("ann", value.ListOf("test.*"))), "auth.pam.helper": filepath.Join(t.TempDir(), "none")}})
	for args, want := range map[string]bool{"-a pam": true, "-a pam -l quiet": false, "-a ldap": false} {
		s, _, stderr, err := open(t, m, "", append(strings.Fields(args), "--username=ann", "--password=p")...)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Authenticate(t.Context()); err != nil ||
			strings.Contains(stderr.String(), "the master does not support this authentication system eauth=pam") != want {
			t.Errorf("%s: %v, %s", args, err, stderr)
		}
	}
}
