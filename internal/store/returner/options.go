package returner

import "time"

// MasterOptions say where a master keeps jobs beside its own store.
type MasterOptions struct {
	JobCache string        `salt:"master_job_cache" default:"local_cache" doc:"returner that gets jobs and returns too, for masters that share their history: redis, etcd, mysql, pgjsonb, postgres, postgres_local_cache" change:"restart"`
	Archive  bool          `salt:"archive_jobs"     default:"false"       doc:"move old jobs of a database to its tables named _archive instead of removing them" change:"restart"`
	Timeout  time.Duration `salt:"returner_timeout" default:"5"           doc:"seconds to wait for the server of a returner (Brine only)" change:"restart"`
}

// MinionOptions say where a minion sends returns beside its masters.
type MinionOptions struct {
	Return any `salt:"return"           default:"null" doc:"returner, or list of returners, that get every return too" change:"restart"`
	// Scheduled comes besides what a job of the schedule names as its returner.
	Scheduled any           `salt:"schedule_returner" default:"null" doc:"returner, or list of returners, of all jobs of the schedule" change:"restart"`
	Timeout   time.Duration `salt:"returner_timeout"  default:"5"    doc:"seconds to wait for the server of a returner (Brine only)" change:"restart"`
}
