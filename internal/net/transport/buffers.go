package transport

import "sync"

// Buffers of large messages come in whole units, so that one that was given back
// fits the next message of about that size.
const (
	bufferUnit = 64 << 10
	maxUnits   = 33 // above the largest part of a file, with what is around it
)

var buffers [maxUnits + 1]sync.Pool // of *[]byte, by units

// Buffer returns n bytes with anything in them. Those of a large message are
// worth using again: to clear and to copy a megabyte takes as long as to hash it.
func Buffer(n int) []byte {
	units := (n + bufferUnit - 1) / bufferUnit
	if units > maxUnits {
		return make([]byte, n)
	}
	if b, ok := buffers[units].Get().(*[]byte); ok {
		return (*b)[:n]
	}
	return make([]byte, n, units*bufferUnit)
}

// Recycle gives a Buffer back, or the reply to a request, of which nothing is used
// any more. Nobody has to: what is not given back is garbage.
func Recycle(b []byte) {
	units := cap(b) / bufferUnit
	if units == 0 || units > maxUnits || cap(b)%bufferUnit != 0 {
		return
	}
	b = b[:0]
	buffers[units].Put(&b)
}
