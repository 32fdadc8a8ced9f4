package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/journal"
)

// jobJournal is what the minion knows of jobs beyond the life of its process: the
// ids of those that it has begun, so that none runs twice, and the returns
// that masters have not taken yet, so that none is lost. It is a journal on
// disk and an index of it. Without the journal (another process has it, the
// disk is broken) it serves as long as the process lives.
//
// A job is noted when it begins; the note is with the system before the
// function runs and on disk soon after. A return is on disk before it is sent.
type jobJournal struct {
	limit   int64 // bytes of returns
	maxSeen int
	log     *slog.Logger
	flushes wait.Wakeup

	mu      sync.Mutex
	path    string
	file    *journal.Journal // nil: nothing outlives the process
	full    error            // why there is none, if the disk was full
	seen    map[string]bool
	order   []string // of seen, oldest first
	begun   map[string]*value.Dict
	parcels map[string]*parcel
	queue   []*parcel // oldest first, with some that are done
	live    int64     // bytes of the parcels
	dropped []string  // ids of returns that were given up, to be told
	failing bool      // the last write failed
}

// parcel is a return on its way.
type parcel struct {
	jid   string
	at    journal.Position
	load  *value.Dict // if it could not be written; else it is read from the journal
	size  int64
	since time.Time
	to    []destination
	taken bool // by some master, so that it is not lost any more
	done  bool
	lent  time.Time // when it was given to a master that did not publish the job
}

// destination is a master that a return is meant for.
type destination struct {
	addr   string
	queued bool // in the queue of its connection
}

// The kinds of records.
const (
	recSeen      = 's' // id
	recBegun     = 'b' // {jid, fun, ...}: what is needed to tell that it was interrupted
	recProcess   = 'p' // {jid, pid, start}
	recEnded     = 'e' // id of a job whose return no master wants
	recReturn    = 'r' // {to, since, taken, load}
	recDelivered = 'd' // {jid, to}
	recGone      = 'x' // id of a return that is done or given up
)

const (
	// rememberJobs is the least number of jobs that are remembered.
	rememberJobs = 10_000
	// maxParcels bounds the returns that wait, beside their bytes.
	maxParcels = 50_000
	// maxHeld bounds the bytes of returns while they cannot be written.
	maxHeld = 32 << 20
	// spareQueue is how many entries of the queue may be done, beside as many as
	// wait.
	spareQueue = 64
	// garbage is how much of the journal may be out of date.
	garbage = 4 << 20
	// keepTaken is how long a return that one master has is kept for another.
	keepTaken = 7 * 24 * time.Hour
)

func newJournal(limit int64, seen int, log *slog.Logger) *jobJournal {
	return &jobJournal{limit: limit, maxSeen: max(seen, rememberJobs), log: log, flushes: wait.NewWakeup(),
		seen: map[string]bool{}, begun: map[string]*value.Dict{}, parcels: map[string]*parcel{}}
}

// reserve is the disk space that is kept for notes of jobs: several hundred that
// begin while the disk is full.
const reserve = 256 << 10

// open takes over the journal at path.
func (j *jobJournal) open(path string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.path = path
	if err := j.reopen(); err != nil {
		j.log.Error("the journal of jobs cannot be used: returns and the ids of jobs are kept in memory only, and are lost when this process ends", "path",
			path, "err", err)
	}
}

// reopen opens the journal; j.mu is held.
func (j *jobJournal) reopen() error {
	file, cut, err := journal.Open(j.path, j.replay)
	if cut > 0 {
		j.log.Warn("the end of the journal of jobs could not be read: the last notes before a loss of power, or damage", "path", j.path, "bytes", cut)
	}
	j.full = nil
	if err != nil {
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			j.full = err
		}
		return err
	}
	j.file = file
	if err := file.Reserve(reserve); err != nil {
		j.log.Warn("cannot reserve disk space for the notes of jobs; without free space no job runs that the master cannot record", "path", j.path, "bytes",
			reserve, "err", err)
	}
	j.compact()
	return nil
}

