// Package schedule computes when scheduled jobs are due, from the option schedule. It has no clock
// and runs nothing.
package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"brine/internal/py/value"
)

// Slack is the tolerance for skip_explicit: how far a job may be due from the given time and still be skipped.
const Slack = time.Second

// Job is one entry of a schedule.
type Job struct {
	Name, Fun string
	// Every is the interval, 0 if the job has explicit times.
	Every time.Duration
	// OnStart makes the job run as soon as the schedule starts.
	OnStart bool
	// MaxRunning bounds the concurrent runs of the job; 0 means no bound.
	MaxRunning int
	Enabled    bool

	cron                *Cron
	when                []Moment
	once                time.Time
	explicit, skip      []time.Time
	splayLo, splayHi    int64
	window              *window
	quiet               *window
	afterQuiet          bool
	notBefore, notAfter *Moment
}

// window is a time range, or everything outside it.
type window struct {
	from, to Moment
	invert   bool
}

// Globals are the entries of a schedule that are not jobs.
type Globals struct {
	Enabled bool
	// SkipFunction runs instead of a job that is skipped because of its time.
	SkipFunction string

	splay any
	quiet any
}

// IsGlobal reports whether a key of a schedule is a setting for all jobs instead of a job.
func IsGlobal(key string) bool {
	return key == "enabled" || key == "skip_function" || key == "skip_during_range" || key == "splay"
}

// ParseGlobals parses the settings for all jobs of a schedule.
func ParseGlobals(d *value.Dict) Globals {
	g := Globals{Enabled: true, SkipFunction: d.Str("skip_function"), splay: d.At("splay"), quiet: d.At("skip_during_range")}
	if v, ok := d.Get("enabled"); ok {
		g.Enabled = value.Truth(v)
	}
	return g
}

// Parse parses a job. names maps words to times for the key when.
func Parse(name string, d *value.Dict, g Globals, names *value.Dict) (*Job, error) {
	j := &Job{Name: name, Enabled: true, OnStart: value.Truth(d.At("run_on_start")), MaxRunning: 1}
	if s := d.Str("name"); s != "" {
		j.Name = s
	}
	for _, k := range []string{"function", "func", "fun"} {
		if j.Fun == "" {
			j.Fun = d.Str(k)
		}
	}
	if v, ok := d.Get("enabled"); ok {
		j.Enabled = value.Truth(v)
	}
	if n := d.Int("maxrunning"); n > 0 {
		j.MaxRunning = int(min(n, 1<<20))
	}
	if v, ok := d.Get("jid_include"); ok && !value.Truth(v) {
		j.MaxRunning = 0
	}
	return j, errors.Join(j.times(d, names), j.bounds(d, g))
}

// AnyTime returns a time for each word in the key when of a definition that the pillar or the grains may
// define, for a check that does not know these.
func AnyTime(def any) *value.Dict {
	const wordChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	d, _ := def.(*value.Dict)
	names := value.NewDict(0)
	for _, word := range value.Texts(d.At("when")) {
		if strings.Trim(word, wordChars) == "" {
			names.Set(word, "5pm")
		}
	}
	return names
}

var units = []struct {
	name string
	unit time.Duration
}{{"seconds", time.Second}, {"minutes", time.Minute}, {"hours", time.Hour}, {"days", 24 * time.Hour}}

func number(v any) (float64, bool) {
	switch x := v.(type) {
	case int64:
		return float64(x), true
	case float64:
		return x, true
	case string:
		f, err := strconv.ParseFloat(x, 64)
		return f, err == nil
	}
	return 0, false
}

