package system

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/mailaliases"
	"brine/internal/py/value"
)

// aliases reads and changes mail aliases in sendmail's file.
type aliases struct{ m *host.Machine }

func init() { units.Register("aliases", aliasesModule) }

func aliasesModule(m *host.Machine) fn.Module {
	a := aliases{m}
	return fn.Module{Name: "aliases", Doc: `Aliases of mailboxes, in the file of the option aliases.file, /etc/aliases for most.`, Funcs: []fn.Func{
		fn.Of("list_aliases", a.list, `Return the targets of all aliases.`, fn.Example("salt '*' aliases.list_aliases")),
		fn.Of("get_target", a.get, `Return the target of an alias, an empty text if there is none.`, fn.Example("salt '*' aliases.get_target root")),
		fn.Of("has_target", a.has, `Say whether an alias has a target.`, fn.Example("salt '*' aliases.has_target root joe@example.com")),
		fn.Of("set_target", a.set, `Set the target of an alias.`, fn.Example("salt '*' aliases.set_target root joe@example.com")),
		fn.Of("rm_alias", a.remove, `Remove an alias.`, fn.Example("salt '*' aliases.rm_alias root")),
	}}
}

func (a aliases) file(c *fn.Call) mailaliases.File {
	f := mailaliases.File{M: a.m}
	if v := c.Config.Get("aliases.file"); value.Truth(v) {
		f.Path = value.Str(v)
	}
	return f
}

func (a aliases) list(_ context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	d := value.NewDict(8)
	for _, l := range a.file(c).All() {
		d.Set(l.Name, l.Target)
	}
	return d, nil
}

type aliasArgs struct {
	Alias string `salt:"alias" doc:"alias"`
}

func (a aliases) get(_ context.Context, c *fn.Call, args aliasArgs) (string, error) {
	return a.file(c).Target(args.Alias), nil
}

type aliasTargetArgs struct {
	Alias  string `salt:"alias" doc:"alias"`
	Target any    `salt:"target" doc:"mailbox, or a list of them"`
}

func (a aliases) has(_ context.Context, c *fn.Call, args aliasTargetArgs) (bool, error) {
	has, err := a.file(c).Has(args.Alias, value.Texts(args.Target))
	return has, fn.FromHost(err)
}

func (a aliases) set(ctx context.Context, c *fn.Call, args aliasTargetArgs) (bool, error) {
	err := a.file(c).Set(ctx, args.Alias, value.Texts(args.Target))
	return err == nil, fn.FromHost(err)
}

func (a aliases) remove(ctx context.Context, c *fn.Call, args aliasArgs) (bool, error) {
	return true, fn.FromHost(a.file(c).Remove(ctx, args.Alias))
}
