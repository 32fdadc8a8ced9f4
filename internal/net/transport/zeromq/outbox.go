package zeromq

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"brine/internal/net/transport/netpeer"
)

const (
	// batchPackets and batchBytes bound one write.
	batchPackets = 32
	batchBytes   = 256 << 10
	// stallTime is how long a peer may accept nothing of one batch.
	stallTime = 2 * time.Minute
	// maxControl bounds PINGs and PONGs queued above an outbox's limit.
	maxControl = 8
)

var errStalled = errors.New("the peer does not read")

// packet is an encoded message or command; its bytes never change, so that many outboxes can share
// one.
type packet struct {
	head, body []byte
	sent       func(free bool) // of transport.Answer
}

func (p *packet) size() int { return len(p.head) + len(p.body) }

func (p *packet) done(free bool) {
	if p.sent != nil {
		p.sent(free)
	}
}

// ring is a queue that uses memory only while it is not empty.
type ring struct {
	buf     []*packet
	head, n int
}

func (r *ring) at(i int) *packet { return r.buf[(r.head+i)%len(r.buf)] }

func (r *ring) push(p *packet) {
	if r.n == len(r.buf) {
		bigger := make([]*packet, max(4, 2*r.n))
		for i := range r.n {
			bigger[i] = r.at(i)
		}
		r.buf, r.head = bigger, 0
	}
	r.buf[(r.head+r.n)%len(r.buf)] = p
	r.n++
}

func (r *ring) pop() *packet {
	p := r.buf[r.head]
	r.buf[r.head] = nil
	r.head = (r.head + 1) % len(r.buf)
	if r.n--; r.n == 0 && len(r.buf) > 16 {
		r.buf, r.head = nil, 0
	}
	return p
}

// batch is the scratch space of one write.
type batch struct {
	bufs  [][]byte
	space [2 * batchPackets][]byte
	flat  [netpeer.FlatSize]byte
	wrote int
	err   error
	write func(fd uintptr) bool
}

var batches = sync.Pool{New: func() any {
	b := &batch{}
	b.write = b.writeOnce
	return b
}}

func (b *batch) free() {
	clear(b.space[:])
	b.bufs, b.err = nil, nil
	batches.Put(b)
}

// pulse is the time of a peer's last sign of life.
type pulse struct {
	start time.Time
	last  atomic.Int64
}

func (p *pulse) beat()                  { p.last.Store(int64(time.Since(p.start))) }
func (p *pulse) silence() time.Duration { return time.Since(p.start) - time.Duration(p.last.Load()) }

// outbox is the send queue of a peer. Adding to it never waits for the peer: the caller that finds
// it idle writes as much as the socket accepts at once (flush); a goroutine writes the rest (drain)
// and ends when the queue is empty. So an idle peer costs no goroutine, a healthy one no more than
// a system call per batch, and a stalled one delays no other.
type outbox struct {
	conn  net.Conn
	raw   syscall.RawConn // nil where there is none
	pulse *pulse
	stall time.Duration
	limit int             // maximum number of queued messages
	wg    *sync.WaitGroup // counts running drains

	mu       sync.Mutex
	room     sync.Cond // signalled when awaitRoom may continue
	q        ring
	bytes    int // bytes queued
	off      int // bytes of the first packet that are sent
	busy     bool
	talked   bool // something was written since the last heartbeat check
	closed   bool
	cause    error // why it was closed
	dropped  uint64
	asked    int // requests whose reply was not given yet
	askBytes int // of those requests
}

func (o *outbox) init(c net.Conn, p *pulse, limit int, stall time.Duration, wg *sync.WaitGroup) {
	o.conn, o.pulse, o.limit, o.stall, o.wg = c, p, limit, stall, wg
	o.room.L = &o.mu
	if sc, ok := c.(syscall.Conn); ok {
		o.raw, _ = sc.SyscallConn()
	}
}

// push queues p, or counts it as dropped if the queue is full. If it returns true, the outbox was
// idle and the caller must call flush until that returns false.
func (o *outbox) push(p *packet) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	if o.q.n >= o.limit {
		o.dropped++
		return false
	}
	return o.queue(p)
}

// control is push for PINGs and PONGs, which have a small reserve and may be lost if that is full,
// since the peer does not read then.
func (o *outbox) control(p *packet) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.q.n >= o.limit+maxControl {
		return false
	}
	return o.queue(p)
}

func (o *outbox) queue(p *packet) bool {
	o.q.push(p)
	o.bytes += p.size()
	rest := !o.busy
	o.busy = true
	return rest
}

