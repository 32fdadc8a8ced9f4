package durable

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// mark returns a script that writes a line to the minion's directory, and prints it.
func mark(text string) string { return "echo " + text + " >> /proc/$PPID/cwd/ran; echo " + text }

func (b *boss) stateIs(jid, id, want string) {
	b.t.Helper()
	eventually.Nil(b.t, waitLimit, fmt.Sprintf("%s says of %s that it is %s", b.Name, id, want), func() error {
		if got := b.state(jid, id); got != want {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
}

func ranOnce(t *testing.T, w *node, want ...string) {
	t.Helper()
	if got := lines(w.Path("ran")); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s ran %q, want %q", w.Name, got, want)
	}
}

func begun(t *testing.T, w *node, n int) {
	t.Helper()
	eventually.Nil(t, waitLimit, "the job has begun", func() error {
		if len(lines(w.Path("ran"))) < n {
			return errNotYet
		}
		return nil
	})
}

// TestJobWaitsForItsMinion: a job published while the minion is down is kept through a restart of
// the master, and delivered once.
func TestJobWaitsForItsMinion(t *testing.T) {
	b := bosses(t, 1, "")[0]
	w := worker(t, "w1", "", b)
	b.answered("w1")
	// Only a minion that has reported its jobs to the master will ask for missed ones; until then
	// it could be a stock minion.
	b.stateIs(b.mustShell("*", "sleep 10", nil), "w1", "running")
	w.Kill()
	kept := b.mustShell("*", mark("kept"), value.DictOf("expire", 120))
	none := b.mustShell("*", mark("none"), value.DictOf("expire", 0))
	short := b.mustShell("*", mark("short"), value.DictOf("expire", 1))
	if s := b.state(kept, "w1"); s != "queued" {
		t.Errorf("state while the minion is down: %q", s)
	}
	b.stateIs(short, "w1", "expired")
	if s := b.state(none, "w1"); s != "expired" {
		t.Errorf("state of the job that does not wait: %q", s)
	}
	b.Kill()
	b.Start()
	tags := b.Events()
	w.Start()
	b.shows(kept, "w1", "kept")
	b.stateIs(kept, "w1", "returned")
	if all := tags(); !strings.Contains(all, "salt/job/"+kept+"/state/w1\n") {
		t.Errorf("no event tells of the delivery: %s", all)
	}
	w.Kill()
	w.Start()
	b.answered("w1")
	ranOnce(t, w, "kept")
	for _, jid := range []string{none, short} {
		if rets, err := b.results(jid); err != nil || len(rets) != 0 {
			t.Errorf("a job that had expired has results: %v, %v", rets, err)
		}
	}
}

// TestStatesSurviveTheMaster: after a restart the master still knows the state of jobs on
// unreachable minions.
func TestStatesSurviveTheMaster(t *testing.T) {
	b := bosses(t, 1, "")[0]
	w1, w2 := worker(t, "w1", "", b), worker(t, "w2", "", b)
	b.answered("w1", "w2")
	b.stateIs(b.mustShell("*", "sleep 3", nil), "w2", "running") // so that the master knows that it is a Brine minion
	w2.Kill()
	keep := value.DictOf("expire", 600)
	jid := map[string]string{
		"expired": b.mustShell("*", mark("short"), value.DictOf("expire", 1)),
		"done":    b.mustShell("*", mark("done"), keep),
	}
	b.shows(jid["done"], "w1", "done")
	jid["long"] = b.mustShell("*", mark("long")+"; sleep 60", keep)
	b.stateIs(jid["long"], "w1", "running")
	b.stateIs(jid["expired"], "w2", "expired")
	w1.Kill()
	want := map[string]string{"expired w1": "returned", "expired w2": "expired", "done w1": "returned", "done w2": "queued", "long w1": "running",
		"long w2": "queued"}
	same := func(when string) {
		t.Helper()
		for k, state := range want {
			name, id, _ := strings.Cut(k, " ")
			if got := b.state(jid[name], id); got != state {
				t.Errorf("%s: of the job %s the master says that it is %s on %s, want %s", when, name, got, id, state)
			}
		}
	}
	same("before")
	b.Signal(syscall.SIGTERM)
	b.Wait(waitLimit)
	b.Start()
	same("after a restart")
	b.Kill()
	b.Start()
	same("killed after that")
}

// TestMinionKilledInAJob: the minion is killed while it runs a job. This is reported, the processes
// of the job are named and not killed, and nothing runs twice.
func TestMinionKilledInAJob(t *testing.T) {
	b := bosses(t, 1, "")[0]
	w := worker(t, "w1", "", b)
	b.answered("w1")
	tags := b.Events()
	jid := b.mustShell("*", mark("first")+"; sleep 30; "+mark("second"), value.DictOf("expire", 300))
	begun(t, w, 1)
	b.stateIs(jid, "w1", "running")
	w.Kill()
	w.Start()
	b.shows(jid, "w1", "stopped or killed while it ran this job")
	rets, err := b.results(jid)
	if err != nil || !strings.Contains(value.Str(rets["w1"]), "still runs") || !strings.Contains(value.Str(rets["w1"]), "sleep 30") {
		t.Errorf("the report does not name the process that goes on: %q, %v", rets["w1"], err)
	}
	for _, f := range strings.Fields(value.Str(rets["w1"])) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
			if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil {
				t.Errorf("process %d: %v", pid, err)
			}
		}
	}
	w.Kill()
	w.Start()
	b.answered("w1")
	ranOnce(t, w, "first")
	if n := strings.Count(tags(), "salt/job/"+jid+"/ret/w1\n"); n != 1 {
		t.Errorf("%d returns", n)
	}
}

