package ha

import (
	"errors"
	"net"
	"strconv"
	"sync"
)

// wire is a proxy between minions and a master on this machine. It listens on another address with
// the same ports. While it is cut it drops all data.
type wire struct {
	mu        sync.Mutex
	dead      bool
	listeners []net.Listener
	conns     []net.Conn
}

func (w *wire) listen(ports []int) error {
	for _, p := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort(apart, strconv.Itoa(p)))
		if err != nil {
			return errors.Join(errors.New("this fault needs a second loopback address"), err)
		}
		w.listeners = append(w.listeners, l)
		go w.serve(l, net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
	}
	return nil
}

func (w *wire) serve(l net.Listener, to string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			in.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, in, out)
		w.mu.Unlock()
		go w.carry(in, out)
		go w.carry(out, in)
	}
}

func (w *wire) carry(from, to net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if dead := w.isDead(); err != nil {
			if !dead { // a cut cable sends no FIN
				to.Close()
			}
			return
		} else if dead {
			continue
		}
		_, _ = to.Write(b[:n])
	}
}

func (w *wire) isDead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
}

// mend lets new connections through. Connections that have lost data are closed.
func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = false
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

func (w *wire) close() {
	for _, l := range w.listeners {
		l.Close()
	}
	w.mend()
}
