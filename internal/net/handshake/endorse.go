package handshake

import (
	"errors"
	"fmt"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Names is an option with one text or a list of them.
type Names []string

// SetValue takes a text or a list of texts; an empty text is none.
func (n *Names) SetValue(v any) error {
	*n = nil
	add := func(v any) error {
		s, ok := v.(string)
		if !ok {
			return salt.Errorf(salt.Invalid, "expected a string or a list of strings, got %s", value.TypeName(v))
		}
		if s != "" {
			*n = append(*n, s)
		}
		return nil
	}
	l, ok := v.(*value.List)
	if !ok {
		if v == nil {
			return nil
		}
		return add(v)
	}
	for _, it := range l.Items {
		if err := add(it); err != nil {
			return err
		}
	}
	return nil
}

// Value is the counterpart: one text, or the list.
func (n Names) Value() any {
	switch len(n) {
	case 0:
		return ""
	case 1:
		return n[0]
	}
	return value.Strings(n)
}

// Endorsement is the word of the holder of one key that another key is to be
// trusted as much: an old key of a master for its new one, or an old signing
// key for its successor. By it keys are replaced without touching a minion.
type Endorsement struct {
	Pub string // the endorsed key as clean PEM
	Sig []byte // by a key that the minion trusts already
}

// Bounds of what one acceptance may carry.
const (
	maxEndorsements = 8
	// endorseAlgo is that of all endorsements, whatever else is agreed on.
	endorseAlgo = crypt.PKCS1v15SHA224
)

// endorsedText is what is signed. The prefix keeps it apart from all other
// uses of these keys: pub_sig signs the bare key.
func endorsedText(pub string) []byte { return []byte("brine endorses\n" + pub) }

// Endorse vouches with one key for another.
func Endorse(by *crypt.PrivateKey, pub *crypt.PublicKey) (Endorsement, error) {
	e := Endorsement{Pub: crypt.CleanKey(string(pub.PEM()))}
	var err error
	e.Sig, err = by.Sign(endorseAlgo, endorsedText(e.Pub))
	return e, err
}

// By reports whether the endorsement was made with the key.
func (e Endorsement) By(key *crypt.PublicKey) bool {
	return key.Verify(endorseAlgo, endorsedText(e.Pub), e.Sig) == nil
}

// SetEndorsements has an identity show these with each acceptance. It is for
// the time before the identity is used. common says that the key is that of all
// masters of a cluster.
func (id *Identity) SetEndorsements(es []Endorsement, common bool) {
	now := id.now.Load()
	now.endorsed, now.common = endorsementList(es), common
}

func endorsementList(es []Endorsement) *value.List {
	if len(es) > maxEndorsements {
		es = es[len(es)-maxEndorsements:]
	}
	list := &value.List{}
	for _, e := range es {
		list.Append(wire.Encode(wire.Endorsement{Pub: e.Pub, Sig: e.Sig}))
	}
	return list
}

// Endorsed returns the keys that are trusted, and all that they vouch for,
// directly or through others.
func Endorsed(trusted *crypt.PublicKey, es []Endorsement) []*crypt.PublicKey {
	if len(es) > maxEndorsements {
		es = es[len(es)-maxEndorsements:]
	}
	return extend([]*crypt.PublicKey{trusted}, es)
}

// endorsements reads those of an acceptance.
func endorsements(in *wire.Acceptance) []Endorsement {
	var out []Endorsement
	if in.Endorsed == nil {
		return nil
	}
	for _, it := range in.Endorsed.Items {
		var e wire.Endorsement
		if d, ok := it.(*value.Dict); ok && len(out) < maxEndorsements && wire.Decode(d, &e) == nil {
			out = append(out, Endorsement{Pub: crypt.CleanKey(e.Pub), Sig: e.Sig})
		}
	}
	return out
}

// extend adds to the keys that are trusted all that they vouch for, directly
// or through others.
func extend(trusted []*crypt.PublicKey, es []Endorsement) []*crypt.PublicKey {
	used := make([]bool, len(es))
	for i := 0; i < len(trusted); i++ {
		for k, e := range es {
			if used[k] || !e.By(trusted[i]) {
				continue
			}
			used[k] = true
			if pub, err := crypt.ParsePublic([]byte(e.Pub)); err == nil {
				trusted = append(trusted, pub)
			}
		}
	}
	return trusted
}

// Untrusted is the error of a master whose key nothing vouches for that this
// minion demands.
type Untrusted struct{ err error }

func (e *Untrusted) Error() string { return e.err.Error() }

// Unwrap returns the reason.
func (e *Untrusted) Unwrap() error { return e.err }

func untrusted(format string, args ...any) error { return &Untrusted{fmt.Errorf(format, args...)} }

// Refused reports whether err is the word of a master that was reached and
// does not take this minion, or is not to be trusted: no other address of it
// would say otherwise, and only a decision of an operator changes that.
func Refused(err error) bool {
	var mismatch *KeyMismatch
	var no *Untrusted
	return errors.Is(err, ErrPending) || errors.Is(err, ErrRejected) || errors.Is(err, ErrFinger) ||
		errors.As(err, &mismatch) || errors.As(err, &no)
}
