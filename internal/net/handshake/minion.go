package handshake

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"brine/internal/net/crypt"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// The refusals of a master. The caller appends the id to messages that end in a command.
var (
	ErrPending  = errors.New("the key is pending: accept it on the master with: salt-key -a")
	ErrRejected = errors.New("the master has rejected this minion's key, or holds another key for its id: if another minion has this id, " +
		"set the option id of one of them; otherwise delete the key there with: salt-key -d")
	ErrFinger = errors.New("the master's key does not have the required fingerprint")
	ErrFull   = errors.New("the master accepts no more minions: raise its max_minions, or accept or reject pending keys there with salt-key")
)

// replyLimits bound the answer to a sign-in, which comes from an unauthenticated peer. A real
// answer takes 3 KiB.
var replyLimits = msgpack.Limits{Depth: 8, Items: 256, Bytes: 64 << 10}

// KeyMismatch is the error of a master whose public key is not the one that this minion has on
// file: another master, or an attacker in between.
type KeyMismatch struct {
	Expected, Got string // fingerprints
	File          string // where the expected key is kept
}

func (e *KeyMismatch) Error() string {
	return fmt.Sprintf("the master's public key has fingerprint %s, but %s holds %s: "+
		"if this master is the right one, give it the same master.pem and master.pub as the others, or remove that file; "+
		"if not, an attacker may impersonate the master", e.Got, e.File, e.Expected)
}

// Trust stores the master's public key on the minion. Adopting must be atomic, so that of two
// masters that answer a new minion at once only one becomes the known one.
type Trust interface {
	// Known returns the key on file as clean PEM; ok is false if there is none.
	Known() (pem string, ok bool)
	// Adopt stores pem if there is no key yet, or if replace is set, and returns the key that is
	// now on file.
	Adopt(pem string, replace bool) (string, error)
	// Succeed stores pem as the key of this one master or, with common, of all masters of the
	// minion, and replaces any earlier key, because a trusted key endorsed it.
	Succeed(pem string, common bool) error
	// File returns the path, for messages.
	File() string
}

// MinionOptions are the minion's options of the sign-in.
type MinionOptions struct {
	EncryptionAlgorithm    string `salt:"encryption_algorithm" default:"OAEP-SHA1" doc:"RSA encryption towards the master: OAEP-SHA1 or OAEP-SHA224" change:"restart"`
	SigningAlgorithm       string `salt:"signing_algorithm" default:"PKCS1v15-SHA1" doc:"RSA signatures required of the master: PKCS1v15-SHA1 or PKCS1v15-SHA224" change:"restart"`
	OpenMode               bool   `salt:"open_mode" default:"false" doc:"do not compare the master's key with the one on file" change:"restart"`
	VerifyMasterPubkeySign bool   `salt:"verify_master_pubkey_sign" default:"false" doc:"require a signature of the master's key by the signing key" change:"restart"`
	AlwaysVerifySignature  bool   `salt:"always_verify_signature" default:"false" doc:"verify that signature at every sign-in, not only for a new key" change:"restart"`
	MasterSignKeyName      Names  `salt:"master_sign_key_name" default:"master_sign" doc:"base name of the signing key in pki_dir, or a list of several, any of which may sign a master's key" change:"restart"`
	MasterFinger           Names  `salt:"master_finger" default:"" doc:"required fingerprint of the master's key; with a list each master must have one of them" change:"restart"`
	HashType               string `salt:"hash_type" default:"sha256" doc:"hash used for fingerprints" change:"restart"`
}

// Minion creates sign-in requests and verifies the answers.
type Minion struct {
	ID      string
	Key     *crypt.PrivateKey
	Options MinionOptions
	// Signers returns the keys any of which may sign a master's key; needed with
	// VerifyMasterPubkeySign. It is called each time, so that an added key is used at once.
	Signers func() ([]*crypt.PublicKey, error)
	// Token is a random string of this process; the master proves that it
	// holds the private key by sending it back.
	Token string
	Trust Trust
	// FingerOption names the option with the fingerprints, for messages; "" means master_finger.
	FingerOption string
}

// Credentials are the result of a sign-in.
type Credentials struct {
	AES, Session string
	PublishPort  int  // 0 if the master did not report it
	Brine        bool // the master supports Brine's own commands
	Shares       bool // and answers with data that is encrypted once for all minions
	Signs        bool // and signs every publication
	Master       *crypt.PublicKey
	// Signed names the files of the signing keys by one of which the master's public key was
	// verified, "" if none was required.
	Signed string
}

