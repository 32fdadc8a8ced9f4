package render

import (
	"crypto/hmac"
	"crypto/md5"
	crand "crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"math/big"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"

	"brine/internal/py/jinja"
)

// newHash returns a hash by the name that Python's hashlib gives it.
func newHash(name string) func() hash.Hash {
	switch strings.ToLower(name) {
	case "md5":
		return md5.New
	case "sha1":
		return sha1.New
	case "sha224":
		return sha256.New224
	case "sha256":
		return sha256.New
	case "sha384":
		return sha512.New384
	case "sha512":
		return sha512.New
	}
	return nil
}

func hexOf(h hash.Hash, b []byte) string {
	h.Write(b)
	return hex.EncodeToString(h.Sum(nil))
}

func hashFilters() []*jinja.Func {
	out := []*jinja.Func{
		filter("base64_encode(instr)", func(c *jinja.Call) (any, error) {
			b, err := asBytes(c.Bound[0])
			return base64.StdEncoding.EncodeToString(b), err
		}),
		filter("base64_decode(instr)", base64Decode),
		filter("hmac(string, shared_secret, challenge_hmac)", func(c *jinja.Call) (any, error) {
			sum, err := mac(c)
			if err != nil {
				return nil, err
			}
			challenge, err := asBytes(c.Bound[2])
			return err == nil && hmac.Equal([]byte(base64.StdEncoding.EncodeToString(sum)), challenge), err
		}),
		filter("hmac_compute(string, shared_secret)", func(c *jinja.Call) (any, error) {
			sum, err := mac(c)
			return hex.EncodeToString(sum), err
		}),
		filter("random_hash(size=9999999999, hash_type=None)", func(c *jinja.Call) (any, error) {
			name := "md5"
			if c.Bound[1] != nil {
				name = c.Str(1)
			}
			h := newHash(name)
			if h == nil {
				return nil, jinja.Errorf("AttributeError", "module 'hashlib' has no attribute %s", jinja.Repr(name))
			}
			n, err := crand.Int(crand.Reader, big.NewInt(int64(max(c.Int(0), 0))+1))
			if err != nil {
				return nil, err
			}
			return hexOf(h(), []byte(n.String())), nil
		}),
		filter("random_str(size=32)", func(c *jinja.Call) (any, error) {
			n := c.Int(0)
			if n < 0 || n > 1<<20 {
				return nil, invalid("the size of a random text is from 0 to %d", 1<<20)
			}
			b := make([]byte, n)
			if _, err := crand.Read(b); err != nil {
				return nil, err
			}
			return base64.StdEncoding.EncodeToString(b)[:n], nil
		}),
		machineFilter("file_hashsum(path, form='sha256', chunk_size=65536)", func(c *jinja.Call) (any, error) {
			h := newHash(c.Str(1))
			if h == nil {
				return nil, invalid("Invalid hash type: %s", c.Str(1))
			}
			sum := h()
			if err := sumFile(c, sum, c.Str(0)); err != nil {
				return nil, err
			}
			return hex.EncodeToString(sum.Sum(nil)), nil
		}),
	}
	for _, name := range []string{"md5", "sha1", "sha256", "sha512"} {
		out = append(out, filter(name+"(instr)", func(c *jinja.Call) (any, error) {
			b, err := asBytes(c.Bound[0])
			return hexOf(newHash(name)(), b), err
		}))
	}
	return out
}

func mac(c *jinja.Call) ([]byte, error) {
	msg, err := asBytes(c.Bound[0])
	if err != nil {
		return nil, err
	}
	key, err := asBytes(c.Bound[1])
	if err != nil {
		return nil, err
	}
	h := hmac.New(sha256.New, key)
	h.Write(msg)
	return h.Sum(nil), nil
}

// base64Decode tolerates what Python's b64decode tolerates: characters outside
// of the alphabet.
func base64Decode(c *jinja.Call) (any, error) {
	b, err := asBytes(c.Bound[0])
	if err != nil {
		return nil, err
	}
	clean := strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '+' || r == '/' || r == '=') {
			return r
		}
		return -1
	}, string(b))
	out, err := base64.StdEncoding.DecodeString(clean)
	if err != nil {
		return nil, jinja.Errorf("Error", "Incorrect padding")
	}
	if utf8.Valid(out) {
		return string(out), nil
	}
	return out, nil
}

// sumFile hashes a regular file within the limits of the template, which may have
// the path from a minion. Opening a FIFO would wait for ever, and a device has no
// end.
func sumFile(c *jinja.Call, sum io.Writer, path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return invalid("%s is not a regular file", path)
	}
	for {
		c.Tick()
		if _, err := io.CopyN(sum, f, 64<<10); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
