package minion

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/control"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// Events on the minion's own bus, as Salt names them.
const (
	tagConnected    = "__master_connected"
	tagDisconnected = "__master_disconnected"
	tagFireMaster   = "fire_master"
	tagMine         = "_minion_mine"
	tagEnviron      = "environ_setenv"
)

// openBus offers the minion's event bus to other programs on the host. One
// bus serves all masters; lists of ports are reduced to their first entry.
func (m *Minion) openBus() error {
	m.bus = event.NewBus(m.cfg.Events.MaxEventSize)
	m.bus.Handle(m.fireMaster, tagFireMaster)
	m.bus.Handle(m.schedule.manageByEvent, tagManageSchedule)
	m.bus.Handle(m.lookout.manageByEvent, tagManageBeacons)
	m.bus.Handle(m.refreshes.byEvent, tagRefreshPillar, tagRefreshGrains, tagRefreshModules, tagRefreshBeacons, tagRefreshMatchers)
	m.bus.Handle(m.mineByEvent, tagMine)
	m.bus.Handle(m.environByEvent, tagEnviron)
	if m.cfg.Events.SockDir == "" {
		return nil
	}
	if err := os.MkdirAll(m.cfg.Events.SockDir, 0o755); err != nil {
		return fmt.Errorf("cannot make sock_dir: %w", err)
	}
	at, err := m.cfg.Events.Sockets(m.cfg.ID, m.cfg.Handshake.HashType)
	if err != nil {
		return err
	}
	m.busIPC, err = event.Listen(m.bus, at, m.cfg.Events.Options, m.log)
	return err
}

// fireMaster passes an event on to all masters.
func (m *Minion) fireMaster(e *event.Event) {
	load := value.DictOf("id", m.cfg.ID, "cmd", "_minion_event", "pretag", e.Data.At("pretag"))
	if l := e.Data.List("events"); l != nil {
		load.Set("events", value.ListOf(l...))
	} else {
		load.Set("tag", e.Data.Str("tag"))
		load.Set("data", e.Data.At("data"))
	}
	for _, c := range m.receivers() {
		c.out.Put(load)
	}
}

// mineByEvent passes data of the mine on to all masters.
func (m *Minion) mineByEvent(e *event.Event) {
	load := e.Data.Clone()
	if !isMine(load) {
		m.log.Warn("an event of another program is dropped: it is no request to the mine", "tag", e.Tag)
		return
	}
	load.Delete("_stamp")
	load.Delete("tok") // the sender's; each master gets its own
	load.Set("id", m.cfg.ID)
	for _, c := range m.receivers() {
		c.out.Put(load)
	}
}

// isMine reports whether a request changes the mine.
func isMine(load *value.Dict) bool {
	switch load.Str("cmd") {
	case "_mine", "_mine_delete", "_mine_flush":
		return true
	}
	return false
}

// environByEvent sets variables in the environment of the daemon.
func (m *Minion) environByEvent(e *event.Event) {
	set := value.DictOf("environ", e.Data.At("environ"), "false_unsets", e.Data.Bool("false_unsets"), "clear_all", e.Data.Bool("clear_all"))
	m.background.Go(func() {
		if _, err := m.funcs.Call(m.run, m.newCall(nil, ""), "environ.setenv", nil, set); err != nil {
			m.log.Error("cannot set the environment", "err", err)
		}
	})
}

// tell fires an event about a master on the minion's own bus.
func (c *connection) tell(tag string) {
	_ = c.m.bus.Fire(tag, value.DictOf("master", c.addr.Text))
}

func (m *Minion) serveBus(ctx context.Context) {
	if m.busIPC == nil {
		return
	}
	if err := m.busIPC.Serve(ctx); err != nil {
		m.log.Error("the event bus failed", "err", err)
	}
}

// localBus fires events on the minion's own bus, which salt-call shares with
// the daemon.
type localBus struct{ m *Minion }

// Fire implements control.Bus.
func (b localBus) Fire(ctx context.Context, tag string, data *value.Dict) error {
	if at := b.m.cfg.daemonBus; at != nil {
		return event.Push(ctx, *at, tag, data)
	}
	return b.m.bus.Fire(tag, data)
}

