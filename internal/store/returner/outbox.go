package returner

import (
	"context"
	"encoding/binary"
	"log/slog"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/journal"
)

// Outbox keeps what a server shall get, on disk, until the server has it: over
// a time in which the server is away, and over the end of the process.
type Outbox struct {
	name    string
	log     *slog.Logger
	deliver func(context.Context, *value.Dict) error
	timeout time.Duration
	j       *journal.Journal
	wake    chan struct{}

	mu    sync.Mutex
	queue []parcel // oldest first
	bytes int64
	next  uint64
	away  error
	since time.Time
	lost  int // given up for want of room, since it was last said
}

type parcel struct {
	seq uint64
	at  journal.Position
}

// Kinds of records of the journal.
const (
	recordParcel = 1 // 8 bytes of number, a map as msgpack
	recordSent   = 2 // 8 bytes of number
)

const (
	// MaxWaiting bounds in bytes what waits in one Outbox; of more the oldest is
	// given up.
	MaxWaiting = 256 << 20
	// maxFile is how large the file grows before it is written anew.
	maxFile = 8 << 20
	// parallel is how many parcels are on their way at once.
	parallel = 8
	// pause is how long it takes until a server that is away is tried again.
	pause = time.Second
)

// OpenOutbox takes over what waits in the file at path. deliver gives a parcel
// to the server; its error is of kind Unavailable if another attempt may help.
func OpenOutbox(path, name string, timeout time.Duration, deliver func(context.Context, *value.Dict) error, log *slog.Logger) (*Outbox, error) {
	o := &Outbox{name: name, log: log, deliver: deliver, timeout: timeout, wake: make(chan struct{}, 1), since: time.Now()}
	sent := map[uint64]bool{}
	var err error
	o.j, _, err = journal.Open(path, func(r journal.Record) error {
		if len(r.Payload) < 8 {
			return nil
		}
		seq := binary.LittleEndian.Uint64(r.Payload)
		o.next = max(o.next, seq+1)
		if r.Kind == recordSent {
			sent[seq] = true
		} else {
			o.queue = append(o.queue, parcel{seq, r.At})
		}
		return nil
	})
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot open what waits for %s: %w", name, err)
	}
	all := o.queue
	o.queue = nil
	for _, p := range all {
		if !sent[p.seq] {
			o.queue = append(o.queue, p)
			o.bytes += p.at.Size()
		}
	}
	return o, nil
}

