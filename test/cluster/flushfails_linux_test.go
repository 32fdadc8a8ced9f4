package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	return inject(t, n, "fdatasync", "error=EIO:when=2+2")
}

// inject makes a system call of a daemon fail, as strace's option inject says, until end is called.
func inject(t *testing.T, n *node, call, how string) (end func()) {
	t.Helper()
	strace := tools.Need(t, "strace", "strace")
	trace := n.Path("strace")
	c := exec.Command(strace, "-f", "-p", strconv.Itoa(n.PID()), "-o", trace, "-e", "trace="+call, "-e", "inject="+call+":"+how)
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

// TestUnflushedReturn: while the disk of a directory that masters share refuses to flush, a return is not confirmed. It stays visible, and
// the system believes that it is on disk. When the minion repeats it, each master writes a new file before it confirms.
func TestUnflushedReturn(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "auto_accept: true\n", brine, brine).start()
	one := f.masters[0]
	w := f.minion(brine, "w", one.Host, "return_retry_timer: 1\nreturn_retry_timer_max: 1\n")
	eventually.Nil(t, soon, "the minion answers", func() error { return one.PingOnly(brine, "w") })
	out, errs, _ := one.Run(brine, "salt", "--async", "w", "cmd.run", "while [ ! -e "+w.Path("go")+" ]; do sleep 0.1; done; echo done")
	jid := jidIn(out)
	if jid == "" {
		t.Fatal(out, errs)
	}
	end := inject(t, one, "fsync", "error=EIO")
	w.Write("go", "")
	var unflushed os.FileInfo
	var path string
	eventually.Nil(t, soon, "the master cannot store the return", func() error {
		found, err := filepath.Glob(filepath.Join(f.shared, "cache/jobs/*/*/w/return.p"))
		if err != nil {
			return err
		}
		for _, p := range found {
			if b, _ := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(p)), "jid")); string(b) == jid {
				path = p
			}
		}
		if unflushed, err = os.Stat(path); err != nil {
			return err
		}
		if !strings.Contains(one.Log(), "cannot store the return of w for job "+jid) {
			return errors.New("it does not say so")
		}
		return nil
	})
	end()
	eventually.Nil(t, soon, "the return is in a new file", func() error {
		now, err := os.Stat(path)
		if err == nil && os.SameFile(unflushed, now) {
			err = errors.New("it is in the file that was not flushed")
		}
		return err
	})
	for _, m := range f.masters {
		if out, errs, _ := m.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid); !strings.Contains(out, "done") {
			t.Errorf("%s does not have the return: %s%s", m.Name, out, errs)
		}
	}
}
