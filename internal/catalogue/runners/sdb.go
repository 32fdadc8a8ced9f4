package runners

import (
	"context"

	"brine/internal/call/fn"
	actions "brine/internal/catalogue/actions/sdb"
)

type sdb struct{}

func init() { runners.Register("sdb", func(Deps) fn.Module { return sdbModule() }) }

func sdbModule() fn.Module {
	return fn.Module{Name: "sdb", Doc: `Values that sdb://profile/key refers to, with the profiles of the master.`, Funcs: []fn.Func{
		fn.Of("get", sdb{}.get, `Return the value of a reference, or what is no reference as it is.`, fn.Example("salt-run sdb.get sdb://mymemcached/foo")),
		fn.Of("set", sdb{}.set, `Store a value. The result is what the driver returns; false if it is no reference.`,
			fn.Example("salt-run sdb.set sdb://mymemcached/foo bar")),
		fn.Of("delete", sdb{}.delete, `Delete a value. The result is what the driver returns; false if it is no reference.`,
			fn.Example("salt-run sdb.delete sdb://mymemcached/foo")),
		fn.Of("get_or_set_hash", sdb{}.getOrSet, `Return a value. If there is none, store random characters.`,
			fn.Example("salt-run sdb.get_or_set_hash 'sdb://mymemcached/SECRET_KEY' 50")),
	}}
}

type sdbArgs struct {
	URI any `salt:"uri" doc:"the reference"`
}

func (sdb) get(ctx context.Context, c *fn.Call, a sdbArgs) (any, error) {
	return actions.Get(ctx, c, a.URI, false)
}

type sdbSetArgs struct {
	URI   any `salt:"uri" doc:"the reference"`
	Value any `salt:"value" doc:"the value"`
}

func (sdb) set(ctx context.Context, c *fn.Call, a sdbSetArgs) (any, error) {
	return actions.Set(ctx, c, a.URI, a.Value)
}

func (sdb) delete(ctx context.Context, c *fn.Call, a sdbArgs) (any, error) {
	return actions.Delete(ctx, c, a.URI)
}

type sdbHashArgs struct {
	URI    any    `salt:"uri" doc:"the reference"`
	Length int    `salt:"length" doc:"number of random characters" default:"8"`
	Chars  string `salt:"chars" doc:"characters to choose from" default:"abcdefghijklmnopqrstuvwxyz0123456789!@#$%^&*(-_=+)"`
}

func (sdb) getOrSet(ctx context.Context, c *fn.Call, a sdbHashArgs) (any, error) {
	return actions.GetOrSet(ctx, c, a.URI, a.Length, a.Chars)
}
