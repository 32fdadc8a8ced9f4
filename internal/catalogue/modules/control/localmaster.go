package control

import (
	"context"
	"iter"
	"strconv"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// LocalMaster is the master on the minion's own machine. It permits everything
// that salt and salt-run can do. Each call fails if there is no such master.
type LocalMaster interface {
	// Run runs a runner function and returns the data of its event: fun, jid,
	// user, return, success.
	Run(ctx context.Context, fun string, args []any, kwargs *value.Dict, jid string) (*value.Dict, error)
	// Wheel runs a wheel function and returns the data of its event: fun, jid,
	// user, return, success.
	Wheel(ctx context.Context, fun string, args []any, kwargs *value.Dict) (*value.Dict, error)
	// Command runs a function on minions and yields what they return: for each
	// minion a dict of ret, retcode, jid and, if the minion sets it, out.
	Command(ctx context.Context, o Order) iter.Seq2[*value.Dict, error]
}

// Order is a job for minions.
type Order struct {
	Target, Fun any
	Type        string
	Arg         []any
	Kwargs      *value.Dict   // keywords of the function
	Ret         string        // names of returners
	Timeout     time.Duration // 0 means as configured
	// Batch is how many minions work at a time, as for salt -b; "" means all.
	// The dicts then hold ret and out, as in Salt.
	Batch string
	// Subset is the number of minions, chosen at random, that get the job; 0
	// means all.
	Subset int
	// Expect adds a dict with "failed" for every minion that does not return.
	Expect bool
	// Failhard ends a batch at the first failure.
	Failhard bool
	// Publish are further options of the job: ret_config, ret_kwargs. It may be
	// nil.
	Publish *value.Dict
}

// Orders returns the functions of saltutil that run jobs on the master and other
// minions, for a master that calls functions itself.
func Orders(l LocalMaster) fn.Module {
	return fn.Module{Name: "saltutil", Doc: `Ask the master and its minions.`, Funcs: saltutil{Deps{Local: l}}.localFunctions()}
}

func (s saltutil) localFunctions() []fn.Func {
	return []fn.Func{
		fn.Of("runner", s.runner, `Run a function of the master that runs on the minion's machine, as salt-run does.
			All further keywords go to the function.`,
			fn.Example("salt master_minion saltutil.runner jobs.list_jobs"),
			fn.Example(`salt master_minion saltutil.runner test.arg arg="['baz']" kwarg="{'foo': 'bar'}"`)),
		fn.Of("cmd", s.cmd, `Command minions by way of the master that runs on the minion's machine, and return what they returned.`,
			fn.Example("salt master_minion saltutil.cmd '*' test.ping")),
		fn.Of("cmd_iter", s.cmdIter, `Same as saltutil.cmd, but returns a list with one item for each minion.`,
			fn.Example("salt master_minion saltutil.cmd_iter '*' test.ping")),
		fn.Of("wheel", s.wheel, `Run a function that manages the master on the minion's machine, and return all that is known of the run.`,
			fn.Example("salt master_minion saltutil.wheel key.accept jerry"), fn.Example("salt master_minion saltutil.wheel minions.connected")),
		fn.Of("update", s.update, `Refuse, as Salt does unless it was installed in one certain way.`, fn.Example("salt '*' saltutil.update")),
	}
}

type localRunnerArgs struct {
	Name       string      `salt:"name" doc:"function to run"`
	Arg        []any       `salt:"arg" doc:"arguments" default:"null"`
	Kwarg      *value.Dict `salt:"kwarg" doc:"named arguments" default:"null"`
	FullReturn bool        `salt:"full_return" doc:"return all that is known of the run" default:"false"`
	Saltenv    string      `salt:"saltenv" doc:"argument of that name for the function, unless it is base" default:"base"`
	JID        string      `salt:"jid" doc:"job id to use" default:"null"`
	Kwargs     fn.Kwargs   `salt:"kwargs"`
}

func (s saltutil) runner(ctx context.Context, _ *fn.Call, a localRunnerArgs) (any, error) {
	kwargs := value.NewDict(4)
	kwargs.Update(a.Kwarg)
	kwargs.Update(a.Kwargs.Clean())
	if a.Saltenv != "base" {
		kwargs.Set("saltenv", a.Saltenv)
	}
	data, err := s.Local.Run(ctx, a.Name, a.Arg, kwargs, a.JID)
	if err != nil {
		return nil, onMaster(err)
	}
	if a.FullReturn {
		return data, nil
	}
	return data.At("return"), nil
}

// onMaster adds to an error that the function needs a master on this machine, unless an argument is invalid.
func onMaster(err error) error {
	if salt.KindOf(err) == salt.Invalid {
		return fn.Errorf("%w", err)
	}
	return fn.Errorf("no master on this machine could be asked, and this function needs one: %w", err)
}

type localCmdArgs struct {
	Tgt     any           `salt:"tgt" doc:"target"`
	Fun     any           `salt:"fun" doc:"function, or a list of functions with arg a list of lists"`
	Arg     []any         `salt:"arg" doc:"arguments" default:"[]"`
	Timeout time.Duration `salt:"timeout" doc:"seconds to wait for minions; as configured if null" default:"null"`
	TgtType string        `salt:"tgt_type" doc:"type of the target" default:"glob"`
	Ret     string        `salt:"ret" doc:"returners for the minions to use" default:""`
	Kwarg   *value.Dict   `salt:"kwarg" doc:"named arguments" default:"null"`
	SSH     bool          `salt:"ssh" doc:"must be false: there is no salt-ssh" default:"false"`
	Kwargs  fn.Kwargs     `salt:"kwargs"`
}

// results runs a job on minions.
func (s saltutil) results(ctx context.Context, a localCmdArgs) (iter.Seq2[*value.Dict, error], error) {
	if a.SSH {
		return nil, fn.Errorf("there is no salt-ssh yet: leave ssh out")
	}
	o := Order{Target: a.Tgt, Fun: a.Fun, Type: a.TgtType, Arg: a.Arg, Kwargs: a.Kwarg, Ret: a.Ret, Timeout: a.Timeout}
	for key, v := range a.Kwargs.Clean().All() {
		switch key {
		case "batch":
			if value.Truth(v) {
				o.Batch = value.Str(v)
			}
		case "subset":
			n, err := strconv.Atoi(value.Str(v))
			if err != nil || n < 0 {
				return nil, fn.Invalidf("subset must be a number of minions, not %s", value.Repr(v))
			}
			o.Subset = n
		case "expect_minions":
			o.Expect = value.Truth(v)
		case "failhard":
			o.Failhard = value.Truth(v)
		case "ret_config", "ret_kwargs":
			if o.Publish == nil {
				o.Publish = value.NewDict(1)
			}
			o.Publish.Set(key, v)
		default:
			return nil, fn.Errorf("saltutil.cmd does not know the argument %s; arguments of the function go into kwarg", value.Repr(key))
		}
	}
	if o.Batch != "" {
		o.Subset = 0 // Salt ignores subset for batches
	}
	return s.Local.Command(ctx, o), nil
}

func (s saltutil) cmd(ctx context.Context, _ *fn.Call, a localCmdArgs) (*value.Dict, error) {
	all := value.NewDict(0)
	seq, err := s.results(ctx, a)
	if err != nil {
		return nil, err
	}
	for one, err := range seq {
		if err != nil {
			return nil, onMaster(err)
		}
		all.Update(one)
	}
	return all, nil
}

func (s saltutil) cmdIter(ctx context.Context, _ *fn.Call, a localCmdArgs) (*value.List, error) {
	all := &value.List{}
	seq, err := s.results(ctx, a)
	if err != nil {
		return nil, err
	}
	for one, err := range seq {
		if err != nil {
			return nil, onMaster(err)
		}
		all.Append(one)
	}
	return all, nil
}

type wheelArgs struct {
	Name   string    `salt:"name" doc:"function to run"`
	Args   fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (s saltutil) wheel(ctx context.Context, _ *fn.Call, a wheelArgs) (*value.Dict, error) {
	data, err := s.Local.Wheel(ctx, a.Name, a.Args, a.Kwargs.Clean())
	if err != nil {
		return nil, onMaster(err)
	}
	return data, nil
}

type versionArgs struct {
	Version any `salt:"version" ignored:"there is one version of the returns" default:"null"`
}

func (saltutil) update(context.Context, *fn.Call, versionArgs) (*value.Dict, error) {
	return value.DictOf("_error", "a minion is one program without an update_url; replace it by the package manager, or by copying a new one"), nil
}
