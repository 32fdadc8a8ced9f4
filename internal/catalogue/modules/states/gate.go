package states

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// gate admits one state run at a time. Others are rejected, or wait, as they
// request. Runs of other processes of the minion count, too.
type gate struct {
	foreign func() []Job

	mu      sync.Mutex
	entries []*entry      // in order of arrival
	changed chan struct{} // closed and replaced when an entry leaves
}

// entry is a run that is active or waiting.
type entry struct {
	jid, fun string
	waiting  bool
	depth    int // a run may call functions of this module itself
}

func newGate(running func() []Job) *gate {
	return &gate{foreign: func() []Job {
		if running == nil {
			return nil
		}
		var out []Job
		for _, j := range running() {
			if j.PID != os.Getpid() && strings.HasPrefix(j.Fun, "state.") {
				out = append(out, j)
			}
		}
		return out
	}, changed: make(chan struct{})}
}

// poll is the interval at which runs of other processes are checked.
const poll = 500 * time.Millisecond

// enter waits for other runs to end, or rejects the function because of them.
// Messages call the run by the function that was published, such as
// state.apply, or else fun.
func (m *mod) enter(ctx context.Context, c *fn.Call, a args, fun string) (leave func(), conflict *value.List) {
	queue := a.Queue
	if queue == nil {
		queue = c.Config.Get("state_queue")
	}
	if ordered := a.Kwargs.Str("__pub_fun"); strings.HasPrefix(ordered, "state.") {
		fun = ordered
	}
	jid := c.JID
	if !salt.ValidJID(jid) {
		jid = salt.NewJID(time.Now())
	}
	texts, leave, err := m.gate.enter(ctx, jid, fun, queue, a.Kwargs.Bool("concurrent"))
	if err != nil {
		texts = []string{err.Error()}
	}
	if len(texts) > 0 {
		c.SetRetcode(codeCompile)
		return nil, value.Strings(texts)
	}
	return leave, nil
}

// enter returns a message for every conflicting run, or else a function that
// leaves the gate.
func (g *gate) enter(ctx context.Context, jid, fun string, queue any, concurrent bool) (conflicts []string, leave func(), err error) {
	foreign := g.foreign()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.entries {
		if e.jid == jid {
			e.depth++
			return nil, func() { g.leave(e) }, nil
		}
	}
	e := &entry{jid: jid, fun: fun}
	before := g.before(nil, foreign)
	if len(before) > 0 {
		switch {
		case waits(queue, len(before)):
			e.waiting = true
		case !concurrent:
			for _, j := range before {
				conflicts = append(conflicts, j.text())
			}
			return conflicts, nil, nil
		}
	}
	g.entries = append(g.entries, e)
	for e.waiting {
		changed := g.changed
		g.mu.Unlock()
		wait.Until(ctx, changed, poll)
		foreign = g.foreign()
		g.mu.Lock()
		if ctx.Err() != nil {
			g.remove(e)
			return nil, nil, context.Cause(ctx)
		}
		e.waiting = len(g.before(e, older(foreign, jid))) > 0
	}
	return nil, func() { g.leave(e) }, nil
}

// waits evaluates the option queue: true, or the number of runs to wait for.
func waits(queue any, ahead int) bool {
	switch x := queue.(type) {
	case bool:
		return x
	case int64:
		return x == 0 || int64(ahead) < x
	}
	return false
}

// older filters out jobs that began after ours: they wait for us.
func older(jobs []Job, jid string) []Job {
	var out []Job
	for _, j := range jobs {
		if j.JID < jid {
			out = append(out, j)
		}
	}
	return out
}

// before lists the runs that precede an entry, or all if it is nil.
func (g *gate) before(e *entry, foreign []Job) []Job {
	out := append([]Job(nil), foreign...)
	for _, o := range g.entries {
		if o == e {
			break
		}
		out = append(out, Job{JID: o.jid, Fun: o.fun, PID: os.Getpid()})
	}
	return out
}

func (g *gate) leave(e *entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.depth > 0 {
		e.depth--
		return
	}
	g.remove(e)
}

func (g *gate) remove(e *entry) {
	for i, o := range g.entries {
		if o == e {
			g.entries = append(g.entries[:i:i], g.entries[i+1:]...)
			break
		}
	}
	close(g.changed)
	g.changed = make(chan struct{})
}

// list returns the active runs, except one.
func (g *gate) list(except string) []Job {
	foreign := g.foreign()
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Job
	for _, j := range g.before(nil, foreign) {
		if j.JID != except {
			out = append(out, j)
		}
	}
	return out
}

// text returns Salt's message that a run conflicts.
func (j Job) text() string {
	when := j.JID
	if t, err := salt.JIDTime(j.JID); err == nil {
		when = t.Format("2006, Jan 02 15:04:05.000000")
	}
	return fmt.Sprintf("The function \"%s\" is running as PID %d and was started at %s with jid %s", j.Fun, j.PID, when, j.JID)
}
