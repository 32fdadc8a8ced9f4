package master

import (
	"bytes"
	"encoding/base64"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/net/crypt"
)

// TestStoredSignatureIsVerified: the master logs at its start that minions will
// reject a stored signature, such as Salt's signature of the key with its newline.
func TestStoredSignatureIsVerified(t *testing.T) {
	dir := t.TempDir()
	newPair := func(name string) *crypt.PrivateKey {
		k, err := crypt.GenerateKey(2048)
		if err == nil {
			err = crypt.WriteKeyPair(dir, name, k, "")
		}
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	own, signing := newPair("master"), newPair("master_sign")
	clean := crypt.CleanKey(string(own.Public().PEM()))
	cfg := &Config{PKIDir: dir, Options: Options{MasterSignPubkey: true, MasterUsePubkeySignature: true, MasterPubkeySignature: "sig",
		MasterSignKeyName: "master_sign"}}
	for _, c := range []struct {
		name, signed, algo string
		complains          bool
	}{
		{"good", clean, crypt.PKCS1v15SHA1, false},
		{"good, SHA-224", clean, crypt.PKCS1v15SHA224, false},
		{"with the newline of the file", clean + "\n", crypt.PKCS1v15SHA1, true},
		{"of another key", "another", crypt.PKCS1v15SHA1, true},
	} {
		sig, err := signing.Sign(c.algo, []byte(c.signed))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "sig"), []byte(base64.StdEncoding.EncodeToString(sig)+"\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		if _, err := loadIdentity(cfg, nil, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if strings.Contains(log.String(), "salt-key --gen-signature") != c.complains {
			t.Errorf("%s: the log has %q", c.name, log.String())
		}
	}
	// Without the public signing key the signature cannot be verified.
	if err := os.Remove(filepath.Join(dir, "master_sign.pub")); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if _, err := loadIdentity(cfg, nil, slog.New(slog.NewTextHandler(&log, nil))); err != nil || log.Len() > 0 {
		t.Errorf("%v, %q", err, log.String())
	}
}
