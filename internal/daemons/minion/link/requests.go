package link

import (
	"context"

	"brine/internal/net/handshake"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Events about a master on the minion's own bus, under Salt's names.
const (
	tagConnected    = "__master_connected"
	tagDisconnected = "__master_disconnected"
)

// SignIn signs in once, at the first address that accepts the sign-in.
func (c *Link) SignIn(ctx context.Context) error {
	addrs, err := c.Addr.Resolve(ctx, c.cfg.Resolver)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		c.Client.SetAddress(a.String())
		if err = c.Client.SignIn(ctx); err == nil || handshake.Refused(err) {
			return err
		}
	}
	return err
}

// SayRunning reports running jobs to the master. Failures are only logged: nothing depends
// on the report.
func (c *Link) SayRunning(ctx context.Context, jids ...string) {
	if len(jids) == 0 {
		return
	}
	if _, err := c.Client.Request(ctx, value.DictOf("cmd", "_brine_running", "id", c.cfg.ID, "jids", jids)); err != nil {
		c.log.Debug("cannot report running jobs to the master", "err", err)
	}
}

// RecordBegun asks the master to record that a job starts here, and reports whether it did.
// The master does not deliver a recorded job to this minion again, and records no job
// twice.
func (c *Link) RecordBegun(ctx context.Context, jid string) bool {
	if !c.Client.Peer().Brine {
		return false
	}
	v, err := c.Client.Request(ctx, wire.Encode(wire.AboutJob{Cmd: "_brine_record", ID: c.cfg.ID, JID: jid}))
	if err != nil {
		c.log.Warn("the master cannot record that a job starts", "jid", jid, "err", err)
		return false
	}
	d, _ := v.(*value.Dict)
	var in wire.Recorded
	wire.View(d, &in)
	return in.Recorded
}

// KeepsJobs reports whether the master has shown that it queues jobs for
// minions.
func (c *Link) KeepsJobs() bool { return c.missed.kept.Load() }

// fire fires an event about a master on the minion's own bus.
func (c *Link) fire(tag string) {
	c.cfg.Report(tag, value.DictOf("master", c.Addr.Text))
}
