package runners

import (
	"strings"
	"testing"

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
