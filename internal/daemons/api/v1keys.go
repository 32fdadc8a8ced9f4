package api

import (
	"maps"
	"slices"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// keysElsewhere are the keys at other masters that share the key of this one and are no cluster with it.
type keysElsewhere struct {
	own     string
	masters map[string]masterKeys
}

// masterKeys are the keys at one of them.
type masterKeys struct {
	problem string
	keys    map[string][]elsewhereKey // by the id of the minion
}

type elsewhereKey struct{ state, fingerprint string }

// keysElsewhere asks for these keys. Without the permission for wheel key.list_elsewhere there are none.
func (v *v1) keysElsewhere(c *call) (k keysElsewhere, err error) {
	d, err := v.wheel(c, "key.list_elsewhere", value.NewDict(0))
	if salt.KindOf(err) == salt.Denied {
		return k, nil
	}
	if err != nil {
		return k, err
	}
	k.own, k.masters = d.Str("own"), map[string]masterKeys{}
	for name, x := range d.Dict("masters").All() {
		one, _ := x.(*value.Dict)
		m := masterKeys{problem: one.Str("problem"), keys: map[string][]elsewhereKey{}}
		for _, it := range one.List("keys") {
			if l := value.Items(it); len(l) == 3 {
				id := value.Str(l[0])
				m.keys[id] = append(m.keys[id], elsewhereKey{keyStates[value.Str(l[1])], value.Str(l[2])})
			}
		}
		k.masters[value.Str(name)] = m
	}
	return k, nil
}

// compare adds to the row of a key its state at each master, and whether the fingerprints differ.
func (k keysElsewhere) compare(d *value.Dict, id, state, fingerprint string) {
	if len(k.masters) == 0 {
		return
	}
	states, conflict := value.DictOf(k.own, orNone(state)), false
	fingerprints := value.DictOf(k.own, orNone(fingerprint))
	for _, name := range slices.Sorted(maps.Keys(k.masters)) {
		m := k.masters[name]
		states.Set(name, nil)
		if m.problem != "" && len(m.keys) == 0 {
			states.Set(name, "unknown")
		}
		for i, x := range m.keys[id] {
			if i == 0 {
				states.Set(name, x.state)
				fingerprints.Set(name, x.fingerprint)
			}
			conflict = conflict || fingerprint != "" && x.fingerprint != fingerprint
			fingerprint = x.fingerprint
		}
	}
	d.Set("masters", states)
	if conflict {
		d.Set("conflict", fingerprints)
	}
}

// ids returns the minions with keys elsewhere.
func (k keysElsewhere) ids() []string {
	all := map[string]bool{}
	for _, m := range k.masters {
		for id := range m.keys {
			all[id] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// problems returns why masters do not answer.
func (k keysElsewhere) problems() *value.Dict {
	out := value.NewDict(0)
	for _, name := range slices.Sorted(maps.Keys(k.masters)) {
		if p := k.masters[name].problem; p != "" {
			out.Set(name, p)
		}
	}
	return out
}

// decidedElsewhere is what other masters did: {MASTER: {problem, keys: {ID: why nothing was done}}}.
type decidedElsewhere struct{ *value.Dict }

// decideElsewhere has the other masters decide on keys. of returns the fingerprint of a key, and false to leave it out.
func (v *v1) decideElsewhere(c *call, k keysElsewhere, action string, ids *value.List, of func(id string) (string, bool)) (decidedElsewhere, error) {
	if len(k.masters) == 0 {
		return decidedElsewhere{}, nil
	}
	keys := &value.List{}
	for _, x := range ids.Items {
		id := value.Str(x)
		if finger, ok := of(id); ok {
			keys.Append(value.ListOf(id, finger))
		}
	}
	d, err := v.wheel(c, "key.decide_elsewhere", value.DictOf("action", action, "keys", keys))
	if salt.KindOf(err) == salt.Denied {
		d = value.NewDict(len(k.masters))
		for name := range k.masters {
			d.Set(name, value.DictOf("problem", "you may not decide on keys at other masters (wheel key.decide_elsewhere)"))
		}
		return decidedElsewhere{d}, nil
	}
	return decidedElsewhere{d}, err
}

// of returns what each master did with a key.
func (e decidedElsewhere) of(id string) *value.Dict {
	out := value.NewDict(e.Len())
	if e.Dict == nil {
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(e.names())) {
		m := e.Dict.Dict(name)
		why, known := m.Dict("keys").Get(id)
		reason := value.Str(why)
		if p := m.Str("problem"); p != "" {
			reason = p
		} else if !known {
			reason = otherFingerprint
		}
		d := value.DictOf("done", reason == "")
		if reason != "" {
			d.Set("reason", reason)
		}
		out.Set(name, d)
	}
	return out
}

func (e decidedElsewhere) names() map[string]bool {
	out := map[string]bool{}
	for k := range e.All() {
		out[value.Str(k)] = true
	}
	return out
}
