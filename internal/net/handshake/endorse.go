package handshake

import (
	"errors"
	"fmt"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Names is an option with a string or a list of strings.
type Names []string

// SetValue accepts a string or a list of strings; an empty string is none.
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

// Value returns one string, or the list.
func (n Names) Value() any {
	switch len(n) {
	case 0:
		return ""
	case 1:
		return n[0]
	}
	return value.Strings(n)
}

// Endorsement is a signature by which the holder of one key declares another key as trusted: an old
// key of a master for its new one, or an old signing key for its successor. So keys can be replaced
// without a change on the minions.
type Endorsement struct {
	Pub string // the endorsed key as clean PEM
	Sig []byte // by a key that the minion trusts already
}

// Limits of one acceptance.
const (
	maxEndorsements = 8
	// endorseAlgo is the algorithm of all endorsements, independent of the negotiated one.
	endorseAlgo = crypt.PKCS1v15SHA224
)

// endorsedText returns the signed bytes. The prefix separates them from all other uses of these
// keys: pub_sig signs the bare key.
func endorsedText(pub string) []byte { return []byte("brine endorses\n" + pub) }

// Endorse signs an endorsement of one key with another.
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

// SetEndorsements adds endorsements to each acceptance. It must be called before the identity is
// used. common says that the key is that of all masters of a cluster.
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

// Endorsed returns the trusted keys and all that they endorse, directly or through others.
func Endorsed(trusted *crypt.PublicKey, es []Endorsement) []*crypt.PublicKey {
	if len(es) > maxEndorsements {
		es = es[len(es)-maxEndorsements:]
	}
	return extend([]*crypt.PublicKey{trusted}, es)
}

// endorsements reads the endorsements of an acceptance.
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

// extend adds to the trusted keys all that they endorse, directly or through others.
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

// Untrusted is the error of a master whose key is not signed as this minion requires.
type Untrusted struct{ err error }

func (e *Untrusted) Error() string { return e.err.Error() }

// Unwrap returns the reason.
func (e *Untrusted) Unwrap() error { return e.err }

func untrusted(format string, args ...any) error { return &Untrusted{fmt.Errorf(format, args...)} }

// Refused reports whether err is the decision of a reachable master against this minion, or of this
// minion against its key. Other addresses of the master would give the same result, and only an
// operator can change it.
func Refused(err error) bool {
	var mismatch *KeyMismatch
	var no *Untrusted
	return errors.Is(err, ErrPending) || errors.Is(err, ErrRejected) || errors.Is(err, ErrFinger) ||
		errors.As(err, &mismatch) || errors.As(err, &no)
}
