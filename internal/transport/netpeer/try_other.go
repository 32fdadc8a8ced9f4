//go:build !linux && !darwin

package netpeer

// Try writes nothing: sockets cannot be tried without waiting here.
func (c *Conn) Try([]Message) int { return 0 }

// Closed cannot tell here.
func (c *Conn) Closed() bool { return false }

// CanTry tells whether Try is of use on this connection.
func (c *Conn) CanTry() bool { return false }
