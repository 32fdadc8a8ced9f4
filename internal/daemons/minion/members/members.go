// Package members is the list of masters that a minion learns.
//
// With master_type cluster the masters are learned: the option master names one
// or more ways in, and a master that answers there has the list of all masters,
// signed by the key that they have in common (package roster). It is kept over
// restarts, and an older one is never taken for a newer one. From then on they
// are masters as with failover, in an order of this minion's own.
package members

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/ha/roster"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
)

// Config is what the Members need.
type Config struct {
	// ID is the minion's id, Transport the name of its transport.
	ID, Transport string
	// Path is where the list is kept, KeyPath where the key of the masters is.
	Path, KeyPath string
	// Zone returns where the minion is.
	Zone func() string
	Log  *slog.Logger
}

// New returns an empty list.
func New(c Config) *Members { return &Members{cfg: c} }

// Members is the list of masters that a minion has learned.
type Members struct {
	cfg Config

	mu      sync.Mutex
	list    roster.List
	refused int64 // the version that a master had last and that was of no use
}

// masterKey is the key that the minion's masters have in common.
func (s *Members) masterKey() (*crypt.PublicKey, error) {
	pem, ok := channel.NewFileTrust(s.cfg.KeyPath).Known()
	if !ok {
		return nil, salt.Errorf(salt.Unavailable, "no master's key is known yet")
	}
	return crypt.ParsePublic([]byte(pem))
}

// Recall takes up the list that an earlier process has left.
func (s *Members) Recall() {
	fi, err := os.Stat(s.cfg.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var b []byte
	if err == nil && fi.Size() <= roster.MaxBytes {
		b, err = os.ReadFile(s.cfg.Path)
	}
	if err == nil {
		_, err = s.Take(b)
	}
	if err != nil {
		s.cfg.Log.Warn("the list of masters that was kept is not used; a master will give it again", "path", s.cfg.Path, "err", err)
	}
}

// Take checks a list, and reports whether it is a newer one.
func (s *Members) Take(signed []byte) (news bool, err error) {
	key, err := s.masterKey()
	if err != nil {
		return false, err
	}
	l, err := roster.Open(signed, key)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.Version <= s.list.Version || len(l.Members) == 0 {
		return false, nil
	}
	s.list = l
	return true, nil
}

// Wants reports whether a version is news that was not refused already.
func (s *Members) Wants(version int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return version > s.list.Version && version != s.refused
}

// Refuse notes a version that is of no use, so that it is not asked for again.
func (s *Members) Refuse(version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = version
}

// Preferred returns the addresses of the masters in the order in which this minion
// uses them, and those of them that it is to leave if it can. What the option
// master names and the list does not is a way in only: a balancer, or a master
// that is gone.
func (s *Members) Preferred(classes map[string]int) (addrs, avoid []string) {
	s.mu.Lock()
	l := s.list
	s.mu.Unlock()
	transport := s.cfg.Transport
	class := func(id string) int {
		i := slices.IndexFunc(l.Members, func(x roster.Member) bool { return x.ID == id })
		return classes[l.Members[i].Address(transport)]
	}
	for _, x := range roster.Prefer(l.Members, s.cfg.ID, s.cfg.Zone(), class) {
		a := x.Address(transport)
		if a == "" || slices.Contains(addrs, a) {
			continue
		}
		addrs = append(addrs, a)
		if x.Draining {
			avoid = append(avoid, a)
		}
	}
	return addrs, avoid
}

// Keep writes a list that was taken to disk, for the next process.
func (s *Members) Keep(signed []byte) error {
	if err := os.MkdirAll(filepath.Dir(s.cfg.Path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(s.cfg.Path, signed, 0o600, true)
}
