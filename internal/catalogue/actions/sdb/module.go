package sdb

import (
	"context"

	"brine/internal/call/fn"
)

// Module returns the execution module sdb, or the runner. command is what examples begin with, such as
// "salt-run". With strict the function get has the argument strict, as Salt's execution module.
func Module(command string, strict bool) fn.Module {
	example := func(line string) fn.Option { return fn.Example(command + " sdb." + line) }
	const doc = `Return the value of a reference, or what is no reference as it is.`
	get := fn.Of("get", getLenient, doc, example("get sdb://mymemcached/foo"))
	if strict {
		get = fn.Of("get", getStrict, doc, example("get sdb://mymemcached/foo strict=True"))
	}
	return fn.Module{Name: "sdb", Doc: `Values that sdb://profile/key refers to.`, Funcs: []fn.Func{
		get,
		fn.Of("set", set, `Store a value. The result is what the driver returns; false if it is no reference.`,
			example("set sdb://mymemcached/foo bar")),
		fn.Of("delete", remove, `Delete a value. The result is what the driver returns; false if it is no reference.`,
			example("delete sdb://mymemcached/foo")),
		fn.Of("get_or_set_hash", getOrSet, `Return a value. If there is none, store random characters.`,
			example("get_or_set_hash 'sdb://mymemcached/SECRET_KEY' 50")),
	}}
}

type uriArgs struct {
	URI any `salt:"uri" doc:"the reference"`
}

func getLenient(ctx context.Context, c *fn.Call, a uriArgs) (any, error) {
	return Get(ctx, c, a.URI, false)
}

type strictArgs struct {
	URI    any  `salt:"uri" doc:"the reference"`
	Strict bool `salt:"strict" doc:"fail if it is no reference, or has no profile" default:"false"`
}

func getStrict(ctx context.Context, c *fn.Call, a strictArgs) (any, error) {
	return Get(ctx, c, a.URI, a.Strict)
}

type setArgs struct {
	URI   any `salt:"uri" doc:"the reference"`
	Value any `salt:"value" doc:"the value"`
}

func set(ctx context.Context, c *fn.Call, a setArgs) (any, error) {
	return Set(ctx, c, a.URI, a.Value)
}

func remove(ctx context.Context, c *fn.Call, a uriArgs) (any, error) {
	return Delete(ctx, c, a.URI)
}

type hashArgs struct {
	URI    any    `salt:"uri" doc:"the reference"`
	Length int    `salt:"length" doc:"number of random characters" default:"8"`
	Chars  string `salt:"chars" doc:"characters to choose from" default:"abcdefghijklmnopqrstuvwxyz0123456789!@#$%^&*(-_=+)"`
}

func getOrSet(ctx context.Context, c *fn.Call, a hashArgs) (any, error) {
	return GetOrSet(ctx, c, a.URI, a.Length, a.Chars)
}
