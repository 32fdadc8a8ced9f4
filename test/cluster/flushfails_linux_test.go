package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// failFlushes makes every second flush of file contents by each thread of a daemon fail, until end is called: a commit of the job
// store flushes data, and then the page that makes the change current.
func failFlushes(t *testing.T, n *node) (end func()) {
	t.Helper()
	strace := tools.Need(t, "strace", "strace")
	trace := n.Path("strace")
	c := exec.Command(strace, "-f", "-p", strconv.Itoa(n.PID()), "-o", trace, "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=2+2")
	var errs strings.Builder
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for attached := false; !attached; {
		select {
		case err := <-ended:
			t.Skipf("strace cannot trace a daemon here: %v: %s", err, errs.String())
		default:
			b, err := os.ReadFile("/proc/" + strconv.Itoa(n.PID()) + "/status")
			attached = err != nil || !strings.Contains(string(b), "TracerPid:\t0\n")
		}
	}
	end = func() {
		c.Process.Signal(syscall.SIGINT)
		<-ended
		ended <- nil
	}
	t.Cleanup(end)
	return end
}

// TestRefusedJobs: a job that a master refuses because a flush fails is run by no minion and listed by no master, neither then nor
// after a restart. One that it accepts runs once.
func TestRefusedJobs(t *testing.T) {
	t.Parallel()
	a := newApart(t, 2, "auto_accept: true\n").start()
	one, two := a.masters[0], a.masters[1]
	w := daemontest.NewMinion(t, brine, "w", []string{two.Host}, "return_retry_timer: 1\nreturn_retry_timer_max: 1\n").Start()
	for _, m := range a.masters {
		eventually.Nil(t, soon, "the minion answers "+m.Name, func() error { return m.PingOnly(brine, "w") })
	}
	end := failFlushes(t, one)
	var refused, accepted []string
	publish := func() {
		t.Helper()
		word := fmt.Sprintf("word%d.", len(refused)+len(accepted))
		out, errs, _ := one.Run(brine, "salt", "--async", "--expire=10m", "w", "cmd.run", "echo "+word+" >> "+w.Path("ledger"))
		switch {
		case jidIn(out) != "":
			accepted = append(accepted, word)
		case strings.Contains(out+errs, "cannot record the job"):
			refused = append(refused, word)
		default:
			t.Fatalf("%q %q", out, errs)
		}
	}
	for i := 0; i < 60 && len(refused) < 12; i++ {
		publish()
	}
	end()
	publish()
	if len(refused) < 3 {
		t.Fatalf("the master refused %d of %d jobs", len(refused), len(refused)+len(accepted))
	}
	runs := func(word string) int {
		b, _ := os.ReadFile(w.Path("ledger"))
		return strings.Count(string(b), word)
	}
	check := func(when string) {
		t.Helper()
		eventually.Nil(t, soon, "accepted jobs run "+when, func() error {
			for _, word := range accepted {
				if n := runs(word); n != 1 {
					return fmt.Errorf("%s ran %d times", word, n)
				}
			}
			return nil
		})
		for _, m := range a.masters {
			out := ""
			eventually.Nil(t, soon, m.Name+" lists the accepted jobs "+when, func() error {
				var errs string
				out, errs, _ = m.Run(brine, "salt-run", "--out=json", "jobs.list_jobs")
				if len(accepted) > 0 && !containsAll(out, accepted...) {
					return errors.New(out + errs)
				}
				return nil
			})
			for _, word := range refused {
				if strings.Contains(out, word) {
					t.Errorf("%s lists the refused job %s %s", m.Name, word, when)
				}
			}
		}
		for _, word := range refused {
			if n := runs(word); n != 0 {
				t.Errorf("the refused job %s ran %d times %s", word, n, when)
			}
		}
	}
	check("at once")
	one.Kill()
	two.Kill()
	a.start()
	for _, m := range a.masters {
		eventually.Nil(t, soon, "the minion answers "+m.Name+" again", func() error { return m.PingOnly(brine, "w") })
	}
	check("after a restart")
	t.Logf("refused %d, accepted %d", len(refused), len(accepted))
}
