//go:build !linux && !darwin

package netpeer

import "syscall"

// Try writes nothing: sockets cannot be tried without waiting here.
func (c *Conn) Try([]Message) int { return 0 }

// Peek cannot tell here; whoever reads will.
func Peek(syscall.RawConn) (unread, closed bool) { return false, false }

// CanTry tells whether Try is of use on this connection.
func (c *Conn) CanTry() bool { return false }