// TestMinionKilledBeforeAJob: the minion is killed while a job waits for a free slot. The job runs
// after the restart, although the minion had it when its master asked.
func TestMinionKilledBeforeAJob(t *testing.T) {
	b := bosses(t, 1, "")[0]
	w := worker(t, "w1", "process_count_max: 1\n", b)
	b.answered("w1")
	b.mustShell("*", mark("first")+"; exec sleep 30", value.DictOf("expire", 300))
	begun(t, w, 1)
	jid := b.mustShell("*", mark("second"), value.DictOf("expire", 300))
	// It asks for missed jobs 2 s and 10 s after it connected, and reports those that run. On a slow
	// machine that may be over, and the state stays.
	for end := time.Now().Add(11 * time.Second); b.state(jid, "w1") == "queued" && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	w.Kill()
	w.Start()
	begun(t, w, 2)
	b.answered("w1")
	ranOnce(t, w, "first", "second")
}

// TestMinionNotConnected: a while after a minion has died, salt says so, and the minion gets the job
// when it is back.
func TestMinionNotConnected(t *testing.T) {
	b := bosses(t, 1, "")[0]
	w := worker(t, "w1", "", b)
	b.answered("w1")
	time.Sleep(11 * time.Second) // the master looks every five
	w.Kill()
	eventually.Nil(t, waitLimit, "salt says that the minion is not connected", func() error {
		out, errs, code := b.Run(brine, "salt", "w1", "cmd.run", mark("kept"))
		if !strings.Contains(out, "[Not connected since ") || !strings.Contains(out, "It gets the job if it connects before ") || code != 1 {
			return fmt.Errorf("%d: %s%s", code, out, errs)
		}
		return nil
	})
	w.Start()
	begun(t, w, 1)
}

// TestJobThatKillsItsMinion: a job that kills its own minion does so once, although jobs are kept
// for a minion that comes back.
func TestJobThatKillsItsMinion(t *testing.T) {
	b := bosses(t, 1, "")[0]
	w := worker(t, "w1", "", b)
	b.answered("w1")
	jid := b.mustShell("*", mark("x")+"; kill -9 $PPID; sleep 1", value.DictOf("expire", 300))
	w.Wait(waitLimit)
	w.Start()
	b.shows(jid, "w1", "stopped or killed")
	b.answered("w1")
	ranOnce(t, w, "x")
}

