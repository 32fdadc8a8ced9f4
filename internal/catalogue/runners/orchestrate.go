package runners

import (
	"context"
	"iter"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/control"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { runners.Register("state", stateModule) }

// stateModule returns the master's module state: state.event, and the functions that
// run SLS files.
func stateModule(d Deps) fn.Module {
	var bus Subscriber = d.Bus
	m := State(func(ctx context.Context) iter.Seq2[*event.Event, error] {
		return control.Subscribed(ctx, bus.Subscribe)
	}, nil)
	m.Doc = `Orchestration: run SLS files on the master, and watch events.`
	o := orchestrator{d.Here}
	for _, name := range []string{"orchestrate", "orch", "sls"} {
		m.Funcs = append(m.Funcs, fn.Of(name, o.orchestrate,
			`Run SLS files on the master with states that command minions, such as salt.state and salt.function.`,
			fn.Example("salt-run state."+name+" webserver"), fn.Example("salt-run state."+name+" webserver saltenv=dev test=True pillar='{color: red}'")))
	}
	m.Funcs = append(m.Funcs,
		fn.Of("orchestrate_single", o.single, `Run one state on the master, given by its arguments.`,
			fn.Example("salt-run state.orchestrate_single fun=salt.wheel name=key.list_all")),
		fn.Of("orchestrate_high", o.high, `Run high data on the master.`,
			fn.Example(`salt-run state.orchestrate_high '{ping: {salt: [function, {name: test.ping}, {tgt: "web*"}]}}'`)),
	)
	for _, name := range []string{"orchestrate_show_sls", "orch_show_sls"} {
		m.Funcs = append(m.Funcs, fn.Of(name, o.show, `Show the high data of SLS files as the master renders them for itself.`,
			fn.Example("salt-run state."+name+" webserver")))
	}
	for _, name := range []string{"pause", "set_pause"} {
		m.Funcs = append(m.Funcs, fn.Of(name, o.steer("state.pause"), `Pause a run of SLS files before the state of an id, or before its next one.`,
			fn.Params("jid", "state_id", "duration"), fn.Example("salt-run state."+name+" 20260101000000000000 web 60")))
	}
	for _, name := range []string{"resume", "rm_pause"} {
		m.Funcs = append(m.Funcs, fn.Of(name, o.steer("state.resume"), `Resume a paused run of SLS files.`,
			fn.Params("jid", "state_id"), fn.Example("salt-run state."+name+" 20260101000000000000")))
	}
	m.Funcs = append(m.Funcs, fn.Of("soft_kill", o.steer("state.soft_kill"), `Stop a run of SLS files before the state of an id, or before its next one.`,
		fn.Params("jid", "state_id"), fn.Example("salt-run state.soft_kill 20260101000000000000")))
	return m
}

// HereFunc runs an execution function on the master's machine, as part of the job jid.
type HereFunc func(ctx context.Context, jid, fun string, args []any, kwargs *value.Dict) (any, error)

type orchestrator struct{ here HereFunc }

type orchestrateArgs struct {
	Mods      any    `salt:"mods" doc:"names of SLS files, as a list or with commas"`
	Saltenv   any    `salt:"saltenv" doc:"environment" default:"base"`
	Test      any    `salt:"test" doc:"only show what would change; null: as configured" default:"null"`
	Exclude   any    `salt:"exclude" doc:"SLS files, or maps of sls or id, to exclude" default:"null"`
	Pillar    any    `salt:"pillar" doc:"pillar to merge over the master's own" default:"null"`
	Pillarenv any    `salt:"pillarenv" doc:"environment of the pillar; null: as configured" default:"null"`
	PillarEnc any    `salt:"pillar_enc" doc:"renderer that decrypts the pillar, such as gpg" default:"null"`
	Events    any    `salt:"state_events" doc:"fire an event for each state as it is done; null: as configured" default:"null"`
	JID       string `salt:"orchestration_jid" doc:"id of the parent job; null: none" default:"null"`
}

// given returns the keywords that are not null.
func given(pairs ...any) *value.Dict {
	d := value.NewDict(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != nil {
			d.Set(pairs[i], pairs[i+1])
		}
	}
	return d
}

func needDict(pillar any) error {
	if _, ok := pillar.(*value.Dict); pillar != nil && !ok {
		return fn.Invalidf("Pillar data must be formatted as a dictionary")
	}
	return nil
}

func (o orchestrator) orchestrate(ctx context.Context, c *fn.Call, a orchestrateArgs) (any, error) {
	if err := needDict(a.Pillar); err != nil {
		return nil, err
	}
	jid := a.JID
	if jid == "" {
		jid = c.JID
	}
	// Orchestrations may run concurrently: they change other machines, not this one.
	kw := given("mods", a.Mods, "saltenv", a.Saltenv, "test", a.Test, "exclude", a.Exclude, "pillar", a.Pillar, "pillarenv", a.Pillarenv,
		"pillar_enc", a.PillarEnc, "state_events", a.Events, "concurrent", true)
	ret, err := o.here(ctx, jid, "state.sls", nil, kw)
	if err != nil {
		return nil, err
	}
	code := 0
	if !state.AllSucceeded(value.DictOf(c.ID, ret), false, nil) {
		code = 1
	}
	c.SetRetcode(code)
	return value.DictOf("data", value.DictOf(c.ID, ret), "outputter", "highstate", "retcode", int64(code)), nil
}

type orchestrateSingleArgs struct {
	Fun    string    `salt:"fun" doc:"state function, such as salt.function"`
	Name   any       `salt:"name" doc:"name of the state"`
	Test   any       `salt:"test" doc:"only show what would change; null: as configured" default:"null"`
	Queue  any       `salt:"queue" ignored:"orchestrations do not wait for each other" default:"false"`
	Pillar any       `salt:"pillar" doc:"pillar to merge over the master's own" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (o orchestrator) single(ctx context.Context, c *fn.Call, a orchestrateSingleArgs) (any, error) {
	if err := needDict(a.Pillar); err != nil {
		return nil, err
	}
	kw := given("fun", a.Fun, "name", a.Name, "test", a.Test, "pillar", a.Pillar, "concurrent", true)
	kw.Update(a.Kwargs.Clean())
	return o.report(ctx, c, "state.single", kw)
}

// report runs a function, reports its result at once and returns it.
func (o orchestrator) report(ctx context.Context, c *fn.Call, fun string, kw *value.Dict) (any, error) {
	ret, err := o.here(ctx, c.JID, fun, nil, kw)
	if err != nil {
		return nil, err
	}
	all := value.DictOf(c.ID, ret)
	c.Report(value.DictOf("data", all, "outputter", "highstate"))
	return all, nil
}

type orchestrateHighArgs struct {
	Data   any       `salt:"data" doc:"the high data"`
	Test   any       `salt:"test" doc:"only show what would change; null: as configured" default:"null"`
	Queue  any       `salt:"queue" ignored:"orchestrations do not wait for each other" default:"false"`
	Pillar any       `salt:"pillar" doc:"pillar to merge over the master's own" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (o orchestrator) high(ctx context.Context, c *fn.Call, a orchestrateHighArgs) (any, error) {
	if err := needDict(a.Pillar); err != nil {
		return nil, err
	}
	kw := given("data", a.Data, "test", a.Test, "pillar", a.Pillar, "concurrent", true)
	kw.Update(a.Kwargs.Clean())
	return o.report(ctx, c, "state.high", kw)
}

type orchestrateShowArgs struct {
	Mods      any `salt:"mods" doc:"names of SLS files, as a list or with commas"`
	Saltenv   any `salt:"saltenv" doc:"environment" default:"base"`
	Test      any `salt:"test" doc:"has no effect" default:"null"`
	Queue     any `salt:"queue" ignored:"orchestrations do not wait for each other" default:"false"`
	Pillar    any `salt:"pillar" doc:"pillar to merge over the master's own" default:"null"`
	Pillarenv any `salt:"pillarenv" doc:"environment of the pillar; null: as configured" default:"null"`
	PillarEnc any `salt:"pillar_enc" doc:"renderer that decrypts the pillar, such as gpg" default:"null"`
}

func (o orchestrator) show(ctx context.Context, c *fn.Call, a orchestrateShowArgs) (any, error) {
	if err := needDict(a.Pillar); err != nil {
		return nil, err
	}
	ret, err := o.here(ctx, c.JID, "state.show_sls", nil, given("mods", a.Mods, "saltenv", a.Saltenv, "test", a.Test, "pillar", a.Pillar,
		"pillarenv", a.Pillarenv, "pillar_enc", a.PillarEnc, "concurrent", true))
	if err != nil {
		return nil, err
	}
	return value.DictOf(c.ID, ret), nil
}

type steerArgs struct {
	JID      any `salt:"jid" doc:"id of the run's job"`
	StateID  any `salt:"state_id" doc:"id of a state; null: the next one" default:"null"`
	Duration any `salt:"duration" doc:"seconds to wait; null: until it is resumed" default:"null"`
}

// steer returns a runner for one of the minion functions that control a run.
func (o orchestrator) steer(fun string) func(context.Context, *fn.Call, steerArgs) (any, error) {
	return func(ctx context.Context, c *fn.Call, a steerArgs) (any, error) {
		_, err := o.here(ctx, c.JID, fun, nil, given("jid", a.JID, "state_id", a.StateID, "duration", a.Duration))
		return nil, err
	}
}
