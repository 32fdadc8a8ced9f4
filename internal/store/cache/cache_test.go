package cache

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/base/field"
	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/py/value"
	"brine/test/tools"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t testing.TB) *Cache {
	t.Helper()
	var o Options
	must(t, field.Defaults(&o))
	return New(filepath.Join(t.TempDir(), "cache"), o, quiet)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestStoreFetchFlush(t *testing.T) {
	c := open(t)
	v := value.DictOf("a", value.ListOf(1, "x", nil), 7, []byte{0xff})
	if _, ok, err := c.Fetch("b/c", "k"); ok || err != nil {
		t.Error(ok, err)
	}
	must(t, c.Store("b/c", "k", v))
	must(t, c.Store("b/c", "k2", "text"))
	got, ok, err := c.Fetch("b/c", "k")
	if !ok || err != nil || !value.Equal(got, v) {
		t.Error(value.Repr(got), ok, err)
	}
	info, err := os.Stat(filepath.Join(c.dir, "b/c/k.p"))
	if err != nil || info.Mode() != 0o600 {
		t.Error(info, err)
	}
	for _, dir := range []string{"b", "b/c"} { // a master warns at its start about directories that others can enter
		if info, err := os.Stat(filepath.Join(c.dir, dir)); err != nil || info.Mode().Perm()&0o007 != 0 {
			t.Errorf("%s: %v %v", dir, info.Mode(), err)
		}
	}
	if !c.Contains("b/c", "k") || c.Contains("b/c", "none") || !c.Contains("b", "") || c.Contains("none", "") || c.Contains("b", "c") {
		t.Error("Contains")
	}
	for bank, want := range map[string]string{"b/c": "k k2", "b": "c", "none": ""} {
		if names, err := c.List(bank); err != nil || strings.Join(names, " ") != want {
			t.Error(bank, names, err)
		}
	}
	if ok, err := c.Flush("b/c", "k"); !ok || err != nil {
		t.Error(ok, err)
	}
	if ok, err := c.Flush("b/c", "k"); ok || err != nil {
		t.Error(ok, err)
	}
	if ok, err := c.Flush("b", ""); !ok || err != nil || c.Contains("b", "") {
		t.Error(ok, err)
	}
}

func TestNamesCannotLeave(t *testing.T) {
	c := open(t)
	must(t, os.MkdirAll(c.dir, 0o755))
	outside := filepath.Join(filepath.Dir(c.dir), "x.p")
	must(t, os.WriteFile(outside, []byte{0xc0}, 0o600))
	for _, n := range [][2]string{{"..", "x"}, {"a/../..", "x"}, {"a", "../../x"}, {"", "x"}, {"/", "x"}, {"/etc", "x"}, {"a//b", "x"}, {"a/", "x"},
		{"a", "."}, {`a\b`, "x"}, {"a\x00", "x"}, {"a", "b\x00"}, {"minions/..", "data"}} {
		if err := c.Store(n[0], n[1], 1); salt.KindOf(err) != salt.Invalid {
			t.Errorf("%q: %v", n, err)
		}
		if _, _, err := c.Fetch(n[0], n[1]); salt.KindOf(err) != salt.Invalid {
			t.Errorf("%q: %v", n, err)
		}
		if _, err := c.Flush(n[0], n[1]); salt.KindOf(err) != salt.Invalid {
			t.Errorf("%q: %v", n, err)
		}
		if c.Contains(n[0], n[1]) {
			t.Errorf("%q", n)
		}
	}
	for _, id := range []string{"..", "../..", "a/b", ""} {
		if m := c.MinionData(id); m != (Minion{}) || c.StoreMinion(id, m) == nil {
			t.Errorf("%q", id)
		}
	}
}

func TestDamagedFile(t *testing.T) {
	c := open(t)
	must(t, c.StoreMinion("m", Minion{Grains: value.DictOf("a", 1)}))
	path := filepath.Join(c.dir, "minions/m/data.p")
	for _, junk := range []string{"", "\x82\xa1", "\xc1", "\xdf\xff\xff\xff\xff"} {
		must(t, os.WriteFile(path, []byte(junk), 0o600))
		if _, _, err := c.Fetch("minions/m", "data"); salt.KindOf(err) != salt.Invalid || !strings.Contains(err.Error(), "is damaged, remove it") {
			t.Errorf("%q: %v", junk, err)
		}
		if m := c.MinionData("m"); m != (Minion{}) {
			t.Errorf("%q: %v", junk, m)
		}
	}
	must(t, os.WriteFile(path, []byte("\xa4text"), 0o600)) // valid msgpack, but not a map
	if m := c.MinionData("m"); m != (Minion{}) {
		t.Error(m)
	}
}

func TestMinionData(t *testing.T) {
	c := open(t)
	if m := c.MinionData("m"); m.Grains != nil || m.Pillar != nil {
		t.Error(m)
	}
	must(t, c.StoreMinion("m", Minion{Grains: value.DictOf("os", "A"), Pillar: value.DictOf()}))
	first := c.MinionData("m")
	if first.Grains.Str("os") != "A" || first.Pillar == nil {
		t.Error(first)
	}
	if c.MinionData("m").Grains != first.Grains {
		t.Error("decoded again")
	}
	must(t, c.StoreMinion("m", Minion{Grains: value.DictOf("os", "B")}))
	if m := c.MinionData("m"); m.Grains.Str("os") != "B" || m.Pillar != nil {
		t.Error(m)
	}
	other := New(c.dir, c.o, quiet) // another process
	for i := range 20 {
		must(t, other.StoreMinion("m", Minion{Grains: value.DictOf("os", i)}))
		if m := c.MinionData("m"); m.Grains.Int("os") != int64(i) {
			t.Error("stale data", m.Grains)
		}
	}
	if _, err := other.Flush("minions/m", ""); err != nil {
		t.Fatal(err)
	}
	if m := c.MinionData("m"); m != (Minion{}) || len(c.minions) != 0 || c.bytes != 0 {
		t.Error(m, len(c.minions), c.bytes)
	}
	c.o.MinionDataCache = false
	must(t, c.StoreMinion("m", Minion{}))
	if c.Contains("minions", "") && c.Contains("minions/m", "") {
		t.Error("kept although minion_data_cache is off")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	c := open(t)
	c.o.MinionDataMemory = 1
	big := strings.Repeat("x", 200<<10)
	for i := range 20 {
		id := fmt.Sprint("m", i)
		must(t, c.StoreMinion(id, Minion{Grains: value.DictOf("b", big)}))
		if c.MinionData(id).Grains.Str("b") != big {
			t.Fatal(i)
		}
		if c.bytes > 1<<20 || len(c.minions) > 5 {
			t.Fatal(c.bytes, len(c.minions))
		}
	}
	if len(c.minions) < 4 {
		t.Error("too few minions are kept:", len(c.minions))
	}
	must(t, c.StoreMinion("huge", Minion{Grains: value.DictOf("b", big+big)}))
	c.MinionData("huge")
	if _, ok := c.minions["huge"]; ok {
		t.Error("one minion took the whole memory")
	}
}

// TestSaltReadsAndWrites exchanges files with Salt's own cache.
func TestSaltReadsAndWrites(t *testing.T) {
	stock, python := tools.StockSalt(t)
	c := open(t)
	must(t, c.StoreMinion("m", Minion{Grains: value.DictOf("os", "Debian", "n", 3), Pillar: value.DictOf("bin", []byte{0xff})}))
	script := `
import sys, salt.cache
c = salt.cache.Cache({"cachedir": sys.argv[1], "cache": "localfs", "extension_modules": "", "optimization_order": [0], "__role": "master"})
d = c.fetch("minions/m", "data")
assert d == {"grains": {"os": "Debian", "n": 3}, "pillar": {"bin": b"\xff"}}, d
assert c.list("minions") == ["m"], c.list("minions")
c.store("minions/p", "data", {"grains": {"id": "p", "x": [1, None, "é"]}, "pillar": {}})
c.store("minions/p", "mine", {"f": 1})
`
	cmd := exec.Command(python, "-W", "ignore", "-c", script, c.dir)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+stock)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if m := c.MinionData("p"); !value.Equal(m.Grains.At("x"), value.ListOf(1, nil, "é")) || m.Pillar == nil {
		t.Error(value.Repr(m.Grains))
	}
	if names, _ := c.List("minions/p"); !slices.Equal(names, []string{"data", "mine"}) {
		t.Error(names)
	}
}

func BenchmarkGrainOver5000(b *testing.B) {
	c := open(b)
	var ids []string
	for i := range 5000 {
		id := fmt.Sprint("web", i)
		ids = append(ids, id)
		g := value.DictOf("id", id, "os", []string{"Debian", "Ubuntu"}[i%2])
		for j := range 120 {
			g.Set(fmt.Sprint("grain", j), value.ListOf("some value", j, strings.Repeat("x", 20)))
		}
		must(b, c.StoreMinion(id, Minion{Grains: g, Pillar: value.DictOf("a", "b")}))
	}
	m, err := target.Parse("grain", "os:Debian", "")
	must(b, err)
	run := func(b *testing.B) {
		got, _ := m.Expected(ids, func(id string) (*value.Dict, *value.Dict) {
			d := c.MinionData(id)
			return d.Grains, d.Pillar
		})
		if len(got) != 2500 {
			b.Fatal(len(got))
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			c.forgetAll()
			run(b)
		}
	})
	b.Run("again", func(b *testing.B) {
		for b.Loop() {
			run(b)
		}
	})
}
