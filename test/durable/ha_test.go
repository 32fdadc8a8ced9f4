package durable

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/test/daemontest"
)

// doctor runs `brine ha doctor` and returns the differences as SECTION/ITEM.
func doctor(t *testing.T, n *node, args ...string) (diffs []string, out string, code int) {
	t.Helper()
	out, errs, code := n.Run(brine, "ha", append([]string{"doctor", "--out", "json"}, args...)...)
	var found struct {
		Differences []struct{ Section, Item, Fix string }
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("doctor ends with %d: %s %s", code, out, errs)
	}
	for _, d := range found.Differences {
		diffs = append(diffs, d.Section+"/"+d.Item)
		if d.Fix == "" {
			t.Errorf("no fix for %v", d)
		}
	}
	return diffs, out, code
}

func write(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDoctor(t *testing.T) {
	roots := []string{t.TempDir(), t.TempDir()}
	var bs []*boss
	for i, root := range roots {
		write(t, filepath.Join(root, "top.sls"), "base: {'*': [web]}\n")
		write(t, filepath.Join(root, "web.sls"), "{}\n")
		b := newBoss(t, []string{"boss1", "boss2"}[i], "file_roots: {base: ["+root+"]}\n")
		if i > 0 {
			copyKeys(t, bs[0].node, b.node)
		}
		b.Start()
		bs = append(bs, b)
	}
	w := worker(t, "w1", "", bs...)
	for _, b := range bs {
		b.answered("w1")
	}
	dirs := []string{bs[0].Dir, bs[1].Dir}
	if diffs, out, code := doctor(t, w, dirs...); code != 0 || len(diffs) != 0 {
		t.Errorf("masters that are alike, by their directories: %d %s", code, out)
	}
	if diffs, out, code := doctor(t, w); code != 0 || len(diffs) != 0 {
		t.Errorf("masters that are alike, as their minion: %d %s", code, out)
	}

	write(t, filepath.Join(roots[1], "web.sls"), "changed: {}\n")
	write(t, bs[1].Path("master.d/more.conf"), "publisher_acl: {bob: ['*']}\nworker_threads: 7\n")
	// Use an unreachable minion: a running one would sign in again.
	accepted := "etc/salt/pki/master/minions/"
	write(t, bs[0].Path(accepted+"w2"), bs[0].Read(accepted+"w1"))
	want := []string{"accepted minions/w2", "access/publisher_acl", "file_roots/base: web.sls", "options/worker_threads"}
	if diffs, out, code := doctor(t, w, dirs...); code != 1 || !slices.Equal(diffs, want) {
		t.Errorf("by their directories: %d %q\n%s", code, diffs, out)
	}
	report, errs, code := bs[1].Run(brine, "ha", "report")
	if code != 0 {
		t.Fatalf("report: %d %s", code, errs)
	}
	file := filepath.Join(t.TempDir(), "boss2.json")
	write(t, file, report)
	if diffs, out, code := doctor(t, w, dirs[0], file); code != 1 || !slices.Equal(diffs, want) {
		t.Errorf("by a directory and a report: %d %q\n%s", code, diffs, out)
	}
	if diffs, out, code := doctor(t, w); code != 1 || !slices.Contains(diffs, "file_roots/base: web.sls") {
		t.Errorf("as their minion: %d %q\n%s", code, diffs, out)
	}
	bs[1].Kill()
	if diffs, out, code := doctor(t, w); code != 1 || !slices.Contains(diffs, "this minion/signs in") {
		t.Errorf("with a dead master: %d %q\n%s", code, diffs, out)
	}
	if _, errs, code := w.Run(brine, "ha", "doctor", "/none", dirs[0]); code != 2 || !strings.Contains(errs, "brine ha report") {
		t.Errorf("a directory that is not there: %d %s", code, errs)
	}
}

func TestDrill(t *testing.T) {
	for _, fault := range []string{"kill", "freeze"} {
		n := daemontest.NewMaster(t, brine, "unused", daemontest.Host(), "")
		out, errs, code := n.Run(brine, "ha", "drill", "--fault", fault, "--away", "3", "--out", "json")
		var r struct {
			Minions map[string]struct{ Detected, Switched, Usable float64 }
			Commands, Results,
			Queued int
			Lost []string
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
			t.Fatalf("drill: %d %v %s %s", code, err, out, errs)
		}
		if len(r.Minions) != 3 || r.Commands < 60 || r.Results != r.Commands || len(r.Lost) > 0 {
			t.Errorf("%s: %s", fault, out)
		}
		for id, m := range r.Minions {
			if m.Detected < 0 || m.Switched < m.Detected || m.Usable <= 0 {
				t.Errorf("%s: %s: %+v", fault, id, m)
			}
		}
	}
}

// TestDrillOfOwnFleet: the drill harms a master of an existing fleet by one command and repairs it
// by another one; it commands the minions through the other master.
func TestDrillOfOwnFleet(t *testing.T) {
	bs := bosses(t, 2, "")
	w := worker(t, "w1", "master_type: failover\n", bs...)
	bs[0].answered("w1")
	w.Logged("signed in to a standby master")
	pid := fmt.Sprint(bs[0].PID())
	out, errs, code := bs[1].Run(brine, "ha", "drill", "--harm", "kill -STOP "+pid, "--mend", "kill -CONT "+pid, "--away", "5", "--out", "json")
	var r struct {
		Fault                     string
		Minions                   map[string]struct{ Detected, Switched, Usable float64 }
		Commands, Results, Queued int
		Lost                      []string
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("drill: %d %v %s %s", code, err, out, errs)
	}
	m := r.Minions["w1"]
	if r.Fault != "kill -STOP "+pid || r.Commands == 0 || r.Results != r.Commands || m.Switched < m.Detected || m.Usable <= 0 {
		t.Errorf("%s", out)
	}
	if _, errs, code := bs[1].Run(brine, "ha", "drill", "--harm", "false"); code == 0 || !strings.Contains(errs, "--mend") {
		t.Errorf("without --mend: %d %s", code, errs)
	}
	if _, errs, code := bs[1].Run(brine, "ha", "drill", "--harm", "echo no such host; exit 3", "--mend", "true"); code == 0 ||
		!strings.Contains(errs, "no such host") {
		t.Errorf("a command that fails: %d %s", code, errs)
	}
}
