package runner

import (
	"cmp"
	"errors"
	"fmt"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/daemons/minion/link"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Accept handles one publication of a master. It returns at once.
func (r *Runner) Accept(from *link.Link, load *value.Dict) {
	log := r.cfg.Log.With("master", from.Addr.Text)
	var pub wire.Job
	if err := checkJob(load, &pub); err != nil {
		log.Warn("ignoring job", "err", err)
		return
	}
	ok, err := r.matches(from, &pub)
	if err != nil {
		log.Warn("ignoring job: invalid target", "jid", pub.JID, "err", err)
		return
	}
	if !ok {
		return
	}
	defer r.starts.Begin()() // not before: grains may wait for another machine
	j, ready, err := r.cfg.Jobs.Admit(load, from)
	if taken, ok := errors.AsType[*jobs.Taken](err); ok {
		log.Error("a job was not run: another job has its id", "jid", taken.JID, "fun", value.Str(pub.Fun), "other_fun", value.Str(taken.Fun))
		if taken.Other {
			from.Out.Put(r.returnLoad(jobs.NewJob(load), fn.Outcome{Return: "ERROR: " + err.Error(), Retcode: 1, Out: "nested", Err: err}))
		}
		return
	}
	if j == nil {
		if ready != nil {
			r.cfg.Outbox.Also(ready, from.Out)
		}
		log.Debug("ignoring job: already known", "jid", pub.JID)
		return
	}
	r.begin(j)
}

// checkJob decodes a publication.
func checkJob(load *value.Dict, pub *wire.Job) error {
	if err := wire.Decode(load, pub); err != nil {
		return err
	}
	if !salt.ValidJID(pub.JID) {
		return fmt.Errorf("%.40q is not a job id", pub.JID)
	}
	return nil
}

func (r *Runner) matches(from *link.Link, pub *wire.Job) (bool, error) {
	t, err := target.Parse(cmp.Or(pub.TgtType, "glob"), pub.Tgt, pub.Delimiter)
	if err != nil {
		return false, err
	}
	return t.Match(self{r.cfg.ID, r.cfg.Grains(), from}), nil
}

// self is this minion as a target of one master, whose pillar is used.
type self struct {
	id     string
	grains *value.Dict
	from   *link.Link
}

func (s self) ID() string          { return s.id }
func (s self) Grains() *value.Dict { return s.grains }
func (s self) Pillar() *value.Dict { return s.from.Pillar() }

var _ target.Subject = self{}

// RunningFor returns the ids of the running jobs that a master published.
func (r *Runner) RunningFor(c *link.Link) []string { return r.cfg.Jobs.RunningFor(c) }

var _ link.Jobs = (*Runner)(nil)
