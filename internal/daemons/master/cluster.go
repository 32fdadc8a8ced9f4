package master

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/catalogue/runners"
	"brine/internal/ha/cluster"
	"brine/internal/host"
	"brine/internal/host/counters"
	"brine/internal/net/channel"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// jobStore is the memory of jobs: that of one master (job.Store), or the one
// that the masters of a cluster have in common (job.Shared).
type jobStore interface {
	runners.Jobs
	// NewJobUntil stores a job that is kept for minions that are away, and
	// comes back when the disk has it.
	NewJobUntil(load *value.Dict, minions []string, until time.Time) error
	// ReturnStartedAsync stores a return, and calls done when the disk has it.
	// A job that is not nil is the load of one that the minion started itself.
	ReturnStartedAsync(load, job *value.Dict, done func(duplicate bool, err error))
	// Put stores a job with what was returned.
	Put(w *job.Whole) error
	// Queued returns the jobs that are kept for minions that are away.
	Queued(now time.Time, limit int) ([]job.Queued, error)
	// Note and Speakers keep what is known of jobs on minions.
	Note(n job.Notes) error
	Speakers() ([]string, error)
	Prune() (int, error)
	Close() error
}

var (
	_ jobStore = (*job.Store)(nil)
	_ jobStore = (*job.Shared)(nil)
)

// joinCluster makes this master one of a cluster if the options say so.
func (m *Master) joinCluster() error {
	o := m.cfg.Cluster
	if !o.On() {
		return nil
	}
	own, err := loadPair(m.cfg.PKIDir, "master", m.cfg.Options.KeyPass, m.cfg.Options.Keysize, m.log)
	if err != nil {
		return err
	}
	// Salt compares this file with the one that peers see.
	pub, err := os.ReadFile(filepath.Join(m.cfg.PKIDir, "master.pub"))
	if err != nil {
		return fmt.Errorf("the public key of this master: %w", err)
	}
	m.cluster, err = cluster.New(cluster.Config{
		ID: m.cfg.ID, Listen: m.cfg.Interface, CacheDir: m.cfg.CacheDir, HashType: m.cfg.Options.HashType, Options: o,
		Ports: m.requestPorts(), Own: own, OwnPub: pub, Keysize: m.cfg.Options.Keysize, PublishSession: m.cfg.Options.PublishSession,
		Joins:   func() error { return PutAside(m.cfg.CacheDir, m.cfg.ID, o.PKIDir, m.log) },
		Refuses: m.refusesKey,
		Expels:  func() error { return m.tokens.Clear() },
		Busy:    func() (busy, total int64, ok bool) { return counters.Busy(&host.Machine{}) },
	}, m.log)
	return err
}

// refusesKey says why the key of the cluster is not to be replaced: minions would
// not take another one. Salt's know one key alone.
func (m *Master) refusesKey() error {
	if m.cfg.Options.MasterSignPubkey && m.cfg.Options.MasterUsePubkeySignature {
		return salt.Errorf(salt.Invalid, "master_use_pubkey_signature has a stored signature of the present key, which minions would not take for another one: use the signing key itself meanwhile, or --force and put the new signature there")
	}
	stock := m.queue.mute(slices.Sorted(maps.Keys(m.connected())))
	if len(stock) == 0 {
		return nil
	}
	shown := stock[:min(len(stock), 5)]
	return salt.Errorf(salt.Invalid, "%d minions that are connected may be Salt's (%s ...), which take no other key of their master: remove minion_master.pub in their pki_dir right before, or have masters sign their key (master_sign_pubkey) and minions verify that; then use --force", len(stock), strings.Join(shown, ", "))
}

// requestPorts are the ports for requests of minions, by transport.
func (m *Master) requestPorts() map[string]int {
	out := map[string]int{}
	for _, l := range m.cfg.Listen {
		_, text, err := net.SplitHostPort(l.Request)
		if err != nil {
			continue
		}
		if port, err := strconv.Atoi(text); err == nil && port > 0 {
			out[l.Transport.Name()] = port
		}
	}
	return out
}

// keyDir is the folder of the keys of minions.
func (m *Master) keyDir() string {
	if m.cluster != nil {
		return m.cfg.Cluster.PKIDir
	}
	return m.cfg.PKIDir
}

// ownDir is where this master keeps what is its own in cachedir.
func (m *Master) ownDir() (string, error) {
	if m.cluster != nil {
		return cluster.OwnDir(m.cfg.CacheDir, m.cfg.ID)
	}
	dir := filepath.Join(m.cfg.CacheDir, "brine")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot make a folder: %w", err)
	}
	return dir, nil
}

