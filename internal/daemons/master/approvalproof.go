package master

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"brine/internal/net/crypt"
	"brine/internal/store/consoledb"
)

// approvalProofs makes and checks the proofs of rows of the console_store: without them every program that can write to the table could approve
// jobs. The key is that of the option console_store_secret, or else that by which minions know the masters.
type approvalProofs struct {
	secret string
	key    func() *crypt.PrivateKey
}

// approvalProofUse separates these proofs from other uses of the same secret.
const approvalProofUse = "brine: approvals in the console_store"

// of returns the proof of a row.
func (p approvalProofs) of(row consoledb.Approval) string {
	secret := []byte(p.secret)
	if p.secret == "" {
		secret = p.key().PEM()
	}
	derived := hmac.New(sha256.New, secret)
	derived.Write([]byte(approvalProofUse))
	h := hmac.New(sha256.New, derived.Sum(nil))
	for _, s := range []string{row.ID, row.Home, row.Owner, row.State, row.By, row.Minions, row.Record} {
		s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD") // as PostgreSQL has it
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// proves reports whether a master with the same key wrote a row as it is.
func (p approvalProofs) proves(row consoledb.Approval) bool {
	return hmac.Equal([]byte(p.of(row)), []byte(row.Proof))
}
