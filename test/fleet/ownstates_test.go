package fleet

import (
	"path/filepath"
	"slices"
	"testing"

	"brine/internal/daemons/minion"
	"brine/internal/py/value"
)

// single makes the minion apply a state, and returns the single result.
func (m *theMaster) single(t *testing.T, test bool, fun, name string, kw ...any) *value.Dict {
	t.Helper()
	keywords := value.DictOf(append([]any{"__kwarg__", true, "fun", fun, "name", name, "test", test}, kw...)...)
	ret := m.command("glob", "*", "state.single", 1, keywords)["w1"]
	results, ok := ret.At("return").(*value.Dict)
	if !ok || results.Len() != 1 {
		t.Fatalf("%s %s: %s", fun, name, value.Repr(ret))
	}
	for _, v := range results.All() {
		r, _ := v.(*value.Dict)
		return r
	}
	return nil
}

// TestStatesOfTheMinionItself applies states for the schedule, beacons and events: changes
// predicted in test mode are made, and only once. The results, comments and changes are those
// of Salt 3007.10, whose states for the schedule and beacons succeed in test mode.
func TestStatesOfTheMinionItself(t *testing.T) {
	m, _ := pair(t, func(c *minion.Config) { c.Opts.Set("conf_file", filepath.Join(t.TempDir(), "minion")) })
	type row struct {
		fun, name string
		kw        []any
		test, run any
		comment   string
		changes   *value.Dict
	}
	job := []any{"function", "test.ping", "seconds", int64(3600)}
	load := []any{"beacon_module", "load", "averages", value.DictOf("1m", value.ListOf(int64(0), 2000.0)), "interval", int64(600)}
	slower := append(slices.Clone(load[:4]), "interval", int64(900))
	for _, r := range []row{
		{"schedule.present", "j1", job, true, true, "Adding new job j1 to schedule", value.DictOf("j1", "added")},
		{"schedule.present", "j1", job, true, true, "Job j1 in correct state", nil},
		{"schedule.disabled", "j1", nil, true, true, "Disabled job j1 from schedule", nil},
		{"schedule.enabled", "j1", nil, true, true, "Enabled job j1 from schedule", nil},
		{"schedule.enabled", "none", nil, true, true, "Job none not present in schedule", nil},
		{"schedule.present", "bad", []any{"function", "test.ping", "job_args", "x", "seconds", int64(3)}, false, false,
			"job_args is not a list. please correct and try again.", nil},
		{"schedule.absent", "j1", nil, true, true, "Removed job j1 from schedule", value.DictOf("j1", "removed")},
		{"schedule.absent", "j1", nil, true, true, "Job j1 not present in schedule", nil},
		{"beacon.present", "watch", load, true, true, "Adding watch to beacons", nil},
		{"beacon.present", "watch", load, true, true, "Job watch in correct state", nil},
		{"beacon.present", "watch", slower, true, true, "Modifying watch in beacons",
			value.DictOf("diff", "--- \n+++ \n@@ -1,3 +1,3 @@\n beacon_module:load\n averages:{'1m': [0, 2000.0]}\n-interval:600\n+interval:900\n")},
		{"beacon.disabled", "watch", nil, true, true, "Disabled beacon watch.", nil},
		{"beacon.enabled", "watch", nil, true, true, "Enabled watch from beacons", nil},
		{"beacon.disabled", "none", nil, true, true, "Job none is not configured.", nil},
		{"beacon.absent", "watch", []any{"save", true}, true, true, "Removed watch from beacons\nBeacon watch saved", nil},
		{"beacon.present", "nosuch", nil, false, false, `Beacon "nosuch" is not available.`, nil},
		{"saltutil.sync_all", "x", nil, nil, true, "No updates to sync", nil},
		{"saltutil.sync_modules", "x", []any{"refresh", false}, nil, true, "No updates to sync", nil},
	} {
		if got := m.single(t, true, r.fun, r.name, r.kw...); got.At("result") != r.test {
			t.Errorf("test of %s %s: %s", r.fun, r.name, value.Repr(got))
		}
		got := m.single(t, false, r.fun, r.name, r.kw...)
		want := value.NewDict(0)
		want.Update(r.changes)
		if got.At("result") != r.run || got.Str("comment") != r.comment || !value.Equal(got.At("changes"), want) {
			t.Errorf("%s %s: %s", r.fun, r.name, value.Repr(got))
		}
	}

	m.single(t, false, "beacon.present", "watch", load...)
	if got := m.single(t, true, "beacon.disabled", "watch"); got.Str("comment") != "Beacons would be disabled." {
		t.Errorf("test of beacon.disabled: %s", value.Repr(got))
	}
	m.single(t, false, "beacon.absent", "watch")

	events := m.events("site/")
	if got := m.single(t, true, "event.send", "site/predicted", "data", value.DictOf("x", int64(1))); got.At("result") != nil {
		t.Errorf("test of event.send: %s", value.Repr(got))
	}
	got := m.single(t, false, "event.send", "site/told", "data", value.DictOf("x", int64(1)))
	if got.At("result") != true || got.Str("comment") != "Event fired" || got.Dict("changes").Str("tag") != "site/told" {
		t.Errorf("event.send: %s", value.Repr(got))
	}
	if ev := <-events; ev.Tag != "site/told" || ev.Data.Dict("data").Int("x") != 1 {
		t.Errorf("the first event is %s: %s", ev.Tag, value.Repr(ev.Data))
	}
}
