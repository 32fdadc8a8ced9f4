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
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/roster"
)

// Each master writes its addresses for minions to cluster_pki_dir/members/ID; draining is recorded there by the master that received the
// command. From these files, and from the keys of the members, the leading master creates the list for minions, signs it and stores it
// beside them in roster. Without a shared directory these files are replicated like others.
const (
	stationsDir = "members"
	// A separate directory, since other masters write there, too (Drain).
	sharesDir  = "shares"
	rosterFile = "roster"
)

// Times of the list.
const (
	// rosterTime is how long the list may be out of date until a master that is not the leader creates it.
	rosterTime = 5 * time.Second
	// stationTime is how long no new list is created while a member has not written its file: it may be about to.
	stationTime = 30 * time.Second
)

// station is the content of a member's file.
type station struct {
	Host     string         `json:"host"`
	Ports    map[string]int `json:"ports"`
	Zone     string         `json:"zone,omitempty"`
	Draining bool           `json:"draining,omitempty"`
	// TLS says that other masters must use TLS with it.
	TLS bool `json:"tls,omitempty"`
	// Sessions says that its version computes session keys from SessionFile.
	Sessions bool `json:"sessions,omitempty"`
	// Key is the fingerprint of the cluster key that it uses.
	Key string `json:"key,omitempty"`
	// Since is when it began to drain.
	Since time.Time `json:"since,omitzero"`
}

// maxStation bounds the size of such a file in bytes.
const maxStation = 16 << 10

// list is the state of the list for minions.
type list struct {
	mu      sync.Mutex
	signed  []byte
	list    roster.List
	stamp   keys.FileStamp
	odd     time.Time // since when it is out of date
	waiting time.Time // since when a member's file is missing
}

// StationsDir is the directory of the members' files.
func (c *Cluster) StationsDir() string {
	return filepath.Join(c.cfg.Options.PKIDir, stationsDir)
}

// RosterFile is the signed list for minions.
func (c *Cluster) RosterFile() string { return filepath.Join(c.cfg.Options.PKIDir, rosterFile) }

// SharesDir is the directory of the requested shares of minions, a file with a number per master. A master without a file has a full share.
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

// stand writes this master's file if it is missing.
func (c *Cluster) stand() error {
	if err := os.MkdirAll(c.StationsDir(), 0o755); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot create a directory of the cluster: %w", err)
	}
	host := c.cfg.Options.MinionAddress
	if host == "" {
		host = c.cfg.ID
	}
	if err := c.ask(c.cfg.Options.weight()); err != nil {
		return err
	}
	old, err := c.readStation(c.cfg.ID)
	now := station{Host: host, Ports: c.cfg.Ports, Zone: c.cfg.Options.Zone, Draining: old.Draining, Since: old.Since, TLS: c.cfg.Options.Isolated, Sessions: c.cfg.Options.Isolated, Key: c.ring.Load().Fingerprint}
	if err == nil && reflect.DeepEqual(old, now) {
		return nil
	}
	return c.writeStation(c.cfg.ID, now)
}

// forgetStation removes a member's file.
func (c *Cluster) forgetStation(id string) error {
	for _, path := range []string{c.stationPath(id), c.sharePath(id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// ask requests a share of the minions.
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
		return salt.Errorf(salt.Unavailable, "cannot store the requested share of the minions: %w", err)
	}
	c.asked = share
	return nil
}

// readShare returns the share that a master requests, 0 if there is none.
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
		c.rateLimitedLog.Warn("share "+id, "cannot read the share of minions that a member requests; assuming a full share", "member", id, "err", err)
		return 0
	}
	return n
}

const maxShareText = 16

// weigh checks the load of this machine, and requests another share of the minions if it is too busy for the present one, or no longer so.
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
		c.rateLimitedLog.Warn("share", "cannot publish the load of this master to minions", "err", err)
	} else if before != share {
		c.log.Info("this master requests another share of the minions because of its load", "before", before, "share", share, "busy", c.load.Busy())
	}
}

// work is the time of a machine's processors since boot.
type work struct{ busy, total int64 }

// restate updates this master's file if its version or its cluster key has changed.
func (c *Cluster) restate() error {
	s, err := c.readStation(c.cfg.ID)
	tag := c.ring.Load().Fingerprint
	if err != nil || s.TLS && s.Sessions && s.Key == tag {
		return nil // do not restore a missing file, as after leaving
	}
	s.TLS, s.Sessions, s.Key = true, true, tag
	return c.writeStation(c.cfg.ID, s)
}

// stations returns the members with a file, sorted, and the ids of the others.
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
			c.rateLimitedLog.Warn("station "+id, "ignoring the invalid file of a member", "member", id, "err", err)
			silent = append(silent, id)
		default:
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b roster.Member) int { return strings.Compare(a.ID, b.ID) })
	return members, silent, nil
}

// Roster returns the signed list of masters for minions and its version, 0 if there is none.
func (c *Cluster) Roster() (signed []byte, version int64) {
	c.roster.mu.Lock()
	defer c.roster.mu.Unlock()
	return c.roster.signed, c.roster.list.Version
}

// refreshRoster reads the list, and creates a new one if it is out of date and this master is in charge.
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
	l.list, l.signed, l.stamp = next, signed, keys.FileStamp{}
	return nil
}

// readRoster reads the list if it has changed. A list not signed by the cluster's key is ignored.
func (c *Cluster) readRoster() error {
	l := &c.roster
	fi, err := os.Stat(c.RosterFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || keys.StampOf(fi) == l.stamp {
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
		c.rateLimitedLog.Warn("roster", "invalid list of masters for minions; creating a new one", "path", c.RosterFile(), "err", err)
		return nil
	}
	if got.Version < l.list.Version {
		return nil // an old copy: the next list will be newer
	}
	l.list, l.signed, l.stamp = got, b, keys.StampOf(fi)
	return nil
}

// Drain makes minions use other masters than this one, or (off) use it again.
func (c *Cluster) Drain(id string, on bool) error {
	s, err := c.readStation(id)
	if _, known := os.Stat(c.secrets.PeerPath(id)); salt.CheckID(id) != nil || errors.Is(err, fs.ErrNotExist) || errors.Is(known, fs.ErrNotExist) {
		return salt.Errorf(salt.NotFound, "there is no master %.100q in the cluster's list for minions", id)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot read the file of the member %s: %w", id, err)
	}
	if on {
		members, _, err := c.stations()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(members, func(m roster.Member) bool { return m.ID != id && !m.Draining }) {
			return salt.Errorf(salt.Invalid, "all other masters of the cluster are draining: no master would be left for its minions")
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

// Stations returns the members as seen by minions.
func (c *Cluster) Stations() map[string]roster.Member {
	out := map[string]roster.Member{}
	members, _, err := c.stations()
	if err != nil {
		c.rateLimitedLog.Warn("stations", "cannot read the files of the members", "err", err)
	}
	for _, m := range members {
		out[m.ID] = m
	}
	return out
}
