package master

import (
	"brine/internal/catalogue/runners"
	"brine/internal/ha/cluster"
	"brine/internal/py/value"
	"brine/internal/store/job"
	"log/slog"
	"time"
)

// jobStore stores jobs and returns: of one master (job.Store), or of all
// masters that share a directory (job.Shared).
type jobStore interface {
	runners.Jobs
	// NewJobUntil stores a job that is queued for unreachable minions until a time.
	// It returns when the job is on disk.
	NewJobUntil(load *value.Dict, minions []string, until time.Time) error
	// AddMinions adds ids to the minions of a job.
	AddMinions(jid string, ids []string) error
	// ReturnStartedAsync stores a return, and calls done when it is on disk. A
	// non-nil job is the load of a job that the minion started itself.
	ReturnStartedAsync(load, job *value.Dict, done func(duplicate bool, err error))
	// ReturnedBy returns the minions that have returned a job.
	ReturnedBy(jid string) ([]string, error)
	// Put stores a job with its returns.
	Put(w *job.Whole) error
	// Queued returns the jobs that are queued for unreachable minions.
	Queued(now time.Time, limit int) ([]job.Queued, error)
	// Note and Speakers store the states of jobs on minions.
	Note(n job.Notes) error
	Speakers() ([]string, error)
	// OnConflict registers hear, which is called when a minion returns again for a
	// job, with another result.
	OnConflict(hear func(jid, minion string))
	Prune() (int, error)
	// Probe writes to the disk, and returns an error if jobs cannot be stored.
	Probe() error
	Close() error
}

var (
	_ jobStore = (*job.Store)(nil)
	_ jobStore = (*job.Shared)(nil)
)

// openJobs opens the job store in the directory own, or the shared one of a
// cluster. In an isolated cluster took is called with the changes of other masters.
func openJobs(cfg *Config, c *cluster.Cluster, own string, took func([]job.Taken), log *slog.Logger) (jobStore, error) {
	if isolated(c) {
		s, err := job.OpenSharing(own, cfg.ID, cfg.Jobs, took, log)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	if c != nil {
		s, err := job.OpenShared(cfg.CacheDir, cfg.ID, cfg.Options.HashType, cfg.Jobs, log)
		if err != nil {
			return nil, err // not s: a jobStore that holds a nil pointer is not nil
		}
		return s, nil
	}
	s, err := job.Open(own, cfg.Jobs, log)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// isolated reports whether this master belongs to a cluster without a shared
// directory.
func isolated(c *cluster.Cluster) bool { return c != nil && c.Isolated() }

// sharesDir reports whether other masters use this one's cachedir.
func sharesDir(c *cluster.Cluster) bool { return c != nil && !c.Isolated() }
