// Package refresh collects the grains and fetches the pillar of a minion again when an
// event on its own bus requests it. Functions of the daemon and of salt-call fire these
// events, so there is one way to refresh.
package refresh

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/catalogue/modules/control"
	"brine/internal/daemons/minion/background"
	"brine/internal/daemons/minion/grains"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/localbus"
	"brine/internal/daemons/minion/ownpillar"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Events on the minion's own bus that make the daemon refresh, and those that report the
// end, with Salt's names.
const (
	TagPillar   = "pillar_refresh" // also collects the grains
	TagGrains   = "grains_refresh" // also fetches the pillar if the grains changed
	TagModules  = "module_refresh"
	TagBeacons  = "beacons_refresh"
	TagMatchers = "matchers_refresh" // no effect: matchers are part of the program

	tagPillarRefreshed  = "/salt/minion/minion_pillar_refresh_complete"
	tagModulesRefreshed = "/salt/minion/minion_mod_refresh_complete"
)

// Config is the configuration of a Server.
type Config struct {
	Bus    *localbus.Bus
	Grains *grains.Store
	Links  *link.Set
	// Own returns the pillar of file_client: local, otherwise nil.
	Own func() *ownpillar.Pillar
	// BeaconsChanged is called when beacons may have changed.
	BeaconsChanged func()
	Background     *background.Group
	Log            *slog.Logger
}

// New returns a Server.
func New(c Config) *Server { return &Server{cfg: c} }

// batch is one request, or several combined.
type batch struct {
	grains    bool // collect the grains
	pillar    bool // fetch the pillar
	ifChanged bool // fetch the pillar if the grains changed
	clean     bool // fetch the pillar even if pillar_cache has it
	notify    bool // report when the grains are collected
}

func (b *batch) add(o batch) {
	b.grains = b.grains || o.grains
	b.pillar = b.pillar || o.pillar
	b.ifChanged = b.ifChanged || o.ifChanged
	b.clean = b.clean || o.clean
	b.notify = b.notify || o.notify
}

// Server handles requests from events, one batch at a time. Requests during a batch form
// the next one. The end is reported only when no batch is left, because the request of a
// waiting client may have arrived after the running batch began.
type Server struct {
	cfg Config

	mu      sync.Mutex
	next    *batch
	running bool
}

// ByEvent handles a request.
func (r *Server) ByEvent(e *event.Event) {
	var b batch
	var in wire.Refresh
	wire.View(e.Data, &in)
	switch {
	case strings.HasPrefix(e.Tag, TagPillar):
		b = batch{grains: true, pillar: true, clean: in.CleanCache}
	case strings.HasPrefix(e.Tag, TagGrains):
		b = batch{grains: true, pillar: in.ForceRefresh, ifChanged: true}
	case strings.HasPrefix(e.Tag, TagModules):
		b = batch{grains: true, notify: in.Notify}
	case strings.HasPrefix(e.Tag, TagBeacons):
		r.cfg.BeaconsChanged()
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
		r.cfg.Background.Go(r.serve)
	}
}

func (r *Server) serve() {
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

		fetched, err := r.refresh(r.cfg.Background.Context(), *b)
		ended.add(*b)
		if fetched {
			ended.pillar, failed = true, err
		}
	}
}

// report fires the events that report the end. Salt reports complete even if the pillar
// could not be fetched; Brine reports false, and its readers expect that.
func (r *Server) report(b batch, failed error) {
	if b.notify {
		r.cfg.Bus.Report(tagModulesRefreshed, value.DictOf("complete", true))
	}
	if !b.pillar {
		return
	}
	data := value.DictOf("complete", failed == nil)
	if failed != nil && r.cfg.Background.Context().Err() == nil {
		data.Set("comment", failed.Error())
		r.cfg.Log.Error("Pillar data could not be refreshed. One or more masters may be down!", "err", failed)
	}
	r.cfg.Bus.Report(tagPillarRefreshed, data)
}

// refresh runs a batch, and reports whether the pillar was fetched.
func (r *Server) refresh(ctx context.Context, b batch) (fetched bool, err error) {
	if b.grains {
		var old *value.Dict
		if r.cfg.Grains.Collected() {
			old = r.cfg.Grains.Grains()
		}
		r.cfg.Grains.Collect(ctx)
		b.pillar = b.pillar || b.ifChanged && !value.Equal(old, r.cfg.Grains.Grains())
		r.cfg.BeaconsChanged() // in Salt new modules may include new beacons
	}
	if !b.pillar {
		return false, nil
	}
	return true, r.Pillar(ctx, b.clean)
}

