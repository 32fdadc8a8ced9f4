package minion

import (
	"context"
	"fmt"
	"iter"
	"os"

	"brine/internal/event"
	"brine/internal/fn"
	"brine/internal/modules/control"
	"brine/internal/value"
)

// Events on the minion's own bus, as Salt names them.
const (
	tagConnected    = "__master_connected"
	tagDisconnected = "__master_disconnected"
	tagFireMaster   = "fire_master"
)

// openBus offers the minion's event bus to other programs on the host. One
// bus serves all masters; lists of ports are reduced to their first entry.
func (m *Minion) openBus() error {
	m.bus = event.NewBus(m.cfg.Events.MaxEventSize)
	m.bus.Handle(m.fireMaster, tagFireMaster)
	m.bus.Handle(m.schedule.manageByEvent, tagManageSchedule)
	m.bus.Handle(m.lookout.manageByEvent, tagManageBeacons)
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
		c.out.put(load)
	}
}

// tell fires an event about a master on the minion's own bus.
func (c *connection) tell(tag string) {
	_ = c.m.bus.Fire(tag, value.DictOf("master", c.addr.text))
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
