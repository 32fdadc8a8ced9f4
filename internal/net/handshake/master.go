package handshake

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"brine/internal/net/crypt"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Limits of the fields of a sign-in, which is unauthenticated.
const (
	// maxShown is how much of an unauthenticated string a message repeats.
	maxShown = 80
)

// Request is a sign-in as the master received it.
type Request struct {
	Version          int
	ID               string
	Nonce            string
	EncAlgo, SigAlgo string
	// Pub is the offered key as sent; compare it after crypt.CleanKey.
	Pub   string
	Token []byte
	// AutosignGrains are the grains for automatic acceptance; nil if none.
	AutosignGrains *value.Dict
	// TakesHints says that the minion understands the answer ComeBack.
	TakesHints bool
}

// ParseRequest reads the load of an _auth request. It bounds every field but does not check the id.
func ParseRequest(load *value.Dict, version int) (Request, error) {
	var in wire.SignIn
	if err := wire.Decode(load, &in); err != nil {
		return Request{}, fmt.Errorf("sign-in of %.*q: %w", maxShown, load.Str("id"), err)
	}
	r := Request{
		Version:        version,
		ID:             in.ID,
		Nonce:          in.Nonce,
		EncAlgo:        cmp.Or(in.EncAlgo, crypt.OAEPSHA1),
		SigAlgo:        cmp.Or(in.SigAlgo, crypt.PKCS1v15SHA1),
		Pub:            in.Pub,
		Token:          in.Token,
		AutosignGrains: in.AutosignGrains,
		TakesHints:     in.TakesHints,
	}
	switch {
	case r.ID == "":
		return r, errors.New("sign-in without an id")
	case r.Pub == "":
		return r, fmt.Errorf("sign-in of %.*q without a public key", maxShown, r.ID)
	}
	return r, nil
}

// Identity is the master's identity towards minions. It caches the signatures that are the same for
// all minions, because each costs a private RSA operation. Its key can be replaced while it is in
// use.
type Identity struct {
	now    atomic.Pointer[shownKey]
	signer func(pub []byte, algo string) ([]byte, error)
	sealed sealed
	// Foreign, which may be nil, is called with the id of a minion that proved to know another
	// master's key, for which this master has no endorsement.
	Foreign func(id string)
}

// shownKey is an identity with one key pair.
type shownKey struct {
	key    *crypt.PrivateKey
	pub    string // clean PEM
	signer func(pub []byte, algo string) ([]byte, error)
	// endorsed is the argument of SetEndorsements, or nil; common says that the key is that of all
	// masters of a cluster.
	endorsed *value.List
	common   bool

	mu      sync.Mutex
	aesSig  map[string][]byte // by AES key string; holds one entry
	pubSigs map[string]string // by algorithm
}

// NewIdentity returns the identity of a master with the given key pair. signer, if not nil, makes
// pub_sig, the signature of the separate signing key over the public key (master_sign_pubkey), or
// reads the stored one.
func NewIdentity(key *crypt.PrivateKey, signer func(pub []byte, algo string) ([]byte, error)) *Identity {
	id := &Identity{signer: signer}
	id.now.Store(&shownKey{key: key, pub: crypt.CleanKey(string(key.Public().PEM())), signer: signer})
	return id
}

// Replace switches to another key pair, that of a cluster, with its endorsements.
func (id *Identity) Replace(key *crypt.PrivateKey, es []Endorsement) {
	id.now.Store(&shownKey{key: key, pub: crypt.CleanKey(string(key.Public().PEM())), signer: id.signer, endorsed: endorsementList(es), common: true})
}

// PublicPEM returns the public key as it is sent.
func (id *Identity) PublicPEM() string { return id.now.Load().pub }

// Key returns the private key.
func (id *Identity) Key() *crypt.PrivateKey { return id.now.Load().key }

func (s *shownKey) aesSignature(aes string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sig, ok := s.aesSig[aes]; ok {
		return sig, nil
	}
	sum := sha256.Sum256([]byte(aes))
	sig, err := s.key.SignX931([]byte(hex.EncodeToString(sum[:])))
	if err != nil {
		return nil, err
	}
	s.aesSig = map[string][]byte{aes: sig}
	return sig, nil
}