// inOrder runs what events ask for, one request after the other. A handler of
// events must not wait, and requests must not overtake each other.
type inOrder struct {
	m       *Minion
	mu      sync.Mutex
	queue   []func()
	running bool
}

func (q *inOrder) add(do func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, do)
	if !q.running {
		q.running = true
		q.m.background.Go(q.serve)
	}
}

func (q *inOrder) serve() {
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

// daemonWait is how long a daemon may take to answer.
const daemonWait = 30 * time.Second

// askDaemon sends the daemon on this machine requests as events, in their order,
// and returns the data of the first event with one of the tags.
func (m *Minion) askDaemon(ctx context.Context, tag string, requests []*value.Dict, answers ...string) (*value.Dict, error) {
	ctx, cancel := context.WithTimeout(ctx, daemonWait)
	defer cancel()
	w, err := m.askAll(ctx, tag, requests, answers...)
	var answer *value.Dict
	if err == nil {
		answer, err = w.await(ctx)
	}
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "the minion's daemon, which has to do this, does not answer: %w", err)
	}
	return answer, nil
}

// exchange fires an event and returns the data of the event that answers it.
func (m *Minion) exchange(ctx context.Context, tag string, data *value.Dict, answer string) (*value.Dict, error) {
	w, err := m.askAll(ctx, tag, []*value.Dict{data}, answer)
	if err != nil {
		return nil, err
	}
	return w.await(ctx)
}

// waiter waits for an answer on the bus of this process, or of the daemon.
type waiter struct {
	own     *event.Subscription
	daemon  *event.Reader
	answers []string
}

// askAll fires events on the bus that the daemon listens to, and returns what
// waits for the first event with one of the tags. It ends with ctx.
func (m *Minion) askAll(ctx context.Context, tag string, requests []*value.Dict, answers ...string) (w *waiter, err error) {
	at := m.cfg.daemonBus
	if at == nil {
		w = &waiter{own: m.bus.Subscribe(8, answers...)}
		for _, data := range requests {
			if err = m.bus.Fire(tag, data); err != nil {
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
	return &waiter{daemon: r, answers: answers}, nil
}

// await returns the data of the answer. It is called once.
func (w *waiter) await(ctx context.Context) (*value.Dict, error) {
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

// watcher is what state.event needs. A daemon watches its own bus only, so
// that no master can make it listen elsewhere; salt-call any on its machine.
func (m *Minion) watcher() control.Watcher {
	w := control.Watcher{Node: "minion", Program: "salt-call", Print: m.cfg.Print, Listen: m.listen}
	if m.cfg.daemonBus == nil {
		w.Listen = control.OnlyOwn("minion", func(ctx context.Context) iter.Seq2[*event.Event, error] {
			return control.Subscribed(ctx, m.bus.Subscribe)
		})
	}
	return w
}

// listen yields the events of a daemon on this machine.
func (m *Minion) listen(ctx context.Context, node, sockDir string) iter.Seq2[*event.Event, error] {
	return func(yield func(*event.Event, error) bool) {
		r, err := m.dialBus(ctx, node, sockDir)
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

func (m *Minion) dialBus(ctx context.Context, node, sockDir string) (*event.Reader, error) {
	at := *m.cfg.daemonBus
	switch {
	case node == "master" && m.cfg.Events.IPCMode == "tcp":
		return nil, fn.Errorf("the master's events cannot be watched here with ipc_mode: tcp: use salt-run state.event")
	case node == "master" && sockDir == "":
		return nil, fn.Errorf("where the master's events are is in the master's configuration: give its sock_dir")
	case node == "master":
		at = event.MasterOptions{Options: m.cfg.Events.Options, SockDir: sockDir}.Sockets()
	case sockDir != "":
		o := m.cfg.Events
		o.SockDir = sockDir
		var err error
		if at, err = o.Sockets(m.cfg.ID, m.cfg.Handshake.HashType); err != nil {
			return nil, err
		}
	}
	return event.Dial(ctx, at)
}
