// Package status has the connection status of a minion for each of its masters. It reports
// the status to the masters at each change, and writes it to a file that salt-call reads.
package status

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/wait"
	"brine/internal/py/value"
)

// States of a good connection.
const (
	Connected = "connected" // receives commands
	Standby   = "standby"
	Off       = "off"
)

// Master is the status of the connection to one master.
type Master struct {
	Name string
	// State is one of the states above, or the reason why there is no connection;
	// "" if none was tried yet.
	State string
	Since time.Time
	// Jobs means that the master is on standby and its jobs are run.
	Jobs bool
}

// Config is the configuration of a Status.
type Config struct {
	// ID is the minion's id.
	ID string
	// Path is the file for salt-call.
	Path string
	// OneAtATime reports whether the minion uses one master at a time.
	OneAtATime func() bool
	// Masters returns the connections in order.
	Masters func() []Master
	Log     *slog.Logger
}

// Status reports the connections to masters. A nil *Status, as in salt-call,
// reports nothing.
type Status struct {
	cfg  Config
	kick wait.Wakeup

	mu   sync.Mutex
	subs map[wait.Wakeup]struct{}
	last *value.Dict // the last switch to another master
}

// New returns a Status that writes no file before Run.
func New(c Config) *Status {
	return &Status{cfg: c, kick: wait.NewWakeup(), subs: map[wait.Wakeup]struct{}{}}
}

// Changed must be called after each change of a connection.
func (s *Status) Changed() {
	if s == nil {
		return
	}
	s.kick.Wake()
}

// Switched records a change of the active master.
func (s *Status) Switched(about *value.Dict) {
	s.mu.Lock()
	s.last = about.Clone()
	s.last.Set("at", unix(time.Now()))
	s.mu.Unlock()
	s.Changed()
}

// Subscribe returns a Wakeup that is signalled at once and after each change.
func (s *Status) Subscribe() wait.Wakeup {
	c := wait.NewWakeup()
	c.Wake() // a new subscriber has to read the current status
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs[c] = struct{}{}
	return c
}

// Unsubscribe ends a subscription.
func (s *Status) Unsubscribe(c wait.Wakeup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subs, c)
}

// Run writes the file at each change, and signals the subscribers after a short random
// delay, until ctx ends: when a master starts or stops, all minions of a fleet have changes
// at once.
func (s *Status) Run(ctx context.Context) {
	defer s.forget()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick.C():
		}
		s.save()
		spread := 2 * time.Second
		if s.cfg.OneAtATime() {
			spread = 200 * time.Millisecond
		}
		if !wait.Sleep(ctx, rand.N(spread)) {
			return
		}
		s.mu.Lock()
		for c := range s.subs {
			c.Wake()
		}
		s.mu.Unlock()
	}
}

// Load returns the request that reports the status to the master with that
// name.
func (s *Status) Load(name string) *value.Dict {
	mode, masters := "hot", &value.List{}
	if s.cfg.OneAtATime() {
		mode = "failover"
	}
	for _, o := range s.cfg.Masters() {
		d := value.DictOf("master", o.Name)
		if o.State != "" {
			d.Set("state", o.State)
			d.Set("since", unix(o.Since))
		}
		if o.Jobs {
			d.Set("jobs", true)
		}
		if o.Name == name {
			d.Set("you", true)
		}
		masters.Append(d)
	}
	load := value.DictOf("cmd", "_brine_standing", "id", s.cfg.ID, "mode", mode, "masters", masters)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		load.Set("last", s.last)
	}
	return load
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// note is the content of the file.
type note struct {
	PID     int          `json:"pid"`
	Masters []noteMaster `json:"masters"`
}

type noteMaster struct {
	Master string    `json:"master"`
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
}

// save writes the file. Errors are ignored, because only salt-call reads the file and does
// not need it.
func (s *Status) save() {
	n := note{PID: os.Getpid()}
	for _, c := range s.cfg.Masters() {
		if c.State != "" {
			n.Masters = append(n.Masters, noteMaster{c.Name, c.State, c.Since})
		}
	}
	b, err := json.MarshalIndent(n, "", "  ")
	if err == nil {
		path := s.cfg.Path
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = atomicfile.Write(path, append(b, '\n'), 0o600, false)
		}
	}
	if err != nil {
		s.cfg.Log.Debug("cannot record which masters are connected", "err", err)
	}
}

func (s *Status) forget() { os.Remove(s.cfg.Path) }

// InUse returns the masters that the running daemon of this minion is connected or signed
// in to, active ones first; nil if no daemon runs. path is the daemon's file, and alive
// reports whether a process may be a daemon.
func InUse(path string, alive func(pid int) bool) []string {
	b, err := os.ReadFile(path)
	if err != nil || len(b) > 1<<20 {
		return nil
	}
	var n note
	if json.Unmarshal(b, &n) != nil || !alive(n.PID) {
		return nil
	}
	var out []string
	for _, state := range []string{Connected, Standby} {
		for _, x := range n.Masters {
			if x.State == state {
				out = append(out, x.Master)
			}
		}
	}
	return out
}
