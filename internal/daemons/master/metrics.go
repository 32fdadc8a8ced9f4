package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"brine/internal/base/liveness"
	"brine/internal/base/metrics"
	"brine/internal/base/trace"
	"brine/internal/ha/federation"
	"brine/internal/host"
	"brine/internal/host/disk"
	"brine/internal/net/event"
	"brine/internal/store/keystore"
	"brine/internal/store/returner"
)

var (
	minionsByState = metrics.Family{Name: "brine_master_minions",
		Help: "Minions by state: connected now, or the state of their keys.", Labels: []string{"state"}}
	minionsKnown  = metrics.Family{Name: "salt_health_minions_total", Help: "Minions whose keys are accepted."}
	signInResults = metrics.Family{Name: "brine_master_sign_ins_total", Kind: metrics.Counter, Help: "Answered sign-ins by result.", Labels: []string{"result"}}
	queuedJobs    = metrics.Family{Name: "brine_master_queued_jobs", Help: "Jobs that are queued for unreachable minions."}
	queuedBytes   = metrics.Family{Name: "brine_master_queued_bytes", Help: "Memory of the jobs that are queued, in bytes."}
	peerUp        = metrics.Family{Name: "brine_cluster_peer_up", Help: "1 while this master of the cluster is connected.", Labels: []string{"peer"}}
	peerBehind    = metrics.Family{Name: "brine_cluster_behind_changes",
		Help:   "Changes that a peer has not had yet, as far as this master knows, by what is replicated.",
		Labels: []string{"peer", "stream"}}
	peerDiffers = metrics.Family{Name: "brine_cluster_differences",
		Help: "Replicated records, jobs and returns in which this master differs from a peer for longer than replication takes, counted for each peer."}
	returnsMissing = metrics.Family{Name: "brine_cluster_returns_missing",
		Help: "Returns that this master has to store and lacks; -1 while it looks for them."}
	returnsFew = metrics.Family{Name: "brine_cluster_returns_few_copies",
		Help: "Returns of which fewer copies than configured are on reachable masters. Each is counted by one master."}
	returnsOldest = metrics.Family{Name: "brine_cluster_returns_few_copies_oldest_seconds",
		Help: "Age of the oldest return that brine_cluster_returns_missing or brine_cluster_returns_few_copies counts, by its job id; 0 without."}
	leads = metrics.Family{Name: "brine_cluster_leads",
		Help: "1 on the master that does what only one of the cluster may do: with cluster_voters, the holder of the lease."}
	leaseToken = metrics.Family{Name: "brine_cluster_lease_token", Help: "Number of the lease that this master holds; 0 without."}
	gitFetched = metrics.Family{Name: "brine_git_fetch_timestamp_seconds",
		Help:   "Last successful fetch of a git remote, in seconds since 1970; 0 before the first.",
		Labels: []string{"backend", "remote"}}
)

// Families returns the metrics of a master. Some exist only in a cluster or with certain
// options.
func Families() []*metrics.Family {
	return slices.Concat(metrics.ProcessFamilies(), functionFamilies(), requestFamilies(), event.Families(), returner.Families(), trace.Families(),
		[]*metrics.Family{
			&minionsByState, &minionsKnown, &signInResults, &returnResults, &queuedJobs, &queuedBytes, &peerUp, &peerBehind, &peerDiffers,
			&returnsMissing, &returnsFew, &returnsOldest, &leads, &leaseToken,
			metrics.CertificateFamily(), &gitFetched,
		}, federation.Families())
}

// counts contains the master's own counters, and the components that write further metrics.
type counts struct {
	functions *functionCounts
	signIns   signInCounts
	returned  *returns
	router    *router
	serving   atomic.Bool
	beat      liveness.Pulse       // of maintenance
	asks      []*liveness.Question // to each request server
}

// signInCounts counts sign-ins by their result.
type signInCounts struct{ accepted, pending, rejected, denied atomic.Int64 }

func (s *signInCounts) count(act string) {
	switch act {
	case "accept":
		s.accepted.Add(1)
	case "pend":
		s.pending.Add(1)
	case "denied":
		s.denied.Add(1)
	default: // rejected by the operator before
		s.rejected.Add(1)
	}
}

func (s *signInCounts) metrics(p *metrics.Page) {
	p.Count(&signInResults, s.accepted.Load(), "accepted")
	p.Count(&signInResults, s.pending.Load(), "pending")
	p.Count(&signInResults, s.rejected.Load(), "rejected")
	p.Count(&signInResults, s.denied.Load(), "denied")
}

