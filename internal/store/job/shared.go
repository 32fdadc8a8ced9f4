package job

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Shared is the job cache of a cluster with a shared directory: LocalCache's files, used by several
// masters, Brine's and Salt's. A change by one is immediately visible to all, and no job is lost
// when a master dies.
//
// Besides Salt's files there is CACHEDIR/brine/queue/UNTIL.JID for each job that is queued for
// disconnected minions. It contains the id of the master that published the job.
type Shared struct {
	c      *LocalCache
	o      Options
	id     string
	log    *slog.Logger
	now    func() time.Time
	steady *steady.Clock
	// marks and speakers are directories that only Brine uses.
	marks, speakers string

	mu    sync.Mutex
	names map[string]string // job ids by directory; the mapping never changes

	ops     chan sharedReturn
	waiting atomic.Int64
	enter   sync.RWMutex // held for reading while sending to ops
	leaving bool
	workers sync.WaitGroup
	conflict
}

// stockKept are the fields of a return that stock masters store and show.
var stockKept = []string{"return", "retcode", "success"}

type sharedReturn struct {
	*op
	done func(dup bool, err error)
}

// sharedWorkers is the number of concurrent writers of returns. Each waits for the disk, and one
// flush serves all that wait.
const sharedWorkers = 32

// maxNames bounds the number of cached job ids.
const maxNames = 200_000

// OpenShared opens the jobs in a cachedir that the masters of a cluster share. id is that of this master,
// hashType as in NewLocalCache.
func OpenShared(cachedir, id, hashType string, o Options, log *slog.Logger) (*Shared, error) {
	c, err := NewLocalCache(cachedir, hashType)
	if err != nil {
		return nil, err
	}
	s := &Shared{c: c, o: o, id: id, log: log, now: time.Now, marks: filepath.Join(cachedir, "brine", "queue"),
		speakers: filepath.Join(cachedir, "brine", "speakers"),
		names:    map[string]string{}, ops: make(chan sharedReturn, maxQueue)}
	s.steady = steady.New(func() time.Time { return s.now() })
	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{{c.dir, dirMode}, {s.marks, 0o700}, {s.speakers, 0o700}} {
		if err := atomicfile.MkdirAll(d.path, d.mode); err != nil {
			return nil, salt.Errorf(salt.Unavailable, "cannot create a directory for jobs: %w", err)
		}
	}
	if err := c.Protect(); err != nil {
		log.Warn("job directory is readable by other users", "err", err)
	}
	for range sharedWorkers {
		s.workers.Go(s.write)
	}
	return s, nil
}

// Close waits until queued returns are stored. Later calls fail.
func (s *Shared) Close() error {
	s.enter.Lock()
	if !s.leaving {
		s.leaving = true
		close(s.ops)
	}
	s.enter.Unlock()
	s.workers.Wait()
	return nil
}

// NewJobUntil is like Store.NewJobUntil.
func (s *Shared) NewJobUntil(load *value.Dict, minions []string, until time.Time) error {
	jid, err := checkJID(load)
	if err != nil || !s.o.JobCache {
		return err
	}
	loadPath := filepath.Join(s.c.jobDir(jid), ".load.p")
	_, missing := os.Lstat(loadPath)
	err = s.c.writeAgain(jid, []localFile{{".minions.p", value.Strings(minions)}, {".load.p", load}}, true)
	if err == nil && until.After(s.now()) {
		name := strconv.FormatInt(until.UnixMilli(), 10) + "." + jid
		err = atomicfile.Write(filepath.Join(s.marks, name), []byte(s.id), 0o600, true)
	}
	if err != nil {
		if errors.Is(missing, fs.ErrNotExist) { // a refused job is not listed
			err = errors.Join(err, removeFile(loadPath))
		}
		return salt.Errorf(salt.Unavailable, "cannot store job %s: %w", jid, err)
	}
	return nil
}

// removeFile removes a file that may be missing.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ReturnAsync is like Store.ReturnAsync.
func (s *Shared) ReturnAsync(load *value.Dict, done func(duplicate bool, err error)) {
	s.ReturnStartedAsync(load, nil, done)
}

