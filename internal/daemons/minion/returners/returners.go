// Package returners sends the results of jobs to servers that are not masters,
// through the returners that a job or the option return names. Data for an
// unreachable server is queued on disk.
package returners

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/daemons/minion/background"
	"brine/internal/net/remote"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/returner"
)

// Config is the configuration of Returners.
type Config struct {
	Options returner.MinionOptions
	// Own has the user's own returners, which take precedence over others of the same name.
	Own Own
	// Disabled are the returners of the option disable_returners.
	Disabled []string
	// ID is the minion's id.
	ID string
	// Dir is the directory of the queues.
	Dir string
	// Opts are all options, which include the addresses of servers.
	Opts       *value.Dict
	Background *background.Group
	Log        *slog.Logger
}

// Own has returners of the user.
type Own interface {
	// Has reports whether there is a returner of a name, Names returns all names.
	Has(name string) bool
	Names() []string
	// Return delivers a result.
	Return(ctx context.Context, name string, ret *value.Dict) error
}

// New returns Returners that open nothing before they are used.
func New(c Config) *Returners { return &Returners{cfg: c} }

// Check logs the returners of the options return and schedule_returner that cannot be used with the
// options of the minion. It connects to no server.
func (r *Returners) Check() {
	var names []string
	for _, v := range []any{r.cfg.Options.Return, r.cfg.Options.Scheduled} {
		for _, n := range value.Texts(v) {
			names = append(names, SplitWords(n)...)
		}
	}
	for _, name := range cleanNames(names) {
		if !slices.Contains(returner.Names(), name) || r.cfg.Own != nil && r.cfg.Own.Has(name) {
			continue // the check of options names unknown ones
		}
		to, err := returner.Open(name, r.config("", nil))
		if err != nil {
			r.cfg.Log.Error("cannot use a returner; it gets no results", "returner", name, "err", err)
			continue
		}
		to.Close()
	}
}

