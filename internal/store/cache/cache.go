// Package cache stores values on disk in banks, in the layout of Salt's cache localfs:
// CACHEDIR/BANK/KEY.p holds one value as new-spec msgpack, mode 0600. A bank is a path of words,
// such as minions/web1.
//
// With a Driver the values are in a store that several masters share. The directory, then
// CACHEDIR/brine/cache, is a copy of what this master has read from the store. Reads are answered
// from the copy, which is refreshed first if the store can be reached. Changes go to the copy and
// from there to the store, as soon as it can be reached.
//
// Minion data is in the bank minions/ID: key data is {grains, pillar} as of the minion's last
// pillar, key mine the mine data that it published. Minions supply both the content and the names,
// so every name is checked and cannot lead out of the directory.
//
// It is a cache: writing replaces a file as a whole, but does not wait for the disk. A damaged file
// counts as absent if the caller can do without it.
package cache

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Options select the store of the cache and its content.
type Options struct {
	Driver   string        `salt:"cache"                   default:"localfs" doc:"store of minion data: localfs, redis, etcd, consul, mysql, postgres"              change:"restart"`
	Expire   time.Duration `salt:"memcache_expire_seconds" default:"0"       doc:"seconds for which a value read from a shared cache is not read again; for grains, pillar and mine at least 1" change:"restart"`
	MaxItems int           `salt:"memcache_max_items"      default:"1024"    doc:"maximum number of values of a shared cache that are not read again"                                         change:"restart"`
	Cleanup  bool          `salt:"memcache_full_cleanup"   default:"false"   doc:"above this number, forget all expired values, not only the oldest"                      change:"restart"`
	Debug    bool          `salt:"memcache_debug"          default:"false"   doc:"log how often the shared cache need not be read"                                                            change:"restart"`
	Timeout  time.Duration `salt:"cache_timeout"           default:"2" least:"0"       doc:"seconds to wait for the server of a shared cache before it counts as unreachable (Brine only)"                 change:"restart"`

	MinionDataCache  bool `salt:"minion_data_cache"        default:"true" doc:"keep the grains and pillar of minions, to target by them"                                             change:"restart"`
	MinionDataMemory int  `salt:"minion_data_cache_memory" default:"64"   doc:"MiB of minion data, as on disk, to hold decoded in memory; it takes about six times as much there" change:"restart"`
}

// maxFile bounds a file in bytes.
const maxFile = 100 << 20

const suffix = ".p"

// Cache is the banks in one directory. It is safe for concurrent use by goroutines and processes.
type Cache struct {
	dir string
	o   Options
	log *slog.Logger

	shared *shared // nil without a driver
	// changed, if not nil, is called after each Store and Flush.
	changed func(bank, key string)

	mu      sync.RWMutex
	minions map[string]minionEntry
	bytes   int64 // of the files in minions
}

// Local is the value of the option cache for files only, without a shared store.
const Local = "localfs"

// New returns the cache in cachedir, which need not exist yet. If the options select a shared
// store, it returns the local copy of that, which must only be read.
func New(cachedir string, o Options, log *slog.Logger) *Cache {
	if o.Driver != "" && o.Driver != Local {
		cachedir = filepath.Join(cachedir, "brine", "cache")
	}
	return &Cache{dir: cachedir, o: o, log: log, minions: map[string]minionEntry{}}
}

// OnChange registers fn, which is called after each Store and Flush; key is "" after the Flush of a
// whole bank. Call OnChange before the cache is used.
func (c *Cache) OnChange(fn func(bank, key string)) { c.changed = fn }

func (c *Cache) notify(bank, key string) {
	if c.changed != nil {
		c.changed(bank, key)
	}
}

// checkName refuses names that cannot be a single file name.
func checkName(what, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00\n") || strings.HasPrefix(name, atomicfile.TempPrefix) {
		return salt.Errorf(salt.Invalid, "%q cannot name a cache %s", name, what)
	}
	return nil
}

