package returner

import "time"

// MasterOptions select where a master stores jobs besides its own store.
type MasterOptions struct {
	JobCache string        `salt:"master_job_cache" default:"local_cache" doc:"returner that also receives jobs and returns, for masters that share their history: redis, etcd, mysql, pgjsonb, postgres, postgres_local_cache, or one in Python" change:"restart"`
	Archive  bool          `salt:"archive_jobs"     default:"false"       doc:"move old jobs of a database to its tables named _archive instead of removing them" change:"restart"`
	Timeout  time.Duration `salt:"returner_timeout" default:"5" least:"0"           doc:"seconds to wait for the server of a returner (Brine only)" change:"restart"`
}

// MinionOptions select where a minion sends returns besides its masters.
type MinionOptions struct {
	Return any `salt:"return"           default:"null" doc:"returner, or list of returners, that also receive every return" change:"restart"`
	// Scheduled is used in addition to the returner of a schedule's job.
	Scheduled any           `salt:"schedule_returner" default:"null" doc:"returner, or list of returners, of all jobs of the schedule" change:"restart"`
	Timeout   time.Duration `salt:"returner_timeout"  default:"5" least:"0"    doc:"seconds to wait for the server of a returner (Brine only)" change:"restart"`
}
