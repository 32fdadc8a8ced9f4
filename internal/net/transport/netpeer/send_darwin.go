package netpeer

import "golang.org/x/sys/unix"

// Send writes b, which is not empty, to a socket that does not wait.
func Send(fd int, b []byte) (int, error) { return unix.Write(fd, b) }
