package files

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/catalogue/states/statetest"
)

// keyring is a GnuPG home with a key.
type keyring struct {
	t    *testing.T
	home string
	key  string // fingerprint
}

func newKeyring(t *testing.T) keyring {
	t.Helper()
	k := keyring{t: t, home: t.TempDir()}
	if err := os.Chmod(k.home, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("gpgconf", "--homedir", k.home, "--kill", "all").CombinedOutput(); err != nil {
			t.Logf("gpgconf: %v %s", err, out)
		}
	})
	k.gpg("--quick-gen-key", "somebody@example.com", "ed25519", "sign", "never")
	for line := range strings.Lines(k.gpg("--with-colons", "--list-keys")) {
		if f := strings.Split(line, ":"); f[0] == "fpr" {
			k.key = f[9]
		}
	}
	return k
}

func (k keyring) gpg(words ...string) string {
	k.t.Helper()
	cmd := exec.Command("gpg", append([]string{"--homedir", k.home, "--batch", "--yes", "--pinentry-mode", "loopback", "--passphrase", ""}, words...)...)
	out, err := cmd.Output()
	if err != nil {
		k.t.Fatalf("gpg %q: %v", words, err)
	}
	return string(out)
}

// TestSigned uses sources with and without signatures of a real gpg.
func TestSigned(t *testing.T) {
	statetest.Needs(t, "gpg", "gpgconf")
	k, stranger := newKeyring(t), newKeyring(t)
	s := newStage(t)
	text, other, sums := "good\n", "evil\n", "5e4d4ba4a2a0a4b7c1a0ac2f0e3b6b14  f\n"
	s.build(map[string]*string{"srv/f": &text, "srv/other": &other, "srv/sums": &sums, "w/x": &other})
	srv := filepath.Join(s.root, "srv")
	for _, name := range []string{"f", "sums"} {
		k.gpg("--detach-sign", "--armor", filepath.Join(srv, name))
		k.gpg("--clearsign", filepath.Join(srv, name))
		if err := os.Rename(filepath.Join(srv, name+".asc"), filepath.Join(srv, name+".clear")); err != nil {
			t.Fatal(err)
		}
		k.gpg("--detach-sign", "--armor", filepath.Join(srv, name))
	}
	stranger.gpg("--detach-sign", "--armor", "-o", filepath.Join(srv, "f.stranger"), filepath.Join(srv, "f"))
	for _, c := range []struct {
		what  string
		args  map[string]any
		fails string
	}{
		{"signed", map[string]any{"source": "salt://f", "signature": "salt://f.asc"}, ""},
		{"signed by one of two", map[string]any{"source": "salt://f", "signature": "salt://f.asc", "signed_by_any": []any{stranger.key, k.key}}, ""},
		{"signed by no trusted key", map[string]any{"source": "salt://f", "signature": "salt://f.asc", "signed_by_any": []any{stranger.key}},
			"None of the public keys"},
		{"one signature lacks", map[string]any{"source": "salt://f", "signature": "salt://f.asc", "signed_by_all": []any{k.key, stranger.key}},
			"Public key " + stranger.key + " has not"},
		{"signature of something else", map[string]any{"source": "salt://other", "signature": "salt://f.asc"}, "could not be verified"},
		{"signed by another key", map[string]any{"source": "salt://f", "signature": "salt://f.stranger"}, "could not be verified"},
		{"signature within", map[string]any{"source": "salt://f.clear", "signature": true}, ""},
		{"no signature within", map[string]any{"source": "salt://f", "signature": true}, "could not be verified"},
		{"no such signature", map[string]any{"source": "salt://f", "signature": "salt://none"}, "Detached signature file salt://none not found"},
		{"hashes signed, but wrong", map[string]any{"source": srv + "/f", "source_hash": "salt://sums", "source_hash_sig": "salt://sums.asc"},
			"does not match actual checksum"},
		{"hashes not signed", map[string]any{"source": srv + "/f", "source_hash": "salt://sums", "source_hash_sig": "salt://f.asc"}, "could not be verified"},
	} {
		t.Run(c.what, func(t *testing.T) {
			target := filepath.Join(s.root, "w", "x")
			if err := os.WriteFile(target, []byte("old\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			c.args["name"], c.args["gnupghome"] = target, k.home
			got := s.run("file.managed", c.args, false)
			now, err := os.ReadFile(target)
			if err != nil {
				t.Fatal(err)
			}
			if c.fails == "" {
				if got.Result != true || string(now) == "old\n" {
					t.Errorf("%+v; the file holds %q", got, now)
				}
				return
			}
			if got.Result != false || !strings.Contains(got.Comment, c.fails) || string(now) != "old\n" {
				t.Errorf("%+v; the file holds %q; want a failure with %q", got, now, c.fails)
			}
		})
	}
}
