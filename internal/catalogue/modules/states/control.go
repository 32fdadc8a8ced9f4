package states

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/sls/highstate"
)

func (m *mod) controls() []fn.Func {
	return []fn.Func{
		fn.Of("running", m.running, `List the state runs that go on, as texts.`, fn.Example("salt '*' state.running")),
		fn.Of("pause", m.pause, `Let a run wait before a state, or before its next one.`, fn.Params("jid", "state_id", "duration"),
			fn.Example("salt '*' state.pause 20171130110407769519 vim 20")),
		fn.Of("resume", m.resume, `Let a paused run go on.`, fn.Params("jid", "state_id"), fn.Example("salt '*' state.resume 20171130110407769519 vim")),
		fn.Of("soft_kill", m.softKill, `End a run before a state, or before its next one.`, fn.Params("jid", "state_id"),
			fn.Example("salt '*' state.soft_kill 20171130110407769519 vim")),
		fn.Of("get_pauses", m.getPauses, `Show what is asked of runs by pause and soft_kill.`, fn.Params("jid"), fn.Default("jid", "null"),
			fn.Example("salt '*' state.get_pauses")),
		fn.Of("clear_cache", m.clearCache, `Remove the high data of earlier runs from the cache.`, fn.Example("salt '*' state.clear_cache")),
		fn.Of("disable", m.disable, `Keep SLS files, state functions or highstate from running here.`,
			fn.Example("salt '*' state.disable highstate,test.succeed_without_changes")),
		fn.Of("enable", m.enable, `Undo state.disable.`, fn.Example("salt '*' state.enable highstate")),
		fn.Of("list_disabled", m.listDisabled, `List what state.disable has disabled.`, fn.Example("salt '*' state.list_disabled")),
	}
}

type runningArgs struct {
	Concurrent bool `salt:"concurrent" doc:"return an empty list" default:"false"`
}

func (m *mod) running(_ context.Context, c *fn.Call, a runningArgs) (*value.List, error) {
	l := &value.List{}
	if a.Concurrent {
		return l, nil
	}
	for _, j := range m.gate.list(c.JID) {
		l.Append(j.text())
	}
	return l, nil
}

// pauseDir is the directory below cachedir with the requests to pause, resume or end
// runs.
const pauseDir = "state_pause"

// all stands for the next state, whichever it is.
const all = "__all__"

type pauseArgs struct {
	JID      any `salt:"jid" doc:"id of the job that the run is"`
	StateID  any `salt:"state_id" doc:"id of the state; null: the next one" default:"null"`
	Duration any `salt:"duration" doc:"seconds after which the run goes on by itself" default:"null"`
}

func (a pauseArgs) file(c *fn.Call) (p pauses, jid, id string, err error) {
	jid, id = value.Str(a.JID), word(a.StateID)
	if id == "" {
		id = all
	}
	if !salt.ValidJID(jid) {
		return p, "", "", fn.Invalidf("%q is not a job id", jid)
	}
	return pauses{filepath.Join(cacheDir(c), pauseDir)}, jid, id, nil
}

func (m *mod) pause(_ context.Context, c *fn.Call, a pauseArgs) (any, error) {
	p, jid, id, err := a.file(c)
	if err != nil {
		return nil, err
	}
	return nil, p.change(jid, func(d *value.Dict) {
		one := entryOf(d, id)
		if value.Truth(a.Duration) {
			one.Set("duration", a.Duration)
		}
	})
}

func (m *mod) softKill(_ context.Context, c *fn.Call, a pauseArgs) (any, error) {
	p, jid, id, err := a.file(c)
	if err != nil {
		return nil, err
	}
	return nil, p.change(jid, func(d *value.Dict) { entryOf(d, id).Set("kill", true) })
}

func (m *mod) resume(_ context.Context, c *fn.Call, a pauseArgs) (any, error) {
	p, jid, id, err := a.file(c)
	if err != nil {
		return nil, err
	}
	return nil, p.change(jid, func(d *value.Dict) {
		d.Delete(id)
		if id == all {
			for _, k := range d.Keys() {
				d.Delete(k)
			}
		}
	})
}

func entryOf(d *value.Dict, id string) *value.Dict {
	one, ok := d.At(id).(*value.Dict)
	if !ok {
		one = value.NewDict(1)
		d.Set(id, one)
	}
	return one
}

func (m *mod) getPauses(_ context.Context, c *fn.Call, a pauseArgs) (*value.Dict, error) {
	p := pauses{filepath.Join(cacheDir(c), pauseDir)}
	jids := value.Split(a.JID)
	if a.JID == nil {
		entries, err := os.ReadDir(p.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fn.Errorf("cannot list pauses: %w", err)
		}
		for _, e := range entries {
			jids = append(jids, e.Name())
		}
	}
	active := m.gate.list("")
	out := value.NewDict(0)
	for _, jid := range jids {
		if !salt.ValidJID(jid) {
			continue
		}
		if !slices.ContainsFunc(active, func(j Job) bool { return j.JID == jid }) {
			os.Remove(filepath.Join(p.dir, jid))
			continue
		}
		d, err := p.read(jid)
		if err != nil {
			return nil, fn.Errorf("%w", err)
		}
		out.Set(jid, d)
	}
	return out, nil
}

