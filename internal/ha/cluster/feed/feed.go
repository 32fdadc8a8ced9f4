// Package feed sends the changes of a replicated stream to another master over a connection, and stores the changes received from it.
// It opens no connection.
package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"brine/internal/base/wait"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/ha/cluster/wire"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

// Bounds of a feed.
const (
	items  = 256
	bytes  = 256 << 10
	window = 4 // batches without an answer
	// hearsay is how long a peer may lack the changes of a third master before this one sends them.
	hearsay = time.Second
	// pause is the delay before sending changes again that a peer could not store.
	pause = time.Second
)

// Peer is the master at the other end of a feed.
type Peer struct {
	ID      string
	Log     *slog.Logger
	Limited *limitlog.Log
	// Excluded reports whether the records of this master exclude the peer.
	Excluded func() bool
	// Behind is called with the number of changes of a stream that the peer lacks.
	Behind func(stream string, n int64)
	// Stored is called after each attempt to store changes of the peer here.
	Stored func(stream string, err error)
}

// Feed sends the changes of one stream to one peer over one connection.
type Feed struct {
	p      Peer
	s      *wire.Session
	name   string
	stream oplog.Stream
	news   wait.Wakeup // have has changed

	mu      sync.Mutex
	have    oplog.Vector // what the peer is known to have
	sent    oplog.Vector // what was sent to the peer, or what it is known to have
	open    int          // batches without an answer
	trouble string       // why the peer could not store the last batch, until it is sent again
	refuses string       // the same, until the peer has stored a batch, or lacks nothing
	live    bool         // the peer supports lists of valid changes
	short   bool         // the peer supports short items
	lag     map[string]lag
}

// lag records which changes of another master a peer lacked at some moment.
type lag struct {
	number uint64
	since  time.Time
}

// VectorDict encodes a vector.
func VectorDict(v oplog.Vector) *value.Dict {
	d := value.NewDict(len(v))
	for origin, n := range v {
		d.Set(origin, int64(n))
	}
	return d
}

// Bounds of a peer's vector: the number of origins, and the length of a name in bytes. A master adds an origin
// each time that it starts and makes changes, so this number suffices for decades.
const (
	maxVector = 1 << 16
	maxOrigin = 64
)

func readVector(d *value.Dict) oplog.Vector {
	v := oplog.Vector{}
	for k, n := range d.All() {
		origin, _ := k.(string)
		if i, ok := n.(int64); ok && i > 0 && origin != "" && len(origin) <= maxOrigin && len(v) < maxVector {
			v[origin] = uint64(i)
		}
	}
	return v
}

// Start sends the peer everything it lacks until stop is called. start is the frame with the peer's vectors.
func Start(ctx context.Context, p Peer, streams map[string]oplog.Stream, s *wire.Session, start *wire.Start) (feeds map[string]*Feed, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	feeds = map[string]*Feed{}
	for name, stream := range streams {
		vec, shares := start.Vec.Get(name)
		if !shares {
			continue
		}
		theirs, _ := vec.(*value.Dict)
		f := &Feed{p: p, s: s, name: name, stream: stream, news: wait.NewWakeup(), have: readVector(theirs), sent: oplog.Vector{},
			lag: map[string]lag{}, live: start.Live, short: start.Short}
		feeds[name] = f
		wg.Go(func() {
			if err := f.run(ctx); err != nil && ctx.Err() == nil {
				p.Limited.Warn("feed "+p.ID+" "+name, "cannot send changes to a peer", "peer", p.ID, "stream", name, "err", err)
				s.Conn.Close()
			}
		})
	}
	return feeds, func() { cancel(); wg.Wait() }
}

// Have returns the vector of the changes that the peer is known to have.
func (f *Feed) Have() oplog.Vector {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.have.Clone()
}

// Answered handles the peer's answer to a batch, or a new vector.
func (f *Feed) Answered(k *wire.Known) {
	f.mu.Lock()
	for origin, n := range readVector(k.Vec) {
		if f.have[origin] < n && (f.have[origin] > 0 || len(f.have) < maxVector) {
			f.have[origin] = n
		}
	}
	if k.Got != 0 && f.open > 0 {
		f.open--
	}
	if k.Gap || k.Err != "" {
		f.sent = oplog.Vector{}
		f.trouble = k.Err
	}
	if k.Got != 0 && !k.Gap {
		f.refuses = k.Err
	}
	f.mu.Unlock()
	f.news.Wake()
}

// Refuses returns why the peer could not store the last changes that it got, or "".
func (f *Feed) Refuses() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refuses
}

