package master

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/auth"
	"brine/internal/ha/cluster"
	"brine/internal/ha/replica"
	"brine/internal/net/channel"
	"brine/internal/store/cache"
	"brine/internal/store/job"
	"brine/internal/store/oplog"
)

// common is what the masters of a cluster without a shared folder have in
// common: each has all of it on its own disk, and tells the others what has
// changed. Jobs and returns go the same way, from the job store itself.
type common struct {
	records *replica.Store
	mirrors map[string]*replica.Mirror
	minions *replica.Nested

	// forgot is when deletions were forgotten last; acked and seen are what all
	// masters knew then, and what any of them.
	forgot      time.Time
	acked, seen oplog.Vector

	leaves atomic.Bool // the cluster, when the master ends

	// told are the returns whose event was made here when they came from
	// another master: its event may come yet. telling is held while that is
	// found out.
	telling sync.Mutex
	told    boundedSet
}

// The kinds of records.
const (
	kindKey    = "key"
	kindPeer   = "peer"
	kindSecret = "secret"
	// Of its own kind: a version that does not know it keeps the records, and
	// does not take the missing file for a deletion.
	kindSession = "session"
	kindRemoved = "removed"
	kindRotated = "rotated"
	kindToken   = "token"
	kindMinion  = "minion"
	kindMember  = "member"
	kindRoster  = "roster"
	kindShare   = "share"
)

// The streams between masters.
const (
	streamRecords = "records"
	streamJobs    = "jobs"
)

func (m *Master) isolated() bool { return m.cluster != nil && m.cluster.Isolated() }

// sharesFolder reports whether other masters work in this one's cachedir.
func (m *Master) sharesFolder() bool { return m.cluster != nil && !m.cluster.Isolated() }

// openCommon opens the records, and brings files and records together.
func (m *Master) openCommon(own string) (c *common, err error) {
	c = &common{mirrors: map[string]*replica.Mirror{}}
	if c.records, err = replica.Open(own, m.cfg.ID, replica.Ranks{kindKey: replica.KeyRank, kindWork: workRank}, m.log); err != nil {
		return nil, err
	}
	folders := map[string]replica.FileSet{
		kindKey:     &replica.Keys{Store: m.keys, Decisions: m.decisions},
		kindPeer:    &replica.Files{Path: m.cluster.PeersDir(), Mode: 0o644, Keep: isPeerFile},
		kindSecret:  &replica.Files{Path: filepath.Dir(m.cluster.AESFile()), Mode: 0o600, Initial: true, Keep: func(n string) bool { return n == filepath.Base(m.cluster.AESFile()) || n == cluster.SecretFile }},
		kindSession: &replica.Files{Path: filepath.Dir(m.cluster.AESFile()), Mode: 0o600, Initial: true, Keep: func(n string) bool { return n == cluster.SessionFile }},
		kindRotated: &replica.Files{Path: filepath.Dir(m.cluster.AESFile()), Mode: 0o644, Initial: true, Keep: func(n string) bool { return n == cluster.RotationFile }},
		kindRemoved: &replica.Files{Path: m.cluster.RemovedDir(), Mode: 0o644, Keep: func(n string) bool { return salt.CheckID(n) == nil && !strings.HasPrefix(n, ".") }},
		kindMember:  &replica.Files{Path: m.cluster.StationsDir(), Mode: 0o644, Keep: func(n string) bool { return salt.CheckID(n) == nil && !strings.HasPrefix(n, ".") }},
		kindRoster:  &replica.Files{Path: filepath.Dir(m.cluster.RosterFile()), Mode: 0o644, Keep: func(n string) bool { return n == filepath.Base(m.cluster.RosterFile()) }},
		kindShare:   &replica.Files{Path: m.cluster.SharesDir(), Mode: 0o644, Keep: func(n string) bool { return salt.CheckID(n) == nil && !strings.HasPrefix(n, ".") }},
		kindToken:   &replica.Files{Path: filepath.Join(m.cfg.CacheDir, "tokens"), Mode: 0o600, Keep: auth.ValidToken},
	}
	if m.cfg.Cache.Driver == "" || m.cfg.Cache.Driver == cache.Local { // else its server has it
		c.minions = &replica.Nested{Path: filepath.Join(m.cfg.CacheDir, "minions"), Mode: 0o600}
		if err := os.MkdirAll(c.minions.Path, 0o750); err != nil {
			c.Close()
			return nil, fmt.Errorf("cannot make a folder: %w", err)
		}
		folders[kindMinion] = c.minions
		m.cache.OnChange(func(bank, _ string) {
			if id, ok := strings.CutPrefix(bank, "minions/"); ok {
				c.minions.Touch(id)
			}
		})
	}
	for _, kind := range slices.Sorted(maps.Keys(folders)) {
		c.mirrors[kind] = replica.NewMirror(c.records, kind, folders[kind])
		if err := c.mirrors[kind].Sync(); err != nil {
			c.Close()
			return nil, fmt.Errorf("what masters have in common cannot be read: %w", err)
		}
	}
	return c, nil
}

