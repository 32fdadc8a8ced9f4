package netpeer

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Send writes b, which is not empty, to a socket without waiting. sendto is faster than write: it
// saves some 5 % of the cost of a publication per subscriber.
func Send(fd int, b []byte) (int, error) {
	n, _, e := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
