// Package simulate runs thousands of minions in one process, to measure a master. Each has its own
// id, session key and connections. They are as cheap as possible, while the master does all the
// work that real minions cause.
//
// They use the same packages as Brine's minion, so they work with any stock master, too. To be
// cheap they share a few RSA keys, trust the master's answers, and decode a publication for all of
// them only once.
package simulate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
)

// Key is an RSA key shared by some of the minions.
type Key struct {
	private *crypt.PrivateKey
	pem     string
	tok     []byte
}

// NewKeys creates n keys.
func NewKeys(n int) ([]*Key, error) {
	keys := make([]*Key, n)
	for i := range keys {
		k, err := crypt.GenerateKey(2048)
		if err != nil {
			return nil, err
		}
		tok, err := k.SignX931([]byte("salt"))
		if err != nil {
			return nil, err
		}
		keys[i] = &Key{private: k, pem: string(k.Public().PEM()), tok: tok}
	}
	return keys, nil
}

// Write puts the key pair into a directory: name.pem and name.pub.
func (k *Key) Write(dir, name string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, name+".pem"), k.private.PEM(), 0o400),
		os.WriteFile(filepath.Join(dir, name+".pub"), []byte(k.pem), 0o644))
}

// PEM returns the public half.
func (k *Key) PEM() string { return k.pem }

// Config has the addresses of the master, and the size of the fleet.
type Config struct {
	Transport        transport.Transport
	Publish, Request string // the master's addresses
	MasterKey        string // the master's public key, known to all, as PEM
	Keys             []*Key
	Count            int
	// Timeout is the timeout of one request.
	Timeout time.Duration
	// Connections, if not 0, is the number of request connections shared by all minions. 0 gives
	// each its own, which it keeps for a minute.
	Connections int
}

// Fleet is a set of minions.
type Fleet struct {
	Minions []*Minion
	// NoHints makes the minions wait as Salt's do, instead of retrying when a busy master says.
	NoHints bool
	// Hints is how often a busy master told a minion when to retry.
	Hints atomic.Int64
	// Resubscribe makes the minions subscribe again, as real ones do, when a subscription ends;
	// Dropped counts these.
	Resubscribe bool
	Dropped     atomic.Int64
	// AuthTimeout, if not 0, is the timeout of a sign-in over a new connection instead of
	// Config.Timeout.
	AuthTimeout time.Duration
	// Before, if not nil, is called before each request under a session key.
	Before func()

	cfg    Config
	shared []transport.Requester
	aes    atomic.Pointer[masterKey]
	last   atomic.Pointer[Publication]
	open   sync.Mutex
	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

// masterKey is the key of publications, and the signature by which later sign-ins recognize it.
type masterKey struct {
	sig    []byte
	cipher *crypt.Crypticle
}

// perAddress is the number of minions on one loopback address: the system has some 28,000 ports for
// each address, and a minion uses a few.
const perAddress = 4000

// New returns a fleet that is not connected yet.
func New(cfg Config) *Fleet {
	f := &Fleet{cfg: cfg}
	f.ctx, f.stop = context.WithCancel(context.Background())
	for i := range cfg.Connections {
		f.shared = append(f.shared, cfg.Transport.NewRequester(cfg.Request, transport.DialOptions{LocalAddr: localAddr(i)}))
	}
	for i := range cfg.Count {
		f.Minions = append(f.Minions, f.newMinion(i))
	}
	return f
}

func (f *Fleet) newMinion(i int) *Minion {
	m := &Minion{ID: fmt.Sprintf("minion-%05d", i), fleet: f, key: f.cfg.Keys[i%len(f.cfg.Keys)], local: localAddr(i)}
	m.signer = &handshake.Minion{ID: m.ID, Key: m.key.private, Token: crypt.NewKey()[:32], Trust: trust(f.cfg.MasterKey),
		Options: handshake.MinionOptions{EncryptionAlgorithm: crypt.OAEPSHA1, SigningAlgorithm: crypt.PKCS1v15SHA1}}
	if len(f.shared) > 0 {
		m.req = f.shared[i%len(f.shared)]
	} else {
		m.req = f.cfg.Transport.NewRequester(f.cfg.Request, transport.DialOptions{LocalAddr: m.local})
	}
	return m
}

func localAddr(i int) net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i/perAddress))}
}

// trust is the master's key, known to all minions.
type trust string

func (t trust) Known() (string, bool)                    { return crypt.CleanKey(string(t)), true }
func (t trust) Adopt(pem string, _ bool) (string, error) { return pem, nil }
func (t trust) Succeed(string, bool) error               { return nil }
func (t trust) File() string                             { return "memory" }

// Accept stores the keys of n minions as accepted in a master's pki_dir.
func Accept(pkiDir string, keys []*Key, n int) error {
	dir := filepath.Join(pkiDir, "minions")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("minion-%05d", i)), []byte(keys[i%len(keys)].pem), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Each calls do for all minions, at most parallel at a time, and returns the first errors.
func (f *Fleet) Each(parallel int, do func(*Minion) error) error {
	return Each(f.Minions, parallel, do)
}

// Each calls do for some minions, at most parallel at a time, and returns the first errors.
func Each(minions []*Minion, parallel int, do func(*Minion) error) error {
	var next atomic.Int64
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for range min(parallel, len(minions)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(minions) {
					return
				}
				if err := do(minions[i]); err != nil {
					mu.Lock()
					if errs = append(errs, err); len(errs) > 3 {
						next.Store(int64(len(minions)))
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (f *Fleet) authTimeout() time.Duration {
	if f.AuthTimeout > 0 {
		return f.AuthTimeout
	}
	return f.cfg.Timeout
}

// signInTries is how often SignIn tries for each minion.
const signInTries = 5

// SignIn signs all minions in. It retries, as minions do: a master with little CPU time drops
// sign-ins that have waited too long.
func (f *Fleet) SignIn(ctx context.Context, parallel int) error {
	return f.Each(parallel, func(m *Minion) (err error) {
		for range signInTries {
			if err = m.SignIn(ctx); err == nil || ctx.Err() != nil {
				break
			}
		}
		return err
	})
}

// Subscribe connects all minions to the publish port. handle is called with each publication that a
// minion receives, on that minion's goroutine; it may be nil.
func (f *Fleet) Subscribe(ctx context.Context, parallel int, handle func(*Minion, *Publication)) error {
	return f.Each(parallel, func(m *Minion) error { return m.Subscribe(ctx, handle) })
}

// learn stores the master's key for publications, and decrypts it only if it is new.
func (f *Fleet) learn(k *Key, sealed, sig []byte) error {
	if now := f.aes.Load(); now != nil && bytes.Equal(now.sig, sig) {
		return nil
	}
	aes, err := k.private.Decrypt(crypt.OAEPSHA1, sealed)
	if err != nil {
		return err
	}
	c, err := crypt.NewCrypticle(string(aes))
	if err != nil {
		return err
	}
	f.aes.Store(&masterKey{sig: bytes.Clone(sig), cipher: c})
	return nil
}

// Close ends all connections.
func (f *Fleet) Close() {
	f.stop()
	for _, m := range f.Minions {
		m.Unsubscribe()
	}
	Each(f.Minions, 64, func(m *Minion) error {
		if len(f.shared) == 0 {
			m.req.Close()
		}
		return nil
	})
	for _, r := range f.shared {
		r.Close()
	}
	f.wg.Wait()
}
