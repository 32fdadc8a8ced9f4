package zeromq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Names of the commands.
const (
	cmdReady     = "READY"
	cmdError     = "ERROR"
	cmdSubscribe = "SUBSCRIBE"
	cmdCancel    = "CANCEL"
	cmdPing      = "PING"
	cmdPong      = "PONG"
)

const (
	greetingSize = 64
	// maxCommand bounds a received command; libzmq's READY has some 40 bytes.
	maxCommand = 4 << 10
	// maxContext bounds the context of a PING.
	maxContext = 16
)

// greeting returns the first bytes of both sides.
func greeting() []byte {
	g := make([]byte, greetingSize)
	g[0], g[8], g[9] = 0xFF, 1, 0x7F
	g[10], g[11] = 3, 1
	copy(g[12:], "NULL")
	return g
}

// readGreeting returns the minor version of a peer of ZMTP 3. It fails as soon as the bytes cannot
// become a supported greeting.
func readGreeting(d *decoder) (minor int, err error) {
	b, err := d.peek(1)
	if err != nil {
		return 0, err
	}
	if b[0] != 0xFF {
		return 0, errors.New("not a ZeroMQ peer (or one of ZMTP 1)")
	}
	if b, err = d.peek(11); err != nil {
		return 0, err
	}
	if b[9]&1 == 0 {
		return 0, errors.New("not a ZeroMQ peer")
	}
	if b[10] < 3 {
		return 0, fmt.Errorf("the peer uses ZMTP %d instead of 3 (libzmq 4.0 or newer)", b[10])
	}
	if b, err = d.peek(greetingSize); err != nil {
		return 0, err
	}
	if mechanism := strings.TrimRight(string(b[12:32]), "\x00"); mechanism != "NULL" {
		return 0, fmt.Errorf("the peer requires the security mechanism %q; only NULL is supported", mechanism)
	}
	minor = int(b[11])
	if b[10] > 3 {
		minor = 1
	}
	d.skip(greetingSize)
	return minor, nil
}

// appendCommand appends a whole command frame.
func appendCommand(b []byte, name string, data ...[]byte) []byte {
	n := 1 + len(name)
	for _, d := range data {
		n += len(d)
	}
	b = appendHeader(b, flagCommand, n)
	b = append(b, byte(len(name)))
	b = append(b, name...)
	for _, d := range data {
		b = append(b, d...)
	}
	return b
}

// parseCommand splits the body of a command frame.
func parseCommand(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || len(body) < 1+int(body[0]) {
		return "", nil, errors.New("a command without a whole name")
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:], nil
}

// ready is the content of a READY command.
type ready struct {
	socket   string // Socket-Type
	identity string
}

// appendReady appends a READY command; an empty identity is omitted.
func appendReady(b []byte, r ready) []byte {
	data := appendProperty(nil, "Socket-Type", r.socket)
	if r.identity != "" {
		data = appendProperty(data, "Identity", r.identity)
	}
	return appendCommand(b, cmdReady, data)
}

func appendProperty(b []byte, name, value string) []byte {
	b = append(b, byte(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// parseReady reads the data of a READY command. Unknown properties are ignored.
func parseReady(data []byte) (ready, error) {
	var r ready
	for len(data) > 0 {
		n := 1 + int(data[0])
		if len(data) < n+4 {
			return r, errors.New("a cut property in READY")
		}
		name := string(data[1:n])
		size := binary.BigEndian.Uint32(data[n:])
		data = data[n+4:]
		if uint64(size) > uint64(len(data)) {
			return r, fmt.Errorf("a cut value of %q in READY", name)
		}
		value := string(data[:size])
		data = data[size:]
		switch {
		case strings.EqualFold(name, "Socket-Type"):
			r.socket = value
		case strings.EqualFold(name, "Identity"):
			r.identity = value
		}
	}
	if r.socket == "" {
		return r, errors.New("READY without a Socket-Type")
	}
	return r, nil
}

// appendError appends an ERROR command.
func appendError(b []byte, reason string) []byte {
	reason = reason[:min(len(reason), 255)]
	return appendCommand(b, cmdError, []byte{byte(len(reason))}, []byte(reason))
}

// parseError returns the reason in an ERROR command.
func parseError(data []byte) error {
	if len(data) == 0 || len(data) < 1+int(data[0]) {
		return errors.New("the peer refused without a reason")
	}
	return fmt.Errorf("the peer refused: %q", data[1:1+int(data[0])])
}

// appendPing appends a PING. A libzmq peer closes the connection if it receives nothing for ttl
// after a PING; 0 means that it waits forever.
func appendPing(b []byte, ttl time.Duration) []byte {
	tenths := min(int64(ttl/(100*time.Millisecond)), 0xFFFF)
	return appendCommand(b, cmdPing, binary.BigEndian.AppendUint16(nil, uint16(tenths)))
}

// appendPong appends the answer to a PING with the given data.
func appendPong(b, data []byte) ([]byte, error) {
	if len(data) < 2 || len(data) > 2+maxContext {
		return b, fmt.Errorf("a PING with %d bytes", len(data))
	}
	return appendCommand(b, cmdPong, data[2:]), nil
}
