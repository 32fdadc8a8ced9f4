package crypt

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"math/big"
)

// Bytes of the X9.31 block.
const (
	x931Padded = 0x6b // first byte, padding follows
	x931Full   = 0x6a // first byte, the message follows
	x931Fill   = 0xbb
	x931Start  = 0xba // ends the padding
	x931End    = 0xcc // last byte
)

// SignX931 returns a signature from which RecoverX931 recovers msg. It is deterministic. The
// message is not hashed, so it must be short: the error is ErrTooLong.
func (k *PrivateKey) SignX931(msg []byte) ([]byte, error) {
	block, err := padX931(msg, k.key.Size())
	if err != nil {
		return nil, err
	}
	n := k.key.N
	c := new(big.Int).SetBytes(block)
	if c.Cmp(n) >= 0 { // possible if the size of the key is not a multiple of 8
		return nil, fmt.Errorf("%w: %d bits cannot make this kind of signature", ErrKey, n.BitLen())
	}
	s, err := privateOp(k.key, c)
	if err != nil {
		return nil, err
	}
	if other := new(big.Int).Sub(n, s); other.Cmp(s) < 0 {
		s = other
	}
	return s.FillBytes(block), nil
}

// padX931 returns the block of msg. One byte of padding is not possible: OpenSSL creates such a
// block, but does not accept it.
func padX931(msg []byte, size int) ([]byte, error) {
	fill := size - 3 - len(msg)
	if fill < -1 || fill == 0 {
		return nil, fmt.Errorf("%w: %d bytes to sign with %d bits", ErrTooLong, len(msg), size*8)
	}
	block := make([]byte, 0, size)
	if fill < 0 {
		block = append(block, x931Full)
	} else {
		block = append(block, x931Padded)
		for range fill {
			block = append(block, x931Fill)
		}
		block = append(block, x931Start)
	}
	block = append(block, msg...)
	return append(block, x931End), nil
}

// RecoverX931 returns the message in a signature made by SignX931. The error is ErrSignature.
// Without an error the owner of k has signed the message; the caller must compare it with the
// expected one.
func (k *PublicKey) RecoverX931(sig []byte) ([]byte, error) {
	size := k.key.Size()
	s := new(big.Int).SetBytes(sig)
	if len(sig) != size || s.Cmp(k.key.N) >= 0 {
		return nil, ErrSignature
	}
	t := s.Exp(s, big.NewInt(int64(k.key.E)), k.key.N)
	if t.Bit(3) != 1 || t.Bit(2) != 1 || t.Bit(1) != 0 || t.Bit(0) != 0 { // not ending in c
		t.Sub(k.key.N, t)
	}
	return unpadX931(t.FillBytes(make([]byte, size)))
}

func unpadX931(block []byte) ([]byte, error) {
	last := len(block) - 1
	if block[last] != x931End {
		return nil, ErrSignature
	}
	switch block[0] {
	case x931Full:
		return block[1:last:last], nil
	case x931Padded:
		i := 1
		for i < last && block[i] == x931Fill {
			i++
		}
		if i > 1 && i < last && block[i] == x931Start {
			return block[i+1 : last : last], nil
		}
	}
	return nil, ErrSignature
}

// privateOp returns c^d mod n for c < n.
//
// It uses math/big because crypto/rsa exports no raw operation: its functions add or remove a
// padding, none of which leaves room for the X9.31 block. math/big does not run in constant time,
// so its operands must not be known to an observer. The base is blinded by a random factor, the
// exponents by random multiples of the group orders. The result is verified before it is returned,
// because a faulty one would reveal the primes.
func privateOp(k *rsa.PrivateKey, c *big.Int) (*big.Int, error) {
	n, e := k.N, big.NewInt(int64(k.E))
	p, q := k.Primes[0], k.Primes[1]

	r, inverse, err := blinding(n)
	if err != nil {
		return nil, err
	}
	blind := new(big.Int).Exp(r, e, n)
	blind.Mul(blind, c).Mod(blind, n)

	sp := blindExp(blind, k.Precomputed.Dp, p)
	sq := blindExp(blind, k.Precomputed.Dq, q)
	// Chinese remainders: s = sq + q * ((sp - sq) / q mod p)
	s := sp.Sub(sp, sq)
	s.Mul(s, k.Precomputed.Qinv).Mod(s, p)
	s.Mul(s, q).Add(s, sq)

	s.Mul(s, inverse).Mod(s, n)
	if new(big.Int).Exp(s, e, n).Cmp(c) != 0 {
		return nil, fmt.Errorf("%w: the result is wrong", ErrKey)
	}
	return s, nil
}

// blinding returns a random number and its inverse modulo n.
func blinding(n *big.Int) (r, inverse *big.Int, err error) {
	for range 100 { // one is enough except with negligible probability
		if r, err = rand.Int(rand.Reader, n); err != nil {
			return nil, nil, fmt.Errorf("cannot get random bytes: %w", err)
		}
		if inverse = new(big.Int).ModInverse(r, n); inverse != nil {
			return r, inverse, nil
		}
	}
	return nil, nil, fmt.Errorf("%w: no number is prime to the modulus", ErrKey)
}

// blindExp returns c^d mod p for a prime p, with a different exponent each time.
func blindExp(c, d, p *big.Int) *big.Int {
	var random [8]byte
	rand.Read(random[:]) // never fails
	x := new(big.Int).Sub(p, big.NewInt(1))
	x.Mul(x, new(big.Int).SetBytes(random[:])).Add(x, d)
	base := new(big.Int).Mod(c, p)
	return base.Exp(base, x, p)
}
