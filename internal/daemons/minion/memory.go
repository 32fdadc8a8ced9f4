package minion

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/journal"
)

// memory is what the minion knows of jobs beyond the life of its process: the
// ids of those that it has begun, so that none runs twice, and the returns
// that masters have not taken yet, so that none is lost. It is a journal on
// disk and an index of it. Without the journal (another process has it, the
// disk is broken) it serves as long as the process lives.
//
// A job is noted when it begins; the note is with the system before the
// function runs and on disk soon after. A return is on disk before it is sent.
type memory struct {
	limit   int64 // bytes of returns
	maxSeen int
	log     *slog.Logger
	flushes chan struct{}

	mu      sync.Mutex
	j       *journal.Journal // nil: nothing outlives the process
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
	recEnded     = 'e' // id of a job whose return nobody wants
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
	// garbage is how much of the journal may be out of date.
	garbage = 4 << 20
	// keepTaken is how long a return that one master has is kept for another.
	keepTaken = 7 * 24 * time.Hour
)

func newMemory(limit int64, seen int, log *slog.Logger) *memory {
	return &memory{limit: limit, maxSeen: max(seen, rememberJobs), log: log, flushes: make(chan struct{}, 1),
		seen: map[string]bool{}, begun: map[string]*value.Dict{}, parcels: map[string]*parcel{}}
}

// open takes over the journal at path.
func (m *memory) open(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, cut, err := journal.Open(path, m.replay)
	if cut > 0 {
		m.log.Warn("the end of the journal of jobs could not be read: the last notes before a loss of power, or damage", "file", path, "bytes", cut)
	}
	if err != nil {
		m.log.Error("the journal of jobs cannot be used: returns and the ids of jobs are kept in memory only, and are lost when this process ends", "file", path, "err", err)
		return
	}
	m.j = j
	m.compact()
}

// replay takes one record. One that makes no sense is left out.
func (m *memory) replay(r journal.Record) error {
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
		m.remember(string(r.Payload))
	case recBegun:
		m.remember(d.Str("jid"))
		m.begun[d.Str("jid")] = d
	case recProcess:
		if b := m.begun[d.Str("jid")]; b != nil {
			b.Set("processes", value.ListOf(append(b.List("processes"), d)...))
		}
	case recEnded:
		delete(m.begun, string(r.Payload))
	case recReturn:
		m.replayReturn(d, r.At)
	case recDelivered:
		m.strike(d.Str("jid"), d.Str("to"))
	case recGone:
		m.remove(m.parcels[string(r.Payload)])
	}
	return nil
}

func (m *memory) replayReturn(d *value.Dict, at journal.Position) {
	p := &parcel{jid: d.Dict("load").Str("jid"), at: at, size: at.Size(), since: time.Unix(d.Int("since"), 0), taken: d.Bool("taken")}
	for _, to := range d.List("to") {
		if addr, ok := to.(string); ok {
			p.to = append(p.to, destination{addr: addr})
		}
	}
	delete(m.begun, p.jid)
	m.enter(p)
}

func (m *memory) remember(jid string) {
	if m.seen[jid] {
		return
	}
	m.seen[jid] = true
	m.order = append(m.order, jid)
	for len(m.order) > m.maxSeen {
		delete(m.seen, m.order[0])
		m.order = m.order[1:]
	}
}

// knows reports whether a job was begun before.
func (m *memory) knows(jid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[jid]
}

// smallArg bounds the arguments that are noted with a job.
const smallArg = 16 << 10

// begin notes that a job is about to run for some masters.
func (m *memory) begin(j *job, masters []string) {
	d := value.DictOf("jid", j.jid, "fun", j.fun, "to", masters)
	for _, k := range []string{"user", "master_id", "metadata", "ret", "ret_config", "ret_kwargs", "schedule", startupKey} {
		if v, ok := j.load.Get(k); ok {
			d.Set(k, v)
		}
	}
	if arg := j.load.At("arg"); value.Weight(arg, smallArg) <= smallArg {
		d.Set("arg", arg)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remember(j.jid)
	m.begun[j.jid] = d
	_, _ = m.write(recBegun, d)
	select {
	case m.flushes <- struct{}{}:
	default:
	}
}

// started notes a process that a job has started.
func (m *memory) started(jid string, pid int) {
	d := value.DictOf("jid", jid, "pid", pid, "start", startTime(pid))
	m.mu.Lock()
	defer m.mu.Unlock()
	_, _ = m.write(recProcess, d)
}

// end notes that a job has ended without a return that anybody wants.
func (m *memory) end(jid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.begun, jid)
	m.writeRaw(recEnded, jid)
}