// ReturnStartedAsync is like Store.ReturnStartedAsync.
func (s *Shared) ReturnStartedAsync(load, job *value.Dict, done func(duplicate bool, err error)) {
	o, err := newReturn(load, stockKept)
	if err != nil || !s.o.JobCache {
		done(false, err)
		return
	}
	o.started = job
	s.enter.RLock()
	defer s.enter.RUnlock()
	if s.leaving {
		done(false, salt.Errorf(salt.Unavailable, "the jobs in %s are closed", s.c.dir))
		return
	}
	if s.waiting.Add(o.size()) <= maxWaiting {
		select {
		case s.ops <- sharedReturn{o, func(dup bool, err error) {
			s.waiting.Add(-o.size())
			s.tell(o, dup)
			done(dup, err)
		}}:
			return
		default:
		}
	}
	s.waiting.Add(-o.size())
	done(false, salt.Errorf(salt.Unavailable, "the disk of %s cannot keep up with the returns", s.c.dir))
}

// Put adds the missing parts of a job and keeps existing ones.
func (s *Shared) Put(w *Whole) error { return s.c.Put(w) }

func (s *Shared) write() {
	for r := range s.ops {
		dup, err := s.store(r)
		if errors.Is(err, fs.ErrNotExist) { // another master has just removed the expired job
			dup, err = s.store(r)
		}
		if err != nil {
			err = salt.Errorf(salt.Unavailable, "cannot store the return of %s for job %s: %w", r.id, r.jid, atomicfile.Cause(err))
		}
		r.done(dup, err)
	}
}

// store writes one return. If several masters receive it at the same time, the first one creates the file.
func (s *Shared) store(r sharedReturn) (dup bool, err error) {
	dir := s.c.jobDir(r.jid)
	if _, err := os.Lstat(filepath.Join(dir, "nocache")); err == nil {
		return false, nil
	}
	own := filepath.Join(dir, r.id)
	err = os.Mkdir(own, dirMode)
	if errors.Is(err, fs.ErrNotExist) { // the job is unknown
		load, minions := r.firstLoad()
		files := []localFile{{".load.p", load}}
		if minions != nil {
			files = append(files, localFile{".minions.p", value.Strings(minions)})
		}
		if err := s.c.writeAgain(r.jid, files, true); err != nil {
			return false, err
		}
		err = os.Mkdir(own, dirMode)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	if dup, err = s.storeIn(own, r); err == nil {
		err = cmp.Or(atomicfile.SyncDir(own), atomicfile.SyncDir(dir))
	}
	return dup, err
}

// storeIn writes one return to a directory.
func (s *Shared) storeIn(own string, r sharedReturn) (dup bool, err error) {
	if out, ok := r.raw.Get("out"); ok && out != nil {
		if b, err := msgpack.Marshal(out, msgpack.NewSpec); err == nil {
			if err := atomicfile.Write(filepath.Join(own, "out.p"), b, fileMode, false); err != nil {
				return false, err
			}
		}
	}
	path := filepath.Join(own, "return.p")
	err = createDurably(path, r.ret)
	if !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	// A stock master writes in place, and may have died while writing.
	if b, err := readBytes(path); err == nil {
		if there, err := msgpack.UnmarshalTyped(b); err == nil && there != nil {
			r.differs = !sameResult(there, r.raw)
			// The flush of its writer may not have been tried yet, or have failed. After a failed one the system
			// takes the file for flushed, although it is not on disk: only a new file can be trusted.
			return true, atomicfile.Write(path, b, fileMode, true)
		}
	}
	return false, atomicfile.Write(path, r.ret, fileMode, true)
}

// flush is replaced by tests, to simulate a failing disk.
var flush = (*os.File).Sync

// createDurably creates a file that must not exist (else the error is fs.ErrExist). Readers see its whole
// content or no file. If the flush fails, it is written again and not removed: another master may have found
// it, and confirmed it.
func createDurably(path string, b []byte) error {
	temp := filepath.Join(filepath.Dir(path), atomicfile.TempPrefix+rand.Text())
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	placed := temp
	if _, err = f.Write(b); err == nil {
		if err = atomicfile.Place(temp, path); err == nil {
			placed = path
			err = flush(f) // content and name with one flush
		}
	}
	if e := f.Close(); err == nil {
		err = e
	}
	switch {
	case err == nil:
	case placed == path:
		return atomicfile.Write(path, b, fileMode, true)
	default:
		os.Remove(temp)
	}
	return err
}

// Load is like Store.Load.
func (s *Shared) Load(jid string) (*value.Dict, error) {
	j, err := s.job(jid)
	if j == nil || err != nil {
		return nil, err
	}
	return j.Load, nil
}

// AddMinions adds ids to the minions of a job. As for Salt, which names such files after syndics,
// each call has a file of its own.
func (s *Shared) AddMinions(jid string, ids []string) error {
	if !salt.ValidJID(jid) {
		return salt.Errorf(salt.Invalid, "%.80q is not a job id", jid)
	}
	if !s.o.JobCache || len(ids) == 0 {
		return nil
	}
	ids = slices.Sorted(slices.Values(ids))
	sum := sha256.Sum256([]byte(strings.Join(ids, "\n")))
	name := ".minions." + hex.EncodeToString(sum[:8]) + ".p"
	if err := s.c.writeAgain(jid, []localFile{{name, value.Strings(ids)}}, true); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot write the minions of job %s: %w", jid, atomicfile.Cause(err))
	}
	return nil
}

