package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// Asker sends requests to one master.
type Asker interface {
	Request(ctx context.Context, load *value.Dict) (any, error)
}

// Choice picks a master for several consecutive requests.
type Choice interface {
	// Pick returns a connected master, or the one with this host name or
	// address. It fails if there is none; with ErrMasterless if there will
	// never be one.
	Pick(ctx context.Context, host string) (Asker, error)
}

// ErrMasterless is the error of a minion that works without a master.
var ErrMasterless = errors.New("this minion works without a master")

type publish struct{ masters Choice }

// Publish returns the module publish.
func Publish(masters Choice) fn.Module {
	p := publish{masters}
	return fn.Module{Name: "publish", Doc: `Commands from this minion to others, by way of the master, whose options peer and peer_run say what is allowed.`,
		Funcs: []fn.Func{
			fn.Of("publish", p.publish, `Have minions run a function and return their results.
			Several functions are one text with commas. Arguments are a text or a list.`,
				fn.Example("salt web1 publish.publish 'db*' cmd.run 'ls -la /tmp'"),
				fn.Params("tgt", "fun", "arg", "tgt_type", "returner", "timeout", "via_master")),
			fn.Of("full_data", p.fullData, `Have minions run a function and return their results together with the outputters they are meant for.`,
				fn.Example("salt web1 publish.full_data '*' test.ping"), fn.Params("tgt", "fun", "arg", "tgt_type", "returner", "timeout")),
			fn.Of("runner", p.runner, `Run a runner on the master and return its result.`, fn.Example("salt web1 publish.runner manage.down")),
		}}
}

type publishArgs struct {
	Tgt      any    `salt:"tgt" doc:"target"`
	Fun      string `salt:"fun" doc:"name of the function"`
	Arg      any    `salt:"arg" doc:"argument, or a list of arguments; name=value texts are keywords" default:"null"`
	TgtType  string `salt:"tgt_type" doc:"type of the target" default:"glob"`
	Returner string `salt:"returner" doc:"returners for the minions to use" default:""`
	Timeout  any    `salt:"timeout" doc:"seconds to wait for the results" default:"5"`
	Via      any    `salt:"via_master" doc:"host name or address of the master to ask" default:"null"`
}

// pollEvery is how often the master is asked for returns. Salt uses the same
// interval.
const pollEvery = 300 * time.Millisecond

func (p publish) publish(ctx context.Context, c *fn.Call, a publishArgs) (any, error) {
	rets, err := p.send(ctx, c, a, "clean")
	d, ok := rets.(*value.Dict)
	if err != nil || !ok {
		return rets, err
	}
	clean := value.NewDict(d.Len())
	for id, ret := range d.All() {
		if r, ok := ret.(*value.Dict); ok {
			clean.Set(id, r.At("ret"))
		}
	}
	return clean, nil
}

func (p publish) fullData(ctx context.Context, c *fn.Call, a publishArgs) (any, error) {
	return p.send(ctx, c, a, "full")
}

// send publishes a job and waits until all minions have returned or the
// timeout is over.
func (p publish) send(ctx context.Context, c *fn.Call, a publishArgs, form string) (any, error) {
	limit, err := seconds(a.Timeout)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(a.Fun, "publish.") {
		c.Log.Warn("cannot publish job: publish functions are not allowed from publish", "fun", a.Fun)
		return value.NewDict(0), nil
	}
	via := ""
	if a.Via != nil {
		via = value.Str(a.Via)
	}
	master, err := p.masters.Pick(ctx, via)
	if errors.Is(err, ErrMasterless) {
		c.Log.Error("cannot publish job: the minion runs without a master", "fun", a.Fun)
		return value.NewDict(0), nil
	}
	if err != nil {
		return nil, fn.Errorf("cannot publish: %w", err)
	}
	reply, err := master.Request(ctx, value.DictOf("cmd", "minion_pub", "fun", a.Fun, "arg", arguments(a.Arg), "tgt", a.Tgt, "tgt_type", a.TgtType,
		"ret", a.Returner, "tmo", a.Timeout, "form", form, "id", c.ID, "no_parse", noParse(c)))
	if err != nil {
		return late(err, a.Fun, "publish")
	}
	job, _ := reply.(*value.Dict)
	if job.Len() == 0 {
		return value.NewDict(0), nil // not allowed, or no minion matches
	}
	minions := job.List("minions")
	over := time.Now().Add(limit)
	for {
		reply, err := master.Request(ctx, value.DictOf("cmd", "pub_ret", "id", c.ID, "jid", job.At("jid")))
		if err != nil {
			return late(err, a.Fun, "publish")
		}
		rets, _ := reply.(*value.Dict)
		if complete(rets, minions) || time.Now().After(over) {
			if rets == nil {
				rets = value.NewDict(0)
			}
			return rets, nil
		}
		if !wait.Sleep(ctx, pollEvery) {
			return nil, context.Cause(ctx)
		}
	}
}

func complete(rets *value.Dict, minions []any) bool {
	for _, id := range minions {
		if !rets.Has(id) {
			return false
		}
	}
	return true
}

// late returns Salt's message if the master does not answer in time, and an
// error for any other failure.
func late(err error, fun, what string) (any, error) {
	if salt.KindOf(err) == salt.Timeout || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("'%s' %s timed out", fun, what), nil
	}
	return nil, fn.Errorf("no master takes '%s': %w", fun, err)
}

func seconds(v any) (time.Duration, error) {
	if s, ok := v.(string); ok {
		v = yaml.LoadArg(s)
	}
	switch x := v.(type) {
	case int64:
		return time.Duration(x) * time.Second, nil
	case float64:
		return time.Duration(x * float64(time.Second)), nil
	}
	return 0, fn.Invalidf("timeout must be a number of seconds, not %s", value.Repr(v))
}

// arguments converts a value or a YAML string to a list of arguments.
func arguments(v any) *value.List {
	if s, ok := v.(string); ok {
		v = yaml.LoadArg(s)
	}
	switch x := v.(type) {
	case nil:
		return &value.List{}
	case *value.List:
		return x
	}
	return value.ListOf(v)
}

// noParse returns the option no_parse, which lists keywords that are not
// parsed as YAML.
func noParse(c *fn.Call) any {
	if v := c.Config.Get("no_parse"); v != nil {
		return v
	}
	return &value.List{}
}

type runnerArgs struct {
	Fun     string `salt:"fun" doc:"name of the runner"`
	Arg     any    `salt:"arg" doc:"argument, or a list of arguments; name=value texts are keywords" default:"null"`
	Timeout any    `salt:"timeout" doc:"seconds that the runner may wait" default:"5"`
}

func (p publish) runner(ctx context.Context, c *fn.Call, a runnerArgs) (any, error) {
	master, err := p.masters.Pick(ctx, "")
	if errors.Is(err, ErrMasterless) {
		return "No access to master. If using salt-call with --local, please remove.", nil
	}
	if err != nil {
		return nil, fn.Errorf("cannot ask for a runner: %w", err)
	}
	reply, err := master.Request(ctx, value.DictOf("cmd", "minion_runner", "fun", a.Fun, "arg", arguments(a.Arg), "tmo", a.Timeout,
		"id", c.ID, "no_parse", noParse(c)))
	if err != nil {
		return late(err, a.Fun, "runner publish")
	}
	return reply, nil
}
