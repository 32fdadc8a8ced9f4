package federation

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"brine/internal/net/sealed"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// decisions are what users decided about the keys of sites. The masters of a cluster above compare
// theirs, so that a decision also arrives at one that was not connected. The latest one counts.
type decisions struct {
	book *book
	keys *keystore.Store

	mu  sync.Mutex
	all map[string]wire.HubKey // by site
}

func (d *decisions) load() error {
	d.all = map[string]wire.HubKey{}
	return d.book.each(decisionsBucket, "", func(name string, record *value.Dict) {
		var in wire.HubKey
		if wire.Decode(record, &in) == nil && in.Name == name {
			d.all[name] = in
		}
	})
}

// decide makes a decision and records it. It is later than what is known of this key, whatever the clock
// says.
func (d *decisions) decide(name, pub, state string, move func() error) (wire.HubKey, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := move(); err != nil {
		return wire.HubKey{}, err
	}
	made := wire.HubKey{Name: name, Pub: pub, State: state, At: max(time.Now().UnixNano(), d.all[name].At+1)}
	d.all[name] = made
	if err := d.book.put(decisionsBucket, name, wire.Encode(made)); err != nil {
		return made, fmt.Errorf("the key of the site %s has its new state at this master, which cannot record that for others; repeat it: %w", name, err)
	}
	return made, nil
}

// learn applies a decision of another master, unless a later one is known.
func (d *decisions) learn(in wire.HubKey) error {
	if err := sealed.CheckName(in.Name); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, ok := d.all[in.Name]; ok && !supersedes(&in, &known) {
		return nil
	}
	if err := d.move(&in); err != nil {
		return err
	}
	d.all[in.Name] = in
	d.book.later(decisionsBucket, in.Name, wire.Encode(in)) // if it is lost, the others send it again
	return nil
}

// supersedes reports whether a decision replaces another one. Of two that were made at the same time, the
// one counts that gives a site less.
func supersedes(in, known *wire.HubKey) bool {
	rank := func(k *wire.HubKey) int {
		return slices.Index([]string{keystore.Accepted.String(), "", keystore.Rejected.String()}, k.State)
	}
	return cmp.Or(cmp.Compare(in.At, known.At), cmp.Compare(rank(in), rank(known)), cmp.Compare(in.Pub, known.Pub)) > 0
}

// move brings a key into the state of a decision.
func (d *decisions) move(in *wire.HubKey) error {
	st, pub, err := d.keys.Lookup(in.Name)
	if err != nil {
		return err
	}
	to := map[string]keystore.State{keystore.Accepted.String(): keystore.Accepted, keystore.Rejected.String(): keystore.Rejected}[in.State]
	if pub != "" && (to == keystore.None || sealed.Fingerprint(pub) != sealed.Fingerprint(in.Pub)) {
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

// current returns the decisions that the keys of this master agree with. One whose directory of keys is
// newer than its book, as after the book was restored from a copy, does not spread older ones.
func (d *decisions) current() (out []wire.HubKey, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(d.all)) {
		k := d.all[name]
		st, pub, err := d.keys.Lookup(name)
		if err != nil {
			return nil, err
		}
		is := ""
		if pub != "" && st != keystore.Pending {
			is = st.String()
		}
		if is == k.State && (is == "" || sealed.Fingerprint(pub) == sealed.Fingerprint(k.Pub)) {
			out = append(out, k)
		}
	}
	return out, nil
}

// digest identifies a list of decisions.
func digest(all []wire.HubKey) []byte {
	h := sha256.New()
	for i := range all {
		b, err := msgpack.Marshal(wire.Encode(all[i]), msgpack.NewSpec)
		if err != nil {
			continue // what was decoded can be encoded
		}
		h.Write(b)
	}
	return h.Sum(nil)
}
