// Package badinput gives real daemons invalid input: broken configurations, full disks, wrong
// clocks, garbage, floods, replays, hostile masters. Each must be reported plainly where an
// operator looks, with the right exit code, and must not harm other clients.
package badinput

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

func TestMain(m *testing.M) { daemontest.Main(m) }

const brine = daemontest.Brine

type node = daemontest.Node

// waitLimit is the timeout for anything that should happen soon.
const waitLimit = 60 * time.Second

// program runs one of Brine's programs to its end.
func program(t *testing.T, name string, args ...string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	c := brine.Command(ctx, t, name, args...)
	b, err := c.CombinedOutput()
	if c.ProcessState == nil || ctx.Err() != nil {
		t.Fatalf("%s %q: %v %s", name, args, err, b)
	}
	return string(b), c.ProcessState.ExitCode()
}

// demand expects a string to contain all of the others.
func demand(t *testing.T, where, text string, wants ...string) {
	t.Helper()
	for _, w := range wants {
		if !strings.Contains(text, w) {
			t.Errorf("%s: no %q in:\n%s", where, w, text)
		}
	}
}

// newMaster returns a master that accepts all keys, and whose commands do not wait long for missing
// minions.
func newMaster(t *testing.T, more string) *node {
	t.Helper()
	return daemontest.NewMaster(t, brine, "boss", daemontest.Host(), "auto_accept: True\ngather_job_timeout: 1\n"+more)
}

// master returns a running newMaster.
func master(t *testing.T, more string) *node {
	t.Helper()
	return newMaster(t, more).Start()
}

// minion returns a running minion that has answered all of its masters.
func minion(t *testing.T, id, more string, masters ...*node) *node {
	t.Helper()
	var hosts []string
	for _, m := range masters {
		hosts = append(hosts, m.Host)
	}
	n := daemontest.NewMinion(t, brine, id, hosts, more).Start()
	for _, m := range masters {
		answers(t, m, id)
	}
	return n
}

// answers waits until minions answer a master.
func answers(t *testing.T, m *node, ids ...string) time.Duration {
	t.Helper()
	return eventually.Nil(t, waitLimit, fmt.Sprintf("%v answer", ids), func() error {
		return allTrue(m.SaltJSON(brine, "-t", "1", "-L", strings.Join(ids, ","), "test.ping"))(ids)
	})
}

// allTrue checks the result of a ping.
func allTrue(rets map[string]any, err error) func(ids []string) error {
	return func(ids []string) error {
		for _, id := range ids {
			if err == nil && rets[id] != true {
				err = fmt.Errorf("no answer from %s: %v", id, rets)
			}
		}
		return err
	}
}

// mustPing expects an answer to this ping.
func mustPing(t *testing.T, m *node, ids ...string) {
	t.Helper()
	if err := allTrue(m.SaltJSON(brine, "-t", "20", "-L", strings.Join(ids, ","), "test.ping"))(ids); err != nil {
		t.Errorf("a ping was lost: %v", err)
	}
}

// mustBeRoot skips a test that needs root.
func mustBeRoot(t *testing.T, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may", why)
	}
}

// command runs a function on a minion and returns the job's id and its result.
func command(t *testing.T, m *node, id, fun string, args ...string) (jid string, result any) {
	t.Helper()
	out, errs, code := m.Run(brine, "salt", append([]string{"--show-jid", "--static", "--out=json", "-t", "20", id, fun}, args...)...)
	head, rest, _ := strings.Cut(out, "\n")
	jid, ok := strings.CutPrefix(head, "jid: ")
	var rets map[string]any
	if err := json.Unmarshal([]byte(rest), &rets); err != nil || !ok {
		t.Fatalf("%s: salt ends with %d: %.300q %.300q", fun, code, out, errs)
	}
	return jid, rets[id]
}

// stored returns what the master has stored on disk of a job.
func stored(t *testing.T, m *node, jid string) (map[string]any, error) {
	t.Helper()
	out, errs, code := m.Run(brine, "salt-run", "jobs.lookup_jid", jid, "--out=json")
	var rets map[string]any
	if err := json.Unmarshal([]byte(out), &rets); err != nil {
		return nil, fmt.Errorf("salt-run ends with %d: %.300q %.300q", code, out, errs)
	}
	return rets, nil
}

// contains returns an error that names the missing string.
func contains(text string, wants ...string) error {
	for _, w := range wants {
		if !strings.Contains(text, w) {
			return fmt.Errorf("no %q in %.2000q", w, text)
		}
	}
	return nil
}
