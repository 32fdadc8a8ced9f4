package handshake

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"brine/internal/crypt"
	"brine/internal/msgpack"
	"brine/internal/value"
)

// Bounds of what a stranger may put in a sign-in.
const (
	maxNonce = 64
	maxPub   = 16 << 10
	maxToken = 4 << 10
	// maxShown is how much of a stranger's text a message repeats.
	maxShown = 80
)

// fieldBrine tells in an acceptance that the master is Brine's and knows more
// commands than Salt's, whose minions overlook the field.
const fieldBrine = "brine"

// fieldShares tells in an acceptance that the master answers requests with what
// it shares among minions: _brine_tree and _brine_part.
const fieldShares = "brine_shares"

// Request is a sign-in as the master received it.
type Request struct {
	Version          int
	ID               string
	Nonce            string
	EncAlgo, SigAlgo string
	// Pub is the offered key as sent; compare it after crypt.CleanKey.
	Pub   string
	Token []byte
	// AutosignGrains are the grains that the minion offers for automatic
	// acceptance; nil if none.
	AutosignGrains *value.Dict
}

// ParseRequest reads the load of an _auth request. It bounds every field but
// does not judge the id.
func ParseRequest(load *value.Dict, version int) (Request, error) {
	r := Request{
		Version: version,
		ID:      load.Str("id"),
		Nonce:   load.Str("nonce"),
		EncAlgo: load.Str("enc_algo"),
		SigAlgo: load.Str("sig_algo"),
		Pub:     load.Str("pub"),
		Token:   load.Bytes("token"),
	}
	if r.EncAlgo == "" {
		r.EncAlgo = crypt.OAEPSHA1
	}
	if r.SigAlgo == "" {
		r.SigAlgo = crypt.PKCS1v15SHA1
	}
	r.AutosignGrains = load.Dict("autosign_grains")
	switch {
	case r.ID == "":
		return r, errors.New("sign-in without an id")
	case r.Pub == "" || len(r.Pub) > maxPub:
		return r, fmt.Errorf("sign-in of %.*q without a usable public key", maxShown, r.ID)
	case len(r.Nonce) > maxNonce:
		return r, fmt.Errorf("sign-in of %.*q with a nonce of %d bytes", maxShown, r.ID, len(r.Nonce))
	case len(r.Token) > maxToken:
		return r, fmt.Errorf("sign-in of %.*q with a token of %d bytes", maxShown, r.ID, len(r.Token))
	}
	return r, nil
}

// Identity is what a master shows to minions. It keeps the signatures that do
// not change with the minion, because each costs a private RSA operation.
type Identity struct {
	key *crypt.PrivateKey
	pub string // clean PEM
	// pubSig gives the signature over pub in the given algorithm, or is nil.
	pubSig func(algo string) ([]byte, error)
	// endorsed is what SetEndorsements was given, or nil.
	endorsed *value.List
	sealed   sealed

	mu      sync.Mutex
	aesSig  map[string][]byte // by AES key string; holds one entry
	pubSigs map[string]string // by algorithm
}

// NewIdentity returns the identity of a master with the given key pair.
// signer, if not nil, makes pub_sig: the signature of the separate signing
// key over the public key (master_sign_pubkey), or reads the stored one.
func NewIdentity(key *crypt.PrivateKey, signer func(pub []byte, algo string) ([]byte, error)) *Identity {
	id := &Identity{key: key, pub: crypt.CleanKey(string(key.Public().PEM()))}
	if signer != nil {
		id.pubSig = func(algo string) ([]byte, error) { return signer([]byte(id.pub), algo) }
	}
	return id
}

// PublicPEM returns the public key as it is sent.
func (id *Identity) PublicPEM() string { return id.pub }

// Key returns the private key.
func (id *Identity) Key() *crypt.PrivateKey { return id.key }

