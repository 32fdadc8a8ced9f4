package federation

import (
	"log/slog"

	"github.com/nats-io/nats.go"

	"brine/internal/base/salt"
	"brine/internal/net/sealed"
	"brine/internal/net/wire"
	"brine/internal/store/keystore"
)

// hubPeers connects the masters of a cluster above. Each records the commands of all, so that it takes
// their results, and the one that leads sends them again if the master that gave them is down.
type hubPeers struct {
	h      *Hub
	opener *sealed.Opener
}

func newHubPeers(h *Hub) *hubPeers {
	return &hubPeers{h, sealed.NewOpener(func(id *sealed.Identity) error {
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

// moved sends the new state of the key of a site to the others.
func (p *hubPeers) moved(name, pub, state string) {
	p.h.mu.Lock()
	connected := p.h.conn != nil
	p.h.mu.Unlock()
	if connected && p.h.cfg.Leads != nil {
		p.h.publish(subjectPeers, kindKey, "", wire.HubKey{Name: name, Pub: pub, State: state})
	}
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
		return p.move(&in)
	}
	return salt.Errorf(salt.Invalid, "unknown kind of message %.20q", msg.Kind)
}

// move applies the new state of a key.
func (p *hubPeers) move(in *wire.HubKey) error {
	if err := sealed.CheckName(in.Name); err != nil {
		return err
	}
	defer p.h.streams.Wake()
	keys := p.h.keys
	st, pub, err := keys.Lookup(in.Name)
	if err != nil {
		return err
	}
	to := map[string]keystore.State{keystore.Accepted.String(): keystore.Accepted, keystore.Rejected.String(): keystore.Rejected}[in.State]
	if pub != "" && (to == keystore.None || sealed.Fingerprint(pub) != sealed.Fingerprint(in.Pub)) {
		if err := keys.Delete(st, in.Name); err != nil {
			return err
		}
		pub = ""
	}
	switch {
	case to == keystore.None || pub != "" && st == to:
		return nil
	case pub == "":
		return keys.Add(to, in.Name, in.Pub)
	}
	return keys.Move(in.Name, st, to)
}
