package schedule

import (
	"testing"
	"time"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/test/fuzztest"
)

// FuzzSchedule parses jobs from a configuration, a pillar or an event: none stops
// the minion, and the next time of a job is in the future.
func FuzzSchedule(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, job := range []string{
		"function: test.ping\nseconds: 30\nsplay: 5",
		"function: test.ping\nhours: 1\nminutes: 1.5\nsplay: {start: 10, end: 15}\nrange: {start: 8am, end: 5pm, invert: true}",
		"function: test.ping\ncron: '*/5 1-3 * * mon'\nmaxrunning: 1",
		"function: test.ping\nwhen: [Monday 5:00pm, Tuesday 3:00pm, '2026-11-22 10:00']\nafter: 12/31/2026 11:59pm",
		"function: test.ping\nonce: 2026-11-22T10:00:00\nonce_fmt: '%Y-%m-%dT%H:%M:%S'\nuntil: 12/31/2027 11:59pm",
		"function: test.ping\nseconds: 15\nskip_during_range: [{start: 8am, end: 9am}]\nskip_explicit: [{time: '2026-11-22T10:00:00', time_fmt: " +
			"'%Y-%m-%dT%H:%M:%S'}]\nrun_after_skip_range: true",
		"function: test.ping\nwhen: tea\nargs: [1]\nkwargs: {a: b}\nreturner: x\nenabled: false",
		"seconds: -1\nminutes: .inf", "cron: '* * 31 2 *'", "when: 1e300", "seconds: 1e18\ndays: 9223372036854775807",
	} {
		f.Add([]byte(job), int64(1_795_000_000))
	}
	names := value.DictOf("tea", "4:00pm")
	f.Fuzz(func(t *testing.T, text []byte, unix int64) {
		v, err := yaml.Load(text, "schedule")
		d, ok := v.(*value.Dict)
		if err != nil || !ok {
			return
		}
		g := ParseGlobals(d)
		j, err := Parse("job", d, g, names)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a message")
			}
			return
		}
		now := time.Unix(unix%(1<<33), 0)
		next := j.Next(now)
		if !next.IsZero() && next.Before(now) {
			t.Fatalf("the next time after %v is %v", now, next)
		}
		if s := j.Splay(); s < 0 {
			t.Fatalf("a splay of %v", s)
		}
		_ = j.Seconds()
		if _, err := j.Judge(g, next, now); err != nil && err.Error() == "" {
			t.Fatal("an error without a message")
		}
	})
}
