// Package reactor responds to events of a master's bus with commands, as Salt's
// option reactor describes: a tag, or a tag pattern, and the SLS files with the
// reactions.
//
// A reaction is translated to the low data that the command line and the REST
// API use, and run as such. All work is bounded: events wait in a queue
// (reactor_worker_hwm), the number of master functions that run at a time is
// limited (reactor_worker_threads), and so is the number of reactions per
// second (reactor_rate), because a reaction causes events itself.
package reactor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/internal/sls/sls"
)

// Options are the options of the master.
type Options struct {
	Reactor any `salt:"reactor" default:"[]" doc:"reactions to events: a list of maps of a tag pattern to SLS files, or a file with such a list" change:"restart"`
	Threads int `salt:"reactor_worker_threads" default:"10" doc:"maximum number of runners and wheel functions that reactions run at a time" change:"restart"`
	Queue   int `salt:"reactor_worker_hwm" default:"10000" doc:"maximum number of queued events, and of queued runners and wheel functions; further ones are dropped and logged" change:"restart"`
	Rate    int `salt:"reactor_rate" default:"100" least:"0" doc:"maximum reactions per second; stops reaction loops; 0: no limit (Brine only)" change:"restart"`
}

// User is the user of runners and wheel functions in reactions. Their events
// cause no reactions.
const User = "Reactor"

// Deps is what a reactor uses of its master.
type Deps struct {
	Bus *event.Bus
	// Foreign reports whether another master's reactor, which also receives the
	// event, handles it. Nil means that none does.
	Foreign func(*event.Event) bool
	// Read fetches a file of the file server by its salt:// URL.
	Read func(ctx context.Context, url string) ([]byte, error)
	// Render renders an SLS; path is "" for an SLS that is not a local file.
	Render func(ctx context.Context, path string, source []byte, vars *value.Dict) (any, error)
	// Low runs a chunk of low data, with all permissions.
	Low func(ctx context.Context, chunk *value.Dict) ([]any, error)
	// Call runs an execution function on this machine.
	Call func(ctx context.Context, fun string, args []any, kwargs *value.Dict) error
	Log  *slog.Logger
}

// rule is one entry of the option.
type rule struct {
	entry *value.Dict // the original string
	tags  target.Glob
	files []string
}

// newRule reads an entry.
func newRule(it any) (rule, error) {
	m, ok := it.(*value.Dict)
	if !ok || m.Len() != 1 {
		return rule{}, salt.Errorf(salt.Invalid, "reactor: each entry must be a map of one tag to SLS files, not %.100s", value.Repr(it))
	}
	k, v := m.Entry(0)
	rl := rule{entry: m, tags: target.ParseGlob(value.Str(k))}
	switch x := v.(type) {
	case string:
		rl.files = []string{x}
	case *value.List:
		for _, f := range x.Items {
			rl.files = append(rl.files, value.Str(f))
		}
	default:
		return rule{}, salt.Errorf(salt.Invalid, "reactor: %q must have an SLS file or a list of them", value.Str(k))
	}
	return rl, nil
}

// logMissing logs files that are not there. They may appear before the first event.
func (rl rule) logMissing(log *slog.Logger) {
	for _, file := range rl.files {
		if strings.HasPrefix(file, "salt://") {
			continue
		}
		paths, err := filepath.Glob(file)
		if err != nil || len(paths) == 0 {
			log.Error("reactor: no such SLS file; events with this tag have no reaction", "tag", rl.tag(), "path", file)
		}
		for _, path := range paths {
			if err := readable(path); err != nil {
				log.Error("reactor: cannot read an SLS file; events with this tag have no reaction", "tag", rl.tag(), "path", path, "err", err)
			}
		}
	}
}

// readable returns an error for a directory or a file that cannot be opened.
func readable(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		return salt.Errorf(salt.Invalid, "%s is not a file", path)
	}
	return err
}

// tag is the original pattern.
func (rl rule) tag() string {
	k, _ := rl.entry.Entry(0)
	return value.Str(k)
}

// Reactor handles events while Run runs.
type Reactor struct {
	o     Options
	d     Deps
	rules atomic.Pointer[[]rule]
	leads atomic.Bool

	events  chan *event.Event
	work    chan func()
	lost    atomic.Uint64
	reacted atomic.Uint64
}