// keep puts a return on disk for some masters, in whose queues it will be, and
// comes back when it is there. If it cannot be written it is kept in memory.
func (m *memory) keep(ret *value.Dict, masters []string) {
	p := &parcel{jid: ret.Str("jid"), since: time.Now()}
	for _, addr := range masters {
		p.to = append(p.to, destination{addr, true})
	}
	m.mu.Lock()
	delete(m.begun, p.jid)
	at, err := m.write(recReturn, p.record(ret))
	p.at, p.size = at, at.Size()
	if err != nil {
		p.load, p.size = ret, int64(value.Weight(ret, maxReturn))
	}
	m.enter(p)
	m.makeRoom()
	m.compact()
	j := m.j
	m.mu.Unlock()
	if j == nil || err != nil {
		return
	}
	if err := j.Sync(); err != nil {
		m.log.Error("a return may not survive a loss of power", "jid", p.jid, "err", err)
	}
}

func (p *parcel) record(load *value.Dict) *value.Dict {
	to := &value.List{}
	for _, d := range p.to {
		to.Items = append(to.Items, d.addr)
	}
	return value.DictOf("to", to, "since", p.since.Unix(), "taken", p.taken, "load", load)
}

// write appends a record; m.mu is held. Its failure is logged once until one
// succeeds.
func (m *memory) write(kind byte, d *value.Dict) (journal.Position, error) {
	if m.j == nil {
		return journal.Position{}, errors.New("there is no journal")
	}
	b, err := msgpack.Marshal(d, msgpack.NewSpec)
	if err != nil {
		m.log.Error("a job cannot be noted in the journal", "jid", d.Str("jid"), "err", err)
		return journal.Position{}, err
	}
	return m.append(kind, b)
}

func (m *memory) writeRaw(kind byte, jid string) {
	if m.j != nil {
		_, _ = m.append(kind, []byte(jid))
	}
}

func (m *memory) append(kind byte, b []byte) (journal.Position, error) {
	at, err := m.j.Append(kind, b)
	if err != nil && !m.failing {
		m.log.Error("the journal of jobs cannot be written: returns are kept in memory only", "err", err)
	}
	m.failing = err != nil
	return at, err
}

func (m *memory) enter(p *parcel) {
	m.remove(m.parcels[p.jid])
	m.parcels[p.jid] = p
	m.queue = append(m.queue, p)
	m.live += p.size
}

// remove takes a parcel out; m.mu is held.
func (m *memory) remove(p *parcel) {
	if p == nil || p.done {
		return
	}
	p.done, p.load = true, nil
	m.live -= p.size
	delete(m.parcels, p.jid)
	for len(m.queue) > 0 && m.queue[0].done {
		m.queue[0] = nil
		m.queue = m.queue[1:]
	}
}

// strike notes that a master has a return, and reports whether all have it
// that should.
func (m *memory) strike(jid, addr string) (all bool) {
	p := m.parcels[jid]
	if p == nil {
		return false
	}
	p.taken = true
	p.to = slices.DeleteFunc(p.to, func(d destination) bool { return d.addr == addr })
	if len(p.to) == 0 {
		m.remove(p)
		return true
	}
	return false
}

// delivered notes that a master has taken a return.
func (m *memory) delivered(jid, addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parcels[jid] == nil {
		return
	}
	if m.strike(jid, addr) {
		m.writeRaw(recGone, jid)
	} else {
		_, _ = m.write(recDelivered, value.DictOf("jid", jid, "to", addr))
	}
	m.compact()
}

// also adds a master that wants a return which is there already.
func (m *memory) also(jid, addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.parcels[jid]
	if p == nil || slices.ContainsFunc(p.to, func(d destination) bool { return d.addr == addr }) {
		return
	}
	if load, err := m.read(p); err == nil {
		p.to = append(p.to, destination{addr, true})
		if at, err := m.write(recReturn, p.record(load)); err == nil {
			m.live += at.Size() - p.size
			p.at, p.size, p.load = at, at.Size(), nil
		}
	}
}

// read returns the return of a parcel; m.mu is held.
func (m *memory) read(p *parcel) (*value.Dict, error) {
	if p.load != nil {
		return p.load, nil
	}
	if m.j == nil {
		return nil, errors.New("there is no journal")
	}
	b, err := m.j.Read(p.at)
	if err != nil {
		return nil, err
	}
	v, err := msgpack.UnmarshalTyped(b)
	if err != nil {
		return nil, err
	}
	d, _ := v.(*value.Dict)
	load := d.Dict("load")
	if load == nil {
		return nil, salt.Errorf(salt.Internal, "a return in the journal is none")
	}
	return load, nil
}