// replay takes one record. One that makes no sense is left out.
func (j *jobJournal) replay(r journal.Record) error {
	var d *value.Dict
	switch r.Kind {
	case recBegun, recProcess, recReturn, recDelivered:
		v, err := msgpack.UnmarshalTyped(r.Payload)
		if d, _ = v.(*value.Dict); err != nil || d == nil {
			return nil
		}
	}
	switch r.Kind {
	case recSeen:
		j.remember(string(r.Payload))
	case recBegun:
		var n begunNote
		wire.View(d, &n)
		j.remember(n.JID)
		j.begun[n.JID] = d
	case recProcess:
		j.replayProcess(d)
	case recEnded:
		delete(j.begun, string(r.Payload))
	case recReturn:
		j.replayReturn(d, r.At)
	case recDelivered:
		var n deliveredNote
		wire.View(d, &n)
		j.strike(n.JID, n.To)
	case recGone:
		j.remove(j.parcels[string(r.Payload)])
	}
	return nil
}

func (j *jobJournal) replayProcess(d *value.Dict) {
	var p processNote
	wire.View(d, &p)
	b := j.begun[p.JID]
	if b == nil {
		return
	}
	var n begunNote
	wire.View(b, &n)
	b.Set("processes", value.ListOf(append(value.Items(n.Processes), d)...))
}

func (j *jobJournal) replayReturn(d *value.Dict, at journal.Position) {
	var n returnNote
	wire.View(d, &n)
	p := &parcel{jid: jidOf(n.Load), at: at, size: at.Size(), since: time.Unix(n.Since, 0), taken: n.Taken}
	for _, to := range value.Items(n.To) {
		if addr, ok := to.(string); ok {
			p.to = append(p.to, destination{addr: addr})
		}
	}
	delete(j.begun, p.jid)
	j.enter(p)
}

func (j *jobJournal) remember(jid string) {
	if j.seen[jid] {
		return
	}
	j.seen[jid] = true
	j.order = append(j.order, jid)
	for len(j.order) > j.maxSeen {
		delete(j.seen, j.order[0])
		j.order = j.order[1:]
	}
}

// knows reports whether a job was begun before.
func (j *jobJournal) knows(jid string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seen[jid]
}

// smallArg bounds the arguments that are noted with a job.
const smallArg = 16 << 10

// begin notes that a job is about to run for some masters. An error says that a
// later process would not know it. Without a journal, for another reason than a
// full disk, none is expected to.
func (j *jobJournal) begin(jid string, fun any, load *value.Dict, masters []string) error {
	d := value.DictOf("jid", jid, "fun", fun, "to", masters)
	for _, k := range []string{"user", "master_id", "metadata", "ret", "ret_config", "ret_kwargs", "schedule", "startup_states"} {
		if v, ok := load.Get(k); ok {
			d.Set(k, v)
		}
	}
	var pub wire.Job
	wire.View(load, &pub)
	if value.Weight(pub.Arg, smallArg) <= smallArg {
		d.Set("arg", pub.Arg)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.remember(jid)
	if j.full != nil {
		_ = j.reopen() // there may be room by now
	}
	j.begun[jid] = d
	switch {
	case j.full != nil:
		return j.full
	case j.file == nil:
		return nil
	}
	_, err := j.write(recBegun, d)
	if err != nil {
		return fmt.Errorf("%s: %w", j.path, err)
	}
	j.flushes.Wake()
	return nil
}

// started notes a process that a job has started.
func (j *jobJournal) started(jid string, pid int) {
	d := value.DictOf("jid", jid, "pid", pid, "start", startTime(pid))
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = j.write(recProcess, d)
}

// end notes that a job has ended without a return that anybody wants.
func (j *jobJournal) end(jid string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.begun, jid)
	j.writeRaw(recEnded, jid)
}

// keep puts a return on disk for some masters, in whose queues it will be, and
// comes back when it is there. If it cannot be written it is kept in memory.
func (j *jobJournal) keep(ret *value.Dict, masters []string) {
	p := &parcel{jid: jidOf(ret), since: time.Now()}
	for _, addr := range masters {
		p.to = append(p.to, destination{addr, true})
	}
	j.mu.Lock()
	delete(j.begun, p.jid)
	at, err := j.write(recReturn, p.record(ret))
	p.at, p.size = at, at.Size()
	if err != nil {
		p.load, p.size = ret, int64(value.Weight(ret, MaxReturn))
	}
	j.enter(p)
	j.makeRoom()
	j.compact()
	file := j.file
	j.mu.Unlock()
	if file == nil || err != nil {
		return
	}
	if err := file.Sync(); err != nil {
		j.log.Error("a return may not survive a loss of power", "jid", p.jid, "err", err)
	}
}

