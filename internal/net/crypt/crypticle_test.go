package crypt

import (
	"bytes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"testing"

	"brine/test/fuzztest"
)

type crypticleCase struct {
	Case       string  `json:"case"`
	Key        string  `json:"key"`
	IV         string  `json:"iv_hex"`
	Nonce      *string `json:"nonce"`
	Plaintext  []byte  `json:"plaintext_b64"`
	Payload    []byte  `json:"msgpack_b64"`
	Ciphertext []byte  `json:"ciphertext_b64"`
	Expect     string  `json:"expect"`
}

func crypticleCases(t testing.TB) []crypticleCase {
	t.Helper()
	var f struct{ Cases []crypticleCase }
	readJSON(t, &f, vectors, "crypticle.json")
	if len(f.Cases) == 0 {
		t.Fatal("no vectors")
	}
	return f.Cases
}

func crypticle(t testing.TB, key string) *Crypticle {
	t.Helper()
	c, err := NewCrypticle(key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCrypticleVectors(t *testing.T) {
	for _, v := range crypticleCases(t) {
		t.Run(v.Case, func(t *testing.T) {
			c := crypticle(t, v.Key)
			before := bytes.Clone(v.Ciphertext)
			plain, err := c.Decrypt(v.Ciphertext)
			if v.Expect != "" {
				if !errors.Is(err, ErrAuth) {
					t.Errorf("err = %v, want ErrAuth", err)
				}
				return
			}
			if err != nil || !bytes.Equal(plain, v.Plaintext) {
				t.Fatalf("Decrypt = %q, %v; want %q", plain, err, v.Plaintext)
			}
			if !bytes.Equal(v.Ciphertext, before) {
				t.Error("Decrypt changed its input")
			}
			var iv [ivSize]byte
			if _, err := hex.Decode(iv[:], []byte(v.IV)); err != nil {
				t.Fatal(err)
			}
			if got := c.encrypt(iv, "", "", v.Plaintext); !bytes.Equal(got, v.Ciphertext) {
				t.Errorf("encrypted %x, want %x", got, v.Ciphertext)
			}
			if v.Payload == nil {
				if _, err := c.Open(v.Ciphertext); !errors.Is(err, ErrFormat) {
					t.Errorf("Open without a prefix: %v", err)
				}
				return
			}
			nonce := ""
			if v.Nonce != nil {
				nonce = *v.Nonce
			}
			payload, err := c.OpenNonce(v.Ciphertext, nonce)
			if err != nil || !bytes.Equal(payload, v.Payload) {
				t.Errorf("OpenNonce = %x, %v; want %x", payload, err, v.Payload)
			}
			if got := c.encrypt(iv, prefix, nonce, v.Payload); !bytes.Equal(got, v.Ciphertext) {
				t.Errorf("sealed %x, want %x", got, v.Ciphertext)
			}
		})
	}
}

func TestCrypticleRoundTrip(t *testing.T) {
	c := crypticle(t, NewKey())
	const nonce = "00112233445566778899aabbccddeeff"
	for n := range 70 {
		in := bytes.Repeat([]byte{byte(n)}, n)
		a, b := c.Encrypt(in), c.Encrypt(in)
		if bytes.Equal(a, b) {
			t.Fatal("two ciphertexts of one text are equal")
		}
		if out, err := c.Decrypt(a); err != nil || !bytes.Equal(out, in) {
			t.Errorf("%d bytes: %x, %v", n, out, err)
		}
		if out, err := c.Open(c.Seal(in, "")); err != nil || !bytes.Equal(out, in) {
			t.Errorf("%d bytes sealed: %x, %v", n, out, err)
		}
		if out, err := c.OpenNonce(c.Seal(in, nonce), nonce); err != nil || !bytes.Equal(out, in) {
			t.Errorf("%d bytes with nonce: %x, %v", n, out, err)
		}
	}
}

func TestCrypticleRefuses(t *testing.T) {
	c := crypticle(t, NewKey())
	const nonce = "00112233445566778899aabbccddeeff"
	good := c.Seal([]byte("payload"), nonce)

	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if _, err := c.Open(bad); !errors.Is(err, ErrAuth) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if _, err := c.Open(good[:i]); !errors.Is(err, ErrAuth) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	if _, err := crypticle(t, NewKey()).Open(good); !errors.Is(err, ErrAuth) {
		t.Errorf("other key: %v", err)
	}
	if _, err := c.OpenNonce(good, "ffeeddccbbaa99887766554433221100"); !errors.Is(err, ErrNonce) {
		t.Errorf("other nonce: %v", err)
	}
	if _, err := c.OpenNonce(c.Seal([]byte("short"), ""), nonce); !errors.Is(err, ErrNonce) {
		t.Errorf("no nonce: %v", err)
	}
}

// TestCrypticleBadPadding signs plaintexts that Encrypt never creates.
func TestCrypticleBadPadding(t *testing.T) {
	key := NewKey()
	c := crypticle(t, key)
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(body []byte) []byte {
		m := hmac.New(sha256.New, raw[aesKeySize:])
		m.Write(body)
		return m.Sum(body)
	}
	for name, block := range map[string]string{
		"zero":     "0123456789abcde\x00",
		"too long": "0123456789abcde\x11",
		"uneven":   "0123456789abc\x02\x03\x03",
	} {
		body := make([]byte, 32)
		cipher.NewCBCEncrypter(c.block, body[:16]).CryptBlocks(body[16:], []byte(block))
		if _, err := c.Decrypt(sign(body)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, n := range []int{0, 15, 16, 17, 31, 33} {
		if _, err := c.Decrypt(sign(make([]byte, n))); !errors.Is(err, ErrFormat) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestCrypticleKeys(t *testing.T) {
	k := NewKey()
	if len(k) != 76 || k == NewKey() {
		t.Errorf("key %d characters long", len(k))
	}
	if _, err := NewCrypticle(k + "\n"); err != nil {
		t.Errorf("as in a file: %v", err)
	}
	secret := strings.Repeat("QUJD", 18)
	for _, bad := range []string{"", "not base64!", secret, k + k} {
		_, err := NewCrypticle(bad)
		if !errors.Is(err, ErrKey) {
			t.Errorf("%q: %v", bad, err)
		} else if bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the error tells the key: %v", err)
		}
	}
}

func TestCrypticleConcurrent(t *testing.T) {
	c := crypticle(t, NewKey())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			in := bytes.Repeat([]byte{byte(i)}, 100+i)
			for range 100 {
				if out, err := c.Open(c.Seal(in, "")); err != nil || !bytes.Equal(out, in) {
					t.Errorf("%x, %v", out, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func FuzzDecrypt(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	cases := crypticleCases(f)
	for _, v := range cases {
		f.Add(v.Ciphertext)
		f.Add(v.Plaintext)
	}
	c := crypticle(f, cases[0].Key)
	raw, err := base64.StdEncoding.DecodeString(cases[0].Key)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if plain, err := c.Decrypt(b); err == nil {
			if back, err := c.Decrypt(c.Encrypt(plain)); err != nil || !bytes.Equal(back, plain) {
				t.Fatalf("%x became %x, %v", plain, back, err)
			}
		}
		// The same again past the authentication, as a peer with the key may send it.
		m := hmac.New(sha256.New, raw[aesKeySize:])
		m.Write(b)
		signed := m.Sum(bytes.Clone(b))
		if _, err := c.Decrypt(signed); err != nil && !errors.Is(err, ErrFormat) {
			t.Fatal(err)
		}
		if _, err := c.OpenNonce(signed, "00112233445566778899aabbccddeeff"); err != nil && !errors.Is(err, ErrFormat) && !errors.Is(err, ErrNonce) {
			t.Fatal(err)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	c := crypticle(b, NewKey())
	in := make([]byte, 1000)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		c.Seal(in, "")
	}
}

func BenchmarkOpen(b *testing.B) {
	c := crypticle(b, NewKey())
	in := c.Seal(make([]byte, 1000), "")
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Open(in); err != nil {
			b.Fatal(err)
		}
	}
}

func TestCrypticleAllocations(t *testing.T) {
	c := crypticle(t, NewKey())
	in := make([]byte, 1000)
	sealed := c.Seal(in, "")
	// Two are needed, for the result and the CBC state. A new HMAC each time
	// would add ten; the race detector makes the pool forget some.
	if n := testing.AllocsPerRun(100, func() { c.Seal(in, "") }); n > 6 {
		t.Errorf("Seal: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = c.Open(sealed) }); n > 6 {
		t.Errorf("Open: %v allocations", n)
	}
}

// TestMAC compares with the library's HMAC, at every length up to several
// blocks.
func TestMAC(t *testing.T) {
	key := NewKey()
	raw, _ := base64.StdEncoding.DecodeString(key)
	c, err := NewCrypticle(key)
	if err != nil {
		t.Fatal(err)
	}
	want := hmac.New(sha256.New, raw[aesKeySize:])
	msg := make([]byte, 300)
	rand.Read(msg)
	for n := range msg {
		want.Reset()
		want.Write(msg[:n])
		h := macHashes.Get().(*macHash)
		if got := c.mac(h, []byte("before"), msg[:n]); !bytes.Equal(got, want.Sum([]byte("before"))) {
			t.Errorf("%d bytes: %x", n, got)
		}
		macHashes.Put(h)
	}
}

// TestOpenInPlace: it opens what Open opens, in place, and leaves an
// unauthentic message unchanged.
func TestOpenInPlace(t *testing.T) {
	c, err := NewCrypticle(NewKey())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 7, 8, 9, 1000} {
		msg := bytes.Repeat([]byte("x"), n)
		sealed := c.Seal(msg, "")
		forged := bytes.Clone(sealed)
		forged[len(forged)-1] ^= 1
		before := bytes.Clone(forged)
		if _, err := c.OpenInPlace(forged); !errors.Is(err, ErrAuth) || !bytes.Equal(forged, before) {
			t.Errorf("%d bytes, forged: %v, changed: %v", n, err, !bytes.Equal(forged, before))
		}
		got, err := c.OpenInPlace(sealed)
		if err != nil || !bytes.Equal(got, msg) {
			t.Errorf("%d bytes: %q, %v", n, got, err)
		}
	}
	sealed := c.Seal(make([]byte, 1000), "")
	work := make([]byte, len(sealed))
	if n := testing.AllocsPerRun(100, func() { copy(work, sealed); c.OpenInPlace(work) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
