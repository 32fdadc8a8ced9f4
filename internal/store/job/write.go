package job

import (
	"bytes"
	"maps"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

// NewJob stores a job: its load, which has the jid, and the ids of its minions. It returns when the
// job is on disk, so that it is stored before any minion receives it. An existing job gets the new
// load and minions and keeps its returns; a replicated store merges them with the existing ones
// (see Stream).
func (s *Store) NewJob(load *value.Dict, minions []string) error {
	return s.NewJobUntil(load, minions, time.Time{})
}

// NewJobUntil is NewJob for a job that is queued for disconnected minions until a time. Until then
// Queued returns it.
func (s *Store) NewJobUntil(load *value.Dict, minions []string, until time.Time) error {
	jid, err := checkJID(load)
	if err != nil || !s.o.JobCache {
		return err
	}
	b, err := encode(load)
	if err != nil {
		return err
	}
	return s.writer.wait(&op{kind: opJob, jid: jid, load: b, minions: minions, until: until})
}

// AddMinions adds ids to the minions of a job.
func (s *Store) AddMinions(jid string, ids []string) error {
	if !salt.ValidJID(jid) {
		return salt.Errorf(salt.Invalid, "%.80q is not a job id", jid)
	}
	if !s.o.JobCache || len(ids) == 0 {
		return nil
	}
	return s.writer.wait(&op{kind: opMinions, jid: jid, minions: ids})
}

// Return stores a minion's return (jid, id, return, retcode, success and out of its load), and returns when
// it is on disk. For an unknown job the whole load is stored as the job's. A second return of a minion for a
// job is not stored, and duplicate is true.
func (s *Store) Return(load *value.Dict) (duplicate bool, err error) {
	type result struct {
		dup bool
		err error
	}
	c := make(chan result, 1)
	s.ReturnAsync(load, func(dup bool, err error) { c <- result{dup, err} })
	r := <-c
	return r.dup, r.err
}

// ReturnAsync is Return without waiting: done is called once, possibly before ReturnAsync returns, and must
// be quick. Until then load must not change. If the disk cannot keep up, the error is of kind Unavailable.
func (s *Store) ReturnAsync(load *value.Dict, done func(duplicate bool, err error)) {
	s.ReturnStartedAsync(load, nil, done)
}

// ReturnStartedAsync is ReturnAsync for a job that the minion started itself. If the job is unknown, job is
// stored as its load instead of the return, and the minion as its only target. Other masters of a cluster
// replace job if they published one under that id: see StartedLoad. With a nil job it is ReturnAsync.
func (s *Store) ReturnStartedAsync(load, job *value.Dict, done func(duplicate bool, err error)) {
	o, err := newReturn(load, kept)
	if err != nil || !s.o.JobCache {
		done(false, err)
		return
	}
	o.started = job
	o.done = func(dup bool, err error) {
		s.tell(o, dup)
		done(dup, err)
	}
	if err := s.writer.enqueue(o, false); err != nil {
		done(false, err)
	}
}

// kept are the fields of a return that are stored.
var kept = []string{"return", "retcode", "success", "out", "_stamp"}

func newReturn(load *value.Dict, kept []string) (*op, error) {
	jid, err := checkJID(load)
	if err != nil {
		return nil, err
	}
	id := load.Str("id")
	if err := salt.CheckID(id); err != nil {
		return nil, salt.Errorf(salt.Invalid, "cannot store a return: %w", err)
	}
	b, err := encode(picked(load, kept))
	return &op{kind: opReturn, jid: jid, id: id, ret: b, raw: load}, err
}

func checkJID(load *value.Dict) (string, error) {
	jid := load.Str("jid")
	if !salt.ValidJID(jid) {
		return "", salt.Errorf(salt.Invalid, "%.80q is not a job id", jid)
	}
	return jid, nil
}

// Put adds the missing parts of a job, all or nothing, and keeps existing ones. A new job is stored in the
// hour of its id, so that it is listed and expires with the jobs of its time.
func (s *Store) Put(w *Whole) error {
	o := &op{kind: opWhole, jid: w.JID, minions: w.Minions}
	if !salt.ValidJID(w.JID) {
		return salt.Errorf(salt.Invalid, "%.80q is not a job id", w.JID)
	}
	var err error
	if o.load, err = encode(w.Load); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(w.Returns)) {
		ret := w.Returns[id].Clone()
		ret.Set("jid", w.JID)
		ret.Set("id", id)
		r, err := newReturn(ret, kept)
		if err != nil {
			return err
		}
		o.whole = append(o.whole, r)
	}
	return s.writer.wait(o)
}

