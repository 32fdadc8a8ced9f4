package runners

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/call/schedule"
	pyjson "brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/store/shared"
)

// Saved stores what users save in a console.
type Saved interface {
	// All returns all records.
	All() ([]shared.Record, error)
	// Put stores a record, and replaces that of the same kind, owner and name.
	Put(r shared.Record) (shared.Record, error)
	// Remove deletes a record. may decides whether it may be deleted.
	Remove(id string, may func(*shared.Record) bool) (shared.Record, error)
}

var _ Saved = (*shared.Store)(nil)

// SavedModule is the module with which users save targets, jobs, schedules and views.
const SavedModule = "saved"

// savedKinds are the kinds of what can be saved, and the keys of its data.
var savedKinds = map[string][]string{
	"target": {"tgt", "tgt_type"},
	"job":    {"tgt", "tgt_type", "fun", "arg", "kwarg", "args", "batch", "timeout"},
	"view":   {"page", "query", "columns"},
	// schedule is an entry of a minion's option schedule. given is what a console knows of the job that gave it to minions.
	"schedule": {"tgt", "tgt_type", "schedule", "given"},
}

// savedNeeds are the keys that must be there.
var savedNeeds = map[string]string{"target": "tgt", "job": "fun", "view": "page", "schedule": "schedule"}

type saved struct{ store Saved }

func init() { runners.Register(SavedModule, savedModule) }

func savedModule(d Deps) fn.Module {
	s := saved{d.Console.Saved}
	const about = `Targets, jobs, schedules and views that users saved, for consoles. Masters of a cluster and hot masters share them.`
	return fn.Module{Name: SavedModule, Doc: about, Funcs: []fn.Func{
		fn.Of("list", s.list, `Return what the calling user saved, and what other users saved for all.`,
			fn.Example("salt-run saved.list"), fn.Example("salt-run saved.list target")),
		fn.Of("put", s.putPrivate, `Save a target, a job, a schedule or a view for the calling user alone. One of the same kind and name is replaced.

data has for a target tgt and tgt_type; for a job also fun, arg, kwarg, args (the arguments as typed), batch and timeout; for a schedule tgt, tgt_type and schedule, an entry as in the option schedule of a minion, and given, what a console knows of the job that gave it to minions; for a view page, query and columns.`,
			fn.Example("salt-run saved.put target web data='{tgt: \"web*\", tgt_type: glob}'"),
			fn.Example("salt-run saved.put schedule nightly data='{tgt: \"*\", schedule: {function: state.apply, days: 1}}'")),
		fn.Of("put_public", s.putPublic, `Save a target, a job, a schedule or a view that all users see. See saved.put.`,
			fn.Example("salt-run saved.put_public target web data='{tgt: \"web*\", tgt_type: glob}'")),
		fn.Of("remove", s.remove, `Remove what the calling user saved. The id is that of saved.list.`,
			fn.Example("salt-run saved.remove 5f2b8c0e5f2b8c0e5f2b8c0e5f2b8c0e")),
		fn.Of("remove_any", s.removeAny, `Remove what any user saved. See saved.remove.`,
			fn.Example("salt-run saved.remove_any 5f2b8c0e5f2b8c0e5f2b8c0e5f2b8c0e")),
	}}
}

// errNoSaved is the error where no master runs.
var errNoSaved = salt.Errorf(salt.Unavailable, "only a running master stores what users save")

type savedListArgs struct {
	Kind string `salt:"kind" doc:"target, job, schedule or view; empty: all" default:""`
}

func (s saved) list(_ context.Context, c *fn.Call, a savedListArgs) (*value.Dict, error) {
	if s.store == nil {
		return nil, errNoSaved
	}
	if a.Kind != "" && savedKinds[a.Kind] == nil {
		return nil, errSavedKind
	}
	all, err := s.store.All()
	if err != nil {
		return nil, err
	}
	rows := &value.List{}
	for _, r := range all {
		if savedKinds[r.Kind] == nil || a.Kind != "" && r.Kind != a.Kind || !r.Public && r.Owner != c.User {
			continue
		}
		d, err := describeSaved(r, c.User)
		if err != nil {
			continue // another master may have sent it
		}
		rows.Append(d)
	}
	return value.DictOf("saved", rows), nil
}

// describeSaved returns a record as users see it.
func describeSaved(r shared.Record, user string) (*value.Dict, error) {
	data, err := pyjson.Load(string(r.Data))
	if err != nil {
		return nil, err
	}
	d, ok := data.(*value.Dict)
	if !ok || checkSaved(r.Kind, d) != nil {
		return nil, salt.Errorf(salt.Invalid, "the data of a saved record is invalid")
	}
	out := value.DictOf("id", r.ID, "kind", r.Kind, "name", r.Name, "owner", r.Owner, "own", r.Owner == user, "public", r.Public,
		"changed", float64(r.Changed)/1e3, "data", d)
	if r.Kind == "schedule" {
		if next := nextSaved(d.Dict("schedule"), time.Now()); !next.IsZero() {
			out.Set("next", stamp(next))
		}
	}
	return out, nil
}