// times parses when a job is due.
func (j *Job) times(d, names *value.Dict) (err error) {
	interval, ways := false, 0
	for _, u := range units {
		if d.At(u.name) == nil {
			continue
		}
		n, ok := number(d.At(u.name))
		if !ok || n < 0 || n > 1e9 {
			return fmt.Errorf("%s: expected a number, got %s", u.name, value.Repr(d.At(u.name)))
		}
		interval = true
		j.Every += time.Duration(n * float64(u.unit))
	}
	for _, k := range []string{"when", "cron", "once"} {
		if d.Has(k) {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New(`unable to use "when", "cron" and "once" together`)
	case ways == 1 && interval:
		return errors.New(`unable to use "seconds", "minutes", "hours", or "days" with "when", "cron" or "once"`)
	case interval && j.Every < time.Second:
		return errors.New("the interval must be at least one second")
	case ways == 0 && !interval && !d.Has("run_explicit") && !j.OnStart:
		return errors.New("no time is given: set seconds, minutes, hours, days, when, cron or once")
	case d.Has("cron"):
		j.cron, err = ParseCron(value.Str(d.At("cron")))
	case d.Has("once"):
		format := DefaultFormat
		if s := d.Str("once_fmt"); s != "" {
			format = s
		}
		j.once, err = parseTime(d.At("once"), format)
	case d.Has("when"):
		for _, s := range value.Texts(d.At("when")) {
			if v, ok := names.Get(s); ok {
				s = value.Str(v)
			}
			m, err := ParseMoment(s)
			if err != nil {
				return fmt.Errorf("when: %w", err)
			}
			j.when = append(j.when, m)
		}
	}
	if err != nil {
		return err
	}
	if j.explicit, err = moments(d, "run_explicit"); err == nil {
		j.skip, err = moments(d, "skip_explicit")
	}
	return err
}

func parseTime(v any, format string) (time.Time, error) {
	if t, ok := v.(time.Time); ok {
		return t, nil
	}
	return ParseFormat(value.Str(v), format)
}

// moments parses a list of {time, time_fmt}.
func moments(d *value.Dict, key string) (out []time.Time, err error) {
	for _, v := range d.List(key) {
		at, format := v, DefaultFormat
		if m, ok := v.(*value.Dict); ok {
			at = m.At("time")
			if s := m.Str("time_fmt"); s != "" {
				format = s
			}
		}
		t, err := parseTime(at, format)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		out = append(out, t)
	}
	return out, nil
}

// bounds parses the conditions under which a due job is skipped or delayed.
func (j *Job) bounds(d *value.Dict, g Globals) (err error) {
	splay := d.At("splay")
	if splay == nil {
		splay = g.splay
	}
	switch x := splay.(type) {
	case nil:
	case int64:
		j.splayLo, j.splayHi = min(1, x), x
	case *value.Dict:
		j.splayLo, j.splayHi = x.Int("start"), x.Int("end")
	default:
		return fmt.Errorf("splay: expected seconds, or a map of start and end, got %s", value.Repr(x))
	}
	if j.splayLo < 0 || j.splayHi < j.splayLo || j.splayHi > 1e9 {
		return errors.New("splay: end must be larger than start")
	}
	if j.window, err = parseWindow("range", d.At("range")); err != nil {
		return err
	}
	quiet := d.At("skip_during_range")
	if quiet == nil {
		quiet = g.quiet
	}
	if j.quiet, err = parseWindow("skip_during_range", quiet); err != nil {
		return err
	}
	j.afterQuiet = value.Truth(d.At("run_after_skip_range"))
	for _, k := range []struct {
		name string
		to   **Moment
	}{{"until", &j.notAfter}, {"after", &j.notBefore}} {
		if v := d.At(k.name); v != nil {
			m, err := ParseMoment(value.Str(v))
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			*k.to = &m
		}
	}
	return nil
}

func parseWindow(name string, v any) (*window, error) {
	if v == nil {
		return nil, nil
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, fmt.Errorf("%s: expected a map of start and end, got %s", name, value.TypeName(v))
	}
	w := &window{invert: value.Truth(d.At("invert"))}
	var err error
	if w.from, err = ParseMoment(value.Str(d.At("start"))); err == nil {
		w.to, err = ParseMoment(value.Str(d.At("end")))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return w, nil
}

// around returns the window on the day of now.
func (w *window) around(now time.Time) (from, to time.Time, err error) {
	from, to = w.from.On(now), w.to.On(now)
	if !to.After(from) {
		return from, to, errors.New("invalid range, end must be larger than start")
	}
	return from, to, nil
}

// Next returns when the job is due after t, without splay; the zero time means never.
func (j *Job) Next(t time.Time) (next time.Time) {
	sooner := func(c time.Time) {
		if c.After(t) && (next.IsZero() || c.Before(next)) {
			next = c
		}
	}
	switch {
	case j.Every > 0:
		next = t.Add(j.Every)
	case j.cron != nil:
		next = j.cron.Next(t)
	}
	for _, m := range j.when {
		sooner(m.Next(t))
	}
	sooner(j.once)
	for _, c := range j.explicit {
		sooner(c)
	}
	return next
}

// Splay returns a random delay for the next run.
func (j *Job) Splay() time.Duration {
	if j.splayHi == 0 {
		return 0
	}
	return time.Duration(j.splayLo+rand.Int64N(j.splayHi-j.splayLo+1)) * time.Second
}

// Seconds returns the interval in seconds.
func (j *Job) Seconds() int64 { return int64(j.Every / time.Second) }

// Verdict is the decision about a due job.
type Verdict struct {
	// Skip is the reason for skipping, in Salt's words; "" if the job runs.
	Skip string
	// Fun, if not "", runs instead.
	Fun string
	// Again, if not zero, is the time at which the skipped job is due again.
	Again time.Time
}

// Judge decides about a job that was due at the time due and would run now.
func (j *Job) Judge(g Globals, due, now time.Time) (Verdict, error) {
	if !g.Enabled || !j.Enabled {
		return Verdict{Skip: "disabled"}, nil
	}
	left := func(reason string) Verdict {
		if g.SkipFunction != "" {
			return Verdict{Fun: g.SkipFunction}
		}
		return Verdict{Skip: reason}
	}
	if w := j.window; w != nil {
		from, to, err := w.around(now)
		inside := !now.Before(from) && !now.After(to)
		switch {
		case err != nil:
			return Verdict{}, fmt.Errorf("range: %w", err)
		case w.invert && inside:
			return Verdict{Skip: "in_skip_range"}, nil
		case !w.invert && !inside:
			return left("not_in_range"), nil
		}
	}
	if w := j.quiet; w != nil {
		from, to, err := w.around(now)
		if err != nil {
			return Verdict{}, fmt.Errorf("skip_during_range: %w", err)
		}
		if !now.Before(from) && !now.After(to) {
			v := left("in_skip_range")
			if j.afterQuiet {
				v.Again = to.Add(time.Second)
			}
			return v, nil
		}
	}
	for _, s := range j.skip {
		if d := due.Sub(s); d >= -Slack && d <= Slack {
			return left("skip_explicit"), nil
		}
	}
	if m := j.notAfter; m != nil && !m.On(now).After(now) {
		return Verdict{Skip: "until_passed"}, nil
	}
	if m := j.notBefore; m != nil && !m.On(now).Before(now) {
		return Verdict{Skip: "after_not_passed"}, nil
	}
	return Verdict{}, nil
}
