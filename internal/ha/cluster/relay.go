package cluster

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/saltwire"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// relay sends jobs, notes and events of this master to the others.
type relay struct {
	cfg     *Config
	log     *slog.Logger
	secrets *keys.Secrets
	cipher  *crypt.Crypticle // of events for stock masters
	conns   *wire.ConnSet
	peers   *peerSet

	mu      sync.Mutex
	origins map[string]string // job id -> id of the master
	order   []string
	early   unclaimed
	want    []string // prefixes of tags that local listeners wait for
}

// maxOrigins bounds the number of jobs whose origin is recorded.
const maxOrigins = 20_000

// Origin returns the master that received a job, "" if unknown.
func (r *relay) Origin(jid string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.origins[jid]
}

// SetOrigin records the master that received a job, and sends it the buffered events of the job.
func (r *relay) SetOrigin(jid, master string) {
	for _, e := range r.setOrigin(jid, master) {
		if p := r.peers.all()[master]; p != nil && p.isBrine() && !slices.Contains(e.sent, p) {
			p.out.Add(e.msg)
		}
	}
}

func (r *relay) setOrigin(jid, master string) []heldEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.origins[jid]; !ok {
		if len(r.order) >= maxOrigins {
			delete(r.origins, r.order[0])
			r.order = r.order[1:]
		}
		r.order = append(r.order, jid)
	}
	r.origins[jid] = master
	return r.early.forget(jid)
}

// hold buffers an event until the origin of its job is known. If it is known by now, hold returns it instead.
func (r *relay) hold(jid string, e heldEvent) (origin string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if origin = r.origins[jid]; origin == "" {
		r.early.add(jid, e, time.Now())
	}
	return origin
}

// Want sets which events listeners at this master wait for, by prefixes of tags; "" means all. Events of jobs that this master received
// always arrive.
func (r *relay) Want(prefixes []string) {
	slices.Sort(prefixes)
	prefixes = slices.Compact(prefixes)
	r.mu.Lock()
	same := slices.Equal(r.want, prefixes)
	r.want = prefixes
	r.mu.Unlock()
	if !same {
		r.conns.Notify()
	}
}

func (r *relay) wanted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.want
}

// Publish sends a job that this master received to all other Brine masters. Stock masters receive its event.
func (r *relay) Publish(j Job) error {
	r.SetOrigin(j.JID, r.cfg.ID)
	m := &wire.JobItem{K: wire.KindJob, JID: j.JID, Job: j.Map, Minions: value.Strings(j.Minions), Until: j.Until.UnixMilli(), From: r.cfg.ID}
	b, err := msgpack.Marshal(wire.Dict(m), msgpack.NewSpec)
	if err != nil {
		return err
	}
	for _, p := range r.peers.all() {
		if p.isBrine() {
			p.out.Add(b)
		}
	}
	return nil
}

// Tell sends a note to all other Brine masters.
func (r *relay) Tell(n Note, minion string) {
	b, err := msgpack.Marshal(wire.Dict(&wire.NoteItem{K: wire.KindNote, Note: string(n), ID: minion}), msgpack.NewSpec)
	if err != nil {
		return
	}
	for _, p := range r.peers.all() {
		if p.isBrine() {
			p.out.Add(b)
		}
	}
}

// Event sends an event of this master's bus to all stock masters, and to the Brine masters with listeners for it.
func (r *relay) Event(e *event.Event) {
	if e.Data.Has(saltwire.PeerID) || strings.HasPrefix(e.Tag, "cluster/") {
		return
	}
	jid, origin := "", ""
	if rest, ok := strings.CutPrefix(e.Tag, "salt/job/"); ok {
		jid, _, _ = strings.Cut(rest, "/")
		origin = r.Origin(jid)
	}
	var sent []*peer
	msg := r.sendEvent(e.Tag, e.Data, func(p *peer) bool {
		ok := p.id == origin || p.wants(e.Tag)
		if ok {
			sent = append(sent, p)
		}
		return ok
	})
	if origin != "" || !isReply(e.Tag) || len(sent) == len(r.peers.all()) || r.cfg.Options.Isolated { // if isolated, the job log delivers it
		return
	}
	if msg == nil {
		var err error
		if msg, err = encodeEvent(e.Tag, e.Data); err != nil {
			return // sendEvent has logged it, or there is no receiver
		}
	}
	late := heldEvent{msg, sent}
	if p := r.peers.all()[r.hold(jid, late)]; p != nil && p.isBrine() && !slices.Contains(sent, p) {
		p.out.Add(msg)
	}
}

// sendEvent sends an event to stock masters and to selected Brine masters; brine is called once for each. The event is encoded once for each
// kind. The encoding for Brine masters is returned if one was made.
func (r *relay) sendEvent(tag string, data *value.Dict, brine func(*peer) bool) (forBrine []byte) {
	var forSalt []byte
	var err error
	for _, p := range r.peers.all() {
		switch p.kind() {
		case kindBrine:
			if !brine(p) {
				continue
			}
			if forBrine == nil {
				forBrine, err = encodeEvent(tag, data)
			}
			if err == nil {
				p.out.Add(forBrine)
			}
		default:
			if p.kind() == kindUnknown && brine(p) {
				if forBrine == nil {
					forBrine, err = encodeEvent(tag, data)
				}
				if err == nil {
					p.out.Add(forBrine)
				}
			}
			if forSalt == nil {
				var body []byte
				if body, err = saltwire.EventMessage(r.secrets, r.cipher, tag, data); err == nil {
					forSalt = event.Frame(body)
				}
			}
			if err == nil {
				p.plain.Add(forSalt)
			}
		}
		if err != nil {
			r.log.Error("cannot send an event to other masters", "tag", tag, "err", err)
			return nil
		}
	}
	return forBrine
}

// tagRotate is the event that makes masters read the AES key again.
const tagRotate = "rotate_cluster_aes_key"

// encodeEvent encodes an event for Brine masters. Most are returns, whose tag follows from the data.
func encodeEvent(tag string, data *value.Dict) ([]byte, error) {
	m := &wire.EventItem{K: wire.KindEvent, Tag: tag, Data: data}
	if tag == returnTag(data) {
		m = &wire.EventItem{K: wire.KindReturn, Data: data}
	}
	return msgpack.Marshal(wire.Dict(m), msgpack.NewSpec)
}

// returnTag returns the tag of the return with this data, "" if the data is not that of a return.
func returnTag(data *value.Dict) string {
	var k wire.ReturnKey
	wire.View(data, &k)
	if k.JID == "" || k.ID == "" {
		return ""
	}
	return salt.Tag("job", k.JID, "ret", k.ID)
}
