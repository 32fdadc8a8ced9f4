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
	now.Copies, now.Keep = c.ownCopies()
	if err == nil && reflect.DeepEqual(old, now) {
		return nil
	}
	return c.files.Write(c.cfg.ID, now)
}

// restate updates this master's file if its version or its cluster key has changed.
func (c *Cluster) restate() error {
	s, err := c.files.Read(c.cfg.ID)
	tag := c.Keyring.ring.Load().Fingerprint
	copies, keep := c.ownCopies()
	if err != nil || s.TLS && s.Sessions && s.Key == tag && s.Keep == keep && reflect.DeepEqual(s.Copies, copies) {
		return nil // do not restore a missing file, as after leaving
	}
	s.TLS, s.Sessions, s.Key, s.Copies, s.Keep = true, true, tag, copies, keep
	return c.files.Write(c.cfg.ID, s)
}

// ownCopies returns what this master publishes about copies of returns.
func (c *Cluster) ownCopies() (copies *int, keep int64) {
	if c.cfg.Copies == nil || !c.cfg.Options.Isolated {
		return nil, 0
	}
	n, keep := c.cfg.Copies()
	return &n, keep
}

// Copies returns on how many masters a member wants each return (0: all), and for how many seconds it keeps them. known is false if it has
// not published that, or now has an older version, which does not remove what a newer one has published.
func (c *Cluster) Copies(id string) (n int, keep int64, known bool) {
	if p := c.peers.all()[id]; p != nil {
		p.mu.Lock()
		older := p.older
		p.mu.Unlock()
		if older {
			return 0, 0, false
		}
	}
	s, err := c.files.Read(id)
	if err != nil || s.Copies == nil {
		return 0, 0, false
	}
	return *s.Copies, s.Keep, true
}

// Roster returns the signed list of masters for minions and its version, 0 if there is none.
func (c *Cluster) Roster() (signed []byte, version int64) { return c.list.Current() }

// Drain makes minions use other masters than this one, or (off) use it again.
func (c *Cluster) Drain(id string, on bool) error { return c.list.Drain(id, on) }

// Stations returns the members as seen by minions.
func (c *Cluster) Stations() map[string]roster.Member { return c.files.ByID() }
