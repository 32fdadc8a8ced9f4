package minion

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/daemons/minion/link"
	"brine/internal/net/remote"
	"brine/internal/py/value"
	"brine/internal/store/returner"
)

// returners sends results to the servers that a job, or the option return,
// names. What a server that is away shall get waits on disk.
type returners struct {
	m *Minion

	mu     sync.Mutex
	boxes  map[string]*returner.Outbox
	opened map[string]returner.Returner // those with the usual options
	pillar *value.Dict                  // has options, too
}

// names are the returners of a job: its own, and those of the option return
// unless the schedule ordered it.
func (r *returners) names(j *job) []string {
	names := splitWords(j.load.Str("ret"))
	if !j.load.Has("schedule") {
		for _, n := range value.Texts(r.m.cfg.Returners.Return) {
			names = append(names, splitWords(n)...)
		}
	}
	return cleanNames(names)
}

// cleanNames sorts names of returners, each once, without that of the masters'
// own store.
func cleanNames(names []string) []string {
	for i, n := range names {
		names[i] = strings.TrimSpace(n)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool {
		return n == "" || n == "local" || n == "local_cache" // the masters have it
	})
}

// usable are the returners that there are, without those that the minion's
// options disable.
func (r *returners) usable() []string {
	return slices.DeleteFunc(returner.Names(), func(n string) bool { return slices.Contains(r.m.cfg.Options.DisableReturners, n) })
}

// send has a result delivered.
func (r *returners) send(j *job, ret *value.Dict) {
	for _, name := range r.names(j) {
		if !slices.Contains(r.usable(), name) {
			r.m.log.Error("the result is sent to the master only: there is no returner of that name", "jid", j.jid, "returner", name)
			continue
		}
		from := j.first
		if from == nil { // the schedule ordered it
			from = r.m.links.WithPillar()
		}
		data := ret.Clone()
		data.Delete("cmd")
		if err := r.put(from, name, data); err != nil {
			r.m.log.Error("a result is sent to the master only", "jid", j.jid, "returner", name, "error", err)
		}
	}
}

// put has a result delivered by the options in the pillar of a connection,
// which may be nil, and the minion's.
func (r *returners) put(from *link.Link, name string, ret *value.Dict) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from != nil {
		if p := from.Pillar(); p != nil {
			r.pillar = p
		}
	}
	box, err := r.box(name)
	if err != nil {
		return err
	}
	box.Put(value.DictOf("jid", ret.Str("jid"), "data", ret))
	return nil
}

// patience bounds one delivery.
func (r *returners) patience() time.Duration { return 2 * max(r.m.cfg.Returners.Timeout, time.Second) }

const outboxPrefix = "returns."

// box opens what waits for a returner and begins to deliver; r.mu is held.
func (r *returners) box(name string) (*returner.Outbox, error) {
	if b := r.boxes[name]; b != nil {
		return b, nil
	}
	path := filepath.Join(r.m.cfg.CacheDir, "brine", outboxPrefix+name)
	b, err := returner.OpenOutbox(path, name, r.patience(), func(ctx context.Context, d *value.Dict) error {
		return r.deliver(ctx, name, d.Dict("data"))
	}, r.m.log)
	if err != nil {
		return nil, err
	}
	if r.boxes == nil {
		r.boxes = map[string]*returner.Outbox{}
	}
	r.boxes[name] = b
	ctx := r.m.run
	r.m.background.Go(func() {
		b.Run(ctx)
		b.Close()
	})
	return b, nil
}

// recall goes on with what an earlier process left.
func (r *returners) recall() {
	left, _ := filepath.Glob(filepath.Join(r.m.cfg.CacheDir, "brine", outboxPrefix+"*"))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range left {
		name := strings.TrimPrefix(filepath.Base(path), outboxPrefix)
		if !slices.Contains(r.usable(), name) {
			continue
		}
		if _, err := r.box(name); err != nil {
			r.m.log.Error("results that wait for a server cannot be read", "returner", name, "error", err)
		}
	}
}

func (r *returners) deliver(ctx context.Context, name string, ret *value.Dict) error {
	config, keywords := ret.Str("ret_config"), ret.Dict("ret_kwargs")
	usual := config == "" && keywords.Len() == 0
	keep := 24 * time.Hour
	if r.m.cfg.Opts.Has("keep_jobs_seconds") {
		keep = time.Duration(r.m.cfg.Opts.Int("keep_jobs_seconds")) * time.Second
	}
	r.mu.Lock()
	c := returner.Config{Source: remote.Options(r.m.cfg.Opts).Or(remote.Options(r.pillar)), Alternative: config, Keywords: keywords,
		Keep: keep, Timeout: r.m.cfg.Returners.Timeout, MasterID: r.m.cfg.ID}
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

// close ends the connections to servers.
func (r *returners) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, to := range r.opened {
		to.Close()
		delete(r.opened, name)
	}
}
