package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// smallDisk gives a node a separate disk for a directory, in a mount namespace, and returns a
// function that runs a command there.
func smallDisk(t *testing.T, n *node, directory, size string) func(script string) error {
	t.Helper()
	if err := os.MkdirAll(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	// The namespace exists as long as the standard input of the holder is open.
	holder := exec.Command("unshare", "-m", "sh", "-c", `mount -t tmpfs -o size="$1",mode=0755 tmpfs "$2" && echo ready && exec cat`, "sh", size, directory)
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Skip("no mount namespaces:", err)
	}
	t.Cleanup(func() { in.Close(); holder.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Skip("no mount namespaces, which only root has")
	}
	n.Within = []string{"nsenter", "-m", "-r", "-t", fmt.Sprint(holder.Process.Pid), "--"} // -r: use the root directory of the holder in a chroot
	return func(script string) error {
		c := exec.Command(n.Within[0], append(n.Within[1:], "sh", "-c", script, "sh", directory)...)
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
}

// TestApartFullDisk: while the disk of one of three masters is full, the others command the fleet,
// including minions that are also connected to that master, and decide about keys. When there is
// space again, it gets everything that it missed.
func TestApartFullDisk(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "")
	full := a.masters[2]
	disk := smallDisk(t, full, full.Path("var/cache/salt/master"), "64m")
	a.start()
	a.minion("m0", full, a.masters[0])
	eventually.Nil(t, soon, "m0 is seen", func() error {
		if s := state(a.masters[1], "m0"); s != "minions_pre" {
			return errors.New(s)
		}
		return nil
	})
	a.masters[1].Accept("m0")
	for _, m := range a.masters {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
	}
	a.equal(a.masters[0], 3, map[string]int{"key": 1, "minion": 1})
	// Fill the disk to the last byte, including space that the master frees meanwhile.
	if err := disk(`dd if=/dev/zero of="$1/filler" bs=4k 2>/dev/null; dd if=/dev/zero of="$1/filler2" bs=1 2>/dev/null; test "$(df --output=avail ` +
		`"$1" | tail -n 1)" -eq 0`); err != nil {
		t.Fatal(err)
	}
	var jids []string
	for i, m := range a.masters[:2] {
		for j := range 5 {
			text := fmt.Sprintf("while it is full %d %d", i, j)
			eventually.Nil(t, soon, "a job of "+m.Name, func() error {
				out, errs, _ := m.Run(brine, "salt", "--out=json", "m0", "test.echo", text)
				if !strings.Contains(out, text) {
					return errors.New(out + errs)
				}
				return nil
			})
			out, errs, _ := m.Run(brine, "salt", "--async", "m0", "test.echo", text)
			jids = append(jids, jidIn(out+errs))
		}
	}
	a.minion("m1", a.masters[0])
	eventually.Nil(t, soon, "m1 is seen", func() error {
		if s := state(a.masters[1], "m1"); s != "minions_pre" {
			return errors.New(s)
		}
		return nil
	})
	a.masters[1].Accept("m1")
	eventually.Nil(t, soon, "m1 answers", func() error { return a.masters[0].PingAll(brine, "m1") })
	eventually.Nil(t, soon, "the disk is really full", func() error {
		if log := full.Log(); !strings.Contains(log, "no space left") {
			return errors.New(log[max(0, len(log)-1000):])
		}
		return nil
	})
	if !full.Alive() {
		t.Errorf("the master whose disk is full has ended")
	}
	if err := disk(`rm "$1/filler" "$1/filler2"`); err != nil {
		t.Fatal(err)
	}
	if !full.Alive() {
		full.Start()
	}
	a.equal(a.masters[0], 3, map[string]int{"key": 2, "job": 20, "return": 20})
	for _, jid := range jids {
		// The minion may have kept a return that this master could not store.
		eventually.Nil(t, soon, "the master whose disk was full has job "+jid, func() error {
			out, errs, _ := full.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
			if !strings.Contains(out, "while it is full") {
				return errors.New(out + errs)
			}
			return nil
		})
	}
	eventually.Nil(t, soon, "all answer to it", func() error { return full.PingAll(brine, "m0", "m1") })
}

// TestApartWrongClock: a master whose clock is five minutes ahead is not admitted again, and
// reports why; the others continue. With the right clock it gets everything that it missed, and the
// others get its own changes. It runs only if BRINE_CLOCK is set (daemontest.Ahead).
func TestApartWrongClock(t *testing.T) {
	t.Parallel()
	ahead := daemontest.Ahead(t)
	a := newApart(t, 3, "auto_accept: true\n").start()
	wrong := a.masters[2]
	a.minion("m0", wrong, a.masters[0])
	for _, m := range a.masters {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
	}
	// Alone it cannot know that its clock is wrong.
	for _, m := range a.masters {
		m.Kill()
	}
	wrong.Within = ahead
	wrong.Start()
	eventually.Nil(t, soon, "it answers to the one whose clock is wrong", func() error { return wrong.PingAll(brine, "m0") })
	for _, m := range a.masters[:2] {
		m.Start()
	}
	for _, m := range a.masters[:2] {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
	}
	eventually.Nil(t, soon, "what is wrong is said", func() error {
		if !strings.Contains(wrong.Log()+a.masters[0].Log(), "the clock of") {
			return errors.New(wrong.Log())
		}
		return nil
	})
	wrong.Signal(syscall.SIGTERM)
	wrong.Wait(30 * time.Second)
	wrong.Launch()
	if code := wrong.Wait(60 * time.Second); code == 0 {
		t.Error("it is let in")
	}
	wrong.Within = nil
	wrong.Start()
	a.equal(a.masters[0], 3, map[string]int{"key": 1, "job": 4, "return": 4})
	eventually.Nil(t, soon, "it answers to all", func() error {
		for _, m := range a.masters {
			if err := m.PingAll(brine, "m0"); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestApartClockJumps: the clock of one of three running masters jumps five minutes ahead, and
// later back. Jobs continue meanwhile. Its decisions with the wrong clock do not win over later
// decisions of others. Afterwards all have the same records. It runs only if BRINE_CLOCK is set
// (daemontest.Jumping).
func TestApartClockJumps(t *testing.T) {
	t.Parallel()
	within, jump := daemontest.Jumping(t)
	a := newApart(t, 3, "")
	wrong, others := a.masters[2], a.masters[:2]
	wrong.Within = within
	a.start()
	a.minion("m0", wrong, others[0])
	others[0].Accept("m0")
	answer := func(when string, masters ...*node) {
		t.Helper()
		for _, m := range masters {
			eventually.Nil(t, soon, "it answers to "+m.Name+" "+when, func() error { return m.PingAll(brine, "m0") })
		}
	}
	answer("at first", a.masters...)
	// The key is known to all masters, and pending.
	late := a.minion("late", others[0])
	eventually.Nil(t, soon, "it is seen", func() error {
		if s := state(wrong, "late"); s != "minions_pre" {
			return errors.New(s)
		}
		return nil
	})
	jump(true)
	answer("while the clock of one is ahead", others...)
	answer("whose clock is ahead", wrong)
	wrong.Accept("late")
	out, errs, _ := wrong.Run(brine, "salt", "--async", "m0", "test.echo", "ahead")
	jid := jidIn(out + errs)
	if jid == "" {
		t.Fatal(out, errs)
	}
	eventually.Nil(t, soon, "the job of then has returned", func() error {
		out, errs, _ := wrong.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
		if !strings.Contains(out, `"ahead"`) {
			return errors.New(out + errs)
		}
		return nil
	})
	jump(false)
	answer("when it is right again", a.masters...)
	for _, m := range a.masters {
		eventually.Nil(t, soon, "the decision of then is known to "+m.Name, func() error {
			if s := state(m, "late"); s != "minions" {
				return errors.New(s)
			}
			return nil
		})
	}
	late.Kill()
	if out, errs, code := others[0].Run(brine, "salt-key", "-y", "--include-all", "-r", "late"); code != 0 {
		t.Fatal(out, errs)
	}
	for _, m := range a.masters {
		eventually.Nil(t, soon, "the later decision is known to "+m.Name, func() error {
			if s := state(m, "late"); s != "minions_rejected" {
				return errors.New(s)
			}
			return nil
		})
	}
	a.equal(others[0], 3, map[string]int{"key": 2, "job": 7, "return": 7})
}

// TestApartClockBehind: the clock of one of three running masters is three days behind for some seconds, while it and the others decide about
// keys and give jobs. Nothing is discarded: afterwards all masters have the same decisions, jobs and returns, and a later decision replaces
// those of then. It runs only if BRINE_CLOCK is set (daemontest.JumpingBy).
func TestApartClockBehind(t *testing.T) {
	t.Parallel()
	within, jump := daemontest.JumpingBy(t, -72*time.Hour)
	a := newApart(t, 3, "")
	wrong, others := a.masters[2], a.masters[:2]
	wrong.Within = within
	a.start()
	a.minion("m0", wrong, others[0])
	others[0].Accept("m0")
	a.pend(others[0], "k0", "k1", "k2", "k3", "k4", "k5")
	for _, m := range a.masters {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
		isState(t, m, "k5", "minions_pre")
	}
	decide := func(m *node, args ...string) {
		t.Helper()
		if out, errs, code := m.Run(brine, "salt-key", append([]string{"-y"}, args...)...); code != 0 {
			t.Fatal(out, errs)
		}
	}
	jobs := map[string]string{}
	job := func(m *node, word string) {
		t.Helper()
		out, errs, _ := m.Run(brine, "salt", "--async", "m0", "test.echo", word)
		jid := jidIn(out + errs)
		if jid == "" {
			t.Fatal(out, errs)
		}
		jobs[jid] = word
	}
	jump(true)
	time.Sleep(100 * time.Millisecond) // the program looks every 20 ms
	decide(wrong, "-a", "k0")
	decide(wrong, "-r", "k1")
	decide(wrong, "-d", "k2")
	job(wrong, "at-the-wrong-one")
	decide(others[0], "-r", "k3")
	decide(others[1], "-a", "k4")
	job(others[0], "at-another-one")
	decide(wrong, "-r", "k5")
	isState(t, others[0], "k5", "minions_rejected")
	decide(others[0], "-d", "k5") // knowing the decision of then
	eventually.Nil(t, soon, "it answers to the one whose clock is behind", func() error { return wrong.PingAll(brine, "m0") })
	jump(false)
	for _, m := range a.masters {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
		for id, want := range map[string]string{"k0": "minions", "k1": "minions_rejected", "k2": "", "k3": "minions_rejected", "k4": "minions", "k5": ""} {
			isState(t, m, id, want)
		}
		for jid, word := range jobs {
			eventually.Nil(t, soon, m.Name+" has the return "+word, func() error {
				out, errs, _ := m.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
				if !strings.Contains(out, word) {
					return fmt.Errorf("%s: %s%s", jid, out, errs)
				}
				return nil
			})
		}
	}
	decide(others[1], "--include-accepted", "-r", "k0")
	for _, m := range a.masters {
		isState(t, m, "k0", "minions_rejected")
	}
	a.equal(others[0], 3, map[string]int{"job": len(jobs), "return": len(jobs)})
	for _, m := range a.masters {
		if strings.Contains(m.Log(), "a replicated record differs") {
			t.Errorf("%s found a difference", m.Name)
		}
	}
}

// TestApartJobsOutliveClock: jobs that are given at another master while the clock of one is days ahead or behind for a moment, or at that
// one, reach minions that connect later, each to one of them. It runs only if BRINE_CLOCK is set (daemontest.NewClocks).
func TestApartJobsOutliveClock(t *testing.T) {
	t.Parallel()
	within, set := daemontest.NewClocks(t).One(t)
	a := newApart(t, 2, "auto_accept: true\n")
	wrong, other := a.masters[1], a.masters[0]
	wrong.Within = within
	a.start()
	minions := map[*node]*node{wrong: a.minion("m0", wrong), other: a.minion("m1", other)}
	for _, m := range a.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, "m0", "m1") })
	}
	for _, m := range minions {
		m.Kill()
	}
	jobs := map[string]string{}
	job := func(at *node, id, word string) {
		t.Helper()
		out, errs, _ := at.Run(brine, "salt", "--async", "--expire", "10m", id, "test.echo", word)
		jid := jidIn(out + errs)
		if jid == "" {
			t.Fatal(out, errs)
		}
		jobs[jid] = word
	}
	for _, off := range []time.Duration{72 * time.Hour, -72 * time.Hour} {
		set(off)
		time.Sleep(100 * time.Millisecond) // the program looks every 20 ms
		job(other, "m0", "at-the-right-one-"+off.String())
		job(wrong, "m1", "at-the-wrong-one-"+off.String())
		eventually.Nil(t, soon, "the masters have the same", func() error {
			r, err := check(other)
			if err == nil && (!r.Equal || r.Counts["job"] < len(jobs)) {
				err = fmt.Errorf("%+v", r)
			}
			return err
		})
		set(0)
		time.Sleep(100 * time.Millisecond)
	}
	for _, m := range minions {
		m.Start()
	}
	for jid, word := range jobs {
		eventually.Nil(t, soon, "the job "+word+" returns", func() error {
			out, errs, _ := other.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
			if !strings.Contains(out, word) {
				return fmt.Errorf("%s: %s%s", jid, out, errs)
			}
			return nil
		})
	}
}
