package schedule

import (
	"os"
	"testing"
	"time"

	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// TestMain sets the time zone of all tests before a goroutine reads it.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

func at(t *testing.T, s string) time.Time {
	t.Helper()
	v, err := time.ParseInLocation("2006-01-02 15:04:05", s, time.Local)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestCron checks the next times of rules.
func TestCron(t *testing.T) {
	for _, c := range []struct{ rule, after, want string }{
		{"* * * * *", "2026-11-22 10:00:00", "2026-11-22 10:01:00"},
		{"* * * * *", "2026-11-22 10:00:59", "2026-11-22 10:01:00"},
		{"*/15 * * * *", "2026-11-22 10:46:00", "2026-11-22 11:00:00"},
		{"5/20 * * * *", "2026-11-22 10:06:00", "2026-11-22 10:25:00"},
		{"0 0 1 1 *", "2026-11-22 10:00:00", "2027-01-01 00:00:00"},
		{"30 2 * * mon-fri", "2026-11-20 03:00:00", "2026-11-23 02:30:00"},
		{"0 0 13 * 5", "2026-11-22 00:00:00", "2026-11-27 00:00:00"},
		{"0 0 29 feb *", "2026-11-22 00:00:00", "2028-02-29 00:00:00"},
		{"0 0 29 2 1", "2026-11-22 00:00:00", "2027-02-01 00:00:00"},
		{"0 0 30 2 *", "2026-11-22 00:00:00", ""},
		{"0 12 * * 7", "2026-11-22 12:00:00", "2026-11-29 12:00:00"},
		{"0 12 * * sun", "2026-11-22 11:00:00", "2026-11-22 12:00:00"},
		{"0,30 8-10 * dec *", "2026-11-30 23:00:00", "2026-12-01 08:00:00"},
		{"* * * * * */20", "2026-11-22 10:00:01", "2026-11-22 10:00:20"},
		{"@daily", "2026-11-22 10:00:00", "2026-11-23 00:00:00"},
		{"@weekly", "2026-11-22 10:00:00", "2026-11-29 00:00:00"},
	} {
		r, err := ParseCron(c.rule)
		if err != nil {
			t.Error(err)
			continue
		}
		next := r.Next(at(t, c.after))
		if next.IsZero() != (c.want == "") || c.want != "" && !next.Equal(at(t, c.want)) {
			t.Errorf("%s after %s: %v, want %s", c.rule, c.after, next, c.want)
		}
	}
	for _, bad := range []string{"", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *", "*/0 * * * *", "a * * * *",
		"@never", "1- * * * *", "* * * * * * *"} {
		if _, err := ParseCron(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestCronWhenClocksChange checks that an hour skipped by the clock change is left out, and that
// the search terminates where an hour occurs twice.
func TestCronWhenClocksChange(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	r, err := ParseCron("30 2 * * *")
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 3, 28, 12, 0, 0, 0, berlin) // clocks go from 2 to 3 that night
	if next := r.Next(from); next.Hour() != 2 || !next.After(from) {
		t.Errorf("in spring %v", next)
	}
	for from = time.Date(2026, 10, 24, 12, 0, 0, 0, berlin); from.Month() < time.November; {
		next := r.Next(from)
		if !next.After(from) || next.Hour() != 2 || next.Minute() != 30 {
			t.Fatalf("the next time after %v is %v", from, next)
		}
		from = next
	}
}

func TestMoments(t *testing.T) {
	const now = "2026-11-22 10:00:00" // a Sunday
	for _, c := range []struct{ text, want string }{
		{"5pm", "2026-11-22 17:00:00"},
		{"5 PM", "2026-11-22 17:00:00"},
		{"5:00pm", "2026-11-22 17:00:00"},
		{"12am", "2026-11-23 00:00:00"},
		{"12pm", "2026-11-22 12:00:00"},
		{"9:30", "2026-11-23 09:30:00"},
		{"09:59:59", "2026-11-23 09:59:59"},
		{"10:00", "2026-11-23 10:00:00"},
		{"Monday 5:00pm", "2026-11-23 17:00:00"},
		{"Sunday 5:00pm", "2026-11-22 17:00:00"},
		{"Sun 9am", "2026-11-29 09:00:00"},
		{"saturday", "2026-11-28 00:00:00"},
		{"2026-11-22 17:00", "2026-11-22 17:00:00"},
		{"2026-11-22T17:00:01", "2026-11-22 17:00:01"},
		{"2026-11-22T17:00:01+01:00", "2026-11-22 16:00:01"},
		{"11/23/2026 1:02am", "2026-11-23 01:02:00"},
		{"Nov 23 2026 5pm", "2026-11-23 17:00:00"},
		{"23 November 2026, 5pm", "2026-11-23 17:00:00"},
		{"Jan 1st 8am", "2027-01-01 08:00:00"},
		{"Feb 29", "2028-02-29 00:00:00"},
		{"2025-01-01", ""},
	} {
		m, err := ParseMoment(c.text)
		if err != nil {
			t.Error(err)
			continue
		}
		next := m.Next(at(t, now))
		if next.IsZero() != (c.want == "") || c.want != "" && !next.Equal(at(t, c.want)) {
			t.Errorf("%s: %v, want %s", c.text, next, c.want)
		}
	}
	for _, bad := range []string{"", "soon", "25:00", "13pm", "0am", "5:60", "2026-13-01", "Feb 30", "5pm 6pm", "99999", "pm", "2026", "12 13"} {
		if m, err := ParseMoment(bad); err == nil {
			t.Errorf("%q was parsed as %+v", bad, m)
		}
	}
}

func FuzzParse(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"5pm", "Monday 5:00pm", "2026-11-22T17:00:01", "*/5 * * * 1-5", "Jan 1st 8am", "0 0 29 2 *"} {
		f.Add(s)
	}
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		if m, err := ParseMoment(s); err == nil {
			if next := m.Next(now); !next.IsZero() && !next.After(now) {
				t.Errorf("%q: %v", s, next)
			}
		}
		if c, err := ParseCron(s); err == nil {
			if next := c.Next(now); !next.IsZero() && !next.After(now) {
				t.Errorf("%q: %v", s, next)
			}
		}
		_, _ = ParseFormat(s, s)
	})
}

func dict(kv ...any) *value.Dict { return value.DictOf(kv...) }

func TestJobs(t *testing.T) {
	now := at(t, "2026-11-22 10:00:00")
	on := Globals{Enabled: true}
	names := dict("tea time", "4pm")
	for what, c := range map[string]struct {
		d    *value.Dict
		next string
		skip string
	}{
		"interval":         {dict("minutes", 1, "seconds", 30), "2026-11-22 10:01:30", ""},
		"text":             {dict("hours", "2"), "2026-11-22 12:00:00", ""},
		"cron":             {dict("cron", "0 3 * * *"), "2026-11-23 03:00:00", ""},
		"when":             {dict("when", value.ListOf("5pm", "Monday 1am")), "2026-11-22 17:00:00", ""},
		"named":            {dict("when", "tea time"), "2026-11-22 16:00:00", ""},
		"once":             {dict("once", "2026-12-24T18:00:00"), "2026-12-24 18:00:00", ""},
		"once over":        {dict("once", "2025-12-24T18:00:00"), "", ""},
		"once format":      {dict("once", "24.12.2026", "once_fmt", "%d.%m.%Y"), "2026-12-24 00:00:00", ""},
		"explicit":         {dict("hours", 5, "run_explicit", value.ListOf(dict("time", "2026-11-22T11:00:00"))), "2026-11-22 11:00:00", ""},
		"disabled":         {dict("seconds", 5, "enabled", false), "2026-11-22 10:00:05", "disabled"},
		"in range":         {dict("seconds", 5, "range", dict("start", "9am", "end", "11am")), "2026-11-22 10:00:05", ""},
		"out of range":     {dict("seconds", 5, "range", dict("start", "1pm", "end", "2pm")), "2026-11-22 10:00:05", "not_in_range"},
		"inverted":         {dict("seconds", 5, "range", dict("start", "9am", "end", "11am", "invert", true)), "2026-11-22 10:00:05", "in_skip_range"},
		"inverted outside": {dict("seconds", 5, "range", dict("start", "1pm", "end", "2pm", "invert", true)), "2026-11-22 10:00:05", ""},
		"quiet":            {dict("seconds", 5, "skip_during_range", dict("start", "9am", "end", "11am")), "2026-11-22 10:00:05", "in_skip_range"},
		"until":            {dict("seconds", 5, "until", "2026-11-22 09:00"), "2026-11-22 10:00:05", "until_passed"},
		"not until yet":    {dict("seconds", 5, "until", "2026-11-22 11:00"), "2026-11-22 10:00:05", ""},
		"after":            {dict("seconds", 5, "after", "2026-11-22 11:00"), "2026-11-22 10:00:05", "after_not_passed"},
		"skipped": {dict("seconds", 5, "skip_explicit", value.ListOf(dict("time", "2026-11-22T10:00:00", "time_fmt", "%Y-%m-%dT%H:%M:%S"))),
			"2026-11-22 10:00:05", "skip_explicit"},
	} {
		c.d.Set("function", "test.ping")
		j, err := Parse("job", c.d, on, names)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		next := j.Next(now)
		if next.IsZero() != (c.next == "") || c.next != "" && !next.Equal(at(t, c.next)) {
			t.Errorf("%s: next %v, want %s", what, next, c.next)
		}
		if v, err := j.Judge(on, now, now); err != nil || v.Skip != c.skip {
			t.Errorf("%s: %+v %v, want %q", what, v, err, c.skip)
		}
	}
	for what, d := range map[string]*value.Dict{
		"nothing":       dict(),
		"two":           dict("cron", "* * * * *", "when", "5pm"),
		"both":          dict("seconds", 5, "cron", "* * * * *"),
		"too often":     dict("seconds", 0),
		"no number":     dict("seconds", "often"),
		"splay":         dict("seconds", 5, "splay", dict("start", 5, "end", 1)),
		"splay text":    dict("seconds", 5, "splay", "x"),
		"range":         dict("seconds", 5, "range", "9am"),
		"range end":     dict("seconds", 5, "range", dict("start", "9am")),
		"until":         dict("seconds", 5, "until", "the cows come home"),
		"once":          dict("once", "tomorrow"),
		"skip_explicit": dict("seconds", 5, "skip_explicit", value.ListOf("x")),
	} {
		if _, err := Parse("job", d, on, nil); err == nil {
			t.Errorf("%s: %v was accepted", what, value.Repr(d))
		}
	}
	bad, err := Parse("job", dict("seconds", 5, "range", dict("start", "9am", "end", "8am")), on, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bad.Judge(on, now, now); err == nil {
		t.Error("a range that ends before it begins was accepted")
	}
}

func TestGlobals(t *testing.T) {
	now := at(t, "2026-11-22 10:00:00")
	g := ParseGlobals(dict("skip_function", "test.skipped", "skip_during_range", dict("start", "9am", "end", "11am"), "splay", 7))
	j, err := Parse("job", dict("function", "test.ping", "seconds", 5, "run_after_skip_range", true), g, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := j.Judge(g, now, now)
	if err != nil || v.Skip != "" || v.Fun != "test.skipped" || !v.Again.Equal(at(t, "2026-11-22 11:00:01")) {
		t.Errorf("%+v %v", v, err)
	}
	seen := map[time.Duration]bool{}
	for range 500 {
		d := j.Splay()
		if seen[d] = true; d < time.Second || d > 7*time.Second {
			t.Fatalf("splay %v", d)
		}
	}
	if len(seen) != 7 {
		t.Errorf("%d different splays", len(seen))
	}
	if g := ParseGlobals(dict("enabled", false)); g.Enabled || ParseGlobals(nil).Enabled != true {
		t.Error("enabled is parsed wrongly")
	}
}