// send is control followed by flush.
func (o *outbox) send(p *packet) {
	if o.control(p) {
		o.flushAll()
	}
}

func (o *outbox) flushAll() {
	for o.flush() {
	}
}

// flush writes one batch without waiting. It returns true if the caller must call it again;
// otherwise the queue is empty or a drain is running.
func (o *outbox) flush() bool {
	b := batches.Get().(*batch)
	defer b.free()
	size, ok := o.gather(b)
	if !ok {
		return false
	}
	if o.raw != nil {
		if err := o.raw.Write(b.write); err != nil && b.err == nil {
			b.err = err
		}
	}
	if b.err != nil {
		o.shut(b.err)
		return false
	}
	more, slow := o.sent(b.wrote, b.wrote == size)
	if slow {
		go o.drain()
	}
	return more
}

// drain writes until the queue is empty, waiting for the peer. It closes the connection if the peer
// accepts nothing for the stall time.
func (o *outbox) drain() {
	defer o.wg.Done()
	b := batches.Get().(*batch)
	defer b.free()
	for {
		if _, ok := o.gather(b); !ok {
			return
		}
		o.conn.SetWriteDeadline(time.Now().Add(o.stall))
		bufs := net.Buffers(b.bufs)
		n, err := bufs.WriteTo(o.conn)
		if err != nil && n == 0 {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = errStalled
			}
			o.shut(err)
			return
		}
		if !o.sentSlowly(int(n)) {
			return
		}
	}
}

// gather puts the beginning of the queue into b and returns its bytes. It ends the writer's turn
// and returns false if the queue is empty.
func (o *outbox) gather(b *batch) (size int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.q.n == 0 {
		o.busy = false
		return 0, false
	}
	b.bufs, b.wrote, b.err = b.space[:0], 0, nil
	skip := o.off
	for i := 0; i < min(o.q.n, batchPackets) && size < batchBytes; i++ {
		p := o.q.at(i)
		for _, part := range [2][]byte{p.head, p.body} {
			n := min(skip, len(part))
			skip -= n
			if part = part[n:]; len(part) == 0 || size >= batchBytes {
				continue
			}
			part = part[:min(len(part), batchBytes-size)]
			b.bufs = append(b.bufs, part)
			size += len(part)
		}
	}
	return size, true
}

// sent removes n bytes from the queue. At most one of its results is true: more, if the caller must
// flush again, or slow, if it must start the drain; if none is, the outbox is idle.
func (o *outbox) sent(n int, all bool) (more, slow bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.talked = true
	o.advance(n)
	if !o.goesOn() {
		return false, false
	}
	if !all {
		o.wg.Add(1) // under the lock: a server shuts its outboxes before it waits
	}
	return all, !all
}

// sentSlowly is sent for the drain, and reports whether the drain continues. Progress is a sign of
// life; an idle connection must have no deadline.
func (o *outbox) sentSlowly(n int) bool {
	o.pulse.beat()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.advance(n)
	if o.goesOn() {
		return true
	}
	o.conn.SetWriteDeadline(time.Time{})
	return false
}

func (o *outbox) goesOn() bool {
	if o.closed || o.q.n == 0 {
		o.busy = false
		return false
	}
	return true
}

func (o *outbox) advance(n int) {
	if o.closed {
		return // the queue is gone
	}
	for n > 0 {
		left := o.q.at(0).size() - o.off
		if n < left {
			o.off += n
			return
		}
		n -= left
		o.off = 0
		p := o.q.pop()
		o.bytes -= p.size()
		p.done(true)
	}
	o.room.Signal()
}

// shut drops the queue and closes the connection, which ends the goroutine that reads from the
// peer. The first cause is kept.
func (o *outbox) shut(cause error) {
	o.mu.Lock()
	if !o.closed {
		o.cause = cause
	}
	o.closed, o.busy = true, false
	q := o.q
	o.q, o.bytes, o.off = ring{}, 0, 0
	o.room.Broadcast()
	o.mu.Unlock()
	for q.n > 0 {
		q.pop().done(false) // a drain may be writing it
	}
	o.conn.Close()
}

// spoke reports whether anything was written since the last call.
func (o *outbox) spoke() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	talked := o.talked
	o.talked = false
	return talked
}

// idle reports whether the kernel has everything that was queued.
func (o *outbox) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.q.n == 0
}

// missed is the number of messages dropped because the queue was full.
func (o *outbox) missed() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}
