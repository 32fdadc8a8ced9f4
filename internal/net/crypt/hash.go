package crypt

import (
	"hash"
	"io"
	"sync"
)

// hashBuffers are for HashReader: states and file servers hash thousands of small files, and
// io.Copy allocates a buffer of 32 KB for each.
var hashBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// HashReader adds all data of r to a hash.
func HashReader(h hash.Hash, r io.Reader) error {
	buf := hashBuffers.Get().(*[32 << 10]byte)
	defer hashBuffers.Put(buf)
	for {
		n, err := r.Read(buf[:])
		h.Write(buf[:n]) // never fails
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}
