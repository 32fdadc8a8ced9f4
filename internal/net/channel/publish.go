package channel

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// PublishOptions are the master's options for publications.
type PublishOptions struct {
	SignPubMessages         bool   `salt:"sign_pub_messages" default:"true" doc:"sign every publication with the master's key" change:"restart"`
	PublishSigningAlgorithm string `salt:"publish_signing_algorithm" default:"PKCS1v15-SHA1" doc:"RSA signature of publications: PKCS1v15-SHA1 or PKCS1v15-SHA224" change:"restart"`
}

// PublishServer encrypts publications and passes them to every transport of the
// master.
type PublishServer struct {
	opts       PublishOptions
	identity   *handshake.Identity
	publishers []transport.Publisher

	// shared returns the AES key of a cluster, nil without a cluster. The
	// publications of a cluster have no serial numbers: each master would count
	// separately.
	shared func() string

	// key is read without mu: a sign-in does not wait for a signature.
	key atomic.Pointer[publishKey]

	// mu also preserves the order: minions drop a publication whose serial is not
	// above the previous one.
	mu     sync.Mutex
	serial int64 // of the last publication under key
}

type publishKey struct {
	aes    string
	cipher *crypt.Crypticle
}

// NewPublishServer returns a server with a new AES key.
func NewPublishServer(o PublishOptions, identity *handshake.Identity, publishers []transport.Publisher) (*PublishServer, error) {
	if o.SignPubMessages && !crypt.ValidSigning(o.PublishSigningAlgorithm) {
		return nil, fmt.Errorf("publish_signing_algorithm: %q is not PKCS1v15-SHA1 or PKCS1v15-SHA224", o.PublishSigningAlgorithm)
	}
	p := &PublishServer{opts: o, identity: identity, publishers: publishers}
	return p, p.Rotate()
}

// NewSharedPublishServer returns a server whose AES key is that of a cluster:
// key returns the current one at each use, and must be quick.
func NewSharedPublishServer(o PublishOptions, identity *handshake.Identity, publishers []transport.Publisher, key func() string) (*PublishServer, error) {
	p, err := NewPublishServer(o, identity, publishers)
	if err != nil {
		return nil, err
	}
	p.shared = key
	_, err = p.current()
	return p, err
}

// current returns the current key for publications.
func (p *PublishServer) current() (*publishKey, error) {
	k := p.key.Load()
	if p.shared == nil {
		return k, nil
	}
	aes := p.shared()
	if aes == k.aes {
		return k, nil
	}
	c, err := crypt.NewCrypticle(aes)
	if err != nil {
		return k, err
	}
	next := &publishKey{aes, c}
	p.key.Store(next)
	return next, nil
}

// Rotate replaces the AES key. Minions notice at the next publication, sign
// in again and then read that very message.
func (p *PublishServer) Rotate() error {
	aes := crypt.NewKey()
	c, err := crypt.NewCrypticle(aes)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key.Store(&publishKey{aes, c})
	p.serial = 0
	return nil
}

// AES returns the current key for publications.
func (p *PublishServer) AES() string {
	k, _ := p.current() // the last valid one
	return k.aes
}

// Publish sends a job map to the given minions, or to all if minions is nil. The
// job is not modified; the serial, unless this is a cluster, is added to a copy.
func (p *PublishServer) Publish(job *value.Dict, minions []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	key, err := p.current()
	if err != nil {
		return fmt.Errorf("the cluster's AES key is of no use: %w", err)
	}
	numbered := job.Clone()
	if p.shared == nil {
		numbered.Set("serial", p.serial+1)
	}
	plain, err := msgpack.Marshal(numbered, msgpack.Wire)
	if err != nil {
		return fmt.Errorf("cannot encode the job: %w", err)
	}
	load := key.cipher.Seal(plain, "")
	fields := 2
	if p.opts.SignPubMessages {
		fields = 4
	}
	b := msgpack.AppendMapHeader(make([]byte, 0, len(load)+400), fields)
	b = msgpack.AppendString(b, "enc", msgpack.Wire)
	b = msgpack.AppendString(b, "aes", msgpack.Wire)
	b = msgpack.AppendString(b, "load", msgpack.Wire)
	b = msgpack.AppendBin(b, load, msgpack.Wire)
	if p.opts.SignPubMessages {
		sig, err := p.identity.Key().Sign(p.opts.PublishSigningAlgorithm, load)
		if err != nil {
			return fmt.Errorf("cannot sign the publication: %w", err)
		}
		b = msgpack.AppendString(b, "sig_algo", msgpack.Wire)
		b = msgpack.AppendString(b, p.opts.PublishSigningAlgorithm, msgpack.Wire)
		b = msgpack.AppendString(b, "sig", msgpack.Wire)
		b = msgpack.AppendBin(b, sig, msgpack.Wire)
	}
	p.serial++
	for _, t := range p.publishers {
		t.Publish(transport.Publication{Payload: b, Minions: minions})
	}
	return nil
}

// Identifier returns the function that a publisher calls with the registration
// of a subscriber: {enc: aes, load: sealed {id, tok}} under the AES key.
// current returns the publish server, which is created after its transports.
func Identifier(current func() *PublishServer, keys Keys, log *slog.Logger) func([]byte) (string, bool) {
	return func(body []byte) (string, bool) {
		p := current()
		if p == nil {
			return "", false
		}
		id, err := p.identify(body, keys)
		if err != nil {
			log.Debug("ignoring the registration of a subscriber", "err", err)
			return "", false
		}
		return id, true
	}
}

func (p *PublishServer) identify(body []byte, keys Keys) (string, error) {
	if len(body) > signInLimits.Bytes {
		return "", fmt.Errorf("%d bytes are no registration", len(body))
	}
	raw, ok, err := msgpack.Field(body, "load")
	if err != nil || !ok {
		return "", errEnvelope
	}
	sealed, ok := msgpack.Text(raw)
	if !ok {
		return "", errEnvelope
	}
	key, err := p.current()
	if err != nil {
		return "", err
	}
	plain, err := key.cipher.Open(sealed)
	if err != nil {
		return "", err
	}
	d, err := dictOf(plain, signInLimits)
	if err != nil {
		return "", err
	}
	id := d.Str("id")
	if err := salt.CheckID(id); err != nil {
		return "", err
	}
	pub, ok, err := keys.AcceptedKey(id)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", errNotAccepted
	}
	msg, err := pub.RecoverX931(d.Bytes("tok"))
	if err != nil || string(msg) != "salt" {
		return "", fmt.Errorf("tok of %s was not made with its accepted key", id)
	}
	return id, nil
}
