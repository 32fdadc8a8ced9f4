package master

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/ha/cluster"
	"brine/internal/host"
	"brine/internal/host/boot"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// Hot masters without a cluster may share a cachedir, as in Salt's tutorial. The
// first one keeps its own data in CACHEDIR/brine and is named in the file owner
// there; each other one keeps it in hot/ID below. See docs/adr/0037.
const (
	ownerFile = "owner"
	hotDir    = "hot"
)

// ownPlace is the directory of a master's own data: its job database, audit log, queues and, if
// it does not own the cachedir, session keys.
type ownPlace struct {
	dir string
	// beside is true for a master that uses the cachedir of another one.
	beside bool
}

// sessions returns the directory of the session keys. A master creates its own
// at each start, so that two masters cannot use one directory.
func (p ownPlace) sessions(cacheDir string) string {
	if p.beside {
		return filepath.Join(p.dir, "sessions")
	}
	return filepath.Join(cacheDir, "sessions")
}

// OwnDir finds a master's own directory in cachedir, without taking it. It is
// created if it does not exist.
func OwnDir(cfg *Config) (string, error) {
	p, err := findOwn(cfg)
	return p.dir, err
}

func findOwn(cfg *Config) (ownPlace, error) {
	if cfg.Cluster.On() {
		dir, err := cluster.OwnDir(cfg.CacheDir, cfg.ID)
		return ownPlace{dir: dir}, err
	}
	base := filepath.Join(cfg.CacheDir, "brine")
	p := ownPlace{dir: base}
	owner, _, err := readOwner(base)
	if err != nil {
		return ownPlace{}, err
	}
	hot := filepath.Join(base, hotDir, cfg.ID)
	if owner != "" && owner != cfg.ID && salt.CheckID(cfg.ID) == nil {
		if _, err := os.Stat(hot); err == nil {
			p = ownPlace{dir: hot, beside: true}
		}
	}
	if err := atomicfile.MkdirAll(p.dir, 0o700); err != nil {
		return ownPlace{}, salt.Errorf(salt.Unavailable, "cannot create a directory: %w", err)
	}
	return p, nil
}

