package control

import (
	"context"
	"fmt"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("beacon", func() state.Module {
		return state.Module{Name: "beacon", Doc: `What the minion looks out for.`, Funcs: []state.Func{
			state.Of("present", beaconPresent, `Have a beacon. All further keywords are its settings.`),
			state.Of("absent", beaconAbsent, `Have no beacon of a name.`),
			state.Of("enabled", beaconEnabled, `Have a beacon enabled.`),
			state.Of("disabled", beaconDisabled, `Have a beacon disabled.`),
		}}
	})
}

type beaconArgs struct {
	Name   string    `salt:"name" doc:"name of the beacon"`
	Save   bool      `salt:"save" doc:"keep the beacons over a start of the minion" default:"false"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// turnArgs are the arguments of enabled and disabled.
type turnArgs struct {
	Name   string    `salt:"name" doc:"name of the beacon"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// beacon is the beacon that a state manages.
type beacon struct {
	env  *state.Env
	name string
	kw   *value.Dict
}

// now returns the settings of the beacon, and whether it exists.
func (b beacon) now(ctx context.Context) (settings any, there bool, err error) {
	kw := b.kw.Clone()
	kw.Set("return_yaml", false)
	v, err := b.env.Exec(ctx, "beacons.list", kw)
	if err != nil {
		return nil, false, err
	}
	all, _ := v.(*value.Dict)
	settings, there = all.Get(b.name)
	return settings, there, nil
}

// order calls a function for the beacon. The comment is the module's in a test
// or on failure, and done otherwise.
func (b beacon) order(ctx context.Context, test bool, function, done string, args ...any) (state.Result, *value.Dict) {
	kw := b.kw.Clone()
	if test {
		kw.Set("test", true)
	}
	answer, err := order(ctx, b.env, "beacons."+function, kw, append([]any{b.name}, args...)...)
	switch {
	case err != nil:
		return failed("%v", err), nil
	case !value.Truth(answer.At("result")):
		return failed("%s", told(answer)), answer
	case test: // as in Salt, a test succeeds even if it would change the beacon
		return succeeded("%s", told(answer)), answer
	}
	return succeeded("%s", done), answer
}

// saved saves the beacons, if requested, after a state that did not fail.
func (b beacon) saved(ctx context.Context, test, save bool, r state.Result) state.Result {
	switch {
	case !save || r.Verdict == state.Failed:
		return r
	case test:
		r.Comment += fmt.Sprintf("\nBeacon %s would be saved", b.name)
		return r
	}
	if _, err := order(ctx, b.env, "beacons.save", nil); err != nil {
		r.Verdict, r.Comment = state.Failed, r.Comment+"\n"+err.Error()
		return r
	}
	r.Comment += fmt.Sprintf("\nBeacon %s saved", b.name)
	return r
}

func beaconPresent(_ context.Context, e *state.Env, a beaconArgs) (state.Plan, error) {
	b := beacon{e, a.Name, a.Kwargs.Dict}
	return whole(func(ctx context.Context, test bool) state.Result {
		now, there, err := b.now(ctx)
		if err != nil {
			return failed("%v", err)
		}
		data := &value.List{}
		for k, v := range a.Kwargs.All() {
			data.Append(value.DictOf(k, v))
		}
		var r state.Result
		switch {
		case there && value.Equal(now, data):
			r = succeeded("Job %s in correct state", a.Name)
		case there:
			var answer *value.Dict
			r, answer = b.order(ctx, test, "modify", fmt.Sprintf("Modifying %s in beacons", a.Name), data)
			if r.Verdict != state.Failed {
				if r.Changes = answer.Dict("changes"); r.Changes == nil {
					r.Comment = told(answer)
				}
			}
		default:
			r, _ = b.order(ctx, test, "add", fmt.Sprintf("Adding %s to beacons", a.Name), data)
		}
		return b.saved(ctx, test, a.Save, r)
	})
}

func beaconAbsent(_ context.Context, e *state.Env, a beaconArgs) (state.Plan, error) {
	b := beacon{e, a.Name, a.Kwargs.Dict}
	return whole(func(ctx context.Context, test bool) state.Result {
		r := b.turn(ctx, test, "delete", fmt.Sprintf("Removed %s from beacons", a.Name), fmt.Sprintf("%s not configured in beacons", a.Name))
		return b.saved(ctx, test, a.Save, r)
	})
}

func beaconEnabled(_ context.Context, e *state.Env, a turnArgs) (state.Plan, error) {
	b := beacon{e, a.Name, a.Kwargs.Dict}
	return whole(func(ctx context.Context, test bool) state.Result {
		return b.turn(ctx, test, "enable_beacon", fmt.Sprintf("Enabled %s from beacons", a.Name), fmt.Sprintf("%s not a configured beacon", a.Name))
	})
}

func beaconDisabled(_ context.Context, e *state.Env, a turnArgs) (state.Plan, error) {
	b := beacon{e, a.Name, a.Kwargs.Dict}
	return whole(func(ctx context.Context, test bool) state.Result {
		return b.turn(ctx, test, "disable_beacon", fmt.Sprintf("Disabled beacon %s.", a.Name), fmt.Sprintf("Job %s is not configured.", a.Name))
	})
}

// turn calls a function for the beacon if it exists.
func (b beacon) turn(ctx context.Context, test bool, function, done, none string) state.Result {
	_, there, err := b.now(ctx)
	switch {
	case err != nil:
		return failed("%v", err)
	case !there:
		return succeeded("%s", none)
	}
	r, _ := b.order(ctx, test, function, done)
	return r
}
