// Package members stores the list of masters that a minion learns.
//
// With master_type cluster the option master names one or more entry points. A master that
// answers there sends the list of all masters, signed with their common key (package
// roster). The list survives restarts, and an older list never replaces a newer one. From
// then on the minion uses these masters as with failover, in its own order of preference.
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

// Config is the configuration of Members.
type Config struct {
	// ID is the minion's id, Transport the name of its transport.
	ID, Transport string
	// Path is the file of the list, KeyPath that of the masters' key.
	Path, KeyPath string
	// Zone returns the minion's location.
	Zone func() string
	Log  *slog.Logger
}

// New returns an empty list.
func New(c Config) *Members { return &Members{cfg: c} }

// Members is the learned list of masters.
type Members struct {
	cfg Config

	mu      sync.Mutex
	list    roster.List
	refused int64 // the version of the last list that was rejected
}

// masterKey returns the common key of the minion's masters.
func (s *Members) masterKey() (*crypt.PublicKey, error) {
	pem, ok := channel.NewFileTrust(s.cfg.KeyPath).Known()
	if !ok {
		return nil, salt.Errorf(salt.Unavailable, "no master's key is known yet")
	}
	return crypt.ParsePublic([]byte(pem))
}

// Recall loads the list that an earlier process saved.
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
		s.cfg.Log.Warn("ignoring the saved list of masters; a master will send it again", "path", s.cfg.Path, "err", err)
	}
}

// Take verifies a list, and reports whether it is newer.
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

// Wants reports whether a version is newer and has not been rejected.
func (s *Members) Wants(version int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return version > s.list.Version && version != s.refused
}

// Refuse records that the list of a version was rejected, so that it is not requested
// again.
func (s *Members) Refuse(version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = version
}

// Preferred returns the addresses of the masters in the order in which this minion uses
// them, and in avoid those that it should leave. It omits masters that are only in the
// option master: they are entry points such as a load balancer, or masters that no longer
// exist.
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

// Keep saves an accepted list for the next process.
func (s *Members) Keep(signed []byte) error {
	if err := os.MkdirAll(filepath.Dir(s.cfg.Path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(s.cfg.Path, signed, 0o600, true)
}
