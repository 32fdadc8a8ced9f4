package grains

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// cacheName is Salt's name of the file, so that Salt and Brine can read each
// other's cache.
const cacheName = "grains.cache.p"

// readCache returns the grains of the cache file, nil if it is missing, expired
// or damaged.
func readCache(o Options, now time.Time, log *slog.Logger) *value.Dict {
	if !o.CacheGrain || o.CacheDir == "" || o.Refresh {
		return nil
	}
	path := filepath.Join(o.CacheDir, cacheName)
	st, err := os.Stat(path)
	if err != nil || now.Sub(st.ModTime()) > o.CacheAge {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		log.Warn("cannot read cached grains; collecting them again", "path", path, "err", err)
		return nil
	}
	v, err := msgpack.UnmarshalTyped(b)
	d, ok := v.(*value.Dict)
	if err != nil || !ok || d.Len() == 0 {
		log.Warn("cached grains are damaged; collecting them again", "path", path, "err", err)
		return nil
	}
	if l, ok := d.At("osrelease_info").(*value.List); ok {
		d.Set("osrelease_info", value.Tuple(l.Items)) // the file format has no tuples
	}
	return d
}

// writeCache replaces the cache file atomically, so that readers never see half
// of it.
func writeCache(o Options, d *value.Dict) error {
	if !o.CacheGrain || o.CacheDir == "" {
		return nil
	}
	b, err := msgpack.Marshal(d, msgpack.NewSpec)
	if err != nil {
		return fmt.Errorf("cannot encode grains for the cache: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(o.CacheDir, cacheName), b, 0o600, false); err != nil {
		return fmt.Errorf("cannot cache grains: %w", err)
	}
	return nil
}
