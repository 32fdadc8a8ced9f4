package runners

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/store/cache"
)

type cached struct {
	selection
	files   FileServers
	pillars GitPillars
}

func init() { runners.Register("cache", cacheModule) }

func cacheModule(d Deps) fn.Module {
	c := cached{d.selection(), d.Serves, d.Serves}
	return fn.Module{Name: "cache", Doc: `Cached data of minions, and other cached values.`, Funcs: []fn.Func{
		fn.Of("grains", c.grains, `Return the cached grains of minions.`, fn.Example("salt-run cache.grains '*'")),
		fn.Of("pillar", c.pillar, `Return the cached pillar of minions.`, fn.Example("salt-run cache.pillar")),
		fn.Of("mine", c.mine, `Return the mine data of minions.`, fn.Example("salt-run cache.mine")),
		fn.Of("clear_grains", c.clearGrains, `Delete the cached grains of minions.`, fn.Example("salt-run cache.clear_grains '*'")),
		fn.Of("clear_pillar", c.clearPillar, `Delete the cached pillar of minions.`, fn.Example("salt-run cache.clear_pillar '*'")),
		fn.Of("clear_mine", c.clearMine, `Delete the mine data of minions.`, fn.Example("salt-run cache.clear_mine '*'")),
		fn.Of("clear_mine_func", c.clearMineFunc, `Delete the mine data of one function.`,
			fn.Example("salt-run cache.clear_mine_func tgt='*' clear_mine_func_flag=network.interfaces")),
		fn.Of("clear_all", c.clearAll, `Delete the cached grains, pillar and mine data of minions.`, fn.Example("salt-run cache.clear_all '*'")),
		fn.Of("clear_git_lock", c.clearGitLock, `Remove locks of git repositories. Locks of dead processes expire by themselves.`,
			fn.Example("salt-run cache.clear_git_lock gitfs type=update")),
		fn.Of("list", c.list, `Return the keys of a bank.`, fn.Example("salt-run cache.list minions")),
		fn.Of("fetch", c.fetch, `Return a value from a bank, or an empty map.`, fn.Example("salt-run cache.fetch minions/web1 data")),
		fn.Of("store", c.store, `Store a value in a bank.`, fn.Example("salt-run cache.store mycache mykey 'The time has come the walrus said'")),
		fn.Of("status", c.status, `Report which cache driver is used, whether it is reachable, and how many changes are queued for it.`,
			fn.Example("salt-run cache.status")),
		fn.Of("flush", c.flush, `Delete a value from a bank, or the whole bank.`, fn.Example("salt-run cache.flush mycache mykey")),
	}}
}