func (p *parcel) record(load *value.Dict) *value.Dict {
	to := &value.List{}
	for _, d := range p.to {
		to.Items = append(to.Items, d.addr)
	}
	return value.DictOf("to", to, "since", p.since.Unix(), "taken", p.taken, "load", load)
}

// write appends a record; j.mu is held. Its failure is logged once until one
// succeeds.
func (j *jobJournal) write(kind byte, d *value.Dict) (journal.Position, error) {
	if j.file == nil {
		return journal.Position{}, errors.New("there is no journal")
	}
	b, err := msgpack.Marshal(d, msgpack.NewSpec)
	if err != nil {
		j.log.Error("a job cannot be noted in the journal", "jid", jidOf(d), "err", err)
		return journal.Position{}, err
	}
	return j.append(kind, b)
}

func (j *jobJournal) writeRaw(kind byte, jid string) {
	if j.file != nil {
		_, _ = j.append(kind, []byte(jid))
	}
}

func (j *jobJournal) append(kind byte, b []byte) (journal.Position, error) {
	write := j.file.AppendNote
	if kind == recReturn {
		write = j.file.Append
	}
	at, err := write(kind, b)
	if err != nil && !j.failing {
		j.log.Error("the journal of jobs cannot be written: returns are kept in memory only", "path", j.path, "err", err)
	}
	j.failing = err != nil
	return at, err
}

func (j *jobJournal) enter(p *parcel) {
	j.remove(j.parcels[p.jid])
	j.parcels[p.jid] = p
	j.queue = append(j.queue, p)
	j.live += p.size
}

// remove takes a parcel out; j.mu is held.
func (j *jobJournal) remove(p *parcel) {
	if p == nil || p.done {
		return
	}
	p.done, p.load = true, nil
	j.live -= p.size
	delete(j.parcels, p.jid)
	for len(j.queue) > 0 && j.queue[0].done {
		j.queue[0] = nil
		j.queue = j.queue[1:]
	}
	// Behind a return that waits for long the done ones must not pile up.
	if len(j.queue) > 2*len(j.parcels)+spareQueue {
		j.queue = slices.DeleteFunc(j.queue, func(p *parcel) bool { return p.done })
	}
}

// strike notes that a master has a return, and reports whether all have it
// that should.
func (j *jobJournal) strike(jid, addr string) (all bool) {
	p := j.parcels[jid]
	if p == nil {
		return false
	}
	p.taken = true
	p.to = slices.DeleteFunc(p.to, func(d destination) bool { return d.addr == addr })
	if len(p.to) == 0 {
		j.remove(p)
		return true
	}
	return false
}

// missing returns the masters that have not taken a return.
func (j *jobJournal) missing(jid string) (addrs []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p := j.parcels[jid]; p != nil {
		for _, d := range p.to {
			addrs = append(addrs, d.addr)
		}
	}
	return addrs
}

// delivered notes that a master has taken a return.
func (j *jobJournal) delivered(jid, addr string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.parcels[jid] == nil {
		return
	}
	if j.strike(jid, addr) {
		j.writeRaw(recGone, jid)
	} else {
		_, _ = j.write(recDelivered, value.DictOf("jid", jid, "to", addr))
	}
	j.compact()
}

// also adds a master that wants a return which is there already.
func (j *jobJournal) also(jid, addr string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.parcels[jid]
	if p == nil || slices.ContainsFunc(p.to, func(d destination) bool { return d.addr == addr }) {
		return
	}
	if load, err := j.read(p); err == nil {
		p.to = append(p.to, destination{addr, true})
		if at, err := j.write(recReturn, p.record(load)); err == nil {
			j.live += at.Size() - p.size
			p.at, p.size, p.load = at, at.Size(), nil
		}
	}
}

