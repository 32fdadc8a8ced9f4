package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/ha/roster"
)

// Each master leaves in cluster_pki_dir/members/ID how minions reach it, and
// whoever has it drain writes that there. Of these files, and of the keys that
// say who is a member, the master that leads makes the list for minions, which
// it signs and leaves beside them in roster. Without a shared folder all of this
// comes to the others as other files do.
const (
	stationsDir = "members"
	// Apart from what is said there, since others write that too (Drain).
	sharesDir  = "shares"
	rosterFile = "roster"
)

// Times of the list.
const (
	// rosterTime is how long the list may be out of date until a master makes
	// it that does not lead.
	rosterTime = 5 * time.Second
	// stationTime is how long there is no new list while a member has not said
	// how minions reach it: it is about to.
	stationTime = 30 * time.Second
)

// station is what such a file says of a master.
type station struct {
	Host     string         `json:"host"`
	Ports    map[string]int `json:"ports"`
	Zone     string         `json:"zone,omitempty"`
	Draining bool           `json:"draining,omitempty"`
	// TLS says that other masters are to speak with it by TLS alone.
	TLS bool `json:"tls,omitempty"`
	// Sessions says that its version computes session keys from SessionFile.
	Sessions bool `json:"sessions,omitempty"`
	// Key is the fingerprint of the key of the cluster that it uses.
	Key string `json:"key,omitempty"`
	// Since is when it was told to drain.
	Since time.Time `json:"since,omitzero"`
}

// maxStation bounds such a file in bytes.
const maxStation = 16 << 10

// list is what a cluster knows of its list for minions.
type list struct {
	mu      sync.Mutex
	signed  []byte
	list    roster.List
	stamp   fileStamp
	odd     time.Time // since when it is out of date
	waiting time.Time // since when a member says nothing
}

// StationsDir is the folder of what masters say about themselves.
func (c *Cluster) StationsDir() string {
	return filepath.Join(c.cfg.Options.PKIDir, stationsDir)
}

// RosterFile is the signed list for minions.
func (c *Cluster) RosterFile() string { return filepath.Join(c.cfg.Options.PKIDir, rosterFile) }

// SharesDir is the folder of the shares of the minions that masters ask for, a
// number in a file of each. A master without one has a full share.
func (c *Cluster) SharesDir() string { return filepath.Join(c.cfg.Options.PKIDir, sharesDir) }

func (c *Cluster) sharePath(id string) string { return filepath.Join(c.SharesDir(), id) }

func (c *Cluster) stationPath(id string) string { return filepath.Join(c.StationsDir(), id) }

func (c *Cluster) readStation(id string) (s station, err error) {
	fi, err := os.Stat(c.stationPath(id))
	if err != nil {
		return s, err
	}
	if fi.Size() > maxStation {
		return s, salt.Errorf(salt.Invalid, "%s is too large", c.stationPath(id))
	}
	b, err := os.ReadFile(c.stationPath(id))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

func (c *Cluster) writeStation(id string, s station) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(c.stationPath(id), append(b, '\n'), 0o644, true)
}

// stand leaves how minions reach this master, if that is not there.
func (c *Cluster) stand() error {
	if err := os.MkdirAll(c.StationsDir(), 0o755); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot make a folder of the cluster: %w", err)
	}
	host := c.cfg.Options.MinionAddress
	if host == "" {
		host = c.cfg.ID
	}
	if err := c.ask(c.cfg.Options.weight()); err != nil {
		return err
	}
	old, err := c.readStation(c.cfg.ID)
	now := station{Host: host, Ports: c.cfg.Ports, Zone: c.cfg.Options.Zone, Draining: old.Draining, Since: old.Since, TLS: c.cfg.Options.Isolated, Sessions: c.cfg.Options.Isolated, Key: c.ring.Load().tag}
	if err == nil && reflect.DeepEqual(old, now) {
		return nil
	}
	return c.writeStation(c.cfg.ID, now)
}

