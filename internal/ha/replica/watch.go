package replica

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/store/job"
	"brine/internal/store/oplog"
)

// Watch compares the records of this master with those of the others all the time, some at each step. It needs no sockets: Ask carries a question
// to another master, whose Answer answers it.
//
// Masters that are up to date have the same winning versions. A difference counts if it has lasted for settleTime, unchanged, while both have got
// all that the other had at first: otherwise changes are on the way. It is repaired where that is safe:
//
//   - If both have versions of the thing, deletions included, each merges those of the other, as if they had just arrived. The result does
//     not depend on the order.
//   - If this master has none, or another content of the same version, it takes what a majority of all masters has. A deletion
//     is forgotten only when all masters know it, so a majority that has a thing has not missed its deletion.
//
// A thing that only a minority has is not deleted: it is for an operator to decide. With Union, things are only ever added: then what this master
// lacks is taken from any other one.
type Watch struct {
	Source Source
	Kinds  []string
	Union  bool
	// Peers returns the masters that can be reached, and how many masters there are, this one included.
	Peers func() (ids []string, members int)
	Ask   func(ctx context.Context, peer string, question []byte) ([]byte, error)
	// Found is called once for each difference.
	Found func(d Difference)
	// Show returns a kind and a name for logs; nil: as they are.
	Show func(kind, name string) (string, string)
	Log  *slog.Logger

	known    atomic.Pointer[[]Difference]
	mu       sync.Mutex
	turn     int
	cursors  map[string]cursor
	suspects map[suspect]*doubt
}

// Source is what masters compare: things of some kinds, in the order of their names.
type Source interface {
	// Vector is which changes are known.
	Vector() (oplog.Vector, error)
	// Sums returns the checksums of a part of the things after a name up to another one; "" is no bound.
	Sums(kind, after, to string) (Part, error)
	// Some returns the checksums of some things. Those before from are not compared.
	Some(kind string, names []string) (sums map[string]string, from string, err error)
	// Versions returns the versions of a thing, for Take on another master. With instead they replace what is damaged there.
	Versions(kind, name string) ([]Version, error)
	Take(kind, name string, versions []Version, instead bool) (changed bool, err error)
}

// Part is the checksums of some things.
type Part struct {
	Sums map[string]string
	// Last is the name up to which it got, "" for all.
	Last string
	// From is the name before which things are not compared, "" if all are.
	From string
}

// Difference is a thing of which two masters have different versions.
type Difference struct {
	Kind, Name string // the name as it may be shown
	Peer       string
	Since      time.Time
	// Here and There are checksums, "" if there is no such thing.
	Here, There string
}

type cursor struct {
	kind  int
	after string
}

type suspect struct{ peer, kind, name string }

type doubt struct {
	here, there   string
	mine, theirs  oplog.Vector // what both knew at first
	since, looked time.Time
	found         bool
}

// Times and bounds of comparisons.
const (
	// StepTime is the interval of steps.
	StepTime   = 2 * time.Second
	settleTime = 10 * time.Second
	askTime    = 5 * time.Second
	// maxSuspects bounds the differences that are looked at: if all differs it is enough to say so of some.
	maxSuspects = 256
	maxQuestion = 256 << 10
	maxReply    = 4 << 20
)

// question asks for the checksums of a part of a kind, of some things, or for the versions of one.
type question struct {
	Kind  string   `json:"kind"`
	After string   `json:"after,omitempty"`
	To    string   `json:"to,omitempty"`
	Total string   `json:"total,omitempty"`
	Names []string `json:"names,omitempty"`
	Whole string   `json:"whole,omitempty"`
}

type reply struct {
	Same bool              `json:"same,omitempty"`
	Sums map[string]string `json:"sums,omitempty"`
	Last string            `json:"last,omitempty"`
	From string            `json:"from,omitempty"`
	// Before is what the answering master knew before it computed the checksums, After what it knew then.
	Before   oplog.Vector `json:"before,omitempty"`
	After    oplog.Vector `json:"after,omitempty"`
	Versions []Version    `json:"versions,omitempty"`
	Why      string       `json:"why,omitempty"`
}

// Answer answers a question of another master.
func (w *Watch) Answer(text []byte) []byte {
	r, err := w.answer(text)
	if err != nil {
		r = reply{Why: err.Error()}
	}
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // of strings and numbers
	}
	return b
}

