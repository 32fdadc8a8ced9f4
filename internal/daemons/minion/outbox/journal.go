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

// jobJournal stores what must survive the process: the ids of started jobs, so that none
// runs twice, and the returns that masters have not accepted yet, so that none is lost. It
// is a journal on disk with an index in memory. If it cannot use the file (another process
// has it, or the disk fails), it works in memory until the process ends.
//
// A job is recorded when it starts: the record is in the kernel before the function runs,
// and on disk soon after. A return is on disk before it is sent.
type jobJournal struct {
	limit   int64 // limit of the bytes of returns
	maxSeen int
	log     *slog.Logger
	flushes wait.Wakeup

	mu      sync.Mutex
	path    string
	file    *journal.Journal // nil: the records are lost when the process ends
	full    error            // the error of reopen if the disk was full
	seen    map[string]bool
	order   []string // of seen, oldest first
	begun   map[string]*value.Dict
	parcels map[string]*parcel
	queue   []*parcel // oldest first; includes some done ones
	live    int64     // bytes of the returns
	dropped []string  // ids of dropped returns that are not reported yet
	failing bool      // the last write failed
}

// parcel is a return that is not delivered to all its masters.
type parcel struct {
	jid   string
	at    journal.Position
	load  *value.Dict // nil if the journal has it
	size  int64
	since time.Time
	to    []destination
	taken bool // some master has accepted it, so it cannot be lost
	done  bool
	lent  time.Time // when it was last sent to a master that did not publish the job
}

// destination is a master that should get a return.
type destination struct {
	addr   string
	queued bool // in the queue of that master
}

// The kinds of records.
const (
	recSeen      = 's' // id
	recBegun     = 'b' // {jid, fun, ...}: what the return of an interrupted job needs
	recProcess   = 'p' // {jid, pid, start}
	recEnded     = 'e' // id of a job that ended and has no return for masters
	recReturn    = 'r' // {to, since, taken, load}
	recDelivered = 'd' // {jid, to}
	recGone      = 'x' // id of a return that all masters have or that was dropped
)

const (
	// rememberJobs is the minimum number of remembered jobs.
	rememberJobs = 10_000
	// maxParcels bounds the number of queued returns; their bytes have a limit of their
	// own.
	maxParcels = 50_000
	// maxHeld bounds the bytes of returns while they are in memory only.
	maxHeld = 32 << 20
	// spareQueue is how many done entries the queue may have in addition to one for each
	// waiting entry.
	spareQueue = 64
	// garbage is how many outdated bytes the journal may have before it is rewritten.
	garbage = 4 << 20
	// keepTaken is how long a return that one master has accepted is stored for the others.
	keepTaken = 7 * 24 * time.Hour
)

func newJournal(limit int64, seen int, log *slog.Logger) *jobJournal {
	return &jobJournal{limit: limit, maxSeen: max(seen, rememberJobs), log: log, flushes: wait.NewWakeup(),
		seen: map[string]bool{}, begun: map[string]*value.Dict{}, parcels: map[string]*parcel{}}
}

// reserve is the disk space reserved for records of jobs, enough for several hundred that
// start while the disk is full.
const reserve = 256 << 10

// open opens the journal at path and replays it.
func (j *jobJournal) open(path string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.path = path
	if err := j.reopen(); err != nil {
		j.log.Error("cannot use the job journal: returns and job ids are kept in memory only and are lost when this process ends", "path",
			path, "err", err)
	}
}

// reopen opens the journal; j.mu is held.
func (j *jobJournal) reopen() error {
	file, cut, err := journal.Open(j.path, j.replay)
	if cut > 0 {
		j.log.Warn("cannot read the end of the job journal: records lost in a power failure, or damage", "path", j.path, "bytes", cut)
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
		j.log.Warn("cannot reserve disk space for job records; on a full disk, jobs that the master cannot record do not run", "path", j.path, "bytes",
			reserve, "err", err)
	}
	j.compact()
	return nil
}

// replay applies one record. Invalid records are skipped.
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

// knows reports whether a job was started before.
func (j *jobJournal) knows(jid string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seen[jid]
}

// smallArg bounds the arguments that are recorded with a job.
const smallArg = 16 << 10

// begin records that a job is about to run for some masters. An error means that a later
// process would not know the job. If there is no journal for another reason than a full
// disk, begin returns nil.
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
		_ = j.reopen() // there may be space by now
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

// started records a process that a job started.
func (j *jobJournal) started(jid string, pid int) {
	d := value.DictOf("jid", jid, "pid", pid, "start", startTime(pid))
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = j.write(recProcess, d)
}

// end records that a job ended and has no return for masters.
func (j *jobJournal) end(jid string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.begun, jid)
	j.writeRaw(recEnded, jid)
}

// keep writes a return for some masters to disk; the caller adds it to their queues. After
// a write error the return stays in memory.
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
		j.log.Error("cannot flush a return; a power failure may lose it", "jid", p.jid, "err", err)
	}
}

