// Package tcp is Salt's TCP transport.
//
// # Frames
//
// Both ports carry a stream of msgpack maps without any separator:
//
//	{"head": {...}, "body": ...}
//
//	request      {"head": {"mid": "<uuid4>"}, "body": envelope}
//	reply        {"head": as in the request,  "body": object}
//	publication  {"head": {},                 "body": bin(payload)}
//	registration {"head": {},                 "body": map}         subscriber to publisher
//
// They are written in msgpack's new spec, bodies included: a body is part of the frame,
// not a string within it. Requests may overtake each other; mid tells which reply is
// whose. With TLS, the handshake starts at the first byte.
//
// # Heartbeats
//
// Salt has none on TCP. Two frames extend it between peers that both know them; neither
// is sent to a stock process that would react badly:
//
//	ping {"head": {"beat": 1}, "body": nil}      pong {"head": {"beat": 2}, "body": nil}
//
// A subscriber first sends {"head": {"beat": 1}, "body": {"enc": "beat"}}. Salt's
// publisher reads no head, and silently drops every body whose enc is not "aes". A
// publisher that knows beats answers with a pong, and from then on either side may ping
// the other. A requester that wants heartbeats adds "beat": 1 beside the mid of the
// first request of a connection. Salt's server returns it within the reply's head, where
// it has no meaning; ours also sends a pong. A side that got no pong sends no more, and
// leaves the connection to the system's keepalive probes, which Heartbeat then shortens
// (package netpeer).
//
// # Unauthenticated peers
//
// A connection to the request port must bring its first request, or the beginning of a
// large one, within HandshakeTimeout. The publish port expects nothing from a subscriber
// but the TLS handshake, if there is TLS. Buffers for messages above a few KiB come out
// of one budget per listener, and a message that has such a buffer must go on arriving.
// The server reads no further from a peer that has too many requests unanswered or
// replies unread.
package tcp

import (
	"context"
	"log/slog"
	"net"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/net/transport"
	"brine/internal/net/transport/netserve"
)

// Defaults of transport.ListenOptions and DialOptions, as documented there.
const (
	defaultHighWater = 1000
	defaultBacklog   = 1000
	defaultHandshake = 10 * time.Second
)

// Transport is the TCP transport. Use New.
type Transport struct{ log *slog.Logger }

var _ transport.Transport = (*Transport)(nil)

// New returns the transport. Listeners log errors of peers to log, at a limited
// rate.
func New(log *slog.Logger) *Transport { return &Transport{log: log.With("component", "tcp")} }

// Name returns "tcp".
func (*Transport) Name() string { return "tcp" }

// Traits implements transport.Transport.
func (*Transport) Traits() transport.Traits { return transport.Traits{Registers: true, TLS: true} }

// ListenRequests binds addr for requests.
func (t *Transport) ListenRequests(addr string, o transport.ListenOptions) (transport.RequestServer, error) {
	return listenRequests(addr, o, t.log)
}

// ListenPublish binds addr for subscribers.
func (t *Transport) ListenPublish(addr string, o transport.ListenOptions) (transport.Publisher, error) {
	return listenPublish(addr, o, t.log)
}

// NewRequester returns a Requester that keeps one connection for any number of
// concurrent requests.
func (*Transport) NewRequester(addr string, o transport.DialOptions) transport.Requester {
	return newRequester(addr, o)
}

// Subscribe connects to a publisher. The Subscription is a transport.Sender:
// Send carries the body of the minion's registration. Without TLS there is no
// handshake, so success only means that the port accepted the connection.
func (*Transport) Subscribe(ctx context.Context, addr string, o transport.DialOptions) (transport.Subscription, error) {
	return subscribe(ctx, addr, o)
}

func withDefaults(o transport.ListenOptions) transport.ListenOptions {
	if o.MaxMessage <= 0 {
		o.MaxMessage = transport.DefaultMaxMessage
	}
	if o.MaxBuffered <= 0 {
		o.MaxBuffered = 4 * int64(o.MaxMessage)
	}
	if o.HighWater <= 0 {
		o.HighWater = defaultHighWater
	}
	if o.Backlog <= 0 {
		o.Backlog = defaultBacklog
	}
	if o.HandshakeTimeout <= 0 {
		o.HandshakeTimeout = defaultHandshake
	}
	return o
}

// newServer builds the common part of both listeners.
func newServer(addr, option string, o transport.ListenOptions, log *slog.Logger) (*netserve.Server, *ratelimit.Log, error) {
	l, err := netserve.Listen(addr, option, o.KeepAlive)
	if err != nil {
		return nil, nil, err
	}
	return &netserve.Server{Listener: l, Log: log, Guests: o.Guests}, ratelimit.NewLog(log, 5, 10*time.Second), nil
}

// peerName is the address for a log.
func peerName(c net.Conn) slog.Attr { return slog.String("peer", c.RemoteAddr().String()) }