func (w *Watch) answer(text []byte) (r reply, err error) {
	var q question
	if len(text) > maxQuestion {
		return r, salt.Errorf(salt.Invalid, "the question has %d bytes", len(text))
	}
	if err := json.Unmarshal(text, &q); err != nil {
		return r, salt.Errorf(salt.Invalid, "cannot decode the question: %w", err)
	}
	if !slices.Contains(w.Kinds, q.Kind) || len(q.Names) > maxSuspects {
		return r, salt.Errorf(salt.Invalid, "records of kind %.80q are not compared", q.Kind)
	}
	switch {
	case q.Whole != "":
		r.Versions, err = w.Source.Versions(q.Kind, q.Whole)
		return r, err
	case len(q.Names) > 0:
		if r.Before, err = w.Source.Vector(); err == nil {
			r.Sums, r.From, err = w.Source.Some(q.Kind, q.Names)
		}
	default:
		var p Part
		p, err = w.Source.Sums(q.Kind, q.After, q.To)
		if err == nil && p.Last == q.To && total(p.Sums) == q.Total {
			return reply{Same: true, Last: p.Last}, nil
		}
		r.Sums, r.Last, r.From = p.Sums, p.Last, p.From
	}
	if err == nil {
		r.After, err = w.Source.Vector()
	}
	return r, err
}

func (w *Watch) ask(ctx context.Context, peer string, q question) (r reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	text, err := json.Marshal(q)
	if err != nil {
		return r, err
	}
	b, err := w.Ask(ctx, peer, text)
	switch {
	case err != nil:
		return r, err
	case len(b) > maxReply:
		return r, salt.Errorf(salt.Invalid, "an answer of %s has %d bytes", peer, len(b))
	case len(b) == 0:
		return r, salt.Errorf(salt.Unavailable, "%s has a version that does not compare records", peer)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, salt.Errorf(salt.Invalid, "cannot decode an answer of %s: %w", peer, err)
	}
	if r.Why != "" {
		return r, salt.Errorf(salt.Unavailable, "%s: %.200s", peer, r.Why)
	}
	return r, nil
}

// Run compares until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(StepTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.Step(ctx, now)
		}
	}
}

// Step compares a part with one other master.
func (w *Watch) Step(ctx context.Context, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.publish()
	if w.cursors == nil {
		w.cursors, w.suspects = map[string]cursor{}, map[suspect]*doubt{}
	}
	peers, members := w.Peers()
	slices.Sort(peers)
	maps.DeleteFunc(w.suspects, func(s suspect, _ *doubt) bool { return !slices.Contains(peers, s.peer) })
	if len(peers) == 0 {
		return
	}
	w.turn++
	peer := peers[w.turn%len(peers)]
	err := w.again(ctx, peer, peers, members, now)
	for range w.Kinds { // most are short
		if err != nil {
			break
		}
		var more bool
		if more, err = w.next(ctx, peer, now); more {
			break
		}
	}
	if err != nil && ctx.Err() == nil {
		w.Log.Debug("cannot compare records with another master", "peer", peer, "err", err)
	}
}

// next compares the next part with a master, and reports whether the kind has more.
func (w *Watch) next(ctx context.Context, peer string, now time.Time) (more bool, err error) {
	at := w.cursors[peer]
	kind := w.Kinds[at.kind%len(w.Kinds)]
	p, err := w.Source.Sums(kind, at.after, "")
	if err != nil {
		return false, err
	}
	here, last := p.Sums, p.Last
	r, err := w.ask(ctx, peer, question{Kind: kind, After: at.after, To: last, Total: total(here)})
	if err != nil {
		w.cursors[peer] = cursor{kind: at.kind + 1} // it may not know this kind
		return false, err
	}
	if !r.Same && r.Last != last { // the other one has more things up to there
		if p, err = w.Source.Sums(kind, at.after, r.Last); err != nil {
			return false, err
		}
		here, last = p.Sums, p.Last
	}
	mine, err := w.Source.Vector()
	if err != nil {
		return false, err
	}
	from := max(p.From, r.From)
	inside := func(name string) bool { return name > at.after && (last == "" || name <= last) }
	maps.DeleteFunc(w.suspects, func(s suspect, _ *doubt) bool {
		return s.peer == peer && s.kind == kind && (s.name < from || inside(s.name) && (r.Same || !differ(here[s.name], r.Sums[s.name])))
	})
	if !r.Same {
		for _, name := range union(here, r.Sums) {
			s := suspect{peer, kind, name}
			if inside(name) && name >= from && differ(here[name], r.Sums[name]) && w.suspects[s] == nil && len(w.suspects) < maxSuspects {
				w.suspects[s] = &doubt{here: here[name], there: r.Sums[name], mine: mine, theirs: r.After, since: now, looked: now}
			}
		}
	}
	if at.after = last; last == "" {
		at.kind++
	}
	w.cursors[peer] = at
	return last != "", nil
}

// differ reports whether two checksums are of different contents.
func differ(here, there string) bool {
	return here != there && here != job.Uncompared && there != job.Uncompared
}