func (c *Cache) bank(bank string) (string, error) {
	for part := range strings.SplitSeq(bank, "/") {
		if err := checkName("bank", part); err != nil {
			return "", err
		}
	}
	return filepath.Join(c.dir, bank), nil
}

func (c *Cache) file(bank, key string) (string, error) {
	dir, err := c.bank(bank)
	if err == nil {
		err = checkName("key", key)
	}
	return filepath.Join(dir, key+suffix), err
}

// Store stores v under key.
func (c *Cache) Store(bank, key string, v any) error {
	path, err := c.file(bank, key)
	if err != nil {
		return err
	}
	b, err := msgpack.Marshal(v, msgpack.NewSpec)
	if err != nil {
		return salt.Errorf(salt.Invalid, "cannot cache %s of %s: %w", key, bank, err)
	}
	if c.shared != nil {
		err = c.shared.change(bank, key, func() error { return c.write(bank, path, b) })
	} else {
		err = c.write(bank, path, b)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot cache %s of %s: %w", key, bank, err)
	}
	c.notify(bank, key)
	return nil
}

// write replaces a file.
func (c *Cache) write(bank, path string, b []byte) error {
	err := atomicfile.Write(path, b, 0o600, false)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o750); err == nil {
			err = atomicfile.Write(path, b, 0o600, false)
		}
	}
	if id, ok := strings.CutPrefix(bank, minionBank); ok {
		c.forget(id)
	}
	return err
}

// Fetch returns the value of key. ok is false if there is none. A damaged file is an error of kind Invalid.
func (c *Cache) Fetch(bank, key string) (v any, ok bool, err error) {
	path, err := c.file(bank, key)
	if err != nil {
		return nil, false, err
	}
	if c.shared != nil {
		c.shared.refresh(bank, key)
	}
	v, _, err = read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return v, err == nil, err
}

// read returns the value in a file. The error matches fs.ErrNotExist if there is no such file.
func read(path string) (any, fs.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, salt.Errorf(salt.Unavailable, "cannot read the cache: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fs.ErrNotExist
	case info.Size() > maxFile:
		err = fmt.Errorf("larger than %d bytes", maxFile)
	}
	var b []byte
	if err == nil {
		b = make([]byte, info.Size())
		_, err = io.ReadFull(f, b)
	}
	if err != nil {
		return nil, nil, salt.Errorf(salt.Unavailable, "cannot read the cache file %s: %w", path, err)
	}
	v, err := msgpack.UnmarshalTyped(b)
	if err != nil {
		return nil, nil, salt.Errorf(salt.Invalid, "the cache file %s is damaged, remove it: %w", path, err)
	}
	return v, info, nil
}

