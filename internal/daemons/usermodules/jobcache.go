package usermodules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/py/value"
	"brine/internal/store/returner"
)

// ReturnerKinds are the kinds that a helper of a master loads for its job cache and event
// returners.
var ReturnerKinds = []string{kindReturners, kindModules, "utils", "serializers"}

// maxHangs is how often a result is passed to a module that does not return in time. A
// module that hangs at one result must not block all later ones.
const maxHangs = 3

// outages are the full names of exceptions that mean that a server is unreachable, so that
// the same call may succeed later. lasting are exceptions derived from them that mean that
// the server refused something.
var (
	outages = []string{"builtins.ConnectionError", "builtins.TimeoutError", "socket.timeout", "socket.gaierror", "urllib.error.URLError",
		"requests.exceptions.ConnectionError", "requests.exceptions.Timeout"}
	lasting = []string{"urllib.error.HTTPError"}
)

// Open returns the returner of a name, with which a master stores jobs and events in
// addition to its own store.
func (r Returners) Open(name string) (returner.Returner, error) {
	if err := r.m.pool.Off(); err != nil {
		return nil, fmt.Errorf("the returner %s is a Python module: %w", name, err)
	}
	return &jobCache{source: source{r.m, kindReturners}, name: name}, nil
}

// jobCache is a returner in Python. Its calls use the functions of the master's machine.
type jobCache struct {
	source
	name string

	mu    sync.Mutex
	slow  string // the last result for which the module took too long
	hangs int    // how often in a row
}

// function returns the declaration of a function of the module, or nil if it has none.
func (j *jobCache) function(name string) *fn.Func { return j.Find(j.name+"."+name, true) }

// call calls a function. what names the result or load that is passed, to count timeouts of
// the same one. Errors that may be temporary are Unavailable.
func (j *jobCache) call(ctx context.Context, function, what string, args []any, kwargs *value.Dict) (any, error) {
	v, _, err := j.m.pool.Call(ctx, j.m.env(j.m.call(), nil), kindReturners, j.name+"."+function, args, kwargs)
	if err == nil {
		return v, nil
	}
	var raised *python.Error
	if errors.As(err, &raised) {
		of := func(names []string) bool {
			return slices.ContainsFunc(raised.Names, func(n string) bool { return slices.Contains(names, n) })
		}
		text := fmt.Errorf("%s.%s raised an exception: %s", j.name, function, raised.Text)
		if of(outages) && !of(lasting) {
			return nil, salt.Errorf(salt.Unavailable, "%w", text)
		}
		j.m.cfg.Log.Error("a Python module raised an exception", "function", j.name+"."+function, "traceback", python.Trace(err))
		return nil, text
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && j.hung(function+" "+what) {
		return nil, salt.Errorf(salt.Unavailable, "%w", err)
	}
	return nil, err
}

// hung counts a call that did not end in time, and reports whether to repeat it.
func (j *jobCache) hung(what string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if what != j.slow {
		j.slow, j.hangs = what, 0
	}
	j.hangs++
	return j.hangs < maxHangs
}

// InOrder means that calls are made one at a time, in the order of the master, because
// Salt's masters store a job before its returns.
func (j *jobCache) InOrder() {}

// Patience returns the timeout of a call. The first one starts Python, and a module may
// have its own timeout for its server.
func (j *jobCache) Patience() time.Duration { return time.Minute }

// Return implements returner.Returner.
func (j *jobCache) Return(ctx context.Context, ret *value.Dict) error {
	_, err := j.call(ctx, funcReturn, ret.Str("jid")+" "+ret.Str("id"), []any{ret}, nil)
	return err
}

// SaveLoad implements returner.Returner. It passes the id of the job to prep_jid, where a
// module may prepare its store for the job. The id that prep_jid returns has no effect.
func (j *jobCache) SaveLoad(ctx context.Context, jid string, load *value.Dict) error {
	if j.function("prep_jid") != nil {
		if _, err := j.call(ctx, "prep_jid", jid, nil, value.DictOf("nocache", false, "passed_jid", jid)); err != nil {
			return err
		}
	}
	kwargs := value.NewDict(1)
	if f := j.function("save_load"); f != nil {
		if _, ok := f.Param("minions"); ok {
			kwargs.Set("minions", load.At("Minions"))
		}
	}
	if load = load.Clone(); load.Has("Minions") {
		load.Delete("Minions") // Salt has the ids in minions only
	}
	_, err := j.call(ctx, "save_load", jid, []any{jid, load}, kwargs)
	return err
}

// query calls a function that reads. If the module does not have it, the result is nil.
func (j *jobCache) query(ctx context.Context, function string, args ...any) (any, error) {
	if j.function(function) == nil {
		return nil, nil
	}
	return j.call(ctx, function, "", args, nil)
}

// Load implements returner.Returner.
func (j *jobCache) Load(ctx context.Context, jid string) (*value.Dict, error) {
	v, err := j.query(ctx, "get_load", jid)
	if d, ok := v.(*value.Dict); ok && d.Len() > 0 {
		return d, err
	}
	return nil, err
}

// Returns implements returner.Returner.
func (j *jobCache) Returns(ctx context.Context, jid string) (map[string]*value.Dict, error) {
	v, err := j.query(ctx, "get_jid", jid)
	all, _ := v.(*value.Dict)
	out := make(map[string]*value.Dict, all.Len())
	for id, ret := range all.All() {
		d, ok := ret.(*value.Dict)
		if !ok || !d.Has("return") {
			d = value.DictOf("return", ret)
		}
		out[value.Str(id)] = d
	}
	return out, err
}

// formatted maps the keys by which Salt's returners describe a job to those of its load.
var formatted = [][2]string{{"Function", "fun"}, {"Arguments", "arg"}, {"Target", "tgt"}, {"Target-type", "tgt_type"}, {"User", "user"}}

// Jobs implements returner.Returner.
func (j *jobCache) Jobs(ctx context.Context) (map[string]*value.Dict, error) {
	v, err := j.query(ctx, "get_jids")
	out := map[string]*value.Dict{}
	if l, ok := v.(*value.List); ok { // without loads
		for _, jid := range l.Items {
			out[value.Str(jid)] = value.DictOf("jid", value.Str(jid))
		}
	}
	all, _ := v.(*value.Dict)
	for jid, shown := range all.All() {
		load := value.DictOf("jid", value.Str(jid))
		if d, ok := shown.(*value.Dict); ok {
			load.Update(d)
			for _, names := range formatted {
				if v, ok := d.Get(names[0]); ok && !d.Has(names[1]) {
					load.Set(names[1], v)
				}
			}
		}
		out[value.Str(jid)] = load
	}
	return out, err
}

// Events implements returner.Returner. As in Salt, events for which a module raises an
// exception are not passed again.
func (j *jobCache) Events(ctx context.Context, events []returner.Event) error {
	l := &value.List{}
	for _, e := range events {
		l.Append(value.DictOf("tag", e.Tag, "data", e.Data))
	}
	_, err := j.call(ctx, "event_return", "", []any{l}, nil)
	if err != nil && salt.KindOf(err) != salt.Unavailable {
		j.m.cfg.Log.Error("event_return lost events that a Python module did not take", "name", j.name, "events", len(events), "err", err)
		return nil
	}
	return err
}

// Clean implements returner.Returner. The module itself knows how long jobs are stored.
func (j *jobCache) Clean(ctx context.Context, _ time.Duration, _ bool) error {
	_, err := j.query(ctx, "clean_old_jobs")
	return err
}

// Close implements returner.Returner.
func (*jobCache) Close() error { return nil }

var _ returner.Returner = (*jobCache)(nil)
