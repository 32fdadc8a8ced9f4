// Package hotlink carries questions between masters that have the same key and are no cluster (hot masters).
// They travel as requests over the request port. Each is encrypted and authenticated with a key that is derived
// from the shared private key, so that only a master with that key can ask, answer or read.
//
// A request names the present epoch of the master that it is for, and a nonce. A master answers a nonce once in an
// epoch, and a request of another epoch only with the name of the present one: so nothing can be replayed, and no
// clocks are compared. The answer repeats the nonce.
package hotlink

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Command is the command of requests between hot masters.
const Command = "_brine_hot"

// MaxMessage bounds a message in bytes.
const MaxMessage = 16 << 20

// limits bound what is decoded from a master with the shared key.
var limits = msgpack.Limits{Items: 4_000_000, Bytes: MaxMessage, Depth: 100}

// maxNonces bounds the nonces of an epoch. Then a new epoch begins.
const maxNonces = 1 << 16

const nonceSize = 32

// protocolVersion is that of the envelope; older ones are refused.
const protocolVersion = int64(3)

// NewBoot returns a name for a process.
func NewBoot() string { return random() }

func random() string {
	var b [nonceSize / 2]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// keys are the two keys of a link: a request cannot be taken for an answer.
type keys struct{ ask, answer *crypt.Crypticle }

func derive(shared *crypt.PrivateKey) (keys, error) {
	secret := shared.PEM()
	ask, err := crypt.NewCrypticle(crypt.DeriveKey(secret, "brine: hot masters, requests"))
	if err != nil {
		return keys{}, err
	}
	answer, err := crypt.NewCrypticle(crypt.DeriveKey(secret, "brine: hot masters, answers"))
	return keys{ask, answer}, err
}

// Server answers the questions of other masters.
type Server struct {
	id     string
	keys   keys
	answer func(from, name string, arg *value.Dict) (*value.Dict, error)

	mu    sync.Mutex
	epoch string
	seen  map[string]bool
}

// NewServer returns the server of a master. answer is called with the id of the asking master, the name of the
// question and its argument.
func NewServer(id string, shared *crypt.PrivateKey, answer func(from, name string, arg *value.Dict) (*value.Dict, error)) (*Server, error) {
	k, err := derive(shared)
	return &Server{id: id, keys: k, answer: answer, epoch: random(), seen: map[string]bool{}}, err
}

// ErrForeign is the error of a request that no master with this key has made.
var ErrForeign = errors.New("it was not made with this master's key")

// Answer answers a request.
func (s *Server) Answer(sealed []byte) ([]byte, error) {
	if len(sealed) > MaxMessage {
		return nil, ErrForeign
	}
	text, err := s.keys.ask.Open(sealed)
	if err != nil {
		return nil, ErrForeign
	}
	var q wire.HotQuestion
	if err := decode(text, &q); err != nil {
		return nil, err
	}
	if len(q.Nonce) != nonceSize || salt.CheckID(q.From) != nil {
		return nil, ErrForeign
	}
	epoch, fresh := s.admit(q.Epoch, q.Nonce)
	a := wire.HotAnswer{ID: s.id, Epoch: epoch, Stale: !fresh}
	if fresh {
		if a.Data, err = s.answer(q.From, q.Ask, q.Arg); err != nil {
			a.Error = err.Error()
		}
	}
	out, err := msgpack.Marshal(wire.Encode(&a), msgpack.NewSpec)
	if err != nil {
		return nil, err
	}
	return s.keys.answer.Seal(out, q.Nonce), nil
}

// admit records a nonce and reports whether it is new in the present epoch.
func (s *Server) admit(epoch, nonce string) (now string, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch == s.epoch && !s.seen[nonce] && len(s.seen) < maxNonces {
		s.seen[nonce] = true
		return s.epoch, true
	}
	if len(s.seen) >= maxNonces {
		s.epoch, s.seen = random(), map[string]bool{}
	}
	return s.epoch, false
}

func decode(text []byte, to any) error {
	v, err := limits.UnmarshalTyped(text)
	if err != nil {
		return fmt.Errorf("cannot decode a message between hot masters: %w", err)
	}
	d, _ := v.(*value.Dict)
	if d == nil {
		return errors.New("a message between hot masters is not a map")
	}
	return wire.Decode(d, to)
}

// Requester sends a request to a master and returns its answer.
type Requester interface {
	Request(ctx context.Context, body []byte) ([]byte, error)
}

// Client asks one other master.
type Client struct {
	id   string
	keys keys
	to   Requester

	mu    sync.Mutex
	epoch string
}

// NewClient returns a client of the master with this id that asks another one.
func NewClient(id string, shared *crypt.PrivateKey, to Requester) (*Client, error) {
	k, err := derive(shared)
	return &Client{id: id, keys: k, to: to}, err
}

// ErrRefused means that the other master has another key, asks no other masters, or is no Brine master.
var ErrRefused = errors.New("it does not accept this master's key, or does not list this master in hot_masters")

// Ask asks the other master, and returns its id and its answer.
func (c *Client) Ask(ctx context.Context, name string, arg *value.Dict) (id string, data *value.Dict, err error) {
	for range 3 {
		c.mu.Lock()
		epoch := c.epoch
		c.mu.Unlock()
		a, err := c.once(ctx, wire.HotQuestion{From: c.id, Epoch: epoch, Nonce: random(), Ask: name, Arg: arg})
		if err != nil {
			return "", nil, err
		}
		if a.Stale {
			c.mu.Lock()
			c.epoch = a.Epoch
			c.mu.Unlock()
			continue
		}
		if a.Error != "" {
			return a.ID, nil, salt.Errorf(salt.Unavailable, "%.500s", a.Error)
		}
		if a.Data == nil {
			a.Data = value.NewDict(0)
		}
		return a.ID, a.Data, nil
	}
	return "", nil, errors.New("it restarts too often")
}

func (c *Client) once(ctx context.Context, q wire.HotQuestion) (a wire.HotAnswer, err error) {
	text, err := msgpack.Marshal(wire.Encode(&q), msgpack.NewSpec)
	if err != nil {
		return a, err
	}
	load := value.DictOf("cmd", Command, "data", c.keys.ask.Seal(text, ""))
	body, err := msgpack.Marshal(value.DictOf("enc", "clear", "load", load, "version", protocolVersion), msgpack.NewSpec)
	if err != nil {
		return a, err
	}
	if len(body) > MaxMessage {
		return a, fmt.Errorf("a message of %d bytes is too large", len(body))
	}
	reply, err := c.to.Request(ctx, body)
	if err != nil {
		return a, err
	}
	v, err := (msgpack.Limits{Items: 16, Bytes: MaxMessage + 1024, Depth: 4}).UnmarshalTyped(reply)
	if err != nil {
		return a, ErrRefused
	}
	d, _ := v.(*value.Dict)
	var in wire.HotRequest
	wire.View(d, &in)
	if len(in.Data) == 0 {
		return a, ErrRefused
	}
	plain, err := c.keys.answer.OpenNonce(in.Data, q.Nonce)
	if err != nil {
		return a, ErrRefused
	}
	if err := decode(plain, &a); err != nil {
		return a, err
	}
	if salt.CheckID(a.ID) != nil {
		return a, errors.New("its id is invalid")
	}
	return a, nil
}
