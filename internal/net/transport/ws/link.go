package ws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"brine/internal/base/salt"
	"brine/internal/net/transport/netpeer"
	"brine/internal/net/transport/netserve"
	"brine/internal/py/msgpack"
)

var (
	errClosed = errors.New("closed")
	errSilent = errors.New("no sign of life for two heartbeats")
)

// link is one connection, of either side.
type link struct {
	ws   *websocket.Conn
	live *netpeer.Conn
	out  netpeer.Queue
	wg   sync.WaitGroup // for pings

	mayDrop atomic.Bool // the peer answers pings, and tolerates a disconnect
	pinging atomic.Bool
	silent  atomic.Bool   // closed because the peer was silent
	watch   netpeer.Watch // only for the goroutine that calls pulse
}

func (l *link) init(ws *websocket.Conn, live *netpeer.Conn, limit int) {
	l.ws, l.live = ws, live
	l.out.Limit = limit
	l.out.Write = l.write
}

// write closes the connection when it fails, so that the reader notices.
func (l *link) write(ms []netpeer.Message) error {
	for _, m := range ms {
		// Send one piece, because clients may not support more.
		whole := m.Body
		if len(m.Head) > 0 {
			whole = append(append(make([]byte, 0, len(m.Head)+len(m.Body)), m.Head...), m.Body...)
		}
		if err := l.ws.Write(context.Background(), websocket.MessageBinary, whole); err != nil {
			l.close()
			return err
		}
	}
	return nil
}

// close ends the connection without a close frame. It closes the underlying connection first,
// because the WebSocket would wait for other writers.
func (l *link) close() {
	l.live.Close()
	l.ws.CloseNow()
}

// end closes the connection and waits for all goroutines except the reader.
func (l *link) end() {
	l.out.Close()
	l.close()
	l.out.Wait()
	l.wg.Wait()
}

// ping sends a ping unless one is pending, and waits for the answer on a separate goroutine. learn
// means that after an answer the peer may be dropped for silence.
func (l *link) ping(learn bool) {
	if l.pinging.Swap(true) {
		return
	}
	l.wg.Go(func() {
		err := l.ws.Ping(context.Background())
		l.pinging.Store(false)
		if err == nil {
			l.live.Heard()
		}
		if err == nil && learn {
			l.mayDrop.Store(true)
		}
	})
}

// pulse pings a quiet peer and closes the connection to a silent one.
func (l *link) pulse(interval time.Duration) {
	switch l.watch.Judge(time.Now(), l.live.Sign(), interval) {
	case netpeer.Ping:
		l.ping(false)
	case netpeer.Dead:
		switch {
		case !l.mayDrop.Load():
			l.watch.Again()
		case !l.live.Unread(): // otherwise only the reader is late
			l.silent.Store(true)
			l.close()
		}
	}
}

// everyTick calls f several times per interval until done is closed. An
// interval of 0 means never.
func everyTick(interval time.Duration, done <-chan struct{}, f func()) {
	if interval <= 0 {
		return
	}
	t := time.NewTicker(max(interval/netpeer.Ticks, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f()
		case <-done:
			return
		}
	}
}

// why returns the reason for the end of the connection; err is the read error.
func (l *link) why(addr string, err error) error {
	var closed websocket.CloseError
	switch {
	case l.silent.Load():
		err = errSilent
	case errors.As(err, &closed):
		err = fmt.Errorf("closed by the peer: %s (%d)", closed.Reason, closed.Code)
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("closed by the peer: %w", io.EOF)
	}
	return salt.Errorf(salt.Unavailable, "connection to %s: %w", addr, err)
}

// isDisconnect reports whether err only means that a connection has ended.
func isDisconnect(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, errClosed) ||
		websocket.CloseStatus(err) != -1
}

// A message above smallMessage uses the budget, and must make progress: it has stallTime, plus its
// time at slowRate bytes per second.
const (
	smallMessage = 4 << 10
	stallTime    = 30 * time.Second
	slowRate     = 16 << 10
)

// read returns the next binary message in newly allocated memory. budget is nil for a trusted peer.
// The caller has set the read limit.
func (l *link) read(budget *netserve.Budget) ([]byte, error) {
	for {
		typ, r, err := l.ws.Reader(context.Background())
		if err != nil {
			return nil, err
		}
		l.live.Heard()
		if typ == websocket.MessageBinary {
			return l.readAll(r, budget)
		}
		var word [6]byte
		n, err := io.ReadFull(r, word[:])
		if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) && err != nil {
			return nil, err
		}
		if string(word[:n]) == "close" {
			return nil, errClosed
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			return nil, err
		}
	}
}

// readAll reads one message into a buffer that doubles as it fills.
func (l *link) readAll(r io.Reader, budget *netserve.Budget) ([]byte, error) {
	buf := make([]byte, 0, 512)
	var held int64
	defer func() {
		budget.Release(held)
		if held > 0 {
			l.live.SetReadDeadline(time.Time{})
		}
	}()
	for {
		if len(buf) == cap(buf) {
			size := 2 * cap(buf)
			if budget != nil && size > smallMessage {
				if !budget.Acquire(int64(size)) {
					return nil, fmt.Errorf("no room for a message of at least %d bytes: too many unfinished messages", len(buf))
				}
				budget.Release(held)
				held = int64(size)
				waitLimit := stallTime + time.Duration(size-len(buf))*time.Second/slowRate
				l.live.SetReadDeadline(time.Now().Add(waitLimit))
			}
			buf = append(make([]byte, 0, size), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

var errNotObject = errors.New("not exactly one msgpack object")

// checkObject reports whether b is exactly one msgpack object.
func checkObject(b []byte) error {
	n, err := msgpack.Limits{Bytes: max(len(b), 1)}.Skip(b)
	if err != nil || n != len(b) {
		return errNotObject
	}
	return nil
}

// unwrap returns the payload of a publication.
func unwrap(b []byte) ([]byte, error) {
	if payload, ok := msgpack.Text(b); ok {
		return payload, nil
	}
	return nil, errors.New("not a publication: expected a payload in msgpack bytes")
}

// wrap is the reverse of unwrap.
func wrap(payload []byte) []byte {
	return msgpack.AppendBin(make([]byte, 0, len(payload)+5), payload, msgpack.NewSpec)
}
