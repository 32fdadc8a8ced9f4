package sinks

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/net/event"
	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/store/returner"
)

// EventReturnOptions select the events that are stored outside of the master,
// and the returners that store them.
type EventReturnOptions struct {
	Returners  any    `salt:"event_return" default:"" doc:"what keeps the master's events: a name or several, of rawfile_json (a line of JSON for each, in a file), local (the master's log), and the returners mysql, pgjsonb, postgres, postgres_local_cache, and those in Python" change:"restart"`
	Queue      int    `salt:"event_return_queue" default:"0" doc:"events that are collected before they are kept; 0: each at once" change:"restart"`
	MaxSeconds int    `salt:"event_return_queue_max_seconds" default:"0" doc:"seconds after which collected events are kept although they are few; 0: they wait" change:"restart"`
	Whitelist  any    `salt:"event_return_whitelist" default:"[]" doc:"patterns for the tags of the events to keep; none: all" change:"restart"`
	Blacklist  any    `salt:"event_return_blacklist" default:"[]" doc:"patterns for the tags of events not to keep, which win over event_return_whitelist" change:"restart"`
	RawFile    string `salt:"rawfile_json.filename" default:"/var/log/salt/events" doc:"file of event_return: rawfile_json" change:"restart"`
}

// eventStore stores events outside of the master.
type eventStore interface {
	// KeepEvents stores events in order. An error means that none is stored; the
	// caller retries.
	KeepEvents(ctx context.Context, events []*event.Event) error
}

// Limits of the queue of an event returner.
const (
	// returnerQueue bounds the events that are queued while a returner is slow.
	returnerQueue = 1 << 14
	// returnerMost bounds the events that are stored for a retry while it fails.
	// Newer events replace the oldest ones.
	returnerMost = 1 << 14
	// returnerAgain is the time between retries.
	returnerAgain = time.Second
	// returnerLast bounds the final flush when the master ends.
	returnerLast = 5 * time.Second
)

