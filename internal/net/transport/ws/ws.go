// Package ws is Salt's WebSocket transport.
//
// Both ports speak HTTP/1.1 up to the upgrade, whatever the path, and then send
// binary messages:
//
//	request      msgpack envelope, client to server
//	reply        msgpack object, the other way
//	publication  msgpack bin that holds the payload, server to client
//
// The text message "close" asks for the end of the connection.
//
// Requests have no ids. On one connection replies come in the order of the
// requests: our server answers one after the other, like Salt's, and reads one
// ahead meanwhile, so that it sees pings and notices a peer that disconnects.
// Salt's client opens a connection for each request. Ours keeps some for later
// requests, because both servers continue reading, and opens more while all are
// busy.
//
// There is no registration, and no filter: every publication goes to every
// subscriber.
//
// # Heartbeats
//
// They are WebSocket pings, one at a time. A peer counts as answering when it
// has answered once. But Salt's subscriber answers only while it waits for the
// next publication, and hangs when its connection is closed; so a publisher
// drops only a silent peer that identified itself as Brine in the upgrade. For
// the others a ping makes TCP notice a dead machine. Salt's publisher never
// reads: it is pinged once and not dropped.
//
// # Unauthenticated peers
//
// The TLS handshake and the upgrade must complete within HandshakeTimeout, with
// no more than maxHeader bytes. Buffers for messages above a few KiB come out
// of one budget per listener, and such a message must make progress.
package ws

import (
	"context"
	"log/slog"

	"brine/internal/net/transport"
)

// userAgent identifies Brine's client in the upgrade.
const userAgent = "Brine"

// Transport is the WebSocket transport. Use New.
type Transport struct{ log *slog.Logger }

var _ transport.Transport = (*Transport)(nil)

// New returns the transport. Listeners log errors of peers to log, at a limited rate.
func New(log *slog.Logger) *Transport { return &Transport{log: log.With("component", "ws")} }

// Name returns "ws".
func (*Transport) Name() string { return "ws" }

// Traits implements transport.Transport.
func (*Transport) Traits() transport.Traits { return transport.Traits{TLS: true} }

// ListenRequests binds addr for requests.
func (t *Transport) ListenRequests(addr string, o transport.ListenOptions) (transport.RequestServer, error) {
	return listenRequests(addr, o, t.log)
}

// ListenPublish binds addr for subscribers. Filter has no effect.
func (t *Transport) ListenPublish(addr string, o transport.ListenOptions) (transport.Publisher, error) {
	return listenPublish(addr, o, t.log)
}

// NewRequester returns a Requester with a connection for every pending request.
func (*Transport) NewRequester(addr string, o transport.DialOptions) transport.Requester {
	return newRequester(addr, o)
}

// Subscribe connects and completes the upgrade.
func (*Transport) Subscribe(ctx context.Context, addr string, o transport.DialOptions) (transport.Subscription, error) {
	return subscribe(ctx, addr, o)
}
