package job

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/test/tools"
)

func local(t *testing.T) *LocalCache {
	t.Helper()
	c, err := NewLocalCache(t.TempDir(), "")
	must(t, err)
	return c
}

func TestLocalCacheLayout(t *testing.T) {
	c := local(t)
	must(t, c.WriteLoad(jid, load(jid), []string{"b", "a"}))
	must(t, c.WriteLoad(jid, load(jid), nil))
	dir := c.jobDir(jid)
	if rel, _ := filepath.Rel(c.dir, dir); len(rel) != 65 || rel[2] != '/' {
		t.Error(rel)
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{".load.p", ".minions.p", "jid"}) {
		t.Error(names)
	}
	j, err := c.Lookup(jid)
	if err != nil || j.JID != jid || !value.Equal(j.Load, load(jid)) || !slices.Equal(j.Minions, []string{"a", "b"}) || len(j.Returns) != 0 {
		t.Errorf("%+v %v", j, err)
	}
	if j, err := c.Lookup("20200101000000000000"); j != nil || err != nil {
		t.Error(j, err)
	}
	check(t, c.WriteLoad("req", load("req"), nil), salt.Invalid, "not a job id")
	if _, err := NewLocalCache("/x", "rot13"); err == nil {
		t.Error("an unknown hash_type was accepted")
	}
}

func TestLocalCachePrune(t *testing.T) {
	c := local(t)
	other := "20261121041024915336"
	must(t, c.WriteLoad(jid, load(jid), nil))
	must(t, c.WriteLoad(other, load(other), nil))
	old := time.Now().Add(-25 * time.Hour)
	must(t, os.Chtimes(filepath.Join(c.jobDir(jid), "jid"), old, old))
	ruin := filepath.Join(c.dir, "ff", "ruin")
	must(t, os.MkdirAll(ruin, 0o755))
	must(t, os.Chtimes(ruin, old, old))
	must(t, os.MkdirAll(filepath.Join(c.dir, "fe", "young"), 0o755))
	if n, err := c.Prune(24*time.Hour, time.Now()); n != 2 || err != nil {
		t.Error(n, err)
	}
	if n, err := c.Prune(0, time.Now().Add(1e6*time.Hour)); n != 0 || err != nil {
		t.Error(n, err)
	}
	if j, _ := c.Lookup(jid); j != nil {
		t.Error("still there")
	}
	if _, err := os.Stat(filepath.Dir(c.jobDir(jid))); err == nil {
		t.Error("an empty directory is left")
	}
	if j, _ := c.Lookup(other); j == nil {
		t.Error("an unexpired job was removed")
	}
	if _, err := os.Stat(filepath.Join(c.dir, "fe", "young")); err != nil {
		t.Error("an incomplete job was removed")
	}
}

func TestLocalCacheDamaged(t *testing.T) {
	c := local(t)
	must(t, c.WriteLoad(jid, load(jid), []string{"a"}))
	dir := c.jobDir(jid)
	for id, raw := range map[string]string{"good": "\x81\xa6return\x01", "old": "\xa4text", "bad": "\xc1", "empty": ""} {
		must(t, os.MkdirAll(filepath.Join(dir, id), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, id, "return.p"), []byte(raw), 0o644))
	}
	must(t, os.WriteFile(filepath.Join(dir, "endtime"), []byte("x"), 0o644))
	j, err := c.Lookup(jid)
	if err != nil || len(j.Returns) != 2 || j.Returns["good"].Int("return") != 1 || j.Returns["old"].Str("return") != "text" {
		t.Error(j, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, ".load.p"), []byte("\x81"), 0o644))
	if j, err := c.Lookup(jid); err == nil {
		t.Error(j)
	}
	n := 0
	must(t, c.Jobs(func(*Job) bool { n++; return true }))
	if n != 0 {
		t.Error(n)
	}
}

// TestSaltSharesLocalCache exchanges jobs with Salt's own returner.
func TestSaltSharesLocalCache(t *testing.T) {
	stock, python := tools.StockSalt(t)
	c := local(t)
	must(t, c.WriteLoad(jid, load(jid), []string{"b", "a"}))
	script := `
import sys, salt.config, salt.returners.local_cache as lc
lc.__opts__ = salt.config.master_config(None)
lc.__opts__["cachedir"] = sys.argv[1]
got = lc.get_load(sys.argv[2])
assert got == {"cmd": "publish", "fun": "test.ping", "arg": [], "tgt": "*", "jid": sys.argv[2], "user": "root", "Minions": ["a", "b"]}, got
assert sys.argv[2] in lc.get_jids()
j = "20200101000000000000"
lc.prep_jid(passed_jid=j)
lc.save_load(j, {"fun": "x.y", "arg": [1, {"k": b"\xff"}], "tgt": "*", "jid": j}, minions=["m1", "m2"])
lc.save_minions(j, ["m3"], syndic_id="syn")
lc.returner({"jid": j, "id": "m1", "return": {"a": 1}, "retcode": 2, "success": False, "out": "nested", "fun": "x.y"})
lc.returner({"jid": j, "id": "m2", "return": None})
`
	cmd := exec.Command(python, "-W", "ignore", "-c", script, filepath.Dir(c.dir), jid)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+stock)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	j, err := c.Lookup("20200101000000000000")
	must(t, err)
	if j.Load.Str("fun") != "x.y" || strings.Join(j.Minions, " ") != "m1 m2 m3" || strings.Join(j.Missing(), " ") != "m3" ||
		!value.Equal(j.Returns["m1"], value.DictOf("return", value.DictOf("a", 1), "retcode", 2, "success", false, "out", "nested")) ||
		!value.Equal(j.Returns["m2"], value.DictOf("return", nil)) {
		t.Errorf("%s %v %v", value.Repr(j.Load), j.Minions, value.Repr(j.Returns["m1"]))
	}
	var jids []string
	must(t, c.Jobs(func(j *Job) bool { jids = append(jids, j.JID); return true }))
	slices.Sort(jids)
	if !slices.Equal(jids, []string{"20200101000000000000", jid}) {
		t.Error(jids)
	}
}
