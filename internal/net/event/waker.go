package event

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/py/msgpack"
)

// tagWake is the tag of an event that says nothing. Brine's readers skip it.
const tagWake = "brine/wake"

// wakeAfter are the pauses after the return of a job, and after each event that
// says nothing. The second one is for a client on a busy machine.
var wakeAfter = [...]time.Duration{30 * time.Millisecond, 270 * time.Millisecond}

// waker writes to one reader. When the reader has got the return of a job and
// then nothing else, waker sends an event that says nothing.
//
// Salt's LocalClient needs that. While it still waits for the answer to its
// command, its event loop moves the events that come into a buffer of its own.
// Afterwards it looks for events at the socket alone, and notices what is in the
// buffer only when something else comes. On Brine's master a quick job is over
// by then, so that the client waited until its timeout.
type waker struct {
	conn net.Conn
	// unneeded is set for Brine's own readers.
	unneeded atomic.Bool

	mu    sync.Mutex // held while something is written
	timer *time.Timer
	left  int // of wakeAfter
	ended bool
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

// wake sends an event that says nothing.
func (w *waker) wake() {
	if w.unneeded.Load() || !w.mu.TryLock() { // something else is being written
		return
	}
	defer w.mu.Unlock()
	if w.ended || w.left == 0 {
		return
	}
	if _, err := w.conn.Write(wakeFrame()); err != nil {
		return // whoever waits for the end of the connection sees it
	}
	if w.left--; w.left > 0 {
		w.timer.Reset(wakeAfter[len(wakeAfter)-w.left])
	}
}

func (w *waker) stop() {
	w.conn.Close() // ends a write that waits
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// wakeFrame is the frame of an event without data but for its time, which
// Salt's programs want in every event.
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

// tagWithin is how far into a frame its tag begins at most, and how long the
// part of a tag is at most that isReturn looks at.
const tagWithin = 160

func isReturn(frame []byte) bool {
	tag, _, _ := bytes.Cut(frame[:min(len(frame), tagWithin)], []byte(tagEnd))
	_, job, ok := bytes.Cut(tag, []byte("salt/job/"))
	return ok && bytes.Contains(job, []byte("/ret/"))
}
