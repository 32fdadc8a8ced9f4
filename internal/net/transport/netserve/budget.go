package netserve

import "sync/atomic"

// Budget is an allowance of bytes shared by all peers of one listener. It
// bounds what strangers can make the program hold together, whereas a bound
// per message alone would multiply with the number of connections. The nil
// Budget allows everything. It is safe for concurrent use.
type Budget struct {
	max  int64
	used atomic.Int64
}

// NewBudget returns a budget of max bytes.
func NewBudget(max int64) *Budget { return &Budget{max: max} }

// large are acquisitions that leave a quarter of the budget to smaller ones, so
// that a few peers with huge messages do not keep all others from speaking.
const large = 4 << 20

// Acquire takes n bytes, or takes nothing and returns false if fewer are left.
// It never waits: a peer that cannot have its buffer must be refused, for a
// waiting one would hold what it has and starve the others.
func (b *Budget) Acquire(n int64) bool {
	if b == nil || n <= 0 {
		return true
	}
	limit := b.max
	if n > large {
		limit -= limit / 4
	}
	if b.used.Add(n) > limit {
		b.used.Add(-n)
		return false
	}
	return true
}

// Release gives back n bytes that Acquire granted.
func (b *Budget) Release(n int64) {
	if b != nil && n > 0 {
		b.used.Add(-n)
	}
}

// Used is the number of bytes taken now.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	return b.used.Load()
}
