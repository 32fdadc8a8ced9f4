package job

import (
	"cmp"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"hash"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// LocalCache is Salt's own job cache, local_cache. With h the hex digest of the jid, the directory
// CACHEDIR/jobs/h[:2]/h[2:] has the files
//
//	jid                the job id as text
//	.load.p            the published load
//	.minions.p         the array of targeted minions
//	.minions.SYNDIC.p  the same from a syndic
//	ID/return.p        {return, retcode, success} of one minion
//	ID/out.p           the outputter that it requested
//
// The files named .p are new-spec msgpack. The salt command reads the load of its job from there.
type LocalCache struct {
	dir     string
	newHash func() hash.Hash
}

var hashes = map[string]func() hash.Hash{
	"": sha256.New, "sha256": sha256.New, "md5": md5.New, "sha1": sha1.New,
	"sha224": sha256.New224, "sha384": sha512.New384, "sha512": sha512.New,
}

// NewLocalCache returns the jobs in a cachedir. hashType is the option
// hash_type, "" meaning sha256.
func NewLocalCache(cachedir, hashType string) (*LocalCache, error) {
	h, ok := hashes[hashType]
	if !ok {
		return nil, salt.Errorf(salt.Invalid, "unknown hash_type %q", hashType)
	}
	return &LocalCache{dir: filepath.Join(cachedir, "jobs"), newHash: h}, nil
}

func (c *LocalCache) jobDir(jid string) string {
	h := c.newHash()
	h.Write([]byte(jid))
	name := hex.EncodeToString(h.Sum(nil))
	return filepath.Join(c.dir, name[:2], name[2:])
}

// Modes of files and directories in CACHEDIR/jobs. Arguments and results of jobs may contain
// secrets; Salt's programs that read them run as the master's user.
const (
	dirMode  = 0o750
	fileMode = 0o600
)

// Protect restricts the mode of the directory of all jobs, which an earlier version or Salt may
// have created.
func (c *LocalCache) Protect() error {
	info, err := os.Stat(c.dir)
	if err == nil && info.Mode().Perm()&^dirMode != 0 {
		err = os.Chmod(c.dir, info.Mode().Perm()&dirMode)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return salt.Errorf(salt.Unavailable, "cannot keep other users out of the jobs in %s: %w", c.dir, atomicfile.Cause(err))
	}
	return nil
}

type localFile struct {
	name string
	v    any
}

// WriteLoad writes the load of a job and, unless nil, the ids of its minions.
func (c *LocalCache) WriteLoad(jid string, load *value.Dict, minions []string) error {
	if !salt.ValidJID(jid) {
		return salt.Errorf(salt.Invalid, "%.80q is not a job id", jid)
	}
	files := []localFile{{".load.p", load}}
	if minions != nil {
		files = append(files, localFile{".minions.p", value.Strings(minions)})
	}
	if err := c.writeAgain(jid, files, false); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot write job %s for the salt command: %w", jid, err)
	}
	return nil
}

// writeAgain is writeFiles, repeated once if Prune has just removed the parent directory.
func (c *LocalCache) writeAgain(jid string, files []localFile, durable bool) error {
	err := c.writeFiles(jid, files, durable)
	if errors.Is(err, fs.ErrNotExist) {
		err = c.writeFiles(jid, files, durable)
	}
	return err
}

// writeFiles writes the files of a job; if durable, it syncs them.
func (c *LocalCache) writeFiles(jid string, files []localFile, durable bool) error {
	dir := c.jobDir(jid)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	if err := writeEach(dir, files, durable); err != nil {
		return err
	}
	// The file jid is written last, since a directory without it looks incomplete to cleaners.
	err := atomicfile.Write(filepath.Join(dir, "jid"), []byte(jid), fileMode, durable)
	if err == nil && durable {
		err = c.syncNames(dir)
	}
	return err
}

// syncNames makes the names of a job's directory and of its parent durable, whichever process made them.
func (c *LocalCache) syncNames(dir string) error {
	return cmp.Or(atomicfile.SyncDir(filepath.Dir(dir)), atomicfile.SyncDir(c.dir))
}