// New reads the option. Without rules it returns nil.
func New(o Options, d Deps) (*Reactor, error) {
	r := &Reactor{o: o, d: d, events: make(chan *event.Event, max(o.Queue, 1)), work: make(chan func(), max(o.Queue, 1))}
	conf := o.Reactor
	if path, ok := conf.(string); ok && path != "" {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, salt.Errorf(salt.Invalid, "reactor: %w", err)
		}
		if conf, err = yaml.Load(b, path); err != nil {
			return nil, salt.Errorf(salt.Invalid, "reactor: %w", err)
		}
	}
	list, ok := conf.(*value.List)
	if !ok && conf != nil && conf != "" {
		return nil, salt.Errorf(salt.Invalid, "reactor must be a list of maps of a tag to SLS files, not %s", value.TypeName(conf))
	}
	if list == nil {
		return nil, nil
	}
	var rules []rule
	for _, it := range list.Items {
		rl, err := newRule(it)
		if err != nil {
			return nil, err
		}
		rules = append(rules, rl)
	}
	if len(rules) == 0 {
		return nil, nil
	}
	if d.Log != nil {
		for _, rl := range rules {
			rl.logMissing(d.Log)
		}
	}
	r.rules.Store(&rules)
	r.leads.Store(true)
	return r, nil
}

// List returns the rules in the form of the option.
func (r *Reactor) List() *value.List {
	out := &value.List{}
	for _, rl := range *r.rules.Load() {
		out.Append(rl.entry.Clone())
	}
	return out
}

// Add adds a rule until the master stops. It returns false if the tag has one
// already.
func (r *Reactor) Add(tag string, files any) (bool, error) {
	rl, err := newRule(value.DictOf(tag, files))
	if err != nil {
		return false, err
	}
	for {
		old := r.rules.Load()
		if slices.ContainsFunc(*old, func(o rule) bool { return o.tag() == tag }) {
			return false, nil
		}
		all := append(slices.Clone(*old), rl)
		if r.rules.CompareAndSwap(old, &all) {
			return true, nil
		}
	}
}

// Delete removes the rule of a tag until the master stops. It returns false if
// there is none.
func (r *Reactor) Delete(tag string) bool {
	for {
		old := r.rules.Load()
		i := slices.IndexFunc(*old, func(o rule) bool { return o.tag() == tag })
		if i < 0 {
			return false
		}
		left := slices.Delete(slices.Clone(*old), i, i+1)
		if r.rules.CompareAndSwap(old, &left) {
			return true
		}
	}
}

// Leads reports whether the reactor responds to events.
func (r *Reactor) Leads() bool { return r.leads.Load() }

// Lead enables or disables the reactor.
func (r *Reactor) Lead(on bool) { r.leads.Store(on) }

// files returns the SLS files to render for a tag.
func (r *Reactor) files(tag string) []string {
	var out []string
	for _, rl := range *r.rules.Load() {
		if rl.tags.Match(tag) {
			out = append(out, rl.files...)
		}
	}
	return out
}

// take queues an event that has reactions. It never blocks: it runs on the
// goroutine that fires.
func (r *Reactor) take(e *event.Event) {
	if !r.leads.Load() || e.Data.At("user") == User || r.d.Foreign != nil && r.d.Foreign(e) ||
		!slices.ContainsFunc(*r.rules.Load(), func(rl rule) bool { return rl.tags.Match(e.Tag) }) {
		return
	}
	select {
	case r.events <- e:
	default:
		r.lost.Add(1)
	}
}

// Run serves until ctx ends, and waits for its goroutines.
func (r *Reactor) Run(ctx context.Context) error {
	defer r.d.Bus.Handle(r.take)()
	var wg sync.WaitGroup
	for range max(r.o.Threads, 1) {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case do := <-r.work:
					do()
				}
			}
		})
	}
	defer wg.Wait()
	pace := ratelimit.Window{Most: r.o.Rate, Every: time.Second}
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-r.events:
			if n := r.lost.Swap(0); n > 0 {
				r.d.Log.Error("dropped events: they came faster than the reactor could handle them (reactor_worker_hwm)", "lost", n)
			}
			for _, c := range r.reactions(ctx, e) {
				if !pace.Wait(ctx) {
					return nil
				}
				r.run(ctx, c)
			}
		}
	}
}

