package copies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/store/job"
)

// counter counts the returns of which fewer copies than configured are on reachable members. A member counts those that it stores
// without their content, and of these only those that no reachable member with a lower id counts.
type counter struct {
	rule *Rule
	self string
	up   []string // the reachable members, this one included, sorted
	// full are those that cannot store returns, by the job id from which on they do not count as having one.
	full   map[string]string
	at     job.Cursor
	n      int
	oldest string
}

// countTime is the interval of counts while a member is unreachable or cannot store returns, firstCount that until some are found.
const countTime, firstCount = time.Minute, 10 * time.Second

// beginCount returns a counter if a count is due.
func (k *Keeper) beginCount(now time.Time) *counter {
	k.mu.Lock()
	defer k.mu.Unlock()
	pause := countTime
	if k.few == 0 {
		pause = firstCount
	}
	if k.rule == nil || !k.count && (k.few == 0 && len(k.down) == 0 || now.Sub(k.counted) < pause) {
		return nil
	}
	k.count, k.counted = false, now
	c := &counter{rule: k.rule, self: k.Self, up: append(slices.Clone(k.peers), k.Self), full: map[string]string{}}
	slices.Sort(c.up)
	for _, id := range k.full {
		c.full[id] = salt.FormatJID(k.down[id].UTC())
	}
	return c
}

func (k *Keeper) endCount(c *counter) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.few, k.oldest = c.n, c.oldest
}

// step reads a part of the store, and reports whether that was the last one.
func (c *counter) step(store Store) (done bool) {
	if !slices.ContainsFunc(c.rule.Members, func(id string) bool { return !slices.Contains(c.up, id) || c.full[id] != "" }) || c.rule.N == 0 {
		return true
	}
	places, next, done, err := store.Shorts(c.at, MaxNames, c.isFew)
	c.n, c.oldest, c.at = c.n+len(places), oldestOf(c.oldest, places), next
	return done || err != nil
}

func (c *counter) isFew(p job.Place) bool {
	copies, first := 0, ""
	for _, id := range c.up {
		full := c.full[id] != "" && p.JID >= c.full[id]
		switch holds := c.rule.Holds(id, p); {
		case holds && !full:
			copies++
		case !holds && !full && first == "":
			first = id
		}
	}
	return copies < c.rule.N && first == c.self
}

// oldestOf returns the lowest of a job id, "" for none, and those of some returns.
func oldestOf(jid string, places []job.Place) string {
	for _, p := range places {
		if jid == "" || p.JID < jid {
			jid = p.JID
		}
	}
	return jid
}

// usualCopies is the default of the option. It may be larger than a cluster.
const usualCopies = 3

// warn logs configured numbers that differ between members, or that no cluster of this size can have. k.mu is held.
func (k *Keeper) warn(r *Rule, members []Member) {
	text := ""
	if !r.unsure {
		text = Senseless(members)
	}
	if text != "" && text != k.warned {
		k.Log.Warn(text)
	}
	if !r.unsure {
		k.warned = text
	}
}

// Senseless returns what is wrong with the numbers of copies that the members have configured, or "".
func Senseless(members []Member) string {
	var parts []string
	differ, most := false, 0
	for _, m := range members {
		if !m.Known {
			return ""
		}
		differ = differ || m.Copies != members[0].Copies
		most = max(most, m.Copies)
		parts = append(parts, fmt.Sprintf("%d on %s", m.Copies, m.ID))
	}
	slices.Sort(parts)
	switch {
	case differ:
		return "cluster_return_copies differs between the masters (0 where a master needs all returns, and then all store all; else the largest " +
			"number counts): " + strings.Join(parts, ", ")
	case most > max(len(members), usualCopies):
		return fmt.Sprintf("cluster_return_copies is %d, and the cluster has %d masters: each return is stored on all masters, as with 0", most, len(members))
	}
	return ""
}

// Where describes which members have to store a return, and why this master cannot get it from them.
func (k *Keeper) Where(p job.Place) string {
	k.mu.Lock()
	all, self := slices.Clone(k.all), k.Self
	now := time.Now()
	current := k.rule
	k.mu.Unlock()
	// Members that have been unreachable for long do not count now, but may be those that have it.
	for i := range all {
		all[i].down = time.Time{}
	}
	before := Agree(all, now)
	var parts []string
	for _, m := range all {
		if !before.Holds(m.ID, p) && (current == nil || !current.Holds(m.ID, p)) {
			continue
		}
		state := "unreachable"
		switch {
		case m.ID == self:
			state = "this one, which lacks it"
		case m.Up:
			state = "reachable, lacks it"
		}
		parts = append(parts, m.ID+" ("+state+")")
	}
	slices.Sort(parts)
	return cmp.Or(strings.Join(parts, ", "), "unknown")
}
