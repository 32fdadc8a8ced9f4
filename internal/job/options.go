package job

import "time"

// Options say which jobs are kept and for how long.
type Options struct {
	KeepJobsSeconds int64 `salt:"keep_jobs_seconds" default:"86400" doc:"seconds for which jobs and their returns are kept; 0 means for ever"`
	KeepJobs        int64 `salt:"keep_jobs"         default:"24"    doc:"hours for which jobs are kept; former form of keep_jobs_seconds, which comes first"`
	JobCache        bool  `salt:"job_cache"         default:"true"  doc:"keep jobs at all; without them a return that comes twice is not noticed" change:"restart"`
}

// Keep is how long jobs are kept; 0 means for ever.
func (o Options) Keep() time.Duration {
	if o.KeepJobsSeconds == 86400 && o.KeepJobs != 24 {
		return time.Duration(o.KeepJobs) * time.Hour
	}
	return time.Duration(o.KeepJobsSeconds) * time.Second
}
