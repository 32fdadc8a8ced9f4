package badinput

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"brine/internal/py/value"
	"brine/internal/store/job"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// async starts a job and returns its id, or "" if the master was unreachable.
func async(t *testing.T, m *node, fun string, args ...string) string {
	t.Helper()
	out, _, code := m.Run(brine, "salt", append([]string{"--async", "w", fun}, args...)...)
	_, jid, ok := strings.Cut(strings.TrimSpace(out), "Executed command with job ID: ")
	if code != 0 || !ok {
		return ""
	}
	return jid
}

// TestKillMasterDuringReturns repeatedly kills a master while returns arrive. No acknowledged
// return is lost, every return of an accepted job arrives, and the store is intact.
func TestKillMasterDuringReturns(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	minion(t, "w", "", m)
	var mu sync.Mutex
	jobs, told := map[string]string{}, map[string]bool{}
	for round := range 4 {
		tags := m.Events()
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for c := range 3 {
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					text := fmt.Sprintf("%d-%d-%d", round, c, i)
					if jid := async(t, m, "test.echo", text); jid != "" {
						mu.Lock()
						jobs[jid] = text
						mu.Unlock()
					}
				}
			})
		}
		// Some returns are stored, others are in transit.
		eventually.Nil(t, waitLimit, "returns", func() error {
			if n := strings.Count(tags(), "/ret/w\n"); n < 3+round {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		m.Kill()
		close(stop)
		wg.Wait()
		for tag := range strings.Lines(tags()) {
			if jid, ok := strings.CutSuffix(strings.TrimPrefix(tag, "salt/job/"), "/ret/w\n"); ok {
				told[jid] = true
			}
		}
		m.Start()
	}
	answers(t, m, "w")
	if len(jobs) < 10 || len(told) < 10 {
		t.Fatalf("%d jobs, %d returns: too few to tell anything", len(jobs), len(told))
	}
	store := func() (*job.Store, error) { // only while the master is not running, since it locks the store
		m.Signal(syscall.SIGTERM)
		if code := m.Wait(waitLimit); code != 0 {
			t.Errorf("the master ends with %d", code)
		}
		return job.OpenReadOnly(m.Path("var/cache/salt/master/brine"), job.Options{}, quiet)
	}
	check := func() error {
		s, err := store()
		must(t, err)
		defer s.Close()
		var missing []string
		for jid, text := range jobs {
			if rets, err := s.Returns(jid); err != nil {
				t.Errorf("%s: %v", jid, err)
			} else if r := rets["w"]; r == nil {
				missing = append(missing, jid)
			} else if r.Str("return") != text {
				t.Errorf("%s: stored %v, want %q", jid, value.Repr(r), text)
			}
		}
		for jid := range told {
			if rets, err := s.Returns(jid); err != nil || rets["w"] == nil {
				t.Errorf("the return of %s was told and then lost: %v %v", jid, rets, err)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("%d of %d jobs have no return: %v", len(missing), len(jobs), missing)
		}
		return nil
	}
	for from := time.Now(); ; {
		err := check()
		if err == nil {
			break
		}
		if time.Since(from) > waitLimit {
			t.Fatal(err)
		}
		m.Start()
		answers(t, m, "w")
	}
	t.Logf("%d jobs, %d returns told before a kill", len(jobs), len(told))
	if damaged, _ := filepath.Glob(m.Path("var/cache/salt/master/brine/*damaged*")); len(damaged) > 0 {
		t.Errorf("the store was damaged: %v", damaged)
	}
}

// TestKillMinionDuringJob kills a minion during a job.
func TestKillMinionDuringJob(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	w := minion(t, "w", "", m)
	runs := w.Path("runs")
	jid := async(t, m, "cmd.run", "echo x >> "+runs+"; sleep 3; echo y >> "+runs)
	note := w.Path("var/cache/salt/minion/proc/" + jid)
	eventually.Nil(t, waitLimit, "the job runs", func() error { _, err := os.Stat(runs); return err })
	if _, err := os.Stat(note); err != nil || jid == "" {
		t.Errorf("no note of the job: %v", err)
	}
	w.Kill()
	w.Start()
	answers(t, m, "w")
	w.Logged("job was interrupted: its process was killed")
	if _, err := os.Stat(note); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the note of the job is still there: %v", err)
	}
	if rets, err := m.SaltJSON(brine, "w", "saltutil.running"); err != nil || fmt.Sprint(rets["w"]) != "[]" {
		t.Errorf("running: %v, %v", rets, err)
	}
	if out, errs, code := w.Run(brine, "salt-call", "--local", "saltutil.running", "--out=json"); code != 0 || strings.Contains(out, jid) {
		t.Errorf("salt-call: %d %s %s", code, out, errs)
	}
	if b := read(t, runs); strings.Count(b, "x") != 1 {
		t.Errorf("the job ran again: %q", b)
	}
}

// TestHangup changes the configuration of a running master.
func TestHangup(t *testing.T) {
	t.Parallel()
	m := daemontest.NewMaster(t, brine, "boss", daemontest.Host(), "gather_job_timeout: 1\n")
	m.Level = ""
	base := read(t, m.Path("master"))
	put(t, m.Path("master"), []byte(base+"log_level: info\n"), 0o600)
	change := func(more, says string) {
		t.Helper()
		put(t, m.Path("master"), []byte(base+more), 0o600)
		n := strings.Count(m.Log(), says)
		m.Signal(syscall.SIGHUP)
		eventually.Nil(t, waitLimit, says, func() error {
			if strings.Count(m.Log(), says) == n {
				return errors.New("it does not say so")
			}
			return nil
		})
	}
	m.Start()
	m.Logged("salt-master is up")
	w := daemontest.NewMinion(t, brine, "w", []string{m.Host}, "").Start()
	w.Logged("the key is pending")

	// A broken configuration changes nothing, and the reason is logged.
	for more, want := range map[string]string{
		"auto_accept: True\nx: [\n":               m.Path("master") + ":1",
		"auto_accept: True\ntimeout: soon\n":      `timeout: expected a number of seconds, got the string`,
		"auto_accept: True\ninclude: broken.conf": m.Path("broken.conf"),
	} {
		put(t, m.Path("broken.conf"), []byte("a: b: c\n"), 0o600)
		change(more, "cannot reload the configuration; keeping the old one")
		m.Logged(want)
	}
	must(t, os.Remove(m.Path("broken.conf")))
	put(t, m.Path("master"), []byte(base+"log_level: info\n"), 0o600) // for salt-key
	if keys, err := m.Keys(); err != nil || fmt.Sprint(keys["minions"], keys["minions_pre"]) != "[] [w]" {
		t.Errorf("keys %v, %v: a broken configuration was taken over", keys, err)
	}

	change("auto_accept: True\nnodegroups: {web: 'L@w'}\nlog_level: debug\n", "configuration reloaded")
	answers(t, m, "w")
	if rets, err := m.SaltJSON(brine, "-t", "20", "-N", "web", "test.ping"); err != nil || rets["w"] != true {
		t.Errorf("the new nodegroup: %v, %v", rets, err)
	}
	m.Logged("[DEBUG   ] published")
	change("nodegroups: {db: 'L@w'}\nlog_level: info\n", "configuration reloaded")
	n := strings.Count(m.Log(), "[DEBUG   ]")
	if rets, err := m.SaltJSON(brine, "-t", "20", "-N", "db", "test.ping"); err != nil || rets["w"] != true {
		t.Errorf("another nodegroup: %v, %v", rets, err)
	}
	if strings.Count(m.Log(), "[DEBUG   ]") != n {
		t.Error("the log still has debug lines")
	}
	late := daemontest.NewMinion(t, brine, "late", []string{m.Host}, "").Start()
	late.Logged("the key is pending")

	// A minion, too, reads its log level again, and changes nothing else.
	w.Kill()
	w.Level = ""
	w.Start()
	answers(t, m, "w")
	put(t, w.Path("minion"), []byte(read(t, w.Path("minion"))+"log_level: debug\n"), 0o600)
	w.Signal(syscall.SIGHUP)
	w.Logged("configuration reloaded")
	mustPing(t, m, "w")
	put(t, w.Path("minion"), []byte("id: [\n"), 0o600)
	w.Signal(syscall.SIGHUP)
	w.Logged("cannot reload the configuration; keeping the old one")
	mustPing(t, m, "w")
}

// TestTerminate stops busy daemons: with silent peers, a waiting runner, and a running job.
func TestTerminate(t *testing.T) {
	t.Parallel()
	m := master(t, "timeout: 3600\n")
	w := minion(t, "w", "", m)
	gone := minion(t, "gone", "", m)
	gone.Kill() // the runner will wait for it
	for _, addr := range []string{m.Requests(), m.Publications()} {
		for i := range 20 {
			c, err := net.Dial("tcp", addr)
			must(t, err)
			defer c.Close()
			if i%2 == 0 {
				c.Write(zmtpHello("DEALER"))
			}
		}
	}
	tags := m.Events()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { m.Run(brine, "salt-run", "manage.status", "timeout=3600") })
	eventually.Nil(t, waitLimit, "the runner runs", func() error { return contains(tags(), "salt/run/", "/new\n") })
	jid := async(t, m, "cmd.run", "sleep 3600")
	eventually.Nil(t, waitLimit, "the job runs", func() error { _, err := os.Stat(w.Path("var/cache/salt/minion/proc/" + jid)); return err })

	for _, n := range []*node{w, m} {
		place := map[*node]string{m: "master", w: "minion"}[n]
		from := time.Now()
		n.Signal(syscall.SIGTERM)
		if code := n.Wait(waitLimit); code != 0 { // its work would take an hour
			t.Errorf("%s ends with %d", n.Name, code)
		}
		t.Logf("%s ended after %.1f s", n.Name, time.Since(from).Seconds())
		if _, err := os.Stat(n.Path("var/run/salt-" + place + ".pid")); err == nil {
			t.Errorf("%s left its pid file", n.Name)
		}
		sockets, _ := filepath.Glob(n.Path("var/run/salt/" + place + "/*_event_*"))
		if len(sockets) > 0 {
			t.Errorf("%s left %v", n.Name, sockets)
		}
		if notes, _ := os.ReadDir(n.Path("var/cache/salt/minion/proc")); len(notes) > 0 {
			t.Errorf("%s left notes of jobs: %v", n.Name, notes)
		}
	}
}
