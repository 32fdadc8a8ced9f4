package zeromq

import (
	"syscall"

	"golang.org/x/sys/unix"

	"brine/internal/net/transport/netpeer"
)

// writeOnce is the callback for RawConn.Write: it writes what the socket accepts now. It always
// reports done, so that it never waits for the socket.
func (b *batch) writeOnce(fd uintptr) bool {
	for {
		b.wrote, b.err = netpeer.SendParts(int(fd), b.bufs, b.flat[:])
		switch b.err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			b.wrote, b.err = 0, nil
		}
		b.wrote = max(b.wrote, 0)
		return true
	}
}

// reuseAddr lets a new connection use a fixed local port right after the last one.
func reuseAddr(_, _ string, raw syscall.RawConn) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}); cerr != nil {
		return cerr
	}
	return err
}