// reaction is one command.
type reaction struct {
	id, form, fun string
	chunk         *value.Dict
}

// reactions renders the SLS files of an event.
func (r *Reactor) reactions(ctx context.Context, e *event.Event) []reaction {
	high := value.NewDict(4)
	vars := value.DictOf("tag", e.Tag, "data", e.Data.Clone())
	for _, f := range r.files(e.Tag) {
		if err := r.render(ctx, f, vars, high); err != nil {
			r.d.Log.Error("cannot render reaction", "tag", e.Tag, "path", f, "err", err)
		}
	}
	out, err := compile(high)
	if err != nil {
		r.d.Log.Error("cannot parse the reactions to an event; running none of them", "tag", e.Tag, "err", err)
		return nil
	}
	return out
}

// render adds the SLS at a path, pattern or URL to high.
func (r *Reactor) render(ctx context.Context, at string, vars, high *value.Dict) error {
	type text struct {
		path   string
		source []byte
	}
	var texts []text
	if strings.HasPrefix(at, "salt://") {
		b, err := r.d.Read(ctx, at)
		if err != nil {
			return err
		}
		texts = append(texts, text{"", b})
	} else {
		paths, err := filepath.Glob(at)
		if err != nil || len(paths) == 0 {
			return salt.Errorf(salt.NotFound, "no such file")
		}
		for _, p := range paths {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			texts = append(texts, text{p, b})
		}
	}
	for _, t := range texts {
		v, err := r.d.Render(ctx, t.path, t.source, vars)
		if err != nil {
			return err
		}
		d, ok := v.(*value.Dict)
		if !ok && v != nil {
			return salt.Errorf(salt.Invalid, "it must be a map of names to reactions, not %s", value.TypeName(v))
		}
		high.Update(d)
	}
	return nil
}

// forms are the kinds of reactions; cmd is an old name.
var forms = map[string]string{"local": "local", "cmd": "local", "runner": "runner", "wheel": "wheel", "caller": "caller"}

// compile turns high data into reactions, in their order.
func compile(high *value.Dict) ([]reaction, error) {
	var out []reaction
	padded := value.NewDict(high.Len())
	for id, v := range high.All() {
		body, ok := v.(*value.Dict)
		if !ok {
			return nil, salt.Errorf(salt.Invalid, "%s must be a map of a reaction, such as local.test.ping, to its arguments", value.Str(id))
		}
		run := value.NewDict(body.Len())
		for k, args := range body.All() {
			form, fun, dotted := strings.Cut(value.Str(k), ".")
			list, ok := args.(*value.List)
			if !ok && args != nil {
				return nil, salt.Errorf(salt.Invalid, "%s: the arguments of %s must be a list", value.Str(id), value.Str(k))
			}
			if list == nil {
				list = &value.List{}
			}
			if forms[form] == "" {
				return nil, salt.Errorf(salt.Invalid, "%s: %s is not a reaction; use local, runner, wheel or caller", value.Str(id), form)
			}
			if run.Has(form) {
				return nil, salt.Errorf(salt.Invalid, "%s has two reactions of the form %s; move one of them to another name", value.Str(id), form)
			}
			if !dotted && !slices.ContainsFunc(list.Items, func(v any) bool { _, ok := v.(string); return ok }) {
				return nil, salt.Errorf(salt.Invalid, "%s: %s has no function", value.Str(id), form)
			}
			if dotted {
				list = value.ListOf(append(slices.Clone(list.Items), fun)...)
			}
			run.Set(form, list)
		}
		padded.Set(id, run)
	}
	chunks, errs := sls.Chunks(padded, nil)
	if len(errs) > 0 {
		return nil, salt.Errorf(salt.Invalid, "%s", errs[0].Text)
	}
	for _, c := range chunks {
		x := reaction{id: value.Str(c.At("__id__")), form: forms[c.Str("state")], fun: c.Str("fun")}
		var err error
		if x.chunk, err = lowData(x, c); err != nil {
			return nil, salt.Errorf(salt.Invalid, "%s: %w", x.id, err)
		}
		out = append(out, x)
	}
	return out, nil
}

