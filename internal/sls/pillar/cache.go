package pillar

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// cache caches pillars by minion and environment: in memory, or in one file per
// minion in Salt's format.
type cache struct {
	dir    string // "" for memory
	ttl    time.Duration
	log    *slog.Logger
	mu     sync.Mutex
	memory map[string]kept
}

type kept struct {
	envs *value.Dict // environment (or null) to pillar
	at   time.Time
}

func newCache(o Options, dir string, log *slog.Logger) *cache {
	c := &cache{ttl: o.CacheTTL, log: log, memory: map[string]kept{}}
	if o.CacheBackend != "memory" {
		c.dir = filepath.Join(dir, "pillar_cache")
	}
	return c
}

func (c *cache) get(id, env string) *value.Dict {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.load(id)
	if !ok {
		return nil
	}
	d, _ := k.envs.At(orNil(env)).(*value.Dict)
	return d
}

func (c *cache) put(id, env string, pillar *value.Dict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.load(id)
	if !ok {
		k = kept{envs: value.NewDict(1), at: time.Now()}
	}
	k.envs = k.envs.Clone()
	k.envs.Set(orNil(env), pillar)
	if err := c.store(id, k); err != nil {
		c.log.Error("cannot cache pillar", "minion", id, "err", err)
	}
}

func (c *cache) clear(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.memory, id)
	if c.dir != "" && salt.CheckID(id) == nil {
		os.Remove(filepath.Join(c.dir, id))
	}
}

// load returns the cached pillar unless it is too old.
func (c *cache) load(id string) (kept, bool) {
	k, ok := c.memory[id]
	if c.dir != "" {
		k, ok = c.read(id)
	}
	return k, ok && time.Since(k.at) < c.ttl
}

func (c *cache) read(id string) (kept, bool) {
	if salt.CheckID(id) != nil {
		return kept{}, false
	}
	b, err := os.ReadFile(filepath.Join(c.dir, id))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("cannot read cached pillar", "minion", id, "err", err)
		}
		return kept{}, false
	}
	v, err := msgpack.UnmarshalTyped(b)
	d, ok := v.(*value.Dict)
	if err != nil || !ok {
		c.log.Warn("cannot read cached pillar", "minion", id, "err", err)
		return kept{}, false
	}
	envs := d.Dict("CacheDisk_data").Dict(id)
	at, _ := d.Dict("CacheDisk_cachetime").At(id).(float64)
	return kept{envs, time.Unix(0, int64(at*1e9))}, envs != nil
}

func (c *cache) store(id string, k kept) error {
	if c.dir == "" {
		c.memory[id] = k
		return nil
	}
	if err := salt.CheckID(id); err != nil {
		return err
	}
	b, err := msgpack.Marshal(value.DictOf("CacheDisk_data", value.DictOf(id, k.envs),
		"CacheDisk_cachetime", value.DictOf(id, float64(k.at.UnixNano())/1e9)), msgpack.NewSpec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(c.dir, id), b, 0o600, false)
}