// TestResultOutlivesMastersAndMinion: all masters are unreachable when the job ends, and the minion
// is killed before they are back.
func TestResultOutlivesMastersAndMinion(t *testing.T) {
	bs := bosses(t, 3, "")
	w := worker(t, "w1", "", bs...)
	for _, b := range bs {
		b.answered("w1")
	}
	jid := bs[1].mustShell("*", mark("begin")+"; sleep 2; "+mark("end"), nil)
	begun(t, w, 1)
	for _, b := range bs {
		b.Kill()
	}
	begun(t, w, 2)
	eventually.Nil(t, waitLimit, "the return is on disk", func() error {
		j, err := os.ReadFile(w.Path("var/cache/salt/minion/brine/jobs.journal"))
		if err == nil && !strings.Contains(string(j), "end") {
			err = errNotYet
		}
		return err
	})
	w.Kill()
	w.Start()
	for _, b := range bs {
		b.Start()
	}
	bs[1].shows(jid, "w1", "end")
	ranOnce(t, w, "begin", "end")
}

// TestPublisherDies: the master that published a job is killed and stays down. Another one gets the
// result, unless that is forbidden, and so does the first one when it is back.
func TestPublisherDies(t *testing.T) {
	for _, to := range []string{"any", "publisher"} {
		t.Run(to, func(t *testing.T) {
			bs := bosses(t, 2, "")
			w := worker(t, "w1", "return_to: "+to+"\nreturn_retry_timer: 1\n", bs...)
			for _, b := range bs {
				b.answered("w1")
			}
			jid := bs[0].mustShell("*", mark("begin")+"; sleep 1; "+mark("end"), nil)
			begun(t, w, 1)
			bs[0].Kill()
			begun(t, w, 2)
			if to == "any" {
				took := bs[1].shows(jid, "w1", "end")
				t.Logf("the other master had the result %.1f s after the job's end", took.Seconds())
			} else {
				time.Sleep(4 * time.Second) // it would have arrived by then
				if rets, err := bs[1].results(jid); err != nil || len(rets) != 0 {
					t.Errorf("the other master has %v, %v", rets, err)
				}
			}
			bs[0].Start()
			bs[0].shows(jid, "w1", "end")
			ranOnce(t, w, "begin", "end")
		})
	}
}

// cutter is a proxy between a minion and a master that can silently drop all data.
type cutter struct {
	host string
	mu   sync.Mutex
	dead bool
	held []net.Conn
	// muteNext drops the answers of the master from the next subscription on.
	muteNext, mute bool
	muted          []net.Conn // connections that have lost answers
}

func newCutter(t *testing.T, b *boss) *cutter {
	t.Helper()
	c := &cutter{host: daemontest.Host()}
	for _, port := range []int{daemontest.PublishPort, daemontest.RetPort} {
		l, err := net.Listen("tcp", net.JoinHostPort(c.host, strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close(); c.close() })
		go func() {
			for {
				in, err := l.Accept()
				if err != nil {
					return
				}
				if port == daemontest.PublishPort {
					c.subscribed()
				}
				if out, err := net.Dial("tcp", net.JoinHostPort(b.Host, strconv.Itoa(port))); err == nil {
					c.carry(in, out, port == daemontest.RetPort)
				} else {
					in.Close()
				}
			}
		}()
	}
	return c
}

func (c *cutter) carry(in, out net.Conn, requests bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = append(c.held, in, out)
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			b := make([]byte, 64<<10)
			for {
				n, err := way[0].Read(b)
				if err != nil {
					if !c.isDead() { // a cut cable does not signal the end
						way[1].Close()
					}
					return
				}
				if !c.isDead() && !(requests && way[0] == out && c.drops(in)) {
					_, _ = way[1].Write(b[:n])
				}
			}
		}()
	}
}

func (c *cutter) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// cut makes the proxy drop all data. fix lets new connections through; connections that have lost
// data stay unusable.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
}

func (c *cutter) mend() {
	c.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = false
}

func (c *cutter) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.held {
		n.Close()
	}
	c.held = nil
}

func (c *cutter) subscribed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mute = c.mute || c.muteNext
	c.muteNext = false
}

// drops reports whether the answers on a connection are dropped.
func (c *cutter) drops(in net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mute {
		c.muted = append(c.muted, in)
	}
	return c.mute
}