func writeEach(dir string, files []localFile, durable bool) error {
	for _, f := range files {
		b, err := msgpack.Marshal(f.v, msgpack.NewSpec)
		if err == nil {
			err = atomicfile.Write(filepath.Join(dir, f.name), b, fileMode, durable)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// WriteReturn writes the return, retcode, success and out of a minion's return beside the load of the job. A
// crash may lose it.
func (c *LocalCache) WriteReturn(jid, id string, load *value.Dict) error {
	if !salt.ValidJID(jid) {
		return salt.Errorf(salt.Invalid, "%.80q is not a job id", jid)
	}
	if err := salt.CheckID(id); err != nil {
		return salt.Errorf(salt.Invalid, "cannot write the return: %w", err)
	}
	files := []localFile{{filepath.Join(id, "return.p"), picked(load, stockKept)}}
	if out := load.At("out"); out != nil {
		files = append([]localFile{{filepath.Join(id, "out.p"), out}}, files...)
	}
	if err := c.writeReturn(jid, id, files); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot write the return of %s for job %s: %w", id, jid, atomicfile.Cause(err))
	}
	return nil
}

func (c *LocalCache) writeReturn(jid, id string, files []localFile) error {
	dir := c.jobDir(jid)
	err := os.Mkdir(filepath.Join(dir, id), dirMode)
	if errors.Is(err, fs.ErrNotExist) { // the job is unknown or was removed
		if err = c.writeAgain(jid, nil, false); err == nil {
			err = os.Mkdir(filepath.Join(dir, id), dirMode)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return writeEach(dir, files, false)
}

// picked returns the entries of d with these keys; missing ones are left out.
func picked(d *value.Dict, keys []string) *value.Dict {
	out := value.NewDict(len(keys))
	for _, k := range keys {
		if v, ok := d.Get(k); ok {
			out.Set(k, v)
		}
	}
	return out
}

// Whole is a job with its returns.
type Whole struct {
	Job
	// Returns are dicts with return and, if known, retcode, success and out.
	Returns map[string]*value.Dict
}

// Lookup returns a job with its returns, or nil if it does not exist. Unreadable files are left out.
func (c *LocalCache) Lookup(jid string) (*Whole, error) {
	dir := c.jobDir(jid)
	j, err := readLoad(dir)
	if j == nil || err != nil {
		return nil, err
	}
	j.JID = jid
	out := &Whole{Job: *j, Returns: map[string]*value.Dict{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot read job %s: %w", jid, err)
	}
	for _, e := range entries {
		id := e.Name()
		if !e.IsDir() || strings.HasPrefix(id, ".") {
			continue
		}
		if ret := readReturn(filepath.Join(dir, id)); ret != nil {
			out.Returns[id] = ret
			out.Returned = append(out.Returned, id)
		}
	}
	return out, nil
}

// Put adds the missing parts of a job and keeps existing ones. Other masters see the job once it is complete.
// When Put returns, the job is on disk.
func (c *LocalCache) Put(w *Whole) error {
	if !salt.ValidJID(w.JID) {
		return salt.Errorf(salt.Invalid, "%.80q is not a job id", w.JID)
	}
	err := c.put(w)
	if errors.Is(err, fs.ErrNotExist) { // Prune has just removed the parent directory
		err = c.put(w)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot write job %s: %w", w.JID, atomicfile.Cause(err))
	}
	return nil
}

func (c *LocalCache) put(w *Whole) error {
	dir := c.jobDir(w.JID)
	if err := atomicfile.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	add := func(name string, v any) error {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			return nil
		}
		b, err := msgpack.Marshal(v, msgpack.NewSpec)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
			return err
		}
		if err := atomicfile.Create(path, b, fileMode); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(w.Returns)) {
		ret := w.Returns[id]
		if err := salt.CheckID(id); err != nil {
			return err
		}
		if out := ret.At("out"); out != nil {
			if err := add(filepath.Join(id, "out.p"), out); err != nil {
				return err
			}
		}
		if err := add(filepath.Join(id, "return.p"), picked(ret, stockKept)); err != nil {
			return err
		}
	}
	if w.Minions != nil {
		if err := add(".minions.p", value.Strings(w.Minions)); err != nil {
			return err
		}
	}
	err := atomicfile.Create(filepath.Join(dir, "jid"), []byte(w.JID), fileMode)
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = add(".load.p", w.Load)
	}
	if err == nil {
		err = cmp.Or(atomicfile.SyncDir(dir), c.syncNames(dir))
	}
	return err
}

// readLoad returns the load and minions in a job's directory, or nil.
func readLoad(dir string) (*Job, error) {
	v, err := readFile(filepath.Join(dir, ".load.p"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot read a job: %w", err)
	}
	j := &Job{}
	if j.Load, _ = v.(*value.Dict); j.Load == nil {
		return nil, nil
	}
	names, _ := filepath.Glob(filepath.Join(dir, ".minions*.p"))
	for _, name := range names {
		v, _ := readFile(name)
		if l, ok := v.(*value.List); ok {
			for _, it := range l.Items {
				j.Minions = append(j.Minions, value.Str(it))
			}
		}
	}
	slices.Sort(j.Minions)
	j.Minions = slices.Compact(j.Minions)
	return j, nil
}

func readReturn(dir string) *value.Dict {
	v, err := readFile(filepath.Join(dir, "return.p"))
	if err != nil {
		return nil
	}
	ret, ok := v.(*value.Dict)
	if !ok || !ret.Has("return") { // old format: only the value
		ret = value.NewDict(2)
		ret.Set("return", v)
	}
	if out, err := readFile(filepath.Join(dir, "out.p")); err == nil {
		ret.Set("out", out)
	}
	return ret
}

// maxFile bounds a file in bytes.
const maxFile = 100 << 20

func readFile(path string) (any, error) {
	b, err := readBytes(path)
	if err != nil {
		return nil, err
	}
	return msgpack.UnmarshalTyped(b)
}

func readBytes(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, salt.Errorf(salt.Invalid, "%s is not a file or too large", path)
	}
	return os.ReadFile(path)
}

// Jobs calls fn with the loads and minions of all jobs, in no order, until it returns false. Unreadable jobs
// are left out.
func (c *LocalCache) Jobs(fn func(*Job) bool) error {
	more := true
	return c.eachDir(func(dir string) bool {
		j, err := readLoad(dir)
		if err == nil && j != nil {
			j.JID = j.Load.Str("jid")
			if b, err := os.ReadFile(filepath.Join(dir, "jid")); err == nil && salt.ValidJID(string(b)) {
				j.JID = string(b)
			}
			more = fn(j)
		}
		return more
	})
}

// List returns jobs in the order of their ids. Unreadable jobs are left out.
func (c *LocalCache) List(f Filter) ([]*Job, error) {
	dirs := map[string]string{}
	err := c.eachDir(func(dir string) bool {
		if b, err := os.ReadFile(filepath.Join(dir, "jid")); err == nil && salt.ValidJID(string(b)) {
			dirs[string(b)] = dir
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	return listDirs(dirs, f), nil
}

// eachDir calls fn with the directory of every job until it returns false.
func (c *LocalCache) eachDir(fn func(dir string) bool) error {
	tops, err := os.ReadDir(c.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return salt.Errorf(salt.Unavailable, "cannot list the jobs of Salt: %w", err)
	}
	for _, top := range tops {
		if len(top.Name()) != 2 || !top.IsDir() {
			continue
		}
		path := filepath.Join(c.dir, top.Name())
		jobs, _ := os.ReadDir(path) // may have been removed meanwhile
		for _, j := range jobs {
			if j.IsDir() && !fn(filepath.Join(path, j.Name())) {
				return nil
			}
		}
	}
	return nil
}

// Prune removes the jobs written longer ago than keep, and returns their number. A keep of 0 or less removes
// nothing.
func (c *LocalCache) Prune(keep time.Duration, now time.Time) (removed int, err error) {
	if keep <= 0 {
		return 0, nil
	}
	var failed error
	err = c.eachDir(func(dir string) bool {
		// The file jid is written once; the directory changes with every return.
		info, err := os.Stat(filepath.Join(dir, "jid"))
		if errors.Is(err, fs.ErrNotExist) {
			info, err = os.Stat(dir)
		}
		if err != nil || now.Sub(info.ModTime()) <= keep {
			return true
		}
		if err := os.RemoveAll(dir); err != nil {
			failed = salt.Errorf(salt.Unavailable, "cannot remove an old job of Salt: %w", err)
			return true
		}
		removed++
		os.Remove(filepath.Dir(dir)) // only succeeds if it is empty now
		return true
	})
	return removed, errors.Join(err, failed)
}
