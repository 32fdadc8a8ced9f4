package transport

import "sync"

// Large buffers have sizes in whole units, so that a recycled buffer fits the next message of a
// similar size.
const (
	bufferUnit = 64 << 10
	maxUnits   = 33 // above the largest part of a file with its envelope
)

var buffers [maxUnits + 1]sync.Pool // of *[]byte, by units

// Buffer returns n bytes with undefined content. Recycling large buffers is worthwhile: clearing
// and copying a megabyte takes as long as hashing it.
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

// Recycle returns a Buffer, or the reply to a request, that is no longer used. Calling it is optional: other
// buffers are garbage collected.
func Recycle(b []byte) {
	units := cap(b) / bufferUnit
	if units == 0 || units > maxUnits || cap(b)%bufferUnit != 0 {
		return
	}
	b = b[:0]
	buffers[units].Put(&b)
}