type grainsArgs struct {
	Tgt     any       `salt:"tgt" doc:"target"`
	TgtType string    `salt:"tgt_type" doc:"type of the target" default:"glob"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func (c cached) grains(_ context.Context, _ *fn.Call, a grainsArgs) (*value.Dict, error) {
	return c.each(a.Tgt, a.TgtType, func(id string) *value.Dict { return c.cache.MinionData(id).Grains })
}

type optionalTarget struct {
	Tgt     any    `salt:"tgt" doc:"target; null: all minions" default:"null"`
	TgtType string `salt:"tgt_type" doc:"type of the target" default:"glob"`
}

type dataArgs struct {
	optionalTarget
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (c cached) pillar(_ context.Context, _ *fn.Call, a dataArgs) (*value.Dict, error) {
	return c.each(a.Tgt, a.TgtType, func(id string) *value.Dict { return c.cache.MinionData(id).Pillar })
}

func (c cached) mine(_ context.Context, _ *fn.Call, a dataArgs) (*value.Dict, error) {
	return c.each(a.Tgt, a.TgtType, c.mineOf)
}

func (c cached) mineOf(id string) *value.Dict {
	v, _, _ := c.cache.Fetch("minions/"+id, "mine")
	d, _ := v.(*value.Dict)
	return d
}

// each applies fn to the minions of a target. A minion without data gets an
// empty map.
func (c cached) each(tgt any, typ string, data func(id string) *value.Dict) (*value.Dict, error) {
	if tgt == nil {
		tgt, typ = "*", "glob"
	}
	ids, err := c.minions(tgt, typ)
	if err != nil {
		return nil, err
	}
	out := value.NewDict(len(ids))
	for _, id := range ids {
		d := data(id)
		if d == nil {
			d = value.NewDict(0)
		}
		out.Set(id, d)
	}
	return out, nil
}

// clear calls forget for the minions of a target. Without a target it does
// nothing and returns false.
func (c cached) clear(a optionalTarget, forget func(id string) error) (bool, error) {
	if a.Tgt == nil {
		return false, nil
	}
	ids, err := c.minions(a.Tgt, a.TgtType)
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		if err := forget(id); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (c cached) clearGrains(_ context.Context, _ *fn.Call, a optionalTarget) (bool, error) {
	return c.clear(a, func(id string) error { return c.keep(id, cache.Minion{Pillar: c.cache.MinionData(id).Pillar}) })
}

func (c cached) clearPillar(_ context.Context, _ *fn.Call, a optionalTarget) (bool, error) {
	return c.clear(a, func(id string) error { return c.keep(id, cache.Minion{Grains: c.cache.MinionData(id).Grains}) })
}

// keep replaces the cached data of a minion.
func (c cached) keep(id string, m cache.Minion) error {
	if m.Grains.Len()+m.Pillar.Len() > 0 {
		return c.cache.StoreMinion(id, m)
	}
	_, err := c.cache.Flush("minions/"+id, "data")
	return err
}

func (c cached) clearMine(_ context.Context, _ *fn.Call, a optionalTarget) (bool, error) {
	return c.clear(a, c.forgetMine)
}

func (c cached) forgetMine(id string) error {
	_, err := c.cache.Flush("minions/"+id, "mine")
	return err
}

type mineFuncArgs struct {
	optionalTarget
	Func string `salt:"clear_mine_func_flag" doc:"name in the mine" default:""`
}

func (c cached) clearMineFunc(_ context.Context, _ *fn.Call, a mineFuncArgs) (bool, error) {
	if a.Func == "" {
		return false, nil
	}
	return c.clear(a.optionalTarget, func(id string) error {
		mine := c.mineOf(id).Clone()
		if mine == nil || !mine.Delete(a.Func) {
			return nil
		}
		return c.cache.Store("minions/"+id, "mine", mine)
	})
}

func (c cached) clearAll(_ context.Context, _ *fn.Call, a optionalTarget) (bool, error) {
	return c.clear(a, func(id string) error {
		if err := c.keep(id, cache.Minion{}); err != nil {
			return err
		}
		return c.forgetMine(id)
	})
}

// bankArgs name a bank. A cachedir other than the master's is rejected, because
// a runner must not read arbitrary files.
type bankArgs struct {
	Bank     string `salt:"bank" doc:"path, such as minions/web1"`
	Key      string `salt:"key" doc:"key in the bank"`
	Data     any    `salt:"data" doc:"value"`
	CacheDir any    `salt:"cachedir" doc:"must be null: only the master's own cache can be used" default:"null"`
}

func (a bankArgs) check() error {
	if a.CacheDir != nil {
		return fn.Errorf("only the master's own cache can be used: leave cachedir out")
	}
	return nil
}

type listBankArgs struct {
	Bank     string `salt:"bank" doc:"path, such as minions/web1"`
	CacheDir any    `salt:"cachedir" doc:"must be null: only the master's own cache can be used" default:"null"`
}

func (c cached) list(_ context.Context, _ *fn.Call, a listBankArgs) (*value.List, error) {
	if err := (bankArgs{CacheDir: a.CacheDir}).check(); err != nil {
		return nil, err
	}
	names, err := c.cache.List(a.Bank)
	return value.Strings(names), err
}

type fetchArgs struct {
	Bank     string `salt:"bank" doc:"path, such as minions/web1"`
	Key      string `salt:"key" doc:"key in the bank"`
	CacheDir any    `salt:"cachedir" doc:"must be null: only the master's own cache can be used" default:"null"`
}

func (c cached) fetch(_ context.Context, _ *fn.Call, a fetchArgs) (any, error) {
	if err := (bankArgs{CacheDir: a.CacheDir}).check(); err != nil {
		return nil, err
	}
	v, ok, err := c.cache.Fetch(a.Bank, a.Key)
	if !ok {
		v = value.NewDict(0)
	}
	return v, err
}

func (c cached) store(_ context.Context, _ *fn.Call, a bankArgs) (any, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	return nil, c.cache.Store(a.Bank, a.Key, a.Data)
}

func (c cached) status(context.Context, *fn.Call, none) (*value.Dict, error) {
	s := c.cache.Status()
	d := value.DictOf("cache", s.Driver, "connected", s.Unreachable == nil, "waiting", s.Waiting)
	if s.Unreachable != nil {
		d.Set("error", s.Unreachable.Error())
	}
	if !s.Since.IsZero() {
		d.Set("since", s.Since.UTC().Format("2006-01-02T15:04:05.000000"))
	}
	return d, nil
}

type flushArgs struct {
	Bank     string `salt:"bank" doc:"path, such as minions/web1"`
	Key      any    `salt:"key" doc:"key in the bank; null: the whole bank" default:"null"`
	CacheDir any    `salt:"cachedir" doc:"must be null: only the master's own cache can be used" default:"null"`
}

func (c cached) flush(_ context.Context, _ *fn.Call, a flushArgs) (bool, error) {
	if err := (bankArgs{CacheDir: a.CacheDir}).check(); err != nil {
		return false, err
	}
	key := ""
	if a.Key != nil {
		key = value.Str(a.Key)
	}
	return c.cache.Flush(a.Bank, key)
}
