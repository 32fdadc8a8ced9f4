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

// door lets in programs that connect. Whoever is about to publish an event
// first lets in those who stand before it: for them the connection exists
// since the kernel took it, however late this process gets to accept it, and
// the salt command publishes a job as soon as it is connected.
type door struct {
	enter func(net.Conn) // must not wait
	addr  net.Addr
	file  *os.File // the listening socket
	raw   syscall.RawConn

	admitOne func(fd uintptr) // look: a method value would be made anew for each event

	mu     sync.Mutex // held from accept to the end of enter
	closed bool
}

// newDoor takes over l.
func newDoor(l net.Listener, enter func(net.Conn)) (*door, error) {
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
	d := &door{enter: enter, addr: l.Addr(), file: f, raw: raw}
	d.admitOne = d.look
	return d, nil
}

// admit lets in who waits now.
func (d *door) admit() { _ = d.raw.Control(d.admitOne) }

// look is admit, given the socket. Every event passes here and hardly ever
// anybody waits, so it asks before it accepts: to accept, the kernel makes a
// socket before it finds out that there is nobody, which costs ten times as much.
func (d *door) look(fd uintptr) {
	d.mu.Lock() // who was accepted elsewhere just now has entered then
	defer d.mu.Unlock()
	if !d.closed && waits(int(fd)) {
		_ = d.empty(int(fd))
	}
}

// waits tells whether there may be somebody to accept.
func waits(fd int) bool {
	for {
		fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds[:], 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0 || err != nil
		}
	}
}

// attend lets in who comes, until the door is closed, which is no error. A
// lack of file handles passes.
func (d *door) attend(log *slog.Logger) error {
	for {
		var lack error
		err := d.raw.Read(func(fd uintptr) bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			lack = d.empty(int(fd))
			return lack != nil
		})
		switch {
		case errors.Is(err, os.ErrClosed), errors.Is(lack, os.ErrClosed):
			return nil
		case err != nil:
			return err
		}
		log.Warn("the event bus cannot accept a program", "error", lack)
		time.Sleep(100 * time.Millisecond)
	}
}

// empty accepts until nobody waits; d.mu is held.
func (d *door) empty(fd int) error {
	for !d.closed {
		conn, err := acceptOne(fd)
		switch {
		case err == nil:
			d.enter(conn)
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
		default:
			return err
		}
	}
	return os.ErrClosed
}

// close ends listening; afterwards nobody enters.
func (d *door) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.file.Close()
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
