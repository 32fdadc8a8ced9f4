package master

import (
	"context"
	"maps"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/catalogue/runners"
	"brine/internal/ha/cluster"
	"brine/internal/net/channel"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// connectionReports stores what minions report about their connections to masters
// (_brine_standing): which master commands them and which are on standby. Brine
// minions report this again on each connection, so it is in memory only, but for their changes of masters.
type connectionReports struct {
	// publishKey returns the key for publications.
	publishKey func() string
	cluster    *cluster.Cluster // nil without a cluster
	// standbyJobs reports whether minions run this master's jobs while it is on
	// standby.
	standbyJobs func() bool

	moves *pastMoves

	mu   sync.Mutex
	byID map[string]runners.Standing
}

// Limits of one stored report: its masters, and the bytes of each string.
const (
	maxStandingMasters = 64
	maxStandingText    = 300
)

func cut(s string) string { return s[:min(len(s), maxStandingText)] }

// parseStanding decodes a minion's report, truncated to the limits.
func parseStanding(load *value.Dict) runners.Standing {
	var in wire.Standing
	wire.View(load, &in)
	st := runners.Standing{Mode: cut(in.Mode)}
	for _, it := range value.Items(in.Masters) {
		d, ok := it.(*value.Dict)
		if !ok || len(st.Masters) == maxStandingMasters {
			break
		}
		var m wire.StandingMaster
		wire.View(d, &m)
		st.Masters = append(st.Masters, runners.StandingMaster{Master: cut(m.Master), State: cut(m.State), Since: timeOf(m.Since), Here: m.You, Jobs: m.Jobs})
	}
	if in.Last.Len() > 0 {
		var c wire.StandingChange
		wire.View(in.Last, &c)
		st.Last = &runners.StandingChange{From: cut(c.From), To: cut(c.To), Reason: cut(c.Reason), Seconds: number(c.Seconds), At: timeOf(c.At)}
	}
	st.At = timeOf(in.At)
	return st
}

// encodeStanding is the reverse of parseStanding, with the time of the report.
func encodeStanding(st runners.Standing) *value.Dict {
	masters := &value.List{}
	for _, m := range st.Masters {
		masters.Append(value.DictOf("master", m.Master, "state", m.State, "since", secondsOf(m.Since), "you", m.Here, "jobs", m.Jobs))
	}
	d := value.DictOf("mode", st.Mode, "masters", masters, "at", secondsOf(st.At))
	if c := st.Last; c != nil {
		d.Set("last", value.DictOf("from", c.From, "to", c.To, "reason", c.Reason, "seconds", c.Seconds, "at", secondsOf(c.At)))
	}
	return d
}

// take stores a minion's report. The reply contains a tag of the key for
// publications, so that a minion that is not subscribed here notices an outdated key.
func (s *connectionReports) take(c *channel.Call) {
	st := parseStanding(c.Load)
	st.At = time.Now() // the master's clock counts
	s.mu.Lock()
	if s.byID == nil {
		s.byID = map[string]runners.Standing{}
	}
	st.Moves = s.moves.add(c.ID, st.Last, st.At)
	s.byID[c.ID] = st
	s.mu.Unlock()
	answer := value.DictOf("key", channel.KeyTag(s.publishKey()))
	if s.standbyJobs() {
		answer.Set(salt.StandbyJobs, true)
	}
	if s.cluster != nil {
		if _, version := s.cluster.Roster(); version > 0 {
			answer.Set("members", version)
		}
	}
	c.Reply(answer)
}

// members sends a minion the list of the cluster's masters (_brine_members),
// signed with the cluster's key.
func (s *connectionReports) members(c *channel.Call) {
	answer := value.NewDict(1)
	if s.cluster != nil {
		if signed, version := s.cluster.Roster(); version > 0 {
			answer.Set("members", signed)
		}
	}
	c.Reply(answer)
}

// askStandings is the query among masters of a cluster for manage.masters and
// manage.status. A minion reports only to the masters that it is connected to;
// behind a load balancer that may be any of them.
const askStandings = "standings"

// standingsTime bounds the wait for replies of the other masters.
const standingsTime = 5 * time.Second

// answer returns the reports of the minions in an askStandings query.
func (s *connectionReports) answer(arg *value.Dict) *value.Dict {
	out := value.NewDict(0)
	var in wire.IDs
	wire.View(arg, &in)
	for _, it := range value.Items(in.IDs) {
		if id, ok := it.(string); ok {
			if st, ok := s.of(id); ok {
				out.Set(id, encodeStanding(st))
			}
		}
	}
	return out
}

// collect returns the latest report of each of these minions from all masters
// of the cluster.
func (s *connectionReports) collect(ctx context.Context, ids []string) map[string]runners.Standing {
	out := map[string]runners.Standing{}
	for _, id := range ids {
		if st, ok := s.of(id); ok {
			out[id] = st
		}
	}
	if s.cluster == nil || len(ids) == 0 {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, standingsTime)
	defer cancel()
	for _, answer := range s.cluster.Queries.AskAbout(ctx, askStandings, value.DictOf("ids", value.Strings(ids))) {
		for _, id := range ids {
			d := answer.Dict(id)
			if d.Len() == 0 {
				continue
			}
			st := parseStanding(d)
			if mine, ok := out[id]; !ok || st.At.After(mine.At) {
				st.Moves = movesWith(mine.Moves, st.Last)
				out[id] = st
			}
		}
	}
	return out
}

// of returns a minion's report.
func (s *connectionReports) of(id string) (runners.Standing, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.byID[id]
	return st, ok
}

// reportAge is the maximum age of a report that names the commanding master. A
// minion repeats it to a standby master every five seconds.
const reportAge = time.Minute

// elsewhere returns those of the given minions that another master commands,
// mapped to that master. It leaves out minions that also run this master's jobs.
func (s *connectionReports) elsewhere(ids []string) *value.Dict {
	out := value.NewDict(0)
	offered := s.standbyJobs()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		st := s.byID[id]
		if time.Since(st.At) >= reportAge {
			continue // the minion may be offline by now
		}
		if offered && st.RunsStandbyJobs() {
			continue
		}
		if master, _, ok := st.Elsewhere(); ok {
			out.Set(id, master)
		}
	}
	return out
}

// commanded returns the connected minions except those that only run standby jobs
// of this master: max_minions limits the minions that it commands. It does not
// modify present.
func (s *connectionReports) commanded(present map[string]bool) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := present
	for id := range present {
		if !s.byID[id].RunsStandbyJobs() {
			continue
		}
		if len(out) == len(present) {
			out = maps.Clone(present)
		}
		delete(out, id)
	}
	return out
}

func number(v any) float64 {
	switch x := v.(type) {
	case float64:
		return x
	case int64:
		return float64(x)
	}
	return 0
}

// secondsOf is the reverse of timeOf.
func secondsOf(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return float64(t.UnixMilli()) / 1000
}

// timeOf converts seconds since 1970; invalid times become the zero time.
func timeOf(v any) time.Time {
	n := number(v)
	if !(n > 0 && n < 1e11) {
		return time.Time{}
	}
	return time.UnixMilli(int64(n * 1000)).UTC()
}
