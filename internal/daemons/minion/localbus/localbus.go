// Package localbus is the event bus of one minion for its daemon and for programs on the
// same host. The daemon fires and answers events on its own bus; salt-call connects to the
// daemon's sockets. The package does not use the masters.
package localbus

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/control"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// Config is the configuration of a Bus.
type Config struct {
	// ID is the minion's id, HashType the option that determines socket names.
	ID, HashType string
	Events       event.MinionOptions
	// Daemon is the address of the daemon's bus; nil in the daemon itself.
	Daemon *event.Sockets
	// Print prints a line of state.event; it is nil in a daemon.
	Print func(line string) error
}

// Bus is the daemon's own bus or, in salt-call, a connection to the daemon's bus.
type Bus struct {
	cfg Config
	own *event.Bus
}

// New returns a bus without listeners. It is the daemon's own if Config.Daemon is nil.
func New(c Config) *Bus { return &Bus{cfg: c, own: event.NewBus(c.Events.MaxEventSize)} }

// Own returns the bus of this process. In salt-call it has no listeners.
func (b *Bus) Own() *event.Bus { return b.own }

// Outside reports whether the bus belongs to another process, the daemon's.
func (b *Bus) Outside() bool { return b.cfg.Daemon != nil }

// Report fires an event in this process; errors are ignored.
func (b *Bus) Report(tag string, data *value.Dict) { _ = b.own.Fire(tag, data) }

// Fire fires an event on the daemon's bus. It implements control.Bus.
func (b *Bus) Fire(ctx context.Context, tag string, data *value.Dict) error {
	if b.cfg.Daemon != nil {
		return event.Push(ctx, *b.cfg.Daemon, tag, data)
	}
	return b.own.Fire(tag, data)
}

// Listen opens the bus to other programs on the host, in sock_dir. It returns nil if that
// option is not set.
func (b *Bus) Listen(log *slog.Logger) (*event.Server, error) {
	o := b.cfg.Events
	if o.SockDir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(o.SockDir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make sock_dir: %w", err)
	}
	at, err := o.Sockets(b.cfg.ID, b.cfg.HashType)
	if err != nil {
		return nil, err
	}
	return event.Listen(b.own, at, o.Options, log)
}

// InOrder runs requests that arrive as events one after the other, in the background: an
// event handler must not block, and requests must not overtake each other.
type InOrder struct {
	// Go runs a function in the background.
	Go func(func())

	mu      sync.Mutex
	queue   []func()
	running bool
}

// Add runs do after everything that was added before.
func (q *InOrder) Add(do func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, do)
	if !q.running {
		q.running = true
		q.Go(q.serve)
	}
}

func (q *InOrder) serve() {
	for {
		q.mu.Lock()
		if len(q.queue) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		do := q.queue[0]
		q.queue = q.queue[1:]
		q.mu.Unlock()
		do()
	}
}

// daemonWait bounds the wait for the daemon's answer.
const daemonWait = 30 * time.Second

// Ask sends requests to the daemon on this machine as events, in order, and
// returns the data of the first event with one of the tags.
func (b *Bus) Ask(ctx context.Context, tag string, requests []*value.Dict, answers ...string) (*value.Dict, error) {
	ctx, cancel := context.WithTimeout(ctx, daemonWait)
	defer cancel()
	w, err := b.AskAll(ctx, tag, requests, answers...)
	var answer *value.Dict
	if err == nil {
		answer, err = w.Await(ctx)
	}
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "the minion's daemon, which has to do this, does not answer: %w", err)
	}
	return answer, nil
}

// Exchange fires an event and returns the data of the event that answers it.
func (b *Bus) Exchange(ctx context.Context, tag string, data *value.Dict, answer string) (*value.Dict, error) {
	w, err := b.AskAll(ctx, tag, []*value.Dict{data}, answer)
	if err != nil {
		return nil, err
	}
	return w.Await(ctx)
}