// probeKey, in the metadata bucket, has the time of the last probe.
var probeKey = []byte("probed")

// Probe writes a record, and returns an error if the database cannot be written.
func (s *Store) Probe() error { return s.writer.wait(&op{kind: opProbe}) }

// Expired reports whether a job with that id would expire at once if it were added.
func (s *Store) Expired(jid string) bool { return s.o.Expired(jid, s.now()) }

// Prune removes expired jobs, whole hours at a time, and returns the number of hours removed.
func (s *Store) Prune() (hours int, err error) {
	if s.o.Keep() <= 0 {
		return 0, nil
	}
	o := &op{kind: opPrune}
	err = s.writer.wait(o)
	return o.dropped, err
}

func (s *Store) apply(at *place, o *op) error {
	switch o.kind {
	case opPrune:
		n, err := prune(at.tx, s.steady.Removal(), s.steady.Late(), s.o.Keep())
		o.dropped, at.hour = n, nil
		if err == nil && n > 0 && s.stream != nil {
			err = sweepLog(at.tx)
		}
		return err
	case opTake:
		return o.take(at, s.steady.Late(), s.steady.Early())
	case opRestore:
		return o.restore(at, s.now(), s.steady.Early())
	case opResend:
		return o.resend(at)
	case opFill:
		return o.fill(at)
	case opRenew:
		return oplog.Renew(at.tx, s.stream.id)
	case opNotes:
		return o.notes.put(at.tx)
	case opAdopted:
		return putAdopted(at.tx, o.until)
	case opProbe:
		return at.tx.Bucket(metaBucket).Put(probeKey, []byte(s.now().UTC().Format(time.RFC3339)))
	case opJob, opMinions, opReturn, opWhole:
	default:
		return nil
	}
	when := s.steady.Late()
	if t, err := salt.JIDTime(o.jid); o.kind == opWhole && err == nil && t.Before(when) {
		when = t
	}
	if err := at.find(o.jid, when); err != nil {
		return err
	}
	switch o.kind {
	case opJob:
		if s.stream != nil {
			if err := s.stream.published(at, o); err != nil {
				return err
			}
		} else if err := at.putLoad(o.load); err != nil {
			return err
		}
		if err := putQueued(at.tx, o.jid, o.until, s.now(), s.steady.Early()); err != nil {
			return err
		}
		if s.stream != nil {
			return addIDs(at.hour, o.jid, o.minions) // as on other masters when they receive the job
		}
		return putIDs(at.hour, o.jid, o.minions)
	case opMinions:
		if s.stream != nil {
			if err := logJob(at.tx, o.jid); err != nil {
				return err
			}
		}
		return addIDs(at.hour, o.jid, o.minions)
	case opWhole:
		if err := o.applyWhole(at); err != nil || s.stream == nil {
			return err
		}
		return logWhole(at.tx, o)
	}
	hadLoad := at.hasLoad
	if err := o.applyReturn(at); err != nil || o.dup && !o.filled || s.stream == nil {
		return err
	}
	if o.filled && issuerOf(at.hour, o.jid) == s.stream.id {
		o.dup = false // a client may wait here, and has not got the content
	}
	if !hadLoad {
		if err := logJob(at.tx, o.jid); err != nil {
			return err
		}
	}
	return logReturn(at.tx, o.jid, o.id)
}

