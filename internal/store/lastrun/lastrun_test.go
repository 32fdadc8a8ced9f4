package lastrun

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

func state(result any, changes *value.Dict, comment string, ms float64) *value.Dict {
	return value.DictOf("result", result, "changes", changes, "comment", comment, "__sls__", "web", "__id__", "conf", "duration", ms)
}

func returned(states ...*value.Dict) *value.Dict {
	d := value.NewDict(len(states))
	for i, s := range states {
		d.Set(fmt.Sprintf("file_|-conf_|-/etc/conf%d_|-managed", i), s)
	}
	return value.DictOf("return", d, "retcode", int64(0), "success", true)
}

// TestSeverity goes through the severities of a minion.
func TestSeverity(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "runs"))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	turn := 0
	jid := func() string {
		turn++
		return salt.FormatJID(at.Add(time.Duration(turn) * time.Minute))
	}
	none, diff := value.NewDict(0), value.DictOf("diff", "-a\n+b\n")
	test := value.ListOf(value.DictOf("__kwarg__", true, "test", true))
	now := at.Add(time.Hour)
	for _, x := range []struct {
		about string
		do    func()
		want  string
	}{
		{"nothing", func() {}, Unknown},
		{"no run of whole SLS files", func() { s.Returned("m", jid(), "state.single", nil, returned(state(false, none, "", 1)), at) }, Unknown},
		{"clean", func() { s.Returned("m", jid(), "state.apply", nil, returned(state(true, none, "", 1)), at) }, Clean},
		{"changed", func() { s.Returned("m", jid(), "state.apply", nil, returned(state(true, diff, "", 1)), at) }, Changed},
		{"a test after it", func() { s.Returned("m", jid(), "state.apply", test, returned(state(true, none, "", 1)), at) }, Clean},
		{"drift", func() { s.Returned("m", jid(), "state.apply", test, returned(state(nil, diff, "", 1)), at) }, Drift},
		{"failed", func() { s.Returned("m", jid(), "state.highstate", nil, returned(state(false, none, "no", 1)), at) }, Failed},
		{"a test after a failure", func() { s.Returned("m", jid(), "state.test", nil, returned(state(true, none, "", 1)), at) }, Failed},
		{"broken", func() {
			s.Returned("m", jid(), "state.apply", nil, value.DictOf("return", value.ListOf("Rendering SLS failed"), "retcode", int64(1)), at)
		}, Failed},
		{"clean again", func() { s.Returned("m", jid(), "state.apply", nil, returned(state(true, none, "", 1)), at) }, Clean},
		{"an older return", func() {
			s.Returned("m", salt.FormatJID(at), "state.apply", nil, returned(state(false, none, "", 1)), at)
		}, Clean},
		{"published", func() { s.Published(jid(), "state.apply", []string{"m"}, now) }, Clean},
		{"not returned", func() { now = now.Add(Grace + time.Second) }, NotReturned},
		{"returned late", func() {
			s.Returned("m", salt.FormatJID(at.Add(time.Duration(turn)*time.Minute)), "state.apply", nil, returned(state(true, none, "", 1)), now)
		}, Clean},
		{"an id of the future", func() {
			s.Returned("m", "20991231235959000000", "state.apply", nil, returned(state(false, none, "", 1)), now)
		}, Failed},
		{"after it", func() { s.Returned("m", jid(), "state.apply", nil, returned(state(true, none, "", 1)), now) }, Clean},
	} {
		if x.do(); s.Minion("m").Severity(now) != x.want {
			t.Errorf("%s: %s, want %s: %+v", x.about, s.Minion("m").Severity(now), x.want, s.Minion("m"))
		}
	}
}

