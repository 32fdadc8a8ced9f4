// Package lastrun keeps the outcome of the last runs of states of each minion: the last one that
// applied states, and the last one that only tested them. It is computed from stored returns, and
// is bounded whatever minions return.
package lastrun

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Severities, the worst first.
const (
	Failed      = "failed"
	NotReturned = "not_returned"
	Drift       = "drift"
	Changed     = "changed"
	Clean       = "clean"
	// Unknown is that of a minion that has returned no run.
	Unknown = "unknown"
)

// Severities lists all severities, the worst first.
var Severities = []string{Failed, NotReturned, Drift, Changed, Clean, Unknown}

// Grace is the time after which a run without a return counts as not returned.
const Grace = 10 * time.Minute

// Bounds for each run.
const (
	maxItems = 200
	maxSlow  = 10
	maxText  = 300
	maxMods  = 20
	maxSteps = 20_000
)

// functions are those that run whole SLS files. state.single and others say nothing about the rest
// of a minion.
var functions = map[string]bool{"state.apply": true, "state.highstate": true, "state.sls": true, "state.test": true, "state.top": true}

// Runs reports whether a function runs whole SLS files.
func Runs(fun string) bool { return functions[fun] }

// Hash identifies a change.
type Hash [16]byte

// Item is a state that failed or changed something, or would change something.
type Item struct {
	State   string // id, or id and name if they differ
	Fun     string // such as file.managed
	SLS     string
	Outcome string // failed, changed or drift
	Change  Hash
}

// Slow is a state with its duration.
type Slow struct {
	State, Fun, SLS string
	MS              float64
}

// Run is the outcome of one run.
type Run struct {
	JID  string
	Fun  string
	Mods []string // SLS files that were named; empty for a highstate
	Time time.Time
	Test bool
	// OK, Changed, Failed and Would count states. Would is the number that would change something.
	OK, Changed, Failed, Would int64
	// Broken says that the run ended before any state, as with an SLS file that cannot be rendered.
	Broken bool
	Items  []Item
	Slow   []Slow
	// MS is the sum of the durations of all states.
	MS float64
}

// Minion is what is known of one minion.
type Minion struct {
	Applied, Tested *Run
	// Waits is the newest run that was published to the minion and has not been returned, and Since its time.
	Waits string
	Since time.Time
}

// Last returns the newest run, or nil.
func (m Minion) Last() *Run {
	if m.Tested != nil && (m.Applied == nil || m.Tested.JID > m.Applied.JID) {
		return m.Tested
	}
	return m.Applied
}

// Severity returns the worst of what holds: a run failed, the newest one did not return, the last test
// shows changes, the last run changed something, or nothing of these.
func (m Minion) Severity(now time.Time) string {
	last := m.Last()
	tested := m.Tested != nil && m.Tested == last
	switch {
	case m.Applied != nil && m.Applied.failed(), tested && last.failed():
		return Failed
	case m.Waits != "" && now.Sub(m.Since) > Grace:
		return NotReturned
	case last == nil:
		return Unknown
	case tested && last.Would > 0:
		return Drift
	case !tested && last.Changed > 0:
		return Changed
	}
	return Clean
}

func (r *Run) failed() bool { return r.Broken || r.Failed > 0 }

// Parse reads a return of a run of states and adds its changes to bodies. It returns nil if the load is
// not one. The load is not trusted.
func Parse(jid, fun string, args any, ret *value.Dict, at time.Time, bodies *Bodies) *Run {
	if !Runs(fun) || ret == nil {
		return nil
	}
	r := &Run{JID: jid, Fun: fun, Time: at.UTC()}
	r.arguments(args)
	states, ok := ret.At("return").(*value.Dict)
	if !ok || states.Len() == 0 {
		code, _ := ret.At("retcode").(int64)
		if _, isList := ret.At("return").(*value.List); !isList && code == 0 && ret.At("success") != false {
			return nil // such as a queued run
		}
		r.Broken = true
		return r
	}
	steps := 0
	for k, v := range states.All() {
		key, isText := k.(string)
		state, isDict := v.(*value.Dict)
		if steps++; steps > maxSteps || !isText || !isDict || !state.Has("result") {
			continue
		}
		r.add(key, state, bodies)
	}
	if r.OK+r.Changed+r.Failed+r.Would == 0 {
		r.Broken = true
	}
	slices.SortFunc(r.Slow, func(a, b Slow) int { return cmp.Compare(b.MS, a.MS) })
	return r
}

// arguments reads the SLS files and the argument test.
func (r *Run) arguments(args any) {
	r.Test = r.Fun == "state.test"
	for i, a := range value.Items(args) {
		switch a := a.(type) {
		case *value.Dict:
			r.Test = r.Test || value.Truth(a.At("test"))
			if m := a.At("mods"); m != nil {
				r.mods(m)
			}
		case string:
			if v, ok := strings.CutPrefix(a, "test="); ok {
				r.Test = r.Test || strings.EqualFold(v, "true")
			} else if i == 0 {
				r.mods(a)
			}
		case *value.List:
			if i == 0 {
				r.mods(a)
			}
		}
	}
}

