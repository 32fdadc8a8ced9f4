package returner

import (
	"context"
	"encoding/binary"
	"log/slog"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/journal"
)

// Outbox is a delivery queue on disk for a server. It survives the end of the process and outages of the
// server.
type Outbox struct {
	name    string
	log     *slog.Logger
	deliver func(context.Context, *value.Dict) error
	timeout time.Duration
	most    int // concurrent deliveries
	j       *journal.Journal
	wake    wait.Wakeup

	mu      sync.Mutex
	queue   []parcel // oldest first
	bytes   int64
	next    uint64
	downErr error
	since   time.Time
	lost    int // dropped for lack of space since the last log record
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
	// MaxWaiting bounds the bytes queued in one Outbox; above it the oldest entries are dropped.
	MaxWaiting = 256 << 20
	// maxFile is the size at which the file is rewritten.
	maxFile = 8 << 20
	// parallel is the number of concurrent deliveries.
	parallel = 8
	// pause is the interval of attempts to reach an unreachable server.
	pause = time.Second
)

// OpenOutbox opens the queue in the file at path. deliver sends a parcel to the server; its error is of kind
// Unavailable if a retry may help.
func OpenOutbox(path, name string, timeout time.Duration, deliver func(context.Context, *value.Dict) error, log *slog.Logger) (*Outbox, error) {
	o := &Outbox{name: name, log: log, deliver: deliver, timeout: timeout, most: parallel, wake: wait.NewWakeup(), since: time.Now()}
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
		return nil, salt.Errorf(salt.Unavailable, "cannot open the queue of returner %s: %w", name, err)
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

// InOrder makes the Outbox deliver one entry at a time, in the order in which they were queued.
// Call it before Run.
func (o *Outbox) InOrder() { o.most = 1 }

// Put queues d for delivery. When it returns, d survives the end of the process.
func (o *Outbox) Put(d *value.Dict) {
	b, err := msgpack.Marshal(d, msgpack.NewSpec)
	o.mu.Lock()
	defer o.mu.Unlock()
	var at journal.Position
	if err == nil {
		at, err = o.j.Append(recordParcel, append(binary.LittleEndian.AppendUint64(nil, o.next), b...))
	}
	if err != nil {
		o.log.Error("cannot queue data for returner; dropped", "returner", o.name, "err", err)
		return
	}
	o.queue = append(o.queue, parcel{o.next, at})
	o.bytes += at.Size()
	o.next++
	for o.bytes > MaxWaiting && len(o.queue) > 1 {
		if o.lost == 0 {
			o.log.Error("queue of unreachable returner is full; dropping the oldest entry", "returner", o.name, "waiting", len(o.queue))
		}
		o.lost++
		o.remove(o.queue[0])
	}
	o.wake.Wake()
}

// remove removes a parcel; o.mu is held.
func (o *Outbox) remove(p parcel) {
	for i := range o.queue {
		if o.queue[i].seq == p.seq {
			// Finished parcels are near the front.
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

// shrink rewrites the file with the waiting parcels; o.mu is held.
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
		o.log.Error("cannot rewrite the queue of returner", "returner", o.name, "err", err)
		return
	}
	o.queue = kept
}

// OutboxStatus is the state of an Outbox and its server.
type OutboxStatus struct {
	Name string
	// Unreachable is the last error if the server cannot be reached, else nil. Since is when this changed.
	Unreachable error
	Since       time.Time
	Waiting     int
}

// Status returns the state of the queue and its server.
func (o *Outbox) Status() OutboxStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	return OutboxStatus{o.name, o.downErr, o.since, len(o.queue)}
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
		wake := o.wake.C()
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

// round delivers some parcels concurrently. It reports whether to continue without a pause.
func (o *Outbox) round(ctx context.Context) bool {
	o.mu.Lock()
	n := min(len(o.queue), o.most)
	if o.downErr != nil {
		n = min(n, 1) // one attempt at a time until the server is reachable again
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

// send delivers a parcel and reports whether the server is reachable.
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
	case gone && o.downErr == nil:
		o.log.Error("returner unreachable; queueing on disk", "returner", o.name, "err", err)
		o.since = time.Now()
	case !gone && o.downErr != nil:
		o.log.Info("returner reachable again", "returner", o.name, "waiting", len(o.queue), "dropped", o.lost)
		o.since, o.lost = time.Now(), 0
	}
	o.downErr = nil
	if gone {
		o.downErr = err
		return false
	}
	if err != nil {
		o.log.Error("returner rejected an entry; dropped", "returner", o.name, "jid", d.Str("jid"), "err", err)
	}
	o.remove(p)
	return true
}

func (o *Outbox) open(p parcel) (*value.Dict, error) {
	o.mu.Lock()
	// The position changes when the file is rewritten.
	for _, q := range o.queue {
		if q.seq == p.seq {
			p = q
			break
		}
	}
	b, err := o.j.Read(p.at)
	o.mu.Unlock()
	if err != nil || len(b) < 8 {
		return nil, salt.Errorf(salt.Invalid, "cannot read the queued entry: %w", err)
	}
	v, err := msgpack.UnmarshalTyped(b[8:])
	d, ok := v.(*value.Dict)
	if err != nil || !ok {
		return nil, salt.Errorf(salt.Invalid, "the queued entry is damaged: %w", err)
	}
	return d, nil
}

// Close closes the file. Run must have ended.
func (o *Outbox) Close() error { return o.j.Close() }