// pauses stores the requests to pause, resume or end runs, one file per job.
type pauses struct{ dir string }

func (p pauses) read(jid string) (*value.Dict, error) {
	b, err := os.ReadFile(filepath.Join(p.dir, jid))
	if errors.Is(err, fs.ErrNotExist) {
		return value.NewDict(0), nil
	}
	if err != nil {
		return nil, err
	}
	v, err := msgpack.Unmarshal(b)
	if d, ok := v.(*value.Dict); err == nil && ok {
		return d, nil
	}
	return value.NewDict(0), err
}

func (p pauses) change(jid string, f func(*value.Dict)) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return fn.Errorf("cannot note the pause: %w", err)
	}
	d, err := p.read(jid)
	if err != nil {
		return fn.Errorf("cannot read the pauses of the job: %w", err)
	}
	f(d)
	b, err := msgpack.Marshal(d, msgpack.Wire)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(p.dir, jid), b, 0o600, false); err != nil {
		return fn.Errorf("cannot note the pause: %w", err)
	}
	return nil
}

// look is the interval at which a paused run checks whether it may continue.
const look = 200 * time.Millisecond

// hold waits while a run is paused before a state; end says that the run must end.
func (p pauses) hold(ctx context.Context, jid, id string) (end bool) {
	began := time.Now()
	for {
		if _, err := os.Stat(filepath.Join(p.dir, jid)); err != nil {
			return false
		}
		d, err := p.read(jid)
		if err != nil {
			return false
		}
		one, ok := d.At(id).(*value.Dict)
		if !ok {
			one, ok = d.At(all).(*value.Dict)
		}
		switch {
		case !ok:
			return false
		case value.Truth(one.At("kill")):
			return true
		}
		if n := one.Int("duration"); n > 0 && time.Since(began) > time.Duration(n)*time.Second {
			return false
		}
		if !wait.Sleep(ctx, look) {
			return true
		}
	}
}

type none struct{}

func (m *mod) clearCache(_ context.Context, c *fn.Call, _ none) (*value.List, error) {
	l := &value.List{}
	entries, err := os.ReadDir(cacheDir(c))
	if err != nil {
		return nil, fn.Errorf("cannot list the cache: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".cache.p") || !e.Type().IsRegular() {
			continue
		}
		if err := os.Remove(filepath.Join(cacheDir(c), e.Name())); err != nil {
			return nil, fn.Errorf("cannot clear the cache: %w", err)
		}
		l.Append(e.Name())
	}
	return l, nil
}

type statesArgs struct {
	States any `salt:"states" doc:"names, as a list or with commas"`
}

func (m *mod) disable(ctx context.Context, c *fn.Call, a statesArgs) (*value.Dict, error) {
	off := highstate.DisabledStates(c.Grains.All())
	return setDisabled(ctx, c, value.Split(a.States), func(name string) (string, bool) {
		if slices.Contains(off, name) {
			return "Info: " + name + " state already disabled.", false
		}
		off = append(off, name)
		return "Info: " + name + " state disabled.", true
	}, &off)
}

func (m *mod) enable(ctx context.Context, c *fn.Call, a statesArgs) (*value.Dict, error) {
	off := highstate.DisabledStates(c.Grains.All())
	return setDisabled(ctx, c, value.Split(a.States), func(name string) (string, bool) {
		i := slices.Index(off, name)
		if i < 0 {
			return "Info: " + name + " state already enabled.", false
		}
		off = slices.Delete(off, i, i+1)
		return "Info: " + name + " state enabled.", true
	}, &off)
}

func setDisabled(ctx context.Context, c *fn.Call, names []string, one func(string) (string, bool), off *[]string) (*value.Dict, error) {
	var texts []string
	changed := false
	for _, name := range names {
		text, did := one(name)
		texts = append(texts, text)
		changed = changed || did
	}
	if changed {
		if _, err := c.Funcs.Call(ctx, c, "grains.setval", []any{"state_runs_disabled", value.Strings(*off)}, nil); err != nil {
			return nil, fn.Errorf("cannot note what is disabled: %w", err)
		}
	}
	return value.DictOf("res", true, "msg", strings.Join(texts, "\n")), nil
}

func (m *mod) listDisabled(_ context.Context, c *fn.Call, _ none) (any, error) {
	if off := c.Grains.Get("state_runs_disabled"); off != nil {
		return off, nil
	}
	return "", nil
}

// disabledSLS returns a message for every SLS that is disabled on this minion.
func disabledSLS(c *fn.Call, names []string) []string {
	var out []string
	off := highstate.DisabledStates(c.Grains.All())
	for _, name := range names {
		for _, o := range off {
			if prefix, ok := strings.CutSuffix(o, ".*"); ok && strings.Contains(o, ".*") {
				first, _, _ := strings.Cut(prefix, ".")
				if strings.HasPrefix(name, first+".") {
					out = append(out, `The state file "`+name+`" is currently disabled by "`+o+`", to re-enable, run state.enable `+o+`.`)
				}
			} else if o == name {
				out = append(out, `The state file "`+o+`" is currently disabled, to re-enable, run state.enable `+o+`.`)
			}
		}
	}
	return out
}