// readOwner returns the id of the master that owns a directory, and the machine
// on which it ran; "" if none does.
func readOwner(base string) (id, machine string, err error) {
	b, err := os.ReadFile(filepath.Join(base, ownerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", salt.Errorf(salt.Unavailable, "cannot read which master owns cachedir: %w", err)
	}
	lines := strings.SplitN(string(b), "\n", 3)
	if len(lines) == 3 {
		return lines[0], lines[1], nil
	}
	return "", "", nil // damaged: the next owner replaces it
}

// thisMachine identifies the machine by its machine id, or else by its host name.
func thisMachine() string {
	m := &host.Machine{}
	if id, ok := boot.MachineID(m); ok && id != "" {
		return id
	}
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// openOwn takes this master's own directory and opens its job database. A
// cachedir that another master owns is shared with it, unless that one was this
// master under its former id: then it ran on this machine and runs no longer.
func openOwn(cfg *Config, open func(own string) (jobStore, error), log *slog.Logger) (ownPlace, jobStore, error) {
	p, err := findOwn(cfg)
	if err != nil {
		return ownPlace{}, nil, err
	}
	if cfg.Cluster.On() || p.beside {
		jobs, err := open(p.dir)
		return p, jobs, err
	}
	owner, machine, err := claim(p.dir, cfg.ID)
	if err != nil {
		return ownPlace{}, nil, err
	}
	if owner == cfg.ID || machine == thisMachine() {
		jobs, err := open(p.dir)
		if err == nil && owner != cfg.ID {
			log.Info("taking over the data of this machine's master under its former id", "former", owner, "path", p.dir)
			err = writeOwner(p.dir, cfg.ID)
			if err != nil {
				jobs.Close()
			}
		}
		if err == nil || owner == cfg.ID || !errors.Is(err, job.ErrInUse) {
			return p, jobs, err
		}
	}
	if err := salt.CheckID(cfg.ID); err != nil {
		return ownPlace{}, nil, salt.Errorf(salt.Invalid, "id: %w", err)
	}
	p = ownPlace{dir: filepath.Join(p.dir, hotDir, cfg.ID), beside: true}
	if err := atomicfile.MkdirAll(p.dir, 0o700); err != nil {
		return ownPlace{}, nil, salt.Errorf(salt.Unavailable, "cannot create a directory: %w", err)
	}
	log.Info("sharing cachedir with another master", "master", owner, "path", p.dir)
	jobs, err := open(p.dir)
	return p, jobs, err
}

// claim makes this master the owner of a directory that has none, and returns the owner and its
// machine.
func claim(base, id string) (owner, machine string, err error) {
	if owner, machine, err = readOwner(base); owner != "" || err != nil {
		return owner, machine, err
	}
	machine = thisMachine()
	// The file decides, not a lock: not all file systems have locks between machines.
	err = atomicfile.Create(filepath.Join(base, ownerFile), ownerText(id), 0o600)
	if errors.Is(err, fs.ErrExist) {
		if owner, machine, err = readOwner(base); owner != "" || err != nil {
			return owner, machine, err
		}
		machine = thisMachine()
		err = writeOwner(base, id)
	}
	if err != nil {
		return "", "", salt.Errorf(salt.Unavailable, "cannot note which master owns cachedir: %w", err)
	}
	return id, machine, nil
}

func writeOwner(base, id string) error {
	return atomicfile.Write(filepath.Join(base, ownerFile), ownerText(id), 0o600, true)
}

func ownerText(id string) []byte { return []byte(id + "\n" + thisMachine() + "\n") }

// cohabitation tracks whether other masters share this cachedir without a cluster. Such masters
// see only each other's jobs, in Salt's files. The zero value means that the master is alone.
type cohabitation struct {
	cacheDir string
	beside   bool
	found    atomic.Bool
}

// shared reports whether another master uses this cachedir.
func (c *cohabitation) shared() bool { return c.beside || c.found.Load() }

// look searches for other masters, and reports whether this call found the first ones.
func (c *cohabitation) look() bool {
	if c.beside || c.found.Load() {
		return false
	}
	entries, err := os.ReadDir(filepath.Join(c.cacheDir, "brine", hotDir))
	return err == nil && len(entries) > 0 && !c.found.Swap(true)
}

// lookInterval is how often the owner of a cachedir looks for other masters.
const lookInterval = 2 * time.Second

// run searches for masters that share the cachedir. Once there are some, it writes the stored
// jobs to the files that they read; later jobs are written there when they arrive.
func (c *cohabitation) run(ctx context.Context, store *job.Store, files *job.LocalCache, log *slog.Logger) error {
	if !c.shared() {
		tick := time.NewTicker(lookInterval)
		defer tick.Stop()
		for !c.look() {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
		log.Info("another master shares cachedir: writing jobs and returns to files that it reads", "path", filepath.Join(c.cacheDir, "jobs"))
	}
	if err := export(ctx, store, files); err != nil && ctx.Err() == nil {
		log.Warn("cannot show some jobs to the masters that share cachedir", "err", err)
	}
	return nil
}

// export adds the stored jobs to files.
func export(ctx context.Context, store *job.Store, files *job.LocalCache) error {
	jobs, err := store.List(job.Filter{})
	for _, j := range jobs {
		if ctx.Err() != nil {
			return nil
		}
		returns, e := store.Returns(j.JID)
		if e == nil && !store.Expired(j.JID) {
			e = files.Put(&job.Whole{Job: *j, Returns: returns})
		}
		if err == nil {
			err = e
		}
	}
	return err
}

// sharedJobs are the jobs of this master, and those that the other masters of a
// shared cachedir have written to files.
type sharedJobs struct {
	*job.Store
	files  *job.LocalCache
	shared func() bool
}

// Load implements runners.Jobs.
func (s *sharedJobs) Load(jid string) (*value.Dict, error) {
	load, err := s.Store.Load(jid)
	if load != nil || err != nil || !s.shared() {
		return load, err
	}
	w, err := s.lookup(jid)
	return w.Load, err
}

// lookup reads a job from the files. It has no parts if it does not exist.
func (s *sharedJobs) lookup(jid string) (*job.Whole, error) {
	if !salt.ValidJID(jid) {
		return &job.Whole{}, nil
	}
	w, err := s.files.Lookup(jid)
	if w == nil {
		w = &job.Whole{}
	}
	return w, err
}

// Minions implements runners.Jobs.
func (s *sharedJobs) Minions(jid string) ([]string, error) {
	ids, err := s.Store.Minions(jid)
	if len(ids) > 0 || err != nil || !s.shared() {
		return ids, err
	}
	w, err := s.lookup(jid)
	return w.Minions, err
}

// Returns implements runners.Jobs.
func (s *sharedJobs) Returns(jid string) (map[string]*value.Dict, error) {
	returns, err := s.Store.Returns(jid)
	if err != nil || !s.shared() {
		return returns, err
	}
	w, err := s.lookup(jid)
	for id, ret := range w.Returns {
		if returns[id] == nil {
			returns[id] = ret
		}
	}
	return returns, err
}

// List implements runners.Jobs.
func (s *sharedJobs) List(f job.Filter) ([]*job.Job, error) {
	jobs, err := s.Store.List(f)
	if err != nil || !s.shared() {
		return jobs, err
	}
	others, err := s.files.List(f)
	if err != nil {
		return nil, err
	}
	known := map[string]*job.Job{}
	for _, j := range jobs {
		known[j.JID] = j
	}
	for _, j := range others {
		if own := known[j.JID]; own != nil {
			if f.Returned {
				own.Returned = slices.Compact(slices.Sorted(slices.Values(append(own.Returned, j.Returned...))))
			}
			continue
		}
		jobs = append(jobs, j)
	}
	slices.SortStableFunc(jobs, func(a, b *job.Job) int {
		if f.Oldest {
			return strings.Compare(a.JID, b.JID)
		}
		return strings.Compare(b.JID, a.JID)
	})
	if f.Limit > 0 && len(jobs) > f.Limit {
		jobs = jobs[:f.Limit]
	}
	return jobs, nil
}
