package master

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"brine/internal/catalogue/runners"
	"brine/internal/daemons/master/sinks"
	"brine/internal/host"
	"brine/internal/host/disk"
	"brine/internal/store/job"
)

// storeUsage tells what the stores of this master take. An answer is reused for a while, because jobs are counted.
type storeUsage struct {
	id       string
	cacheDir string
	own      string // the master's own directory
	jobs     jobStore
	keep     time.Duration
	sinks    *sinks.Jobs
	console  *consoleStore
	runs     *lastStates

	mu   sync.Mutex
	last runners.StoreUsage
}

// usageAge is how long an answer is reused.
const usageAge = 30 * time.Second

// now returns the usage.
func (s *storeUsage) now() runners.StoreUsage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.last.At) < usageAge {
		return s.last
	}
	u := runners.StoreUsage{Master: s.id, At: time.Now(), Stores: []runners.StoreRow{s.ofJobs()}}
	for _, x := range []struct {
		name, path string
		limit      string
	}{
		{"audit", filepath.Join(s.own, "audit"), "two files of 16 MiB"},
		{"states", filepath.Join(s.own, runsFile), "the last runs of each minion"},
		{"saved", savedDir(s.cacheDir), "2,000 records"},
	} {
		u.Stores = append(u.Stores, onDisk(x.name, x.path, x.limit))
	}
	u.Stores = append(append(u.Stores, s.ofHistory()), s.console.rows()...)
	for _, o := range s.sinks.Statuses() {
		r := runners.StoreRow{Name: "jobs", Driver: o.Name, Waiting: int64(o.Waiting), Count: -1, Keep: s.keep}
		if o.Unreachable != nil {
			r.Problem = fmt.Sprintf("unreachable since %s: %.300s", o.Since.UTC().Format(time.RFC3339), o.Unreachable)
		}
		u.Stores = append(u.Stores, r)
	}
	if space, err := disk.SpaceAt(&host.Machine{}, s.cacheDir); err == nil {
		u.Free, u.Size = int64(space.Available), int64(space.Total)
	}
	s.last = u
	return u
}

// ofJobs describes the master's own job store.
func (s *storeUsage) ofJobs() runners.StoreRow {
	r := runners.StoreRow{Name: "jobs", Driver: "files", Path: filepath.Join(s.cacheDir, "jobs"), Count: -1, Keep: s.keep}
	if store, ok := s.jobs.(*job.Store); ok {
		u, err := store.Usage()
		r.Driver, r.Path, r.Bytes, r.Count, r.More, r.Oldest = "bbolt", u.Path, u.Bytes, u.Jobs, u.More, u.Oldest
		if err != nil {
			r.Count, r.Problem = -1, fmt.Sprintf("%.300s", err)
		}
	}
	if err := s.jobs.Probe(); err != nil && r.Problem == "" {
		r.Problem = fmt.Sprintf("jobs cannot be stored: %.300s", err)
	}
	return r
}

// ofHistory describes the history of runs of states.
func (s *storeUsage) ofHistory() runners.StoreRow {
	r := runners.StoreRow{Name: "history of states", Driver: "bbolt", Path: filepath.Join(s.own, historyFile), Keep: s.runs.keep}
	var err error
	if r.Bytes, r.Count, r.Oldest, err = s.runs.past.Usage(); err != nil {
		r.Count, r.Problem = -1, fmt.Sprintf("%.300s", err)
	}
	return r
}

// maxWalked bounds the files whose sizes are added.
const maxWalked = 10_000

// onDisk describes a file with its rotated ones, or a directory.
func onDisk(name, path, limit string) runners.StoreRow {
	r := runners.StoreRow{Name: name, Driver: "files", Path: path, Count: -1, Limit: limit}
	paths, err := filepath.Glob(path + "*")
	if err == nil && len(paths) == 0 {
		return r // nothing is stored yet
	}
	n := 0
	for _, p := range paths {
		if e := filepath.WalkDir(p, func(_ string, d fs.DirEntry, err error) error {
			if n++; err != nil || n > maxWalked {
				return err
			}
			if fi, err := d.Info(); err == nil && fi.Mode().IsRegular() {
				r.Bytes += fi.Size()
			}
			return nil
		}); e != nil && !os.IsNotExist(e) {
			err = e
		}
	}
	if err != nil {
		r.Problem = fmt.Sprintf("%.300s", err)
	}
	return r
}
