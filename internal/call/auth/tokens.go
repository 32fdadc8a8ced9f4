package auth

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Tokens stores tokens like Salt's localfs: a directory with one file per token, named after the
// token, containing a msgpack map.
type Tokens struct {
	dir string
	// early is the time by which expired tokens are removed: a clock that is wrong for a moment removes none.
	early func() time.Time
}

// OpenTokens opens the directory and creates it if missing. Other users must not be able to list
// it, because the file names are the secrets.
func OpenTokens(dir string) (*Tokens, error) {
	if err := atomicfile.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the token directory: %w", err)
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if fi.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return nil, salt.Errorf(salt.Denied, "token directory %s is accessible to others and chmod failed: %w; run chmod 700 on it", dir, err)
		}
	}
	return &Tokens{dir: dir, early: steady.Removal}, nil
}

// tokenLen is the length of a token in hexadecimal digits. Tokens of Salt's other hash types are accepted too.
const tokenLen = 64

// maxToken bounds a token file in bytes.
const maxToken = 1 << 20

// Add generates a token, sets the field token and stores it.
func (t *Tokens) Add(d *value.Dict) error {
	var raw [tokenLen / 2]byte
	rand.Read(raw[:])
	token := hex.EncodeToString(raw[:])
	d.Set("token", token)
	b, err := msgpack.Marshal(d, msgpack.Wire)
	if err != nil {
		return err
	}
	return atomicfile.Create(filepath.Join(t.dir, token), b, 0o600)
}

// ValidToken reports whether a string has the form of a token. Other strings are never looked up,
// so that no token can name another file.
func ValidToken(s string) bool {
	if len(s) < 32 || len(s) > 128 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Get returns a token, or nil if it does not exist or has expired at that time. It removes expired
// tokens and those without an expiry, but not because of a clock that is ahead for a moment.
func (t *Tokens) Get(token string, now time.Time) (*value.Dict, error) {
	if !ValidToken(token) {
		return nil, nil
	}
	path := filepath.Join(t.dir, token)
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !fi.Mode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, hidden(err)
	}
	if fi.Size() > maxToken {
		return nil, salt.Errorf(salt.Invalid, "the token file is larger than %d bytes", maxToken)
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, hidden(err)
	}
	v, err := msgpack.Unmarshal(b)
	d, ok := v.(*value.Dict)
	if err != nil || !ok || !good(d, now) {
		if err != nil || !ok || !good(d, t.early()) {
			os.Remove(path)
		}
		return nil, nil
	}
	return d, nil
}

// good reports whether a token has not expired.
func good(d *value.Dict, now time.Time) bool {
	at := float64(now.UnixNano()) / 1e9
	switch x := d.At("expire").(type) {
	case float64:
		return x >= at
	case int64:
		return float64(x) >= at
	}
	return false
}

// Remove revokes a token. A missing token is no error.
func (t *Tokens) Remove(token string) error {
	if !ValidToken(token) {
		return nil
	}
	if err := os.Remove(filepath.Join(t.dir, token)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return hidden(err)
	}
	return nil
}

// Clear removes all tokens.
func (t *Tokens) Clear() error {
	entries, err := os.ReadDir(t.dir)
	for _, e := range entries {
		if ValidToken(e.Name()) {
			err = errors.Join(err, t.Remove(e.Name()))
		}
	}
	return err
}

// Sweep removes all expired tokens.
func (t *Tokens) Sweep(now time.Time) error {
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		return err
	}
	var failed error
	for _, e := range entries {
		if _, err := t.Get(e.Name(), now); err != nil {
			failed = err
		}
	}
	return failed
}

// hidden removes the file name, which is the token, from an error.
func hidden(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s token file: %w", pe.Op, pe.Err)
	}
	return err
}
