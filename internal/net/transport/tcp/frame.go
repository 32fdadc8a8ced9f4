package tcp

import (
	"errors"
	"fmt"
	"net"
	"time"

	"brine/internal/net/transport/netserve"
	"brine/internal/py/msgpack"
)

// Values of "beat" in a head.
const (
	noBeat   = 0
	pingBeat = 1
	pongBeat = 2
)

var (
	pingFrame  = []byte("\x82\xa4head\x81\xa4beat\x01\xa4body\xc0")
	pongFrame  = []byte("\x82\xa4head\x81\xa4beat\x02\xa4body\xc0")
	helloFrame = []byte("\x82\xa4head\x81\xa4beat\x01\xa4body\x81\xa3enc\xa4beat")
)

// emptyHead begins a frame with an empty head.
const emptyHead = "\x82\xa4head\x80\xa4body"

// publishHead begins the frame of a publication; the payload follows.
func publishHead(payload []byte) []byte {
	b := append(make([]byte, 0, len(emptyHead)+5), emptyHead...)
	return appendBinHeader(b, len(payload))
}

// appendBinHeader appends what precedes n bytes in new-spec bin.
func appendBinHeader(b []byte, n int) []byte {
	switch {
	case n < 1<<8:
		return append(b, 0xc4, byte(n))
	case n < 1<<16:
		return append(b, 0xc5, byte(n>>8), byte(n))
	}
	return append(b, 0xc6, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// requestHead begins the frame of a request; the envelope follows.
func requestHead(mid string, beat bool) []byte {
	b := append(make([]byte, 0, 32+len(mid)), "\x82\xa4head"...)
	if beat {
		b = append(b, "\x82\xa4beat\x01"...)
	} else {
		b = append(b, 0x81)
	}
	b = append(b, "\xa3mid"...)
	b = msgpack.AppendString(b, mid, msgpack.NewSpec)
	return append(b, "\xa4body"...)
}

var errNotFrame = errors.New("not a map with head and body")

// splitFrame returns the encoded head and body of a frame, which must be
// exactly one msgpack object.
func splitFrame(b []byte) (head, body []byte, err error) {
	n, rest, ok := openMap(b)
	if !ok {
		return nil, nil, errNotFrame
	}
	for ; n > 0; n-- {
		k, err := skip(rest)
		if err != nil {
			return nil, nil, err
		}
		key, _ := msgpack.Text(rest[:k])
		rest = rest[k:]
		v := len(rest) // the last value is all that is left
		if n > 1 {
			if v, err = skip(rest); err != nil {
				return nil, nil, err
			}
		}
		switch string(key) {
		case "head":
			head = rest[:v:v]
		case "body":
			body = rest[:v:v]
		}
		rest = rest[v:]
	}
	if len(head) == 0 || len(body) == 0 || len(rest) > 0 {
		return nil, nil, errNotFrame
	}
	return head, body, nil
}

// skip returns the size of the first object of b. It measures the usual heads itself, which is
// fast.
func skip(b []byte) (n int, err error) {
	switch {
	case len(b) == 0:
	case b[0] <= 0x7f || b[0] == 0x80 || b[0] == 0xc0:
		return 1, nil
	case b[0]&0xe0 == 0xa0:
		n = 1 + int(b[0]&0x1f)
	case b[0] == 0xd9 && len(b) > 1:
		n = 2 + int(b[1])
	case b[0] == 0x81 && len(b) > 1 && b[1]&0xe0 == 0xa0: // a head with only mid
		key := 2 + int(b[1]&0x1f)
		if len(b) > key+1 && b[key] == 0xd9 {
			n = key + 2 + int(b[key+1])
		}
	}
	if n > 0 && n <= len(b) {
		return n, nil
	}
	return msgpack.Limits{Bytes: max(len(b), 1)}.Skip(b)
}

// openMap reads the start of a map.
func openMap(b []byte) (entries int, rest []byte, ok bool) {
	switch {
	case len(b) >= 1 && b[0]&0xf0 == 0x80:
		return int(b[0] & 0x0f), b[1:], true
	case len(b) >= 3 && b[0] == 0xde:
		return int(b[1])<<8 | int(b[2]), b[3:], true
	case len(b) >= 5 && b[0] == 0xdf:
		return int(b[1])<<24 | int(b[2])<<16 | int(b[3])<<8 | int(b[4]), b[5:], true
	}
	return 0, nil, false
}

// readHead returns mid (nil if missing) and beat of a head. It ignores anything else, and a head
// that is not a map.
func readHead(head []byte) (mid []byte, beat int) {
	n, rest, ok := openMap(head)
	for ; ok && n > 0; n-- {
		k, err := skip(rest)
		if err != nil {
			return mid, beat
		}
		key, _ := msgpack.Text(rest[:k])
		rest = rest[k:]
		v, err := skip(rest)
		if err != nil {
			return mid, beat
		}
		switch string(key) {
		case "mid":
			if mid, ok = msgpack.Text(rest[:v]); !ok {
				mid, ok = rest[:v], true
			}
		case "beat":
			if v == 1 && rest[0] <= pongBeat {
				beat = int(rest[0])
			}
		}
		rest = rest[v:]
	}
	return mid, beat
}

const (
	// smallBuffer is the minimum read buffer of a connection, but at most a part of its largest
	// message. A larger buffer is allocated for the one message that needs it.
	smallBuffer     = 2 << 10
	smallBufferPart = 128
	// directBuffer is the size of messages for which the buffer is allocated at once, and not as
	// they arrive.
	directBuffer = 16 << 10
)

// A message in a large buffer must make progress: it has stallTime, plus its time at slowRate bytes
// per second.
const (
	stallTime = 30 * time.Second
	slowRate  = 16 << 10
)

// frameReader splits a stream into frames.
type frameReader struct {
	conn   net.Conn
	budget *netserve.Budget // nil for a peer that is trusted
	// deadline says that conn has a read deadline, which the first frame lifts.
	deadline bool

	small      []byte // the buffer as long as it suffices
	buf        []byte // buf[start:end] is read but not returned
	start, end int
	held       int64 // of the budget
	scan       msgpack.Scanner
}

// newFrameReader returns a reader of frames of about max bytes.
func newFrameReader(c net.Conn, max int, budget *netserve.Budget) *frameReader {
	small := make([]byte, min(smallBuffer, max/smallBufferPart))
	return &frameReader{
		conn:   c,
		budget: budget,
		small:  small,
		buf:    small,
		scan:   msgpack.Scanner{Limits: msgpack.Limits{Bytes: max + 256}},
	}
}

// next returns the next frame in newly allocated memory.
func (r *frameReader) next() ([]byte, error) {
	for {
		if r.end > r.start {
			n, err := r.scan.Next(r.buf[r.start:r.end])
			if err == nil {
				return r.cut(n)
			}
			if !errors.Is(err, msgpack.ErrShort) {
				return nil, err
			}
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// cut returns the first n bytes. A large buffer is returned with the message for which it was
// allocated, so that a large message is not copied.
func (r *frameReader) cut(n int) ([]byte, error) {
	frame := r.buf[r.start : r.start+n : r.start+n]
	r.start += n
	if r.deadline {
		r.deadline = false
		r.conn.SetReadDeadline(time.Time{})
	}
	large := len(r.buf) > len(r.small)
	give := large && n >= len(r.buf)/2
	if !give {
		frame = append([]byte(nil), frame...)
	}
	if give || large && r.end-r.start <= len(r.small) {
		return frame, r.move()
	}
	return frame, nil
}

// move copies the rest to a buffer of its size.
func (r *frameReader) move() error {
	rest := r.buf[r.start:r.end]
	r.release()
	r.buf = r.small
	if len(rest) > len(r.small) {
		if err := r.acquire(len(rest)); err != nil {
			return err
		}
		r.buf = make([]byte, len(rest))
	}
	r.start, r.end = 0, copy(r.buf, rest)
	return nil
}

// fill reads once, after making room.
func (r *frameReader) fill() error {
	if r.start == r.end {
		r.start, r.end = 0, 0
	}
	if r.end == len(r.buf) {
		if r.start > 0 {
			r.end = copy(r.buf, r.buf[r.start:r.end])
			r.start = 0
		} else if err := r.grow(); err != nil {
			return err
		}
	}
	n, err := r.conn.Read(r.buf[r.end:])
	r.end += n
	if n > 0 {
		return nil
	}
	return err
}

// grow doubles the buffer, or fits it to the message if that is smaller.
func (r *frameReader) grow() error {
	size := 2 * len(r.buf)
	if need := r.scan.Need(); need > len(r.buf) && (need < size || need <= directBuffer) {
		size = need
	}
	old := r.held
	if err := r.acquire(size); err != nil {
		return err
	}
	buf := make([]byte, size)
	r.end = copy(buf, r.buf[:r.end])
	r.buf = buf
	r.budget.Release(old)
	if r.budget != nil {
		r.deadline = true
		waitLimit := stallTime + time.Duration(size-r.end)*time.Second/slowRate
		r.conn.SetReadDeadline(time.Now().Add(waitLimit))
	}
	return nil
}

func (r *frameReader) acquire(n int) error {
	if !r.budget.Acquire(int64(n)) {
		return fmt.Errorf("no room for a message of at least %d bytes: too many unfinished messages", n)
	}
	r.held = int64(n)
	return nil
}

// release returns the bytes to the budget.
func (r *frameReader) release() {
	r.budget.Release(r.held)
	r.held = 0
}