// Attempt is one sign-in: the request to send, and the data to verify the answer.
type Attempt struct {
	m        *Minion
	nonce    string
	hasToken bool
	signed   string // see Credentials
	Load     *value.Dict
}

// Begin builds the load of a request. nonce is 32 hex digits, different each time. autosign has the
// grains named by autosign_grains, or is nil. takesHints says that the minion understands the
// answer ComeBack, which becomes *Busy: stock minions do not send it, and stock masters ignore it.
func (m *Minion) Begin(nonce string, autosign *value.Dict, takesHints bool) (*Attempt, error) {
	a := &Attempt{m: m, nonce: nonce}
	out := wire.SignIn{
		Cmd: "_auth", ID: m.ID, Nonce: nonce, EncAlgo: m.Options.EncryptionAlgorithm, SigAlgo: m.Options.SigningAlgorithm,
		AutosignGrains: autosign, Pub: crypt.CleanKey(string(m.Key.Public().PEM())), TakesHints: takesHints,
	}
	if known, ok := m.Trust.Known(); ok {
		pub, err := crypt.ParsePublic([]byte(known))
		if err != nil {
			return nil, fmt.Errorf("cannot read the master's key in %s: %w; remove the file to fetch it again", m.Trust.File(), err)
		}
		tok, err := pub.Encrypt(m.Options.EncryptionAlgorithm, []byte(m.Token))
		if err != nil {
			return nil, err
		}
		out.Token = tok
		a.hasToken = true
	}
	a.Load = wire.Encode(out)
	return a, nil
}

// Finish verifies the master's answer. Errors that are ErrPending, ErrRejected, ErrFull, a *Busy or
// a *KeyMismatch can be distinguished; all others mean an answer that is malformed or not from the
// master.
func (a *Attempt) Finish(reply any) (*Credentials, error) {
	var outer wire.Signed
	d, ok := reply.(*value.Dict)
	if !ok || wire.Decode(d, &outer) != nil {
		return nil, fmt.Errorf("the answer to the sign-in cannot be used: %s; is this the master's request port?", shown(reply))
	}
	if l, ok := outer.Load.(*value.Dict); ok {
		return nil, unsigned(l)
	}
	signed, sig := value.Bytes(outer.Load), outer.Sig
	v, err := replyLimits.Unmarshal(signed)
	if err != nil {
		return nil, fmt.Errorf("unreadable answer to the sign-in: %w", err)
	}
	inner, ok := v.(*value.Dict)
	if !ok {
		return nil, errors.New("unreadable answer to the sign-in: not a map")
	}
	if inner.Has("pub_key") {
		var in wire.Acceptance
		if err := wire.Decode(inner, &in); err != nil {
			return nil, fmt.Errorf("unreadable answer to the sign-in: %w", err)
		}
		return a.accepted(&in, signed, sig)
	}
	var in wire.Refusal
	if err := wire.Decode(inner, &in); err != nil {
		return nil, fmt.Errorf("unreadable answer to the sign-in: %w", err)
	}
	return nil, a.refused(&in, signed, sig)
}

// refused verifies an answer that is not an acceptance.
func (a *Attempt) refused(in *wire.Refusal, signed, sig []byte) error {
	if known, ok := a.m.Trust.Known(); ok {
		// Before the first acceptance there is no key to verify with. A refusal can then be forged,
		// but it only delays the minion.
		if err := a.checkSignature(known, signed, sig); err != nil {
			return err
		}
	}
	if in.Nonce != a.nonce {
		return errNonce
	}
	// Stock masters do not name the minion of a refusal.
	if in.ID != nil && in.ID != a.m.ID {
		return fmt.Errorf("the refusal of the sign-in is for another minion, %s", shown(in.ID))
	}
	switch ret := in.Ret.(type) {
	case bool:
		if ret {
			return fmt.Errorf("%w %s", ErrPending, a.m.ID)
		}
		return fmt.Errorf("%w %s", ErrRejected, a.m.ID)
	case string:
		if ret == "full" {
			return ErrFull
		}
	}
	return fmt.Errorf("unknown answer to the sign-in: %s", shown(in.Ret))
}

var errNonce = errors.New("the answer to the sign-in has a wrong nonce: it is not the answer to this request")