func (m *Master) openJobs(own string) (jobStore, error) {
	if m.isolated() {
		s, err := job.OpenSharing(own, m.cfg.ID, m.cfg.Jobs, m.took, m.log)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	if m.cluster != nil {
		s, err := job.OpenShared(m.cfg.CacheDir, m.cfg.ID, m.cfg.Options.HashType, m.cfg.Jobs, m.log)
		if err != nil {
			return nil, err // not s: a jobStore that holds nil is not nil
		}
		return s, nil
	}
	s, err := job.Open(own, m.cfg.Jobs, m.log)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (m *Master) newPublishServer() (*channel.PublishServer, error) {
	if m.cluster != nil {
		return channel.NewSharedPublishServer(m.cfg.Publish, m.identity, m.publishers, m.cluster.Secrets().AES.Current)
	}
	return channel.NewPublishServer(m.cfg.Publish, m.identity, m.publishers)
}

// runCluster speaks with the other masters until ctx ends.
func (m *Master) runCluster(ctx context.Context) error {
	if m.isolated() {
		stop := m.share(ctx)
		defer stop()
	}
	m.cluster.Describe(func() *value.Dict {
		return value.DictOf("version", salt.Version, "since", m.began.UTC().Format(time.RFC3339), "minions", int64(len(m.presence.current())), "files", orNil(shortID(m.revisions.current())))
	})
	m.cluster.AnswerWith(askHealth, m.health)
	m.cluster.AnswerWith(askStandings, m.answerStandings)
	m.cluster.AnswerWith(askFetched, m.toldFetched)
	seen := newSeenTeller(m.cluster, m.requests, m.cfg.ID)
	m.cluster.AnswerWith(askSeen, seen.take)
	ctx, cancel := context.WithCancel(ctx)
	var aside sync.WaitGroup
	aside.Go(func() { seen.run(ctx) })
	defer aside.Wait()
	defer cancel()
	defer m.bus.Handle(m.cluster.Event)()
	always := []string{tagPresent} // what another one is to go on with
	m.cluster.Want(always)
	m.eventIPC.OnReaders(func(n int) {
		if n > 0 {
			m.cluster.Want([]string{""})
		} else {
			m.cluster.Want(always)
		}
	})
	return m.cluster.Run(ctx, &clusterHost{m: m})
}

// tellPeers tells the other masters something small about a minion.
func (m *Master) tellPeers(n cluster.Note, id string) {
	if m.cluster != nil {
		m.cluster.Tell(n, id)
	}
}

// handToPeers has the other masters publish a job to their minions.
func (m *Master) handToPeers(jobMap *value.Dict, jid string, minions []string, until time.Time) {
	if m.cluster == nil {
		return
	}
	if err := m.cluster.Publish(cluster.Job{JID: jid, Map: jobMap, Minions: minions, Until: until}); err != nil {
		m.log.Error("a job cannot be handed to other masters", "jid", jid, "err", err)
	}
}

// returnedElsewhere reports whether a minion has returned for a job, maybe to
// another master of the cluster.
func (m *Master) returnedElsewhere(jid, id string) bool {
	s, ok := m.jobs.(*job.Shared)
	if !ok || !s.Returned(jid, id) {
		return false
	}
	m.queue.returned(jid, id)
	return true
}

// holders returns for each minion the masters that it is connected to, nil if
// there is no cluster. Of masters of Salt's nobody can tell.
func (m *Master) holders() map[string][]string {
	if m.cluster == nil {
		return nil
	}
	out := map[string][]string{}
	for id := range m.presence.current() {
		out[id] = append(out[id], m.cfg.ID)
	}
	for master, ids := range m.cluster.Present(m.context()) {
		for _, id := range ids {
			out[id] = append(out[id], master)
		}
	}
	for _, masters := range out {
		slices.Sort(masters)
	}
	return out
}

// connected returns the minions that are connected to this master or another
// one of its cluster.
func (m *Master) connected() map[string]bool {
	here := m.presence.current()
	if m.cluster == nil {
		return here
	}
	all := maps.Clone(here)
	for _, ids := range m.cluster.Present(m.context()) {
		for _, id := range ids {
			all[id] = true
		}
	}
	return all
}

// clusterHost is what the cluster sees of the master.
type clusterHost struct {
	m         *Master
	searching sync.Mutex
	// search says that a look for jobs is to begin.
	search atomic.Bool
}

var _ cluster.Host = (*clusterHost)(nil)

// Relay implements cluster.Host.
func (h *clusterHost) Relay(from, tag string, data *value.Dict) {
	m := h.m
	parts := strings.SplitN(tag, "/", 5)
	if len(parts) == 5 && parts[1] == "job" && parts[3] == "ret" && m.heard(parts[2], parts[4]) {
		return
	}
	if err := m.bus.Relay(tag, data); err != nil {
		m.log.Warn("an event of a peer was dropped", "peer", from, "err", err)
		return
	}
	switch {
	case tag == tagPresent && m.cluster.IsBrine(from): // those of Salt's tell of their own minions
		m.presence.told(data)
	case len(parts) == 4 && parts[1] == "job" && parts[3] == "publish" && !m.cluster.Isolated(): // there is none of Salt's
		h.stockJob(from, parts[2], data)
	case tag == "salt/auth" && data.Str("act") == "accept" && salt.CheckID(data.Str("id")) == nil:
		m.newcomers.signedIn(data.Str("id"), time.Now())
	case len(parts) == 5 && parts[1] == "job" && parts[3] == "ret":
		m.queue.returned(parts[2], parts[4])
	case len(parts) == 5 && parts[1] == "job" && parts[3] == "state":
		m.queue.told(parts[2], parts[4], data.Str("state"))
	}
}

// stockJob publishes a job of a master of Salt's, which comes as an event. One
// of Brine's comes by itself, so that its event is known already, unless this
// master was started anew between the two.
func (h *clusterHost) stockJob(from, jid string, data *value.Dict) {
	if !salt.ValidJID(jid) || h.m.queue.knows(jid) {
		return
	}
	jobMap := data.Clone()
	jobMap.Delete("_stamp")
	jobMap.Delete(cluster.PeerID)
	minions, err := h.m.jobs.Minions(jid)
	if err != nil {
		h.m.log.Warn("a job of a peer cannot be looked up", "peer", from, "jid", jid, "err", err)
	}
	if load, err := h.m.jobs.Load(jid); err == nil && load == nil && !strings.HasSuffix(jid, "nocache") {
		h.m.log.Error("a peer has published a job that is not in the shared folder: its cachedir is not the one of this master", "peer", from, "jid", jid, "cachedir", h.m.cfg.CacheDir)
	}
	h.m.cluster.SetOrigin(jid, from)
	h.Job(cluster.Job{JID: jid, Map: jobMap, Minions: minions, Until: h.m.expiry(jobMap, time.Now()), From: from})
}

// Job implements cluster.Host.
func (h *clusterHost) Job(j cluster.Job) {
	m := h.m
	if m.queue.knows(j.JID) {
		return
	}
	if j.Minions == nil {
		j.Minions, _ = m.jobs.Minions(j.JID)
	}
	m.queue.add(j.Map, j.JID, j.Minions, m.absent(j.Minions, j.Until), j.Until)
	if err := m.publish.Publish(j.Map, receivers(j.Map.Str("tgt_type"), j.Map.At("tgt"), j.Minions)); err != nil {
		m.log.Error("cannot publish a job of a peer", "jid", j.JID, "peer", j.From, "err", err)
	}
}

// Note implements cluster.Host.
func (h *clusterHost) Note(n cluster.Note, minion string) {
	switch n {
	case cluster.NoteSpeaks:
		h.m.queue.spokeElsewhere(minion)
	case cluster.NoteSignedIn:
		h.m.newcomers.signedIn(minion, time.Now())
	}
}

// Present implements cluster.Host.
func (h *clusterHost) Present() []string { return slices.Collect(maps.Keys(h.m.presence.current())) }

// Lost implements cluster.Host: what a peer had stored and not handed on before
// it was lost is published from the shared folder.
func (h *clusterHost) Lost(peer string) {
	if !h.search.CompareAndSwap(false, true) {
		return // one is to begin
	}
	go func() {
		h.searching.Lock()
		defer h.searching.Unlock()
		h.search.Store(false)
		jobs, err := h.unknown()
		if err != nil {
			h.m.log.Error("jobs of a peer cannot be looked up", "peer", peer, "err", err)
		}
		for _, j := range jobs {
			if h.m.queue.knows(j.JID) || !j.Until.After(time.Now()) {
				continue
			}
			h.m.log.Info("a job that a peer had not handed on is published", "peer", j.From, "jid", j.JID)
			h.m.cluster.SetOrigin(j.JID, j.From)
			h.Job(cluster.Job{JID: j.JID, Map: jobMap(j.Load, j.JID, h.m.cfg.MasterID), Minions: j.Minions, Until: j.Until, From: j.From})
		}
	}()
}

// unknown returns jobs that are kept for minions and that this master has not
// published.
func (h *clusterHost) unknown() ([]job.Queued, error) {
	if s, ok := h.m.jobs.(*job.Shared); ok {
		return s.QueuedBut(time.Now(), queueJobs, h.m.queue.knows)
	}
	return h.m.jobs.Queued(time.Now(), queueJobs)
}

// Rotated implements cluster.Host. The key is read whenever it is used.
func (h *clusterHost) Rotated() { h.m.publish.AES() }