func (id *Identity) aesSignature(aes string) ([]byte, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if s, ok := id.aesSig[aes]; ok {
		return s, nil
	}
	sum := sha256.Sum256([]byte(aes))
	s, err := id.key.SignX931([]byte(hex.EncodeToString(sum[:])))
	if err != nil {
		return nil, err
	}
	id.aesSig = map[string][]byte{aes: s}
	return s, nil
}

func (id *Identity) publicSignature(algo string) (string, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if s, ok := id.pubSigs[algo]; ok {
		return s, nil
	}
	raw, err := id.pubSig(algo)
	if err != nil {
		return "", err
	}
	if id.pubSigs == nil {
		id.pubSigs = map[string]string{}
	}
	s := base64.StdEncoding.EncodeToString(raw) + "\n"
	id.pubSigs[algo] = s
	return s, nil
}

// Signed returns the reply {enc, load, sig} for the given inner map.
func (id *Identity) Signed(inner *value.Dict, algo string) (*value.Dict, error) {
	load, err := msgpack.Marshal(inner, msgpack.Wire)
	if err != nil {
		return nil, err
	}
	sig, err := id.key.Sign(algo, load)
	if err != nil {
		return nil, err
	}
	return value.DictOf("enc", "clear", "load", load, "sig", sig), nil
}

// Refusal returns the reply that tells anything but acceptance. Peers older
// than protocol version 2 get it unsigned.
func (id *Identity) Refusal(r Request, a Answer) (*value.Dict, error) {
	var ret any = false
	switch a {
	case Wait:
		ret = true
	case Full:
		ret = "full"
	}
	if r.Version < 2 {
		return value.DictOf("enc", "clear", "load", value.DictOf("ret", ret)), nil
	}
	return id.Signed(value.DictOf("ret", ret, "nonce", r.Nonce), r.SigAlgo)
}

// BadAlgorithm returns the unsigned reply to an algorithm that is not
// supported; which is "enc" or "sig".
func BadAlgorithm(which string) *value.Dict {
	return value.DictOf("enc", "clear", "load", value.DictOf("ret", "bad "+which+" algo"))
}

// Secrets are what an accepted minion is given.
type Secrets struct {
	AES         string // the master's key for publications
	Session     string // the minion's own key for requests
	PublishPort int
}

// Acceptance returns the reply to an accepted minion. It fails on a key that
// cannot encrypt, which the caller treats as a corrupt key.
func (id *Identity) Acceptance(r Request, minion *crypt.PublicKey, s Secrets) (*value.Dict, error) {
	inner := value.DictOf("enc", "pub", "pub_key", id.pub, "publish_port", int64(s.PublishPort))
	if id.pubSig != nil {
		ps, err := id.publicSignature(r.SigAlgo)
		if err != nil {
			return nil, fmt.Errorf("cannot sign the master's public key: %w", err)
		}
		inner.Set("pub_sig", ps)
	}
	if len(r.Token) > 0 {
		// A token that does not decrypt was made for another master's key;
		// Salt leaves it out of the answer and the minion decides.
		if tok, err := id.key.Decrypt(r.EncAlgo, r.Token); err == nil {
			enc, err := minion.Encrypt(r.EncAlgo, tok)
			if err != nil {
				return nil, err
			}
			inner.Set("token", enc)
		}
	}
	aes, session, err := id.sealed.secrets(r, minion, s)
	if err != nil {
		return nil, err
	}
	sig, err := id.aesSignature(s.AES)
	if err != nil {
		return nil, err
	}
	inner.Set("aes", aes)
	inner.Set("session", session)
	inner.Set("sig", sig)
	inner.Set("nonce", r.Nonce)
	inner.Set(fieldBrine, true)
	inner.Set(fieldShares, true)
	if id.endorsed.Len() > 0 {
		inner.Set(fieldEndorsed, id.endorsed)
	}
	if r.Version < 2 {
		return inner, nil
	}
	return id.Signed(inner, r.SigAlgo)
}
