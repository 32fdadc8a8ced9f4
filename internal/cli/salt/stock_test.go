package salt

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"brine/internal/call/client/clienttest"
)

// TestStockMaster commands a stock master and minion.
func TestStockMaster(t *testing.T) {
	s := clienttest.StartStock(t)
	m := &clienttest.Master{Dir: s.Dir}
	ping := s.Minion + ":\n    True\n"
	for _, c := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"*", "test.ping"}, 0, ping, ""},
		{[]string{"-L", s.Minion + ",ghost", "test.ping", "--hide-timeout", "--out=json"}, 1, "", "ERROR: Minions returned with non-zero exit code\n"},
		{[]string{"-L", s.Minion, "test.ping"}, 0, ping, ""},
		{[]string{"-G", "role:web", "test.ping", "--out=json", "--out-indent=-1"}, 0, `{"` + s.Minion + `": true}` + "\n", ""},
		{[]string{"-N", "web", "test.ping", "--static", "--out=yaml"}, 0, s.Minion + ": true\n", ""},
		{[]string{"-C", "N@web and E@stock.", "test.ping", "--subset=1"}, 0, ping, ""},
		{[]string{"-b", "50%", "*", "test.echo", "x"}, 0, "\nExecuting run on ['" + s.Minion + "']\n\njid:\n    JID\nretcode:\n    0\n" + s.Minion +
			":\n    x\n", ""},
		{[]string{"none*", "test.ping"}, 2, "No minions matched the target. No command was sent, no jid was assigned.\n", "ERROR: No return received\n"},
		{[]string{"*", "test.kwarg", "a=1", "b=[x, 2]", "--out=json", "--out-indent=-1"}, 0, "", ""},
		{[]string{"*", "test.ping,test.echo", "--args-separator=::", "::", "hi, all"}, 0,
			s.Minion + ":\n    ----------\n    test.echo:\n        hi, all\n    test.ping:\n        True\n", ""},
		{[]string{"*", "cmd.retcode", "exit 3", "python_shell=True"}, 1, s.Minion + ":\n    3\n", "ERROR: Minions returned with non-zero exit code\n"},
		{[]string{"*", "no.such"}, 1, s.Minion + ":\n    'no.such' is not available.\n", "ERROR: Minions returned with non-zero exit code\n"},
		{[]string{"*", "-d", "test.ping"}, 0, "", ""},
		{[]string{"*", "test.sleep", "4"}, 0, ping, ""}, // longer than timeout: the minion is asked and answers
		{[]string{"--preview-target", "-G", "role:web"}, 0, "- " + s.Minion + "\n", ""},
	} {
		got := runSalt(t.Context(), m, "", c.args...)
		stdout := jidPattern.ReplaceAllString(got.stdout, "JID")
		if got.code != c.code || c.stdout != "" && stdout != c.stdout || got.stderr != c.stderr {
			t.Errorf("salt %q\ngot %d\n%s\nstderr:\n%s\nwant %d\n%s\nstderr:\n%s", c.args, got.code, stdout, got.stderr, c.code, c.stdout, c.stderr)
		}
	}
	got := runSalt(t.Context(), m, "", "*", "test.kwarg", "a=1", "b=[x, 2]", "--out=json", "--out-indent=-1")
	if want := `"a": 1, "b": ["x", 2]`; !strings.Contains(got.stdout, want) {
		t.Errorf("test.kwarg: got %q", got.stdout)
	}
	got = runSalt(t.Context(), m, "", "*", "-d", "test.ping")
	if !regexp.MustCompile(`^test.ping:\n\n    Used to make sure the minion is up`).MatchString(got.stdout) {
		t.Errorf("-d: got %q", got.stdout)
	}
	down(t, s, m)
}

// down adds an unreachable minion.
func down(t *testing.T, s *clienttest.Stock, m *clienttest.Master) {
	pub, err := os.ReadFile(filepath.Join(s.Dir, "pkim", "minions", s.Minion))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "pkim", "minions", "gamma"), pub, 0o644); err != nil {
		t.Fatal(err)
	}
	rec := clienttest.Read(t, recordings, "test_ping_all")
	want := s.Minion + ":\n    True\n" + rec.Stdout[strings.Index(rec.Stdout, "gamma:"):]
	mask := func(s string) string { return jidPattern.ReplaceAllString(s, "JID") }
	got := runSalt(t.Context(), m, "", "*", "test.ping")
	if got.code != 1 || mask(got.stdout) != mask(want) || got.stderr != rec.Stderr {
		t.Errorf("a minion is down: got %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	os.Remove(filepath.Join(s.Dir, "cm", ".root_key"))
	os.WriteFile(filepath.Join(s.Dir, "cm", ".root_key"), []byte("wrong"), 0o600)
	if got := runSalt(t.Context(), m, "", "*", "test.ping"); got != (result{0, "Authentication error occurred.\n", ""}) {
		t.Errorf("with a wrong key: %+v", got)
	}
}
