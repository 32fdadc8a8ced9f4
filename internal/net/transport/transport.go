// Package transport says what Brine asks of a way to carry bytes between
// master and minion. It is four small interfaces: two for the master, which
// listens, and two for the minion and the command line, which dial. The
// packages below it (zeromq, tcp, ws) fulfil them; transporttest is the suite
// that all of them must pass.
//
// A transport knows nothing of jobs, keys or states. What it carries is one
// msgpack object at a time: the request envelope, its reply, and the signed
// publication of Salt's wire protocol.
//
// A dialled connection does not reconnect by itself: it fails, and its owner
// decides when to dial again.
package transport

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"brine/internal/net/transport/netserve"
)

// Misses is the number of silent heartbeats after which a peer is lost: the
// first one asks, the second one decides.
const Misses = 2

// DefaultMaxMessage bounds one message in bytes unless the options say else.
const DefaultMaxMessage = 128 << 20

// Request is one request as it came from a peer.
type Request struct {
	// Body is the request envelope: exactly one msgpack object (checked only
	// for its extent). It is the handler's to keep.
	Body []byte
	// Peer is the address it came from.
	Peer net.Addr
	// NewSpec tells that the reply must use msgpack's str8 and bin families
	// (tcp); otherwise the old raw family is expected (zeromq, ws).
	NewSpec bool
	// Reply sends the answer: one msgpack object. It must be called exactly
	// once, from any goroutine, at any time; it does not block for the
	// network, and does nothing when the peer is gone.
	Reply func(body []byte)
	// Answer is Reply for an answer in two parts; one of the two is called.
	Answer func(Answer)
	// Gone, if set, tells whether the peer has closed the connection, as one
	// does that waits no longer. It asks the system and does not wait.
	Gone func() bool
}

// Answer is the answer to a request: one msgpack object, in two parts so that
// neither need be copied.
type Answer struct {
	// Head and Body follow each other; they must not change until they are
	// sent. Many answers may have one Body.
	Head, Body []byte
	// Sent, if set, is called once, when the answer takes no memory any more:
	// the system has all of it, or the peer is gone. free tells that nobody
	// looks at Head and Body now. It must not wait, nor answer a request.
	Sent func(free bool)
}

// Done calls Sent if it is set.
func (a Answer) Done(free bool) {
	if a.Sent != nil {
		a.Sent(free)
	}
}

// Handler answers requests. It is called on the goroutine that reads from the
// peer, so that no other peer waits for it; work that takes long must be
// handed to a goroutine of the handler's own, which calls Reply later.
type Handler func(*Request)

// RequestServer accepts requests on a bound address.
type RequestServer interface {
	// Addr is the bound address; its port is real even if 0 was asked for.
	Addr() net.Addr
	// Serve accepts connections until ctx ends, then closes them all and
	// returns after every goroutine of the server has ended.
	Serve(ctx context.Context, h Handler) error
	// Close unbinds a server whose Serve was never called.
	Close() error
}

// Publication is one message for many minions.
type Publication struct {
	// Payload is one msgpack object.
	Payload []byte
	// Minions names the receivers when they are known, nil means everyone.
	// It lets a transport save work; a minion always checks the target
	// itself, and a transport without filtering sends to everyone.
	Minions []string
}

// Publisher sends publications to all subscribers of a bound address.
type Publisher interface {
	Addr() net.Addr
	// Publish hands the publication to every subscriber's queue and returns.
	// It never waits for a peer: where the queue of one is full (the
	// high-water mark), that peer misses this message and no other does.
	Publish(Publication)
	// Serve accepts subscribers until ctx ends, then tries for a moment to
	// send what is queued, closes all and returns.
	Serve(ctx context.Context) error
	// Peers returns the subscribers connected now.
	Peers() []Peer
	// Changes is a number that grows whenever Peers has others to name, or
	// others' ids. What was made of Peers is good for as long as it is what it
	// was before Peers was called.
	Changes() uint64
	Close() error
}

// Peer is a subscriber.
type Peer struct {
	Addr net.Addr
	// ID is the minion id if the transport learned and checked it, else "".
	ID string
	// Claimed is the id that the peer says to have, which nobody has checked,
	// else "".
	Claimed string
	// Dropped counts the messages that the peer missed at its high-water mark.
	Dropped uint64
}

