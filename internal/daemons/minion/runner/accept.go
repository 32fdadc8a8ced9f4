package runner

import (
	"cmp"
	"fmt"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/daemons/minion/link"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Accept takes one publication of a master. It returns at once.
func (r *Runner) Accept(from *link.Link, load *value.Dict) {
	log := r.cfg.Log.With("master", from.Addr.Text)
	var pub wire.Job
	if err := checkJob(load, &pub); err != nil {
		log.Warn("a job was ignored", "err", err)
		return
	}
	ok, err := r.matches(from, &pub)
	if err != nil {
		log.Warn("a job was ignored: its target cannot be read", "jid", pub.JID, "err", err)
		return
	}
	if !ok {
		return
	}
	j, ready := r.cfg.Jobs.Admit(load, from)
	if j == nil {
		if ready != nil {
			r.cfg.Outbox.Also(ready, from.Out)
		}
		log.Debug("the job is known already", "jid", pub.JID)
		return
	}
	r.cfg.Background.Go(func() { r.execute(r.cfg.Background.Context(), j) })
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

// self is this minion as a target of one master, whose pillar counts.
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
