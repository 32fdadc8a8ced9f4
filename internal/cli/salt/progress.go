package salt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"brine/internal/call/client"
	"brine/internal/cli/frame"
)

// progressAfter is how long a job must run before a terminal shows its progress, and the interval
// between updates.
const progressAfter = time.Second

// progress is the progress line of a running job: how many minions have returned, the slowest, the
// elapsed time, and the minions that are missing. Its fields are accessed only within Aside of the
// line.
type progress struct {
	*frame.Line
	begun   time.Time
	bar     bool
	total   int
	done    int
	since   map[string]time.Time // start time by minion
	slowest string
	longest time.Duration
	stop    func()
}

// newProgress shows the progress of a job for these minions: with the option -p from the start and
// with a bar, otherwise after progressAfter.
func (p *program) newProgress(ids []string) *progress {
	pr := &progress{begun: time.Now(), bar: p.opts.Progress, since: map[string]time.Time{}, stop: func() {}}
	p.live = pr
	if pr.bar {
		pr.Line = p.session.Env.StderrLine()
	} else if p.session.Show.Wanted() != "quiet" {
		pr.Line = p.session.Env.Live()
	}
	if pr.Line == nil {
		return pr
	}
	pr.total = len(ids)
	pr.start(ids)
	if pr.bar {
		pr.Show(pr.text(time.Now()))
	}
	pr.stop = pr.Every(progressAfter, func() string { return pr.text(time.Now()) })
	return pr
}

// aside calls write, which prints something, while the progress line is hidden.
func (p *program) aside(write func()) {
	if p.live == nil {
		write()
		return
	}
	p.live.Aside(func() error {
		write()
		return nil
	})
}

// start records the start of minions.
func (p *progress) start(ids []string) {
	now := time.Now()
	for _, id := range ids {
		p.since[id] = now
	}
}

// step counts a return and prints it with write.
func (p *progress) step(res client.Result, write func() error) error {
	if p.Line == nil {
		return write()
	}
	err := p.Aside(func() error {
		p.count(res, time.Now())
		return write()
	})
	if p.bar {
		p.Show(p.text(time.Now()))
	}
	return err
}

// batchStep handles one step of a batch and prints it with write.
func (p *progress) batchStep(s client.BatchStep, write func() error) error {
	if s.Result != nil {
		return p.step(*s.Result, write)
	}
	return p.Aside(func() error {
		p.total += len(s.Up)
		p.start(s.Begin)
		return write()
	})
}

func (p *progress) count(res client.Result, now time.Time) {
	p.done++
	if from, ok := p.since[res.ID]; ok && !res.Absent {
		if took := now.Sub(from); took > p.longest {
			p.slowest, p.longest = res.ID, took
		}
	}
	delete(p.since, res.ID)
	p.total = max(p.total, p.done) // unexpected minions
}

// barWide is the width of the bar in characters.
const barWide = 40

func (p *progress) text(now time.Time) string {
	var b strings.Builder
	if p.bar {
		n := barWide
		if p.total > 0 {
			n = barWide * p.done / p.total
		}
		fmt.Fprintf(&b, "[%-*s] ", barWide, strings.Repeat("#", n))
	}
	fmt.Fprintf(&b, "%d/%d returned, %s", p.done, p.total, now.Sub(p.begun).Truncate(time.Second))
	if p.slowest != "" {
		fmt.Fprintf(&b, ", slowest %s %.1fs", p.slowest, p.longest.Seconds())
	}
	if len(p.since) > 0 {
		b.WriteString(", waiting for " + someOf(p.since))
	}
	return b.String()
}

// someOf lists the first minions by id, and the number of further ones.
func someOf(all map[string]time.Time) string {
	const most = 3
	ids := slices.Sorted(maps.Keys(all))
	if len(ids) <= most {
		return strings.Join(ids, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(ids[:most], ", "), len(ids)-most)
}
