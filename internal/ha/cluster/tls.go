package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/wire"
)

// needsTLS reports whether a member has spoken TLS, so that nothing else is
// believed to come from it.
func (c *Cluster) needsTLS(id string) bool {
	if p := c.all()[id]; p != nil {
		p.mu.Lock()
		spoke := p.tls
		p.mu.Unlock()
		if spoke {
			return true
		}
	}
	s, err := c.readStation(id)
	return err == nil && s.TLS
}

// allTLS reports whether all members speak TLS.
func (c *Cluster) allTLS() bool {
	for id, p := range c.all() {
		if !p.isGone() && !c.needsTLS(id) {
			return false
		}
	}
	return true
}

// admitsOld says why a master that speaks no TLS is not answered; "" if it may be
// a member of a version without.
func (c *Cluster) admitsOld(id string) *refusal.Error {
	if c.allTLS() {
		return refusal.New(refusal.TLS, "the members of this cluster speak TLS: install the version there that they have")
	}
	if _, err := c.secrets.PeerKey(id); err != nil {
		return refusal.New(refusal.NotMember, "%.100q %s of this master", id, refusal.TextNotMember)
	}
	return nil
}

// vouch says what is against the certificate of a connection from a master that
// says who it is; "" if nothing is.
func (c *Cluster) vouch(l *wire.Line, id string) *refusal.Error {
	switch {
	case !c.cfg.Options.Isolated:
		return nil
	case salt.CheckID(id) != nil:
		return refusal.New(refusal.ID, "%.100q is the id of no master", id)
	case l.TLS:
		return c.checkMember(l.Cert, id)
	case c.needsTLS(id):
		return refusal.New(refusal.TLS, "%.100q has spoken TLS and does not any more: somebody else may be at its address, or an older version was installed there; install the one that the others have", id)
	}
	return nil
}

// dialLine makes a connection to the peer, by TLS if it is not of a version
// without.
func (p *peer) dialLine(ctx context.Context) (*wire.Line, error) {
	c := p.c
	conn, err := p.dial(ctx)
	if err != nil || !c.cfg.Options.Isolated {
		return &wire.Line{Conn: conn, Raw: conn}, err
	}
	conn.SetDeadline(time.Now().Add(wire.HandshakeTime))
	l, err := c.identity.Client(ctx, conn, func(cert *x509.Certificate) *refusal.Error {
		return c.checkMember(cert, p.id)
	})
	if err == nil {
		return l, nil
	}
	c.conns.Remove(conn)
	conn.Close()
	if !wire.HasNoTLS(err) || c.needsTLS(p.id) || ctx.Err() != nil {
		return nil, fmt.Errorf("TLS with %s: %w", p.id, err)
	}
	if conn, err = p.dial(ctx); err != nil {
		return nil, err
	}
	return &wire.Line{Conn: conn, Raw: conn}, nil
}

// noTLS says why a connection that somebody has made came to nothing.
func (c *Cluster) noTLS(ctx context.Context, conn net.Conn, err error) {
	var alert tls.AlertError
	var remote *net.OpError
	switch {
	case ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || wire.IsTimeout(err):
	case errors.As(err, &alert), errors.As(err, &remote) && remote.Op == "remote error":
		c.rateLimitedLog.Warn("alert", "a master does not take the certificate of this one: its log says why; if it is of another cluster, take this master out of its cluster_peers", "from", conn.RemoteAddr(), "err", err)
	default:
		c.rateLimitedLog.Warn("tls", "somebody who speaks no TLS 1.3 was refused at the port for masters", "from", conn.RemoteAddr(), "err", err)
	}
}
