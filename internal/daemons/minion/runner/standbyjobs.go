package runner

import (
	"context"
	"slices"
	"time"

	"brine/internal/base/salt"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/daemons/minion/link"
	"brine/internal/py/value"
)

// active returns the active master if one master is used at a time, otherwise nil.
func (r *Runner) active() *link.Link {
	if !r.cfg.Links.OneAtATime {
		return nil
	}
	if all := r.cfg.Links.Receivers(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// recordTimeout bounds how long a return waits for the record of its job.
const recordTimeout = 2 * time.Second

// fetchRecord requests the record of a job from the standby master that
// published it, while the job runs. It returns nil for jobs of the active
// master.
func (r *Runner) fetchRecord(j *jobs.Job) <-chan []byte {
	if name, one := j.Fun.(string); one && controls[name] {
		return nil // a query: only its sender needs the return
	}
	if a := r.active(); a == nil || j.First == nil || a == j.First || !a.RunsStandbyJobs() {
		return nil
	}
	c := make(chan []byte, 1)
	r.cfg.Background.Go(func() {
		ctx, cancel := context.WithTimeout(r.cfg.Background.Context(), recordTimeout)
		defer cancel()
		c <- j.First.JobRecord(ctx, j.JID)
	})
	return c
}

// forActive prepares the return of a job that a standby master published. It adds the
// record of the job, and the active master as another receiver, so that the operator finds
// job and return at both.
func (r *Runner) forActive(ret *value.Dict, record <-chan []byte, to []*link.Link) (*value.Dict, []*link.Link) {
	a := r.active()
	if record == nil || a == nil || slices.Contains(to, a) || !a.RunsStandbyJobs() {
		return ret, to
	}
	if b := <-record; len(b) > 0 {
		ret = ret.Clone()
		ret.Set(salt.JobRecord, b)
	}
	return ret, append(to, a)
}
