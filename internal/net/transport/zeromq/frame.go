package zeromq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"brine/internal/net/transport"
	"brine/internal/net/transport/netserve"
)

// Bits of a frame's flags.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

const (
	// smallBody is the size up to which a message is not charged to the
	// listener's budget and not timed.
	smallBody = 8 << 10
	// A large body must be complete after bodyGrace plus the time of its bytes at bodyRate bytes
	// per second.
	bodyGrace = 30 * time.Second
	bodyRate  = 16 << 10

	// The buffer for a large body is a multiple of the received bytes: for unauthenticated peers,
	// and for a peer that answers our request.
	usualGrowth, askedGrowth = 2, 16
	// askedBody is the number of bytes that such a peer must send first.
	askedBody = 64 << 10
)

var errBudget = errors.New("the listener holds too many bytes of unfinished messages")

// limits bounds the input of a decoder.
type limits struct {
	command int // bytes of one command
	message int // bytes of all frames of one message
	frames  int // frames of one message
}

// frame is one frame without its header.
type frame struct {
	flags byte
	body  []byte
}

func (f frame) more() bool    { return f.flags&flagMore != 0 }
func (f frame) command() bool { return f.flags&flagCommand != 0 }

// decoder reads frames from a stream, within limits.
type decoder struct {
	r   io.Reader
	lim limits
	// budget is charged for the large messages while they are unfinished.
	budget *netserve.Budget
	// deadline, if set, bounds the time of large bodies; it is the
	// connection's SetReadDeadline.
	deadline func(time.Time) error
	// asked says that the peer answers our requests: its large bodies are Buffers of package
	// transport.
	asked bool

	buf      []byte // buf[pos:end] is read and not yet decoded
	pos, end int

	frames int   // frames of the current message
	bytes  int   // bytes of the current message
	held   int64 // taken from the budget
}

func newDecoder(r io.Reader, buffer int, lim limits) *decoder {
	return &decoder{r: r, buf: make([]byte, buffer), lim: lim}
}

// close returns the bytes of an unfinished message to the budget.
func (d *decoder) close() { d.release() }

func (d *decoder) release() {
	d.budget.Release(d.held)
	d.held = 0
}

