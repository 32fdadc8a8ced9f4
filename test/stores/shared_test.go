package stores

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/cache/drivers"
	"brine/test/eventually"
	"brine/test/servertest"
)

// master opens the cache of a master in dir.
func master(t *testing.T, s *servertest.Server, dir string, timeout time.Duration) *cache.Cache {
	t.Helper()
	o := cacheOptions(t, "redis")
	o.Timeout = timeout
	d, err := drivers.Open("redis", options("cache.redis.host", s.Host, "cache.redis.port", s.Port), timeout)
	must(t, err)
	c, err := cache.Open(dir, filepath.Join(dir, "brine"), o, d, quiet)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func written(t *testing.T, c *cache.Cache) {
	t.Helper()
	eventually.Nil(t, time.Minute, "everything is in the store", func() error {
		if s := c.Status(); s.Unreachable != nil || s.Waiting > 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

func osOf(c *cache.Cache, id string) string { return c.MinionData(id).Grains.Str("os") }

func sees(t *testing.T, c *cache.Cache, id, want string) {
	t.Helper()
	eventually.Nil(t, time.Minute, id+" has "+want, func() error {
		if got := osOf(c, id); got != want {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	})
}

func grains(os string) cache.Minion { return cache.Minion{Grains: value.DictOf("os", os)} }

// TestTwoMasters: two masters share a store that is unreachable for a while.
func TestTwoMasters(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t)
	t.Cleanup(s.Remove)
	dirA := t.TempDir()
	a, b := master(t, s, dirA, 20*time.Second), master(t, s, t.TempDir(), 20*time.Second)
	for i := range 300 {
		must(t, a.StoreMinion(fmt.Sprint("m", i), grains("Debian")))
	}
	must(t, a.Store("minions/m7", "mine", value.DictOf("f", 1)))
	must(t, b.StoreMinion("x", grains("Arch")))
	if osOf(a, "m299") != "Debian" {
		t.Error("what was just written is not known")
	}
	written(t, a)
	written(t, b)
	sees(t, b, "m299", "Debian")
	sees(t, a, "x", "Arch")
	if v, ok, err := b.Fetch("minions/m7", "mine"); !ok || err != nil || !value.Equal(v, value.DictOf("f", 1)) {
		t.Error(v, ok, err)
	}
	if ids, err := b.Minions(); len(ids) != 301 || err != nil {
		t.Error(len(ids), err)
	}
	must(t, a.StoreMinion("m299", grains("Ubuntu")))
	written(t, a)
	sees(t, b, "m299", "Ubuntu")

	s.Stop()
	// A query returns the known data, and writes are not lost.
	sees(t, b, "m5", "Debian")
	must(t, a.StoreMinion("m1", grains("new")))
	if gone, err := a.Flush("minions/m2", ""); !gone || err != nil {
		t.Error(gone, err)
	}
	must(t, a.Store("other/bank", "k", "v"))
	if osOf(a, "m1") != "new" || osOf(a, "m2") != "" {
		t.Error("changes are not known here")
	}
	eventually.Nil(t, time.Minute, "it is known that the store is unreachable", func() error {
		if st := a.Status(); st.Unreachable == nil || st.Waiting != 3 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	if ids, err := a.Minions(); len(ids) != 300 || slices.Contains(ids, "m2") || err != nil {
		t.Error(len(ids), err)
	}
	must(t, a.Close()) // the master stops, and restarts before the store does
	a = master(t, s, dirA, 20*time.Second)
	if osOf(a, "m1") != "new" || osOf(a, "m2") != "" || a.Status().Waiting != 3 {
		t.Error("forgotten over a restart:", a.Status())
	}
	must(t, a.StoreMinion("m2", grains("again"))) // queued after the removal
	must(t, s.Start())
	written(t, a)
	sees(t, b, "m1", "new")
	sees(t, b, "m2", "again")
	if v, ok, _ := b.Fetch("other/bank", "k"); !ok || v != "v" {
		t.Error(v, ok)
	}
	if v, ok, _ := b.Fetch("minions/m2", "mine"); ok {
		t.Error(v)
	}
	// Salt's command line on this machine reads the copy.
	if got := cache.New(dirA, cacheOptions(t, "redis"), quiet).MinionData("m1").Grains.Str("os"); got != "new" {
		t.Error(got)
	}
}

// TestFrozenStore: the server does not answer at all, and a query waits for it only once.
func TestFrozenStore(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t)
	t.Cleanup(s.Remove)
	a := master(t, s, t.TempDir(), 500*time.Millisecond)
	must(t, a.StoreMinion("m", grains("Debian")))
	written(t, a)
	sees(t, a, "m", "Debian")
	thaw := s.Freeze()
	eventually.Nil(t, time.Minute, "it is known that the store is unreachable", func() error {
		if osOf(a, "m") != "Debian" {
			t.Fatal("the minion is forgotten")
		}
		if a.Status().Unreachable == nil {
			return fmt.Errorf("no")
		}
		return nil
	})
	must(t, a.StoreMinion("m", grains("new")))
	done := make(chan bool)
	go func() {
		for range 1000 {
			a.MinionData("m")
			a.Fetch("b", "k")
			a.List("minions")
		}
		close(done)
	}()
	select {
	case <-done: // a thousand times the timeout would be minutes
	case <-time.After(100 * time.Second):
		t.Error("every question waits for the server")
	}
	thaw()
	written(t, a)
	d, err := drivers.Open("redis", options("cache.redis.host", s.Host, "cache.redis.port", s.Port), 20*time.Second)
	must(t, err)
	defer d.Close()
	if b, err := d.Fetch(t.Context(), "minions/m", "data"); err != nil ||
		string(b) != string(pack(t, value.DictOf("grains", value.DictOf("os", "new"), "pillar", nil))) {
		t.Errorf("%q %v", b, err)
	}
}