func (f *Feed) run(ctx context.Context) error {
	self := f.stream.Self()
	mine, err := f.stream.Vector()
	if err != nil {
		return err
	}
	f.mu.Lock()
	ahead := f.have[self] > mine[self]
	f.mu.Unlock()
	if ahead {
		f.p.Log.Warn("a peer has changes of this process that it lacks: was a virtual machine restored from a snapshot? continuing with a new origin id", "peer",
			f.p.ID, "stream", f.name)
		return errors.Join(errors.New("this master has lost own changes that the peer has"), f.stream.Renew())
	}
	if n := f.lostOwn(mine); n > 0 {
		f.p.Log.Warn("a peer has changes that this master made before its start and now lacks: restored from an old copy? fetching them", "peer",
			f.p.ID, "stream", f.name, "changes", n)
	}
	if err := f.tellLive(ctx, mine); err != nil || ctx.Err() != nil {
		return err
	}
	tick := time.NewTicker(hearsay / 2)
	defer tick.Stop()
	for {
		changed := f.stream.Changed()
		more, err := f.step()
		if err != nil {
			return err
		}
		if more {
			continue
		}
		f.mu.Lock()
		trouble := f.trouble
		f.trouble = ""
		f.mu.Unlock()
		if trouble != "" {
			f.p.Limited.Warn("feed of "+f.p.ID, "a peer cannot store replicated changes; sending them again", "peer", f.p.ID, "stream", f.name, "err",
				trouble)
			if !wait.Sleep(ctx, pause) {
				return nil
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-f.news.C():
		case <-tick.C:
		}
	}
}

// lostOwn counts the changes of earlier processes of this master that the peer has and this master lacks.
func (f *Feed) lostOwn(mine oplog.Vector) (n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for origin, number := range f.have {
		if number > mine[origin] && f.stream.Own(origin) {
			n += number - mine[origin]
		}
	}
	return n
}

// tellLive sends the list of valid changes to a peer that lacks changes which this master has dropped. The peer deletes all
// others. The list is sent before everything else on this connection, so that a peer with later changes has applied it.
func (f *Feed) tellLive(ctx context.Context, mine oplog.Vector) error {
	stream, ok := f.stream.(oplog.Forgetful)
	if !ok || !f.live {
		return nil
	}
	forgotten, err := stream.Forgotten()
	if err != nil {
		return err
	}
	f.mu.Lock()
	lacks := false
	for origin, n := range forgotten {
		lacks = lacks || f.have[origin] < n
	}
	f.mu.Unlock()
	if !lacks {
		return nil
	}
	for origin, to := range mine {
		for after := uint64(0); after < to; {
			if !f.room(ctx) {
				return nil
			}
			b, err := stream.ReadLive(origin, after)
			if err != nil {
				return err
			}
			if b.To <= after {
				return fmt.Errorf("cannot read after change %d of %s", after, origin)
			}
			after = b.To
			f.mu.Lock()
			f.open++
			f.mu.Unlock()
			if err := f.s.Send(&wire.Changes{Rep: f.name, Origin: b.Origin, From: int64(b.From), To: int64(b.To), Live: b.Live,
				Forgotten: int64(b.Forgotten)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// room waits until another batch may be sent.
func (f *Feed) room(ctx context.Context) bool {
	for {
		f.mu.Lock()
		free := f.open < window
		f.mu.Unlock()
		if free {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-f.news.C():
		}
	}
}

// step sends one batch if there are changes to send.
func (f *Feed) step() (sent bool, err error) {
	mine, err := f.stream.Vector()
	if err != nil {
		return false, err
	}
	origin, after, ok := f.next(mine)
	if !ok {
		return false, nil
	}
	b, err := f.read(origin, after)
	if err != nil {
		return false, err
	}
	if b.To <= after {
		return false, fmt.Errorf("cannot read after change %d of %s", after, origin)
	}
	// Check after reading the changes: they may contain secrets created because the peer was removed, and the removal is recorded before
	// them.
	if f.p.Excluded() {
		return false, errors.New("the peer was removed from the cluster")
	}
	f.mu.Lock()
	f.sent[origin] = b.To
	f.open++
	f.mu.Unlock()
	list := &value.List{}
	for _, it := range b.Items {
		list.Append(&value.List{Items: []any{int64(it.Number), it.Data}})
	}
	return true, f.s.Send(&wire.Changes{Rep: f.name, Origin: b.Origin, From: int64(b.From), To: int64(b.To), Items: list})
}

// read reads the next changes for the peer.
func (f *Feed) read(origin string, after uint64) (oplog.Batch, error) {
	if s, ok := f.stream.(oplog.Selective); ok {
		return s.ReadFor(f.p.ID, f.short, origin, after, items, bytes)
	}
	return f.stream.Read(origin, after, items, bytes)
}

// next selects an origin whose changes the peer lacks. Other masters send their own changes; this master sends them only if the peer still
// lacks them after a while. Its own changes from before its start are sent before those after it, so that a removal arrives before the secrets
// that were replaced because of it.
func (f *Feed) next(mine oplog.Vector) (origin string, after uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	behind := int64(0)
	now, self := time.Now(), f.stream.Self()
	for o, n := range mine {
		have := f.have[o]
		if have >= n {
			delete(f.lag, o)
			continue
		}
		behind += int64(n - have)
		at := max(have, f.sent[o])
		if ok && origin != self || at >= n || f.open >= window || f.trouble != "" {
			continue
		}
		if !f.stream.Own(o) {
			if l, known := f.lag[o]; !known || have >= l.number {
				f.lag[o] = lag{n, now}
				continue
			} else if now.Sub(l.since) < hearsay {
				continue
			}
		}
		if !ok || f.stream.Own(o) {
			origin, after, ok = o, at, true
		}
	}
	f.p.Behind(f.name, behind)
	if behind == 0 {
		f.refuses = "" // it may have got the changes from a third master
	}
	return origin, after, ok
}

func applyLive(stream oplog.Stream, b oplog.Batch) error {
	f, ok := stream.(oplog.Forgetful)
	if !ok || len(b.Origin) > maxOrigin || b.To < b.From {
		return errors.New("a list of valid changes for a stream that has none")
	}
	return f.ApplyLive(b)
}

// Queues hold the batches received on one connection, by stream.
type Queues map[string]chan oplog.Batch

// Apply stores the batches that the peer sends (Give) until stop is called, and answers each.
func Apply(p Peer, streams map[string]oplog.Stream, s *wire.Session) (q Queues, stop func()) {
	e := Queues{}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for name, stream := range streams {
		batches := make(chan oplog.Batch, window)
		e[name] = batches
		wg.Go(func() { apply(p, s, name, stream, batches, done) })
	}
	return e, func() { close(done); wg.Wait() }
}

// Give queues a batch.
func (e Queues) Give(c *wire.Changes) error {
	batches := e[c.Rep]
	if batches == nil {
		return fmt.Errorf("changes of an unknown stream: %.80q", c.Rep)
	}
	b := oplog.Batch{Origin: c.Origin, From: uint64(max(c.From, 0)), To: uint64(max(c.To, 0))}
	if c.Live != nil {
		live, _ := c.Live.([]byte)
		b.Live, b.Forgotten = append([]byte{}, live...), uint64(max(c.Forgotten, 0))
	}
	for _, it := range value.Items(c.Items) {
		l, _ := it.(*value.List)
		if l.Len() != 2 {
			return errors.New("an invalid change")
		}
		n, _ := l.Items[0].(int64)
		data, _ := l.Items[1].([]byte)
		b.Items = append(b.Items, oplog.Item{Number: uint64(max(n, 0)), Data: data})
	}
	select {
	case batches <- b:
		return nil
	default:
		return errors.New("more outstanding changes than allowed")
	}
}

// apply stores batches, and reports to the peer which changes this master has, including those of other masters.
func apply(p Peer, s *wire.Session, name string, stream oplog.Stream, batches chan oplog.Batch, done chan struct{}) {
	tick := time.NewTicker(hearsay / 2)
	defer tick.Stop()
	var reported oplog.Vector
	for {
		answer := &wire.Known{Rep: name}
		select {
		case <-done:
			return
		case b := <-batches:
			answer.Got = 1
			if b.Live != nil {
				if err := applyLive(stream, b); err != nil {
					// Later changes must not be applied before the outdated records are dropped.
					p.Limited.Error("apply "+name, "cannot drop outdated records; retrying", "peer", p.ID, "stream", name, "err", err)
					s.Conn.Close()
					return
				}
				break
			}
			err := stream.Apply(b)
			if !errors.Is(err, oplog.ErrGap) {
				p.Stored(name, err)
			}
			switch {
			case errors.Is(err, oplog.ErrGap):
				answer.Gap = true
			case err != nil:
				p.Limited.Error("apply "+name, "cannot store changes of another master; it will send them again", "peer", p.ID, "stream", name, "err", err)
				answer.Err = fmt.Sprintf("%.500s", err.Error())
			}
		case <-tick.C:
		}
		v, err := stream.Vector()
		if err != nil {
			s.Conn.Close()
			return
		}
		if answer.Got == 0 && maps.Equal(v, reported) {
			continue
		}
		answer.Vec = VectorDict(changedSince(reported, v))
		if err := s.Send(answer); err != nil {
			return
		}
		reported = v
	}
}

// changedSince returns what has changed in a vector since the last report to the peer. A whole vector is too large for every
// answer: a master adds an origin each time that it starts and makes changes. The receiver merges the answer.
func changedSince(reported, now oplog.Vector) oplog.Vector {
	out := oplog.Vector{}
	for origin, n := range now {
		if reported[origin] != n {
			out[origin] = n
		}
	}
	return out
}