// Requester sends requests to one master and returns the replies. It may be
// used by many goroutines at once. It dials when needed; a failed or timed
// out request leaves it usable.
type Requester interface {
	// Request sends one msgpack object and waits for the answer or for ctx.
	Request(ctx context.Context, body []byte) ([]byte, error)
	Close() error
}

// Subscription is a live connection to a publisher.
type Subscription interface {
	// Receive returns the next publication's payload. It fails when the
	// connection has ended, with the reason, and for good.
	Receive() ([]byte, error)
	Close() error
}

// Sender is an optional power of a Subscription: to send one message to the
// publisher, as the tcp transport does to register the minion's id.
type Sender interface {
	Send(body []byte) error
}

// Beater is an optional power of a Subscription: to know whether the publisher
// answers heartbeats, so that its silence ends the connection. A publisher of
// Salt's does over zeromq only.
type Beater interface {
	Beats() bool
}

// ListenOptions are what a listener needs. Zero values mean defaults.
type ListenOptions struct {
	// TLS is used where the transport supports it (tcp, ws).
	TLS *tls.Config
	// MaxMessage bounds one received message in bytes.
	MaxMessage int
	// MaxBuffered bounds the bytes of unfinished large messages over all
	// peers of one listener together, so that strangers cannot fill the
	// memory. 0 means 4 x MaxMessage.
	MaxBuffered int64
	// Budget, if set, is that bound for several listeners together, in place
	// of MaxBuffered.
	Budget *netserve.Budget
	// Guests, if set, bounds the connections of several listeners together.
	Guests *netserve.Guests
	// HighWater is the number of publications queued per subscriber
	// (pub_hwm). 0 means 1000.
	HighWater int
	// Filter sends publications by topic (zmq_filtering) or by registered id
	// (tcp without order_masters).
	Filter bool
	// Syndics adds the topic "syndic" for syndics below (order_masters).
	Syndics bool
	// Identify checks the body that a subscriber sent to register itself and
	// returns its minion id. Nil means that such messages are ignored.
	Identify func(body []byte) (id string, ok bool)
	// Heartbeat is the interval at which the listener pings a peer that has
	// shown that it answers; a peer silent for Misses of them is dropped.
	// 0 means never.
	Heartbeat time.Duration
	// HandshakeTimeout bounds how long a new connection may take before its
	// first complete message or handshake. 0 means 10 s.
	HandshakeTimeout time.Duration
	KeepAlive        net.KeepAliveConfig
	// Backlog is the number of replies queued per peer, 0 means 1000.
	Backlog int
}

// DialOptions are what a connection needs. Zero values mean defaults.
type DialOptions struct {
	TLS        *tls.Config
	MaxMessage int
	// Identity is announced to the peer where the protocol has a place for
	// it: the minion id.
	Identity string
	// Topics are the zeromq subscription prefixes; nil means all.
	Topics []string
	// LocalAddr is the local end (source_address with source_ret_port or
	// source_publish_port), nil means any.
	LocalAddr net.Addr
	// Heartbeat is the interval of pings on a quiet connection; without any
	// sign of life for Misses of them Receive fails. 0 means never.
	Heartbeat time.Duration
	// DialTimeout bounds connecting and the handshake. 0 means 5 s.
	DialTimeout time.Duration
	// Requests bounds the requests at once of a Requester that needs a
	// connection for each; further ones wait. 0 means 4.
	Requests  int
	KeepAlive net.KeepAliveConfig
}

// Unfinished returns the budget of a listener with these options, for the
// transports.
func (o ListenOptions) Unfinished() *netserve.Budget {
	if o.Budget != nil {
		return o.Budget
	}
	return netserve.NewBudget(o.MaxBuffered)
}

// Transport is one way to carry bytes.
type Transport interface {
	// Name is the word used in the option transport.
	Name() string
	// ListenRequests and ListenPublish bind addr (host:port, [v6]:port).
	ListenRequests(addr string, o ListenOptions) (RequestServer, error)
	ListenPublish(addr string, o ListenOptions) (Publisher, error)
	// NewRequester does not connect yet; addr is host:port.
	NewRequester(addr string, o DialOptions) Requester
	// Subscribe connects, completes the handshake and subscribes.
	Subscribe(ctx context.Context, addr string, o DialOptions) (Subscription, error)
}
