package job

import (
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

// LocalCache is Salt's own store of jobs, local_cache: with h the hex digest
// of the jid, the folder CACHEDIR/jobs/h[:2]/h[2:] has the files
//
//	jid                the job id as text
//	.load.p            the load that was published
//	.minions.p         the array of minions it was meant for
//	.minions.SYNDIC.p  the same from a syndic
//	ID/return.p        {return, retcode, success} of one minion
//	ID/out.p           the outputter it asked for
//
// with new-spec msgpack in those named .p. The salt command reads the load of
// its job from there.
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

// The modes of what is in CACHEDIR/jobs. Arguments and results of jobs may hold
// secrets; Salt's programs that read them run as the master's user.
const (
	dirMode  = 0o750
	fileMode = 0o600
)

// Protect narrows the mode of the directory of all jobs, which may have been
// made by an earlier version or by Salt.
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

// WriteLoad writes the load of a job and, unless nil, the ids it is meant for.
func (c *LocalCache) WriteLoad(jid string, load *value.Dict, minions []string) error {
	if !salt.ValidJID(jid) {
		return salt.Errorf(salt.Invalid, "%.80q is not a job id", jid)
	}
	files := []localFile{{".load.p", load}}
	if minions != nil {
		files = append(files, localFile{".minions.p", value.Strings(minions)})
	}
	if err := c.writeAgain(jid, files, false); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot write the job %s for the salt command: %w", jid, err)
	}
	return nil
}

// writeAgain is writeFiles, twice if Prune has just removed the folder above.
func (c *LocalCache) writeAgain(jid string, files []localFile, durable bool) error {
	err := c.writeFiles(jid, files, durable)
	if errors.Is(err, fs.ErrNotExist) {
		err = c.writeFiles(jid, files, durable)
	}
	return err
}

// writeFiles writes the files of a job; with durable the disk has them after.
func (c *LocalCache) writeFiles(jid string, files []localFile, durable bool) error {
	dir := c.jobDir(jid)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	if err := writeEach(dir, files, durable); err != nil {
		return err
	}
	// Last: a directory without it is what cleaning up takes for a ruin.
	return atomicfile.Write(filepath.Join(dir, "jid"), []byte(jid), fileMode, durable)
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

// WriteReturn writes what a minion returned (return, retcode, success and out of
// its load) beside the load of the job. A crash may lose it.
func (c *LocalCache) WriteReturn(jid, id string, load *value.Dict) error {
	if !salt.ValidJID(jid) {
		return salt.Errorf(salt.Invalid, "%.80q is not a job id", jid)
	}
	if err := salt.CheckID(id); err != nil {
		return salt.Errorf(salt.Invalid, "the return cannot be written: %w", err)
	}
	files := []localFile{{filepath.Join(id, "return.p"), picked(load, stockKept)}}
	if out := load.At("out"); out != nil {
		files = append([]localFile{{filepath.Join(id, "out.p"), out}}, files...)
	}
	if err := c.writeReturn(jid, id, files); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot write the return of %s for the job %s: %w", id, jid, atomicfile.Cause(err))
	}
	return nil
}

func (c *LocalCache) writeReturn(jid, id string, files []localFile) error {
	dir := c.jobDir(jid)
	err := os.Mkdir(filepath.Join(dir, id), dirMode)
	if errors.Is(err, fs.ErrNotExist) { // nothing is known of the job, or it was removed
		if err = c.writeAgain(jid, nil, false); err == nil {
			err = os.Mkdir(filepath.Join(dir, id), dirMode)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return writeEach(dir, files, false)
}

// picked returns the entries of d with these keys, as far as there are some.
func picked(d *value.Dict, keys []string) *value.Dict {
	out := value.NewDict(len(keys))
	for _, k := range keys {
		if v, ok := d.Get(k); ok {
			out.Set(k, v)
		}
	}
	return out
}

// Whole is a job with what came back.
type Whole struct {
	Job
	// Returns are what the minions returned: dicts with return and what else
	// there is of retcode, success and out.
	Returns map[string]*value.Dict
}

// Lookup returns a job with its returns, or nil if it is not there. Files that
// cannot be read are left out.
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
		return nil, salt.Errorf(salt.Unavailable, "cannot read the job %s: %w", jid, err)
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

// Put adds what is not there yet of a job, and leaves what is. Salt's and
// Brine's masters see the job when all of it is there. The disk has it after.
func (c *LocalCache) Put(w *Whole) error {
	if !salt.ValidJID(w.JID) {
		return salt.Errorf(salt.Invalid, "%.80q is not a job id", w.JID)
	}
	err := c.put(w)
	if errors.Is(err, fs.ErrNotExist) { // Prune has just removed the folder above
		err = c.put(w)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot write the job %s: %w", w.JID, atomicfile.Cause(err))
	}
	return nil
}

func (c *LocalCache) put(w *Whole) error {
	dir := c.jobDir(w.JID)
	if err := os.MkdirAll(dir, dirMode); err != nil {
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
	return err
}

// readLoad returns the load and minions in a job's folder, or nil.
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
	if !ok || !ret.Has("return") { // the form of old versions: only the value
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
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, salt.Errorf(salt.Invalid, "%s is not a file or too large", path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return msgpack.UnmarshalTyped(b)
}

// Jobs calls fn with the loads and minions of all jobs, in no order, until it
// says false. What cannot be read is left out.
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

// eachDir calls fn with the folder of every job until it says false.
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
		jobs, _ := os.ReadDir(path) // may be gone by now
		for _, j := range jobs {
			if j.IsDir() && !fn(filepath.Join(path, j.Name())) {
				return nil
			}
		}
	}
	return nil
}

// Prune removes the jobs written longer ago than keep, and returns how many.
// A keep of 0 or less removes nothing.
func (c *LocalCache) Prune(keep time.Duration, now time.Time) (removed int, err error) {
	if keep <= 0 {
		return 0, nil
	}
	var failed error
	err = c.eachDir(func(dir string) bool {
		// The file jid is written once, the folder changes with every return.
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
		os.Remove(filepath.Dir(dir)) // if it is empty now
		return true
	})
	return removed, errors.Join(err, failed)
}
