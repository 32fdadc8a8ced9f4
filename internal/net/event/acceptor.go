package event

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// acceptor accepts the connections of programs. A publisher of an event first
// accepts the pending connections: these programs are connected since the kernel
// completed the handshake, and the salt command publishes a job right after that.
type acceptor struct {
	enter func(net.Conn) // must not block
	addr  net.Addr
	file  *os.File // the listening socket
	raw   syscall.RawConn

	admitOne func(fd uintptr) // the method tryAccept, allocated once

	mu     sync.Mutex // held from accept to the end of enter
	closed bool
}

// newAcceptor takes over l.
func newAcceptor(l net.Listener, enter func(net.Conn)) (*acceptor, error) {
	defer l.Close() // the file below is another handle of the socket
	f, err := l.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	a := &acceptor{enter: enter, addr: l.Addr(), file: f, raw: raw}
	a.admitOne = a.tryAccept
	return a, nil
}

// admit accepts the pending connections.
func (a *acceptor) admit() { _ = a.raw.Control(a.admitOne) }

// tryAccept is admit for a socket. It runs at each event and hardly ever finds a
// connection, so it polls before it accepts: accept creates a socket before it
// finds the queue empty, which costs ten times as much.
func (a *acceptor) tryAccept(fd uintptr) {
	a.mu.Lock() // waits until a connection accepted elsewhere is registered
	defer a.mu.Unlock()
	if !a.closed && pending(int(fd)) {
		_ = a.acceptAll(int(fd))
	}
}

// pending reports whether there may be a connection to accept.
func pending(fd int) bool {
	for {
		fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds[:], 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0 || err != nil
		}
	}
}

// run accepts connections until the acceptor is closed, which is not an error. It
// retries after a lack of file descriptors.
func (a *acceptor) run(log *slog.Logger) error {
	for {
		var lack error
		err := a.raw.Read(func(fd uintptr) bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			lack = a.acceptAll(int(fd))
			return lack != nil
		})
		switch {
		case errors.Is(err, os.ErrClosed), errors.Is(lack, os.ErrClosed):
			return nil
		case err != nil:
			return err
		}
		log.Warn("cannot accept a connection to the event bus", "err", lack)
		time.Sleep(100 * time.Millisecond)
	}
}

// acceptAll accepts all pending connections; a.mu is held.
func (a *acceptor) acceptAll(fd int) error {
	for !a.closed {
		conn, err := acceptOne(fd)
		switch {
		case err == nil:
			a.enter(conn)
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
		default:
			return err
		}
	}
	return os.ErrClosed
}

// close stops listening; no connection is accepted afterwards.
func (a *acceptor) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.file.Close()
}

func acceptOne(fd int) (net.Conn, error) {
	n, _, err := unix.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("accept", err)
	}
	f := os.NewFile(uintptr(n), "a program at the event bus")
	defer f.Close()
	return net.FileConn(f)
}
