package runners

import (
	"context"
	"slices"
	"time"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Standing is what a minion has reported how it stands with its masters.
type Standing struct {
	// Mode is hot (all masters command it) or failover (one at a time).
	Mode    string
	Masters []StandingMaster
	// Last is the last change of the master in failover, nil for none.
	Last *StandingChange
	// At is when it told that.
	At time.Time
}

// StandingMaster is one master as its minion sees it.
type StandingMaster struct {
	// Master is its name in the minion's configuration.
	Master string
	// State is connected, standby, off, or why it is none of these.
	State string
	Since time.Time
	// Here marks the master that was told.
	Here bool
	// Jobs says that the minion runs jobs of a master that stands by.
	Jobs bool
}

// StandingChange is a change of the master that commands a minion.
type StandingChange struct {
	From, To, Reason string
	Seconds          float64
	At               time.Time
}

// The minion's words for the states of a master.
const (
	stateConnected = "connected"
	stateStandby   = "standby"
	stateOff       = "off"
)

// Elsewhere returns the master that commands a minion, and since when, if that
// is another one than this.
func (s Standing) Elsewhere() (master string, since time.Time, ok bool) {
	for _, m := range s.Masters {
		if m.State == stateConnected && m.Here {
			return "", time.Time{}, false
		}
		if m.State == stateConnected && !ok {
			master, since, ok = m.Master, m.Since, true
		}
	}
	return master, since, ok
}

// RunsStandbyJobs reports whether the minion runs jobs of this master although another
// one commands it.
func (s Standing) RunsStandbyJobs() bool {
	return slices.ContainsFunc(s.Masters, func(m StandingMaster) bool { return m.Here && m.Jobs && m.State == stateStandby })
}

func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// masters tells who holds which minion. In a cluster held_by are the masters
// that it is connected to, and here says that it is to any.
func (m manage) masters(ctx context.Context, _ *fn.Call, a targetArgs) (*value.Dict, error) {
	ids, err := m.minions(a.Tgt, a.TgtType)
	if err != nil {
		return nil, err
	}
	slices.Sort(ids)
	here := m.Connected()
	holders := m.Holders()
	standings := m.Standings(ctx, ids)
	out := value.NewDict(len(ids))
	for _, id := range ids {
		s, known := standings[id]
		d := s.describe(here[id], known)
		if holders != nil {
			d.Set("held_by", value.Strings(holders[id]))
		}
		out.Set(id, d)
	}
	return out, nil
}

// describe returns one minion's masters. Of a minion that has reported nothing,
// as Salt's do not, only its connection is known.
func (s Standing) describe(here, known bool) *value.Dict {
	d := value.DictOf("here", here)
	if !known {
		d.Set("mode", "unknown")
		return d
	}
	active, standby, away := value.NewDict(1), value.NewDict(1), value.NewDict(1)
	for _, x := range s.Masters {
		switch x.State {
		case stateConnected:
			active.Set(x.Master, stamp(x.Since))
		case stateStandby:
			standby.Set(x.Master, stamp(x.Since))
		case stateOff, "":
		default:
			away.Set(x.Master, value.DictOf("since", stamp(x.Since), "reason", x.State))
		}
	}
	d.Set("mode", s.Mode)
	d.Set("active", active)
	d.Set("standby", standby)
	if away.Len() > 0 {
		d.Set("away", away)
	}
	if c := s.Last; c != nil {
		d.Set("changed", value.DictOf("from", orNil(c.From), "to", c.To, "reason", c.Reason, "seconds", c.Seconds, "at", stamp(c.At)))
	}
	d.Set("as_of", stamp(s.At))
	return d
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}
