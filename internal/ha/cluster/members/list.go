package members

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/roster"
	"brine/internal/net/crypt"
)

// Times of the list.
const (
	// rosterTime is how long the list may be outdated before a master other than the leader creates it.
	rosterTime = 5 * time.Second
	// stationTime is how long the creation of a new list waits for the missing file of a member, which may be
	// about to write it.
	stationTime = 30 * time.Second
)

// List is the state of the list for minions.
type List struct {
	Files *Files
	// Cluster is the name of the cluster, Key returns its key.
	Cluster string
	Key     func() *crypt.PrivateKey
	// InCharge reports whether this master creates the list.
	InCharge func() bool

	mu      sync.Mutex
	signed  []byte
	list    roster.List
	stamp   keys.FileStamp
	odd     time.Time // since when the list is outdated
	waiting time.Time // since when a member's file is missing
}

// Current returns the signed list of masters for minions and its version, 0 if there is none.
func (l *List) Current() (signed []byte, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.signed, l.list.Version
}

// Refresh reads the list, and creates a new one if it is outdated and this master is the leader.
func (l *List) Refresh(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.read(); err != nil {
		return err
	}
	want, silent, err := l.Files.List()
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
	if !l.InCharge() && now.Sub(l.odd) < rosterTime || !l.waiting.IsZero() && now.Sub(l.waiting) < stationTime {
		return nil
	}
	next := roster.List{Cluster: l.Cluster, Version: max(now.UnixMicro(), l.list.Version+1), Members: want}
	signed, err := next.Sign(l.Key())
	if err != nil {
		return err
	}
	if err := atomicfile.Write(l.Files.RosterFile(), signed, 0o644, true); err != nil {
		return err
	}
	l.list, l.signed, l.stamp = next, signed, keys.FileStamp{}
	return nil
}

// read reads the list if it has changed. A list not signed by the cluster's key is ignored.
func (l *List) read() error {
	fi, err := os.Stat(l.Files.RosterFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || keys.StampOf(fi) == l.stamp {
		return err
	}
	if fi.Size() > roster.MaxBytes {
		return salt.Errorf(salt.Invalid, "%s is too large", l.Files.RosterFile())
	}
	b, err := os.ReadFile(l.Files.RosterFile())
	if err != nil {
		return err
	}
	got, err := roster.Open(b, l.Key().Public())
	if err != nil {
		l.Files.Log.Warn("roster", "invalid list of masters for minions; creating a new one", "path", l.Files.RosterFile(), "err", err)
		return nil
	}
	if got.Version < l.list.Version {
		return nil // an old copy: the next list will be newer
	}
	l.list, l.signed, l.stamp = got, b, keys.StampOf(fi)
	return nil
}

// Drain makes minions use other masters than this one, or use it again if on is false.
func (l *List) Drain(id string, on bool) error {
	s, err := l.Files.Read(id)
	if _, known := os.Stat(filepath.Join(l.Files.PeersDir(), id+".pub")); salt.CheckID(id) != nil || errors.Is(err, fs.ErrNotExist) ||
		errors.Is(known, fs.ErrNotExist) {
		return salt.Errorf(salt.NotFound, "there is no master %.100q in the cluster's list for minions", id)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot read the file of the member %s: %w", id, err)
	}
	if on {
		members, _, err := l.Files.List()
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
		if err := l.Files.Write(id, s); err != nil {
			return salt.Errorf(salt.Unavailable, "%w", err)
		}
	}
	return l.Refresh(time.Now())
}

// Resign makes the next Refresh create the list again, as after a replacement of the key.
func (l *List) Resign() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list.Members = nil
}
