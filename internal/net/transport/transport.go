// Package transport declares how bytes are carried between master and minion: four small
// interfaces, two for the master, which listens, and two for the minion and the command line, which
// dial. The packages below it (zeromq, tcp, ws) implement them; transporttest is the suite that all
// of them must pass.
//
// A transport knows nothing of jobs, keys or states. It carries one msgpack object at a time: the
// request envelope, its reply, and the signed publication of Salt's wire protocol.
//
// A dialled connection does not reconnect: it fails, and its owner decides when to dial again.
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

// DefaultMaxMessage is the default limit of one message in bytes.
const DefaultMaxMessage = 128 << 20

// Request is one request from a peer.
type Request struct {
	// Body is the request envelope: exactly one msgpack object (only its extent is checked). It
	// belongs to the handler.
	Body []byte
	// Peer is the address it came from.
	Peer net.Addr
	// NewSpec means that the reply must use msgpack's str8 and bin families (tcp); otherwise the
	// old raw family is expected (zeromq, ws).
	NewSpec bool
	// Reply sends the answer: one msgpack object. It must be called exactly once, from any
	// goroutine, at any time. It does not wait for the network, and does nothing if the peer is
	// gone.
	Reply func(body []byte)
	// Answer is Reply for an answer in two parts; call one of the two.
	Answer func(Answer)
	// Gone, if set, reports whether the peer has closed the connection, as a peer does after its
	// timeout. It does not wait.
	Gone func() bool
}

// Answer is the answer to a request: one msgpack object, in two parts so that
// neither need be copied.
type Answer struct {
	// Head is followed by Body; neither may change until it is sent. Many answers may have one
	// Body.
	Head, Body []byte
	// Sent, if set, is called once, when the answer uses no memory any more: the kernel has all of
	// it, or the peer is gone. free says that Head and Body are no longer in use. It must not block
	// or answer a request.
	Sent func(free bool)
}

// Done calls Sent if it is set.
func (a Answer) Done(free bool) {
	if a.Sent != nil {
		a.Sent(free)
	}
}

// Handler answers requests. It is called on the goroutine that reads from the peer, so that no
// other peer waits for it. Slow work must move to another goroutine, which calls Reply later.
type Handler func(*Request)

// RequestServer accepts requests on a bound address.
type RequestServer interface {
	// Addr is the bound address; its port is real even if 0 was configured.
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
	// Minions names the receivers if they are known, nil means all. A transport may use it to save
	// work; a minion always checks the target itself, and a transport without filtering sends to
	// all.
	Minions []string
}

// Publisher sends publications to all subscribers of a bound address.
type Publisher interface {
	Addr() net.Addr
	// Publish adds the publication to every subscriber's queue and returns. It never waits for a
	// peer: if the queue of one is full (the high-water mark), only that peer misses this message.
	Publish(Publication)
	// Serve accepts subscribers until ctx ends, then tries for a moment to send queued messages,
	// closes all and returns.
	Serve(ctx context.Context) error
	// Peers returns the connected subscribers.
	Peers() []Peer
	// Changes is a number that grows whenever the result of Peers changes. A result of Peers is
	// current while Changes has the value from before the call.
	Changes() uint64
	Close() error
}

// Peer is a subscriber.
type Peer struct {
	Addr net.Addr
	// ID is the minion id if the transport has verified it, else "".
	ID string
	// Claimed is the unverified id of the peer, else "".
	Claimed string
	// Dropped counts the messages that the peer missed at its high-water mark.
	Dropped uint64
}

// Requester sends requests to one master and returns the replies. It is safe for concurrent use. It
// dials when needed; a failed or timed out request leaves it usable.
type Requester interface {
	// Request sends one msgpack object and waits for the answer or for ctx.
	Request(ctx context.Context, body []byte) ([]byte, error)
	Close() error
}

// Subscription is a live connection to a publisher.
type Subscription interface {
	// Receive returns the payload of the next publication. It fails permanently, with the reason,
	// when the connection has ended.
	Receive() ([]byte, error)
	Close() error
}

// Sender is an optional interface of a Subscription: it sends one message to the publisher, as the
// tcp transport does to register the minion's id.
type Sender interface {
	Send(body []byte) error
}

// Beater is an optional interface of a Subscription: it reports whether the publisher answers
// heartbeats, so that its silence ends the connection. A stock publisher does so only over zeromq.
type Beater interface {
	Beats() bool
}

// ListenOptions are the options of a listener. Zero values mean defaults.
type ListenOptions struct {
	// TLS is used where the transport supports it (tcp, ws).
	TLS *tls.Config
	// MaxMessage bounds one received message in bytes.
	MaxMessage int
	// MaxBuffered bounds the bytes of unfinished large messages over all peers of one listener
	// together, so that unauthenticated peers cannot fill the memory. 0 means 4 x MaxMessage.
	MaxBuffered int64
	// Budget, if set, is that limit for several listeners together, instead of MaxBuffered.
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
	// Identify checks a subscriber's registration and returns its minion id. Nil means that
	// registrations are ignored.
	Identify func(body []byte) (id string, ok bool)
	// Heartbeat is the interval at which the listener pings a peer that has answered before; a peer
	// that is silent for Misses of them is dropped. 0 means never.
	Heartbeat time.Duration
	// HandshakeTimeout bounds the time of a new connection before its first complete message or
	// handshake. 0 means 10 s.
	HandshakeTimeout time.Duration
	KeepAlive        net.KeepAliveConfig
	// Backlog is the number of replies queued per peer, 0 means 1000.
	Backlog int
}

// DialOptions are the options of a connection. Zero values mean defaults.
type DialOptions struct {
	TLS        *tls.Config
	MaxMessage int
	// Identity is the minion id, announced to the peer if the protocol has a field for it.
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
	// Requests bounds the concurrent requests of a Requester that needs a connection for each;
	// further ones wait. 0 means 4.
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

// Traits are what the users of a transport must know of it.
type Traits struct {
	// Registers means that a master sends a publication for certain minions only to minions that have
	// registered with a message under its current key.
	Registers bool
	// TLS means that the option ssl applies.
	TLS bool
}

// Transport is one way to carry bytes.
type Transport interface {
	// Name is its name in the option transport. Do not decide by it; use Traits.
	Name() string
	Traits() Traits
	// ListenRequests and ListenPublish bind addr (host:port, [v6]:port).
	ListenRequests(addr string, o ListenOptions) (RequestServer, error)
	ListenPublish(addr string, o ListenOptions) (Publisher, error)
	// NewRequester does not connect yet; addr is host:port.
	NewRequester(addr string, o DialOptions) Requester
	// Subscribe connects, completes the handshake and subscribes.
	Subscribe(ctx context.Context, addr string, o DialOptions) (Subscription, error)
}
