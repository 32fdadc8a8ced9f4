package files

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{state.Of("retention_schedule", f.retention,
			`Remove old backups from a directory, but keep the newest and the first of hours, days, weeks, months or years.`)}
	})
}

type retentionArgs struct {
	Name     string      `salt:"name" doc:"path of the directory"`
	Retain   *value.Dict `salt:"retain" doc:"map of most_recent, first_of_hour, first_of_day, first_of_week, first_of_month and first_of_year to the number to keep, or all"`
	Format   string      `salt:"strptime_format" doc:"how a file's name tells its time, such as backup_%Y%m%d.tgz; other files are left alone. null: the time of the last change counts" default:"null"`
	Timezone any         `salt:"timezone" doc:"name of the time zone in which days and hours begin, without strptime_format; null: that of the machine" default:"null"`
}

// dated is a file and its time.
type dated struct {
	name string
	at   time.Time
}

// depths maps rules to how many leading parts of the time (year, month, day,
// hour) are equal within a group of files. The first file of each group is
// kept.
var depths = map[string]int{"first_of_year": 1, "first_of_month": 2, "first_of_day": 3, "first_of_hour": 4, "most_recent": 5}

func (file) retention(_ context.Context, _ *state.Env, a retentionArgs) (state.Plan, error) {
	name := filesys.ExpandUser(a.Name)
	switch {
	case name == "":
		return state.Plan{}, fn.Errorf("Must provide name to file.retention_schedule")
	case !filesys.IsDir(name):
		return state.Plan{}, fn.Errorf("Name provided to file.retention must be a directory")
	}
	files, ignored, err := a.files(name)
	if err != nil {
		return state.Plan{}, err
	}
	kept := map[string]bool{}
	for rule, many := range a.Retain.All() {
		n := int64(math.MaxInt64 - 1)
		if many != "all" {
			if n, err = strconv.ParseInt(value.Str(many), 10, 64); err != nil {
				return state.Plan{}, fn.Errorf("retain: %s must be a number or all, not %s", value.Str(rule), value.Str(many))
			}
		}
		depth, ok := depths[value.Str(rule)]
		key := calendar
		if rule == "first_of_week" {
			depth, key, ok, n = 2, weeks, true, n+1 // Salt keeps one more week
		}
		if !ok {
			return state.Plan{},
				fn.Errorf("retain: there is no rule %s; use most_recent or first_of_hour, first_of_day, first_of_week, first_of_month, first_of_year",
					value.Str(rule))
		}
		for _, f := range firsts(files, key, depth, n) {
			kept[f] = true
		}
	}
	var gone, retained []string
	for _, f := range files {
		if kept[f.name] {
			retained = append(retained, f.name)
		} else {
			gone = append(gone, f.name)
		}
	}
	count := strconv.Itoa(len(gone)) + " backups "
	would := count + "would have been removed from " + name + ".\n"
	done := count + "were removed from " + name + ".\n"
	if len(gone) == 0 {
		return state.Plan{Comment: done, Forecast: &state.Result{Verdict: state.Succeeded, Comment: would}}, nil
	}
	diff := value.DictOf("retained", backwards(retained), "deleted", backwards(gone), "ignored", backwards(ignored))
	return state.Plan{Steps: []state.Step{{Change: state.Change{Diff: diff, Comment: would}, Do: func(context.Context) (state.Change, error) {
		for _, f := range gone {
			if err := filesys.Remove(filepath.Join(name, f)); err != nil {
				return state.Change{}, fn.Errorf("cannot remove %s: %w", filepath.Join(name, f), atomicfile.Cause(err))
			}
		}
		return state.Change{Diff: diff, Comment: done}, nil
	}}}}, nil
}

func backwards(names []string) *value.List {
	slices.Sort(names)
	slices.Reverse(names)
	return value.Strings(names)
}

// files returns the files whose names contain a time, and the names of the
// others.
func (a retentionArgs) files(dir string) (files []dated, ignored []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fn.Errorf("cannot read %s: %w", dir, atomicfile.Cause(err))
	}
	place := time.Local
	if given(a.Timezone) {
		if place, err = time.LoadLocation(value.Str(a.Timezone)); err != nil {
			return nil, nil, fn.Errorf("timezone: %w", err)
		}
	}
	var layout *strptime
	if a.Format != "" {
		if layout, err = newStrptime(a.Format); err != nil {
			return nil, nil, err
		}
	}
	ignored = []string{".", ".."}
	for _, e := range entries {
		at, ok := time.Time{}, false
		if layout != nil {
			at, ok = layout.parse(e.Name())
		} else if st, err := e.Info(); err == nil {
			at, ok = st.ModTime().In(place), true
		}
		if ok {
			files = append(files, dated{e.Name(), at})
		} else {
			ignored = append(ignored, e.Name())
		}
	}
	return files, ignored, nil
}