// Minions is like Store.Minions.
func (s *Shared) Minions(jid string) ([]string, error) {
	j, err := s.job(jid)
	if j == nil || err != nil {
		return nil, err
	}
	return j.Minions, nil
}

func (s *Shared) job(jid string) (*Job, error) {
	if !salt.ValidJID(jid) {
		return nil, nil
	}
	return readLoad(s.c.jobDir(jid))
}

// Returns is like Store.Returns.
func (s *Shared) Returns(jid string) (map[string]*value.Dict, error) {
	out := map[string]*value.Dict{}
	if !salt.ValidJID(jid) {
		return out, nil
	}
	dir := s.c.jobDir(jid)
	for _, id := range returnedIn(dir) {
		if ret := readReturn(filepath.Join(dir, id)); ret != nil {
			out[id] = ret
		}
	}
	return out, nil
}

// Returned reports whether a minion has returned for a job.
func (s *Shared) Returned(jid, id string) bool {
	if !salt.ValidJID(jid) || salt.CheckID(id) != nil {
		return false
	}
	_, err := os.Lstat(filepath.Join(s.c.jobDir(jid), id, "return.p"))
	return err == nil
}

// returnedIn returns the minions with a return in a job's directory, sorted.
func returnedIn(dir string) (ids []string) {
	entries, _ := os.ReadDir(dir) // unreadable entries count as absent
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, e.Name(), "return.p")); err == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids
}

// jids returns the directories of all jobs by job id.
func (s *Shared) jids() (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	err := s.c.eachDir(func(dir string) bool {
		jid := s.names[dir]
		if jid == "" {
			b, err := os.ReadFile(filepath.Join(dir, "jid"))
			if jid = string(b); err != nil || !salt.ValidJID(jid) {
				return true
			}
			if len(s.names) >= maxNames {
				clear(s.names)
			}
			s.names[dir] = jid
		}
		out[jid] = dir
		return true
	})
	return out, err
}

// List returns jobs in the order of their ids.
func (s *Shared) List(f Filter) ([]*Job, error) {
	dirs, err := s.jids()
	if err != nil {
		return nil, err
	}
	return listDirs(dirs, f), nil
}

// listDirs returns the jobs that f selects from dirs, which maps job ids to directories: the newest
// first, or the oldest first if f.Oldest is set.
func listDirs(dirs map[string]string, f Filter) []*Job {
	since := ""
	if !f.Since.IsZero() {
		since = string(hourName(f.Since))
	}
	order := slices.Sorted(maps.Keys(dirs))
	if !f.Oldest {
		slices.Reverse(order)
	}
	var jobs []*Job
	for _, jid := range order {
		if f.After != "" && jid <= f.After || f.Before != "" && jid >= f.Before || jid < since {
			continue
		}
		j, err := readLoad(dirs[jid])
		if err != nil || j == nil {
			continue // just removed, or incomplete
		}
		j.JID = jid
		if f.Returned {
			j.Returned = returnedIn(dirs[jid])
		}
		if f.Keep != nil && !f.Keep(j) {
			continue
		}
		jobs = append(jobs, j)
		if f.Limit > 0 && len(jobs) >= f.Limit {
			break
		}
	}
	return jobs
}

