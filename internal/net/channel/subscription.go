package channel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/wait"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Subscription yields a master's publications, decrypted and verified.
type Subscription struct {
	c   *Client
	sub transport.Subscription
	log *slog.Logger

	warned ratelimit.Window // of Receive
	missed atomic.Bool

	mu         sync.Mutex
	registered string // the AES key of the last registration
}

// Subscribe connects to the master's publish address. The client must be
// signed in.
func (c *Client) Subscribe(ctx context.Context, addr string) (*Subscription, error) {
	cr := c.current()
	if cr == nil {
		return nil, errors.New("cannot subscribe before signing in")
	}
	sub, err := c.cfg.Transport.Subscribe(ctx, addr, c.cfg.SubscribeDial)
	if err != nil {
		return nil, err
	}
	s := &Subscription{c: c, sub: sub, log: c.cfg.Log, warned: ratelimit.Window{Most: 1, Every: 10 * time.Second}}
	if err := s.register(cr); err != nil {
		sub.Close()
		return nil, err
	}
	return s, nil
}

// register sends the minion's id, on transports that send only to registered
// minions. A message under the master's current key registers the whole
// connection.
func (s *Subscription) register(cr *credentials) error {
	sender, ok := s.sub.(transport.Sender)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok || s.registered == cr.aes {
		return nil
	}
	plain, err := msgpack.Marshal(value.DictOf("id", s.c.cfg.Signer.ID, "tok", s.c.tok), msgpack.Wire)
	if err != nil {
		return err
	}
	body, err := msgpack.Marshal(value.DictOf("enc", "aes", "load", cr.publications.cipher.Seal(plain, ""), "version", protocolVersion), msgpack.NewSpec)
	if err != nil {
		return err
	}
	if err := sender.Send(body); err != nil {
		return err
	}
	s.registered = cr.aes
	return nil
}

// Beats reports whether the transport detects a lost master by heartbeats; see
// transport.Beater.
func (s *Subscription) Beats() bool {
	b, ok := s.sub.(transport.Beater)
	return ok && b.Beats()
}

// Missed reports whether the serial numbers of publications had a gap since the last call. The
// result has no meaning on a transport that sends to only some minions.
func (s *Subscription) Missed() bool { return s.missed.Load() && s.missed.Swap(false) }

// Close ends the subscription; Receive then fails.
func (s *Subscription) Close() { s.sub.Close() }

// Receive returns the next job map. Messages that are unreadable for us,
// replayed or malformed are logged and skipped; an error means that the
// connection has ended. A message under an unknown key makes the client sign
// in, and is then read: it is not lost.
func (s *Subscription) Receive(ctx context.Context) (*value.Dict, error) {
	for {
		payload, err := s.sub.Receive()
		if err != nil {
			return nil, err
		}
		job, err := s.open(ctx, payload)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			s.ignored(err)
			continue
		}
		return job, nil
	}
}

// ignored logs a skipped publication. An attacker on the network path can send
// any number of them, so at most one in ten seconds is a warning.
func (s *Subscription) ignored(err error) {
	level := slog.LevelDebug
	if _, ok := s.warned.Admit(time.Now()); ok {
		level = slog.LevelWarn
	}
	s.log.Log(context.Background(), level, "ignoring a publication", "err", err)
}

func (s *Subscription) open(ctx context.Context, payload []byte) (*value.Dict, error) {
	msg, err := dictOf(payload, unauthenticatedLimits)
	if err != nil {
		return nil, err
	}
	if msg.Str("enc") != "aes" {
		return nil, fmt.Errorf("unknown enc %.20q", msg.Str("enc"))
	}
	plain, key, err := s.unsealRenewing(ctx, msg)
	if err != nil {
		return nil, err
	}
	job, err := dictOf(plain, minionLimits)
	if err != nil {
		return nil, err
	}
	missed, err := key.accept(job)
	if missed {
		s.missed.Store(true)
	}
	return job, err
}

