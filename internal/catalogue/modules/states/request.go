package states

import (
	"context"
	"os"
	"path/filepath"

	"brine/internal/call/fn"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

func (m *mod) requests() []fn.Func {
	return []fn.Func{
		fn.Of("request", m.request, `Test SLS files and keep the request, to be run by state.run_request.`,
			takes("mods", asStates, fn.Default("mods", "null"), fn.Example("salt '*' state.request web"))...),
		fn.Of("check_request", m.checkRequest, `Show what state.request has kept.`, asStates, fn.Default("name", "null"),
			fn.Example("salt '*' state.check_request")),
		fn.Of("clear_request", m.clearRequest, `Forget what state.request has kept.`, fn.Default("name", "null"), fn.Example("salt '*' state.clear_request")),
		fn.Of("run_request", m.runRequest, `Run what state.request has kept.`,
			takes("name", asStates, fn.Default("name", "default"), fn.Example("salt '*' state.run_request"))...),
	}
}

const requestFile = "req_state.p"

func kept(c *fn.Call) *value.Dict {
	b, err := os.ReadFile(filepath.Join(cacheDir(c), requestFile))
	if err != nil {
		return value.NewDict(0)
	}
	v, err := msgpack.Unmarshal(b)
	d, ok := v.(*value.Dict)
	if err != nil || !ok {
		c.Log.Warn("cannot read the saved state requests", "err", err)
		return value.NewDict(0)
	}
	return d
}

func (m *mod) request(ctx context.Context, c *fn.Call, a args) (any, error) {
	kwargs := a.Kwargs.Clean()
	name := "default"
	if v, ok := kwargs.Get("name"); ok {
		name = value.Str(v)
	}
	a.Kwargs.Set("test", true)
	ret, err := m.apply(ctx, c, a)
	if err != nil {
		return nil, err
	}
	kwargs.Set("test", true)
	all := kept(c)
	all.Set(name, value.DictOf("test_run", ret, "mods", a.Mods, "kwargs", kwargs))
	keep(c, requestFile, all)
	return ret, nil
}

type requestArgs struct {
	Name string `salt:"name" doc:"name of the request"`
}

func (m *mod) checkRequest(_ context.Context, c *fn.Call, a requestArgs) (any, error) {
	all := kept(c)
	if a.Name == "" {
		return all, nil
	}
	v, ok := all.Get(a.Name)
	if !ok {
		return nil, fn.Errorf("there is no request named %s", a.Name)
	}
	return v, nil
}

func (m *mod) clearRequest(_ context.Context, c *fn.Call, a requestArgs) (bool, error) {
	path := filepath.Join(cacheDir(c), requestFile)
	if _, err := os.Stat(path); err != nil {
		return true, nil
	}
	if a.Name == "" {
		return true, os.Remove(path)
	}
	all := kept(c)
	if !all.Delete(a.Name) {
		return false, nil
	}
	keep(c, requestFile, all)
	return true, nil
}

func (m *mod) runRequest(ctx context.Context, c *fn.Call, a args) (any, error) {
	one := kept(c).Dict(value.Str(a.Name))
	if !one.Has("mods") || !one.Has("kwargs") {
		return value.NewDict(0), nil
	}
	kwargs := one.Dict("kwargs").Clone()
	kwargs.Update(a.Kwargs.Dict)
	kwargs.Delete("test")
	ret, err := m.apply(ctx, c, args{Mods: one.At("mods"), Kwargs: fn.Kwargs{Dict: kwargs}})
	if err == nil {
		os.Remove(filepath.Join(cacheDir(c), requestFile))
	}
	return ret, err
}
