package handshake

import (
	"crypto/sha256"
	"sync"

	"brine/internal/net/crypt"
)

// sealed caches the encrypted secrets of accepted minions: neither the secrets nor the minion's key
// change often, and minions sign in frequently.
type sealed struct {
	m sync.Map // minion id -> *sealedFor
}

type sealedFor struct {
	// of is the hash of all inputs.
	of           [sha256.Size]byte
	aes, session []byte
}

func (s *sealed) secrets(r Request, minion *crypt.PublicKey, sec Secrets) (aes, session []byte, err error) {
	h := sha256.New()
	for _, part := range []string{r.Pub, r.EncAlgo, sec.AES, sec.Session} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	of := [sha256.Size]byte(h.Sum(nil))
	if v, ok := s.m.Load(r.ID); ok {
		if last := v.(*sealedFor); last.of == of {
			return last.aes, last.session, nil
		}
	}
	if aes, err = minion.Encrypt(r.EncAlgo, []byte(sec.AES)); err != nil {
		return nil, nil, err
	}
	if session, err = minion.Encrypt(r.EncAlgo, []byte(sec.Session)); err != nil {
		return nil, nil, err
	}
	s.m.Store(r.ID, &sealedFor{of: of, aes: aes, session: session})
	return aes, session, nil
}

// Forget drops the cached secrets of a minion that is no longer accepted.
func (id *Identity) Forget(minion string) { id.sealed.m.Delete(minion) }
