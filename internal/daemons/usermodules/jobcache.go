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

// ReturnerKinds are those that a helper of a master loads for its job cache and event returners.
var ReturnerKinds = []string{kindReturners, kindModules, "utils", "serializers"}

// maxHangs is how often a result is handed over that a module did not take in time. A module that
// hangs at one result must not keep all later ones waiting.
const maxHangs = 3

// outages are exceptions that say that a server is unreachable, by their full names: the same call
// may succeed later. lasting are derived from them and say that the server has refused something.
var (
	outages = []string{"builtins.ConnectionError", "builtins.TimeoutError", "socket.timeout", "socket.gaierror", "urllib.error.URLError",
		"requests.exceptions.ConnectionError", "requests.exceptions.Timeout"}
	lasting = []string{"urllib.error.HTTPError"}
)

// Open returns the returner of a name, with which a master stores jobs and events besides its own
// store.
func (r Returners) Open(name string) (returner.Returner, error) {
	if err := r.m.pool.Off(); err != nil {
		return nil, fmt.Errorf("the returner %s is a Python module: %w", name, err)
	}
	return &jobCache{source: source{r.m, kindReturners}, name: name}, nil
}

// jobCache is a returner in Python. Its calls have the functions of the master's machine.
type jobCache struct {
	source
	name string

	mu    sync.Mutex
	slow  string // the last result that was not taken in time
	hangs int    // how often in succession
}

// function returns the declaration of a function of the module, nil if it has none.
func (j *jobCache) function(name string) *fn.Func { return j.Find(j.name+"."+name, true) }

// call calls a function. what names the result or load that it is given, for errors that may pass.
func (j *jobCache) call(ctx context.Context, function, what string, args []any, kwargs *value.Dict) (any, error) {
	v, _, err := j.m.pool.Call(ctx, env(j.m.call(), nil), kindReturners, j.name+"."+function, args, kwargs)
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

// hung reports whether a call that was not finished in time is to be made again.
func (j *jobCache) hung(what string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if what != j.slow {
		j.slow, j.hangs = what, 0
	}
	j.hangs++
	return j.hangs < maxHangs
}

// InOrder says that one call at a time is made, in the order of the master: Salt's masters store a
// job before its returns.
func (j *jobCache) InOrder() {}

// Patience is how long a call may take. The first one starts Python, and a module may have a time
// limit of its own for its server.
func (j *jobCache) Patience() time.Duration { return time.Minute }

// Return implements returner.Returner.
func (j *jobCache) Return(ctx context.Context, ret *value.Dict) error {
	_, err := j.call(ctx, funcReturn, ret.Str("jid")+" "+ret.Str("id"), []any{ret}, nil)
	return err
}

// SaveLoad implements returner.Returner. prep_jid gets the id that the master has made: a module may
// prepare a place for the job there. Another id that it returns has no effect.
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
	_, err := j.call(ctx, "save_load", jid, []any{jid, load}, kwargs)
	return err
}

// query calls a function that reads; what a module does not have is empty.
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

// formatted are the names by which Salt's returners show what a load has.
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

// Events implements returner.Returner. As from Salt, events for which a module raises an exception
// are not handed over again.
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

// Clean implements returner.Returner: the module knows itself how long jobs are kept.
func (j *jobCache) Clean(ctx context.Context, _ time.Duration, _ bool) error {
	_, err := j.query(ctx, "clean_old_jobs")
	return err
}

// Close implements returner.Returner.
func (*jobCache) Close() error { return nil }

var _ returner.Returner = (*jobCache)(nil)
