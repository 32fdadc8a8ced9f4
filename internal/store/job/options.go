package job

import (
	"time"

	"brine/internal/base/salt"
)

// Options select which jobs are stored, and for how long.
type Options struct {
	KeepJobsSeconds int64 `salt:"keep_jobs_seconds" default:"86400" doc:"seconds for which jobs and their returns are kept; 0: for ever"`
	KeepJobs        int64 `salt:"keep_jobs"         default:"24"    doc:"hours for which jobs are kept; older form of keep_jobs_seconds, which takes precedence"`
	JobCache        bool  `salt:"job_cache"         default:"true"  doc:"keep jobs; if false, duplicate returns are not detected" change:"restart"`
	RunnerReturns   bool  `salt:"runner_returns"    default:"true"  doc:"keep the returns of runners too, so that salt-run jobs.lookup_jid finds it"`
}

// Keep is the time for which jobs are stored; 0: for ever.
func (o Options) Keep() time.Duration {
	if o.KeepJobsSeconds == 86400 && o.KeepJobs != 24 {
		return time.Duration(o.KeepJobs) * time.Hour
	}
	return time.Duration(o.KeepJobsSeconds) * time.Second
}

// Expired reports whether a job with that id is older than Keep.
func (o Options) Expired(jid string, now time.Time) bool {
	t, err := salt.JIDTime(jid)
	return err == nil && o.Keep() > 0 && now.Sub(t) > o.Keep()
}