// muteFromSubscription drops answers of the master, but not its publications, from the next subscription
// on. unmute lets them through again.
func (c *cutter) muteFromSubscription() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.muteNext = true
}

func (c *cutter) unmute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mute = false
	for _, n := range c.muted {
		n.Close()
	}
	c.muted = nil
}

// TestUnansweredRequestForMissedJobs: a master publishes and sends heartbeats, but answers no request after
// the sign-in for a while. Then the minion still gets the job that the master kept for it, and runs it once.
func TestUnansweredRequestForMissedJobs(t *testing.T) {
	dir := t.TempDir()
	b := bosses(t, 1, "pillar_roots: {base: ["+dir+"]}\n")[0]
	for name, text := range map[string]string{"top.sls": "base: {'*': [all]}\n", "all.sls": "here: the pillar\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newCutter(t, b)
	w := daemontest.NewMinion(t, brine, "w1", []string{c.host}, "heartbeat_interval: 1\nreturn_retry_timer: 1\nrequest_channel_timeout: 1\n")
	w.Level = "debug"
	w.Start()
	b.answered("w1")
	w.Kill()
	jid := b.mustShell("*", mark("missed"), value.DictOf("expire", 600))
	c.muteFromSubscription()
	w.Launch()
	w.Logged("cannot fetch the pillar", "cannot request missed jobs")
	c.unmute()
	b.shows(jid, "w1", "missed")
	b.answered("w1")
	ranOnce(t, w, "missed")
	eventually.Nil(t, waitLimit, "the minion has its pillar", func() error {
		out, errs, _ := b.Run(brine, "salt", "w1", "pillar.raw", "here")
		if !strings.Contains(out, "the pillar") {
			return errors.New(out + errs)
		}
		return nil
	})
	if n := strings.Count(w.Log(), "] connected to the master"); n != 2 {
		t.Errorf("the minion has connected %d times, not on the start and the restart", n)
	}
}

// TestNetworkCut: the network between minion and master drops all data for a while. Jobs published
// meanwhile run once, and a result in transit arrives.
func TestNetworkCut(t *testing.T) {
	b := bosses(t, 1, "")[0]
	c := newCutter(t, b)
	w := daemontest.NewMinion(t, brine, "w1", []string{c.host}, "heartbeat_interval: 1\nreturn_retry_timer: 1\n").Start()
	b.answered("w1")
	slow := b.mustShell("*", mark("slow")+"; sleep 2", value.DictOf("expire", 120))
	begun(t, w, 1)
	c.cut()
	var jids, want []string
	for i := range 3 {
		jids = append(jids, b.mustShell("*", mark(fmt.Sprint("cut", i)), value.DictOf("expire", 120)))
		want = append(want, fmt.Sprint("cut", i))
	}
	time.Sleep(3 * time.Second) // the slow job ends, and its return is lost on the way
	c.mend()
	b.shows(slow, "w1", "slow")
	for i, jid := range jids {
		b.shows(jid, "w1", want[i])
	}
	got := lines(w.Path("ran"))
	if len(got) != 4 || got[0] != "slow" {
		t.Errorf("ran: %q", got)
	}
}

// TestSameJobAgain: a job that is published twice, as by a client that did not get the answer, runs
// once, also after restarts of both sides.
func TestSameJobAgain(t *testing.T) {
	bs := bosses(t, 2, "")
	w := worker(t, "w1", "", bs...)
	for _, b := range bs {
		b.answered("w1")
	}
	jid := salt.NewJID(time.Now())
	send := func(b *boss) {
		t.Helper()
		if err := b.shell(t.Context(), jid, "*", mark("once"), value.DictOf("expire", 300)); err != nil {
			t.Fatal(err)
		}
	}
	send(bs[0])
	bs[0].shows(jid, "w1", "once")
	send(bs[0])
	send(bs[1])
	w.Kill()
	w.Start()
	for _, b := range bs {
		b.answered("w1")
		send(b)
		b.Kill()
		b.Start()
		b.answered("w1")
	}
	ranOnce(t, w, "once")
}
