package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/ha/cluster/memberauth"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/saltwire"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/event"
)

// inbound serves the connections from other masters.
type inbound struct {
	*traffic
	cfg            *Config
	log            *slog.Logger
	rateLimitedLog *limitlog.Log
	conns          *wire.ConnSet
	secrets        *keys.Secrets
	identity       *wire.Identity // nil with a shared directory
	peers          *peerSet
	trust          *trust
	clusterKey     *atomic.Pointer[keys.Ring]
	token          string // in this master's directory in cachedir
	inc            string // of this process
}

// serve reads the messages on a connection that another master made.
func (i *inbound) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(wire.GreetingTime))
	l := &wire.Line{Conn: conn, Raw: conn}
	if i.cfg.Options.Isolated {
		var err error
		if l, err = i.identity.Server(ctx, conn); err != nil {
			i.noTLS(ctx, conn, err)
			return
		}
	}
	frames := event.NewFrameReader(wire.Count(l, &i.Received), wire.MaxGreeting)
	known := false
	for {
		body, err := frames.Next()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && (!known || !wire.IsTimeout(err)) {
				i.rateLimitedLog.Debug("connection of another master ended", "addr", conn.RemoteAddr(), "err", err)
			}
			return
		}
		tag, data, ok := event.SplitBody(body)
		if ok && tag == memberauth.TagHello {
			i.answerLink(ctx, l, frames, data)
			return
		}
		if ok && tag == memberauth.TagDiscover && i.cfg.Options.Isolated {
			i.answerJoin(l, frames, body)
			return
		}
		if !ok || !i.receive(tag, data) {
			return
		}
		// An authenticated master may be silent for longer, and may send messages as large as
		// events.
		if known = known || strings.HasPrefix(tag, saltwire.TagPeer); known {
			i.conns.Authenticated(conn)
			conn.SetDeadline(time.Time{})
			frames.SetLimit(wire.MaxFrame)
		}
	}
}

// receive handles a message in Salt's format; false closes the connection.
func (i *inbound) receive(tag string, data []byte) bool {
	if i.cfg.Options.Isolated {
		i.rateLimitedLog.Error("salt",
			"refusing a stock master: a cluster without a shared directory supports only Brine masters; to migrate, use a shared directory until all are",
			"tag", fmt.Sprintf("%.100s", tag))
		return false
	}
	if strings.HasPrefix(tag, saltwire.TagPeer) {
		return i.receiveKey(data)
	}
	from, rest, ok := saltwire.SplitEvent(tag)
	p := i.peers.all()[from]
	if !ok || p == nil {
		i.rateLimitedLog.Warn("unnamed event",
			"dropped an event of a master that cluster_peers does not name; name it there by its id, or remove this master from its cluster_peers",
			"tag", fmt.Sprintf("%.100s", tag))
		return false
	}
	p.event(rest, data)
	return true
}

func (i *inbound) receiveKey(data []byte) bool {
	g, err := saltwire.ReadGreeting(i.secrets, data)
	p := i.peers.all()[g.From]
	switch {
	case p == nil && g.From != "":
		i.rateLimitedLog.Error("unnamed "+g.From,
			"refusing a master that cluster_peers does not name; name it there by its id, or remove this master from its cluster_peers",
			"peer", g.From, "cluster_peers", strings.Join(i.cfg.Options.Peers, ", "))
		return false
	case errors.Is(err, fs.ErrNotExist):
		i.rateLimitedLog.Error("no key of "+g.From,
			"the shared directory has no key of a peer; is cluster_pki_dir one directory for all masters? Was it removed from the cluster?", "peer", g.From,
			"err", err)
		return false
	case err != nil:
		i.rateLimitedLog.Error("bad key of "+g.From, "the key of another master was refused", "peer", g.From, "err", err)
		return false
	case !slices.Contains(g.Names, i.cfg.ID):
		p.trouble(memberauth.Unnamed(g.From, g.Names, i.cfg.ID))
		return false
	case g.Key == "":
		p.trouble(fmt.Sprintf("%s does not find the key of %s: is cluster_pki_dir one directory for both?", g.From, i.cfg.ID))
		p.greet(g)
		return true
	}
	p.greet(g)
	return true
}

// answerJoin admits a master that knows the secret.
func (i *inbound) answerJoin(conn *wire.Line, frames *event.FrameReader, discover []byte) {
	conn.SetDeadline(time.Now().Add(wire.HandshakeTime))
	id, err := i.letIn(conn, frames, bytes.Clone(discover))
	switch no := refusal.Of(err); {
	case no != nil:
		i.rateLimitedLog.Warn("join "+no.Reason, "refused a master that wants to join the cluster", "addr", conn.RemoteAddr(), "reason", no.Reason)
	case errors.Is(err, io.EOF):
		i.log.Debug("a master asked for the id of this one and its cluster", "addr", conn.RemoteAddr())
	case err != nil:
		i.rateLimitedLog.Warn("join", "a master failed to join the cluster", "addr", conn.RemoteAddr(), "err", err)
	default:
		i.log.Info("a master has joined the cluster", "peer", id, "addr", conn.RemoteAddr())
		i.peers.takeUp()
	}
}