func calendar(t time.Time) [5]int64 {
	return [5]int64{int64(t.Year()), int64(t.Month()), int64(t.Day()), int64(t.Hour()), t.UnixNano()}
}

// weeks returns year and week number by the calendar. As in Salt, the last days
// of December may be in week 1 of the same year.
func weeks(t time.Time) [5]int64 {
	_, week := t.ISOWeek()
	return [5]int64{int64(t.Year()), int64(week), int64((t.Weekday() + 6) % 7), t.UnixNano()}
}

// firsts returns the first file of each of the newest n groups. Times in a
// group have equal leading parts.
func firsts(files []dated, key func(time.Time) [5]int64, depth int, n int64) []string {
	all := slices.Clone(files)
	slices.SortStableFunc(all, func(a, b dated) int {
		ka, kb := key(a.at), key(b.at)
		if c := slices.Compare(kb[:depth], ka[:depth]); c != 0 {
			return c
		}
		return slices.Compare(ka[:], kb[:])
	})
	var out []string
	for i, f := range all {
		k := key(f.at)
		if i > 0 {
			if before := key(all[i-1].at); slices.Equal(before[:depth], k[:depth]) {
				continue
			}
		}
		if int64(len(out)) >= n {
			break
		}
		out = append(out, f.name)
	}
	return out
}

// strptime parses times in a Python format.
type strptime struct {
	re   *regexp.Regexp
	what []byte
}

// numbers lists the numeric directives of a format with their regular
// expressions.
const numbers = `Y(\d{4}) m(1[0-2]|0[1-9]|[1-9]) d(3[01]|[12]\d|0[1-9]|[1-9]) H(2[0-3]|[01]\d|\d) I(1[0-2]|0[1-9]|[1-9]) M([0-5]\d|\d) ` +
	`S(6[01]|[0-5]\d|\d) y(\d\d) j(36[0-6]|3[0-5]\d|[12]\d\d|0[1-9]\d|00[1-9]|[1-9]\d|0[1-9]|[1-9]) f(\d{1,6}) b([A-Za-z]{3}) B([A-Za-z]+) ` +
	`p([AaPp][Mm]) a([A-Za-z]{3}) A([A-Za-z]+)`

func newStrptime(format string) (*strptime, error) {
	looks := map[byte]string{}
	for _, w := range strings.Fields(numbers) {
		looks[w[0]] = w[1:]
	}
	p := &strptime{}
	var re strings.Builder
	re.WriteString("^")
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			if strings.ContainsRune(" \t\n", rune(format[i])) {
				re.WriteString(`\s+`)
			} else {
				re.WriteString(regexp.QuoteMeta(format[i : i+1]))
			}
			continue
		}
		i++
		switch {
		case i == len(format):
			return nil, fn.Errorf("strptime_format: stray %% in format '%s'", format)
		case format[i] == '%':
			re.WriteString("%")
		case looks[format[i]] == "":
			return nil, fn.Errorf("strptime_format: %%%c is not known here; %%Y %%m %%d %%H %%M %%S and %%y %%j %%f %%b %%B %%a %%A %%I %%p are", format[i])
		default:
			re.WriteString(looks[format[i]])
			p.what = append(p.what, format[i])
		}
	}
	var err error
	if p.re, err = regexp.Compile(re.String() + "$"); err != nil {
		return nil, fn.Errorf("strptime_format: %w", err)
	}
	return p, nil
}

// parse parses a time; ok is false if the string does not match the format.
func (p *strptime) parse(text string) (t time.Time, ok bool) {
	m := p.re.FindStringSubmatch(text)
	if m == nil {
		return t, false
	}
	year, month, d, hour, minute, second, nano, yday := 1900, 1, 1, 0, 0, 0, 0, 0
	pm, half := false, false
	for i, c := range p.what {
		s := m[i+1]
		n, _ := strconv.Atoi(s)
		switch c {
		case 'Y':
			year = n
		case 'y':
			if year = 1900 + n; n < 69 {
				year = 2000 + n
			}
		case 'm':
			month = n
		case 'd':
			d = n
		case 'H':
			hour = n
		case 'I':
			hour, half = n%12, true
		case 'p':
			pm = strings.EqualFold(s, "pm")
		case 'M':
			minute = n
		case 'S':
			second = n
		case 'f':
			nano, _ = strconv.Atoi((s + "000000")[:6] + "000")
		case 'j':
			yday = n
		case 'b', 'B':
			layout := map[byte]string{'b': "Jan", 'B': "January"}[c]
			at, err := time.Parse(layout, s)
			if err != nil {
				return t, false
			}
			month = int(at.Month())
		}
	}
	if half && pm {
		hour += 12
	}
	if yday > 0 {
		at := time.Date(year, 1, yday, 0, 0, 0, 0, time.UTC)
		month, d = int(at.Month()), at.Day()
	}
	t = time.Date(year, time.Month(month), d, hour, minute, second, nano, time.UTC)
	return t, int(t.Month()) == month && t.Day() == d
}
