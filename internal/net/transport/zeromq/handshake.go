package zeromq

import (
	"errors"
	"fmt"
	"net"
	"slices"
)

// peer is what is known about the other side of a connection.
type peer struct {
	minor int // of ZMTP 3
	ready
}

// handshake exchanges greeting and READY. The connection's deadlines must be set. It sends
// everything first, as libzmq expects. The error is the plain io.EOF if the peer disconnected
// without an answer.
func handshake(c net.Conn, d *decoder, self ready, accept ...string) (peer, error) {
	if _, err := c.Write(appendReady(greeting(), self)); err != nil {
		return peer{}, err
	}
	p, err := readPeer(d)
	if err != nil {
		return p, err
	}
	if !slices.Contains(accept, p.socket) {
		err = fmt.Errorf("the peer's socket is a %q, which cannot talk to a %s", p.socket, self.socket)
		c.Write(appendError(nil, err.Error())) // only a courtesy
	}
	return p, err
}

func readPeer(d *decoder) (p peer, err error) {
	if p.minor, err = readGreeting(d); err != nil {
		return p, err
	}
	f, err := d.frame()
	if err != nil {
		return p, unexpected(err)
	}
	if !f.command() {
		return p, errors.New("a message before READY")
	}
	name, data, err := parseCommand(f.body)
	if err != nil {
		return p, err
	}
	switch name {
	case cmdReady:
		p.ready, err = parseReady(data)
		return p, err
	case cmdError:
		return p, parseError(data)
	}
	return p, fmt.Errorf("the command %q instead of READY", name)
}
