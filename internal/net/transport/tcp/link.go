package tcp

import (
	"net"
	"sync/atomic"
	"time"

	"brine/internal/net/transport/netpeer"
)

// link is one connection, of either side.
type link struct {
	conn net.Conn      // for reading and writing
	live *netpeer.Conn // the same, or the connection below TLS
	out  netpeer.Queue

	// counts, if set, is called for every beat that is put into out.
	counts func(messages, bytes int)

	knowsBeats atomic.Bool
	silent     atomic.Bool   // closed because the peer was silent
	watch      netpeer.Watch // only for the goroutine that calls pulse
}

// maxBeforeBeat is the number of messages that may wait when a beat is queued. Behind more it would
// be late, and those messages show life as well.
const maxBeforeBeat = 16

func (l *link) init(conn net.Conn, live *netpeer.Conn, limit int) {
	l.conn, l.live = conn, live
	l.out.Limit = limit
	l.out.Write = l.write
	if conn == net.Conn(live) && live.CanTry() { // not under TLS
		l.out.Try = live.Try
	}
}

// write closes the connection when it fails, so that the reader notices.
func (l *link) write(ms []netpeer.Message) error {
	err := netpeer.WriteAll(l.conn, ms)
	if err != nil {
		l.conn.Close()
	}
	return err
}

// end closes the connection and waits for the writer.
func (l *link) end() {
	l.out.Close()
	l.conn.Close()
	l.out.Wait()
}

// heard records a frame as a sign of life unless it is a ping, which it answers. A frame with a
// beat shows that the peer supports beats.
func (l *link) heard(beat int) {
	if beat != pingBeat {
		l.live.Heard()
	}
	if beat == noBeat {
		return
	}
	l.knowsBeats.Store(true)
	if beat == pingBeat {
		l.live.Discount()
		l.beat(pongFrame)
	}
}

func (l *link) beat(frame []byte) {
	if l.out.Len() >= maxBeforeBeat {
		return
	}
	if l.counts != nil {
		l.counts(1, len(frame))
	}
	l.out.Push(netpeer.Message{Head: frame})
}

// pulse pings a quiet peer and closes the connection to a silent one.
func (l *link) pulse(interval time.Duration) {
	if !l.knowsBeats.Load() {
		return
	}
	switch l.watch.Judge(time.Now(), l.live.Sign(), interval) {
	case netpeer.Ping:
		l.beat(pingFrame)
	case netpeer.Dead:
		if l.live.Unread() {
			return // only the reader is late
		}
		l.silent.Store(true)
		l.conn.Close()
	}
}

// why returns the reason for the end of the connection; err is the read error.
func (l *link) why(err error) error {
	if l.silent.Load() {
		return errSilent
	}
	return err
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