// Put has d delivered. When it returns the end of the process does not lose it.
func (o *Outbox) Put(d *value.Dict) {
	b, err := msgpack.Marshal(d, msgpack.NewSpec)
	o.mu.Lock()
	defer o.mu.Unlock()
	var at journal.Position
	if err == nil {
		at, err = o.j.Append(recordParcel, append(binary.LittleEndian.AppendUint64(nil, o.next), b...))
	}
	if err != nil {
		o.log.Error("what is for a server cannot be kept for it, and is given up", "returner", o.name, "err", err)
		return
	}
	o.queue = append(o.queue, parcel{o.next, at})
	o.bytes += at.Size()
	o.next++
	for o.bytes > MaxWaiting && len(o.queue) > 1 {
		if o.lost == 0 {
			o.log.Error("too much waits for a server that is away; the oldest is given up", "returner", o.name, "waiting", len(o.queue))
		}
		o.lost++
		o.remove(o.queue[0])
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// remove takes a parcel out; o.mu is held.
func (o *Outbox) remove(p parcel) {
	for i := range o.queue {
		if o.queue[i].seq == p.seq {
			// Those that go are near the front.
			copy(o.queue[1:i+1], o.queue[:i])
			o.queue = o.queue[1:]
			o.bytes -= p.at.Size()
			o.j.Append(recordSent, binary.LittleEndian.AppendUint64(nil, p.seq))
			break
		}
	}
	if size := o.j.Size(); size > maxFile && size > 2*o.bytes {
		o.shrink()
	}
}

// shrink writes the file anew with what still waits; o.mu is held.
func (o *Outbox) shrink() {
	kept := make([]parcel, 0, len(o.queue))
	err := o.j.Rewrite(func(emit func(byte, []byte) (journal.Position, error), read func(journal.Position) ([]byte, error)) error {
		for _, p := range o.queue {
			b, err := read(p.at)
			if err != nil {
				return err
			}
			at, err := emit(recordParcel, b)
			if err != nil {
				return err
			}
			kept = append(kept, parcel{p.seq, at})
		}
		return nil
	})
	if err != nil {
		o.log.Error("what waits for a server cannot be written anew", "returner", o.name, "err", err)
		return
	}
	o.queue = kept
}

// OutboxStatus says how the server of an Outbox is.
type OutboxStatus struct {
	Name string
	// Away is why it cannot be reached, nil if it can; Since when that changed.
	Away    error
	Since   time.Time
	Waiting int
}

// Status says how the server is.
func (o *Outbox) Status() OutboxStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	return OutboxStatus{o.name, o.away, o.since, len(o.queue)}
}

// Run delivers until ctx ends.
func (o *Outbox) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if o.round(ctx) {
			continue
		}
		o.mu.Lock()
		waiting := len(o.queue)
		o.mu.Unlock()
		var again <-chan time.Time
		wake := o.wake
		if waiting > 0 {
			again, wake = time.After(pause), nil
		}
		select {
		case <-ctx.Done():
		case <-wake:
		case <-again:
		}
	}
}

// round delivers some parcels at once. It reports whether to go on at once.
func (o *Outbox) round(ctx context.Context) bool {
	o.mu.Lock()
	n := min(len(o.queue), parallel)
	if o.away != nil {
		n = min(n, 1) // to see whether it is back
	}
	batch := append([]parcel(nil), o.queue[:n]...)
	o.mu.Unlock()
	done := make(chan bool, n)
	for _, p := range batch {
		go func() { done <- o.send(ctx, p) }()
	}
	all := n > 0
	for range n {
		all = <-done && all
	}
	return all
}

// send delivers a parcel and reports whether the server is there.
func (o *Outbox) send(ctx context.Context, p parcel) bool {
	d, err := o.open(p)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		err = o.deliver(ctx, d)
		cancel()
	}
	if ctx.Err() != nil {
		return false
	}
	gone := err != nil && salt.KindOf(err) == salt.Unavailable
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case gone && o.away == nil:
		o.log.Error("a server for jobs and returns is away; what it shall get is kept for it", "returner", o.name, "err", err)
		o.since = time.Now()
	case !gone && o.away != nil:
		o.log.Info("a server for jobs and returns is back", "returner", o.name, "waiting", len(o.queue), "given_up", o.lost)
		o.since, o.lost = time.Now(), 0
	}
	o.away = nil
	if gone {
		o.away = err
		return false
	}
	if err != nil {
		o.log.Error("a server does not take something, which is given up", "returner", o.name, "jid", d.Str("jid"), "err", err)
	}
	o.remove(p)
	return true
}

func (o *Outbox) open(p parcel) (*value.Dict, error) {
	o.mu.Lock()
	// The position changes when the file is written anew.
	for _, q := range o.queue {
		if q.seq == p.seq {
			p = q
			break
		}
	}
	b, err := o.j.Read(p.at)
	o.mu.Unlock()
	if err != nil || len(b) < 8 {
		return nil, salt.Errorf(salt.Invalid, "what was kept cannot be read: %w", err)
	}
	v, err := msgpack.UnmarshalTyped(b[8:])
	d, ok := v.(*value.Dict)
	if err != nil || !ok {
		return nil, salt.Errorf(salt.Invalid, "what was kept is damaged: %w", err)
	}
	return d, nil
}

// Close ends the use of the file. Run must have ended.
func (o *Outbox) Close() error { return o.j.Close() }