// nextSaved returns when a saved schedule is due by the master's clock, zero if that is unknown: an interval counts from
// the start of the minion.
func nextSaved(entry *value.Dict, now time.Time) time.Time {
	j, err := schedule.Parse("", entry, schedule.Globals{Enabled: true}, nil)
	if err != nil || !j.Enabled {
		return time.Time{}
	}
	return nextRun(j, "", now)
}

type savedArgs struct {
	Kind string      `salt:"kind" doc:"target, job, schedule or view"`
	Name string      `salt:"name" doc:"the name, up to 100 characters"`
	Data *value.Dict `salt:"data" doc:"what is saved, up to 4 KiB as JSON"`
}

func (s saved) putPrivate(_ context.Context, c *fn.Call, a savedArgs) (*value.Dict, error) {
	return s.put(c, a, false)
}

func (s saved) putPublic(_ context.Context, c *fn.Call, a savedArgs) (*value.Dict, error) {
	return s.put(c, a, true)
}

var errSavedKind = salt.Errorf(salt.Invalid, "kind must be target, job, schedule or view")

func (s saved) put(c *fn.Call, a savedArgs, public bool) (*value.Dict, error) {
	if s.store == nil {
		return nil, errNoSaved
	}
	if savedKinds[a.Kind] == nil {
		return nil, errSavedKind
	}
	if err := checkSaved(a.Kind, a.Data); err != nil {
		return nil, err
	}
	text, err := pyjson.Dump(a.Data, pyjson.Format{ASCII: true})
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "data cannot be saved: %w", err)
	}
	r, err := s.store.Put(shared.Record{Kind: a.Kind, Owner: cmp.Or(c.User, "root"), Name: strings.TrimSpace(a.Name), Public: public,
		Data: json.RawMessage(text)})
	if err != nil {
		return nil, err
	}
	return describeSaved(r, c.User)
}

// checkSaved returns an error unless data has only the keys of its kind, with strings, numbers, lists and maps of them.
func checkSaved(kind string, data *value.Dict) error {
	for k, v := range data.All() {
		name, _ := k.(string)
		if !slices.Contains(savedKinds[kind], name) {
			return salt.Errorf(salt.Invalid, "unknown key %.40q: the data of a %s has %s", value.Str(k), kind, strings.Join(savedKinds[kind], ", "))
		}
		if !scalars(v, 4) {
			return salt.Errorf(salt.Invalid, "%s has a value that cannot be saved", name)
		}
	}
	need := savedNeeds[kind]
	entry, isDict := data.At(need).(*value.Dict)
	if data.Str(need) == "" && data.List(need) == nil && (!isDict || kind != "schedule") {
		return salt.Errorf(salt.Invalid, "the data of a %s must have %s", kind, need)
	}
	if kind != "schedule" {
		return nil
	}
	if !isDict {
		return salt.Errorf(salt.Invalid, "schedule must be an entry as in the option schedule of a minion")
	}
	// The names of times are those of the minions, so when may be one of them.
	j, err := schedule.Parse("", withoutWhen(entry), schedule.Globals{Enabled: true}, nil)
	if err == nil && j.Fun == "" {
		err = salt.Errorf(salt.Invalid, "function is missing")
	}
	if err != nil {
		return salt.Errorf(salt.Invalid, "the schedule cannot be saved: %w", err)
	}
	return nil
}

// withoutWhen returns an entry of a schedule without the times that only a minion can read.
func withoutWhen(entry *value.Dict) *value.Dict {
	if !entry.Has("when") {
		return entry
	}
	out := entry.Clone()
	out.Delete("when")
	out.Set("run_on_start", true) // it has a time
	return out
}

// scalars reports whether a value is a string, number or truth value, or lists and maps of them, nested up to depth.
func scalars(v any, depth int) bool {
	switch x := v.(type) {
	case nil, string, bool, int64, float64:
		return true
	case *value.List:
		return depth > 0 && !slices.ContainsFunc(x.Items, func(it any) bool { return !scalars(it, depth-1) })
	case *value.Dict:
		for k, it := range x.All() {
			if _, ok := k.(string); !ok || depth == 0 || !scalars(it, depth-1) {
				return false
			}
		}
		return true
	}
	return false
}

type savedIDArgs struct {
	ID string `salt:"id" doc:"id of what is saved"`
}

func (s saved) remove(_ context.Context, c *fn.Call, a savedIDArgs) (*value.Dict, error) {
	return s.drop(a.ID, func(r *shared.Record) bool { return savedKinds[r.Kind] != nil && r.Owner == cmp.Or(c.User, "root") })
}

func (s saved) removeAny(_ context.Context, _ *fn.Call, a savedIDArgs) (*value.Dict, error) {
	return s.drop(a.ID, func(r *shared.Record) bool { return savedKinds[r.Kind] != nil })
}

func (s saved) drop(id string, may func(*shared.Record) bool) (*value.Dict, error) {
	if s.store == nil {
		return nil, errNoSaved
	}
	r, err := s.store.Remove(id, may)
	if err != nil {
		return nil, err
	}
	return value.DictOf("removed", r.ID, "kind", r.Kind, "name", r.Name, "owner", r.Owner), nil
}