// Waiter waits for an answer on the bus of this process, or of the daemon.
type Waiter struct {
	own     *event.Subscription
	daemon  *event.Reader
	answers []string
}

// AskAll fires events on the daemon's bus, and returns a Waiter for the first
// event with one of the tags. It ends with ctx.
func (b *Bus) AskAll(ctx context.Context, tag string, requests []*value.Dict, answers ...string) (w *Waiter, err error) {
	at := b.cfg.Daemon
	if at == nil {
		w = &Waiter{own: b.own.Subscribe(8, answers...)}
		for _, data := range requests {
			if err = b.own.Fire(tag, data); err != nil {
				w.own.Close()
				return nil, err
			}
		}
		return w, nil
	}
	r, err := event.Dial(ctx, *at)
	if err != nil {
		return nil, err
	}
	_ = event.Settle(ctx, *at) // so that the daemon does not answer before it knows this reader
	p, err := event.DialPush(ctx, *at, 0)
	if err == nil {
		defer p.Close()
		for _, data := range requests {
			err = errors.Join(err, p.Fire(ctx, tag, data))
		}
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return &Waiter{daemon: r, answers: answers}, nil
}

// Await returns the data of the answer. Call it once.
func (w *Waiter) Await(ctx context.Context) (*value.Dict, error) {
	if w.own != nil {
		defer w.own.Close()
		select {
		case e := <-w.own.C:
			return e.Data, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer w.daemon.Close()
	defer context.AfterFunc(ctx, func() { _ = w.daemon.SetDeadline(time.Unix(1, 0)) })()
	for e, err := range w.daemon.Events(w.answers...) {
		if err == nil {
			return e.Data, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	return nil, ctx.Err()
}

// Watcher returns the event source of state.event. A daemon watches only its own bus, so
// that no master can make it connect to other sockets; salt-call watches any bus on its
// machine.
func (b *Bus) Watcher() control.Watcher {
	w := control.Watcher{Node: "minion", Program: "salt-call", Print: b.cfg.Print, Listen: b.listen}
	if b.cfg.Daemon == nil {
		w.Listen = control.OnlyOwn("minion", func(ctx context.Context) iter.Seq2[*event.Event, error] {
			return control.Subscribed(ctx, b.own.Subscribe)
		})
	}
	return w
}

// listen yields the events of a daemon on this machine.
func (b *Bus) listen(ctx context.Context, node, sockDir string) iter.Seq2[*event.Event, error] {
	return func(yield func(*event.Event, error) bool) {
		r, err := b.dialBus(ctx, node, sockDir)
		if err != nil {
			yield(nil, fn.Errorf("%w", err))
			return
		}
		defer r.Close()
		for e, err := range r.Events() {
			if err != nil {
				err = fn.Errorf("%w", err)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (b *Bus) dialBus(ctx context.Context, node, sockDir string) (*event.Reader, error) {
	at := *b.cfg.Daemon
	switch {
	case node == "master" && b.cfg.Events.IPCMode == "tcp":
		return nil, fn.Errorf("the master's events cannot be watched here with ipc_mode: tcp: use salt-run state.event")
	case node == "master" && sockDir == "":
		return nil, fn.Errorf("where the master's events are is in the master's configuration: give its sock_dir")
	case node == "master":
		at = event.MasterOptions{Options: b.cfg.Events.Options, SockDir: sockDir}.Sockets()
	case sockDir != "":
		o := b.cfg.Events
		o.SockDir = sockDir
		var err error
		if at, err = o.Sockets(b.cfg.ID, b.cfg.HashType); err != nil {
			return nil, err
		}
	}
	return event.Dial(ctx, at)
}

// IgnoreNoDaemon turns the error of a missing daemon into nil.
func IgnoreNoDaemon(err error) error {
	if salt.KindOf(err) == salt.Unavailable {
		return nil
	}
	return err
}