// Pillar fetches the pillar from every connected master in parallel, and compiles the own
// pillar of a minion with file_client: local again. clean ignores what pillar_cache has.
func (r *Server) Pillar(ctx context.Context, clean bool) error {
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
	for _, c := range r.cfg.Links.Receivers() {
		if c.Client.Generation() > 0 {
			wg.Go(func() { collect(c.FetchPillar(ctx, clean)) })
		}
	}
	if own := r.cfg.Own(); own != nil {
		collect(own.Refresh(ctx, clean))
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Functions lets functions refresh data by firing events that the daemon handles. A call
// outside of the daemon refreshes by itself if no daemon runs.
type Functions struct{ Server *Server }

// refreshLimit bounds how long salt-call waits, after its result, for the end of the
// refresh. After the refresh, targets by a grain that salt-call has just set match the
// minion.
const refreshLimit = 15 * time.Second

// Refresh implements control.Refresher.
func (r Functions) Refresh(ctx context.Context, what string, clean, await bool) error {
	tag, end := "", ""
	data := value.NewDict(1)
	var b batch
	switch what {
	case control.RefreshPillar:
		tag, end, b = TagPillar, tagPillarRefreshed, batch{grains: true, pillar: true, clean: clean}
		data.Set("clean_cache", clean)
	case control.RefreshModules:
		tag, b = TagModules, batch{grains: true}
		if await || r.Server.cfg.Bus.Outside() {
			end = tagModulesRefreshed
			data.Set("notify", true)
		}
	case control.RefreshBeacons:
		tag = TagBeacons
	case control.RefreshMatchers:
		tag = TagMatchers
	default:
		return salt.Errorf(salt.Internal, "%q cannot be refreshed", what)
	}
	if r.Server.cfg.Bus.Outside() {
		return r.fromOutside(ctx, tag, data, end, b, await)
	}
	if !await || end == "" {
		return r.Server.cfg.Bus.Fire(ctx, tag, data)
	}
	answer, err := r.Server.cfg.Bus.Exchange(ctx, tag, data, end)
	if err != nil {
		return err
	}
	return refreshed(answer)
}

// refreshed returns the error that a report contains, or nil.
func refreshed(answer *value.Dict) error {
	var end wire.Refreshed
	wire.View(answer, &end)
	if end.Comment != "" && !end.Complete {
		return salt.Errorf(salt.Unavailable, "%s", end.Comment)
	}
	return nil
}

// fromOutside is Refresh of salt-call. It makes the daemon refresh, and refreshes in this
// process what later functions of the same run may read.
func (r Functions) fromOutside(ctx context.Context, tag string, data *value.Dict, end string, b batch, await bool) error {
	s := r.Server
	if end == "" {
		return localbus.IgnoreNoDaemon(s.cfg.Bus.Fire(ctx, tag, data))
	}
	waiting, err := s.cfg.Bus.AskAll(s.cfg.Background.Context(), tag, []*value.Dict{data}, end)
	daemon := err == nil
	if !daemon {
		s.cfg.Log.Debug("no daemon to refresh", "err", err)
	}
	own := func(ctx context.Context) error {
		if s.cfg.Grains.Collected() { // otherwise they are collected when a function reads one
			s.cfg.Grains.Collect(ctx)
		}
		switch {
		case !b.pillar:
			return nil
		case !daemon:
			return s.Pillar(ctx, b.clean)
		case s.cfg.Own() != nil:
			return s.cfg.Own().Refresh(ctx, b.clean)
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
	s.cfg.Background.Go(func() {
		if err := own(s.cfg.Background.Context()); err != nil {
			s.cfg.Log.Warn("refresh failed", "tag", tag, "err", err)
		}
	})
	if daemon {
		s.cfg.Background.Go(func() {
			ctx, cancel := context.WithTimeout(s.cfg.Background.Context(), refreshLimit)
			defer cancel()
			answer, err := waiting.Await(ctx)
			if err = errors.Join(err, refreshed(answer)); err != nil {
				s.cfg.Log.Debug("the daemon did not report the end of the refresh", "tag", tag, "err", err)
			}
		})
	}
	return nil
}
