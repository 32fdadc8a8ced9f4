package transport

import "testing"

func TestBuffer(t *testing.T) {
	for _, n := range []int{0, 1, bufferUnit, bufferUnit + 1, 1<<20 + 300, maxUnits * bufferUnit, maxUnits*bufferUnit + 1} {
		for range 3 { // new, and recycled
			b := Buffer(n)
			if len(b) != n || cap(b) > n+bufferUnit {
				t.Fatalf("%d bytes and room for %d, not %d", len(b), cap(b), n)
			}
			for i := range b {
				b[i] = 1
			}
			Recycle(b)
		}
	}
	for _, b := range [][]byte{nil, {}, make([]byte, 5), make([]byte, bufferUnit+5), make([]byte, 100*bufferUnit)} {
		Recycle(b) // too large to be kept
	}
	if b := Buffer(bufferUnit + 5); cap(b) != 2*bufferUnit {
		t.Errorf("room for %d bytes", cap(b))
	}
}
