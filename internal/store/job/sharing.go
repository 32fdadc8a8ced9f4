package job

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

// Stream is the part of a Store that replicates jobs and returns to other masters: a log of changes
// (oplog), written in the same transactions. A log entry is the key of a job's load, which
// represents the whole published job, or the key of a return.
//
// Masters with the same entries have the same jobs, whatever the order in which the entries
// arrived. Stored jobs and returns do not change. Two masters may store different versions, for
// example if a minion returned to both while they were disconnected. Then both end up with the
// version that sorts first; a published load wins over one made from a return. The minions of a job
// are the union of all versions.
type Stream struct {
	file   *file
	writer *writer
	id     string // of this master
	signal oplog.Signal
	taken  func([]Taken)

	holds    atomic.Pointer[Holds]
	contents Contents
	where    func(p Place) string
}

// Taken is a change from another master that was new to this store.
type Taken struct {
	JID string
	// ID is the minion of a return, "" for a job.
	ID string
	// Return is the stored return, nil if this master has it without its content (Short).
	Return *value.Dict
	Short  bool
	// Receiver is that of the Place of a short return.
	Receiver string
	// Load, Minions, Until and From belong to a job.
	Load    *value.Dict
	Minions []string
	Until   time.Time
	From    string
}

// OpenSharing is Open for a master of a cluster in which each master has its own database. id is
// that of the master. taken is called once with changes from other masters, after they are on disk.
func OpenSharing(dir, id string, o Options, taken func([]Taken), log *slog.Logger) (*Store, error) {
	s := newStore(dir, o, log)
	s.stream = &Stream{file: s.file, writer: s.writer, id: id, taken: taken}
	s.file.setup = s.stream.makeBuckets
	s.writer.stored = s.stream.signal.Fire
	return s.open()
}

// Stream returns the changes of a store opened by OpenSharing, else nil.
func (s *Store) Stream() *Stream { return s.stream }

var _ oplog.Lister = (*Stream)(nil)

func (s *Stream) makeBuckets(tx *bolt.Tx) error {
	if err := oplog.Init(tx, s.id); err != nil {
		return err
	}
	return makeBuckets(tx)
}

func logJob(tx *bolt.Tx, jid string) error {
	_, _, err := oplog.Append(tx, key(jid, entryLoad, ""))
	return err
}

func logReturn(tx *bolt.Tx, jid, id string) error {
	_, _, err := oplog.Append(tx, key(jid, entryReturn, id))
	return err
}

// logWhole logs an imported job with its returns.
func logWhole(tx *bolt.Tx, o *op) error {
	err := logJob(tx, o.jid)
	for _, r := range o.whole {
		if err == nil && !r.dup {
			err = logReturn(tx, o.jid, r.id)
		}
	}
	return err
}

// sweepLog removes the log entries of expired jobs.
func sweepLog(tx *bolt.Tx) error {
	return oplog.Sweep(tx, func(ref []byte) bool {
		jid, _, _ := splitKey(ref)
		return findHour(tx, jid) == nil
	})
}

// published stores the load of a job published by this master.
func (s *Stream) published(at *place, o *op) error {
	if err := at.mergeLoad(o.load); err != nil {
		return err
	}
	if err := at.putFrom(o.until, s.id); err != nil {
		return err
	}
	return logJob(at.tx, o.jid)
}

func (p *place) putFrom(until time.Time, from string) error {
	ms := uint64(0)
	if !until.IsZero() {
		ms = uint64(until.UnixMilli())
	}
	return p.hour.Put(key(p.jid, entryFrom, ""), append(binary.BigEndian.AppendUint64(nil, ms), from...))
}

func readFrom(hour *bolt.Bucket, jid string) (until time.Time, from string) {
	b := hour.Get(key(jid, entryFrom, ""))
	if len(b) < 8 {
		return time.Time{}, ""
	}
	if ms := binary.BigEndian.Uint64(b); ms > 0 {
		until = time.UnixMilli(int64(ms))
	}
	return until, string(b[8:])
}

// mergeLoad stores a load unless the stored one takes precedence.
func (p *place) mergeLoad(load []byte) error {
	old := p.hour.Get(key(p.jid, entryLoad, ""))
	if old != nil {
		if a, b := published(load), published(old); a != b && b || a == b && bytes.Compare(load, old) >= 0 {
			return nil
		}
	}
	return p.putLoad(load)
}

