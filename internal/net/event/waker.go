package event

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/py/msgpack"
)

// tagWake is the tag of an empty event. Brine's readers skip it.
const tagWake = "brine/wake"

// wakeAfter are the pauses after the return of a job, and after each empty event. The second one is
// for a client on a busy machine.
var wakeAfter = [...]time.Duration{30 * time.Millisecond, 270 * time.Millisecond}

// waker writes to one reader. If nothing follows the return of a job, waker sends an empty event.
//
// Salt's LocalClient needs that. While it waits for the answer to its command, its event loop moves
// arriving events into a buffer of its own. Afterwards it looks for events only at the socket, and
// checks the buffer only when another event arrives. On a Brine master a quick job is over by then,
// so that the client waited until its timeout.
type waker struct {
	conn net.Conn
	// unneeded is set for Brine's own readers.
	unneeded atomic.Bool
	brine    chan struct{} // closed when unneeded is set
	// known is set while the keeper counts the reader, gone when it has ended; guarded by keeper.mu.
	known, gone bool

	mu    sync.Mutex // held while a frame is written
	timer *time.Timer
	left  int // of wakeAfter
	ended bool
}

func newWaker(conn net.Conn) *waker { return &waker{conn: conn, brine: make(chan struct{})} }

// identified records that the reader is one of Brine's.
func (w *waker) identified() {
	if !w.unneeded.Swap(true) {
		close(w.brine)
	}
}

// isBrine waits until the reader has identified itself as one of Brine's, and reports whether it
// did within that time.
func (w *waker) isBrine(within time.Duration) bool {
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-w.brine:
		return true
	case <-t.C:
		return false
	}
}

// write sends frames. net.Buffers changes batch.
func (w *waker) write(batch [][]byte) error {
	wake := !w.unneeded.Load() && anyReturn(batch)
	w.mu.Lock()
	defer w.mu.Unlock()
	bufs := net.Buffers(batch)
	if _, err := bufs.WriteTo(w.conn); err != nil {
		return err
	}
	if wake && !w.ended {
		w.left = len(wakeAfter)
		if w.timer == nil {
			w.timer = time.AfterFunc(wakeAfter[0], w.wake)
		} else {
			w.timer.Reset(wakeAfter[0])
		}
	}
	return nil
}

// wake sends an empty event.
func (w *waker) wake() {
	if w.unneeded.Load() || !w.mu.TryLock() { // another frame is being written
		return
	}
	defer w.mu.Unlock()
	if w.ended || w.left == 0 {
		return
	}
	if _, err := w.conn.Write(wakeFrame()); err != nil {
		return // the goroutine that waits for the end of the connection sees it
	}
	if w.left--; w.left > 0 {
		w.timer.Reset(wakeAfter[len(wakeAfter)-w.left])
	}
}

func (w *waker) stop() {
	w.conn.Close() // ends a blocked write
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// wakeFrame returns the frame of an event with only its time, which Salt's programs expect in every
// event.
func wakeFrame() []byte {
	stamp := msgpack.AppendMapHeader(nil, 1)
	stamp = msgpack.AppendString(stamp, "_stamp", msgpack.NewSpec)
	stamp = msgpack.AppendString(stamp, Stamp(time.Now()), msgpack.NewSpec)
	return Frame(Body(tagWake, stamp))
}

// anyReturn reports whether one of the frames is the return of a job.
func anyReturn(frames [][]byte) bool {
	for _, f := range frames {
		if isReturn(f) {
			return true
		}
	}
	return false
}

// tagWithin is the maximum offset of the tag in a frame, and the maximum length that isReturn
// examines.
const tagWithin = 160

func isReturn(frame []byte) bool {
	tag, _, _ := bytes.Cut(frame[:min(len(frame), tagWithin)], []byte(tagEnd))
	_, job, ok := bytes.Cut(tag, []byte("salt/job/"))
	return ok && bytes.Contains(job, []byte("/ret/"))
}
