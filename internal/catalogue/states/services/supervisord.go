package services

import (
	"context"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/supervisord"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Declare("supervisord", supervisordModule) }

// supervisordModule returns the states for programs that the daemon supervisord
// runs.
func supervisordModule() state.Module {
	return state.Module{Name: "supervisord",
		Doc: `Keep programs of the daemon supervisord running, or not. A name that ends with a colon, or a colon and an asterisk, is that of a group.`,
		Funcs: []state.Func{
			state.Of("running", supervisordRunning, `Have a program or a group running.`),
			state.Of("dead", supervisordDead, `Have a program or a group stopped.`),
			state.Of("mod_watch", supervisordWatch, `Restart a program or a group.`),
		}}
}

type supervisordArgs struct {
	Name    string    `salt:"name" doc:"program or group"`
	Restart bool      `salt:"restart" doc:"restart what runs, each time" default:"false"`
	Update  bool      `salt:"update" doc:"have the daemon follow its configuration first, each time" default:"false"`
	User    any       `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config  any       `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv  any       `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

// control returns the supervisorctl of this machine.
func control() supervisord.Control { return supervisord.Control{M: machine} }

// named returns the arguments for the program or group.
func (a supervisordArgs) named() supervisord.Args {
	return supervisord.Args{Name: a.Name, User: text(a.User), Config: text(a.Config), BinEnv: text(a.BinEnv)}
}

// supervised is the status of the named program or group.
type supervised struct {
	kind string // "service", "group", or "" if there is none
	// all are the programs of the name, idle those that do not run. stopped
	// means that one of them will not start by itself.
	all, idle []string
	stopped   bool
}

func (a supervisordArgs) look(ctx context.Context, e *state.Env) (s supervised, err error) {
	with := a.named()
	states, err := control().Status(ctx, e.Call, supervisord.StatusArgs{User: with.User, Config: with.Config, BinEnv: with.BinEnv})
	if err != nil {
		return s, err
	}
	for k, v := range states.All() {
		name, d := value.Str(k), v.(*value.Dict)
		switch {
		case name == a.Name:
			s.kind = "service"
		case strings.HasSuffix(a.Name, ":") && strings.HasPrefix(name, a.Name):
			s.kind = "group"
		default:
			continue
		}
		s.all = append(s.all, name)
		if d.Str("state") != "RUNNING" {
			s.idle = append(s.idle, name)
		}
		s.stopped = s.stopped || slices.Contains([]string{"STOPPED", "STOPPING", "EXITED", "FATAL", "BACKOFF"}, d.Str("state"))
	}
	return s, nil
}

// predicted returns the result of a test run.
func (s supervised) predicted(name string) *state.Result {
	group := strings.HasSuffix(name, ":")
	r := &state.Result{}
	switch {
	case s.kind == "" && group:
		r.Comment = "Group '" + name + "' will be added and started"
	case s.kind == "":
		r.Comment = "Service " + name + " will be added and started"
	case len(s.idle) == 0 && group:
		r.Verdict, r.Comment = state.Succeeded, "All services in group '"+name+"' are already running"
	case len(s.idle) == 0:
		r.Verdict, r.Comment = state.Succeeded, "Service "+name+" is already running"
	case group && len(s.idle) == len(s.all):
		r.Comment = "All services in group '" + name + "' will be started"
	case group:
		r.Comment = "The following services will be started: " + strings.Join(s.idle, " ")
	default:
		r.Comment = "Service " + name + " will be started"
	}
	return r
}

func supervisordRunning(ctx context.Context, e *state.Env, a supervisordArgs) (state.Plan, error) {
	if group, ok := strings.CutSuffix(a.Name, ":*"); ok {
		a.Name = group + ":"
	}
	s, err := a.look(ctx, e)
	if err != nil {
		return state.Plan{}, err
	}
	p := state.Plan{Forecast: s.predicted(a.Name)}
	if s.kind != "" && !s.stopped && !a.Restart && !a.Update {
		p.Comment = "Not starting already running " + s.kind + ": " + a.Name
		return p, nil
	}
	if s.kind != "" && (a.Restart || a.Update) && p.Forecast.Verdict == state.Succeeded {
		// Salt's test ignores restart and update.
		p.Forecast.Verdict, p.Forecast.Comment = state.Undecided, "Service "+a.Name+" will be updated"
		if a.Restart {
			p.Forecast.Comment = "Service " + a.Name + " will be restarted"
		}
	}
	p.Steps = []state.Step{{Do: func(ctx context.Context) (state.Change, error) { return a.run(ctx, e, s) }}}
	return p, nil
}

// harmless lists errors of supervisorctl that mean that nothing had to be done.
var harmless = []string{"already started", "not running", "process group already active"}

func failure(said string) bool {
	return strings.Contains(said, "ERROR") && !slices.ContainsFunc(harmless, func(h string) bool { return strings.Contains(said, h) })
}

// supervision collects the results of calls; the last message is the comment.
type supervision struct {
	comment string
	failed  bool
	did     []string
}

func (r *supervision) add(said, comment string) {
	r.comment = comment
	if failure(said) {
		r.comment, r.failed = said, true
	}
}

func (a supervisordArgs) run(ctx context.Context, e *state.Env, s supervised) (state.Change, error) {
	var r supervision
	with := a.named()
	did := func(comment, said string, err error) error {
		r.did = append(r.did, comment)
		r.add(said, comment)
		return err
	}
	updated := false
	var err error
	switch {
	case a.Update:
		var said string
		said, err = control().Update(ctx, e.Call, supervisord.UpdateArgs{User: with.User, Config: with.Config, BinEnv: with.BinEnv})
		r.add(said, "Updating supervisor")
		updated = strings.Contains(said, a.Name+": updated")
	case s.kind == "":
		if _, err = control().Reread(ctx, e.Call, with); err == nil {
			said, failed := control().Known("add")(ctx, e.Call, supervisord.KnownArgs(with))
			err = did("Adding service: "+a.Name, said, failed)
		}
	}
	kind := ""
	if s.kind != "" {
		kind = " " + s.kind
	}
	switch {
	case err != nil:
		return state.Change{}, err
	case s.kind != "" && !s.stopped && updated:
		r.comment = "Not starting updated" + kind + ": " + a.Name
	case s.kind != "" && !s.stopped && a.Restart:
		said, failed := control().Do("restart")(ctx, e.Call, with)
		err = did("Restarting"+kind+": "+a.Name, said, failed)
	case s.kind != "" && !s.stopped:
		r.comment = "Not starting already running" + kind + ": " + a.Name
	case !updated:
		said, failed := control().Do("start")(ctx, e.Call, with)
		err = did("Starting"+kind+": "+a.Name, said, failed)
	}
	switch {
	case err != nil:
		return state.Change{}, err
	case r.failed:
		return state.Change{}, fn.Errorf("%s", r.comment)
	}
	c := state.Change{Comment: r.comment}
	if len(r.did) > 0 {
		c.Diff = value.DictOf(a.Name, strings.Join(r.did, " "))
	}
	return c, nil
}

type supervisordDeadArgs struct {
	Name   string    `salt:"name" doc:"program or group"`
	User   any       `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config any       `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv any       `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func supervisordDead(ctx context.Context, e *state.Env, d supervisordDeadArgs) (state.Plan, error) {
	a := supervisordArgs{Name: d.Name, User: d.User, Config: d.Config, BinEnv: d.BinEnv}
	if group, ok := strings.CutSuffix(a.Name, ":*"); ok {
		a.Name = group + ":"
	}
	s, err := a.look(ctx, e)
	switch {
	case err != nil:
		return state.Plan{}, err
	case s.kind == "":
		return state.Plan{Comment: "Service " + d.Name + " doesn't exist"}, nil
	case s.stopped && len(s.idle) == len(s.all):
		return state.Plan{Comment: "Service " + d.Name + " is not running"}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: "Service " + d.Name + " is set to be stopped"},
		Do: func(ctx context.Context) (state.Change, error) {
			said, err := control().Do("stop")(ctx, e.Call, a.named())
			if err == nil && failure(said) {
				err = fn.Errorf("%s", said)
			}
			if err != nil {
				return state.Change{}, err
			}
			comment := "Stopping service: " + d.Name
			return state.Change{Diff: value.DictOf(d.Name, comment), Comment: comment}, nil
		},
	}}}, nil
}

type supervisordWatchArgs struct {
	Name    string    `salt:"name" doc:"program or group"`
	Restart bool      `salt:"restart" doc:"restart what runs" default:"true"`
	Update  bool      `salt:"update" doc:"have the daemon follow its configuration first" default:"false"`
	User    any       `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config  any       `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv  any       `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func supervisordWatch(ctx context.Context, e *state.Env, w supervisordWatchArgs) (state.Plan, error) {
	return supervisordRunning(ctx, e, supervisordArgs(w))
}