func (p *place) putLoad(load []byte) error {
	p.hasLoad = true
	return p.hour.Put(key(p.jid, entryLoad, ""), load)
}

func (o *op) applyWhole(at *place) error {
	// A load made from a return has little information about the job, so a published one replaces
	// it.
	if !at.hasLoad || published(o.load) && !published(at.hour.Get(key(o.jid, entryLoad, ""))) {
		if err := at.putLoad(o.load); err != nil {
			return err
		}
	}
	if at.hour.Get(key(o.jid, entryMinions, "")) == nil && o.minions != nil {
		if err := putIDs(at.hour, o.jid, o.minions); err != nil {
			return err
		}
	}
	for _, r := range o.whole {
		if err := r.applyReturn(at); err != nil {
			return err
		}
	}
	return nil
}

func (o *op) applyReturn(at *place) error {
	k := key(o.jid, entryReturn, o.id)
	if there := at.hour.Get(k); there != nil {
		o.dup = true
		if isShort(there) {
			o.filled = true // the masters that had the content may have lost it
			return at.hour.Put(k, o.ret)
		}
		if !bytes.Equal(there, o.ret) {
			old, err := decodeDict(there)
			o.differs = err == nil && o.raw != nil && !sameResult(old, o.raw)
		}
		return nil
	}
	if !at.hasLoad {
		load, minions := o.firstLoad()
		b, err := encode(load)
		if err == nil {
			err = at.putLoad(b)
		}
		if err == nil && minions != nil {
			err = putIDs(at.hour, o.jid, minions)
		}
		if err != nil {
			return err
		}
	}
	return at.hour.Put(k, o.ret)
}

// firstLoad returns the load and the minions of an unknown job according to a return. The minions are nil if
// the return does not list them.
func (o *op) firstLoad() (load *value.Dict, minions []string) {
	if o.started != nil {
		return o.started, []string{o.id}
	}
	return o.raw, nil
}

func putIDs(hour *bolt.Bucket, jid string, ids []string) error {
	b, err := encode(value.Strings(ids))
	if err != nil {
		return err
	}
	return hour.Put(key(jid, entryMinions, ""), b)
}

func addIDs(hour *bolt.Bucket, jid string, ids []string) error {
	all := decodeIDs(hour.Get(key(jid, entryMinions, "")))
	seen := make(map[string]bool, len(all)+len(ids))
	for _, id := range all {
		seen[id] = true
	}
	before := len(all)
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			all = append(all, id)
		}
	}
	if len(all) == before && before > 0 {
		return nil
	}
	return putIDs(hour, jid, all)
}

// prune drops the hours that ended longer ago than keep. An hour in the future, caused by a wrong
// clock, expires when keep has passed since prune first saw it, which it notes as the time noted.
func prune(tx *bolt.Tx, now, noted time.Time, keep time.Duration) (int, error) {
	var old [][]byte
	future := tx.Bucket(futureBucket)
	err := eachHour(tx, false, func(name []byte, _ *bolt.Bucket) error {
		start, err := time.Parse(hourLayout, string(name))
		if err == nil && start.After(now.Add(time.Hour)) {
			noticed, parseErr := time.Parse(time.RFC3339, string(future.Get(name)))
			if parseErr != nil || noticed.After(noted) {
				return future.Put(slices.Clone(name), []byte(noted.UTC().Format(time.RFC3339)))
			}
			start = noticed
		}
		if err != nil || now.Sub(start.Add(time.Hour)) > keep {
			old = append(old, slices.Clone(name))
		}
		return nil
	})
	for _, name := range old {
		if err == nil {
			err = tx.Bucket(hoursBucket).DeleteBucket(name)
		}
		if err == nil {
			err = future.Delete(name)
		}
	}
	return len(old), err
}
