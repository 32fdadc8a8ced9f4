package minion

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/catalogue/modules/control"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// Events on the minion's own bus that have the daemon collect something again,
// and those that report the end. The names are Salt's. Functions of the daemon
// and of salt-call fire the same events, so there is one way to refresh.
const (
	tagRefreshPillar   = "pillar_refresh" // grains, too
	tagRefreshGrains   = "grains_refresh" // and the pillar, if grains have changed
	tagRefreshModules  = "module_refresh"
	tagRefreshBeacons  = "beacons_refresh"
	tagRefreshMatchers = "matchers_refresh" // matchers are part of the program

	tagPillarRefreshed  = "/salt/minion/minion_pillar_refresh_complete"
	tagModulesRefreshed = "/salt/minion/minion_mod_refresh_complete"
)

// batch is what one or several requests ask for.
type batch struct {
	grains    bool // collect the grains
	pillar    bool // fetch the pillar
	ifChanged bool // fetch the pillar if the grains differ from before
	clean     bool // even if pillar_cache has the pillar
	notify    bool // report the end of the grains
}

func (b *batch) add(o batch) {
	b.grains = b.grains || o.grains
	b.pillar = b.pillar || o.pillar
	b.ifChanged = b.ifChanged || o.ifChanged
	b.clean = b.clean || o.clean
	b.notify = b.notify || o.notify
}

// refreshes serves the requests that come as events, one batch at a time. What
// comes during a batch forms the next one. The end is reported once all is done:
// who waits for it may have asked during a batch that began too early for him.
type refreshes struct {
	m *Minion

	mu      sync.Mutex
	next    *batch
	running bool
}

// byEvent takes a request.
func (r *refreshes) byEvent(e *event.Event) {
	var b batch
	switch {
	case strings.HasPrefix(e.Tag, tagRefreshPillar):
		b = batch{grains: true, pillar: true, clean: e.Data.Bool("clean_cache")}
	case strings.HasPrefix(e.Tag, tagRefreshGrains):
		b = batch{grains: true, pillar: e.Data.Bool("force_refresh"), ifChanged: true}
	case strings.HasPrefix(e.Tag, tagRefreshModules):
		b = batch{grains: true, notify: e.Data.Bool("notify")}
	case strings.HasPrefix(e.Tag, tagRefreshBeacons):
		r.m.beacons.Changed()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &batch{}
	}
	r.next.add(b)
	if !r.running {
		r.running = true
		r.m.background.Go(r.serve)
	}
}

func (r *refreshes) serve() {
	var ended batch
	var failed error
	for {
		r.mu.Lock()
		b := r.next
		r.next = nil
		if b == nil {
			r.running = false
			r.report(ended, failed)
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()

		fetched, err := r.m.refresh(r.m.run, *b)
		ended.add(*b)
		if fetched {
			ended.pillar, failed = true, err
		}
	}
}

// report fires the events that say that all is done. Salt's say complete even
// if the pillar could not be fetched; ours do not, and its readers know that.
func (r *refreshes) report(b batch, failed error) {
	if b.notify {
		r.m.bus.Report(tagModulesRefreshed, value.DictOf("complete", true))
	}
	if !b.pillar {
		return
	}
	data := value.DictOf("complete", failed == nil)
	if failed != nil && r.m.run.Err() == nil {
		data.Set("comment", failed.Error())
		r.m.log.Error("Pillar data could not be refreshed. One or more masters may be down!", "err", failed)
	}
	r.m.bus.Report(tagPillarRefreshed, data)
}

// refresh does what a batch asks for, and says whether it fetched the pillar.
func (m *Minion) refresh(ctx context.Context, b batch) (fetched bool, err error) {
	if b.grains {
		old := m.grains.Load()
		m.RefreshGrains(ctx)
		b.pillar = b.pillar || b.ifChanged && !value.Equal(old, m.Grains())
		m.beacons.Changed() // as Salt's new modules come with new beacons
	}
	if !b.pillar {
		return false, nil
	}
	return true, m.RefreshPillar(ctx, b.clean)
}

// RefreshPillar asks every connected master for the pillar, all at once, and
// compiles that of a masterless minion again; with clean, also if pillar_cache has it.
func (m *Minion) RefreshPillar(ctx context.Context, clean bool) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	collect := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	for _, c := range m.links.Receivers() {
		if c.Client.Generation() > 0 {
			wg.Go(func() { collect(c.FetchPillar(ctx, clean)) })
		}
	}
	if m.own != nil {
		collect(m.own.refresh(ctx, clean))
	}
	wg.Wait()
	return errors.Join(errs...)
}

