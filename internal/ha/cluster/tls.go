package cluster

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/wire"
)

// dialLine connects to the peer, with TLS unless the peer's version lacks it.
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
