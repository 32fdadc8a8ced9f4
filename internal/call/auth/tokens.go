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
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Tokens keeps tokens as Salt's store localfs does: a file each in a folder,
// named by the token, with a msgpack map in it.
type Tokens struct{ dir string }

// OpenTokens opens the folder, which it makes if need be. Nobody else may be
// able to list it, since the names are the secrets.
func OpenTokens(dir string) (*Tokens, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder of tokens: %w", err)
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if fi.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return nil, salt.Errorf(salt.Denied, "others may enter %s, whose file names are secrets, and that cannot be changed: %w; run chmod 700 on it", dir, err)
		}
	}
	return &Tokens{dir: dir}, nil
}

// tokenLen is the length of a token in hexadecimal digits. Those of other hash
// types of Salt are read as well.
const tokenLen = 64

// maxToken bounds the file of a token in bytes.
const maxToken = 1 << 20

// Add gives a token its name, in the field token, and stores it.
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

// ValidToken reports whether a text can be a token at all. What is not is
// never looked for, so that no token names another file.
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

// Get returns a token, or nil if there is none that is good at that moment.
// One that is over, or says nothing of it, is removed.
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
		return nil, salt.Errorf(salt.Invalid, "the file of a token is larger than %d bytes", maxToken)
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
		os.Remove(path)
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

// Remove takes a token back. One that is not there is no error.
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

// Sweep removes all tokens that are over.
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

// hidden keeps the name of a file, which is the token, out of an error.
func hidden(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s of a token: %w", pe.Op, pe.Err)
	}
	return err
}