// TestSaved reads a store again, with the changes of its last runs alone.
func TestSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs")
	s, _ := Open(path)
	now := time.Now()
	run := func(id, text string) {
		s.Returned(id, salt.NewJID(now), "state.apply", value.ListOf("web", value.DictOf("__kwarg__", true, "test", true)),
			returned(state(nil, value.DictOf("diff", text), "The file would change", 12.5)), now)
	}
	for _, id := range []string{"a", "b", "c"} {
		run(id, "old "+id)
		run(id, "same")
	}
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	a, b := again.Minion("a"), again.Minion("b")
	if a.Severity(now) != Drift || len(a.Tested.Items) != 1 || a.Tested.Items[0].Change != b.Tested.Items[0].Change {
		t.Fatalf("%+v, %+v", a.Tested, b.Tested)
	}
	it := a.Tested.Items[0]
	if got := again.Change(it.Change); got.Dict("changes").Str("diff") != "same" || it.State != "conf (/etc/conf0)" || it.Fun != "file.managed" ||
		it.SLS != "web" || a.Tested.Slow[0].MS != 12.5 || a.Tested.Mods[0] != "web" {
		t.Errorf("%+v %v", a.Tested, got)
	}
	if len(again.bodies.byKey) != 1 || len(s.bodies.byKey) != 1 {
		t.Errorf("%d changes in the file, %d in memory, want 1", len(again.bodies.byKey), len(s.bodies.byKey))
	}
	again.Forget(map[string]bool{"a": true})
	if len(again.All()) != 1 {
		t.Errorf("after forgetting: %v", again.All())
	}
	if err := os.WriteFile(path, []byte("{damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(path); err == nil || s == nil || len(s.All()) != 0 {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestBounds stores returns that are too large.
func TestBounds(t *testing.T) {
	s, _ := Open(filepath.Join(t.TempDir(), "runs"))
	states := make([]*value.Dict, 3000)
	for i := range states {
		states[i] = state(nil, value.DictOf("diff", fmt.Sprint(i)+strings.Repeat("x", 20<<10)), "", float64(i))
	}
	s.Returned("m", salt.NewJID(time.Now()), "state.apply", nil, returned(states...), time.Now())
	r := s.Minion("m").Tested
	if r.Would != 3000 || len(r.Items) != maxItems || len(r.Slow) != maxSlow || r.Slow[0].MS != 2999 || s.bodies.size != 0 || s.Change(r.Items[0].Change) != nil {
		t.Errorf("%d states, %d items, %d slow, %d bytes", r.Would, len(r.Items), len(r.Slow), s.bodies.size)
	}
	for i := range 5000 {
		s.bodies.add(state(nil, value.DictOf("diff", fmt.Sprint(i)+strings.Repeat("x", 10<<10)), "", 1), false)
	}
	if s.bodies.size > maxBodies {
		t.Errorf("%d bytes of changes", s.bodies.size)
	}
}

// TestShared has a store learn from another one, in several messages.
func TestShared(t *testing.T) {
	a, _ := Open(filepath.Join(t.TempDir(), "a"))
	b, _ := Open(filepath.Join(t.TempDir(), "b"))
	now := time.Now()
	run := func(s *Store, id string, result any) {
		s.Returned(id, salt.NewJID(now), "state.apply", nil, returned(state(result, value.DictOf("diff", "of "+id), "", 1)), now)
	}
	for i := range 25 {
		run(a, fmt.Sprintf("m%02d", i), false)
	}
	run(b, "m00", true) // newer
	a.Published(salt.NewJID(now), "state.apply", []string{"m01"}, now.Add(-time.Hour))
	number, messages := uint64(0), 0
	for more := true; more; messages++ {
		shared, next, m, err := a.Since(number, 10)
		if err != nil || next <= number {
			t.Fatal(next, err)
		}
		number, more = next, m
		if err := b.Learn(shared); err != nil {
			t.Fatal(err)
		}
	}
	if messages != 3 || len(b.All()) != 25 || b.Minion("m00").Severity(now) != Changed || b.Minion("m02").Severity(now) != Failed ||
		b.Minion("m01").Waits == "" || b.Change(b.Minion("m02").Applied.Items[0].Change).Dict("changes").Str("diff") != "of m02" {
		t.Errorf("%d messages: %+v", messages, b.All())
	}
	if shared, next, more, err := a.Since(number, 10); shared != nil || next != number || more || err != nil {
		t.Errorf("without changes: %d bytes, %d, %v, %v", len(shared), next, more, err)
	}
	for _, text := range []string{"", "{}", "[", `{"Minions":{"../x":{}}}`, `{"Minions":{"m":{"Applied":{"JID":"1"}}}}`,
		`{"Bodies":{"00":"AA=="}}`, `{"Minions":{"m":null}}`} {
		if err := b.Learn([]byte(text)); err == nil && len(b.All()) != 25 {
			if _, odd := b.All()["m"]; !odd || b.Minion("m").Applied != nil {
				t.Errorf("%s: %v", text, b.All())
			}
		}
	}
}

// TestSingles has a store learn single runs from another one, without those that it is told to skip.
func TestSingles(t *testing.T) {
	a, _ := Open(filepath.Join(t.TempDir(), "a"))
	b, _ := Open(filepath.Join(t.TempDir(), "b"))
	now := time.Now()
	for i := range 25 {
		id, args := fmt.Sprintf("m%02d", i), value.ListOf()
		for _, test := range []bool{false, true} {
			if test {
				args = value.ListOf(value.DictOf("__kwarg__", true, "test", true))
			}
			a.Returned(id, salt.NewJID(now), "state.apply", args, returned(state(true, value.DictOf("diff", "of "+id), "", 1)), now)
		}
	}
	skipped := func(minion string, r *Run) bool { return minion == "m03" && r.Test }
	number, got, pages := uint64(0), 0, 0
	for more := true; more; pages++ {
		list, next, m, err := a.Singles(number, 10, skipped)
		if err != nil || next <= number {
			t.Fatal(next, err)
		}
		number, more = next, m
		got += len(list)
		for _, s := range list {
			if err := b.Learn(s.Shared); err != nil || s.Run == nil {
				t.Fatal(s, err)
			}
		}
	}
	if pages != 3 || got != 49 || len(b.All()) != 25 || b.Minion("m03").Tested != nil || b.Minion("m04").Tested == nil || b.Minion("m03").Applied == nil ||
		b.Change(b.Minion("m03").Applied.Items[0].Change).Dict("changes").Str("diff") != "of m03" {
		t.Errorf("%d runs on %d pages: %+v", got, pages, b.All())
	}
	if list, next, more, err := a.Singles(number, 10, skipped); len(list) != 0 || next != number || more || err != nil {
		t.Errorf("without changes: %d runs, %d, %v, %v", len(list), next, more, err)
	}
}

// FuzzReturned gives a store returns of any form.
func FuzzReturned(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add("file_|-a_|-b_|-managed", "\xff", "state.apply", int64(3), 1e300)
	f.Add("_|-_|-_|-", "test=True", "state.test", int64(0), -1.0)
	f.Fuzz(func(t *testing.T, key, text, fun string, n int64, ms float64) {
		s, _ := Open(filepath.Join(t.TempDir(), "runs"))
		var result any
		switch n % 4 {
		case 0:
			result = true
		case 1:
			result = false
		case 2:
			result = text
		}
		d := value.DictOf(key, value.DictOf("result", result, "changes", value.ListOf(text, n), "comment", value.DictOf(text, ms), "__id__", text,
			"__sls__", n, "duration", ms))
		jid := salt.NewJID(time.Now())
		s.Returned("m", jid, fun, value.ListOf(text, value.DictOf("mods", text)), value.DictOf("return", d), time.Now())
		if err := s.Save(); err != nil {
			t.Fatal(err)
		}
		again, err := Open(s.path)
		if err != nil || again.Minion("m").Severity(time.Now()) != s.Minion("m").Severity(time.Now()) {
			t.Fatalf("read again: %v", err)
		}
		for _, r := range []*Run{s.Minion("m").Applied, s.Minion("m").Tested} {
			if r != nil && len(r.Items) > 0 && len(r.Items[0].State) > 2*maxText+10 {
				t.Fatalf("%d bytes", len(r.Items[0].State))
			}
		}
	})
}