// Metrics implements metrics.Daemon.
func (m *Master) Metrics(p *metrics.Page) {
	m.functions.metrics(p)
	m.returned.metrics(p)
	m.signIns.metrics(p)
	m.router.metrics(p, m.requests.SignIns())
	writeMinions(p, m.keys, len(m.presence.current()))
	jobs, held := m.queue.kept()
	p.Count(&queuedJobs, int64(jobs))
	p.Count(&queuedBytes, int64(held))
	event.Metrics(p, m.bus, m.eventIPC)
	returner.Metrics(p, m.sinks.Statuses())
	m.cfg.Tracer.Metrics(p)
	writeFetched(p, m.settings.current())
	for _, l := range m.cfg.Listen {
		p.TLS("ssl", l.Options.TLS)
	}
	m.clusterMetrics(p)
	if m.site != nil {
		m.site.Metrics(p)
	}
	if m.hub != nil {
		m.hub.Metrics(p, m.site != nil)
	}
}

func writeMinions(p *metrics.Page, keys *keystore.Store, connected int) {
	p.Count(&minionsByState, int64(connected), "connected")
	for _, st := range keystore.States {
		n, err := keys.Count(st)
		if err != nil {
			continue // errors of the key directories are logged elsewhere
		}
		p.Count(&minionsByState, int64(n), st.String())
		if st == keystore.Accepted {
			p.Count(&minionsKnown, int64(n))
		}
	}
}

// fetches is a component that fetches git remotes.
type fetches interface{ Fetched() map[string]time.Time }

func writeFetched(p *metrics.Page, now *live) {
	write := func(backend string, f fetches) {
		for remote, at := range f.Fetched() {
			v := 0.0
			if !at.IsZero() {
				v = float64(at.UnixMilli()) / 1000
			}
			p.Set(&gitFetched, v, backend, remote)
		}
	}
	for _, f := range now.files.Fetchers() {
		if git, ok := f.(fetches); ok {
			write(f.Name(), git)
		}
	}
	write("git_pillar", now.git)
}

// clusterMetrics writes the metrics of a cluster. The number of its members bounds the label
// values.
func (m *Master) clusterMetrics(p *metrics.Page) {
	if m.cluster == nil {
		return
	}
	for _, peer := range m.cluster.Members() {
		if peer.Gone {
			continue
		}
		p.Bool(&peerUp, peer.Up, peer.ID)
		for stream, n := range peer.Behind {
			p.Count(&peerBehind, n, peer.ID, stream)
		}
		p.Certificate("member:"+peer.ID, peer.CertificateEnds)
	}
	p.Certificate("member:"+m.cfg.ID, m.cluster.CertificateEnds())
	token, may := m.cluster.Voting.Once()
	p.Bool(&leads, may)
	p.Count(&leaseToken, int64(token))
	if m.recordWatch != nil {
		p.Count(&peerDiffers, int64(differing(m.recordWatch, m.jobWatch)))
	}
	if m.copies != nil {
		st := m.copies.Status()
		p.Count(&returnsMissing, int64(st.Missing))
		p.Count(&returnsFew, int64(st.Few))
		p.Set(&returnsOldest, oldestCopy(st, time.Now()))
	}
}

// leastSpace is the free disk space, in bytes, below which storing a job may fail.
const leastSpace = 1 << 20

// CheckLive implements metrics.Daemon.
func (m *Master) CheckLive(ctx context.Context) error {
	m.queue.kept() // these block if the lock of jobs or of minions is never released
	m.presence.current()
	if err := m.beat.Check("the periodic work of the master", liveness.StepTime); err != nil {
		return err
	}
	for _, q := range m.asks {
		if err := q.Check(ctx); err != nil {
			return err
		}
	}
	return nil
}

// CheckReady implements metrics.Daemon. A master that answers minions and programs, and can
// store jobs, is ready, whether or not other masters of its cluster are reachable.
func (m *Master) CheckReady(context.Context) error {
	if !m.serving.Load() {
		return errors.New("the master is starting or stopping")
	}
	if err := m.jobs.Probe(); err != nil {
		return fmt.Errorf("the master cannot store jobs: %w", err)
	}
	for _, path := range []string{m.own.dir, m.cfg.CacheDir} {
		if s, err := disk.SpaceAt(&host.Machine{}, path); err == nil && s.Available < leastSpace {
			return fmt.Errorf("the master cannot store jobs: the disk of %s is full", path)
		}
	}
	if _, err := m.keys.Accepted(); err != nil {
		return fmt.Errorf("the master cannot read the keys of minions: %w", err)
	}
	if err := m.revisions.refuses(); err != nil {
		return fmt.Errorf("the master serves no files: %w", err)
	}
	return nil
}
