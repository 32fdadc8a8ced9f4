package event

import (
	"context"
	"io"
	"iter"
	"net"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

func dial(ctx context.Context, at Sockets, addr string) (net.Conn, error) {
	if err := at.check(); err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, at.Network, addr)
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot reach the event bus; is the daemon running, and may this user use it: %w", err)
	}
	return conn, nil
}

// Reader reads the events of another process.
type Reader struct {
	conn   net.Conn
	frames frameReader
	stop   func() bool
}

// Dial connects to a bus to read its events from now on. When ctx ends, so does the connection. The
// kind of an error is Unavailable if no daemon listens.
func Dial(ctx context.Context, at Sockets) (*Reader, error) {
	conn, err := dial(ctx, at, at.Pub)
	if err != nil {
		return nil, err
	}
	r := &Reader{conn: conn, frames: frameReader{r: conn}}
	r.stop = context.AfterFunc(ctx, func() { conn.Close() })
	// This identifies a Brine program to the bus; a failure shows when the first event is read.
	_ = r.OwnOnly(false)
	return r, nil
}

// settleTime is the timeout of Settle.
const settleTime = 500 * time.Millisecond

// Settle waits until the bus has accepted the connections that were dialled before: a daemon may answer a
// request before it has accepted the connection on which the answer is read. A bus accepts connections in
// order and closes one that the peer ends, so Settle does that with a connection of its own. An error means
// that the bus is slow, or of another kind; the connections may still be used.
func Settle(ctx context.Context, at Sockets) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	conn, err := dial(ctx, at, at.Pub)
	if err != nil {
		return err
	}
	defer conn.Close()
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	if err := half.CloseWrite(); err != nil {
		return err
	}
	end, _ := ctx.Deadline()
	if err := conn.SetReadDeadline(end); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	return err
}

// Next waits for the next event. It fails when the connection has ended.
func (r *Reader) Next() (*Event, error) {
	for {
		body, err := r.frames.next()
		if err != nil {
			return nil, salt.Errorf(salt.Unavailable, "the connection to the event bus has ended: %w", err)
		}
		if e, err := parseBody(body); err == nil && e.Tag != tagWake {
			return e, nil
		}
	}
}

// Events yields the events whose tags begin with one of the prefixes, or all
// if there is none. The last pair is the error that ended the connection.
func (r *Reader) Events(prefixes ...string) iter.Seq2[*Event, error] {
	want := listener{prefixes: prefixes}
	return func(yield func(*Event, error) bool) {
		for {
			e, err := r.Next()
			if err != nil {
				yield(nil, err)
				return
			}
			if want.wants(e.Tag) && !yield(e, nil) {
				return
			}
		}
	}
}

// Messages of a reader to the bus, as bodies of frames. Salt's bus ignores them.
const (
	tagOwnOnly = "brine/reader/own"
	tagAll     = "brine/reader/all"
	tagSyndic  = "brine/reader/syndic"
)

// OwnOnly tells the bus whether this reader waits only for events of jobs that were started at the
// same daemon, or for all events, which is the default. In a cluster this decides which events
// other masters send.
func (r *Reader) OwnOnly(own bool) error {
	tag := tagAll
	if own {
		tag = tagOwnOnly
	}
	_, err := r.conn.Write(Frame([]byte(tag + tagEnd)))
	return err
}

// IsSyndic tells the bus that this reader is the syndic of the master, so that no syndic of Salt can
// be expected, for which returns would be kept.
func (r *Reader) IsSyndic() error {
	_, err := r.conn.Write(Frame([]byte(tagSyndic + tagEnd)))
	return err
}

// SetDeadline sets the time after which Next fails; the zero time means never.
func (r *Reader) SetDeadline(t time.Time) error { return r.conn.SetReadDeadline(t) }

// Close ends the connection.
func (r *Reader) Close() error {
	r.stop()
	return r.conn.Close()
}

// Pusher sends events to the bus of another process. It is not safe for
// concurrent use.
type Pusher struct {
	conn    net.Conn
	maxSize int
}

// DialPush connects to a bus to send events. maxEventSize is as in NewBus.
func DialPush(ctx context.Context, at Sockets, maxEventSize int) (*Pusher, error) {
	conn, err := dial(ctx, at, at.Pull)
	if err != nil {
		return nil, err
	}
	return &Pusher{conn, maxEventSize}, nil
}

// Fire sends an event with the time in _stamp. There is no answer: no error means that the kernel
// accepted it.
func (p *Pusher) Fire(ctx context.Context, tag string, data *value.Dict) error {
	if tag == "" || strings.Contains(tag, tagEnd) {
		return salt.Errorf(salt.Invalid, "%q is not a valid tag of an event", tag)
	}
	d := data.Clone()
	d.Set("_stamp", Stamp(time.Now()))
	frame, err := (&Event{Tag: tag, Data: d, maxSize: p.maxSize}).Frame()
	if err != nil {
		return salt.Errorf(salt.Invalid, "cannot encode the event %s: %w", tag, err)
	}
	deadline, _ := ctx.Deadline()
	p.conn.SetWriteDeadline(deadline)
	if _, err := p.conn.Write(frame); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot send the event %s: %w", tag, err)
	}
	return nil
}

// Close ends the connection after all sent data.
func (p *Pusher) Close() error { return p.conn.Close() }

// Push sends one event.
func Push(ctx context.Context, at Sockets, tag string, data *value.Dict) error {
	p, err := DialPush(ctx, at, 0)
	if err != nil {
		return err
	}
	defer p.Close()
	return p.Fire(ctx, tag, data)
}