func (r *Run) mods(v any) {
	if r.Fun == "state.highstate" || r.Fun == "state.top" {
		return
	}
	for _, m := range value.Split(v) {
		if len(r.Mods) < maxMods {
			r.Mods = append(r.Mods, cut(m))
		}
	}
}

// add counts one state.
func (r *Run) add(key string, state *value.Dict, bodies *Bodies) {
	id, fun := names(key, state)
	sls := cut(value.Str(orEmpty(state.At("__sls__"))))
	r.slow(Slow{State: id, Fun: fun, SLS: sls, MS: milliseconds(state.At("duration"))})
	outcome := ""
	switch result := state.At("result"); {
	case result == false:
		r.Failed++
		outcome = Failed
	case result == nil:
		r.Would++
		r.Test = true
		outcome = Drift
	case value.Truth(state.At("changes")):
		r.Changed++
		outcome = Changed
	default:
		r.OK++
		return
	}
	if len(r.Items) < maxItems {
		r.Items = append(r.Items, Item{State: id, Fun: fun, SLS: sls, Outcome: outcome, Change: bodies.add(state, outcome == Failed)})
	}
}

// names returns what a state is called, and its function, from the key MODULE_|-ID_|-NAME_|-FUNCTION.
func names(key string, state *value.Dict) (id, fun string) {
	parts := strings.Split(key, "_|-")
	if len(parts) < 4 {
		return cut(key), ""
	}
	id = strings.Join(parts[1:len(parts)-2], "_|-")
	if declared, ok := state.At("__id__").(string); ok && declared != "" {
		id = declared
	}
	if name := parts[len(parts)-2]; name != id {
		id += " (" + name + ")"
	}
	return cut(id), cut(parts[0] + "." + parts[len(parts)-1])
}

func (r *Run) slow(s Slow) {
	if s.MS <= 0 {
		return
	}
	r.MS += s.MS
	if len(r.Slow) < maxSlow {
		r.Slow = append(r.Slow, s)
		return
	}
	least := 0
	for i := range r.Slow {
		if r.Slow[i].MS < r.Slow[least].MS {
			least = i
		}
	}
	if s.MS > r.Slow[least].MS {
		r.Slow[least] = s
	}
}

// maxMS is a year.
const maxMS = 365 * 24 * 3600 * 1000

func milliseconds(v any) float64 {
	f := 0.0
	switch x := v.(type) {
	case float64:
		f = x
	case int64:
		f = float64(x)
	}
	if !(f > 0 && f < maxMS) {
		return 0
	}
	return f
}

func orEmpty(v any) any {
	if v == nil {
		return ""
	}
	return v
}

// cut bounds a name. It is copied, so that it does not keep the whole return in memory.
func cut(s string) string {
	return strings.Clone(strings.ToValidUTF8(s[:min(len(s), maxText)], "\uFFFD"))
}

// Bounds of the stored changes: of one, and of all.
const (
	maxBody   = 16 << 10
	maxBodies = 32 << 20
)

// Bodies has the changes and comments of states, each once.
type Bodies struct {
	mu    sync.Mutex
	byKey map[Hash][]byte
	size  int
}

// add stores the changes and the comment of a state and returns their identity. States with equal changes
// are the same change. The comment counts if there are no changes or the state failed.
func (b *Bodies) add(state *value.Dict, failed bool) Hash {
	changes, comment := state.At("changes"), state.At("comment")
	whole := value.DictOf("changes", changes, "comment", comment)
	same := whole
	if value.Truth(changes) && !failed {
		same = value.DictOf("changes", changes)
	}
	text, err := msgpack.Marshal(same, msgpack.NewSpec)
	if err != nil {
		text = []byte(value.Repr(same))
	}
	sum := sha256.Sum256(text)
	h := Hash(sum[:16])
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.byKey[h]; ok {
		return h
	}
	stored, err := msgpack.Marshal(whole, msgpack.NewSpec)
	if err != nil || len(stored) > maxBody || b.size+len(stored) > maxBodies {
		return h
	}
	b.put(h, stored)
	return h
}

func (b *Bodies) put(h Hash, stored []byte) {
	if b.byKey == nil {
		b.byKey = map[Hash][]byte{}
	}
	b.byKey[h] = stored
	b.size += len(stored)
}

// bodyLimits bounds what is decoded from a stored change.
var bodyLimits = msgpack.Limits{Items: 10_000, Bytes: maxBody + 1, Depth: 64}

// Get returns the changes and the comment of a state, or nil if they were too large to keep.
func (b *Bodies) Get(h Hash) *value.Dict {
	b.mu.Lock()
	text, ok := b.byKey[h]
	b.mu.Unlock()
	if !ok {
		return nil
	}
	v, err := bodyLimits.UnmarshalTyped(text)
	if err != nil {
		return nil
	}
	d, _ := v.(*value.Dict)
	return d
}

// keep removes all others.
func (b *Bodies) keep(used map[Hash]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h, text := range b.byKey {
		if !used[h] {
			b.size -= len(text)
			delete(b.byKey, h)
		}
	}
}

// String returns the hash as text.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(h) {
		return errHash
	}
	copy(h[:], b)
	return nil
}

var errHash = errors.New("not the hash of a change")
