package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Cron is a rule of cron(5): five fields (minute, hour, day of the month, month, day of the week),
// optionally followed by seconds as in croniter; or a word such as @daily.
type Cron struct {
	second, minute, hour, day, month, weekday uint64 // sets of bits
	// anyDay and anyWeekday mean that the field was *. If neither is set, a match of one of the two
	// suffices.
	anyDay, anyWeekday bool
}

var cronWords = []struct{ word, rule string }{
	{"@yearly", "0 0 1 1 *"}, {"@annually", "0 0 1 1 *"}, {"@monthly", "0 0 1 * *"}, {"@weekly", "0 0 * * 0"},
	{"@daily", "0 0 * * *"}, {"@midnight", "0 0 * * *"}, {"@hourly", "0 * * * *"},
}

// ParseCron parses a rule.
func ParseCron(rule string) (*Cron, error) {
	rule = strings.TrimSpace(rule)
	for _, w := range cronWords {
		if strings.EqualFold(rule, w.word) {
			rule = w.rule
		}
	}
	f := strings.Fields(rule)
	if len(f) != 5 && len(f) != 6 {
		return nil, fmt.Errorf("cron: %q has %d fields, expected 5 (minute, hour, day, month, day of the week)", rule, len(f))
	}
	c := &Cron{second: 1, anyDay: f[2] == "*", anyWeekday: f[4] == "*"}
	fields := []struct {
		to     *uint64
		lo, hi int
		names  string // of three letters each, starting at lo
	}{
		{&c.minute, 0, 59, ""}, {&c.hour, 0, 23, ""}, {&c.day, 1, 31, ""},
		{&c.month, 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec"}, {&c.weekday, 0, 7, "sunmontuewedthufrisat"}, {&c.second, 0, 59, ""},
	}
	for i, text := range f {
		set, err := cronField(text, fields[i].lo, fields[i].hi, fields[i].names)
		if err != nil {
			return nil, fmt.Errorf("cron: %q: %w", rule, err)
		}
		*fields[i].to = set
	}
	if c.weekday&(1<<7) != 0 { // Sunday is 0 and 7
		c.weekday |= 1
	}
	return c, nil
}

func cronField(text string, lo, hi int, names string) (set uint64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
				return 0, fmt.Errorf("%q is not a step", stepText)
			}
		}
		from, to := lo, hi
		if span != "*" {
			a, b, ranged := strings.Cut(span, "-")
			if from, err = cronNumber(a, lo, hi, names); err != nil {
				return 0, err
			}
			switch {
			case ranged:
				if to, err = cronNumber(b, lo, hi, names); err != nil {
					return 0, err
				}
			case !stepped:
				to = from
			}
			if from > to {
				return 0, fmt.Errorf("the range %q ends before it begins", span)
			}
		}
		for n := from; n <= to; n += step {
			set |= 1 << n
		}
	}
	return set, nil
}

func cronNumber(text string, lo, hi int, names string) (int, error) {
	if len(text) == 3 && names != "" {
		if i := strings.Index(names, strings.ToLower(text)); i >= 0 && i%3 == 0 {
			return lo + i/3, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("%q is not from %d to %d", text, lo, hi)
	}
	return n, nil
}

// cronYears bounds the search for the next time: a 29 February on a Monday recurs within 40 years.
const cronYears = 41

// Next returns the first time after t that matches the rule, in the time zone of t. It is the zero
// time if there is none, as for 30 February.
func (c *Cron) Next(t time.Time) time.Time {
	t = t.Add(time.Second - time.Duration(t.Nanosecond())).Round(0)
	last := t.Year() + cronYears
	for t.Year() < last {
		y, mo, d := t.Date()
		h, mi, s := t.Clock()
		switch {
		case c.month&(1<<mo) == 0:
			t = later(t, time.Date(y, mo+1, 1, 0, 0, 0, 0, t.Location()))
		case !c.onDay(t):
			t = later(t, time.Date(y, mo, d+1, 0, 0, 0, 0, t.Location()))
		case c.hour&(1<<h) == 0:
			t = later(t, time.Date(y, mo, d, h+1, 0, 0, 0, t.Location()))
		case c.minute&(1<<mi) == 0:
			t = t.Add(time.Minute - time.Duration(s)*time.Second)
		case c.second&(1<<s) == 0:
			t = t.Add(time.Second)
		default:
			return t
		}
	}
	return time.Time{}
}

// later returns next, unless clocks are put back in between so that it would not be after t.
func later(t, next time.Time) time.Time {
	if next.After(t) {
		return next
	}
	return t.Add(time.Hour).Truncate(time.Minute)
}

func (c *Cron) onDay(t time.Time) bool {
	day, weekday := c.day&(1<<t.Day()) != 0, c.weekday&(1<<t.Weekday()) != 0
	if c.anyDay || c.anyWeekday {
		return day && weekday
	}
	return day || weekday
}
