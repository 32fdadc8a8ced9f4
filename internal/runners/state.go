package runners

import (
	"context"
	"iter"
	"regexp"
	"strings"

	"brine/internal/event"
	"brine/internal/fn"
	"brine/internal/output"
	"brine/internal/target"
	"brine/internal/value"
)

// Watcher is what state.event needs of where it runs.
type Watcher struct {
	// Listen yields all events of the master's bus until ctx ends.
	Listen func(ctx context.Context) iter.Seq2[*event.Event, error]
	// Print shows a line to the user; nil where there is none to show it to.
	Print func(line string) error
}

// State returns the module state. salt-run has one of its own, because only
// there events can be printed: events about events would never end.
func State(w Watcher) fn.Module {
	return fn.Module{Name: "state", Doc: `Follow what happens.`, Funcs: []fn.Func{
		fn.Of("event", w.event, `Wait for events whose tags match, and print each: its tag, a tab, its data as JSON.
			Each counts down until none is left. salt-run prints them itself; a master that is asked by others only waits for them.`,
			fn.Example("salt-run state.event"), fn.Example("salt-run state.event 'salt/minion/*/start' count=1 quiet=True"),
			fn.Example("salt-run state.event 'salt/job/*/ret/(web|db)1' pretty=True")),
	}}
}

type watchArgs struct {
	Match   string `salt:"tagmatch" doc:"glob or regular expression that the whole tag must match" default:"*"`
	Count   int    `salt:"count" doc:"events to wait for; -1 means without end" default:"-1"`
	Quiet   bool   `salt:"quiet" doc:"print nothing" default:"false"`
	SockDir any    `salt:"sock_dir" doc:"must be that of the configuration, or null" default:"null"`
	Pretty  bool   `salt:"pretty" doc:"print data with sorted keys over several lines" default:"false"`
	Node    string `salt:"node" doc:"whose events: only the master's can be watched" default:"master"`
}

func (w Watcher) event(ctx context.Context, c *fn.Call, a watchArgs) (any, error) {
	switch dir := value.Str(c.Config.Get("sock_dir")); {
	case a.Node != "master":
		return nil, fn.Errorf("only the master's events can be watched, not those of node=%s: leave node out", a.Node)
	case a.SockDir != nil && strings.TrimRight(value.Str(a.SockDir), "/") != strings.TrimRight(dir, "/"):
		return nil, fn.Errorf("only the master's own sock_dir %s can be used: leave sock_dir out", dir)
	case w.Print == nil && a.Count < 0:
		return nil, fn.Errorf("the master would wait for ever: give a count, or use salt-run on the machine of the master")
	}
	match := newTagMatch(a.Match)
	show := showEvent(a.Pretty)
	left := a.Count
	for e, err := range w.Listen(ctx) {
		if err != nil {
			return nil, err
		}
		if !match.fits(e.Tag) {
			continue
		}
		if w.Print != nil && !a.Quiet {
			if err := w.Print(show(e)); err != nil {
				return nil, err
			}
		}
		if left > 0 {
			left--
		}
		if left == 0 {
			return nil, nil
		}
	}
	return nil, ctx.Err()
}

// showEvent returns what makes a line of an event.
func showEvent(pretty bool) func(*event.Event) string {
	o := output.Options{StripColors: true, Indent: output.Indent{Given: true, Width: -1}}
	if pretty {
		o.Indent = output.Indent{Given: true, Width: 4, Sort: true}
	}
	p := output.New(o, nil)
	return func(e *event.Event) string {
		return strings.ReplaceAll(e.Tag, "\x1b", "?") + "\t" + p.Render("json", e.Data, output.Call{})
	}
}

// tagMatch fits a tag that is the expression, or that it matches as a glob or
// as a regular expression.
type tagMatch struct {
	text string
	glob target.Glob
	re   *regexp.Regexp // nil if it is none
}

func newTagMatch(expr string) tagMatch {
	re, err := target.CompileFullRegexp(expr)
	if err != nil {
		re = nil // most globs
	}
	return tagMatch{expr, target.ParseGlob(expr), re}
}

func (m tagMatch) fits(tag string) bool {
	return tag == m.text || m.glob.Match(tag) || m.re != nil && m.re.MatchString(tag)
}

// watchQueue is how many events may wait for a runner of the master.
const watchQueue = 1000

// listen hears of the events inside the master.
func (d Deps) listen(ctx context.Context) iter.Seq2[*event.Event, error] {
	return func(yield func(*event.Event, error) bool) {
		s := d.Subscribe(watchQueue)
		defer s.Close()
		for {
			select {
			case e := <-s.C:
				if !yield(e, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}
