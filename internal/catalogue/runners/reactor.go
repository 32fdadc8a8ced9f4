package runners

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Reactor responds to events with commands.
type Reactor interface {
	List() *value.List
	// Add returns false if the tag already has a rule. Delete returns false if it has
	// none.
	Add(tag string, files any) (bool, error)
	Delete(tag string) bool
	// Leads reports whether the reactor responds to events.
	Leads() bool
	Lead(on bool)
}

type reactors struct{ now func() Reactor }

func init() { runners.Register("reactor", reactorModule) }

func reactorModule(d Deps) fn.Module {
	r := reactors{d.Reactor}
	return fn.Module{Name: "reactor", Doc: `The rules of this master's reactor. Changes last until the master stops.`, Funcs: []fn.Func{
		fn.Of("list", r.list, `Return the rules.`, fn.Example("salt-run reactor.list")),
		fn.Of("add", r.add, `Add a rule: SLS files for a tag pattern.`,
			fn.Example("salt-run reactor.add 'salt/cloud/*/destroyed' reactors='/srv/reactor/destroy/*.sls'")),
		fn.Of("delete", r.remove, `Delete the rule of a tag pattern.`, fn.Example("salt-run reactor.delete 'salt/cloud/*/destroyed'")),
		fn.Of("is_leader", r.isLeader, `Return whether the reactor responds to events.`, fn.Example("salt-run reactor.is_leader")),
		fn.Of("set_leader", r.setLeader, `Enable or disable the reactor.`, fn.Example("salt-run reactor.set_leader True")),
	}}
}

func (r reactors) of() (Reactor, error) {
	if r := r.now(); r != nil {
		return r, nil
	}
	return nil, fn.Errorf("Reactor system is not running.")
}

type reactorListArgs struct {
	Saltenv string `salt:"saltenv" ignored:"the reactor of the master is meant" default:"base"`
	Test    any    `salt:"test" ignored:"the reactor of the master is meant" default:"null"`
}

func (r reactors) list(_ context.Context, _ *fn.Call, _ reactorListArgs) (*value.List, error) {
	to, err := r.of()
	if err != nil {
		return nil, err
	}
	return to.List(), nil
}

type reactorAddArgs struct {
	Event    string `salt:"event" doc:"tag pattern"`
	Reactors any    `salt:"reactors" doc:"SLS file, or a list of them"`
	reactorListArgs
}

// done returns the result of a change in Salt's form.
func done(ok bool, yes, no string) *value.Dict {
	if !ok {
		yes = no
	}
	return value.DictOf("status", ok, "comment", yes)
}

func (r reactors) add(_ context.Context, _ *fn.Call, a reactorAddArgs) (*value.Dict, error) {
	to, err := r.of()
	if err != nil {
		return nil, err
	}
	if text, ok := a.Reactors.(string); ok {
		a.Reactors = value.ListOf(text)
	}
	ok, err := to.Add(a.Event, a.Reactors)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return done(ok, "Reactor added.", "Reactor already exists."), nil
}

type reactorDeleteArgs struct {
	Event string `salt:"event" doc:"tag pattern"`
	reactorListArgs
}

func (r reactors) remove(_ context.Context, _ *fn.Call, a reactorDeleteArgs) (*value.Dict, error) {
	to, err := r.of()
	if err != nil {
		return nil, err
	}
	return done(to.Delete(a.Event), "Reactor deleted.", "Reactor does not exists."), nil
}

func (r reactors) isLeader(context.Context, *fn.Call, none) (bool, error) {
	to, err := r.of()
	if err != nil {
		return false, err
	}
	return to.Leads(), nil
}

type leaderArgs struct {
	Value bool `salt:"value" doc:"whether to respond" default:"true"`
}

func (r reactors) setLeader(_ context.Context, _ *fn.Call, a leaderArgs) (bool, error) {
	to, err := r.of()
	if err != nil {
		return false, err
	}
	to.Lead(a.Value)
	return to.Leads(), nil
}
