package discovery

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// shared lets several masters on one machine have the port.
func shared(_, _ string, raw syscall.RawConn) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}); cerr != nil {
		return cerr
	}
	return err
}
