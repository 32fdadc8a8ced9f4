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

	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/wire"
)

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
		return c.trust.checkMember(cert, p.id)
	})
	if err == nil {
		return l, nil
	}
	c.conns.Remove(conn)
	conn.Close()
	if !wire.HasNoTLS(err) || c.trust.needsTLS(p.id) || ctx.Err() != nil {
		return nil, fmt.Errorf("TLS with %s: %w", p.id, err)
	}
	if conn, err = p.dial(ctx); err != nil {
		return nil, err
	}
	return &wire.Line{Conn: conn, Raw: conn}, nil
}

// noTLS logs why TLS failed on an inbound connection.
func (c *Cluster) noTLS(ctx context.Context, conn net.Conn, err error) {
	var alert tls.AlertError
	var remote *net.OpError
	switch {
	case ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || wire.IsTimeout(err):
	case errors.As(err, &alert), errors.As(err, &remote) && remote.Op == "remote error":
		c.rateLimitedLog.Warn("alert", "a master does not take the certificate of this one: its log says why; if it is of another cluster, take this master out of its cluster_peers", "from", conn.RemoteAddr(), "err", err)
	default:
		c.rateLimitedLog.Warn("tls", "a connection without TLS 1.3 was refused at the port for masters", "from", conn.RemoteAddr(), "err", err)
	}
}
