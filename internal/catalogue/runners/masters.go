package runners

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Standing is a minion's report about the connections to its masters.
type Standing struct {
	// Mode is hot (all masters send jobs) or failover (one at a time).
	Mode    string
	Masters []StandingMaster
	// Last is the last change of the master in failover mode, nil for none.
	Last *StandingChange
	// Moves are the last changes that the master has taken, the newest first.
	Moves []StandingChange
	// At is the time of the report.
	At time.Time
}

// StandingMaster is one master as its minion sees it.
type StandingMaster struct {
	// Master is the name from the minion's configuration.
	Master string
	// State is connected, standby, off, or the error.
	State string
	Since time.Time
	// Here marks the master that received the report.
	Here bool
	// Jobs is set if the minion runs jobs of a standby master.
	Jobs bool
}

// StandingChange is a change of the commanding master of a minion.
type StandingChange struct {
	From, To, Reason string
	Seconds          float64
	At               time.Time
}

// States of a master, as minions name them.
const (
	stateConnected = "connected"
	stateStandby   = "standby"
	stateOff       = "off"
)

// Elsewhere returns the commanding master of a minion, and since when, if it is
// not this one.
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

type mastersArgs struct {
	targetArgs
	Table bool `salt:"table" doc:"return one line for each minion, for many of them" default:"false"`
}

// masters returns the masters of each minion. In a cluster, held_by lists the masters
// that it is connected to, and here reports whether it is connected to any.
func (m manage) masters(ctx context.Context, _ *fn.Call, a mastersArgs) (any, error) {
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
	if a.Table {
		return mastersTable(out), nil
	}
	return out, nil
}

// mastersTable returns lines with the minion, whether it is connected, its mode, the masters that
// command it, and the others with a mark: those on standby in parentheses, those that it cannot
// reach after a minus.
func mastersTable(all *value.Dict) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "minion\there\tmode\tmasters: active (standby) -away")
	for id, v := range all.All() {
		d, _ := v.(*value.Dict)
		names := func(key, before, after string) (out []string) {
			for name := range d.Dict(key).All() {
				out = append(out, before+value.Str(name)+after)
			}
			return out
		}
		here := "no"
		if d.At("here") == true {
			here = "yes"
		}
		masters := slices.Concat(names("active", "", ""), names("standby", "(", ")"), names("away", "-", ""))
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", value.Str(id), here, d.Str("mode"), strings.Join(masters, " "))
	}
	_ = w.Flush() // to a strings.Builder
	return b.String()
}

// describe returns the masters of one minion. For a minion without reports,
// such as a stock minion, it shows the connection only.
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
			if x.Here && !here { // the minion left without another report
				away.Set(x.Master, value.DictOf("since", nil, "reason", "not connected now; connected at the minion's last report"))
				continue
			}
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