func (s *shownKey) publicSignature(algo string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sig, ok := s.pubSigs[algo]; ok {
		return sig, nil
	}
	raw, err := s.signer([]byte(s.pub), algo)
	if err != nil {
		return "", err
	}
	if s.pubSigs == nil {
		s.pubSigs = map[string]string{}
	}
	sig := base64.StdEncoding.EncodeToString(raw) + "\n"
	s.pubSigs[algo] = sig
	return sig, nil
}

// Signed returns the reply {enc, load, sig} for the given inner map.
func (id *Identity) Signed(inner *value.Dict, algo string) (*value.Dict, error) {
	return id.now.Load().signed(inner, algo)
}

func (s *shownKey) signed(inner *value.Dict, algo string) (*value.Dict, error) {
	load, err := msgpack.Marshal(inner, msgpack.Wire)
	if err != nil {
		return nil, err
	}
	sig, err := s.key.Sign(algo, load)
	if err != nil {
		return nil, err
	}
	return wire.Encode(wire.Signed{Enc: "clear", Load: load, Sig: sig}), nil
}

// Refusal returns any reply other than an acceptance. Peers older than protocol version 2 get it
// unsigned.
func (id *Identity) Refusal(r Request, a Answer) (*value.Dict, error) {
	var ret any = false
	switch a {
	case Wait:
		ret = true
	case Full:
		ret = "full"
	}
	if r.Version < 2 {
		return unsignedReply(wire.Unsigned{Ret: ret}), nil
	}
	return id.Signed(wire.Encode(wire.Refusal{Ret: ret, Nonce: r.Nonce, ID: r.ID}), r.SigAlgo)
}

// BadAlgorithm returns the unsigned reply to an algorithm that is not
// supported; which is "enc" or "sig".
func BadAlgorithm(which string) *value.Dict {
	return unsignedReply(wire.Unsigned{Ret: "bad " + which + " algo"})
}

// unsignedReply returns the reply {enc, load} with a load that is not signed.
func unsignedReply(u wire.Unsigned) *value.Dict {
	return wire.Encode(wire.Signed{Enc: "clear", Load: wire.Encode(u)})
}

// Secrets are the keys for an accepted minion.
type Secrets struct {
	AES         string // the master's key for publications
	Session     string // the minion's own key for requests
	PublishPort int
	Signs       bool // every publication is signed with the master's key
}

// Acceptance returns the reply to an accepted minion. It fails on a key that cannot encrypt, which
// the caller treats as a corrupt key.
func (id *Identity) Acceptance(r Request, minion *crypt.PublicKey, s Secrets) (*value.Dict, error) {
	now := id.now.Load()
	out := wire.Acceptance{
		Enc: "pub", PubKey: now.pub, PublishPort: int64(s.PublishPort), Nonce: r.Nonce,
		Brine: true, Shares: true, Signs: s.Signs, Endorsed: now.endorsed, Common: now.common && now.endorsed.Len() > 0,
	}
	var err error
	if now.signer != nil {
		if out.PubSig, err = now.publicSignature(r.SigAlgo); err != nil {
			return nil, fmt.Errorf("cannot sign the master's public key: %w", err)
		}
	}
	if len(r.Token) > 0 {
		// A token that does not decrypt was encrypted for another master's key; Salt omits it from
		// the answer and the minion decides.
		if tok, err := now.key.Decrypt(r.EncAlgo, r.Token); err == nil {
			if out.Token, err = minion.Encrypt(r.EncAlgo, tok); err != nil {
				return nil, err
			}
		} else if id.Foreign != nil && now.endorsed.Len() == 0 {
			id.Foreign(r.ID)
		}
	}
	if out.AES, out.Session, err = id.sealed.secrets(r, minion, s); err != nil {
		return nil, err
	}
	if out.Sig, err = now.aesSignature(s.AES); err != nil {
		return nil, err
	}
	inner := wire.Encode(out)
	if r.Version < 2 {
		return inner, nil
	}
	return now.signed(inner, r.SigAlgo)
}
