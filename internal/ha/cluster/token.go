package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"path/filepath"

	"brine/internal/base/atomicfile"
)

// tokenFile, in a master's own directory, contains a random token. A master that can read it shares
// the cachedir.
const tokenFile = "token"

// newToken writes a new token and returns it.
func newToken(dir string) (string, error) {
	var b [16]byte
	rand.Read(b[:])
	t := hex.EncodeToString(b[:])
	return t, atomicfile.Write(filepath.Join(dir, tokenFile), []byte(t), 0o600, false)
}
