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

// Watch continuously compares the records of this master with those of the others, some at each step. It needs no sockets: Ask sends a question
// to another master, where Answer answers it.
//
// Masters that are up to date have the same winning versions. A difference is reported if it has lasted unchanged for settleTime, and each master
// has all changes that the other had at first. Otherwise changes may be in transit. It is repaired where that is safe:
//
//   - If both have versions of the thing, deletions included, each merges those of the other, as if they had just arrived. The result does
//     not depend on the order.
//   - If this master has none, or another content of the same version, it takes what a majority of all masters has. A deletion
//     is forgotten only when all masters know it, so a majority that has a thing has not missed its deletion.
//
// A record that only a minority has is not deleted: the operator must decide. With Union, records are only added: this master takes a record that
// it lacks from any other one.
type Watch struct {
	Source Source
	Kinds  []string
	Union  bool
	// Peers returns the reachable masters, and the number of all masters including this one.
	Peers func() (ids []string, members int)
	Ask   func(ctx context.Context, peer string, question []byte) ([]byte, error)
	// Found is called once for each difference.
	Found func(d Difference)
	// Show returns a kind and a name in the form for logs; nil leaves them unchanged.
	Show func(kind, name string) (string, string)
	Log  *slog.Logger

	known    atomic.Pointer[[]Difference]
	mu       sync.Mutex
	turn     int
	cursors  map[string]cursor
	suspects map[suspect]*doubt
}

// Source provides the records to compare: names of some kinds, in sorted order.
type Source interface {
	// Vector returns the vector of the known changes.
	Vector() (oplog.Vector, error)
	// Sums returns the checksums of some of the records with names after one name up to another; "" is no bound.
	Sums(kind, after, to string) (Part, error)
	// Some returns the checksums of some records. Names before from are not compared.
	Some(kind string, names []string) (sums map[string]string, from string, err error)
	// Versions returns the versions of a record, for Take on another master. If instead is true, Take replaces damaged versions there.
	Versions(kind, name string) ([]Version, error)
	Take(kind, name string, versions []Version, instead bool) (changed bool, err error)
}

// Part has the checksums of some records.
type Part struct {
	Sums map[string]string
	// Last is the last name covered, "" if the end was reached.
	Last string
	// From is the first name that is compared, "" for all.
	From string
}

// Difference is a record of which two masters have different versions.
type Difference struct {
	Kind, Name string // the name in the form for logs
	Peer       string
	Since      time.Time
	// Here and There are checksums, "" if the record does not exist.
	Here, There string
}

type cursor struct {
	kind  int
	after string
}

type suspect struct{ peer, kind, name string }

type doubt struct {
	here, there   string
	mine, theirs  oplog.Vector // the changes that each had at first
	since, looked time.Time
	found         bool
}

// Times and bounds of comparisons.
const (
	// StepTime is the interval of steps.
	StepTime   = 2 * time.Second
	settleTime = 10 * time.Second
	askTime    = 5 * time.Second
	// maxSuspects bounds the differences under investigation: if everything differs, it is enough to report some.
	maxSuspects = 256
	maxQuestion = 256 << 10
	maxReply    = 4 << 20
)

// question asks for the checksums of part of a kind, for those of some records, or for the versions of one record.
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
	// Before is the vector of the answering master before it computed the checksums, After its vector afterwards.
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
		panic(err) // a reply has only strings and numbers
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

// Step compares some records with one other master.
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
	for range w.Kinds { // most kinds have few records
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

// next compares the next records with a master, and reports whether the kind has more.
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
		w.cursors[peer] = cursor{kind: at.kind + 1} // the other master may not know this kind
		return false, err
	}
	if !r.Same && r.Last != last { // the other master has more records in this range
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

// differ reports whether two checksums show different contents.
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

// again checks earlier differences again.
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
			return err // a master that does not know the kind reports no differences
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

// repair takes the other master's versions if that is safe.
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

// unite takes a record that this master lacks. If contents differ, that of the majority wins; without a majority both masters merge them.
func (w *Watch) unite(ctx context.Context, s suspect, d *doubt, peers []string, members int) (took bool, err error) {
	if d.there == "" {
		return false, nil // the other master takes the record of this one
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

// merge merges the versions of another master if both have versions.
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

// follow takes the version that a majority has.
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

// publish updates the result of Differences.
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

// Differences returns the differences that are not repaired yet, sorted.
func (w *Watch) Differences() []Difference {
	if l := w.known.Load(); l != nil {
		return *l
	}
	return nil
}
