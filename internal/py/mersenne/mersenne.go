// Package mersenne generates the same random numbers as Python's random module
// for the same seed, so that values that Salt derives from a seed (the minute
// at which a minion runs a job, a shuffled list) stay the same. Do not use it
// for secrets.
package mersenne

import (
	"crypto/sha512"
	"fmt"
	"math"
	"math/big"

	"brine/internal/py/value"
)

const (
	size  = 624
	shift = 397
)

// Source is a seeded generator (MT19937). It is not safe for concurrent use.
type Source struct {
	state [size]uint32
	next  int
}

// New returns the equivalent of Python's random.Random(seed). The seed is a
// string, bytes or an integer.
func New(seed any) (*Source, error) {
	var n *big.Int
	switch x := seed.(type) {
	case string:
		n = fromBytes([]byte(x))
	case []byte:
		n = fromBytes(x)
	case int64:
		n = new(big.Int).Abs(big.NewInt(x))
	case bool:
		n = new(big.Int)
		if x {
			n.SetInt64(1)
		}
	case *big.Int:
		n = new(big.Int).Abs(x)
	default:
		return nil, fmt.Errorf("a seed must be a string or an integer, not %s", value.TypeName(seed))
	}
	s := &Source{}
	s.seed(words(n))
	return s, nil
}

// fromBytes converts a string to an integer as Python does: its bytes followed
// by their hash.
func fromBytes(b []byte) *big.Int {
	sum := sha512.Sum512(b)
	return new(big.Int).SetBytes(append(append([]byte(nil), b...), sum[:]...))
}

// words splits a number into words of 32 bits, the lowest first.
func words(n *big.Int) []uint32 {
	b := n.Bytes()
	out := make([]uint32, 0, len(b)/4+1)
	for end := len(b); end > 0; end -= 4 {
		var w uint32
		for _, c := range b[max(0, end-4):end] {
			w = w<<8 | uint32(c)
		}
		out = append(out, w)
	}
	if len(out) == 0 {
		out = append(out, 0)
	}
	return out
}

// seed initialises the state from a key of any length (init_by_array of the
// reference implementation).
func (s *Source) seed(key []uint32) {
	st := &s.state
	st[0] = 19650218
	for i := 1; i < size; i++ {
		st[i] = 1812433253*(st[i-1]^st[i-1]>>30) + uint32(i)
	}
	i, j := 1, 0
	advance := func() {
		if i++; i >= size {
			st[0] = st[size-1]
			i = 1
		}
	}
	for range max(size, len(key)) {
		st[i] = (st[i] ^ (st[i-1]^st[i-1]>>30)*1664525) + key[j] + uint32(j)
		advance()
		j = (j + 1) % len(key)
	}
	for range size - 1 {
		st[i] = (st[i] ^ (st[i-1]^st[i-1]>>30)*1566083941) - uint32(i)
		advance()
	}
	st[0] = 0x80000000
	s.next = size
}

// uint32 returns the next 32 bits.
func (s *Source) uint32() uint32 {
	if s.next >= size {
		s.refill()
	}
	y := s.state[s.next]
	s.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

func (s *Source) refill() {
	st := &s.state
	for i := range st {
		y := st[i]&0x80000000 | st[(i+1)%size]&0x7fffffff
		st[i] = st[(i+shift)%size] ^ y>>1 ^ (y&1)*0x9908b0df
	}
	s.next = 0
}

// bits returns k random bits, at most 64.
func (s *Source) bits(k int) uint64 {
	if k <= 32 {
		return uint64(s.uint32() >> (32 - k))
	}
	low := uint64(s.uint32())
	return low | uint64(s.uint32()>>(64-k))<<32
}

// Below returns a number from 0 to n-1. It panics if n is 0.
func (s *Source) Below(n uint64) uint64 {
	if n == 0 {
		panic("mersenne: below zero")
	}
	k := 0
	for m := n; m > 0; m >>= 1 {
		k++
	}
	for {
		if r := s.bits(k); r < n {
			return r
		}
	}
}

// Sample returns k different indexes below n in random order. It panics unless
// 0 <= k <= n.
func (s *Source) Sample(n, k int) []int {
	if k < 0 || k > n {
		panic("mersenne: sample larger than the population")
	}
	out := make([]int, k)
	// Python removes from a list if that is smaller than a set would be.
	limit := 21
	if k > 5 {
		limit += int(math.Pow(4, math.Ceil(math.Log(float64(k*3))/math.Log(4))))
	}
	if n <= limit {
		pool := make([]int, n)
		for i := range pool {
			pool[i] = i
		}
		for i := range out {
			j := int(s.Below(uint64(n - i)))
			out[i] = pool[j]
			pool[j] = pool[n-i-1]
		}
		return out
	}
	seen := make(map[int]bool, k)
	for i := range out {
		j := int(s.Below(uint64(n)))
		for seen[j] {
			j = int(s.Below(uint64(n)))
		}
		seen[j] = true
		out[i] = j
	}
	return out
}