// read returns the return of a parcel; j.mu is held.
func (j *jobJournal) read(p *parcel) (*value.Dict, error) {
	if p.load != nil {
		return p.load, nil
	}
	if j.file == nil {
		return nil, errors.New("there is no journal")
	}
	b, err := j.file.Read(p.at)
	if err != nil {
		return nil, err
	}
	v, err := msgpack.UnmarshalTyped(b)
	if err != nil {
		return nil, err
	}
	d, _ := v.(*value.Dict)
	var n returnNote
	if wire.View(d, &n); n.Load == nil {
		return nil, salt.Errorf(salt.Internal, "a return in the journal is none")
	}
	return n.Load, nil
}

// release notes that a return was put out of the queue of a connection, and
// reports whether it is safe here.
func (j *jobJournal) release(jid, addr string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.parcels[jid]
	if p == nil {
		return false
	}
	for i := range p.to {
		if p.to[i].addr == addr {
			p.to[i].queued = false
			return true
		}
	}
	return false
}

// waiting returns up to n returns for a master that are not in its queue yet,
// the oldest first; they count as being there now.
func (j *jobJournal) waiting(addr string, n int) (loads []*value.Dict, more bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.queue {
		i := slices.IndexFunc(p.to, func(d destination) bool { return d.addr == addr && !d.queued })
		if p.done || i < 0 {
			continue
		}
		if len(loads) == n {
			return loads, true
		}
		load, err := j.read(p)
		if err != nil {
			j.log.Error("a return cannot be read from the journal", "jid", p.jid, "err", err)
			p.to[i].queued = true // and not again
			continue
		}
		p.to[i].queued = true
		loads = append(loads, load)
	}
	return loads, false
}

// stray is a return whose own masters do not take it.
type stray struct {
	load *value.Dict
	own  []string
}

// again is how long a return that was given to another master waits for it.
const again = 30 * time.Second

// strays returns up to n returns that no master has taken since a moment.
func (j *jobJournal) strays(since, now time.Time, n int) (out []stray) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.queue {
		if p.done || p.taken || p.since.After(since) || now.Sub(p.lent) < again {
			continue
		}
		load, err := j.read(p)
		if err != nil {
			continue
		}
		p.lent = now
		s := stray{load: load}
		for _, d := range p.to {
			s.own = append(s.own, d.addr)
		}
		if out = append(out, s); len(out) == n {
			break
		}
	}
	return out
}

// forgetMasters takes masters that are not in the configuration any more from
// the returns that another master has taken, and, if strict, from all.
func (j *jobJournal) forgetMasters(known []string, strict bool, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range slices.Clone(j.queue) {
		if p.done || !p.taken && !strict {
			continue
		}
		p.to = slices.DeleteFunc(p.to, func(d destination) bool { return !slices.Contains(known, d.addr) })
		if len(p.to) == 0 || p.taken && now.Sub(p.since) > keepTaken {
			j.giveUp(p)
		}
	}
}

// makeRoom gives up returns until the rest is within the bounds: first those
// that some master has, then the oldest.
func (j *jobJournal) makeRoom() {
	limit := j.limit
	if j.file == nil || j.failing {
		limit = min(limit, maxHeld)
	}
	for _, taken := range []bool{true, false} {
		for i := 0; i < len(j.queue) && (j.live > limit || len(j.parcels) > maxParcels); {
			p := j.queue[i]
			if p.done || p.taken != taken || len(j.parcels) == 1 {
				i++
				continue
			}
			n := len(j.queue)
			j.giveUp(p)
			i -= n - len(j.queue)
			i = max(i, 0)
		}
	}
}

// maxDropped bounds the ids that are told of.
const maxDropped = 1000

// giveUp drops a return; j.mu is held.
func (j *jobJournal) giveUp(p *parcel) {
	lost := !p.taken
	jid := p.jid
	j.remove(p)
	j.writeRaw(recGone, jid)
	if !lost {
		return
	}
	j.log.Error("a return is given up: too many wait for masters that are away", "jid", jid, "limit", j.limit)
	if len(j.dropped) < maxDropped {
		j.dropped = append(j.dropped, jid)
	}
}

