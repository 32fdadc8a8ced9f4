package master

import (
	"fmt"
	"time"

	"brine/internal/base/target"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/keystore"
)

// targets resolves targets to minions by their cached data.
type targets struct {
	groups func() target.Nodegroups
	keys   *keystore.Store
	cache  *cache.Cache
}

// minionTargetTime bounds the backtracking patterns of one request of a minion.
// They run in the master, and any accepted minion can send them.
const minionTargetTime = 100 * time.Millisecond

// resolve returns the accepted minions that should answer a job for a target, and the listed
// ids of minions that do not exist. A minion without cached data counts, because it may match.
func (t *targets) resolve(typ string, tgt any, delimiter string) (minions, missing []string, err error) {
	return t.resolveWithin(target.NewBudget(target.DefaultBudget), typ, tgt, delimiter)
}

// resolveWithin is resolve for a target whose patterns share a budget.
func (t *targets) resolveWithin(budget *target.Budget, typ string, tgt any, delimiter string) (minions, missing []string, err error) {
	parsed, err := t.groups().ParseWithin(budget, typ, tgt, delimiter)
	if err != nil {
		return nil, nil, err
	}
	ids, err := t.keys.Accepted()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list the accepted minions: %w", err)
	}
	minions, missing = parsed.Expected(ids, t.minionData)
	return minions, missing, nil
}

// matching returns the accepted minions that certainly match, as permission checks require.
func (t *targets) matching(typ string, tgt any, delimiter string) ([]string, error) {
	return t.matchingWithin(target.NewBudget(target.DefaultBudget), typ, tgt, delimiter)
}

// matchingWithin is matching for a target whose patterns share a budget.
func (t *targets) matchingWithin(budget *target.Budget, typ string, tgt any, delimiter string) ([]string, error) {
	parsed, err := t.groups().ParseWithin(budget, typ, tgt, delimiter)
	if err != nil {
		return nil, err
	}
	ids, err := t.keys.Accepted()
	if err != nil {
		return nil, fmt.Errorf("cannot list the accepted minions: %w", err)
	}
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		if parsed.Match(t.subject(id)) {
			out = append(out, id)
		}
	}
	return out, nil
}

// subject returns a minion, with its cached data, as the subject of a target.
func (t *targets) subject(id string) target.Subject { return &cached{data: t.minionData, id: id} }

// minionData returns the cached grains and pillar of a minion, nil if unknown.
func (t *targets) minionData(id string) (grains, pillar *value.Dict) {
	d := t.cache.MinionData(id)
	return d.Grains, d.Pillar
}

// Nodegroups implements runners.Targets.
func (t *targets) Nodegroups() target.Nodegroups { return t.groups() }

// Matches reports whether an accepted minion is known to match a target.
func (t *targets) Matches(typ string, tgt any, id string) (bool, error) {
	parsed, err := t.groups().ParseWithin(target.NewBudget(minionTargetTime), typ, tgt, "")
	if err != nil {
		return false, err
	}
	if st, _, err := t.keys.Lookup(id); err != nil || st != keystore.Accepted {
		return false, err
	}
	return parsed.Match(t.subject(id)), nil
}

// within reports whether all minions match a compound target.
func (t *targets) within(minions []string, tgt string) bool {
	valid, err := t.matching("compound", tgt, "")
	return err == nil && subset(minions, valid)
}

// subset reports whether all minions are among the valid ones.
func subset(minions, valid []string) bool {
	in := make(map[string]bool, len(valid))
	for _, id := range valid {
		in[id] = true
	}
	for _, id := range minions {
		if !in[id] {
			return false
		}
	}
	return true
}

// mayMatch reports whether the target of a job could match a minion, depending on its grains
// and pillar.
func mayMatch(groups target.Nodegroups, load *value.Dict, id string) bool {
	o := readOrder(load)
	t, err := groups.ParseWithin(target.NewBudget(minionTargetTime), o.TgtType, o.Tgt, o.kw.Delimiter)
	return err != nil || t.Expect(target.Data{MinionID: id})
}

// cached reads a minion's data from the cache when a target needs it.
type cached struct {
	data   func(id string) (grains, pillar *value.Dict)
	id     string
	loaded bool
	grains *value.Dict
	pillar *value.Dict
}

func (c *cached) load() {
	if c.loaded {
		return
	}
	c.loaded = true
	c.grains, c.pillar = c.data(c.id)
}

func (c *cached) ID() string          { return c.id }
func (c *cached) Grains() *value.Dict { c.load(); return c.grains }
func (c *cached) Pillar() *value.Dict { c.load(); return c.pillar }