func union(a, b map[string]string) []string {
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// again looks at what differed before.
func (w *Watch) again(ctx context.Context, peer string, peers []string, members int, now time.Time) error {
	old := map[string][]string{}
	for s, d := range w.suspects {
		if s.peer == peer && now.Sub(d.looked) >= settleTime {
			old[s.kind] = append(old[s.kind], s.name)
		}
	}
	for kind, names := range old {
		before, err := w.Source.Vector()
		if err != nil {
			return err
		}
		here, from, err := w.Source.Some(kind, names)
		if err != nil {
			return err
		}
		after, err := w.Source.Vector()
		if err != nil {
			return err
		}
		r, err := w.ask(ctx, peer, question{Kind: kind, Names: names})
		if err != nil {
			return err // one that does not know the kind gave no reason to ask
		}
		for _, name := range names {
			s := suspect{peer, kind, name}
			d := w.suspects[s]
			d.looked = now
			switch {
			case !differ(here[name], r.Sums[name]), name < max(from, r.From):
				delete(w.suspects, s)
			case here[name] != d.here || r.Sums[name] != d.there:
				w.suspects[s] = &doubt{here: here[name], there: r.Sums[name], mine: after, theirs: r.After, since: d.since, looked: now, found: d.found}
			case includes(before, d.theirs) && includes(r.Before, d.mine):
				if !d.found {
					d.found = true
					w.Found(w.difference(s, d))
				}
				w.repair(ctx, s, d, peers, members)
			}
		}
	}
	return nil
}

func (w *Watch) difference(s suspect, d *doubt) Difference {
	kind, name := w.show(s)
	return Difference{Kind: kind, Name: name, Peer: s.peer, Since: d.since, Here: d.here, There: d.there}
}

func (w *Watch) show(s suspect) (kind, name string) {
	if w.Show == nil {
		return s.kind, s.name
	}
	return w.Show(s.kind, s.name)
}

// includes reports whether v has all changes of o.
func includes(v, o oplog.Vector) bool {
	for origin, n := range o {
		if v[origin] < n {
			return false
		}
	}
	return true
}

// repair takes what another master has, if that is safe.
func (w *Watch) repair(ctx context.Context, s suspect, d *doubt, peers []string, members int) {
	var took bool
	var err error
	if w.Union {
		took, err = w.unite(ctx, s, d, peers, members)
	} else if took, err = w.merge(ctx, s); err == nil && !took {
		took, err = w.follow(ctx, s, d, peers, members)
	}
	kind, name := w.show(s)
	switch {
	case err != nil:
		w.Log.Debug("cannot repair a record", "kind", kind, "name", name, "peer", s.peer, "err", err)
	case took:
		w.Log.Warn("a replicated record differed from that of another master, and was repaired", "kind", kind, "name", name, "peer", s.peer)
	}
}

// unite takes what this master lacks. Of two contents the one counts that a majority has; without one both masters merge them.
func (w *Watch) unite(ctx context.Context, s suspect, d *doubt, peers []string, members int) (took bool, err error) {
	if d.there == "" {
		return false, nil // the other one takes it
	}
	instead := false
	if d.here != "" {
		own, other := 1, 0
		for _, peer := range peers {
			switch r, err := w.ask(ctx, peer, question{Kind: s.kind, Names: []string{s.name}}); {
			case err != nil:
			case r.Sums[s.name] == d.here:
				own++
			case r.Sums[s.name] == d.there:
				other++
			}
		}
		if own > members/2 {
			return false, nil
		}
		instead = other > members/2
	}
	r, err := w.ask(ctx, s.peer, question{Kind: s.kind, Whole: s.name})
	if err != nil || len(r.Versions) == 0 {
		return false, err
	}
	return w.Source.Take(s.kind, s.name, r.Versions, instead)
}

// merge merges the versions of another master, if both have some.
func (w *Watch) merge(ctx context.Context, s suspect) (took bool, err error) {
	own, err := w.Source.Versions(s.kind, s.name)
	if err != nil || len(own) == 0 {
		return false, err
	}
	r, err := w.ask(ctx, s.peer, question{Kind: s.kind, Whole: s.name})
	if err != nil {
		return false, err
	}
	return w.Source.Take(s.kind, s.name, r.Versions, false)
}

// follow takes what a majority has.
func (w *Watch) follow(ctx context.Context, s suspect, d *doubt, peers []string, members int) (took bool, err error) {
	if d.there == "" {
		return false, nil
	}
	same := 0
	for _, peer := range peers {
		r, err := w.ask(ctx, peer, question{Kind: s.kind, Names: []string{s.name}})
		if err == nil && r.Sums[s.name] == d.there {
			same++
		}
	}
	if same <= members/2 {
		return false, nil
	}
	r, err := w.ask(ctx, s.peer, question{Kind: s.kind, Whole: s.name})
	if err != nil {
		return false, err
	}
	return w.Source.Take(s.kind, s.name, r.Versions, true)
}

// publish makes the differences known.
func (w *Watch) publish() {
	var out []Difference
	for s, d := range w.suspects {
		if d.found {
			out = append(out, w.difference(s, d))
		}
	}
	slices.SortFunc(out, func(a, b Difference) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name), strings.Compare(a.Peer, b.Peer))
	})
	w.known.Store(&out)
}

// Differences returns the differences that are not repaired, sorted.
func (w *Watch) Differences() []Difference {
	if l := w.known.Load(); l != nil {
		return *l
	}
	return nil
}
