package runner

import (
	"time"

	"brine/internal/base/salt"
	"brine/internal/daemons/minion/link"
	"brine/internal/py/value"
)

// startupLoad returns the job of the option startup_states, nil for none. Stock minions
// send the return of such a job with the id "req", and the master creates the job. Here the
// minion creates it, so that a return that reaches two masters, or one master twice,
// belongs to one job.
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
		arg.Append(value.Strings(o.SLSList)) // one argument, as in stock minions
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

// CheckStartup returns why startup_states cannot run.
func (o *Options) CheckStartup() error {
	_, err := o.startupLoad("", time.Now())
	return err
}

// startupKey is the key that marks the job of startup_states.
const startupKey = "startup_states"

// Startup runs startup_states once per process, however many masters there are. c, the
// master that connects first, gets the return.
func (r *Runner) Startup(c *link.Link) {
	load, err := r.cfg.Options.startupLoad(r.cfg.ID, time.Now())
	if err != nil {
		r.cfg.Log.Error("not running the startup states", "err", err)
	}
	if load == nil {
		return
	}
	if j, _, _ := r.cfg.Jobs.Admit(load, c); j != nil {
		r.begin(j)
	}
}
