package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// equal compares two secrets in a time that depends on neither their contents nor their lengths.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// auto accepts every user. It is meant for testing a configuration.
type auto struct{}

func init() { systems.Register("auto", newAuto) }

func newAuto(*value.Dict, *Options) (System, error) { return auto{}, nil }

// Authenticate implements System.
func (auto) Authenticate(context.Context, Credentials) (Vouched, error) { return Vouched{}, nil }

// sharedSecret accepts one password for all users.
type sharedSecret struct{ secret string }

func init() { systems.Register("sharedsecret", newSharedSecret) }

func newSharedSecret(_ *value.Dict, o *Options) (System, error) {
	if o.SharedSecret == "" {
		return nil, salt.Errorf(salt.Invalid, "the option sharedsecret is not set: no user can sign in")
	}
	return sharedSecret{o.SharedSecret}, nil
}

// Authenticate implements System.
func (s sharedSecret) Authenticate(_ context.Context, c Credentials) (Vouched, error) {
	if !equal(s.secret, c.Password) {
		return Vouched{}, ErrRefused
	}
	return Vouched{}, nil
}
