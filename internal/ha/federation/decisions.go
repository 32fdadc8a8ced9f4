package federation

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/net/sealed"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// decisions are what users decided about the keys of sites. The masters of a cluster above compare
// theirs, so that a decision also arrives at one that was not connected.
//
// A decision replaces those that the user had seen, and no others, whatever the clocks of the masters
// say. Of decisions that did not see each other, the one counts that gives a site least; the others are
// kept, so that all masters come to the same result in whatever order they learn of them.
type decisions struct {
	book *book
	keys *keystore.Store
	made func(wire.HubKey) // is called with each decision of this master

	mu  sync.Mutex
	all map[string][]wire.HubKey // by site; none has seen another one; the one that counts is first
}

// The bounds of what is kept of a site. What goes beyond them is the oldest that a decision has seen,
// which then counts as not seen, and the decisions that give a site most.
const (
	maxSeen       = 64
	maxConcurrent = 8
)

func (d *decisions) load() error {
	d.all = map[string][]wire.HubKey{}
	return d.book.each(decisionsBucket, "", func(name string, record *value.Dict) {
		l, _ := record.At("all").(*value.List)
		if l == nil {
			return
		}
		for _, v := range l.Items {
			var in wire.HubKey
			if r, ok := v.(*value.Dict); ok && wire.Decode(r, &in) == nil && in.Name == name {
				d.all[name] = append(d.all[name], in)
			}
		}
	})
}

func record(all []wire.HubKey) *value.Dict {
	l := &value.List{}
	for i := range all {
		l.Items = append(l.Items, wire.Encode(all[i]))
	}
	return value.DictOf("all", l)
}

// find returns the key of a site, or an error if it has none.
func (d *decisions) find(name string) (st keystore.State, pub string, err error) {
	st, pub, err = d.keys.Lookup(name)
	if err == nil && st == keystore.None && pub == "" {
		err = salt.Errorf(salt.NotFound, "there is no key of a site %q: see salt-run federation.keys", name)
	}
	return st, pub, err
}

// set gives the key of a site a state. With a fingerprint, the key must have it.
func (d *decisions) set(name, fingerprint string, to keystore.State) error {
	st, pub, err := d.find(name)
	if err != nil {
		return err
	}
	if fingerprint != "" && sealed.Fingerprint(pub) != fingerprint {
		return salt.Errorf(salt.Denied, "the key of %s has the fingerprint %s", name, sealed.Fingerprint(pub))
	}
	return d.decide(name, pub, to.String(), func() error {
		if st == to {
			return nil
		}
		return d.keys.Move(name, st, to)
	})
}

// remove deletes the key of a site.
func (d *decisions) remove(name string) error {
	st, pub, err := d.find(name)
	if err != nil {
		return err
	}
	return d.decide(name, pub, "", func() error { return d.keys.Delete(st, name) })
}

// decide makes a decision, here and at the other masters above.
func (d *decisions) decide(name, pub, state string, move func() error) error {
	made, err := d.make(name, pub, state, move)
	if made.ID != "" {
		d.made(made)
	}
	return err
}

// make makes a decision, which has seen all that this master knows, and records it.
func (d *decisions) make(name, pub, state string, move func() error) (wire.HubKey, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := move(); err != nil {
		return wire.HubKey{}, err
	}
	made := wire.HubKey{ID: rand.Text(), Name: name, Pub: pub, State: state, Seen: d.seen(name)}
	d.all[name] = []wire.HubKey{made}
	if err := d.book.put(decisionsBucket, name, record(d.all[name])); err != nil {
		return made, fmt.Errorf("the key of the site %s has its new state at this master, which cannot record that for others; repeat it: %w", name, err)
	}
	return made, nil
}

// seen returns what a decision made now has seen, the newest first.
func (d *decisions) seen(name string) []string {
	var ids []string
	for _, k := range d.all[name] {
		ids = append(ids, k.ID)
	}
	for i := 0; len(ids) < maxSeen; i++ {
		more := false
		for _, k := range d.all[name] {
			if i < len(k.Seen) {
				more = true
				if !slices.Contains(ids, k.Seen[i]) {
					ids = append(ids, k.Seen[i])
				}
			}
		}
		if !more {
			break
		}
	}
	return ids[:min(len(ids), maxSeen)]
}

// learn takes a decision of another master, unless a decision is known that has seen it.
func (d *decisions) learn(in wire.HubKey) error {
	if err := sealed.CheckName(in.Name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []wire.HubKey{in}
	for _, k := range d.all[in.Name] {
		if k.ID == in.ID || slices.Contains(k.Seen, in.ID) {
			return nil
		}
		if !slices.Contains(in.Seen, k.ID) {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, stricter)
	all = all[:min(len(all), maxConcurrent)]
	if err := d.move(&all[0]); err != nil {
		return err
	}
	d.all[in.Name] = all
	d.book.later(decisionsBucket, in.Name, record(all)) // if it is lost, the others send it again
	return nil
}

// stricter compares decisions: first is the one that gives a site less.
func stricter(a, b wire.HubKey) int {
	rank := func(k wire.HubKey) int {
		return slices.Index([]string{keystore.Rejected.String(), "", keystore.Accepted.String()}, k.State)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Pub, b.Pub), cmp.Compare(a.ID, b.ID))
}

// move brings a key into the state of a decision.
func (d *decisions) move(in *wire.HubKey) error {
	st, pub, err := d.keys.Lookup(in.Name)
	if err != nil {
		return err
	}
	to := map[string]keystore.State{keystore.Accepted.String(): keystore.Accepted, keystore.Rejected.String(): keystore.Rejected}[in.State]
	same := pub != "" && sealed.Fingerprint(pub) == sealed.Fingerprint(in.Pub)
	if to == keystore.None && st == keystore.Pending && !same {
		return nil // a new key of the site waits for its own decision
	}
	if pub != "" && (to == keystore.None || !same) {
		if err := d.keys.Delete(st, in.Name); err != nil {
			return err
		}
		pub = ""
	}
	switch {
	case to == keystore.None || pub != "" && st == to:
		return nil
	case pub == "":
		return d.keys.Add(to, in.Name, in.Pub)
	}
	return d.keys.Move(in.Name, st, to)
}

// current returns the decisions that the keys of this master agree with, the strictest of a site
// first. One whose directory of keys is newer than its book, as after the book was restored from a copy,
// does not spread older ones.
func (d *decisions) current() (out []wire.HubKey, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(d.all)) {
		k := d.all[name][0]
		st, pub, err := d.keys.Lookup(name)
		if err != nil {
			return nil, err
		}
		same := pub != "" && st != keystore.Pending && sealed.Fingerprint(pub) == sealed.Fingerprint(k.Pub)
		if same && st.String() == k.State || !same && k.State == "" {
			out = append(out, d.all[name]...)
		}
	}
	return out, nil
}

// digest identifies decisions, in the order of [decisions.current].
func digest(all []wire.HubKey) []byte {
	h := sha256.New()
	for i := range all {
		h.Write([]byte(all[i].Name + "\x00" + all[i].ID + "\x00"))
	}
	return h.Sum(nil)
}
