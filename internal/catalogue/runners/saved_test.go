package runners

import (
	"strings"
	"testing"
	"time"

	"brine/internal/py/value"
)

// TestSavedSchedule: an entry of a schedule is saved if a minion can read it.
func TestSavedSchedule(t *testing.T) {
	entry := func(kv ...any) *value.Dict { return value.DictOf("tgt", "*", "schedule", value.DictOf(kv...)) }
	for _, c := range []struct {
		data  *value.Dict
		error string // "": it is saved
	}{
		{entry("function", "state.apply", "days", int64(1), "args", value.ListOf("web"), "kwargs", value.DictOf("test", true)), ""},
		{entry("function", "test.ping", "cron", "*/5 * * * *"), ""},
		{entry("function", "test.ping", "when", "tea time"), ""}, // a name that minions know
		{entry("function", "test.ping"), "no time is given"},
		{entry("seconds", int64(5)), "function is missing"},
		{entry("function", "test.ping", "cron", "every day"), "cannot be saved"},
		{entry("function", "test.ping", "when", "5pm", "cron", "* * * * *", "seconds", int64(1)), `with "when", "cron"`},
		{value.DictOf("tgt", "*", "schedule", "daily"), "must be an entry"},
		{value.DictOf("tgt", "*"), "must have schedule"},
		{value.DictOf("schedule", value.DictOf("function", "test.ping", "days", int64(1)), "fun", "x"), "unknown key"},
	} {
		err := checkSaved("schedule", c.data)
		if c.error == "" && err != nil || c.error != "" && (err == nil || !strings.Contains(err.Error(), c.error)) {
			t.Errorf("%s: %v, want %q", value.Repr(c.data), err, c.error)
		}
	}
	if checkSaved("target", value.DictOf("tgt", value.DictOf("a", "b"))) == nil {
		t.Error("a target that is a map is saved")
	}
}

// TestNextOfSaved: the next run of a saved schedule is known if it does not depend on the start of a minion.
func TestNextOfSaved(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.Local)
	for _, c := range []struct {
		entry *value.Dict
		want  time.Time
	}{
		{value.DictOf("function", "test.ping", "cron", "0 7 * * *"), time.Date(2026, 3, 4, 7, 0, 0, 0, time.Local)},
		{value.DictOf("function", "test.ping", "cron", "0 7 * * *", "enabled", false), time.Time{}},
		{value.DictOf("function", "test.ping", "hours", int64(5)), time.Time{}},
		{value.DictOf("function", "test.ping", "when", "tea time"), time.Time{}},
		{nil, time.Time{}},
	} {
		if got := nextSaved(c.entry, now); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", value.Repr(c.entry), got, c.want)
		}
	}
}
