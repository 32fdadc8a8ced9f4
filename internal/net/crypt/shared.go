package crypt

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
)

const sharedKeySize = 32

// TicketSize is the size of a ticket in bytes.
const TicketSize = sharedKeySize + sha256.Size

// Shared is data for many receivers, encrypted once for all of them. A holder of the ticket can
// read and authenticate it: the ticket is a key that is used for nothing else (AES-256 in counter
// mode from 0), and the SHA-256 of the ciphertext. The ticket must be sent encrypted to each
// receiver.
type Shared struct{ ticket, sealed []byte }

// NewShared encrypts in place: content must not be used afterwards.
func NewShared(content []byte) *Shared {
	s := &Shared{ticket: make([]byte, TicketSize), sealed: content}
	rand.Read(s.ticket[:sharedKeySize]) // never fails
	sharedStream(s.ticket).XORKeyStream(content, content)
	sum := sha256.Sum256(content)
	copy(s.ticket[sharedKeySize:], sum[:])
	return s
}

// Ticket returns the secret that opens the data. It must not be changed.
func (s *Shared) Ticket() []byte { return s.ticket }

// Sealed is the ciphertext.
func (s *Shared) Sealed() []byte { return s.sealed }

// OpenShared decrypts the ciphertext of a Shared, in place. The errors are ErrFormat for an invalid
// ticket and ErrAuth for other bytes than the ticket's.
func OpenShared(ticket, sealed []byte) (plain []byte, err error) {
	if len(ticket) != TicketSize {
		return nil, fmt.Errorf("%w: a ticket has %d bytes, not %d", ErrFormat, TicketSize, len(ticket))
	}
	sum := sha256.Sum256(sealed)
	if subtle.ConstantTimeCompare(sum[:], ticket[sharedKeySize:]) != 1 {
		return nil, ErrAuth
	}
	sharedStream(ticket).XORKeyStream(sealed, sealed)
	return sealed, nil
}

func sharedStream(ticket []byte) cipher.Stream {
	block, err := aes.NewCipher(ticket[:sharedKeySize])
	if err != nil {
		panic("crypt: " + err.Error()) // only for keys of another size
	}
	return cipher.NewCTR(block, make([]byte, aes.BlockSize))
}
