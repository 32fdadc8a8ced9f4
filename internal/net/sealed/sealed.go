// Package sealed signs messages that travel over a bus which neither end trusts.
//
// The key of a master or cluster signs a certificate for an Ed25519 key that exists in memory only,
// and that key signs messages: an RSA signature takes a millisecond, an Ed25519 signature 25 µs. A
// message has its certificate with it, so that receivers need no state. What is signed begins with
// a text that no other signature of these keys begins with.
//
// A signature says who wrote a message, not that it is new: every message is idempotent, and
// commands expire. A site whose clock is wrong follows that of the hub, which answers a nonce of the
// site with its time, signed by its long-lived key.
package sealed

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// The roles of a certificate. A site's certificate does not sign commands.
const (
	Site = "site"
	Hub  = "hub"
)

const (
	certPrefix    = "brine federation certificate 1\n"
	messagePrefix = "brine federation message 1\n"
	// NoncePrefix begins what a client of a hub signs when it connects.
	NoncePrefix = "brine federation connection 1\n"
	clockPrefix = "brine federation clock 1\n"

	certLife = 24 * time.Hour
	// skew is how much the clocks of two ends may differ.
	skew = 10 * time.Minute
	// maxCerts bounds the verified certificates that an Opener remembers.
	maxCerts = 4096
)

// MaxMessage bounds a sealed message in bytes.
const MaxMessage = 16 << 20

// MaxName bounds the name of a site.
const MaxName = 63

// CheckName checks the name of a site. It is a part of subjects of NATS, of file names and of
// targets.
func CheckName(name string) error {
	switch {
	case name == "" || len(name) > MaxName:
		return salt.Errorf(salt.Invalid, "%.80q is not a name of a site: it needs 1 to %d characters", name, MaxName)
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" || name[0] == '-':
		return salt.Errorf(salt.Invalid, "%.80q is not a name of a site: only letters, digits, - and _ are allowed", name)
	}
	return nil
}

// Fingerprint returns the fingerprint of a public key, as salt-key prints it.
func Fingerprint(pub string) string { return crypt.Fingerprint([]byte(pub), "sha256") }

// ValidFingerprint reports whether a text has the form of a SHA-256 fingerprint.
func ValidFingerprint(f string) bool {
	parts := strings.Split(f, ":")
	return len(parts) == 32 && !slices.ContainsFunc(parts, func(p string) bool {
		return len(p) != 2 || strings.Trim(p, "0123456789abcdef") != ""
	})
}

// Identity is the verified origin of a message.
type Identity struct {
	Name, Role string
	// Pub is the PEM text of the master's key.
	Pub string
	// Fingerprint is that of Pub.
	Fingerprint string

	public      *crypt.PublicKey // as in Pub
	key         ed25519.PublicKey
	from, until time.Time
}

func (i *Identity) validAt(now time.Time) bool {
	return !now.Before(i.from) && !now.After(i.until.Add(skew))
}

// Has reports whether the key of the master is k.
func (i *Identity) Has(k *crypt.PublicKey) bool { return k.Equal(i.public) }

// Sealer signs messages. It is safe for concurrent use.
type Sealer struct {
	name, role string
	key        func() *crypt.PrivateKey
	now        func() time.Time

	mu     sync.Mutex
	of     *crypt.PrivateKey // the key that signed cert
	sign   ed25519.PrivateKey
	cert   []byte
	made   time.Time
	renews time.Time
}

// NewSealer returns a Sealer in a role. key returns the present key of the master or cluster.
func NewSealer(name, role string, key func() *crypt.PrivateKey) *Sealer {
	return &Sealer{name: name, role: role, key: key, now: time.Now}
}

// Follow makes the sealer use another clock. It is called before the first message.
func (s *Sealer) Follow(now func() time.Time) { s.now = now }

// Clock answers the nonce of a site with the time. It costs an RSA signature.
func (s *Sealer) Clock(nonce []byte) (wire.SiteClock, error) {
	at := s.now()
	sig, err := s.key().Sign(crypt.PKCS1v15SHA224, clockText(nonce, at.UnixNano()))
	if err != nil {
		return wire.SiteClock{}, fmt.Errorf("cannot sign the time for a site: %w", err)
	}
	return wire.SiteClock{Nonce: nonce, At: at.UnixNano(), Sig: sig}, nil
}

func clockText(nonce []byte, at int64) []byte {
	return fmt.Appendf(nil, "%s%d %x", clockPrefix, at, nonce)
}

// Pub returns the PEM text of the key.
func (s *Sealer) Pub() string { return string(s.key().Public().PEM()) }