// unsigned returns the error for an answer without a signature. Any peer can send one, so it never
// means that the master refused.
func unsigned(load *value.Dict) error {
	var in wire.Unsigned
	if err := wire.Decode(load, &in); err != nil {
		return fmt.Errorf("unreadable answer to the sign-in: %w", err)
	}
	switch in.Ret {
	case wire.ComeBack:
		if ms := in.ComeBack; ms > 0 {
			return &Busy{Wait: min(time.Duration(min(ms, math.MaxInt32))*time.Millisecond, maxWait)}
		}
	case "bad enc algo":
		return errors.New("the master does not support the encryption algorithm: set encryption_algorithm to OAEP-SHA1 or OAEP-SHA224")
	case "bad sig algo":
		return errors.New("the master does not support the signing algorithm: set signing_algorithm to PKCS1v15-SHA1 or PKCS1v15-SHA224")
	}
	return fmt.Errorf("the answer to the sign-in is not signed: %s; upgrade the master", shown(load))
}

// shown returns a bounded form of an unauthenticated value for a message.
func shown(v any) string {
	switch x := v.(type) {
	case string:
		return fmt.Sprintf("%.*q", maxShown, x)
	case []byte:
		return fmt.Sprintf("%d bytes", len(x))
	case *value.Dict:
		if s, ok := x.At("ret").(string); ok {
			return fmt.Sprintf("{ret: %.*q}", maxShown, s)
		}
	case bool, int64, nil:
		return value.Repr(v)
	}
	return "a " + value.TypeName(v)
}

func (a *Attempt) checkSignature(pem string, signed, sig []byte) error {
	pub, err := crypt.ParsePublic([]byte(pem))
	if err != nil {
		return fmt.Errorf("cannot read the master's key in %s: %w", a.m.Trust.File(), err)
	}
	if err := pub.Verify(a.m.Options.SigningAlgorithm, signed, sig); err != nil {
		// A master with another key signs its refusals with that key, so name the more likely cause
		// first.
		return fmt.Errorf("the answer is not signed by the key in %s: another master key, or an attacker in between: %w", a.m.Trust.File(), err)
	}
	return nil
}

// accepted verifies an acceptance. It stores nothing before everything is checked that the offered
// key alone can verify.
func (a *Attempt) accepted(in *wire.Acceptance, signed, sig []byte) (*Credentials, error) {
	m, o := a.m, a.m.Options
	offered := crypt.CleanKey(in.PubKey)
	pub, err := crypt.ParsePublic([]byte(offered))
	if err != nil {
		return nil, fmt.Errorf("the master sent an unreadable public key: %w", err)
	}
	how, err := a.judgeKey(in, offered)
	if err != nil {
		return nil, err
	}
	if err := pub.Verify(o.SigningAlgorithm, signed, sig); err != nil {
		return nil, fmt.Errorf("the answer to the sign-in is not signed by the key it carries: %w", err)
	}
	if in.Nonce != a.nonce {
		return nil, errNonce
	}
	if len(o.MasterFinger) > 0 && !o.pinned(offered) {
		return nil, fmt.Errorf("%w: it has %s, but the option %s demands %s", ErrFinger,
			crypt.Fingerprint([]byte(offered), o.HashType), cmp.Or(m.FingerOption, "master_finger"), strings.Join(o.MasterFinger, " or "))
	}
	// A token that was encrypted for another key than this one proves nothing.
	c, err := a.decrypt(in, pub, a.hasToken && how == asKnown)
	if err != nil {
		return nil, err
	}
	if how == asSuccessor {
		return c, m.Trust.Succeed(offered, in.Common)
	}
	now, err := m.Trust.Adopt(offered, how == asVouchedFor)
	if err != nil {
		return nil, err
	}
	if now != offered {
		return nil, a.mismatch(now, offered) // another master was faster
	}
	return c, nil
}

// pinned reports whether master_finger names the key.
func (o *MinionOptions) pinned(pem string) bool {
	return slices.Contains(o.MasterFinger, crypt.Fingerprint([]byte(pem), o.HashType))
}

// grounds are the reasons to accept an offered key.
type grounds uint8

const (
	asFirst      grounds = iota // there was no key on file
	asKnown                     // it is the key on file
	asVouchedFor                // by a signing key, master_finger or open_mode
	asSuccessor                 // endorsed by the key on file
)