// published reports whether a load was published by a master, rather than made from a return.
func published(load []byte) bool {
	d, err := decodeDict(load)
	return err == nil && Published(d)
}

// Self implements oplog.Stream.
func (s *Stream) Self() (self string) {
	s.file.view(func(tx *bolt.Tx) error { self = oplog.Self(tx); return nil })
	return self
}

// Own implements oplog.Stream.
func (s *Stream) Own(origin string) bool { return oplog.Own(origin, s.id) }

// Vector implements oplog.Stream.
func (s *Stream) Vector() (v oplog.Vector, err error) {
	err = s.file.view(func(tx *bolt.Tx) error { v = oplog.ReadVector(tx); return nil })
	return v, err
}

// Changed implements oplog.Stream.
func (s *Stream) Changed() <-chan struct{} { return s.signal.Wait() }

// Renew implements oplog.Stream.
func (s *Stream) Renew() error { return s.writer.wait(&op{kind: opRenew}) }

// The kinds of items in a batch.
const (
	itemJob    = "job"
	itemReturn = "return"
	itemShort  = "short"
)

// Read implements oplog.Stream. It leaves short returns out.
func (s *Stream) Read(origin string, after uint64, items, size int) (oplog.Batch, error) {
	return s.read(origin, after, items, size, onlyFull)
}

// form chooses the form in which to send a return; nil leaves it out.
type form func(hour *bolt.Bucket, jid, id string, raw []byte) []byte

func (s *Stream) read(origin string, after uint64, items, size int, in form) (oplog.Batch, error) {
	b := oplog.Batch{Origin: origin, From: after}
	err := s.file.view(func(tx *bolt.Tx) error {
		var failed error
		b.To = oplog.Each(tx, origin, after, func(n uint64, ref []byte) bool {
			if len(b.Items) >= items || size <= 0 {
				return false
			}
			data, err := readItem(tx, ref, in)
			if err != nil {
				failed = err
				return false
			}
			if data != nil {
				b.Items = append(b.Items, oplog.Item{Number: n, Data: data})
				size -= len(data)
			}
			return true
		})
		return failed
	})
	return b, err
}

// ReadLive implements oplog.Lister.
func (s *Stream) ReadLive(origin string, after uint64) (b oplog.Batch, err error) {
	err = s.file.view(func(tx *bolt.Tx) error { b = oplog.List(tx, origin, after); return nil })
	return b, err
}

// readItem returns the data to send for an entry, nil if it has expired.
func readItem(tx *bolt.Tx, ref []byte, in form) ([]byte, error) {
	jid, entry, id := splitKey(ref)
	hour := findHour(tx, jid)
	if hour == nil {
		return nil, nil
	}
	if entry == entryReturn {
		ret := hour.Get(ref)
		if ret != nil {
			ret = in(hour, jid, id, ret)
		}
		if ret == nil {
			return nil, nil
		}
		if isShort(ret) {
			return encode(&value.List{Items: []any{itemShort, jid, id, bytes.Clone(ret[1 : 1+sumLen]), receiverOf(ret)}})
		}
		return encode(&value.List{Items: []any{itemReturn, jid, id, bytes.Clone(ret)}})
	}
	load := hour.Get(key(jid, entryLoad, ""))
	if load == nil {
		return nil, nil
	}
	until, from := readFrom(hour, jid)
	ms := int64(0)
	if !until.IsZero() {
		ms = until.UnixMilli()
	}
	return encode(&value.List{Items: []any{itemJob, jid, bytes.Clone(load), value.Strings(decodeIDs(hour.Get(key(jid, entryMinions, "")))), ms, from}})
}

// Apply implements oplog.Stream. If an item cannot be decoded, it applies the items before it and
// returns an error, so that only stored items are acknowledged.
func (s *Stream) Apply(b oplog.Batch) error {
	items, unreadable := oplog.Decode(&b, func(it oplog.Item) (item, error) { return decodeItem(it.Data) })
	o := &op{kind: opTake, batch: b, items: items}
	if err := s.writer.wait(o); err != nil {
		return err
	}
	if o.refused != nil {
		return o.refused
	}
	if s.taken != nil && len(o.took) > 0 {
		s.taken(o.took)
	}
	return unreadable
}