// Queued is like Store.Queued.
func (s *Shared) Queued(now time.Time, limit int) ([]Queued, error) {
	return s.QueuedBut(now, limit, func(string) bool { return false })
}

// QueuedBut is Queued without the jobs known to the caller. It is cheap if all are known.
func (s *Shared) QueuedBut(now time.Time, limit int, known func(jid string) bool) ([]Queued, error) {
	entries, err := os.ReadDir(s.marks)
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot list the jobs that wait for minions: %w", err)
	}
	var out []Queued
	for _, e := range entries {
		if len(out) >= limit {
			break
		}
		until, jid, ok := readMark(e.Name())
		if !ok || !until.After(now.Add(-RememberFor)) || known(jid) {
			continue
		}
		from, err := os.ReadFile(filepath.Join(s.marks, e.Name()))
		if err != nil {
			continue
		}
		j, err := s.job(jid)
		if err != nil || j == nil {
			continue
		}
		j.JID, j.Returned = jid, returnedIn(s.c.jobDir(jid))
		at := until
		if info, err := e.Info(); err == nil {
			at = info.ModTime()
		}
		// The clock of the file server may be ahead of the masters' clocks. Then a minion that
		// signed in after the publication would seem to have signed in before it.
		if made, err := salt.JIDTime(jid); err == nil && made.Before(at) {
			at = made
		}
		out = append(out, Queued{Job: *j, At: at, Until: until, From: string(bytes.TrimSpace(from))})
	}
	slices.SortStableFunc(out, func(a, b Queued) int { return a.At.Compare(b.At) })
	return out, nil
}

func readMark(name string) (until time.Time, jid string, ok bool) {
	ms, jid, ok := strings.Cut(name, ".")
	n, err := strconv.ParseInt(ms, 10, 64)
	return time.UnixMilli(n), jid, ok && err == nil && salt.ValidJID(jid)
}

// ReturnedBy is like Store.ReturnedBy.
func (s *Shared) ReturnedBy(jid string) ([]string, error) { return returnedIn(s.c.jobDir(jid)), nil }

// Note is like Store.Note. It stores which minions request missed jobs, in a file for each. The
// masters send each other the remaining state of jobs.
func (s *Shared) Note(n Notes) error {
	for _, id := range slices.Sorted(maps.Keys(n.Speakers)) {
		if salt.CheckID(id) != nil {
			continue
		}
		speaks := n.Speakers[id]
		path := filepath.Join(s.speakers, id)
		err := os.Remove(path)
		if speaks {
			err = atomicfile.Write(path, nil, 0o600, false)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return salt.Errorf(salt.Unavailable, "cannot record that minion %s requests missed jobs: %w", id, atomicfile.Cause(err))
		}
	}
	return nil
}

// Speakers is like Store.Speakers.
func (s *Shared) Speakers() (ids []string, err error) {
	entries, err := os.ReadDir(s.speakers)
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot list the minions that request missed jobs: %w", err)
	}
	for _, e := range entries {
		if salt.CheckID(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// Prune removes expired jobs and returns their number. It is enough that one master of a cluster
// calls it.
func (s *Shared) Prune() (int, error) {
	now := s.steady.Removal()
	entries, _ := os.ReadDir(s.marks)
	for _, e := range entries {
		if until, _, ok := readMark(e.Name()); ok && until.Before(now.Add(-RememberFor)) {
			os.Remove(filepath.Join(s.marks, e.Name()))
		}
	}
	return s.c.Prune(s.o.Keep(), now)
}

// Probe writes a file of this master beside the queue, and returns an error if that fails.
func (s *Shared) Probe() error {
	path := filepath.Join(filepath.Dir(s.marks), "probe."+s.id)
	if err := atomicfile.Write(path, []byte(s.now().UTC().Format(time.RFC3339)+"\n"), 0o600, true); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot write the job cache: %w", err)
	}
	return nil
}