func (i *inbound) letIn(conn *wire.Line, frames *event.FrameReader, discover []byte) (id string, err error) {
	ring := i.clusterKey.Load()
	clusterPub, err := os.ReadFile(filepath.Join(i.cfg.Options.PKIDir, PublicFile))
	if err != nil {
		return "", err
	}
	a := memberauth.NewAdmitter(memberauth.Host{ID: i.cfg.ID, Cluster: i.cfg.Options.ID, Own: i.cfg.Own, OwnPub: i.cfg.OwnPub, Key: ring.Key,
		ClusterPub: clusterPub},
		&admission{trust: i.trust, o: &i.cfg.Options, id: i.cfg.ID, pub: i.cfg.OwnPub, clusterPub: clusterPub, ring: ring}, connOf(conn))
	_, err = drive(a, discover, frames.Next, func(body []byte) error { return i.send(conn, body) }, func(err error) {
		i.log.Debug("cannot send a refusal", "addr", conn.RemoteAddr(), "err", err)
	})
	return a.ID(), err
}

// answerLink serves a connection made by a Brine master.
func (i *inbound) answerLink(ctx context.Context, conn *wire.Line, frames *event.FrameReader, hello []byte) {
	p, s, inc, err := i.agreeWith(conn, frames, hello)
	if err == nil {
		i.conns.Authenticated(conn.Raw)
	}
	if errors.Is(err, io.EOF) || wire.IsTimeout(err) {
		i.log.Debug("a master has ended the handshake", "addr", conn.RemoteAddr(), "err", err)
		return
	}
	if err != nil {
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		key := "link from " + host
		if why := refusal.Of(err); why != nil {
			key += " " + why.Reason // log each reason; other errors may contain a port, which varies
		}
		i.rateLimitedLog.Warn(key, "refused a connection of another master", "addr", conn.RemoteAddr(), "reason", err)
		return
	}
	p.mu.Lock()
	if old := p.in; old != nil {
		old.Close()
	}
	p.in, p.heard = conn, time.Now()
	if p.inInc != inc {
		p.inInc, p.inLast = inc, 0
	}
	last := p.inLast
	news := p.mode != kindBrine
	p.mode = kindBrine
	p.mu.Unlock()
	if news {
		p.plain.Clear()
		p.poke()
	}
	defer func() {
		p.mu.Lock()
		if p.in == conn {
			p.in = nil
		}
		p.mu.Unlock()
	}()
	if err := p.receiveItems(ctx, s, last); err != nil && ctx.Err() == nil {
		i.log.Debug("connection of a peer ended", "peer", p.id, "err", err)
	}
}

// agreeWith answers the handshake of a dialling master.
func (i *inbound) agreeWith(conn *wire.Line, frames *event.FrameReader, hello []byte) (*peer, *wire.Session, string, error) {
	conn.SetDeadline(time.Now().Add(wire.HandshakeTime))
	a := memberauth.NewAnswerer(i.self(), i.trust, connOf(conn))
	out, err := drive(a, event.Body(memberauth.TagHello, hello), frames.Next, func(body []byte) error { return i.send(conn, body) }, func(err error) {
		i.log.Debug("cannot send a refusal", "addr", conn.RemoteAddr(), "err", err)
	})
	var refused *memberauth.Refused
	if errors.As(err, &refused) {
		i.refusedBy(refused)
	}
	if err != nil {
		return nil, nil, "", err
	}
	p := i.peers.all()[out.Peer.ID]
	return p, p.authenticated(conn, frames, &wire.Session{Cipher: out.Cipher, Out: "a", In: "d"}), out.Process, nil
}

// send sends the body of a frame.
func (i *inbound) send(conn net.Conn, body []byte) error {
	n, err := conn.Write(event.Frame(body))
	i.Sent.Add(int64(n))
	return err
}

// self returns this master's data for a handshake.
func (i *inbound) self() memberauth.Self {
	return memberauth.Self{Own: i.cfg.Own, Token: i.token, Process: i.inc, Facts: memberauth.Facts{
		ID: i.cfg.ID, Cluster: i.cfg.Options.ID, Peers: i.cfg.Options.Peers, Key: i.clusterKey.Load().Fingerprint,
		HashType: i.cfg.HashType, Version: salt.Version, Protocol: wire.Protocol, Isolated: i.cfg.Options.Isolated, Refusals: refusal.Version,
	}}
}

// refusedBy logs that a dialling master refuses this one.
func (i *inbound) refusedBy(r *memberauth.Refused) {
	switch p := i.peers.all()[r.ID]; {
	case r.Unknown:
		i.rateLimitedLog.Warn("refused by an unauthenticated master", "an unauthenticated master (its key is unknown here) refuses this one", "peer",
			fmt.Sprintf("%.100s", r.ID), "reason", fmt.Sprintf("%.1000s", r.Claimed), "err", r.Err)
	case r.Why == nil:
		i.rateLimitedLog.Warn("refusal of "+r.ID, "invalid refusal in a handshake", "peer", r.ID, "err", r.Err)
	case p != nil:
		p.trouble(r.Why.Reason)
	default:
		i.rateLimitedLog.Error("refused "+r.ID, "another master refuses this one: "+r.Why.Reason, "peer", r.ID)
	}
}

// noTLS logs why TLS failed on an inbound connection.
func (i *inbound) noTLS(ctx context.Context, conn net.Conn, err error) {
	var alert tls.AlertError
	var remote *net.OpError
	switch {
	case ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || wire.IsTimeout(err):
	case errors.As(err, &alert), errors.As(err, &remote) && remote.Op == "remote error":
		i.rateLimitedLog.Warn("alert",
			"a master does not take the certificate of this one: its log says why; if it is of another cluster, take this master out of its cluster_peers",
			"from", conn.RemoteAddr(), "err", err)
	default:
		i.rateLimitedLog.Warn("tls", "a connection without TLS 1.3 was refused at the port for masters", "from", conn.RemoteAddr(), "err", err)
	}
}
