package crypt

import (
	"brine/internal/base/salt"
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriteKeyPair(t *testing.T) {
	dir := t.TempDir()
	k := private(t, "minion")
	if err := WriteKeyPair(dir, "minion", k, ""); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"minion.pem": 0o400, "minion.pub": 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
		}
		if got := read(t, dir, name); !bytes.Equal(got, read(t, vectors, "keys", name)) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got, err := LoadPrivate(filepath.Join(dir, "minion.pem"), ""); err != nil || !bytes.Equal(got.PEM(), k.PEM()) {
		t.Errorf("LoadPrivate: %v", err)
	}
	if got, err := LoadPublic(filepath.Join(dir, "minion.pub")); err != nil || !got.Equal(k.Public()) {
		t.Errorf("LoadPublic: %v", err)
	}

	// The key of another process must survive.
	err := WriteKeyPair(dir, "minion", private(t, "minion_other"), "")
	if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "minion.pem") {
		t.Errorf("second pair: %v", err)
	}
	if !bytes.Equal(read(t, dir, "minion.pem"), k.PEM()) || !bytes.Equal(read(t, dir, "minion.pub"), k.Public().PEM()) {
		t.Error("the first pair was replaced")
	}
	// A public key may be replaced.
	if err := WritePublic(filepath.Join(dir, "minion.pub"), public(t, "master")); err != nil {
		t.Error(err)
	}
	if got, err := LoadPublic(filepath.Join(dir, "minion.pub")); err != nil || !got.Equal(public(t, "master")) {
		t.Errorf("after WritePublic: %v", err)
	}

	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestFileErrors(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "no such", "key")
	load := func(path, pass string) error { _, err := LoadPrivate(path, pass); return err }
	loadPub := func(path string) error { _, err := LoadPublic(path); return err }
	for _, c := range []struct {
		err  error
		kind error
		says []string
	}{
		{load(missing, ""), fs.ErrNotExist, []string{missing}},
		{loadPub(missing), fs.ErrNotExist, []string{missing}},
		{load(broken, ""), ErrKey, []string{broken, "restore"}},
		{loadPub(broken), ErrKey, []string{broken, "delete"}},
		{load("testdata/encrypted.pem", "wrong"), ErrPassphrase, []string{"testdata/encrypted.pem", "set the right passphrase"}},
		{WriteKeyPair(missing, "minion", private(t, "minion"), ""), fs.ErrNotExist, []string{"create the directory " + missing}},
		{WritePublic(missing, public(t, "minion")), fs.ErrNotExist, []string{"create the directory"}},
	} {
		if !errors.Is(c.err, c.kind) {
			t.Errorf("%v is not %v", c.err, c.kind)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(c.err.Error(), s) {
				t.Errorf("%q does not say %q", c.err, s)
			}
		}
	}
}

// A key with a passphrase can be read with it only, and is Salt's form.
func TestWriteEncrypted(t *testing.T) {
	dir, k := t.TempDir(), private(t, "minion")
	if err := WriteKeyPair(dir, "minion", k, "sesame"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "minion.pem")
	text := string(read(t, dir, "minion.pem"))
	if !strings.HasPrefix(text, "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,") {
		t.Errorf("%.80q", text)
	}
	if got, err := LoadPrivate(path, "sesame"); err != nil || !bytes.Equal(got.PEM(), k.PEM()) {
		t.Errorf("with the passphrase: %v", err)
	}
	for _, pass := range []string{"", "wrong"} {
		if _, err := LoadPrivate(path, pass); !errors.Is(err, ErrPassphrase) {
			t.Errorf("with %q: %v", pass, err)
		}
	}
}

// TestLoadOwn: the mode of a key that others could read is fixed by its owner;
// one that others could write is refused.
func TestLoadOwn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "minion.pem")
	if err := WriteKeyPair(dir, "minion", private(t, "minion"), ""); err != nil {
		t.Fatal(err)
	}
	for mode, after := range map[fs.FileMode]fs.FileMode{0o400: 0o400, 0o600: 0o600, 0o644: 0o600, 0o444: 0o400, 0o640: 0o600, 0o755: 0o700, 0o622: 0,
		0o660: 0, 0o602: 0} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		warning, checked := CheckOwn(path, "")
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%04o: the check changed the mode to %v, %v", mode, st.Mode(), err)
		}
		var said strings.Builder
		k, err := LoadOwn(path, "", slog.New(slog.NewTextHandler(&said, nil)))
		if after == 0 {
			if salt.KindOf(err) != salt.Denied || salt.KindOf(checked) != salt.Denied || !strings.Contains(err.Error(), "chmod 400") {
				t.Errorf("%04o: %v, check %v", mode, err, checked)
			}
			continue
		}
		st, _ := os.Stat(path)
		if err != nil || checked != nil || k == nil || st.Mode().Perm() != after {
			t.Errorf("%04o: mode %v, %v, check %v", mode, st.Mode(), err, checked)
		}
		if changed := mode != after; changed != (warning != "") || changed != strings.Contains(said.String(), "level=WARN") {
			t.Errorf("%04o: warning %q, said %q", mode, warning, &said)
		}
	}
}
