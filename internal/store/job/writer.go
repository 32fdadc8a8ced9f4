package job

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

const (
	// maxQueue and maxWaiting bound the number and the bytes of queued changes.
	maxQueue   = 16 << 10
	maxWaiting = 256 << 20
	// maxBatch and maxBatchBytes bound one transaction.
	maxBatch      = 4 << 10
	maxBatchBytes = 32 << 20
)

type opKind uint8

const (
	opJob opKind = iota
	opMinions
	opReturn
	opNotes
	opWhole
	opPrune
	opRepair // a reader found damage
	opTake   // store a batch of another master
	opRenew
	opRestore // an item of another master that differs
	opResend
	opAdopted
	opProbe
	opFill // contents of short returns
	opNone
)

// op is a change in the queue of the writer.
type op struct {
	kind    opKind
	jid, id string
	load    []byte      // of a job
	ret     []byte      // of a return
	raw     *value.Dict // the whole return, used as the load of an unknown job
	started *value.Dict // the load of a job started by the minion itself, or nil
	minions []string
	whole   []*op     // the returns of a whole job
	until   time.Time // delivery deadline of a queued job, start of reading Salt's files, or hour of a restored job
	notes   Notes
	why     error // of a repair
	batch   oplog.Batch
	took    []Taken // result: new items
	items   []item  // of the batch, decoded
	refused error   // result: why the batch was refused
	dup     bool    // result: the return existed
	filled  bool    // result: of the existing return this store had no content
	differs bool    // result: the existing return has another result
	by      string  // of a restore: the id of this master
	instead bool    // of a restore: replace the local version
	changed bool    // result: of a restore
	dropped int     // result: buckets pruned
	done    func(dup bool, err error)
}

func (o *op) size() int64 {
	n := int64(len(o.load)+len(o.ret)) + 200
	for _, r := range o.whole {
		n += r.size()
	}
	for _, it := range o.batch.Items {
		n += int64(len(it.Data)) + 50
	}
	return n
}

// writer changes the file. It stores all queued changes in one transaction.
type writer struct {
	file   *file
	apply  func(at *place, o *op) error
	stored func() // called after each transaction, unless nil

	ops     chan *op
	waiting atomic.Int64 // bytes in ops
	enter   sync.RWMutex // held for reading while sending to ops
	leaving bool
}

func newWriter(f *file, apply func(at *place, o *op) error) *writer {
	w := &writer{file: f, apply: apply, ops: make(chan *op, maxQueue)}
	f.report = func(why error) error { return w.enqueue(&op{kind: opRepair, why: why}, false) }
	return w
}

// stop ends run after the queued changes are stored.
func (w *writer) stop() {
	w.enter.Lock()
	defer w.enter.Unlock()
	w.leaving = true
	close(w.ops)
}

// wait queues a change for the writer and waits until it is stored.
func (w *writer) wait(o *op) error {
	c := make(chan error, 1)
	o.done = func(_ bool, err error) { c <- err }
	if err := w.enqueue(o, true); err != nil {
		return err
	}
	return <-c
}

// enqueue queues a change for the writer. If it returns no error, done of the change will be
// called. If block is set, it waits for space in the queue.
func (w *writer) enqueue(o *op, block bool) error {
	if w.file.readOnly {
		return salt.Errorf(salt.Invalid, "the job database %s was opened for reading only", w.file.path)
	}
	w.enter.RLock()
	defer w.enter.RUnlock()
	if w.leaving {
		return salt.Errorf(salt.Unavailable, "the job database %s is closed", w.file.path)
	}
	if block {
		w.waiting.Add(o.size())
		w.ops <- o
		return nil
	}
	if w.waiting.Add(o.size()) <= maxWaiting {
		select {
		case w.ops <- o:
			return nil
		default:
		}
	}
	w.waiting.Add(-o.size())
	return salt.Errorf(salt.Unavailable, "the disk of the job database %s cannot keep up with the returns", w.file.path)
}

// run is the goroutine that changes the file.
func (w *writer) run() {
	for o := range w.ops {
		batch := w.gather(o)
		err := w.commit(batch)
		if errors.Is(err, errDamaged) || errors.Is(err, berrors.ErrDatabaseNotOpen) {
			w.file.replace(err)
			err = w.commit(batch) // the batch that met the damage is not lost
		}
		if err != nil {
			err = w.file.failed(err)
		} else if w.stored != nil {
			w.stored()
		}
		for _, o := range batch {
			w.waiting.Add(-o.size())
			if o.done != nil {
				o.done(o.dup && err == nil, err)
			}
		}
	}
}

// gather adds further waiting changes to the batch.
func (w *writer) gather(first *op) []*op {
	batch := []*op{first}
	size := first.size()
	for len(batch) < maxBatch && size < maxBatchBytes {
		select {
		case o, ok := <-w.ops:
			if !ok {
				return batch
			}
			batch = append(batch, o)
			size += o.size()
		default:
			return batch
		}
	}
	return batch
}

// commit stores a batch in one transaction, all or nothing.
func (w *writer) commit(batch []*op) error {
	for _, o := range batch {
		if o.kind == opRepair {
			return o.repair()
		}
	}
	return w.file.update(func(tx *bolt.Tx) error {
		at := &place{tx: tx}
		for _, o := range batch {
			o.dup, o.differs, o.filled = false, false, false
			if err := w.apply(at, o); err != nil {
				return err
			}
		}
		return nil
	})
}

// repair reports the damage found by a reader, once.
func (o *op) repair() error {
	o.kind = opNone
	return o.why
}

// place is the position of the last change of a transaction, since most changes of a batch are
// returns of the same job.
type place struct {
	tx      *bolt.Tx
	jid     string
	hour    *bolt.Bucket
	hasLoad bool
}

// find moves to a job. A new job goes into the current hour.
func (p *place) find(jid string, now time.Time) (err error) {
	if p.hour != nil && p.jid == jid {
		return nil
	}
	hour := findHour(p.tx, jid)
	if hour == nil {
		if hour, err = p.tx.Bucket(hoursBucket).CreateBucketIfNotExists(hourName(now)); err != nil {
			return err
		}
	}
	p.jid, p.hour = jid, hour
	p.hasLoad = hour.Get(key(jid, entryLoad, "")) != nil
	return nil
}
