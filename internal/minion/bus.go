package minion

import (
	"context"
	"fmt"
	"os"

	"brine/internal/event"
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
