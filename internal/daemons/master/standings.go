package master

import (
	"sync"
	"time"

	"brine/internal/catalogue/runners"
	"brine/internal/net/channel"
	"brine/internal/py/value"
)

// standings is what minions have told of how they stand with their masters
// (_brine_standing): which one commands them, which one stands by. Brine's
// minions tell it anew with each connection, so that it need not be kept.
type standings struct {
	m *Master

	mu   sync.Mutex
	byID map[string]runners.Standing
}

// Bounds of what one minion may have kept here.
const (
	maxStandingMasters = 64
	maxStandingText    = 300
)

func cut(s string) string { return s[:min(len(s), maxStandingText)] }

// take keeps what a minion tells. The answer names the key for publications,
// so that a minion that does not listen here knows when its own is outdated.
func (s *standings) take(c *channel.Call) {
	st := runners.Standing{Mode: cut(c.Load.Str("mode")), At: time.Now()}
	for _, it := range c.Load.List("masters") {
		d, ok := it.(*value.Dict)
		if !ok || len(st.Masters) == maxStandingMasters {
			break
		}
		st.Masters = append(st.Masters, runners.StandingMaster{
			Master: cut(d.Str("master")), State: cut(d.Str("state")), Since: timeOf(d.At("since")), Here: d.Bool("you"),
		})
	}
	if d := c.Load.Dict("last"); d.Len() > 0 {
		st.Last = &runners.StandingChange{
			From: cut(d.Str("from")), To: cut(d.Str("to")), Reason: cut(d.Str("reason")),
			Seconds: number(d.At("seconds")), At: timeOf(d.At("at")),
		}
	}
	s.mu.Lock()
	if s.byID == nil {
		s.byID = map[string]runners.Standing{}
	}
	s.byID[c.ID] = st
	s.mu.Unlock()
	answer := value.DictOf("key", channel.KeyTag(s.m.publish.AES()))
	if s.m.cluster != nil {
		if _, version := s.m.cluster.Roster(); version > 0 {
			answer.Set("members", version)
		}
	}
	c.Reply(answer)
}

// members tells a minion which masters there are in the cluster
// (_brine_members): a list that the cluster's key has signed.
func (m *Master) members(c *channel.Call) {
	answer := value.NewDict(1)
	if m.cluster != nil {
		if signed, version := m.cluster.Roster(); version > 0 {
			answer.Set("members", signed)
		}
	}
	c.Reply(answer)
}

// of returns what a minion has told.
func (s *standings) of(id string) (runners.Standing, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.byID[id]
	return st, ok
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

// timeOf reads seconds since 1970; a time that cannot be is none.
func timeOf(v any) time.Time {
	n := number(v)
	if !(n > 0 && n < 1e11) {
		return time.Time{}
	}
	return time.UnixMilli(int64(n * 1000)).UTC()
}
