package render

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"brine/internal/py/jinja"
)

func timeFilters() []*jinja.Func {
	return []*jinja.Func{
		filter("strftime(date=None, format='%Y-%m-%d')", func(c *jinja.Call) (any, error) {
			t, err := dateOf(c.Bound[0])
			if err != nil {
				return nil, err
			}
			return jinja.Strftime(t, c.Str(1)), nil
		}),
	}
}

// The years 1 and 9999, the range of Python's dates.
const firstSecond, lastSecond = -62135596800, 253402300800

// dateForms are the formats of dates, for time.Parse. Months, days and hours
// may have one digit or two, and seconds a fraction.
var dateForms = []string{
	time.RFC3339, "2006-1-2T15:4:5", "2006-1-2 15:4:5", "2006-1-2 15:4:5 -0700", "2006-1-2 15:4:5 MST", "2006-1-2T15:4", "2006-1-2 15:4", "2006-1-2",
	"2006/1/2", "2006/1/2 15:4:5",
	"2006/1/2 15:4", "1/2/2006", "1/2/2006 15:4:5", "1/2/2006 15:4", "2.1.2006", "2.1.2006 15:4:5", "2.1.2006 15:4", "2-1-2006", "20060102T150405",
	"20060102T15:04:05",
	"Jan 2 2006", "Jan 2, 2006", "January 2, 2006", "January 2 2006", "2 Jan 2006", "2 January 2006", "2-Jan-2006", "Jan 2 2006 15:4:5", "Jan 2, 2006 15:4:5",
	"2 Jan 2006 15:4:5",
	"January 2006", "Jan 2006", time.RFC1123, time.RFC1123Z, time.ANSIC, time.UnixDate, time.RFC850, "Mon, 2 Jan 2006 15:04:05 MST",
	"Mon, 2 Jan 2006 15:04:05 -0700", "Mon, 2 Jan 2006",
}

// clockForms are times of the day; the date is today's.
var clockForms = []string{"15:4:5", "15:4", "3:4pm", "3:4 pm", "3pm", "3 pm"}

// relativeDate is a distance from now: "2 days ago", "+1 week".
var relativeDate = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([+-]?\d{1,6}) ?(sec|second|min|minute|hour|day|week|fortnight|month|year)s?( ago)?$`)
})

// dateOf parses a date: a number of seconds, or a string in one of the usual
// formats. Without a value it is now.
func dateOf(v any) (time.Time, error) {
	switch x := v.(type) {
	case nil:
		return time.Now(), nil
	case time.Time:
		return x, nil
	}
	if f, ok := jinja.ToFloat(v); ok && f > firstSecond && f < lastSecond {
		return time.UnixMicro(int64(f * 1e6)), nil
	}
	s, _ := jinja.Text(v)
	if s = strings.Join(strings.Fields(s), " "); len(s) < 64 {
		if t, ok := parseDate(s, time.Now()); ok {
			return t, nil
		}
	}
	return time.Time{}, jinja.Errorf("RuntimeError", "Unable to parse %s. Use a number of seconds or a date such as 2006-01-02 15:04:05",
		fmt.Sprint(jinja.Str(v)))
}

func parseDate(s string, now time.Time) (time.Time, bool) {
	for _, l := range dateForms {
		if t, err := time.ParseInLocation(l, s, time.Local); err == nil {
			return t, true
		}
	}
	s = strings.ToLower(s)
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.Local)
	for _, l := range clockForms {
		if t, err := time.ParseInLocation(l, s, time.Local); err == nil {
			return midnight.Add(time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second), true
		}
	}
	switch s {
	case "now":
		return now, true
	case "today", "midnight":
		return midnight, true
	case "noon":
		return midnight.Add(12 * time.Hour), true
	case "tomorrow":
		return midnight.AddDate(0, 0, 1), true
	case "yesterday":
		return midnight.AddDate(0, 0, -1), true
	}
	if seconds, ok := strings.CutPrefix(s, "@"); ok {
		n, err := strconv.ParseInt(seconds, 10, 40)
		return time.Unix(n, 0), err == nil
	}
	m := relativeDate().FindStringSubmatch(s)
	if m == nil {
		return time.Time{}, false
	}
	n, _ := strconv.Atoi(m[1])
	if m[3] != "" {
		n = -n
	}
	switch m[2] {
	case "sec", "second":
		return now.Add(time.Duration(n) * time.Second), true
	case "min", "minute":
		return now.Add(time.Duration(n) * time.Minute), true
	case "hour":
		return now.Add(time.Duration(n) * time.Hour), true
	case "day":
		return now.AddDate(0, 0, n), true
	case "week":
		return now.AddDate(0, 0, 7*n), true
	case "fortnight":
		return now.AddDate(0, 0, 14*n), true
	case "month":
		return now.AddDate(0, n, 0), true
	}
	return now.AddDate(n, 0, 0), true
}