// current returns a valid certificate and its key.
func (s *Sealer) current() ([]byte, ed25519.PrivateKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, key := s.now(), s.key()
	if s.cert != nil && s.of == key && now.Before(s.renews) && !now.Before(s.made) {
		return s.cert, s.sign, nil
	}
	pub, sign, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	data, err := encode(wire.SealedIdentity{
		Name: s.name, Role: s.role, Key: pub, Pub: string(key.Public().PEM()), From: now.Add(-skew).Unix(), Until: now.Add(certLife).Unix(),
	})
	if err != nil {
		return nil, nil, err
	}
	sig, err := key.Sign(crypt.PKCS1v15SHA224, append([]byte(certPrefix), data...))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot sign the certificate of a site: %w", err)
	}
	cert, err := encode(wire.SealedCert{Data: data, Sig: sig})
	if err != nil {
		return nil, nil, err
	}
	s.cert, s.sign, s.of, s.made, s.renews = cert, sign, key, now, now.Add(certLife/2)
	return cert, sign, nil
}

// Certificate returns the present certificate, for a connection.
func (s *Sealer) Certificate() ([]byte, error) {
	cert, _, err := s.current()
	return cert, err
}

// Nonce signs the nonce of a server, by the key of the present certificate.
func (s *Sealer) Nonce(nonce []byte) ([]byte, error) {
	_, key, err := s.current()
	if err != nil {
		return nil, err
	}
	return ed25519.Sign(key, append([]byte(NoncePrefix), nonce...)), nil
}

// Seal returns a signed message. data is a struct of package wire.
func (s *Sealer) Seal(kind, to string, data any) ([]byte, error) {
	cert, key, err := s.current()
	if err != nil {
		return nil, err
	}
	body, err := encode(wire.SealedBody{Kind: kind, To: to, At: s.now().UnixNano(), Data: wire.Encode(data)})
	if err != nil {
		return nil, err
	}
	return encode(wire.Sealed{Cert: cert, Body: body, Sig: ed25519.Sign(key, append([]byte(messagePrefix), body...))})
}

func encode(v any) ([]byte, error) {
	b, err := msgpack.Marshal(wire.Encode(v), msgpack.NewSpec)
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "cannot encode a message to a site or hub: %w", err)
	}
	return b, nil
}

// decode reads a struct of package wire.
func decode(b []byte, limits msgpack.Limits, to any) error {
	v, err := limits.UnmarshalTyped(b)
	if err != nil {
		return salt.Errorf(salt.Invalid, "malformed message: %w", err)
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return salt.Errorf(salt.Invalid, "malformed message: not a dict")
	}
	if err := wire.Decode(d, to); err != nil {
		return salt.Errorf(salt.Invalid, "malformed message: %w", err)
	}
	return nil
}

var (
	outerLimits = msgpack.Limits{Depth: 4, Items: 16, Bytes: MaxMessage}
	certLimits  = msgpack.Limits{Depth: 4, Items: 32, Bytes: 8 << 10}
	bodyLimits  = msgpack.Limits{Depth: 200, Items: 2 << 20, Bytes: MaxMessage}
)

// Message is an opened message.
type Message struct {
	From *Identity
	Kind string
	To   string
	At   time.Time
	Data *value.Dict
}

// Read decodes the data of a message into a struct of package wire.
func (m *Message) Read(to any) error {
	if err := wire.Decode(m.Data, to); err != nil {
		return salt.Errorf(salt.Invalid, "malformed message %s of %s: %w", m.Kind, m.From.Name, err)
	}
	return nil
}

// Clock returns the time in an answer to a nonce. A key of messages, which may be an old one, does not
// suffice to make one.
func (m *Message) Clock(nonce []byte) (time.Time, error) {
	var in wire.SiteClock
	if err := m.Read(&in); err != nil {
		return time.Time{}, err
	}
	if len(nonce) == 0 || !bytes.Equal(in.Nonce, nonce) {
		return time.Time{}, salt.Errorf(salt.Denied, "the time of %s does not answer the last question", m.From.Name)
	}
	if err := m.From.public.Verify(crypt.PKCS1v15SHA224, clockText(nonce, in.At), in.Sig); err != nil {
		return time.Time{}, salt.Errorf(salt.Denied, "wrong signature of the time of %s", m.From.Name)
	}
	return time.Unix(0, in.At), nil
}

// Opener verifies messages. It is safe for concurrent use.
type Opener struct {
	// trusts returns why an identity is not trusted, nil if it is. It is asked for every message, so
	// that a removed key has no effect at once.
	trusts func(*Identity) error
	now    func() time.Time

	mu    sync.Mutex
	known map[[32]byte]*Identity
}

