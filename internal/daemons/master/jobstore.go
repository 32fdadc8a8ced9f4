package master

import (
	"brine/internal/catalogue/runners"
	"brine/internal/ha/cluster"
	"brine/internal/py/value"
	"brine/internal/store/job"
	"log/slog"
	"time"
)

// jobStore keeps jobs and returns: those of one master (job.Store), or those
// that the masters of a cluster have in common (job.Shared).
type jobStore interface {
	runners.Jobs
	// NewJobUntil stores a job that is kept for minions that are unreachable, and
	// comes back when the disk has it.
	NewJobUntil(load *value.Dict, minions []string, until time.Time) error
	// ReturnStartedAsync stores a return, and calls done when the disk has it.
	// A job that is not nil is the load of one that the minion started itself.
	ReturnStartedAsync(load, job *value.Dict, done func(duplicate bool, err error))
	// Put stores a job with what was returned.
	Put(w *job.Whole) error
	// Queued returns the jobs that are kept for minions that are unreachable.
	Queued(now time.Time, limit int) ([]job.Queued, error)
	// Note and Speakers keep what is known of jobs on minions.
	Note(n job.Notes) error
	Speakers() ([]string, error)
	Prune() (int, error)
	Close() error
}

var (
	_ jobStore = (*job.Store)(nil)
	_ jobStore = (*job.Shared)(nil)
)

// openJobs opens the job store in the directory own, or that of a cluster. took
// hears what other masters have stored.
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
			return nil, err // not s: a jobStore that holds nil is not nil
		}
		return s, nil
	}
	s, err := job.Open(own, cfg.Jobs, log)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// isolated reports whether this master is one of a cluster without a shared
// directory.
func isolated(c *cluster.Cluster) bool { return c != nil && c.Isolated() }

// sharesDir reports whether other masters work in this one's cachedir.
func sharesDir(c *cluster.Cluster) bool { return c != nil && !c.Isolated() }