func (p *parcel) record(load *value.Dict) *value.Dict {
	to := &value.List{}
	for _, d := range p.to {
		to.Items = append(to.Items, d.addr)
	}
	return value.DictOf("to", to, "since", p.since.Unix(), "taken", p.taken, "load", load)
}

// write appends a record; j.mu is held. Errors are logged once until a write
// succeeds.
func (j *jobJournal) write(kind byte, d *value.Dict) (journal.Position, error) {
	if j.file == nil {
		return journal.Position{}, errors.New("there is no journal")
	}
	b, err := msgpack.Marshal(d, msgpack.NewSpec)
	if err != nil {
		j.log.Error("cannot record job in the job journal", "jid", jidOf(d), "err", err)
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
		j.log.Error("cannot write the job journal; keeping returns in memory only", "path", j.path, "err", err)
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

// remove removes a parcel from the index; j.mu is held.
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
	// Done entries must not accumulate behind a return that waits for long.
	if len(j.queue) > 2*len(j.parcels)+spareQueue {
		j.queue = slices.DeleteFunc(j.queue, func(p *parcel) bool { return p.done })
	}
}

// strike records that a master has accepted a return, and reports whether all its masters
// have.
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

// missing returns the masters that have not accepted a return.
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

// delivered records that a master accepted a return.
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

// also adds a master to those that get an existing return.
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

// release records that a return was dropped from the queue of a master, and reports whether
// the journal has it.
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

// waiting returns up to n returns for a master, oldest first, that are not in its queue
// yet, and marks them as queued. more reports that there are further ones.
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
			j.log.Error("cannot read a return from the job journal", "jid", p.jid, "err", err)
			p.to[i].queued = true // so that this is logged only once
			continue
		}
		p.to[i].queued = true
		loads = append(loads, load)
	}
	return loads, false
}

// stray is a return that its own masters have not accepted; own are their names.
type stray struct {
	load *value.Dict
	own  []string
}

// again is the time after which a return may be sent to another substitute master.
const again = 30 * time.Second

// strays returns up to n returns that were stored before a time and that no master has
// accepted.
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

// forgetMasters removes masters that are no longer configured: from returns that another
// master has accepted or, if strict, from all returns.
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

// makeRoom drops returns until the others are within the limits: first those that some
// master has accepted, then the oldest.
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

// maxDropped bounds the number of ids to report.
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
	j.log.Error("dropped return: too many are queued for unreachable masters", "jid", jid, "limit", j.limit)
	if len(j.dropped) < maxDropped {
		j.dropped = append(j.dropped, jid)
	}
}

// givenUp returns the ids of the returns dropped since the last call.
func (j *jobJournal) givenUp() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	d := j.dropped
	j.dropped = nil
	return d
}

// interrupted returns the records of jobs of earlier processes that did not end, in the
// order of their ids. Calling keep for a job marks it as ended.
func (j *jobJournal) interrupted() []*value.Dict {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]*value.Dict, 0, len(j.begun))
	for _, jid := range slices.Sorted(maps.Keys(j.begun)) {
		out = append(out, j.begun[jid])
	}
	return out
}

// compact rewrites the journal when most of it is outdated; j.mu is held.
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
		j.log.Error("cannot rewrite the job journal", "err", err)
		return
	}
	for p, at := range moved {
		p.at = at
	}
}

type emitFunc = func(kind byte, payload []byte) (journal.Position, error)

// rewrite emits the current records, and puts the new positions of returns in moved.
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
			j.log.Error("cannot read a return from the job journal", "jid", p.jid, "err", err)
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

// emitTaken emits the delivery records of a return again.
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
	if p.taken && len(p.to) == len(all) { // accepted only by a master that did not publish the job
		b, err := msgpack.Marshal(value.DictOf("jid", p.jid, "to", ""), msgpack.NewSpec)
		if err == nil {
			_, err = emit(recDelivered, b)
		}
		return err
	}
	return nil
}

// flush flushes records to disk.
func (j *jobJournal) flush() {
	j.mu.Lock()
	file := j.file
	j.mu.Unlock()
	if file == nil {
		return
	}
	if err := file.Sync(); err != nil {
		j.log.Error("cannot flush job ids; a power failure may lose them", "err", err)
	}
}

// allWaiting marks all returns as not queued.
func (j *jobJournal) allWaiting() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.queue {
		for i := range p.to {
			p.to[i].queued = false
		}
	}
}

// close flushes and closes the journal.
func (j *jobJournal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return
	}
	if err := errors.Join(j.file.Sync(), j.file.Close()); err != nil {
		j.log.Error("cannot close the job journal", "err", err)
	}
	j.file = nil
}

// MaxReturn bounds the return of one job, in bytes. Masters reject messages above 64 MiB,
// so a larger one would be sent again forever; the difference leaves room for the envelope.
const MaxReturn = 60 << 20
