package master

import (
	"brine/internal/base/liveness"
	"brine/internal/base/ratelimit"
	"brine/internal/base/steady"
	"brine/internal/call/auth"
	"brine/internal/daemons/master/sinks"
	"brine/internal/ha/cluster"
	"brine/internal/store/job"
	"brine/internal/store/shared"
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// maintenance runs the periodic work.
type maintenance struct {
	keep        time.Duration // how long jobs are kept; 0: for ever
	keepDeleted time.Duration // how long deletions of replicated state are kept; 0: for ever
	interval    time.Duration // fileserver_interval
	settings    *settings
	rotation    *keyRotation
	states      *jobStates
	redelivery  *redelivery
	files       *fileUpdates
	presence    *presence
	departures  *departures
	sinks       *sinks.Jobs
	jobs        jobStore
	stockJobs   *job.LocalCache
	tokens      *auth.Tokens
	saved       *shared.Store
	approvals   *approvals
	peers       *peers
	minions     *minionMemory
	cluster     *cluster.Cluster // nil without a cluster
	replicated  *replicated      // nil unless in a cluster without a shared directory
	useJIDSlot  func()           // called again each round, because members come and go
	beat        *liveness.Pulse  // of the loop
	log         *slog.Logger
}

// run does the periodic work until ctx ends.
func (m *maintenance) run(ctx context.Context) error {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	var lastRound, lastFiles, lastLook time.Time
	var cleaning, looking, asking atomic.Bool
	rotations, departures := ratelimit.NewLog(m.log, 1, time.Minute), ratelimit.NewLog(m.log, 1, time.Minute)
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-second.C:
			m.beat.Beat()
			if err := m.rotation.onRequest(); err != nil {
				rotations.Log(slog.LevelError, "cannot rotate the AES key", "err", err)
			}
			m.states.expire()
			m.redelivery.handOut()
			m.states.store()
			if now.Sub(lastLook) >= lookEvery {
				lastLook = now
				m.departures.look()
				if err := m.departures.save(); err != nil {
					departures.Log(slog.LevelWarn, "cannot record which minions are connected", "err", err)
				}
				if m.cluster != nil && !asking.Swap(true) {
					go func() { // other masters may be slow
						defer asking.Store(false)
						m.departures.update(ctx)
					}()
				}
			}
			if now.Sub(lastFiles) >= max(m.interval, time.Second) {
				lastFiles = now
				m.files.look(ctx)
			}
			if now.Sub(lastRound) < max(m.settings.options().LoopInterval, time.Second) {
				continue
			}
			lastRound = now
			m.round()
			if m.settings.options().PresenceEvents && !looking.Swap(true) {
				go func() { // other masters may be slow
					defer looking.Store(false)
					m.presence.fire(ctx)
				}()
			}
			if !cleaning.Swap(true) {
				go func() {
					defer cleaning.Store(false)
					m.sinks.Clean(ctx)
				}()
			}
		}
	}
}

// round does the work that is due each loop_interval.
func (m *maintenance) round() {
	if m.cluster != nil {
		m.useJIDSlot()
	}
	m.replicated.forgetDeleted(time.Now(), m.keepDeleted)
	if !sharesDir(m.cluster) || m.cluster.Leads() {
		if _, err := m.jobs.Prune(); err != nil {
			m.log.Error("cannot remove old jobs", "err", err)
		}
	}
	if m.keep > 0 && !sharesDir(m.cluster) {
		if _, err := m.stockJobs.Prune(m.keep, steady.Removal()); err != nil {
			m.log.Warn("cannot remove old jobs of the stock command line", "err", err)
		}
	}
	m.peers.forget(steady.Removal(), m.keep)
	m.minions.prune()
	if err := m.approvals.sweep(); err != nil {
		m.log.Warn("cannot remove old approvals", "err", err)
	}
	if err := m.saved.Sweep(); err != nil {
		m.log.Warn("cannot remove the marks of deleted records", "err", err)
	}
	if err := m.tokens.Sweep(time.Now()); err != nil {
		m.log.Warn("cannot remove old tokens", "err", err)
	}
}