// peek returns the next n bytes without consuming them; n is at most the size of the buffer. At the
// end of the stream the error is io.EOF if there are none.
func (d *decoder) peek(n int) ([]byte, error) {
	for d.end-d.pos < n {
		if d.pos > 0 && d.pos+n > len(d.buf) {
			copy(d.buf, d.buf[d.pos:d.end])
			d.pos, d.end = 0, d.end-d.pos
		}
		m, err := d.r.Read(d.buf[d.end:])
		d.end += m
		if d.end-d.pos >= n {
			break
		}
		if err != nil {
			if err == io.EOF && d.end > d.pos {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return d.buf[d.pos : d.pos+n], nil
}

// await waits for the beginning of the next frame. Long waits happen here, because the stack is
// smaller than in frame.
func (d *decoder) await() error {
	_, err := d.peek(1)
	return err
}

func (d *decoder) skip(n int) {
	d.pos += n
	if d.pos == d.end {
		d.pos, d.end = 0, 0
	}
}

// frame reads the next frame; its body belongs to the caller. The error is io.EOF only if the
// stream ended between two messages. After an error the decoder must not be used.
func (d *decoder) frame() (frame, error) {
	f, size, err := d.header()
	if err != nil {
		if err == io.EOF && d.frames > 0 {
			err = io.ErrUnexpectedEOF
		}
		return f, err
	}
	if f.body, err = d.body(size); err != nil {
		return f, err
	}
	if !f.command() && !f.more() {
		d.frames, d.bytes = 0, 0
		d.release()
	}
	return f, nil
}

// header reads flags and size, and checks both against the limits.
func (d *decoder) header() (f frame, size int, err error) {
	b, err := d.peek(2)
	if err != nil {
		return f, 0, err
	}
	f.flags = b[0]
	n, skip := uint64(b[1]), 2
	switch {
	case f.flags&^(flagMore|flagLong|flagCommand) != 0:
		return f, 0, fmt.Errorf("a frame with the unknown flags %#02x", f.flags)
	case f.command() && f.more():
		return f, 0, errors.New("a command of several frames")
	case f.flags&flagLong != 0:
		if b, err = d.peek(9); err != nil {
			return f, 0, err
		}
		n, skip = binary.BigEndian.Uint64(b[1:]), 9
	}
	d.skip(skip)
	if f.command() {
		if n > uint64(d.lim.command) {
			return f, 0, fmt.Errorf("a command of %d bytes, more than %d", n, d.lim.command)
		}
		return f, int(n), nil
	}
	if d.frames++; d.frames > d.lim.frames {
		return f, 0, fmt.Errorf("a message of more than %d frames", d.lim.frames)
	}
	if n > uint64(d.lim.message-d.bytes) {
		return f, 0, fmt.Errorf("a message of more than %d bytes", d.lim.message)
	}
	d.bytes += int(n)
	return f, int(n), nil
}

// body reads size bytes into a slice that grows with the received bytes.
func (d *decoder) body(size int) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	if size <= len(d.buf) {
		b, err := d.peek(size)
		if err != nil {
			return nil, unexpected(err)
		}
		b = append(make([]byte, 0, size), b...)
		d.skip(size)
		return b, nil
	}
	var b []byte
	switch {
	case d.asked && size > askedBody:
		b = transport.Buffer(askedBody)[:0] // for a moment
	case d.asked:
		b = make([]byte, 0, size)
	default:
		b = make([]byte, 0, min(size, max(smallBody, len(d.buf))))
	}
	b = append(b, d.buf[d.pos:d.end]...) // fewer than size, which exceeds the buffer
	d.pos, d.end = 0, 0
	if size <= smallBody {
		return b[:size], d.fill(b, size)
	}
	return d.large(b, size)
}

// large reads the rest of a body above smallBody, of which b is the beginning, with a deadline and
// on the budget.
func (d *decoder) large(b []byte, size int) ([]byte, error) {
	start := time.Now()
	if !d.charge(cap(b)) {
		return nil, errBudget
	}
	for room := cap(b); ; {
		if d.deadline != nil {
			d.deadline(start.Add(bodyGrace + time.Duration(len(b))*time.Second/bodyRate))
		}
		if err := d.fill(b, room); err != nil {
			if d.deadline != nil && errors.Is(err, os.ErrDeadlineExceeded) {
				err = fmt.Errorf("a message of %d bytes that arrives too slowly", size)
			}
			return nil, err
		}
		b = b[:room]
		if len(b) == size {
			break
		}
		growth, fresh := usualGrowth, func(n int) []byte { return make([]byte, n) }
		if d.asked {
			growth, fresh = askedGrowth, transport.Buffer
		}
		room = min(size, growth*len(b))
		if !d.charge(room - len(b)) {
			return nil, errBudget
		}
		bigger := fresh(room)[:len(b)]
		copy(bigger, b)
		if d.asked {
			transport.Recycle(b)
		}
		b = bigger
	}
	if d.deadline != nil {
		d.deadline(time.Time{})
	}
	return b, nil
}

// charge takes n bytes from the budget until the message is complete.
func (d *decoder) charge(n int) bool {
	if !d.budget.Acquire(int64(n)) {
		return false
	}
	d.held += int64(n)
	return true
}

// fill reads b[len(b):n].
func (d *decoder) fill(b []byte, n int) error {
	_, err := io.ReadFull(d.r, b[len(b):n])
	return unexpected(err)
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendHeader appends the header of a frame of n bytes.
func appendHeader(b []byte, flags byte, n int) []byte {
	if n <= 255 {
		return append(b, flags, byte(n))
	}
	b = append(b, flags|flagLong)
	return binary.BigEndian.AppendUint64(b, uint64(n))
}

// appendFrame appends a whole frame.
func appendFrame(b []byte, flags byte, body []byte) []byte {
	return append(appendHeader(b, flags, len(body)), body...)
}