// Contains reports whether key has a value; with key "", whether the bank exists.
func (c *Cache) Contains(bank, key string) bool {
	path, err := c.bank(bank)
	if key != "" {
		path, err = c.file(bank, key)
	}
	if err != nil {
		return false
	}
	if c.shared != nil {
		if key == "" {
			names, err := c.List(bank)
			return err == nil && len(names) > 0
		}
		c.shared.refresh(bank, key)
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir() == (key == "")
}

// Flush removes a key, or with key "" the bank and all banks below it. It reports whether anything was
// removed.
func (c *Cache) Flush(bank, key string) (bool, error) {
	path, err := c.bank(bank)
	if key != "" {
		path, err = c.file(bank, key)
	}
	if err != nil {
		return false, err
	}
	if !c.Contains(bank, key) {
		return false, nil
	}
	if c.shared != nil {
		err = c.shared.change(bank, key, func() error { return c.remove(bank, key, path) })
	} else {
		err = c.remove(bank, key, path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, salt.Errorf(salt.Unavailable, "cannot flush the cache: %w", err)
	}
	c.notify(bank, key)
	return true, nil
}

// remove deletes a file, or with key "" a directory.
func (c *Cache) remove(bank, key, path string) (err error) {
	if key == "" {
		err = os.RemoveAll(path)
	} else {
		err = os.Remove(path)
	}
	id, ok := strings.CutPrefix(bank, minionBank)
	switch {
	case ok:
		c.forget(id)
	case bank+"/" == minionBank:
		c.forgetAll()
	}
	return err
}

// List returns the names in a bank, keys and banks below it, sorted.
func (c *Cache) List(bank string) ([]string, error) {
	dir, err := c.bank(bank)
	if err != nil {
		return nil, err
	}
	if c.shared != nil {
		if names, ok := c.shared.list(bank); ok {
			return names, nil
		}
	}
	return listDir(dir)
}

func listDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, salt.Errorf(salt.Unavailable, "cannot list the cache: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), atomicfile.TempPrefix) {
			names = append(names, strings.TrimSuffix(e.Name(), suffix))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

const (
	minionBank = "minions/"
	minionKey  = "data"
)

// Minion is the cached data of a minion. A field is nil if it is not cached.
type Minion struct {
	Grains, Pillar *value.Dict
}

type minionEntry struct {
	info fs.FileInfo
	data Minion
}

// StoreMinion stores the grains and pillar of a minion. It does nothing if the option
// minion_data_cache is off.
func (c *Cache) StoreMinion(id string, m Minion) error {
	if !c.o.MinionDataCache {
		return nil
	}
	if err := checkName("minion", id); err != nil {
		return err
	}
	d := value.NewDict(2)
	d.Set("grains", orNil(m.Grains))
	d.Set("pillar", orNil(m.Pillar))
	return c.Store(minionBank+id, minionKey, d)
}

func orNil(d *value.Dict) any {
	if d == nil {
		return nil
	}
	return d
}

// Minions returns the ids of minions with a bank, sorted.
func (c *Cache) Minions() ([]string, error) { return c.List("minions") }

// MinionData returns the grains and pillar of a minion, the zero Minion if none are stored. It
// costs one stat while the file does not change. The dicts are shared: do not write to them. An
// unreadable file is logged and counts as absent.
func (c *Cache) MinionData(id string) Minion {
	if !c.o.MinionDataCache || checkName("minion", id) != nil {
		return Minion{}
	}
	if c.shared != nil {
		c.shared.refresh(minionBank+id, minionKey)
	}
	path := filepath.Join(c.dir, minionBank, id, minionKey+suffix)
	info, err := os.Stat(path)
	if err == nil {
		c.mu.RLock()
		e, ok := c.minions[id]
		c.mu.RUnlock()
		if ok && same(e.info, info) {
			return e.data
		}
	}
	c.forget(id)
	if errors.Is(err, fs.ErrNotExist) {
		return Minion{}
	}
	v, info, err := read(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("ignoring unreadable cached minion data", "minion", id, "err", err)
		}
		return Minion{}
	}
	d, _ := v.(*value.Dict)
	m := Minion{Grains: d.Dict("grains"), Pillar: d.Dict("pillar")}
	c.remember(id, minionEntry{info, m})
	return m
}

// same reports whether a file is the one seen before. Writers replace the file, so new content has a new
// inode.
func same(a, b fs.FileInfo) bool {
	return a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && os.SameFile(a, b)
}

func (c *Cache) remember(id string, e minionEntry) {
	limit := int64(c.o.MinionDataMemory) << 20
	if e.info.Size() > limit/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(id)
	c.minions[id] = e
	c.bytes += e.info.Size()
	for other := range c.minions {
		if c.bytes <= limit {
			break
		}
		// Evict an arbitrary entry: minions are mostly read one after the other, and evicting the oldest
		// would evict the one needed next.
		if other != id {
			c.drop(other)
		}
	}
}

func (c *Cache) drop(id string) {
	if e, ok := c.minions[id]; ok {
		c.bytes -= e.info.Size()
		delete(c.minions, id)
	}
}

func (c *Cache) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(id)
}

func (c *Cache) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.minions)
	c.bytes = 0
}
