package cli

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// watching runs state.event in a program of a node, and calls fire until the program ends, because
// it is not visible when the program begins to listen.
func watching(t *testing.T, n *daemontest.Node, program string, args []string, fire func()) (stdout string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	c := daemontest.Brine.Command(t.Context(), t, program, append([]string{"-c", n.Dir}, args...)...)
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = c.Wait(); close(done) }()
	eventually.Nil(t, 60*time.Second, program+" has seen its events", func() error {
		select {
		case <-done:
			return nil
		default:
			fire()
			return errors.New("it waits")
		}
	})
	if errs.Len() > 0 {
		t.Errorf("%s %q says %s", program, args, &errs)
	}
	return out.String(), c.ProcessState.ExitCode()
}

// TestStateEvent watches events of a minion and of a master with the programs that users use.
func TestStateEvent(t *testing.T) {
	master, alpha := fleet(t, daemontest.Brine, daemontest.Brine)
	call := func(args ...string) (string, string, int) { return alpha.Run(daemontest.Brine, "salt-call", args...) }
	fireLocal := func() { call("--local", "event.fire", "{a: 1}", "my/tag") }
	fireJob := func() { master.Run(daemontest.Brine, "salt", "alpha", "event.fire", "{a: 1}", "my/tag") }
	fireMaster := func() { master.Run(daemontest.Brine, "salt-run", "event.send", "my/tag", "{a: 1}") }
	line := `my/tag\t\{("a": 1|"_stamp": "[\d:.T-]+")[^\n]*\}\n`
	for _, c := range []struct {
		node    *daemontest.Node
		program string
		args    string
		fire    func()
		want    string
	}{
		{alpha, "salt-call", "--local state.event my/* count=2", fireLocal, line + line + "local:\n    None\n"},
		{alpha, "salt-call", "state.event my/(tag|other) count=1", fireJob, line + "local:\n    None\n"},
		{alpha, "salt-call", "--local state.event my/tag count=1 quiet=True", fireLocal, "local:\n    None\n"},
		{alpha, "salt-call", "--local state.event my/tag count=1 pretty=True", fireLocal,
			"my/tag\t\\{\n    \"_stamp\": [^\n]*,\n    \"a\": 1\n\\}\nlocal:\n    None\n"},
		{alpha, "salt-call", "--local state.event my/tag count=1 sock_dir=" + alpha.Path("var/run/salt/minion"), fireLocal, line + "local:\n    None\n"},
		{alpha, "salt-call", "--local state.event my/tag count=1 node=master sock_dir=" + master.Path("var/run/salt/master"), fireMaster,
			`my/tag\t[^\n]*\nlocal:\n    None\n`},
		{master, "salt-run", "state.event my/tag count=1", fireMaster, `my/tag\t[^\n]*\nNone\n`},
		{master, "salt", "alpha state.event my/tag count=1", fireJob, "alpha:\n    None\n"},
	} {
		got, code := watching(t, c.node, c.program, strings.Fields(c.args), c.fire)
		if code != 0 || !regexp.MustCompile(`^`+c.want+`$`).MatchString(got) {
			t.Errorf("%s %s: code %d, %q", c.program, c.args, code, got)
		}
	}
	for args, want := range map[string]string{
		"--local state.event node=master":               "give its sock_dir",
		"--local state.event node=nobody":               "it is minion or master",
		"--local state.event sock_dir=/nonexistent/dir": "cannot reach the event bus",
	} {
		if _, errs, code := call(strings.Fields(args)...); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d, %s", args, code, errs)
		}
	}
	if out, _, code := master.Run(daemontest.Brine, "salt", "alpha", "state.event"); code != 1 || !strings.Contains(out, "the minion would wait for ever") {
		t.Errorf("without a count: code %d, %s", code, out)
	}
	for _, args := range []string{"node=master", "sock_dir=/tmp"} {
		if out, _, code := master.Run(daemontest.Brine, "salt", "alpha", "state.event", "x", "count=1", args); code != 1 ||
			!strings.Contains(out, "only the minion's") {
			t.Errorf("%s: code %d, %s", args, code, out)
		}
	}
}