// internal are the keys of a reaction that are not arguments.
var internal = map[string]bool{"state": true, "fun": true, "order": true, "__id__": true, "__sls__": true, "__env__": true, "arg": true, "kwarg": true,
	"args": true}

// lowData translates a reaction.
func lowData(x reaction, c *value.Dict) (*value.Dict, error) {
	args, kwargs, err := arguments(x, c)
	if err != nil {
		return nil, err
	}
	low := value.DictOf("client", x.form, "fun", x.fun, "arg", value.ListOf(args...), "kwarg", kwargs)
	if x.form != "local" {
		return low, nil
	}
	tgt, ok := c.Get("tgt")
	if !ok {
		return nil, salt.Errorf(salt.Invalid, "tgt is missing: name the minions that run %s", x.fun)
	}
	low.Set("client", "local_async")
	low.Set("tgt", tgt)
	low.Set("tgt_type", cmp.Or(c.Str("tgt_type"), c.Str("expr_form"), "glob"))
	for _, k := range []string{"ret", "metadata", "timeout"} {
		if v, ok := c.Get(k); ok {
			low.Set(k, v)
		}
	}
	return low, nil
}

// arguments reads args, or the old arg and kwarg. Functions of the master may
// have their arguments beside them.
func arguments(x reaction, c *value.Dict) (args []any, kwargs *value.Dict, err error) {
	kwargs = value.NewDict(4)
	if given, ok := c.Get("args"); ok {
		switch a := given.(type) {
		case *value.Dict:
			kwargs.Update(a)
			return nil, kwargs, nil
		case *value.List:
			named := !slices.ContainsFunc(a.Items, func(v any) bool { d, ok := v.(*value.Dict); return !ok || d.Len() != 1 })
			if !named && x.form == "caller" {
				return a.Items, kwargs, nil
			}
			if named {
				for _, it := range a.Items {
					kwargs.Update(it.(*value.Dict))
				}
				return nil, kwargs, nil
			}
		}
		return nil, nil, salt.Errorf(salt.Invalid, "args must be a map of arguments by name")
	}
	switch a := c.At("arg").(type) {
	case nil:
	case *value.List:
		args = a.Items
	default:
		args = []any{a}
	}
	switch k := c.At("kwarg").(type) {
	case nil:
	case *value.Dict:
		kwargs.Update(k)
	case *value.List:
		for _, it := range k.Items {
			d, ok := it.(*value.Dict)
			if !ok {
				return nil, nil, salt.Errorf(salt.Invalid, "kwarg must be a map of arguments by name")
			}
			kwargs.Update(d)
		}
	default:
		return nil, nil, salt.Errorf(salt.Invalid, "kwarg must be a map of arguments by name")
	}
	if x.form == "runner" || x.form == "wheel" {
		for k, v := range c.All() {
			name := value.Str(k)
			if !internal[name] && !(name == "name" && value.Equal(v, c.At("__id__"))) && !kwargs.Has(name) {
				kwargs.Set(name, v)
			}
		}
	}
	return args, kwargs, nil
}

// run executes one reaction. Functions of the master wait for a worker.
func (r *Reactor) run(ctx context.Context, x reaction) {
	r.reacted.Add(1)
	do := func() {
		defer func() {
			if p := recover(); p != nil {
				r.d.Log.Error("reaction failed", "id", x.id, "fun", x.form+"."+x.fun, "err", fmt.Sprint(p))
			}
		}()
		var err error
		if x.form == "caller" {
			err = r.d.Call(ctx, x.fun, x.chunk.List("arg"), x.chunk.Dict("kwarg"))
		} else {
			_, err = r.d.Low(ctx, x.chunk)
		}
		if err != nil && ctx.Err() == nil {
			r.d.Log.Error("reaction failed", "id", x.id, "fun", x.form+"."+x.fun, "err", err)
		}
	}
	if x.form == "local" {
		do()
		return
	}
	select {
	case r.work <- do:
	default:
		r.d.Log.Error("dropped reaction: too many are queued (reactor_worker_hwm, reactor_worker_threads)", "id", x.id, "fun", x.form+"."+x.fun)
	}
}
