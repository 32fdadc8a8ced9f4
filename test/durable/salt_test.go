package durable

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestSaltShowsStates: on request, the salt program reports on stderr the state of minions that do
// not return.
func TestSaltShowsStates(t *testing.T) {
	b := bosses(t, 1, "")[0]
	w1, w2 := worker(t, "w1", "", b), worker(t, "w2", "", b)
	b.answered("w1", "w2")
	w2.Kill()
	_, errs, _ := b.Run(brine, "salt", "-t", "1", "*", "test.ping")
	if strings.Contains(errs, "w2") {
		t.Errorf("said unasked: %s", errs)
	}
	out, errs, _ := b.Run(brine, "salt", "-v", "--summary", "-t", "1", "--expire", "10m", "*", "cmd.run", mark("late"))
	if !strings.Contains(errs, "w2 is queued: ") || !strings.Contains(errs, "States of the minions: queued: 1, returned: 1\n") {
		t.Errorf("stderr: %s", errs)
	}
	if strings.Contains(out, "queued") || !strings.Contains(out, "# of minions that did not return: 1") {
		t.Errorf("stdout: %s", out)
	}
	out, errs, _ = b.Run(brine, "salt", "-v", "--out=json", "--static", "-t", "1", "--expire", "0", "*", "test.ping")
	if got := states(t, errs); got["w2"] != "expired" {
		t.Errorf("states as JSON: %v of %s; stdout %s", got, errs, out)
	}
	w2.Start()
	b.answered("w2")
	begun(t, w2, 1)
	ranOnce(t, w2, "late")
	// A minion that vanishes during a job.
	done := make(chan string)
	go func() {
		_, errs, _ := b.Run(brine, "salt", "-v", "--out=json", "-t", "2", "w1", "cmd.run", mark("lost")+"; sleep 20")
		done <- errs
	}()
	begun(t, w1, 2)
	daemonSaysRunning(t, b)
	w1.Kill()
	errs = <-done
	if got := states(t, errs); got["w1"] != "lost contact" || !strings.Contains(errs, `"state":"running"`) {
		t.Errorf("states: %v of %s", got, errs)
	}
	if _, errs, code := b.Run(brine, "salt", "--expire", "soon", "*", "test.ping"); code != 64 || !strings.Contains(errs, "--expire takes") {
		t.Errorf("--expire soon: %d %s", code, errs)
	}
}

// daemonSaysRunning waits until the master reports that the last published job is running.
func daemonSaysRunning(t *testing.T, b *boss) {
	t.Helper()
	out, _, _ := b.Run(brine, "salt-run", "jobs.list_jobs", "search_function=cmd.run", "--out=json")
	var jobs map[string]any
	if err := json.Unmarshal([]byte(out), &jobs); err != nil {
		t.Fatal(err, out)
	}
	last := ""
	for jid := range jobs {
		last = max(last, jid)
	}
	b.stateIs(last, "w1", "running")
}

// states reads the lines of JSON in stderr: the last state of each minion.
func states(t *testing.T, errs string) map[string]string {
	t.Helper()
	got := map[string]string{}
	for line := range strings.Lines(errs) {
		var s struct{ Minion, State string }
		if err := json.Unmarshal([]byte(line), &s); err == nil && s.Minion != "" {
			got[s.Minion] = s.State
		}
	}
	return got
}