// NewOpener returns an Opener that accepts the messages of the identities that trusts accepts.
func NewOpener(trusts func(*Identity) error) *Opener {
	return &Opener{trusts: trusts, now: time.Now, known: map[[32]byte]*Identity{}}
}

// Open verifies and decodes a message. Its error is of kind Denied if the sender is not trusted, and
// Invalid if the message is malformed or wrongly signed.
func (o *Opener) Open(b []byte) (*Message, error) { return o.open(b, true) }

// OpenAnyTime is Open without a look at the clock: the certificate may have expired, or begin later.
func (o *Opener) OpenAnyTime(b []byte) (*Message, error) { return o.open(b, false) }

// Follow makes the opener use another clock. It is called before the first message.
func (o *Opener) Follow(now func() time.Time) { o.now = now }

func (o *Opener) open(b []byte, timed bool) (*Message, error) {
	var outer wire.Sealed
	if err := decode(b, outerLimits, &outer); err != nil {
		return nil, err
	}
	id, err := o.identify(outer.Cert, timed)
	if err != nil {
		return nil, err
	}
	if !ed25519.Verify(id.key, append([]byte(messagePrefix), outer.Body...), outer.Sig) {
		return nil, salt.Errorf(salt.Invalid, "wrong signature of a message of %s", id.Name)
	}
	var body wire.SealedBody
	if err := decode(outer.Body, bodyLimits, &body); err != nil {
		return nil, err
	}
	return &Message{From: id, Kind: body.Kind, To: body.To, At: time.Unix(0, body.At), Data: body.Data}, nil
}

// identify verifies a certificate, and asks whether its identity is trusted.
func (o *Opener) identify(cert []byte, timed bool) (*Identity, error) {
	sum := sha256.Sum256(cert)
	o.mu.Lock()
	id := o.known[sum]
	o.mu.Unlock()
	fresh := id == nil
	if fresh {
		var err error
		if id, err = readCert(cert); err != nil {
			return nil, err
		}
	}
	if timed && !id.validAt(o.now()) {
		return nil, salt.Errorf(salt.Invalid, "the certificate of %s is valid from %s to %s: compare the clocks", id.Name, id.from.UTC().Format(time.RFC3339),
			id.until.UTC().Format(time.RFC3339))
	}
	if err := o.trusts(id); err != nil {
		return nil, err
	}
	if fresh { // only trusted ones, so that others cannot fill the memory
		o.mu.Lock()
		if len(o.known) >= maxCerts {
			clear(o.known)
		}
		o.known[sum] = id
		o.mu.Unlock()
	}
	return id, nil
}

// readCert verifies the signature of a certificate by the key that it names.
func readCert(b []byte) (*Identity, error) {
	var outer wire.SealedCert
	if err := decode(b, certLimits, &outer); err != nil {
		return nil, err
	}
	var in wire.SealedIdentity
	if err := decode(outer.Data, certLimits, &in); err != nil {
		return nil, err
	}
	if err := CheckName(in.Name); err != nil {
		return nil, err
	}
	if len(in.Key) != ed25519.PublicKeySize || in.Role != Site && in.Role != Hub || in.Until-in.From > int64((2*certLife)/time.Second) {
		return nil, salt.Errorf(salt.Invalid, "malformed certificate of %s", in.Name)
	}
	pub, err := crypt.ParsePublic([]byte(in.Pub))
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "the key in the certificate of %s: %w", in.Name, err)
	}
	if err := pub.Verify(crypt.PKCS1v15SHA224, append([]byte(certPrefix), outer.Data...), outer.Sig); err != nil {
		return nil, salt.Errorf(salt.Invalid, "wrong signature of the certificate of %s", in.Name)
	}
	text := string(pub.PEM()) // not that of the peer: one key has one text
	return &Identity{
		Name: in.Name, Role: in.Role, Pub: text, Fingerprint: Fingerprint(text), public: pub, key: in.Key,
		from: time.Unix(in.From, 0), until: time.Unix(in.Until, 0),
	}, nil
}

// Connects verifies the certificate and the signature of the nonce of a client that connects. It
// does not ask whether the identity is trusted. current reports whether the certificate is valid now:
// otherwise the clocks differ, or the key of the certificate is an old one.
func Connects(cert, nonce, sig []byte) (id *Identity, current bool, err error) {
	if id, err = readCert(cert); err != nil {
		return nil, false, err
	}
	if len(nonce) == 0 || !ed25519.Verify(id.key, append([]byte(NoncePrefix), nonce...), sig) {
		return nil, false, salt.Errorf(salt.Invalid, "wrong signature of the connection of %s", id.Name)
	}
	return id, id.validAt(time.Now()), nil
}
