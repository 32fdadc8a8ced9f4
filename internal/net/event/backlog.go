package event

import (
	"sync"
	"time"
)

// backlog keeps the newest frames for all readers of a server together, so that any number of slow
// readers costs a bounded amount of memory. A reader that falls behind further than the backlog
// misses frames.
type backlog struct {
	maxFrames int
	maxBytes  int

	mu      sync.Mutex
	more    sync.Cond // something was appended, or a reader was removed
	frames  [][]byte
	first   uint64 // number of frames[0]
	bytes   int
	readers map[*cursor]struct{}
	lost    uint64 // frames that readers missed, in sum

	written sync.Cond // a reader has all frames, or was removed
	early   *early    // nil if no frames are kept for readers that connect later
}

// early are frames that are kept for readers that connect later. It keeps the first ones up to its
// limits: after a restart these come before a reader has connected.
type early struct {
	frames [][]byte // only ever appended to
	bytes  int
	full   bool
}

const (
	earlyFrames = 20_000
	earlyBytes  = 16 << 20
)

// cursor is the position of one reader.
type cursor struct {
	next    uint64
	missed  uint64
	removed bool
	writing bool     // what the last take returned
	early   [][]byte // frames from before next
}

func newBacklog(maxFrames, maxBytes int) *backlog {
	b := &backlog{maxFrames: max(maxFrames, 1), maxBytes: maxBytes, readers: map[*cursor]struct{}{}}
	b.more.L, b.written.L = &b.mu, &b.mu
	return b
}

// open adds a reader for frames that are appended from now on. Its cursor has the early ones.
func (b *backlog) open() *cursor {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &cursor{next: b.first + uint64(len(b.frames))}
	if b.early != nil {
		c.early = b.early.frames
	}
	b.readers[c] = struct{}{}
	return c
}

// remove removes a reader; its take returns nothing.
func (b *backlog) remove(c *cursor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.removed = true
	delete(b.readers, c)
	b.release()
	b.more.Broadcast()
	b.written.Broadcast()
}

// keepEarly begins or ends to keep frames for readers that connect later.
func (b *backlog) keepEarly(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.early = nil
	if on {
		b.early = &early{}
	}
}

// keepsEarly reports whether frames are kept for readers that connect later.
func (b *backlog) keepsEarly() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.early != nil
}

// wanted reports whether there is a reader.
func (b *backlog) wanted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.readers) > 0
}

// add appends a frame, which also readers that connect later get if keep is set. It never waits for
// a reader. full is true for the first frame that could not be kept.
func (b *backlog) add(frame []byte, keep bool) (full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.early; keep && e != nil && !e.full {
		if full = len(e.frames) >= earlyFrames || e.bytes+len(frame) > earlyBytes; full {
			e.full = true
		} else {
			e.frames = append(e.frames, frame)
			e.bytes += len(frame)
		}
	}
	if len(b.readers) == 0 {
		return full
	}
	b.frames = append(b.frames, frame)
	b.bytes += len(frame)
	for len(b.frames) > 1 && (len(b.frames) > b.maxFrames || b.bytes > b.maxBytes) {
		b.drop(1)
	}
	b.more.Broadcast()
	return full
}

// drop removes the n oldest frames.
func (b *backlog) drop(n int) {
	for i := range n {
		b.bytes -= len(b.frames[i])
		b.frames[i] = nil
	}
	b.frames = b.frames[n:]
	b.first += uint64(n)
	if len(b.frames) == 0 {
		b.frames = nil
	}
}

// release removes frames that every reader has read.
func (b *backlog) release() {
	oldest := b.first + uint64(len(b.frames))
	for c := range b.readers {
		oldest = min(oldest, c.next)
		if oldest <= b.first {
			return
		}
	}
	b.drop(int(oldest - b.first))
}

// take waits for frames and appends at most n of them, and about size bytes, to dst. ok is false if
// the reader was removed.
func (b *backlog) take(c *cursor, dst [][]byte, n, size int) (frames [][]byte, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.writing {
		c.writing = false
		b.written.Broadcast()
	}
	for !c.removed && c.next == b.first+uint64(len(b.frames)) {
		b.more.Wait()
	}
	if c.removed {
		return nil, false
	}
	if c.next < b.first {
		c.missed += b.first - c.next
		b.lost += b.first - c.next
		c.next = b.first
	}
	from := c.next
	for i := int(from - b.first); i < len(b.frames) && n > 0 && size > 0; i++ {
		dst = append(dst, b.frames[i])
		size -= len(b.frames[i])
		n--
		c.next++
	}
	if from == b.first {
		b.release()
	}
	c.writing = true
	return dst, true
}

// drain waits until each reader has got every frame, at most as long as limit.
func (b *backlog) drain(limit time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	over := false
	t := time.AfterFunc(limit, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		over = true
		b.written.Broadcast()
	})
	defer t.Stop()
	for !over && b.behind() {
		b.written.Wait()
	}
}

// behind reports whether a reader has not got every frame.
func (b *backlog) behind() bool {
	for c := range b.readers {
		if c.writing || c.next < b.first+uint64(len(b.frames)) {
			return true
		}
	}
	return false
}

// missed counts the frames that a reader lost.
func (b *backlog) missed(c *cursor) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.missed
}

// allMissed counts the frames that all readers lost.
func (b *backlog) allMissed() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}