func isPeerFile(name string) bool {
	id, ok := strings.CutSuffix(name, ".pub")
	return ok && salt.CheckID(id) == nil && !strings.HasPrefix(id, ".")
}

// Close closes the records.
func (c *common) Close() error {
	if c == nil {
		return nil
	}
	return c.records.Close()
}

// share gives the other masters what there is, and has files follow what comes
// from them, until ctx ends; stop waits for that.
func (m *Master) share(ctx context.Context) (stop func()) {
	m.cluster.Share(streamRecords, m.common.records)
	if s, ok := m.jobs.(*job.Store); ok {
		m.cluster.Share(streamJobs, s)
	}
	m.cluster.Exclude(func(id string) bool {
		r, err := m.common.records.Get(kindPeer, id+".pub")
		return err == nil && r != nil && r.Value == nil
	})
	m.common.records.OnChange(func(kind, name string) {
		if id, ok := strings.CutSuffix(name, ".pub"); ok && kind == kindPeer && m.common.mirrors[kindPeer].Sync() == nil {
			m.cluster.Look(id)
		}
		if kind == kindRotated && m.common.mirrors[kindRotated].Sync() == nil {
			go func() { // it asks other masters, of which this may be the connection
				if err := m.cluster.FollowKey(ctx); err != nil {
					m.log.Debug("the key of the cluster is not here yet", "err", err)
				}
			}()
		}
	})
	m.cluster.OnKey(m.identity.Replace)
	m.cluster.Answer(askDigest, m.digest)
	m.cluster.AnswerWith(askStage, m.revisions.answerStage)
	m.cluster.AnswerWith(askContents, m.revisions.answerContents)
	var wg sync.WaitGroup
	wg.Go(func() { m.revisions.run(ctx) })
	wg.Go(func() { m.works.run(m.context()) })
	for kind, mirror := range m.common.mirrors {
		wg.Go(func() {
			if err := mirror.Run(ctx); err != nil {
				m.log.Error("what masters have in common is not kept up to date", "kind", kind, "err", err)
			}
		})
	}
	return wg.Wait
}

// Times of a master that ends.
const (
	handOverTime = 5 * time.Second
	leaveTime    = 30 * time.Second
	leaveAfter   = time.Second // so that the answer to who asked for it arrives
)

