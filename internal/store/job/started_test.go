package job

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// startedReturn is the return of a job that the minion id started itself.
func startedReturn(jid, id string) *value.Dict {
	return value.DictOf("cmd", "_return", "id", id, "jid", jid, "fun", "state.apply", "fun_args", value.ListOf("web"),
		"return", true, "retcode", 0, "user", "root")
}

func giveStarted(t *testing.T, s interface {
	ReturnStartedAsync(load, job *value.Dict, done func(bool, error))
}, ret *value.Dict) {
	t.Helper()
	done := make(chan error, 1)
	s.ReturnStartedAsync(ret, StartedLoad(ret.Str("jid"), ret.Str("id"), ret), func(_ bool, err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func checkStarted(t *testing.T, s interface {
	Load(string) (*value.Dict, error)
	Minions(string) ([]string, error)
	Returns(string) (map[string]*value.Dict, error)
}) {
	t.Helper()
	load, err := s.Load(jid)
	if err != nil || load.Str("tgt") != "m1" || load.Str("tgt_type") != "glob" || value.Repr(load.At("arg")) != "['web']" ||
		load.Str("fun") != "state.apply" || load.Has("return") {
		t.Errorf("load: %v %v", value.Repr(load), err)
	}
	if ids, err := s.Minions(jid); err != nil || !slices.Equal(ids, []string{"m1"}) {
		t.Errorf("minions: %v %v", ids, err)
	}
	if rets, err := s.Returns(jid); err != nil || rets["m1"].At("return") != true {
		t.Errorf("returns: %v %v", rets, err)
	}
}

// TestStartedByMinion checks that a job started by a minion has arguments, target and minions in every kind
// of store.
func TestStartedByMinion(t *testing.T) {
	t.Run("one master", func(t *testing.T) {
		s := open(t, t.TempDir())
		giveStarted(t, s, startedReturn(jid, "m1"))
		checkStarted(t, s)
	})
	t.Run("shared directory", func(t *testing.T) {
		dir := t.TempDir()
		giveStarted(t, openShared(t, dir, "a"), startedReturn(jid, "m1"))
		checkStarted(t, openShared(t, dir, "b"))
	})
	t.Run("replicated", func(t *testing.T) {
		a, b := openSharing(t, t.TempDir(), "a"), openSharing(t, t.TempDir(), "b")
		giveStarted(t, a.Store, startedReturn(jid, "m1"))
		exchange(t, a.Stream(), b.Stream())
		checkStarted(t, b.Store)
	})
	t.Run("a published job replaces it", func(t *testing.T) {
		a, b := openSharing(t, t.TempDir(), "a"), openSharing(t, t.TempDir(), "b")
		giveStarted(t, a.Store, startedReturn(jid, "m1"))
		if err := b.NewJob(load(jid), []string{"m1", "m2"}); err != nil {
			t.Fatal(err)
		}
		exchange(t, b.Stream(), a.Stream())
		exchange(t, a.Stream(), b.Stream())
		for _, s := range []*sharingStore{a, b} {
			if l, err := s.Load(jid); err != nil || l.Str("tgt") != "*" {
				t.Errorf("%v %v", value.Repr(l), err)
			}
		}
	})
}

// TestStartedLoadIsBounded checks that oversized and ill-typed fields are left out.
func TestStartedLoadIsBounded(t *testing.T) {
	huge := strings.Repeat("x", maxStartedArg)
	for name, ret := range map[string]*value.Dict{
		"wrong types": value.DictOf("id", "other", "fun", 5, "fun_args", "text", "user", value.ListOf("root"), "metadata", "x", "schedule", 7, "tgt", "*",
			"return", 1),
		"too large": value.DictOf("id", "other", "fun", huge, "fun_args", value.ListOf(huge), "user", huge, "metadata", value.DictOf("a", huge), "schedule",
			huge),
		"nothing": value.NewDict(0),
	} {
		got := value.Repr(StartedLoad(jid, "m1", ret))
		if want := "{'cmd': '_return', 'id': 'm1', 'jid': '" + jid + "', 'arg': [], 'tgt': 'm1', 'tgt_type': 'glob'}"; got != want {
			t.Errorf("%s: %.300s", name, got)
		}
	}
}

// TestFilesAreForTheMasterAlone checks file modes, since arguments and results may hold secrets.
func TestFilesAreForTheMasterAlone(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "jobs"), 0o755)) // created by an earlier version
	c, err := NewLocalCache(dir, "")
	must(t, err)
	must(t, c.Protect())
	must(t, c.WriteLoad(jid, load(jid), []string{"m1"}))
	must(t, c.WriteReturn(jid, "m1", ret(jid, "m1", "secret")))
	const other = "20261121041024915336" // an unknown job
	must(t, c.WriteReturn(other, "m1", ret(other, "m1", "secret")))
	s := openShared(t, dir, "a")
	_, err = giveReturn(s, ret(jid, "m2", "secret"))
	must(t, err)
	files := 0
	must(t, filepath.WalkDir(filepath.Join(dir, "jobs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o007 != 0 || err == nil && !d.IsDir() && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", path, info.Mode())
		}
		if !d.IsDir() {
			files++
		}
		return err
	}))
	if files != 10 {
		t.Errorf("%d files", files)
	}
	w, err := c.Lookup(jid)
	if err != nil || len(w.Returns) != 2 || w.Returns["m1"].Str("return") != "secret" || w.Returns["m1"].Str("out") != "nested" {
		t.Errorf("%+v %v", w, err)
	}
	for _, bad := range []string{"../evil", "", "a/b", ".."} {
		if err := c.WriteReturn(jid, bad, ret(jid, bad, 1)); salt.KindOf(err) != salt.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := c.WriteReturn("../../x", "m1", ret(jid, "m1", 1)); salt.KindOf(err) != salt.Invalid {
		t.Error(err)
	}
}
