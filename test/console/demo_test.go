package console

import (
	"bufio"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"brine/test/browsertest"
	"brine/test/daemontest"
)

// TestDemo: brine demo console prints an address and a password with which a user can sign in, and
// leaves nothing behind.
func TestDemo(t *testing.T) {
	b := browsertest.Start(t)
	c := daemontest.Brine.Command(t.Context(), t, "demo", "console")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	text := ""
	for lines := bufio.NewScanner(out); !strings.Contains(text, "Ctrl-C"); text += lines.Text() + "\n" {
		if !lines.Scan() {
			t.Fatalf("it has ended: %s", text)
		}
	}
	found := regexp.MustCompile(`(?s)below (\S+)\n.*master two: (http://\S+)/console/.*password (\w+),`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("it prints\n%s", text)
	}
	s := &stage{b, t, nil, nil, found[2]}
	s.Open(s.url + "/console/")
	s.signIn("admin", found[3], "sharedsecret")
	s.held("127.0.0.1", 3)
	c.Process.Signal(syscall.SIGINT)
	rest, err := io.ReadAll(out)
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, rest)
	}
	if _, e := os.Stat(found[1]); !os.IsNotExist(e) {
		t.Errorf("%s is still there: %v (%v)", found[1], e, err)
	}
}