// handOver waits until the masters that can be reached have all that this one
// has, which takes no requests any more; of one that leaves also that.
func (m *Master) handOver() {
	within := handOverTime
	if m.common.leaves.Load() {
		within = leaveTime
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := m.handedOver(ctx); err != nil {
		m.log.Warn("not all that this master has is at the others; they get it when it is started again", "err", err)
		return
	}
	if !m.common.leaves.Load() {
		return
	}
	err := m.cluster.Forget()
	if err == nil {
		err = m.handedOver(ctx)
	}
	if err != nil {
		m.log.Error("the others were not told that this master has left; run salt-run cluster.remove there", "id", m.cfg.ID, "err", err)
		return
	}
	m.log.Info("this master has left the cluster; to come back it must join anew, without what is in cluster_pki_dir and cachedir")
}

// handedOver waits until it is so.
func (m *Master) handedOver(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, mirror := range m.common.mirrors {
			if err := mirror.Sync(); err != nil {
				return err
			}
		}
		peers, all, err := m.cluster.HandedOver()
		// Who has heard that this one leaves ends the connection, maybe before it
		// has said that it has heard.
		if err != nil || all && (peers > 0 || !m.common.leaves.Load() || m.cluster.Disowned()) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// leaveCluster has this master hand over what it has, leave, and end.
func (m *Master) leaveCluster() error {
	if !m.isolated() {
		return salt.Errorf(salt.Invalid, "the masters of this cluster share a folder: take this one out of the balancer, stop it, and delete peers/%s.pub in cluster_pki_dir", m.cfg.ID)
	}
	peers, _, err := m.cluster.HandedOver()
	if err == nil && peers == 0 {
		err = salt.Errorf(salt.Unavailable, "no other master of the cluster can be reached: what this one alone has would be lost. Start another one, or have one join")
	}
	if err != nil {
		return err
	}
	m.common.leaves.Store(true)
	time.AfterFunc(leaveAfter, m.end)
	return nil
}

// deriveSessions computes session keys from a secret that all masters of the
// cluster have, so that a minion behind a balancer may come to any of them. The
// key of the minion is part of it, so that a previous owner of the id cannot
// read on.
func (m *Master) deriveSessions(s *channel.Sessions) error {
	return s.Derive(m.cluster.SessionSecret, func(id string) (string, error) {
		k, err := m.keys.AcceptedKey(id)
		if err != nil {
			return "", err
		}
		return k.PEM, nil
	})
}

// took hears what other masters have stored of jobs. A job that this one does
// not know yet was not handed to it, since the other was lost right then, or
// this one was away: it is published if it is still to be.
func (m *Master) took(news []job.Taken) {
	host := &clusterHost{m: m}
	for _, t := range news {
		if t.ID != "" {
			m.jobFiles.put(t.JID, t.ID, t.Return)
			m.tookReturn(t)
		}
	}
	for _, t := range news {
		if t.ID != "" || m.queue.knows(t.JID) || !t.Until.After(time.Now()) {
			continue
		}
		m.cluster.SetOrigin(t.JID, t.From)
		returned, err := m.jobs.Returns(t.JID)
		if err != nil {
			m.log.Error("cannot read the returns of a job", "jid", t.JID, "err", err)
		}
		if len(returned) < len(t.Minions) {
			m.log.Debug("a job that was given to another master is published", "peer", t.From, "jid", t.JID)
			host.Job(cluster.Job{JID: t.JID, Map: jobMap(t.Load, t.JID, m.cfg.MasterID), Minions: t.Minions, Until: t.Until, From: t.From})
		}
		for id := range returned {
			m.queue.returned(t.JID, id)
		}
	}
}

// tookReturn tells the bus of a return whose event has not come: whoever waits
// for it is at the master that the job was given to.
func (m *Master) tookReturn(t job.Taken) {
	m.common.telling.Lock()
	defer m.common.telling.Unlock()
	if !m.queue.returned(t.JID, t.ID) || m.cluster.Origin(t.JID) != m.cfg.ID {
		return
	}
	load := t.Return.Clone()
	load.Set("jid", t.JID)
	load.Set("id", t.ID)
	if l, err := m.jobs.Load(t.JID); err == nil && l != nil {
		load.Set("fun", l.At("fun"))
		load.Set("fun_args", l.At("arg"))
	}
	m.common.told.add(t.JID + "/" + t.ID)
	m.bus.Fire(salt.Tag("job", t.JID, "ret", t.ID), load)
}

// heard notes that the event of a return has come from a peer, and reports
// whether there was one here already.
func (m *Master) heard(jid, id string) bool {
	if !m.isolated() {
		return false
	}
	m.common.telling.Lock()
	defer m.common.telling.Unlock()
	m.queue.returned(jid, id)
	return m.common.told.remove(jid + "/" + id)
}
