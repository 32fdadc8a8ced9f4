package ha

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/daemontest"
)

// TestWrongClock has the clock of the minion, and then of a master, be five
// minutes ahead: commands, jobs that are kept and a change of the master work.
// The program with that clock is the same, built with a time.Now of its own,
// for which all has to be compiled anew; so it is only done when BRINE_CLOCK is
// set.
func TestWrongClock(t *testing.T) {
	if os.Getenv("BRINE_CLOCK") == "" {
		t.Skip("BRINE_CLOCK is not set: a program with another clock takes a minute to build")
	}
	ahead := buildAhead(t)
	for name, who := range map[string]int{"minion": -1, "master": 0} {
		t.Run(name, func(t *testing.T) {
			s := &setup{t: t}
			for i, name := range []string{"m1", "m2"} {
				m := daemontest.NewMaster(t, daemontest.Brine, name, daemontest.Host(), "auto_accept: True\n")
				if i == who {
					m.Within = ahead
				} else if i > 0 {
					waitKeys(t, s.sites[0].Node)
				}
				if i > 0 {
					shareKeys(t, s.sites[0].Node, m)
				}
				m.Start()
				s.sites = append(s.sites, &site{Node: m, front: &front{host: m.Host}, heard: listen(t, m)})
			}
			s.minion = daemontest.NewMinion(t, daemontest.Brine, "w1", s.hosts(), "master_type: failover\n")
			if who < 0 {
				s.minion.Within = ahead
			}
			s.minion.Start()
			s.usable(0)
			s.minion.Kill()
			kept := s.minion.Path("kept")
			if out, errs, code := s.sites[0].Run(daemontest.Brine, "salt", "--async", "--expire", "2m", "w1", "file.touch", kept); code != 0 {
				t.Fatal(out, errs)
			}
			s.minion.Start()
			daemontest.Eventually(t, within, "the kept job has run", func() error {
				_, err := os.Stat(kept)
				return err
			})
			s.standsBy(0, 1)
			s.sites[0].Kill()
			s.moved(1, 0)
			s.usable(1)
			s.alive()
		})
	}
}

// buildAhead builds the program with a clock that is five minutes ahead, and
// returns the command that runs it in the place of the usual one.
func buildAhead(t *testing.T) []string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const now = "sec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(source), now) != 1 {
		t.Fatalf("%s does not have %q once: this test must follow it", original, now)
	}
	dir := t.TempDir()
	changed, overlay, program := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "brine")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string][]byte{changed: []byte(strings.Replace(string(source), now, now+"\tsec += 300\n", 1)), overlay: replace} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("go", "build", "-overlay", overlay, "-o", program, "brine/cmd/brine")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return []string{"sh", "-c", `shift; exec "` + program + `" "$@"`, "sh"}
}