// judgeKey decides whether the offered master key may be used, and why. A signature that this
// minion does not require is ignored, so that masters can begin to sign before their minions
// verify.
func (a *Attempt) judgeKey(in *wire.Acceptance, offered string) (grounds, error) {
	m, o := a.m, a.m.Options
	if o.VerifyMasterPubkeySign && in.PubSig == "" {
		return 0, untrusted("verify_master_pubkey_sign is on, but the master does not sign its public key: set master_sign_pubkey there")
	}
	known, ok := m.Trust.Known()
	if ok && known == offered {
		if o.VerifyMasterPubkeySign && o.AlwaysVerifySignature {
			return asKnown, a.verifyPubSig(in, offered)
		}
		return asKnown, nil
	}
	switch {
	case o.VerifyMasterPubkeySign:
		return asVouchedFor, a.verifyPubSig(in, offered)
	case !ok:
		return asFirst, nil
	case o.OpenMode, len(o.MasterFinger) > 1 && o.pinned(offered):
		return asVouchedFor, nil
	case a.succeeds(in, known, offered):
		return asSuccessor, nil
	}
	return 0, a.mismatch(known, offered)
}

// succeeds reports whether the key on file endorses the offered one.
func (a *Attempt) succeeds(in *wire.Acceptance, known, offered string) bool {
	pub, err := crypt.ParsePublic([]byte(known))
	if err != nil {
		return false
	}
	for _, k := range extend([]*crypt.PublicKey{pub}, endorsements(in)) {
		if crypt.CleanKey(string(k.PEM())) == offered {
			return true
		}
	}
	return false
}

func (a *Attempt) mismatch(known, offered string) error {
	h := a.m.Options.HashType
	return &KeyMismatch{
		Expected: crypt.Fingerprint([]byte(known), h),
		Got:      crypt.Fingerprint([]byte(offered), h),
		File:     a.m.Trust.File(),
	}
}

// verifyPubSig requires that one of the signing keys, or one that they endorse, has signed the
// offered key.
func (a *Attempt) verifyPubSig(in *wire.Acceptance, offered string) error {
	var signers []*crypt.PublicKey
	if a.m.Signers != nil {
		var err error
		if signers, err = a.m.Signers(); err != nil {
			return untrusted("cannot verify the master's public key: %w", err)
		}
	}
	names := strings.Join(a.m.Options.MasterSignKeyName, ".pub or ") + ".pub"
	if len(signers) == 0 {
		return untrusted("no signing key to verify the master's public key with: copy %s from the master to pki_dir", names)
	}
	raw, err := base64.StdEncoding.DecodeString(in.PubSig) // skips newlines
	if err != nil {
		return untrusted("the signature of the master's public key is not base64: %w", err)
	}
	for _, k := range extend(signers, endorsements(in)) {
		if err = k.Verify(a.m.Options.SigningAlgorithm, []byte(offered), raw); err == nil {
			a.signed = names
			return nil
		}
	}
	return untrusted("the master's public key is not signed by %s: %w", names, err)
}

// decrypt decrypts the keys of an acceptance. They may be meant for another minion until their
// signature and our token are verified.
func (a *Attempt) decrypt(in *wire.Acceptance, master *crypt.PublicKey, checkToken bool) (*Credentials, error) {
	key, algo := a.m.Key, a.m.Options.EncryptionAlgorithm
	aes, err := key.Decrypt(algo, in.AES)
	if err != nil {
		return nil, fmt.Errorf("cannot decrypt the master's AES key: %w", err)
	}
	digest, err := master.RecoverX931(in.Sig)
	if err != nil {
		return nil, fmt.Errorf("the signature of the AES key is wrong: %w", err)
	}
	sum := sha256.Sum256(aes)
	if !bytes.Equal(digest, []byte(hex.EncodeToString(sum[:]))) {
		return nil, errors.New("the signature of the AES key is wrong: it is for another key")
	}
	if checkToken {
		tok, err := key.Decrypt(algo, in.Token)
		if err != nil || string(tok) != a.m.Token {
			return nil, errors.New("the master did not return our token: it does not hold the private key of its public key")
		}
	}
	if len(in.Session) == 0 {
		return nil, errors.New("the master gave no session key: it speaks an older protocol and must be upgraded")
	}
	session, err := key.Decrypt(algo, in.Session)
	if err != nil {
		return nil, fmt.Errorf("cannot decrypt the session key: %w", err)
	}
	c := &Credentials{AES: string(aes), Session: string(session), Master: master, Signed: a.signed,
		Brine: in.Brine, Shares: in.Shares, Signs: in.Signs}
	if p, _ := in.PublishPort.(int64); p > 0 && p <= math.MaxUint16 {
		c.PublishPort = int(p)
	}
	return c, nil
}
