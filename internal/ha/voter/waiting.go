package voter

import (
	"maps"
	"slices"

	"brine/internal/ha/lease"
)

// waiting holds the requests that wait for a majority, by the number of their command or read. Each function is called once. done means
// that the answer is that of the voters; otherwise the result is unknown.
type waiting map[uint64]func(a lease.Answer, done bool)

// maxWaiting bounds the number of waiting requests.
const maxWaiting = 256

// add returns the number for a request.
func (w waiting) add(fn func(a lease.Answer, done bool)) (id uint64, ok bool) {
	if len(w) >= maxWaiting {
		return 0, false
	}
	id = newNumber()
	w[id] = fn
	return id, true
}

// answer ends the wait for a number.
func (w waiting) answer(id uint64, a lease.Answer, done bool) {
	if fn := w[id]; fn != nil {
		delete(w, id)
		fn(a, done)
	}
}

// drop ends all waits.
func (w waiting) drop() {
	for _, id := range slices.Sorted(maps.Keys(w)) {
		w.answer(id, lease.Answer{}, false)
	}
}
