package minion

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/wait"
	"brine/internal/py/value"
)

// standing is what others may know of how the minion stands with its masters:
// the masters themselves, which are told of each change, and salt-call, which
// reads it from a file. A nil standing, that of salt-call itself, tells nobody.
type standing struct {
	m    *Minion
	kick chan struct{}

	mu   sync.Mutex
	subs map[chan struct{}]struct{}
	last *value.Dict // the last switch
}

func newStanding(m *Minion) *standing {
	return &standing{m: m, kick: make(chan struct{}, 1), subs: map[chan struct{}]struct{}{}}
}

// changed says that there is something new to tell.
func (s *standing) changed() {
	if s == nil {
		return
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// switched notes a change of the active master.
func (s *standing) switched(about *value.Dict) {
	s.mu.Lock()
	s.last = about.Clone()
	s.last.Set("at", unix(time.Now()))
	s.mu.Unlock()
	s.changed()
}

// subscribe returns a channel that gets something after a change.
func (s *standing) subscribe() chan struct{} {
	c := make(chan struct{}, 1)
	c <- struct{}{} // all is new to a new subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs[c] = struct{}{}
	return c
}

func (s *standing) unsubscribe(c chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subs, c)
}

// run spreads the news until ctx ends, not each at once: a fleet has the same
// ones at the same moment, when a master comes or goes.
func (s *standing) run(ctx context.Context) {
	defer s.forget()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
		s.save()
		spread := 2 * time.Second
		if s.m.failover != nil {
			spread = 200 * time.Millisecond
		}
		if !wait.Sleep(ctx, rand.N(spread)) {
			return
		}
		s.mu.Lock()
		for c := range s.subs {
			select {
			case c <- struct{}{}:
			default:
			}
		}
		s.mu.Unlock()
	}
}

// load is the request by which c's master is told.
func (s *standing) load(c *connection) *value.Dict {
	mode, masters := "hot", &value.List{}
	if s.m.failover != nil {
		mode = "failover"
	}
	for _, o := range s.m.masters() {
		d := value.DictOf("master", o.addr.Text)
		if st := o.state.Load(); st != nil {
			d.Set("state", st.text)
			d.Set("since", unix(st.since))
		}
		if o == c {
			d.Set("you", true)
		}
		masters.Append(d)
	}
	load := value.DictOf("cmd", "_brine_standing", "id", s.m.cfg.ID, "mode", mode, "masters", masters)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		load.Set("last", s.last)
	}
	return load
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// note is what the file holds.
type note struct {
	PID     int          `json:"pid"`
	Masters []noteMaster `json:"masters"`
}

type noteMaster struct {
	Master string    `json:"master"`
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
}

func (m *Minion) standingFile() string { return filepath.Join(m.cfg.CacheDir, "brine", "masters.json") }

// save writes the file. It is only of use to salt-call, which does without.
func (s *standing) save() {
	n := note{PID: os.Getpid()}
	for _, c := range s.m.masters() {
		if st := c.state.Load(); st != nil {
			n.Masters = append(n.Masters, noteMaster{c.addr.Text, st.text, st.since})
		}
	}
	b, err := json.MarshalIndent(n, "", "  ")
	if err == nil {
		path := s.m.standingFile()
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = atomicfile.Write(path, append(b, '\n'), 0o600, false)
		}
	}
	if err != nil {
		s.m.log.Debug("cannot note which masters are connected", "err", err)
	}
}

func (s *standing) forget() { os.Remove(s.m.standingFile()) }

// inUse returns the masters that the running daemon of this minion is
// connected to or signed in to, those that command it first; nil if there is
// no daemon.
func (m *Minion) inUse() []string {
	b, err := os.ReadFile(m.standingFile())
	if err != nil || len(b) > 1<<20 {
		return nil
	}
	var n note
	if json.Unmarshal(b, &n) != nil || !runsJobs(n.PID) {
		return nil
	}
	var out []string
	for _, state := range []string{connected, standingBy} {
		for _, x := range n.Masters {
			if x.State == state {
				out = append(out, x.Master)
			}
		}
	}
	return out
}