// refresher has functions collect something again: by events, which the daemon
// obeys. A call outside of the daemon does it itself if there is no daemon.
type refresher struct{ m *Minion }

// refreshLimit bounds how long salt-call stays after its result to see the
// daemon refreshed. Who targets by a grain that salt-call has just set then
// finds the minion.
const refreshLimit = 15 * time.Second

// Refresh implements control.Refresher.
func (r refresher) Refresh(ctx context.Context, what string, clean, await bool) error {
	tag, end := "", ""
	data := value.NewDict(1)
	var b batch
	switch what {
	case control.RefreshPillar:
		tag, end, b = tagRefreshPillar, tagPillarRefreshed, batch{grains: true, pillar: true, clean: clean}
		data.Set("clean_cache", clean)
	case control.RefreshModules:
		tag, b = tagRefreshModules, batch{grains: true}
		if await || r.m.bus.Outside() {
			end = tagModulesRefreshed
			data.Set("notify", true)
		}
	case control.RefreshBeacons:
		tag = tagRefreshBeacons
	case control.RefreshMatchers:
		tag = tagRefreshMatchers
	default:
		return salt.Errorf(salt.Internal, "%q cannot be refreshed", what)
	}
	if r.m.bus.Outside() {
		return r.fromOutside(ctx, tag, data, end, b, await)
	}
	if !await || end == "" {
		return r.m.bus.Fire(ctx, tag, data)
	}
	answer, err := r.m.bus.Exchange(ctx, tag, data, end)
	if err != nil {
		return err
	}
	return refreshed(answer)
}

// refreshed is the error that a report tells of.
func refreshed(answer *value.Dict) error {
	if text := answer.Str("comment"); text != "" && !answer.Bool("complete") {
		return salt.Errorf(salt.Unavailable, "%s", text)
	}
	return nil
}

// fromOutside is Refresh of salt-call: it has the daemon do what is asked for,
// and collects for itself what later functions of the same run may look at.
func (r refresher) fromOutside(ctx context.Context, tag string, data *value.Dict, end string, b batch, await bool) error {
	m := r.m
	if end == "" {
		return ignoreNoDaemon(m.bus.Fire(ctx, tag, data))
	}
	waiting, err := m.bus.AskAll(m.run, tag, []*value.Dict{data}, end)
	daemon := err == nil
	if !daemon {
		m.log.Debug("no daemon to refresh", "err", err)
	}
	own := func(ctx context.Context) error {
		if m.grains.Load() != nil { // else they are collected when a function asks
			m.RefreshGrains(ctx)
		}
		switch {
		case !b.pillar:
			return nil
		case !daemon:
			return m.RefreshPillar(ctx, b.clean)
		case m.own != nil:
			return m.own.refresh(ctx, b.clean)
		}
		return nil
	}
	if await {
		err := own(ctx)
		if !daemon {
			return err
		}
		answer, e := waiting.Await(ctx)
		return errors.Join(err, e, refreshed(answer))
	}
	m.background.Go(func() {
		if err := own(m.run); err != nil {
			m.log.Warn("a refresh failed", "tag", tag, "err", err)
		}
	})
	if daemon {
		m.background.Go(func() {
			ctx, cancel := context.WithTimeout(m.run, refreshLimit)
			defer cancel()
			answer, err := waiting.Await(ctx)
			if err = errors.Join(err, refreshed(answer)); err != nil {
				m.log.Debug("the daemon has not reported the end of the refresh", "tag", tag, "err", err)
			}
		})
	}
	return nil
}

// ignoreNoDaemon makes an error of no daemon none: there is nobody to tell.
func ignoreNoDaemon(err error) error {
	if salt.KindOf(err) == salt.Unavailable {
		return nil
	}
	return err
}
