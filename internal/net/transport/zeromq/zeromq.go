// Package zeromq carries Salt's messages as stock masters and minions do by
// default: ZMTP 3.1 and 3.0 over TCP, mechanism NULL, without libzmq. It offers
// the four roles that Salt needs and no general sockets: ROUTER for requests
// and PUB on the master, REQ and SUB for those who dial.
//
// # Greeting
//
// Both sides send 64 bytes at once, without waiting for the other:
//
//	FF 00*7 01 7F    signature; the 8 bytes in the middle mean nothing in ZMTP 3
//	03 01            version, major and minor
//	"NULL" 00*16     mechanism, 20 bytes
//	00               as-server, without meaning for NULL
//	00*31            filler
//
// The lower of both minor versions is used; unknown ones above are fine. Majors
// below 3 and other mechanisms are refused.
//
// # Frames
//
//	flags size body    flags: 01 more frames follow, 02 size has 8 bytes
//	                   (big endian) and not 1, 04 the frame is a command;
//	                   the other bits are 0
//
// # Commands
//
// The body of a command is one byte length, the name, the data:
//
//	READY      name-length(1) name value-length(4) value, repeated; each side's
//	           first frame, names Socket-Type and perhaps Identity
//	ERROR      reason-length(1) reason; instead of READY
//	SUBSCRIBE  prefix (3.1)
//	CANCEL     prefix (3.1)
//	PING       ttl(2, tenths of a second) context(0-16)
//	PONG       context of the PING
//
// Unknown commands are ignored. In 3.0 a subscription is not a command but a
// message 01 prefix, and its end is 00 prefix. A PUB here takes both forms.
//
// # Messages
//
//	request, reply    empty frame (flags 01), body (flags 00 or 02)
//	publication       payload; with zmq_filtering the topic (01), payload
//
// Proxies between a minion and the master may put routing frames before the
// empty frame of a request; the reply repeats them.
//
// # Unauthenticated peers
//
// No peer is authenticated at this level, so all memory that a peer can use is
// bounded: the size of commands and messages, the number of frames,
// subscriptions, unanswered requests and unsent bytes per peer, the bytes of
// unfinished large messages over all peers, and the time for the handshake and
// for a large message. Buffers grow with the bytes that have arrived, never by
// an announced length.
package zeromq

import (
	"context"
	"log/slog"
	"time"

	"brine/internal/net/transport"
)

// Transport is the ZeroMQ transport.
type Transport struct {
	log *slog.Logger
}

var _ transport.Transport = (*Transport)(nil)

// New returns the transport; its listeners log errors of peers to log.
func New(log *slog.Logger) *Transport {
	return &Transport{log: log.With("component", "zeromq")}
}

// Name returns "zeromq".
func (t *Transport) Name() string { return "zeromq" }

// Traits implements transport.Transport.
func (*Transport) Traits() transport.Traits { return transport.Traits{} }

// ListenRequests binds a ROUTER for REQ and DEALER peers. TLS is ignored.
func (t *Transport) ListenRequests(addr string, o transport.ListenOptions) (transport.RequestServer, error) {
	return listenRequests(addr, o, t.log)
}

// ListenPublish binds a PUB for SUB and XSUB peers. TLS and Identify are
// ignored: the minion id is not part of the protocol in a checkable form.
func (t *Transport) ListenPublish(addr string, o transport.ListenOptions) (transport.Publisher, error) {
	return listenPublish(addr, o, t.log)
}

// NewRequester returns a pool of REQ connections, each lock-step. It ignores o.Identity, because a
// ROUTER refuses a second connection with the same identity.
func (t *Transport) NewRequester(addr string, o transport.DialOptions) transport.Requester {
	return newRequester(addr, o)
}

// Subscribe connects a SUB. Heartbeats are sent only to peers of ZMTP 3.1, since older ones may not
// support them.
func (t *Transport) Subscribe(ctx context.Context, addr string, o transport.DialOptions) (transport.Subscription, error) {
	return subscribe(ctx, addr, o)
}

// listenDefaults replaces zero values by the defaults.
func listenDefaults(o transport.ListenOptions) transport.ListenOptions {
	if o.MaxMessage <= 0 {
		o.MaxMessage = transport.DefaultMaxMessage
	}
	if o.MaxBuffered <= 0 {
		o.MaxBuffered = 4 * int64(o.MaxMessage)
	}
	if o.HighWater <= 0 {
		o.HighWater = 1000
	}
	if o.HandshakeTimeout <= 0 {
		o.HandshakeTimeout = 10 * time.Second
	}
	if o.Backlog <= 0 {
		o.Backlog = 1000
	}
	return o
}

// dialDefaults replaces zero values by the defaults.
func dialDefaults(o transport.DialOptions) transport.DialOptions {
	if o.MaxMessage <= 0 {
		o.MaxMessage = transport.DefaultMaxMessage
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = 5 * time.Second
	}
	return o
}