// unsealRenewing signs in again if the message cannot be read with the current
// keys.
func (s *Subscription) unsealRenewing(ctx context.Context, msg *value.Dict) ([]byte, *publicationKey, error) {
	for fresh := false; ; {
		cr := s.c.current()
		plain, key, err := s.unseal(cr, msg)
		if err == nil || fresh || errors.Is(err, errUnsigned) || errors.Is(err, errForged) {
			return plain, key, err
		}
		s.log.Debug("cannot decrypt a publication with the current keys; signing in again", "err", err)
		// Unless fresh, the keys are from a sign-in of another caller, perhaps from
		// before the master changed its key.
		if fresh, err = s.renew(ctx, cr.gen); err != nil {
			return nil, nil, fmt.Errorf("a publication needs new keys, and the sign-in failed: %w", err)
		}
	}
}

// Limits of key renewal while a message waits to be read.
const (
	renewTries   = 10
	renewPause   = 100 * time.Millisecond
	renewPauseTo = 3 * time.Second
)

// Renew signs in again, as after a reconnection: the master may be a new
// process with new keys. It does nothing if that has happened meanwhile.
func (s *Subscription) Renew(ctx context.Context, since int) error {
	_, err := s.renew(ctx, since)
	return err
}

// Generation identifies the keys of a sign-in.
func (c *Client) Generation() int {
	if cr := c.current(); cr != nil {
		return cr.gen
	}
	return 0
}

// renew signs in again, with retries: after a master's restart the whole fleet
// signs in at once, and the message that revealed it must not be lost.
func (s *Subscription) renew(ctx context.Context, gen int) (fresh bool, err error) {
	pause := renewPause
	for try := 1; ; try++ {
		fresh, err := s.c.renew(ctx, gen)
		if err == nil {
			// The registration uses the AES key.
			if err := s.register(s.c.current()); err != nil {
				s.log.Debug("cannot register again", "err", err)
			}
			return fresh, nil
		}
		var mismatch *handshake.KeyMismatch
		if try == renewTries || ctx.Err() != nil || errors.Is(err, handshake.ErrPending) ||
			errors.Is(err, handshake.ErrRejected) || errors.As(err, &mismatch) {
			return false, err
		}
		s.log.Debug("sign-in failed; retrying", "err", err)
		if !wait.Sleep(ctx, pause/2+rand.N(pause)) {
			return false, context.Cause(ctx)
		}
		pause = min(2*pause, renewPauseTo)
	}
}

var (
	errUnsigned = errors.New("the publication is not signed, but the option sign_pub_messages is on here: set it on the master, too")
	errForged   = errors.New("the publication is not signed, but the master announced at the sign-in that it signs all: another minion may have forged it")
)

// unseal verifies the signature, if required, and decrypts. It returns the key that worked.
func (s *Subscription) unseal(cr *credentials, msg *value.Dict) ([]byte, *publicationKey, error) {
	load := msg.Bytes("load")
	if s.c.cfg.VerifyPublications || cr.signs {
		if !msg.Has("sig") {
			if cr.signs {
				return nil, nil, errForged
			}
			return nil, nil, errUnsigned
		}
		if err := cr.master.Verify(msg.Str("sig_algo"), load, msg.Bytes("sig")); err != nil {
			return nil, nil, fmt.Errorf("the publication's signature is wrong: %w", err)
		}
	}
	plain, err := cr.publications.cipher.Open(load)
	if err != nil && cr.previous != nil && time.Now().Before(cr.previousEnd) {
		if plain, err := cr.previous.cipher.Open(load); err == nil {
			return plain, cr.previous, nil
		}
	}
	return plain, cr.publications, err
}

// accept removes the serial and rejects a publication that is not newer than the previous one,
// since it is a replay. missed means that numbers in between are missing.
func (k *publicationKey) accept(job *value.Dict) (missed bool, err error) {
	if !job.Has("serial") {
		return false, nil
	}
	n := job.Int("serial")
	job.Delete("serial")
	k.mu.Lock()
	defer k.mu.Unlock()
	if n <= k.serial {
		return false, fmt.Errorf("a replayed publication: serial %d after %d", n, k.serial)
	}
	missed = n > k.serial+1
	k.serial = n
	return missed, nil
}