// forgetStation removes what a member has said for minions.
func (c *Cluster) forgetStation(id string) error {
	for _, path := range []string{c.stationPath(id), c.sharePath(id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ask asks for a share of the minions.
func (c *Cluster) ask(share int) error {
	share = min(max(share, 1), roster.MaxShare)
	if share == c.asked {
		return nil
	}
	err := os.MkdirAll(c.SharesDir(), 0o755)
	if err == nil && c.readShare(c.cfg.ID) != share {
		err = atomicfile.Write(c.sharePath(c.cfg.ID), fmt.Appendln(nil, share), 0o644, true)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot say which share of the minions this master is to have: %w", err)
	}
	c.asked = share
	return nil
}

// readShare is the share that a master asks for, 0 if it has not said.
func (c *Cluster) readShare(id string) int {
	b, err := os.ReadFile(c.sharePath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	n := 0
	if err == nil {
		n, err = strconv.Atoi(strings.TrimSpace(string(b[:min(len(b), maxShareText)])))
	}
	if err != nil || n < 1 || n > roster.MaxShare {
		c.rateLimitedLog.warn("share "+id, "the share of the minions that a member asks for cannot be read; it is taken to be a full one", "member", id, "err", err)
		return 0
	}
	return n
}

const maxShareText = 16

// weigh looks how busy this machine is, and asks for another share of the
// minions if it is too busy for the present one, or not any more.
func (c *Cluster) weigh(now time.Time) {
	if c.cfg.Busy == nil || !c.cfg.Options.ShedLoad {
		return
	}
	busy, total, ok := c.cfg.Busy()
	was := c.work
	c.work = work{busy, total}
	if !ok || was.total == 0 || total <= was.total {
		return
	}
	percent := c.load.Look(float64(busy-was.busy)/float64(total-was.total), now)
	before, share := c.asked, max(c.cfg.Options.weight()*percent/100, 1)
	if err := c.ask(share); err != nil {
		c.rateLimitedLog.warn("share", "minions are not told how busy this master is", "err", err)
	} else if before != share {
		c.log.Info("this master asks for another share of the minions: its machine is too busy, or not any more", "before", before, "share", share, "busy", c.load.Busy())
	}
}

// work is what the processors of a machine have done since it was started.
type work struct{ busy, total int64 }

// restate says again what this master's version can do and which key of the
// cluster it has, if the file says otherwise.
func (c *Cluster) restate() error {
	s, err := c.readStation(c.cfg.ID)
	tag := c.ring.Load().tag
	if err != nil || s.TLS && s.Sessions && s.Key == tag {
		return nil // what is not there, as when it leaves, stays away
	}
	s.TLS, s.Sessions, s.Key = true, true, tag
	return c.writeStation(c.cfg.ID, s)
}

// stations are the members that have said how minions reach them, sorted;
// silent are the others.
func (c *Cluster) stations() (members []roster.Member, silent []string, err error) {
	entries, err := os.ReadDir(c.PeersDir())
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".pub")
		if !ok || salt.CheckID(id) != nil || strings.HasPrefix(id, ".") {
			continue
		}
		s, err := c.readStation(id)
		m := roster.Member{ID: id, Host: s.Host, Ports: s.Ports, Zone: s.Zone, Draining: s.Draining}
		if share := c.readShare(id); share != roster.FullShare {
			m.Share = share
		}
		if err == nil {
			err = m.Check()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			silent = append(silent, id)
		case err != nil:
			c.rateLimitedLog.warn("station "+id, "what a member says of itself cannot be used", "member", id, "err", err)
			silent = append(silent, id)
		default:
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b roster.Member) int { return strings.Compare(a.ID, b.ID) })
	return members, silent, nil
}

// Roster returns the signed list of masters for minions and its version, 0 if
// there is none.
func (c *Cluster) Roster() (signed []byte, version int64) {
	c.roster.mu.Lock()
	defer c.roster.mu.Unlock()
	return c.roster.signed, c.roster.list.Version
}

// refreshRoster takes up the list that is there, and makes a new one if it is
// out of date and this master is to do that.
func (c *Cluster) refreshRoster(now time.Time) error {
	c.roster.mu.Lock()
	defer c.roster.mu.Unlock()
	if err := c.readRoster(); err != nil {
		return err
	}
	l := &c.roster
	want, silent, err := c.stations()
	if err != nil {
		return err
	}
	if len(silent) == 0 {
		l.waiting = time.Time{}
	} else if l.waiting.IsZero() {
		l.waiting = now
	}
	if len(want) == 0 || reflect.DeepEqual(want, l.list.Members) {
		l.odd = time.Time{}
		return nil
	}
	if l.odd.IsZero() {
		l.odd = now
	}
	leads := c.Leads()
	if c.cfg.Options.Isolated {
		leads = c.first()
	}
	if !leads && now.Sub(l.odd) < rosterTime || !l.waiting.IsZero() && now.Sub(l.waiting) < stationTime {
		return nil
	}
	next := roster.List{Cluster: c.cfg.Options.ID, Version: max(now.UnixMicro(), l.list.Version+1), Members: want}
	signed, err := next.Sign(c.Key())
	if err != nil {
		return err
	}
	if err := atomicfile.Write(c.RosterFile(), signed, 0o644, true); err != nil {
		return err
	}
	l.list, l.signed, l.stamp = next, signed, fileStamp{}
	return nil
}

// readRoster reads the list if it is another one. One that is not signed by the
// cluster's key counts for nothing.
func (c *Cluster) readRoster() error {
	l := &c.roster
	fi, err := os.Stat(c.RosterFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || stampOf(fi) == l.stamp {
		return err
	}
	if fi.Size() > roster.MaxBytes {
		return salt.Errorf(salt.Invalid, "%s is too large", c.RosterFile())
	}
	b, err := os.ReadFile(c.RosterFile())
	if err != nil {
		return err
	}
	got, err := roster.Open(b, c.Key().Public())
	if err != nil {
		c.rateLimitedLog.warn("roster", "the list of masters for minions cannot be used; a new one is made", "file", c.RosterFile(), "err", err)
		return nil
	}
	if got.Version < l.list.Version {
		return nil // an old copy: the next one that is made will be newer
	}
	l.list, l.signed, l.stamp = got, b, stampOf(fi)
	return nil
}

// Drain has minions use other masters than this one, or (off) use it again.
func (c *Cluster) Drain(id string, on bool) error {
	s, err := c.readStation(id)
	if _, known := os.Stat(c.secrets.peerPath(id)); salt.CheckID(id) != nil || errors.Is(err, fs.ErrNotExist) || errors.Is(known, fs.ErrNotExist) {
		return salt.Errorf(salt.NotFound, "there is no master %.100q in the cluster of which minions could learn", id)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "what is known of %s cannot be read: %w", id, err)
	}
	if on {
		members, _, err := c.stations()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(members, func(m roster.Member) bool { return m.ID != id && !m.Draining }) {
			return salt.Errorf(salt.Invalid, "there is no other master in the cluster that does not drain: its minions would have nowhere to go")
		}
	}
	if s.Draining != on {
		s.Draining, s.Since = on, time.Time{}
		if on {
			s.Since = time.Now().UTC().Truncate(time.Second)
		}
		if err := c.writeStation(id, s); err != nil {
			return salt.Errorf(salt.Unavailable, "%w", err)
		}
	}
	return c.refreshRoster(time.Now())
}

// Stations are the members as minions see them.
func (c *Cluster) Stations() map[string]roster.Member {
	out := map[string]roster.Member{}
	members, _, err := c.stations()
	if err != nil {
		c.rateLimitedLog.warn("stations", "cannot read what members say of themselves", "err", err)
	}
	for _, m := range members {
		out[m.ID] = m
	}
	return out
}
