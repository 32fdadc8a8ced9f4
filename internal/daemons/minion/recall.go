package minion

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

// note remembers that a job begins, and what it starts, and tells its masters
// that it runs if it takes longer than a moment. It returns what ends that.
func (m *Minion) note(j *job, procs *proc.Group) (end func()) {
	procs.Started = func(pid int) { m.memory.started(j.jid, pid) }
	m.memory.begin(j, texts(m.jobs.originsOf(j)))
	long := time.AfterFunc(sayRunning, func() { m.sayRuns(j) })
	return func() { long.Stop() }
}

// sayRunning is how long a job runs before its masters are told: a return that
// comes sooner says it as well.
const sayRunning = time.Second

// sayRuns tells the masters of a job that it runs.
func (m *Minion) sayRuns(j *job) {
	for _, c := range m.jobs.originsOf(j) {
		if c.keepsJobs.Load() {
			c.sayRunning(m.run, j.jid)
		}
	}
}

// sayRunning tells the master which of its jobs run. Nothing depends on it.
func (c *connection) sayRunning(ctx context.Context, jids ...string) {
	if len(jids) == 0 {
		return
	}
	if _, err := c.client.Request(ctx, value.DictOf("cmd", "_brine_running", "id", c.m.cfg.ID, "jids", jids)); err != nil {
		c.log.Debug("cannot tell the master which jobs run", "err", err)
	}
}

// texts are the names of masters in the memory.
func texts(conns []*connection) []string {
	out := make([]string, 0, len(conns))
	for _, c := range conns {
		if c != nil { // of a scheduled job
			out = append(out, c.addr.text)
		}
	}
	return out
}

// giveBack gives a return to masters; one that lasts is on disk before.
func (m *Minion) giveBack(ret *value.Dict, to []*connection, lasting bool) {
	switch {
	case !lasting:
	case !m.cfg.Options.PubRet || len(to) == 0:
		m.memory.end(ret.Str("jid"))
	default:
		m.memory.keep(ret, texts(to))
	}
	if !m.cfg.Options.PubRet {
		return
	}
	for _, c := range to {
		c.out.put(ret)
	}
}

// recall takes over what an earlier process left behind: returns that no
// master had, and jobs that it did not bring to an end.
func (m *Minion) recall() {
	if !m.cfg.Options.Outbox {
		return
	}
	m.memory.open(filepath.Join(m.cfg.CacheDir, "brine", "jobs.journal"))
	m.memory.forgetMasters(texts(m.masters()), m.cfg.Options.ReturnTo != returnToAny, time.Now())
	for _, d := range m.memory.interrupted() {
		m.memory.keep(m.interruptedReturn(d), strs(d.List("to")))
	}
	// What was just kept counts as queued, but is not.
	m.memory.allWaiting()
	for _, c := range m.masters() {
		c.out.remind()
	}
}

// interruptedReturn is what a job returns whose minion was stopped or killed
// while it ran. What it had started is left alone: it may be a package manager,
// which is better not disturbed.
func (m *Minion) interruptedReturn(d *value.Dict) *value.Dict {
	text := "ERROR: the minion was stopped or killed while it ran this job, which is not run again; what it had done by then stays"
	for _, p := range d.List("processes") {
		p, _ := p.(*value.Dict)
		pid := int(p.Int("pid"))
		if start := startTime(pid); start != 0 && start == p.Int("start") {
			text += fmt.Sprintf("\nIts process %d still runs: %s", pid, commandLine(pid))
		}
	}
	m.log.Warn("a job was interrupted by the end of the process that ran it", "jid", d.Str("jid"), "fun", value.Str(d.At("fun")))
	j := &job{jid: d.Str("jid"), fun: d.At("fun"), load: d}
	err := salt.Errorf(salt.Unavailable, "%s", text)
	ret := m.returnLoad(j, fn.Outcome{Return: text, Retcode: 1, Out: "nested", Err: err})
	ret.Set("interrupted", true)
	return ret
}

func strs(l []any) []string {
	out := make([]string, 0, len(l))
	for _, v := range l {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// returnToAny is the value of the option return_to that lets any master take
// a return.
const returnToAny = "any"

// Times of tending.
const (
	tendEvery  = time.Second
	flushAfter = 50 * time.Millisecond
)

// tendMemory brings notes to disk soon after they were made, finds another
// master for returns whose own ones are away, and tells of returns that were
// given up.
func (m *Minion) tendMemory(ctx context.Context) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.memory.flushes:
			// The return of a short job brings the note of its beginning to
			// disk, too.
			if sleep(ctx, flushAfter) {
				m.memory.flush()
			}
		case <-tick.C:
			if m.cfg.Options.ReturnTo == returnToAny {
				m.findOthers(time.Now())
			}
			if jids := m.memory.givenUp(); len(jids) > 0 {
				m.fire(salt.Tag("minion", m.cfg.ID, "returns_dropped"), value.DictOf("jids", jids, "count", len(jids)))
			}
		}
	}
}

// strayReturns bounds the returns that are given to another master at a time.
const strayReturns = 200

// findOthers gives returns that their own masters have not taken in time to
// one that is there.
func (m *Minion) findOthers(now time.Time) {
	var there []*connection
	for _, c := range m.masters() {
		if c.is(connected) {
			there = append(there, c)
		}
	}
	if len(there) == 0 {
		return
	}
	wait := max(m.cfg.Options.ReturnRetryTimer, time.Second)
	for _, s := range m.memory.strays(now.Add(-wait), now, strayReturns) {
		i := slices.IndexFunc(there, func(c *connection) bool { return !slices.Contains(s.own, c.addr.text) })
		if i < 0 {
			continue
		}
		there[i].log.Info("a return goes to this master: its own has not taken it", "jid", s.load.Str("jid"), "published by", s.own)
		there[i].out.put(s.load)
	}
}

// flush brings the notes to disk.
func (m *memory) flush() {
	m.mu.Lock()
	j := m.j
	m.mu.Unlock()
	if j == nil {
		return
	}
	if err := j.Sync(); err != nil {
		m.log.Error("the ids of jobs may not survive a loss of power", "err", err)
	}
}

// allWaiting marks all returns as being in no queue.
func (m *memory) allWaiting() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.queue {
		for i := range p.to {
			p.to[i].queued = false
		}
	}
}

// startTime is when a process was started, in ticks since boot, by which it
// can be told from a later one with the same number; 0 if it is not there or
// cannot be told.
func startTime(pid int) int64 {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 20 || f[0] == "Z" {
		return 0
	}
	n, _ := strconv.ParseInt(f[19], 10, 64)
	return n
}

// commandLine is how a process was called, shortened.
func commandLine(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || syscall.Kill(pid, 0) != nil {
		return "?"
	}
	return fmt.Sprintf("%.200q", strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " ")))
}
