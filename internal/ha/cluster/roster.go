package cluster

import (
	"os"
	"reflect"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/members"
	"brine/internal/ha/roster"
)

// stand writes this master's file if it is missing.
func (c *Cluster) stand() error {
	if err := os.MkdirAll(c.files.StationsDir(), 0o755); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot create a directory of the cluster: %w", err)
	}
	host := c.cfg.Options.MinionAddress
	if host == "" {
		host = c.cfg.ID
	}
	if err := c.share.Request(c.cfg.Options.weight()); err != nil {
		return err
	}
	old, err := c.files.Read(c.cfg.ID)
	now := members.Station{Host: host, Ports: c.cfg.Ports, Zone: c.cfg.Options.Zone, Draining: old.Draining, Since: old.Since, TLS: c.cfg.Options.Isolated,
		Sessions: c.cfg.Options.Isolated, Key: c.Keyring.ring.Load().Fingerprint}
	if err == nil && reflect.DeepEqual(old, now) {
		return nil
	}
	return c.files.Write(c.cfg.ID, now)
}

// restate updates this master's file if its version or its cluster key has changed.
func (c *Cluster) restate() error {
	s, err := c.files.Read(c.cfg.ID)
	tag := c.Keyring.ring.Load().Fingerprint
	if err != nil || s.TLS && s.Sessions && s.Key == tag {
		return nil // do not restore a missing file, as after leaving
	}
	s.TLS, s.Sessions, s.Key = true, true, tag
	return c.files.Write(c.cfg.ID, s)
}

// Roster returns the signed list of masters for minions and its version, 0 if there is none.
func (c *Cluster) Roster() (signed []byte, version int64) { return c.list.Current() }

// Drain makes minions use other masters than this one, or (off) use it again.
func (c *Cluster) Drain(id string, on bool) error { return c.list.Drain(id, on) }

// Stations returns the members as seen by minions.
func (c *Cluster) Stations() map[string]roster.Member { return c.files.ByID() }
