//go:build !linux && !darwin

package zeromq

import "syscall"

// writeOnce writes nothing: where sockets cannot be tried without waiting, a
// goroutine per busy connection does all the writing.
func (b *batch) writeOnce(uintptr) bool {
	b.wrote, b.err = 0, nil
	return true
}

// reuseAddr has no equal here.
func reuseAddr(string, string, syscall.RawConn) error { return nil }