// take stores the new items of a batch at the time now; what has expired at the time early may go. An invalid batch is skipped, so that the transaction can
// store its other changes.
func (o *op) take(at *place, now, early time.Time) error {
	o.took, o.refused = nil, nil
	before, err := oplog.Accept(at.tx, o.batch)
	if err != nil {
		o.refused = err
		return nil
	}
	for i, it := range o.batch.Items {
		if it.Number <= before {
			continue
		}
		t, ref, err := at.takeItem(o.items[i], now, early)
		if err == nil {
			err = oplog.Put(at.tx, o.batch.Origin, it.Number, ref)
		}
		if err != nil {
			return err
		}
		if t != nil {
			o.took = append(o.took, *t)
		}
	}
	return nil
}

var errItem = errors.New("neither a job nor a return")

// item is a decoded item of a batch: a job, or a return if it has the ID of a minion. raw is its
// load or return.
type item struct {
	Taken
	raw []byte
}

func decodeItem(data []byte) (item, error) {
	v, err := msgpack.UnmarshalTyped(data)
	l, _ := v.(*value.List)
	if err != nil || l.Len() < 4 {
		return item{}, errItem
	}
	jid, _ := l.Items[1].(string)
	if !salt.ValidJID(jid) {
		return item{}, errItem
	}
	switch {
	case l.Items[0] == itemReturn && l.Len() == 4:
		id, _ := l.Items[2].(string)
		ret := value.Bytes(l.Items[3])
		d, err := decodeDict(ret)
		if err != nil || salt.CheckID(id) != nil {
			return item{}, errItem
		}
		return item{Taken{JID: jid, ID: id, Return: d}, ret}, nil
	case l.Items[0] == itemShort && l.Len() == 5:
		id, _ := l.Items[2].(string)
		sum := value.Bytes(l.Items[3])
		receiver, isText := l.Items[4].(string)
		if salt.CheckID(id) != nil || len(sum) != sumLen || !isText || len(receiver) > maxMark {
			return item{}, errItem
		}
		return item{Taken{JID: jid, ID: id, Short: true, Receiver: receiver}, shortOf(sum, receiver)}, nil
	case l.Items[0] == itemJob && l.Len() == 6:
		load := value.Bytes(l.Items[2])
		d, err := decodeDict(load)
		ms, isInt := l.Items[4].(int64)
		from, isText := l.Items[5].(string)
		if err != nil || !isInt || !isText || ms < 0 {
			return item{}, errItem
		}
		t := Taken{JID: jid, Load: d, Minions: value.Texts(l.Items[3]), From: from}
		if ms > 0 {
			t.Until = time.UnixMilli(ms)
		}
		return item{t, load}, nil
	}
	return item{}, errItem
}

// takeItem stores an item, and returns it if it was new, and its log entry.
func (p *place) takeItem(it item, now, early time.Time) (news *Taken, ref []byte, err error) {
	if it.ID != "" {
		news, err = p.takeReturn(it, now)
		return news, key(it.JID, entryReturn, it.ID), err
	}
	isNew, err := p.takeJob(it.Taken, it.raw, now, early)
	if isNew && err == nil {
		news = &it.Taken
	}
	return news, key(it.JID, entryLoad, ""), err
}

// takeReturn stores a return of another master. It is new also if it is the content of a short one, or a
// short one with another receiver.
func (p *place) takeReturn(it item, now time.Time) (*Taken, error) {
	if err := p.find(it.JID, now); err != nil {
		return nil, err
	}
	old := p.hour.Get(it.ref())
	switch {
	case old != nil && !beats(it.raw, old):
		return nil, nil
	case old != nil && !isShort(old):
		return nil, p.hour.Put(it.ref(), it.raw)
	}
	return &it.Taken, p.hour.Put(it.ref(), it.raw)
}

func (p *place) takeJob(t Taken, load []byte, now, early time.Time) (news bool, err error) {
	if err := p.find(t.JID, now); err != nil {
		return false, err
	}
	old := p.hour.Get(key(t.JID, entryLoad, ""))
	news = old == nil || !published(old) // a load made from a return is not a published job
	if err := p.mergeLoad(load); err != nil {
		return news, err
	}
	if t.From != "" && p.hour.Get(key(t.JID, entryFrom, "")) == nil {
		if err := p.putFrom(t.Until, t.From); err != nil {
			return news, err
		}
		if err := putQueued(p.tx, t.JID, t.Until, now, early); err != nil {
			return news, err
		}
	}
	return news, addIDs(p.hour, t.JID, t.Minions)
}
