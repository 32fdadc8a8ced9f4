package federation

import (
	"bytes"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/net/sealed"
	"brine/internal/net/wire"
)

// hubPeers connects the masters of a cluster above. Each records the commands of all, so that it takes
// their results, and the one that leads sends them again if the master that gave them is down.
type hubPeers struct {
	h         *Hub
	opener    *sealed.Opener
	connected atomic.Bool      // since the last comparison
	answers   ratelimit.Window // to comparisons
}

func newHubPeers(h *Hub) *hubPeers {
	return &hubPeers{h: h, answers: ratelimit.Window{Most: 2, Every: time.Second}, opener: sealed.NewOpener(func(id *sealed.Identity) error {
		if id.Role != sealed.Hub || id.Fingerprint != sealed.Fingerprint(h.cfg.Key.Pub()) {
			return salt.Errorf(salt.Denied, "the key %s is not that of this cluster", id.Fingerprint)
		}
		return nil
	})}
}

// leads reports whether this master does what one of a cluster does.
func (p *hubPeers) leads() bool { return p.h.cfg.Leads == nil || p.h.cfg.Leads() }

// given sends a command to the others, before it goes to sites.
func (p *hubPeers) given(j *Command) {
	if p.h.cfg.Leads == nil || j.cmd.Passing {
		return
	}
	p.h.mu.Lock()
	d := j.record()
	p.h.mu.Unlock()
	p.h.publish(subjectPeers, kindJob, "", wire.HubJob{JID: j.cmd.JID, Job: d})
}

// sends reports whether other masters above receive what this one sends.
func (p *hubPeers) sends() bool {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	return p.h.conn != nil && p.h.cfg.Leads != nil
}

// decided sends a decision about the key of a site to the others.
func (p *hubPeers) decided(k wire.HubKey) {
	if p.sends() {
		p.h.publish(subjectPeers, kindKey, "", k)
	}
}

// compare lets the others send decisions that this master lacks. After a connection it sends its own,
// which they may lack.
func (p *hubPeers) compare() {
	if !p.sends() {
		return
	}
	all, err := p.h.decisions.current()
	if err != nil {
		p.h.limited.Log(slog.LevelError, "cannot read the keys of sites", "err", err)
		return
	}
	if p.connected.Swap(false) {
		p.sendAll(all)
	}
	p.h.publish(subjectPeers, kindKeys, "", wire.HubKeys{Sum: digest(all)})
}

func (p *hubPeers) sendAll(all []wire.HubKey) {
	for _, k := range all {
		p.h.publish(subjectPeers, kindKey, "", k)
	}
}

// compared handles the hash of the decisions of another master.
func (p *hubPeers) compared(sum []byte) error {
	all, err := p.h.decisions.current()
	if err != nil {
		return err
	}
	if _, ok := p.answers.Admit(time.Now()); !bytes.Equal(sum, digest(all)) && ok {
		p.sendAll(all)
	}
	return nil
}

// take handles a message of another master of the cluster.
func (p *hubPeers) take(m *nats.Msg) {
	if p.h.cfg.Leads == nil {
		return
	}
	msg, err := p.opener.Open(m.Data)
	if err == nil {
		err = p.apply(msg)
	}
	if err != nil {
		p.h.refusals.Log(slog.LevelWarn, "refused a message of another master above", "err", err)
	}
}

func (p *hubPeers) apply(msg *sealed.Message) error {
	switch msg.Kind {
	case kindJob:
		var in wire.HubJob
		if err := msg.Read(&in); err != nil {
			return err
		}
		j := commandOf(in.Job)
		if j == nil || j.cmd.JID != in.JID || !salt.ValidJID(in.JID) {
			return salt.Errorf(salt.Invalid, "a malformed command")
		}
		j.others = true
		p.h.mu.Lock()
		defer p.h.mu.Unlock()
		if p.h.jobs[in.JID] == nil {
			p.h.jobs[in.JID] = j
			p.h.book.later(jobsBucket, in.JID, j.record())
		}
		return nil
	case kindKey:
		var in wire.HubKey
		if err := msg.Read(&in); err != nil {
			return err
		}
		defer p.h.streams.Wake()
		return p.h.decisions.learn(in)
	case kindKeys:
		var in wire.HubKeys
		if err := msg.Read(&in); err != nil {
			return err
		}
		return p.compared(in.Sum)
	}
	return salt.Errorf(salt.Invalid, "unknown kind of message %.20q", msg.Kind)
}
