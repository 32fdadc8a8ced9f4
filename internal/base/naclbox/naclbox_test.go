package naclbox

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/py/value"
)

// Texts that PyNaCl 1.5 encrypted, with the secret key of the bytes 1 to 32.
const (
	sk     = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="
	pk     = "B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9/AsrhtHHw="
	sealed = "tH64rfVfmalEgJL2yynxFk0JCVpjxotZEScXzLmeZzP20Ty1FnAyJ9vSR9/opS/0/n4q64893A=="
	empty  = "VsUFtS94zb6jbmaRVlHMXk1FbT/5Wv4qq+exPITJtxT5XtHr5Z9sVEwgqKy+tOUV"
	secret = "ahkqVkt7Vehh6mdsaxCqrGkigMMlWCWuTZzkcEcMB32EPsZ0ZGOxU3LUtqr8egM="
	plain  = "hällo\n"
)

func TestDecryptsPyNaCl(t *testing.T) {
	for text, want := range map[string]string{sealed: plain, empty: "", sealed[:20] + "\n  " + sealed[20:]: plain} {
		got, err := New(value.DictOf("sk", sk), nil, "/none").Decrypt([]byte(text))
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	got, err := New(value.DictOf("sk", []byte(sk), "box_type", Secret), nil, "/none").Decrypt([]byte(secret))
	if err != nil || string(got) != plain {
		t.Errorf("%q, %v", got, err)
	}
}

func TestBothWays(t *testing.T) {
	dir := t.TempDir()
	pair, err := NewPair()
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("master/nacl", append(pair.Secret, '\n'))
	file("master/nacl.pub", pair.Public)
	if got, err := PublicOf(filepath.Join(dir, "master/nacl")); err != nil || !bytes.Equal(got, pair.Public) {
		t.Errorf("the public key is %s, want %s: %v", got, pair.Public, err)
	}
	other := file("other", []byte(sk))
	for name, c := range map[string]Config{
		"files of pki_dir":      New(nil, nil, dir),
		"option":                New(value.DictOf("sk", sk, "pk", pk), nil, "/none"),
		"secret box":            New(value.DictOf("box_type", Secret, "sk_file", other), nil, "/none"),
		"keyword before option": New(value.DictOf("sk_file", "/none"), value.DictOf("sk_file", other, "pk", pk), "/none"),
		"null keyword":          New(value.DictOf("sk", "x"), value.DictOf("sk", nil), dir),
		"keyfile":               New(value.DictOf("box_type", Sealed), value.DictOf("keyfile", other), "/none"),
		"key":                   New(nil, value.DictOf("key", sk), "/none"),
	} {
		enc, err := c.Encrypt([]byte(plain))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := c.Decrypt(enc); err != nil || string(got) != plain {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		again, err := c.Encrypt([]byte(plain))
		if err != nil || bytes.Equal(enc, again) {
			t.Errorf("%s: twice the same text, %v", name, err)
		}
		raw, _ := base64.StdEncoding.DecodeString(string(enc))
		raw[len(raw)-1] ^= 1
		if got, err := c.Decrypt([]byte(base64.StdEncoding.EncodeToString(raw))); err == nil {
			t.Errorf("%s: a changed text was decrypted: %q", name, got)
		}
	}
	if got, err := New(nil, nil, dir).Decrypt([]byte(sealed)); err == nil {
		t.Errorf("a text for another key was decrypted: %q", got)
	}
}

func TestUnusableKeys(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	if err := os.WriteFile(short, []byte("AQID\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, option := range map[string]*value.Dict{
		"no key or sk_file found":     value.DictOf("sk_file", filepath.Join(dir, "missing")),
		"has 3 bytes instead of 32":   value.DictOf("sk_file", short),
		dir + " is no file of a key":  value.DictOf("sk_file", dir),
		"the key of sk is not base64": value.DictOf("sk", "A"),
		`box_type is "sealdbox"`:      value.DictOf("box_type", "sealdbox", "sk", sk),
	} {
		if _, err := New(option, nil, dir).Decrypt([]byte(sealed)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, text := range []string{"", "abcd", "A", "AAAA=A", strings.Repeat("A", 64)} {
		for _, kind := range []string{Sealed, Secret} {
			if got, err := New(value.DictOf("sk", sk, "box_type", kind), nil, dir).Decrypt([]byte(text)); err == nil {
				t.Errorf("%s %q: %q", kind, text, got)
			}
		}
	}
}
