package control

import (
	"context"
	"iter"
	"regexp"
	"strings"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/call/output"
	bus "brine/internal/net/event"
	"brine/internal/py/value"
)

// Watcher is the environment that state.event runs in.
type Watcher struct {
	// Node says whose events are shown by default: "minion" or "master".
	// Program is the program that prints them.
	Node, Program string
	// Listen yields all events of the bus of a minion or master until ctx ends.
	// sockDir is the directory of its sockets; "" means the configured one.
	Listen func(ctx context.Context, node, sockDir string) iter.Seq2[*bus.Event, error]
	// Print shows a line to the user; nil if there is no terminal to print to.
	Print func(line string) error
}

// Event returns the function state.event. Only a program that a user started
// prints; a daemon would create endless events about events.
func (w Watcher) Event() fn.Func {
	return fn.Of("event", w.event, `Wait for events whose tags match, and print each: its tag, a tab, its data as JSON.
		Each counts down until none is left. `+w.Program+` prints them itself; a `+w.Node+` that is asked by others only waits for them.`,
		fn.Default("node", w.Node), fn.Example(w.Program+" state.event"), fn.Example(w.Program+" state.event 'salt/minion/*/start' count=1 quiet=True"),
		fn.Example(w.Program+" state.event 'salt/job/*/ret/(web|db)1' pretty=True"))
}

// OnlyOwn limits a listener to the bus of this node, as it is configured.
func OnlyOwn(node string, listen func(ctx context.Context) iter.Seq2[*bus.Event, error]) func(context.Context, string, string) iter.Seq2[*bus.Event, error] {
	return func(ctx context.Context, of, sockDir string) iter.Seq2[*bus.Event, error] {
		var err error
		switch {
		case of != node:
			err = fn.Errorf("only the %s's events can be watched, not those of node=%s: leave node out", node, of)
		case sockDir != "":
			err = fn.Errorf("only the %s's own sock_dir can be used, not %s: leave sock_dir out", node, sockDir)
		default:
			return listen(ctx)
		}
		return func(yield func(*bus.Event, error) bool) { yield(nil, err) }
	}
}

// Subscribed yields the events of a bus of this process.
func Subscribed(ctx context.Context, subscribe func(size int, prefixes ...string) *bus.Subscription) iter.Seq2[*bus.Event, error] {
	return func(yield func(*bus.Event, error) bool) {
		s := subscribe(watchQueue)
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

// watchQueue is the number of events that may be queued for a watcher.
const watchQueue = 1000

type watchArgs struct {
	Match   string `salt:"tagmatch" doc:"glob or regular expression that the whole tag must match" default:"*"`
	Count   int    `salt:"count" doc:"events to wait for; -1 means without end" default:"-1"`
	Quiet   bool   `salt:"quiet" doc:"print nothing" default:"false"`
	SockDir any    `salt:"sock_dir" doc:"directory of the sockets of the bus; null: as configured" default:"null"`
	Pretty  bool   `salt:"pretty" doc:"print data with sorted keys over several lines" default:"false"`
	Node    string `salt:"node" doc:"whose events: minion or master" default:"minion"`
}

func (w Watcher) event(ctx context.Context, c *fn.Call, a watchArgs) (any, error) {
	if a.Node != "minion" && a.Node != "master" {
		return nil, fn.Errorf("there are no events of node=%s: it is minion or master", a.Node)
	}
	if w.Print == nil && a.Count < 0 {
		return nil, fn.Errorf("the %s would wait for ever: give a count, or use %s on its machine", w.Node, w.Program)
	}
	dir := ""
	if a.SockDir != nil {
		if d := strings.TrimRight(value.Str(a.SockDir), "/"); d != strings.TrimRight(value.Str(c.Config.Get("sock_dir")), "/") {
			dir = d
		}
	}
	match := newTagMatch(a.Match)
	show := showEvent(a.Pretty)
	left := a.Count
	for e, err := range w.Listen(ctx, a.Node, dir) {
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

// showEvent returns a function that formats an event as a line.
func showEvent(pretty bool) func(*bus.Event) string {
	o := output.Options{StripColors: true, Indent: output.Indent{Given: true, Width: -1}}
	if pretty {
		o.Indent = output.Indent{Given: true, Width: 4, Sort: true}
	}
	p := output.New(o, nil)
	return func(e *bus.Event) string {
		return strings.ReplaceAll(e.Tag, "\x1b", "?") + "\t" + p.Render("json", e.Data, output.Call{})
	}
}

// tagMatch matches a tag literally, as a glob, or as a regular expression.
type tagMatch struct {
	text string
	glob target.Glob
	re   *regexp.Regexp // nil if the expression is not a valid one
}

func newTagMatch(expr string) tagMatch {
	re, err := target.CompileFullRegexp(expr)
	if err != nil {
		re = nil // most globs are not valid regular expressions
	}
	return tagMatch{expr, target.ParseGlob(expr), re}
}

func (m tagMatch) fits(tag string) bool {
	return tag == m.text || m.glob.Match(tag) || m.re != nil && m.re.MatchString(tag)
}