// EventReturnNames returns the valid names in event_return except those of the
// user's own returners, sorted.
func EventReturnNames() []string {
	names := []string{"local", "rawfile_json"}
	for _, n := range returner.Names() {
		if returner.KeepsEvents(n) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

// NewEventReturners builds the returners of event_return. An unknown one is
// logged and ignored, as in Salt.
func NewEventReturners(o EventReturnOptions, sinks Config, bus *event.Bus, log *slog.Logger) []*EventReturner {
	var out []*EventReturner
	for _, name := range value.Texts(o.Returners) {
		k := &EventReturner{name: name, bus: bus, log: log, most: max(o.Queue, 1), age: time.Duration(o.MaxSeconds) * time.Second,
			allow: tagGlobs(o.Whitelist), deny: tagGlobs(o.Blacklist)}
		switch name {
		case "":
			continue
		case "rawfile_json":
			k.to = rawFile(o.RawFile)
			if fi, err := os.Stat(o.RawFile); err == nil && fi.IsDir() {
				log.Error("event_return cannot store events; retrying", "event_return", name,
					"err", salt.Errorf(salt.Invalid, "rawfile_json.filename: %s is a directory", o.RawFile))
			}
		case "local":
			k.to = logFile{log}
		default:
			r, err := sinks.Open(name)
			if err == nil && !sinks.has(name) && !returner.KeepsEvents(name) {
				r.Close()
				err = returner.ErrNoEvents
			}
			if err != nil {
				log.Error("cannot use a returner of event_return; it gets no events", "event_return", name, "err", err)
				continue
			}
			k.to = &database{r, waitLimit(r, max(sinks.Returner.Timeout, time.Second))}
		}
		out = append(out, k)
	}
	return out
}

// database stores events with a returner.
type database struct {
	r       returner.Returner
	timeout time.Duration
}

// KeepEvents implements eventStore with one call of the returner. Its connections
// stay open until the process ends.
func (d *database) KeepEvents(ctx context.Context, events []*event.Event) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	list := make([]returner.Event, len(events))
	for i, e := range events {
		list[i] = returner.Event{Tag: e.Tag, Data: e.Data}
	}
	return d.r.Events(ctx, list)
}

func tagGlobs(v any) (out []target.Glob) {
	for _, p := range value.Texts(v) {
		out = append(out, target.ParseGlob(p))
	}
	return out
}

// EventReturner queues the events for one event returner.
type EventReturner struct {
	name        string
	to          eventStore
	bus         *event.Bus
	log         *slog.Logger
	most        int           // events in a full batch
	age         time.Duration // maximum wait for a full batch; 0: no limit
	allow, deny []target.Glob

	waiting []*event.Event
	dropped uint64
	told    uint64 // lost events that were already logged
	// failed and logged are the kind of the last failure that was logged, and when.
	failed salt.Kind
	logged time.Time
}

// Close closes the connections of a returner that does not run.
func (k *EventReturner) Close() {
	if d, ok := k.to.(*database); ok {
		d.r.Close()
	}
}

// wants reports whether the options select events with a tag.
func (k *EventReturner) wants(tag string) bool {
	fits := func(g target.Glob) bool { return g.Match(tag) }
	return (len(k.allow) == 0 || slices.ContainsFunc(k.allow, fits)) && !slices.ContainsFunc(k.deny, fits)
}

// Run stores events until ctx ends, and then flushes the queue.
func (k *EventReturner) Run(ctx context.Context) error {
	events := k.bus.Subscribe(returnerQueue)
	defer events.Close()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	var again time.Time // when to retry after a failure
	for {
		select {
		case <-ctx.Done():
			k.drain(events)
			return nil
		case <-timer.C:
		case e := <-events.C:
			if !k.wants(e.Tag) {
				continue
			}
			if len(k.waiting) == 0 && k.age > 0 {
				timer.Reset(k.age)
			}
			if k.add(e); len(k.waiting) < k.most || time.Now().Before(again) {
				continue
			}
		}
		k.reportLost(events)
		if err := k.flush(ctx); err != nil {
			again = time.Now().Add(returnerAgain)
			timer.Reset(returnerAgain)
		} else {
			timer.Stop()
		}
	}
}

func (k *EventReturner) add(e *event.Event) {
	if len(k.waiting) >= max(returnerMost, k.most) {
		k.waiting = k.waiting[1:]
		k.dropped++
	}
	k.waiting = append(k.waiting, e)
}

// reportLost logs the number of lost events if it has changed.
func (k *EventReturner) reportLost(events *event.Subscription) {
	if n := k.dropped + events.Dropped(); n > 0 && n != k.told {
		k.log.Error("event_return lost events: it is too slow or fails", "name", k.name, "lost_in_all", n)
		k.told = n
	}
}

func (k *EventReturner) flush(ctx context.Context) error {
	if len(k.waiting) == 0 {
		return nil
	}
	err := k.to.KeepEvents(ctx, k.waiting)
	if err != nil {
		// Each reason once, and again after a while: it is tried every second.
		if kind := salt.KindOf(err); kind != k.failed || time.Since(k.logged) >= time.Minute {
			k.failed, k.logged = kind, time.Now()
			k.log.Error("event_return cannot store events; retrying", "event_return", k.name, "events", len(k.waiting), "err", err)
		}
		return err
	}
	if !k.logged.IsZero() {
		k.logged, k.failed = time.Time{}, 0
		k.log.Warn("event_return stores events again", "event_return", k.name, "events", len(k.waiting))
	}
	k.waiting = nil
	return nil
}

// drain stores the events that were fired before ctx ended.
func (k *EventReturner) drain(events *event.Subscription) {
	events.Close()
	for e := range events.C {
		if k.wants(e.Tag) {
			k.add(e)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), returnerLast)
	defer cancel()
	k.reportLost(events)
	k.flush(ctx) // it logs errors itself
}

// eventJSON encodes an event as Salt does, with its data and tag.
func eventJSON(e *event.Event) (string, error) {
	return json.Dump(value.DictOf("data", e.Data, "tag", e.Tag), json.Format{ASCII: true, Other: func(v any) (any, error) { return value.Str(v), nil }})
}

// rawFile is a file with a line for each event. It is reopened for each batch,
// so that it can be rotated.
type rawFile string

// KeepEvents implements eventStore.
func (f rawFile) KeepEvents(_ context.Context, events []*event.Event) error {
	var b strings.Builder
	for _, e := range events {
		line, err := eventJSON(e)
		if err != nil {
			continue // cannot be encoded as JSON: each retry would fail
		}
		b.WriteString(line + "\n")
	}
	if err := os.MkdirAll(filepath.Dir(string(f)), 0o755); err != nil {
		return err
	}
	// Not readable by others: events contain the returns of minions.
	w, err := os.OpenFile(string(f), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	size, err := w.Seek(0, 2)
	if err == nil {
		if _, err = w.WriteString(b.String()); err != nil {
			w.Truncate(size) // so that a retry does not repeat the part that was written
		}
	}
	if e := w.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("cannot write to rawfile_json.filename: %w", err)
	}
	return nil
}

// logFile writes to the master's log instead of standard output as in Salt.
type logFile struct{ log *slog.Logger }

// KeepEvents implements eventStore.
func (l logFile) KeepEvents(_ context.Context, events []*event.Event) error {
	for _, e := range events {
		if text, err := eventJSON(e); err == nil {
			l.log.Info("event", "tag", e.Tag, "event", text)
		}
	}
	return nil
}
