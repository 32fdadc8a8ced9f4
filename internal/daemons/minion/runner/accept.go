package runner

import (
	"fmt"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/daemons/minion/link"
	"brine/internal/py/value"
)

// Accept takes one publication of a master. It returns at once.
func (r *Runner) Accept(from *link.Link, load *value.Dict) {
	log := r.cfg.Log.With("master", from.Addr.Text)
	if err := checkJob(load); err != nil {
		log.Warn("a job was ignored", "err", err)
		return
	}
	ok, err := r.matches(from, load)
	if err != nil {
		log.Warn("a job was ignored: its target cannot be read", "jid", load.Str("jid"), "err", err)
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
		log.Debug("the job is known already", "jid", load.Str("jid"))
		return
	}
	r.cfg.Background.Go(func() { r.execute(r.cfg.Background.Context(), j) })
}

func checkJob(load *value.Dict) error {
	for _, k := range []string{"tgt", "jid", "fun", "arg"} {
		if !load.Has(k) {
			return fmt.Errorf("it has no %s", k)
		}
	}
	if !salt.ValidJID(load.Str("jid")) {
		return fmt.Errorf("%.40q is not a job id", load.Str("jid"))
	}
	return nil
}

func (r *Runner) matches(from *link.Link, load *value.Dict) (bool, error) {
	typ := load.Str("tgt_type")
	if typ == "" {
		typ = "glob"
	}
	t, err := target.Parse(typ, load.At("tgt"), load.Str("delimiter"))
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
