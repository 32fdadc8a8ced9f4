package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/base/salt"
)

// MinSecret is the minimum length of a secret: an eavesdropper on a join can try guesses offline.
const MinSecret = 16

// IsFingerprint reports whether s is a SHA-256 in hexadecimal digits.
func IsFingerprint(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

// SecretFile, in cluster_pki_dir, has the joining secret since its first replacement; until then cluster_secret is used. It is replicated
// like the AES key.
const SecretFile = ".secret"

// MaxSecret bounds a secret in bytes.
const MaxSecret = 4096

// Joining returns the joining secret of the cluster whose keys are in a directory, given the value of cluster_secret.
func Joining(dir, option string) (string, error) {
	path := filepath.Join(dir, SecretFile)
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return option, nil
	}
	var b []byte
	if err == nil && fi.Size() <= MaxSecret {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return "", salt.Errorf(salt.Unavailable, "cannot read the secret of the cluster: %w", err)
	}
	s := strings.TrimSpace(string(b))
	if len(s) < MinSecret {
		return "", salt.Errorf(salt.Invalid, "%s has no secret of at least %d characters; run brine cluster rotate-secret to create a new one", path, MinSecret)
	}
	return s, nil
}
