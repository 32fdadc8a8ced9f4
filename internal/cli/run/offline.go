package run

import (
	"context"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/cli/daemon"
	"brine/internal/daemons/master"
	"brine/internal/py/value"
)

// call runs a function on the master. If no master runs on this machine, a function that only reads
// data on disk runs in this process.
func (p *program) call(ctx context.Context, r client.Runner, started func(jid string), progress func(client.RunnerEvent)) (*value.Dict, error) {
	data, err := p.Client.Run(ctx, r, started, progress)
	if !client.NotRunning(err) || r.Cluster || p.opts.EAuth.EAuth != "" || !master.RunsOffline(r.Fun) {
		return data, err
	}
	// Run as the master's user, so that no new file belongs to root.
	cfg, offlineErr := p.Conf.Parts(p.Tree)
	if offlineErr == nil {
		offlineErr = daemon.Become(p.Conf.Files.User)
	}
	if offlineErr == nil {
		kwargs := r.Kwargs
		args := r.Args
		if kwargs.Len() > 0 {
			args = append(args, fn.Wire(nil, kwargs)...)
		}
		p.Log.Warn("no master runs on this machine: " + r.Fun + " answers from data on disk")
		data, offlineErr = master.RunOffline(ctx, cfg, r.Fun, args, func(d *value.Dict) { progress(client.RunnerEvent{Name: "progress", Data: d}) }, p.Log.Logger)
	}
	if offlineErr == nil {
		return data, nil
	}
	return nil, salt.Errorf(salt.Unavailable, "%w\n%s cannot answer from disk either: %w", err, r.Fun, offlineErr)
}

// attachOwn adds the user's runners in Python, loaded as the master's user, and returns a function
// that ends their helper process. If they cannot be loaded, only Brine's runners are available.
func (p *program) attachOwn(reg *fn.Registry) (done func()) {
	done = func() {}
	cfg, err := p.Conf.Parts(p.Tree)
	if err != nil {
		return done
	}
	own := master.OwnRunners(&cfg, p.Log.Logger)
	if own == nil {
		return done
	}
	if err := daemon.Become(p.Conf.Files.User); err != nil {
		p.Log.Warn("runners in Python are not shown", "err", err)
		return done
	}
	reg.Attach(own.Runners())
	return own.Close
}