// SplitWords splits a string at commas; an empty string has no words.
func SplitWords(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

// Returners sends results to the servers that a job, or the option return,
// names. Data for an unreachable server is queued on disk.
type Returners struct {
	cfg Config

	mu     sync.Mutex
	boxes  map[string]*returner.Outbox
	opened map[string]returner.Returner // returners with the default options
	pillar *value.Dict                  // it may have options of returners
}

// names returns the returners of a job: its own and, unless the schedule started it, those
// of the option return.
func (r *Returners) names(pub *wire.Job) []string {
	own, _ := pub.Ret.(string)
	names := SplitWords(own)
	if pub.Schedule == nil {
		for _, n := range value.Texts(r.cfg.Options.Return) {
			names = append(names, SplitWords(n)...)
		}
	}
	return cleanNames(names)
}

// cleanNames sorts names of returners. It drops duplicates, and the names of the master's
// own store.
func cleanNames(names []string) []string {
	for i, n := range names {
		names[i] = strings.TrimSpace(n)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool {
		return n == "" || n == "local" || n == "local_cache" // the masters store it
	})
}

// usable returns the returners that exist and are not disabled.
func (r *Returners) usable() []string {
	all := returner.Names()
	if r.cfg.Own != nil {
		all = append(all, r.cfg.Own.Names()...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(n string) bool { return slices.Contains(r.cfg.Disabled, n) })
}

// Send delivers the result of a job through its returners. pillar is that of the master
// that published the job, and may be nil.
func (r *Returners) Send(pub *wire.Job, pillar, ret *value.Dict) {
	for _, name := range r.names(pub) {
		if !slices.Contains(r.usable(), name) {
			r.cfg.Log.Error("no such returner; sending the result to the master only", "jid", pub.JID, "returner", name)
			continue
		}
		data := ret.Clone()
		data.Delete("cmd")
		if err := r.put(pillar, name, data); err != nil {
			r.cfg.Log.Error("returner failed; sending the result to the master only", "jid", pub.JID, "returner", name, "err", err)
		}
	}
}

// put queues a result. The returner uses the options of the minion and of pillar, which may
// be nil.
func (r *Returners) put(pillar *value.Dict, name string, ret *value.Dict) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pillar != nil {
		r.pillar = pillar
	}
	box, err := r.box(name)
	if err != nil {
		return err
	}
	var head wire.Head
	wire.View(ret, &head)
	box.Put(value.DictOf("jid", head.JID, "data", ret))
	return nil
}

// waitLimit returns the timeout of one delivery.
func (r *Returners) waitLimit() time.Duration { return 2 * max(r.cfg.Options.Timeout, time.Second) }

const outboxPrefix = "returns."

// box opens the queue of a returner and starts delivery; r.mu is held.
func (r *Returners) box(name string) (*returner.Outbox, error) {
	if b := r.boxes[name]; b != nil {
		return b, nil
	}
	path := filepath.Join(r.cfg.Dir, outboxPrefix+name)
	b, err := returner.OpenOutbox(path, name, r.waitLimit(), func(ctx context.Context, d *value.Dict) error {
		var w waiting
		wire.View(d, &w)
		return r.deliver(ctx, name, w.Data)
	}, r.cfg.Log)
	if err != nil {
		return nil, err
	}
	if r.boxes == nil {
		r.boxes = map[string]*returner.Outbox{}
	}
	r.boxes[name] = b
	ctx := r.cfg.Background.Context()
	r.cfg.Background.Go(func() {
		b.Run(ctx)
		b.Close()
	})
	return b, nil
}

// waiting is a queued return with its job id.
type waiting struct {
	JID  string      `wire:"jid"`
	Data *value.Dict `wire:"data"`
	Rest *value.Dict `wire:"*"`
}

// Recall opens the queues of an earlier process and continues delivery.
func (r *Returners) Recall() {
	left, _ := filepath.Glob(filepath.Join(r.cfg.Dir, outboxPrefix+"*"))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range left {
		name := strings.TrimPrefix(filepath.Base(path), outboxPrefix)
		if !slices.Contains(r.usable(), name) {
			continue
		}
		if _, err := r.box(name); err != nil {
			r.cfg.Log.Error("cannot read returns queued for a returner", "returner", name, "err", err)
		}
	}
}

func (r *Returners) deliver(ctx context.Context, name string, ret *value.Dict) error {
	if r.cfg.Own != nil && r.cfg.Own.Has(name) {
		return r.cfg.Own.Return(ctx, name, ret)
	}
	var job wire.Job
	wire.View(ret, &job)
	config, _ := job.RetConfig.(string)
	keywords, _ := job.RetKwargs.(*value.Dict)
	usual := config == "" && keywords.Len() == 0
	r.mu.Lock()
	c := r.config(config, keywords)
	to := r.opened[name]
	if !usual || to == nil {
		var err error
		if to, err = returner.Open(name, c); err != nil {
			r.mu.Unlock()
			return err
		}
		if usual {
			if r.opened == nil {
				r.opened = map[string]returner.Returner{}
			}
			r.opened[name] = to
		} else {
			defer to.Close()
		}
	}
	r.mu.Unlock()
	return to.Return(ctx, ret)
}

// config returns the configuration of a returner; r.mu is held.
func (r *Returners) config(alternative string, keywords *value.Dict) returner.Config {
	keep := 24 * time.Hour
	if r.cfg.Opts.Has("keep_jobs_seconds") {
		keep = time.Duration(r.cfg.Opts.Int("keep_jobs_seconds")) * time.Second
	}
	return returner.Config{Source: remote.Options(r.cfg.Opts).Or(remote.Options(r.pillar)), Alternative: alternative, Keywords: keywords,
		Keep: keep, Timeout: r.cfg.Options.Timeout, MasterID: r.cfg.ID}
}

// Close closes the connections to servers.
func (r *Returners) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, to := range r.opened {
		to.Close()
		delete(r.opened, name)
	}
}

// Statuses returns the status of each queue, sorted by name.
func (r *Returners) Statuses() []returner.OutboxStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]returner.OutboxStatus, 0, len(r.boxes))
	for _, name := range slices.Sorted(maps.Keys(r.boxes)) {
		out = append(out, r.boxes[name].Status())
	}
	return out
}
