package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestPillarCache: a master that caches pillars serves the cached ones until they are to be created
// again; then the minion gets the content of the files. A stock pair, if available, does the same.
func TestPillarCache(t *testing.T) {
	for _, c := range []struct {
		kind    kind
		backend string
	}{{brine, "disk"}, {brine, "memory"}, {stock, "disk"}} {
		t.Run(string(c.kind)+"-"+c.backend, func(t *testing.T) {
			if c.kind == stock {
				stockTree(t)
			}
			p := newCachingPair(t, c.kind, fmt.Sprintf("pillar_cache: true\npillar_cache_backend: %s\n", c.backend))
			p.say(2)
			p.wants("a kept pillar", 1, "pillar.items")
			p.wants("what the minion has", 1, "pillar.raw")
			p.run("saltutil.refresh_pillar", "wait=True", "clean_cache=False")
			p.wants("refreshed, and kept", 1, "pillar.items")
			p.run("saltutil.refresh_pillar", "wait=True")
			p.wants("refreshed", 2, "pillar.items")
			p.wants("what the minion has after it was refreshed", 2, "pillar.raw")
			p.say(3)
			p.wants("kept again", 2, "pillar.items")
			if c.backend == "memory" {
				return // Salt's runner sees the disk only
			}
			if out, errs, code := p.master.Run(c.kind, "salt-run", "pillar.clear_pillar_cache", "m"); code != 0 {
				t.Fatalf("pillar.clear_pillar_cache: %d %s %s", code, out, errs)
			}
			p.wants("cleared", 3, "pillar.items")
		})
	}
}

// TestPillarCacheExpires: after pillar_cache_ttl seconds a pillar is created again.
func TestPillarCacheExpires(t *testing.T) {
	for _, backend := range []string{"disk", "memory"} {
		t.Run(backend, func(t *testing.T) {
			p := newCachingPair(t, brine, "pillar_cache: true\npillar_cache_ttl: 1\npillar_cache_backend: "+backend+"\n")
			p.say(2)
			eventually.Nil(t, stockLimit, "the kept pillar is too old", func() error { return p.has(2, "pillar.items") })
		})
	}
}

// cachingPair is a master with a pillar, and its minion m.
type cachingPair struct {
	t      *testing.T
	kind   kind
	tree   string
	master *node
}

func newCachingPair(t *testing.T, k kind, config string) cachingPair {
	t.Helper()
	p := cachingPair{t: t, kind: k, tree: daemontest.ShortDir(t)}
	if err := os.WriteFile(p.tree+"/top.sls", []byte("base: {'*': [p]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.say(1)
	host := daemontest.Host()
	p.master = newMaster(t, k, "caching", host, fmt.Sprintf("pillar_roots: {base: [%s]}\n%s", p.tree, config)).Start()
	newMinion(t, k, "m", []string{host}, "").Start()
	p.master.Accept("m")
	eventually.Nil(t, stockLimit, "the minion has its pillar", func() error { return p.has(1, "pillar.items") })
	return p
}

// say writes another number to the pillar's file.
func (p cachingPair) say(n int) {
	p.t.Helper()
	if err := os.WriteFile(p.tree+"/p.sls", []byte(fmt.Sprintf("v: %d\n", n)), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p cachingPair) run(args ...string) any {
	p.t.Helper()
	rets, err := p.master.SaltJSON(p.kind, append([]string{"m"}, args...)...)
	if err != nil {
		p.t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return rets["m"]
}

// has checks the number in the minion's pillar.
func (p cachingPair) has(n int, call string) error {
	rets, err := p.master.SaltJSON(p.kind, "m", call)
	if err != nil {
		return err
	}
	d, _ := rets["m"].(map[string]any)
	delete(d, "schedule") // a stock minion puts it there
	got, err := json.Marshal(d)
	if want := fmt.Sprintf(`{"v":%d}`, n); err != nil || string(got) != want {
		return fmt.Errorf("%s is %s, want %s", call, got, want)
	}
	return nil
}

func (p cachingPair) wants(what string, n int, call string) {
	p.t.Helper()
	if err := p.has(n, call); err != nil {
		p.t.Errorf("%s: %v", what, err)
	}
}
