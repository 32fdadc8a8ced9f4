package netserve

import "sync/atomic"

// Budget bounds the bytes that all peers of one listener may occupy together. A bound per message
// would multiply with the number of connections of unauthenticated peers. The nil Budget allows
// everything. It is safe for concurrent use.
type Budget struct {
	max  int64
	used atomic.Int64
}

// NewBudget returns a budget of max bytes.
func NewBudget(max int64) *Budget { return &Budget{max: max} }

// large are acquisitions that must leave a quarter of the budget to smaller ones, so that a few
// peers with huge messages do not block all others.
const large = 4 << 20

// Acquire takes n bytes, or nothing and returns false if fewer are left. It never waits: a waiting
// peer would keep its bytes and block the others.
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

// Release returns n bytes that Acquire granted.
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