// release notes that a return was put out of the queue of a connection, and
// reports whether it is safe here.
func (m *memory) release(jid, addr string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.parcels[jid]
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
func (m *memory) waiting(addr string, n int) (loads []*value.Dict, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.queue {
		i := slices.IndexFunc(p.to, func(d destination) bool { return d.addr == addr && !d.queued })
		if p.done || i < 0 {
			continue
		}
		if len(loads) == n {
			return loads, true
		}
		load, err := m.read(p)
		if err != nil {
			m.log.Error("a return cannot be read from the journal", "jid", p.jid, "err", err)
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
func (m *memory) strays(since, now time.Time, n int) (out []stray) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.queue {
		if p.done || p.taken || p.since.After(since) || now.Sub(p.lent) < again {
			continue
		}
		load, err := m.read(p)
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
func (m *memory) forgetMasters(known []string, strict bool, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range slices.Clone(m.queue) {
		if p.done || !p.taken && !strict {
			continue
		}
		p.to = slices.DeleteFunc(p.to, func(d destination) bool { return !slices.Contains(known, d.addr) })
		if len(p.to) == 0 || p.taken && now.Sub(p.since) > keepTaken {
			m.giveUp(p)
		}
	}
}

// makeRoom gives up returns until the rest is within the bounds: first those
// that some master has, then the oldest.
func (m *memory) makeRoom() {
	limit := m.limit
	if m.j == nil || m.failing {
		limit = min(limit, maxHeld)
	}
	for _, taken := range []bool{true, false} {
		for i := 0; i < len(m.queue) && (m.live > limit || len(m.parcels) > maxParcels); {
			p := m.queue[i]
			if p.done || p.taken != taken || len(m.parcels) == 1 {
				i++
				continue
			}
			n := len(m.queue)
			m.giveUp(p)
			i -= n - len(m.queue)
			i = max(i, 0)
		}
	}
}

// maxDropped bounds the ids that are told of.
const maxDropped = 1000

// giveUp drops a return; m.mu is held.
func (m *memory) giveUp(p *parcel) {
	lost := !p.taken
	jid := p.jid
	m.remove(p)
	m.writeRaw(recGone, jid)
	if !lost {
		return
	}
	m.log.Error("a return is given up: too many wait for masters that are away", "jid", jid, "limit", m.limit)
	if len(m.dropped) < maxDropped {
		m.dropped = append(m.dropped, jid)
	}
}

// givenUp returns the ids of the returns given up since the last call.
func (m *memory) givenUp() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.dropped
	m.dropped = nil
	return d
}

// interrupted returns the jobs that were begun by an earlier process and did
// not end, in the order of their ids. They do not count as begun any more once
// keep was called for them.
func (m *memory) interrupted() []*value.Dict {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*value.Dict, 0, len(m.begun))
	for _, d := range m.begun {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b *value.Dict) int {
		switch x, y := a.Str("jid"), b.Str("jid"); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return out
}

// compact writes the journal anew when most of it is out of date; m.mu is
// held.
func (m *memory) compact() {
	if m.j == nil {
		return
	}
	needed := m.live + int64(len(m.order))*32
	if size := m.j.Size(); size < garbage || size-needed < needed || size-needed < garbage {
		return
	}
	moved := map[*parcel]journal.Position{}
	err := m.j.Rewrite(func(emit emitFunc, read func(journal.Position) ([]byte, error)) error {
		return m.rewrite(moved, emit, read)
	})
	if err != nil {
		m.log.Error("the journal of jobs cannot be written anew", "err", err)
		return
	}
	for p, at := range moved {
		p.at = at
	}
}

type emitFunc = func(kind byte, payload []byte) (journal.Position, error)

// rewrite emits what still counts, and enters where the returns went.
func (m *memory) rewrite(moved map[*parcel]journal.Position, emit emitFunc, read func(journal.Position) ([]byte, error)) error {
	for _, jid := range m.order {
		if _, err := emit(recSeen, []byte(jid)); err != nil {
			return err
		}
	}
	for _, d := range m.begun {
		b, err := msgpack.Marshal(d, msgpack.NewSpec)
		if err == nil {
			_, err = emit(recBegun, b)
		}
		if err != nil {
			return err
		}
	}
	for _, p := range m.queue {
		if p.done || p.load != nil {
			continue
		}
		b, err := read(p.at)
		if err != nil {
			m.log.Error("a return cannot be read from the journal", "jid", p.jid, "err", err)
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
	for _, to := range d.List("to") {
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
	if p.taken && len(p.to) == len(d.List("to")) { // by a master that did not publish it
		b, err := msgpack.Marshal(value.DictOf("jid", p.jid, "to", ""), msgpack.NewSpec)
		if err == nil {
			_, err = emit(recDelivered, b)
		}
		return err
	}
	return nil
}

// close flushes and lets go of the journal.
func (m *memory) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.j == nil {
		return
	}
	if err := errors.Join(m.j.Sync(), m.j.Close()); err != nil {
		m.log.Error("the journal of jobs could not be closed", "err", err)
	}
	m.j = nil
}
