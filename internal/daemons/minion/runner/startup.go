package runner

import (
	"time"

	"brine/internal/base/salt"
	"brine/internal/daemons/minion/link"
	"brine/internal/py/value"
)

// startupLoad is the job that the option startup_states asks for, nil for none.
// Salt's minions return such a job under the id "req" and have the master
// choose one. Here the minion does, so that a return that comes to two masters,
// or twice to one, is one job.
func (o *Options) startupLoad(id string, now time.Time) (*value.Dict, error) {
	var fun string
	arg := &value.List{}
	switch o.StartupStates {
	case "":
		return nil, nil
	case "highstate":
		fun = "state.highstate"
	case "sls":
		if len(o.SLSList) == 0 {
			return nil, salt.Errorf(salt.Invalid, "startup_states: sls needs the option sls_list")
		}
		fun = "state.sls"
		arg.Append(value.Strings(o.SLSList)) // one argument, as with Salt's minions
	case "top":
		if o.TopFile == "" {
			return nil, salt.Errorf(salt.Invalid, "startup_states: top needs the option top_file")
		}
		fun = "state.top"
		arg.Append(o.TopFile)
	default:
		return nil, salt.Errorf(salt.Invalid, "startup_states: expected highstate, sls or top, got %q", o.StartupStates)
	}
	return value.DictOf("fun", fun, "arg", arg, "jid", salt.NewJID(now), "tgt", id, startupKey, o.StartupStates), nil
}

// startupKey marks the job of startup_states.
const startupKey = "startup_states"

// Startup runs what startup_states asks for, once in the life of the
// process however many masters there are; c, the first one that was connected,
// gets the return.
func (r *Runner) Startup(c *link.Link) {
	load, err := r.cfg.Options.startupLoad(r.cfg.ID, time.Now())
	if err != nil {
		r.cfg.Log.Error("the startup states are not run", "err", err)
	}
	if load == nil {
		return
	}
	if j, _ := r.cfg.Jobs.Admit(load, c); j != nil {
		r.cfg.Background.Go(func() { r.execute(r.cfg.Background.Context(), j) })
	}
}