// givenUp returns the ids of the returns given up since the last call.
func (j *jobJournal) givenUp() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	d := j.dropped
	j.dropped = nil
	return d
}

// interrupted returns the jobs that were begun by an earlier process and did
// not end, in the order of their ids. They do not count as begun any more once
// keep was called for them.
func (j *jobJournal) interrupted() []*value.Dict {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]*value.Dict, 0, len(j.begun))
	for _, jid := range slices.Sorted(maps.Keys(j.begun)) {
		out = append(out, j.begun[jid])
	}
	return out
}

// compact rewrites the journal when most of it is out of date; j.mu is
// held.
func (j *jobJournal) compact() {
	if j.file == nil {
		return
	}
	needed := j.live + int64(len(j.order))*32
	if size := j.file.Size(); size < garbage || size-needed < needed || size-needed < garbage {
		return
	}
	moved := map[*parcel]journal.Position{}
	err := j.file.Rewrite(func(emit emitFunc, read func(journal.Position) ([]byte, error)) error {
		return j.rewrite(moved, emit, read)
	})
	if err != nil {
		j.log.Error("cannot rewrite the journal of jobs", "err", err)
		return
	}
	for p, at := range moved {
		p.at = at
	}
}

type emitFunc = func(kind byte, payload []byte) (journal.Position, error)

// rewrite emits what still counts, and enters where the returns went.
func (j *jobJournal) rewrite(moved map[*parcel]journal.Position, emit emitFunc, read func(journal.Position) ([]byte, error)) error {
	for _, jid := range j.order {
		if _, err := emit(recSeen, []byte(jid)); err != nil {
			return err
		}
	}
	for _, d := range j.begun {
		b, err := msgpack.Marshal(d, msgpack.NewSpec)
		if err == nil {
			_, err = emit(recBegun, b)
		}
		if err != nil {
			return err
		}
	}
	for _, p := range j.queue {
		if p.done || p.load != nil {
			continue
		}
		b, err := read(p.at)
		if err != nil {
			j.log.Error("a return cannot be read from the journal", "jid", p.jid, "err", err)
			continue
		}
		if moved[p], err = emit(recReturn, b); err != nil {
			return err
		}
		if err := p.emitTaken(b, emit); err != nil {
			return err
		}
	}
	return nil
}

// emitTaken repeats what was noted of a return since it was written.
func (p *parcel) emitTaken(record []byte, emit emitFunc) error {
	v, _ := msgpack.UnmarshalTyped(record)
	d, _ := v.(*value.Dict)
	var n returnNote
	wire.View(d, &n)
	all := value.Items(n.To)
	for _, to := range all {
		addr, _ := to.(string)
		if slices.ContainsFunc(p.to, func(d destination) bool { return d.addr == addr }) {
			continue
		}
		b, err := msgpack.Marshal(value.DictOf("jid", p.jid, "to", addr), msgpack.NewSpec)
		if err == nil {
			_, err = emit(recDelivered, b)
		}
		if err != nil {
			return err
		}
	}
	if p.taken && len(p.to) == len(all) { // by a master that did not publish it
		b, err := msgpack.Marshal(value.DictOf("jid", p.jid, "to", ""), msgpack.NewSpec)
		if err == nil {
			_, err = emit(recDelivered, b)
		}
		return err
	}
	return nil
}

// flush brings the notes to disk.
func (j *jobJournal) flush() {
	j.mu.Lock()
	file := j.file
	j.mu.Unlock()
	if file == nil {
		return
	}
	if err := file.Sync(); err != nil {
		j.log.Error("the ids of jobs may not survive a loss of power", "err", err)
	}
}

// allWaiting marks all returns as being in no queue.
func (j *jobJournal) allWaiting() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.queue {
		for i := range p.to {
			p.to[i].queued = false
		}
	}
}

// close flushes and lets go of the journal.
func (j *jobJournal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return
	}
	if err := errors.Join(j.file.Sync(), j.file.Close()); err != nil {
		j.log.Error("the journal of jobs could not be closed", "err", err)
	}
	j.file = nil
}
