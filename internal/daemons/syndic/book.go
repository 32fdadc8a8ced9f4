package syndic

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"brine/internal/base/steady"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/journal"
)

// book records the jobs that masters of masters asked for, and the returns of minions that
// they have not accepted yet. It is a journal on disk with an index in memory. It has no
// sockets. A record survives the end of the process. A crash of the machine may lose the
// newest ones: then the job store of the lower master still has the returns.
type book struct {
	now    func() time.Time
	steady *steady.Clock // for what is removed
	log    *slog.Logger

	mu      sync.Mutex
	file    *journal.Journal // nil: the records are lost when the process ends
	jobs    map[string]*bookJob
	order   []*bookJob // oldest first
	waiting int        // returns that some master has not accepted
	held    int64      // bytes of their records
	failing bool       // the last write failed
	tidied  time.Time  // when prune last looked at all jobs
}

// bookJob is a job. Its commands came from the masters in askers; a job without askers belongs
// to the lower master itself.
type bookJob struct {
	jid    string
	at     time.Time
	askers []string
	// seen are the targets that were commanded: a batch commands several with one id. A target has
	// a command here until the lower master has published it.
	seen map[string]*bookCommand
	// expected are the minions that the lower master has named.
	expected map[string]bool
	returns  map[string]*bookReturn
	// described means that a master of masters has got the description of an own job.
	described bool
	// again means that an asker came late, and needs the returns that were collected before.
	again bool
	// waiting are the returns that some master has not accepted.
	waiting int
}

// bookCommand is a command that the lower master has not published yet.
type bookCommand struct {
	load *value.Dict
	at   time.Time
	// sent means that a publish request was sent, perhaps by an earlier process.
	sent bool
}

// bookReturn is the return of a minion. It is kept without its load once all masters have it,
// so that it is not sent again.
type bookReturn struct {
	id   string
	to   []string // masters that have not accepted it
	at   journal.Position
	load *value.Dict // nil if the journal has it
	size int64
	// later is when it may be sent again after a master could not store it.
	later time.Time
	fails int
}

// The kinds of records.
const (
	recCommand   = 'c' // {jid, from, at, target, load}
	recAsked     = 'f' // {jid, from}: another master asked for the same job
	recPublished = 'p' // {jid, minions, target}
	recReturn    = 'r' // {jid, id, to, at, ret}
	recDelivered = 'd' // {jid, id, to}
)

// Limits of a book.
const (
	// keepJobs is how long jobs are remembered, and returns kept for a master that does not
	// accept them.
	keepJobs = 24 * time.Hour
	maxJobs  = 20_000
	// maxWaiting and maxHeld bound the returns that wait for masters; the oldest are dropped.
	maxWaiting = 200_000
	maxHeld    = 256 << 20
	// forgetReturns is how long the ids of the minions of a complete job are remembered.
	forgetReturns = 10 * time.Minute
	tidyEvery     = time.Minute
	// garbage is how many outdated bytes the journal may have before it is rewritten.
	garbage = 4 << 20
	// maxHeldInMemory replaces maxHeld while the journal cannot be written.
	maxHeldInMemory = 32 << 20
)

// note has the keys of all records.
type note struct {
	JID     string      `wire:"jid"`
	ID      string      `wire:"id,omitempty"`
	From    any         `wire:"from,omitempty"` // a list of masters
	To      any         `wire:"to,omitempty"`   // a list of masters, or one
	At      int64       `wire:"at,omitempty"`   // Unix milliseconds
	Minions any         `wire:"minions,omitempty"`
	Target  string      `wire:"target,omitempty"`
	Load    *value.Dict `wire:"load,omitempty"`
	Ret     *value.Dict `wire:"ret,omitempty"`
	Rest    *value.Dict `wire:"*"`
}

// openBook opens the journal at path. If that fails, the book works in memory.
func openBook(path string, now func() time.Time, log *slog.Logger) *book {
	b := &book{now: now, steady: steady.New(now), log: log, jobs: map[string]*bookJob{}}
	file, cut, err := journal.Open(path, b.replay)
	if err != nil {
		log.Error("cannot use the syndic's journal: jobs and returns are kept in memory only and are lost when this process ends", "path", path, "err", err)
		return b
	}
	if cut > 0 {
		log.Warn("the syndic's journal had an incomplete end, which was cut off", "path", path, "bytes", cut)
	}
	b.file = file
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prune()
	b.compact()
	return b
}

// replay applies one record. Invalid records are skipped.
func (b *book) replay(r journal.Record) error {
	v, err := msgpack.UnmarshalTyped(r.Payload)
	d, _ := v.(*value.Dict)
	if err != nil || d == nil {
		return nil
	}
	var n note
	wire.View(d, &n)
	j := b.jobs[n.JID]
	switch r.Kind {
	case recCommand:
		j = b.enter(n.JID, time.UnixMilli(n.At))
		for _, from := range value.Texts(n.From) {
			if !slices.Contains(j.askers, from) {
				j.askers = append(j.askers, from)
			}
		}
		j.seen[n.Target] = nil
		if n.Load != nil {
			j.seen[n.Target] = &bookCommand{n.Load, time.UnixMilli(n.At), true}
		}
	case recAsked:
		if j != nil {
			j.askers = append(j.askers, value.Texts(n.From)...)
		}
	case recPublished:
		if j != nil {
			if n.Target != "" {
				j.seen[n.Target] = nil
			}
			j.expect(value.Texts(n.Minions))
		}
	case recReturn:
		if j == nil {
			j = b.enter(n.JID, time.UnixMilli(n.At))
		}
		b.put(j, &bookReturn{id: n.ID, to: value.Texts(n.To), at: r.At, size: r.At.Size()})
	case recDelivered:
		if j != nil {
			to, _ := n.To.(string)
			b.strike(j, n.ID, to)
		}
	}
	return nil
}

func (b *book) enter(jid string, at time.Time) *bookJob {
	if j := b.jobs[jid]; j != nil {
		return j
	}
	j := &bookJob{jid: jid, at: at, seen: map[string]*bookCommand{}, expected: map[string]bool{}, returns: map[string]*bookReturn{}}
	b.jobs[jid] = j
	b.order = append(b.order, j)
	return j
}

func (j *bookJob) expect(ids []string) {
	for _, id := range ids {
		j.expected[id] = true
	}
}

// put enters a return, in place of an earlier one.
func (b *book) put(j *bookJob, r *bookReturn) {
	if old := j.returns[r.id]; old != nil {
		b.release(j, old)
	}
	if j.returns == nil {
		j.returns = map[string]*bookReturn{}
	}
	j.returns[r.id] = r
	if len(r.to) > 0 {
		j.waiting++
		b.waiting++
		b.held += r.size
	}
}

// release drops the load of a return.
func (b *book) release(j *bookJob, r *bookReturn) {
	if len(r.to) > 0 {
		j.waiting--
		b.waiting--
		b.held -= r.size
	}
	r.to, r.load, r.size = nil, nil, 0
}

// strike records that a master has accepted a return.
func (b *book) strike(j *bookJob, id, to string) {
	r := j.returns[id]
	if r == nil || !slices.Contains(r.to, to) {
		return
	}
	if len(r.to) == 1 {
		b.release(j, r)
		return
	}
	r.to = slices.DeleteFunc(slices.Clone(r.to), func(s string) bool { return s == to })
}

// write appends a record; b.mu is held. Errors are logged once until a write succeeds.
func (b *book) write(kind byte, n *note) (journal.Position, error) {
	if b.file == nil {
		return journal.Position{}, errNoJournal
	}
	payload, err := msgpack.Marshal(wire.Encode(*n), msgpack.NewSpec)
	if err != nil {
		b.log.Error("cannot encode a record of the syndic's journal", "jid", n.JID, "err", err)
		return journal.Position{}, err
	}
	at, err := b.file.Append(kind, payload)
	if err != nil && !b.failing {
		b.log.Error("cannot write the syndic's journal; keeping returns in memory only", "err", err)
	}
	b.failing = err != nil
	return at, err
}

var errNoJournal = errors.New("there is no journal")

// asked records a command of a master. news reports that the lower master has to publish it: a
// job that several masters command, or one master twice, is published once. late reports that the
// master needs returns that only the lower master still has.
func (b *book) asked(from, jid string, load *value.Dict) (news, late bool) {
	target := targetOf(load)
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[jid]
	if j == nil {
		b.prune()
		j = b.enter(jid, b.now())
	}
	if _, seen := j.seen[target]; !seen && (len(j.askers) > 0 || len(j.returns) == 0) {
		now := b.now()
		j.seen[target] = &bookCommand{load: load, at: now}
		if !slices.Contains(j.askers, from) {
			j.askers = append(j.askers, from)
		}
		_, _ = b.write(recCommand, &note{JID: jid, From: value.Strings([]string{from}), At: now.UnixMilli(), Target: target, Load: load})
		return true, false
	}
	if slices.Contains(j.askers, from) {
		return false, false
	}
	j.askers = append(j.askers, from)
	_, _ = b.write(recAsked, &note{JID: jid, From: value.Strings([]string{from})})
	// The returns that the other masters have accepted are read from the lower master again.
	for _, r := range j.returns {
		if len(r.to) == 0 {
			j.again = true
			continue
		}
		if load, err := b.read(r); err == nil {
			b.keep(j, r.id, append(slices.Clone(r.to), from), load)
		}
	}
	return false, j.again
}

// targetOf identifies the target of a command.
func targetOf(load *value.Dict) string {
	sum := sha256.Sum256([]byte(value.Repr(load.At("tgt_type")) + " " + value.Repr(load.At("tgt"))))
	return hex.EncodeToString(sum[:8])
}

// command is a job that the lower master has to publish.
type command struct {
	jid, target string
	at          time.Time
	load        *value.Dict
	// perhaps means that the lower master may have published it already.
	perhaps bool
}

// commands returns the commands that the lower master has not published yet, oldest first.
func (b *book) commands() (out []command) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range b.order {
		for target, c := range j.seen {
			if c != nil {
				out = append(out, command{j.jid, target, c.at, c.load, c.sent && len(j.seen) == 1})
			}
		}
	}
	slices.SortStableFunc(out, func(x, y command) int { return x.at.Compare(y.at) })
	return out
}

// attempted records that a publish request was sent, so that the job may be known below.
func (b *book) attempted(c *command) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.jobs[c.jid]; j != nil && j.seen[c.target] != nil {
		j.seen[c.target].sent = true
	}
}

// published records that the lower master has published a command, or never will, and returns the
// masters that asked for it.
func (b *book) published(c *command, minions []string) (askers []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[c.jid]
	if j == nil {
		return nil
	}
	j.seen[c.target] = nil
	j.expect(minions)
	_, _ = b.write(recPublished, &note{JID: c.jid, Minions: value.Strings(minions), Target: c.target})
	return slices.Clone(j.askers)
}

// expects adds minions that a job should return from: those below further syndics are reported
// late.
func (b *book) expects(jid string, minions []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.jobs[jid]; j != nil && len(j.askers) > 0 && len(minions) > 0 {
		j.expect(minions)
		_, _ = b.write(recPublished, &note{JID: jid, Minions: value.Strings(minions)})
	}
}

// isAsked reports whether a master of masters asked for a job.
func (b *book) isAsked(jid string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[jid]
	return j != nil && len(j.askers) > 0
}

// askersOf returns the masters that asked for a job.
func (b *book) askersOf(jid string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.jobs[jid]; j != nil {
		return slices.Clone(j.askers)
	}
	return nil
}

// returned records the return of a minion. For an own job of the lower master it goes to the
// given master, "" for none. It reports whether the return has to be sent.
func (b *book) returned(jid, id string, ret *value.Dict, own string) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[jid]
	var to []string
	switch {
	case j != nil && len(j.askers) > 0:
		to = j.askers
	case own == "":
		return false
	default:
		to = []string{own}
	}
	if j == nil {
		b.prune()
		j = b.enter(jid, b.now())
	}
	if r := j.returns[id]; r != nil && !j.again {
		return false
	}
	b.keep(j, id, slices.Clone(to), ret)
	b.makeRoom()
	b.compact()
	return true
}

// keep writes a return for some masters; b.mu is held.
func (b *book) keep(j *bookJob, id string, to []string, ret *value.Dict) {
	at, err := b.write(recReturn, &note{JID: j.jid, ID: id, To: value.Strings(to), At: j.at.UnixMilli(), Ret: ret})
	r := &bookReturn{id: id, to: to, at: at, size: at.Size()}
	if err != nil {
		r.load, r.size = ret, int64(value.Weight(ret, maxHeldInMemory))
	}
	b.put(j, r)
}

// read returns the load of a return; b.mu is held.
func (b *book) read(r *bookReturn) (*value.Dict, error) {
	if r.load != nil {
		return r.load, nil
	}
	if b.file == nil {
		return nil, errNoJournal
	}
	raw, err := b.file.Read(r.at)
	if err != nil {
		return nil, err
	}
	v, err := msgpack.UnmarshalTyped(raw)
	if err != nil {
		return nil, err
	}
	d, _ := v.(*value.Dict)
	var n note
	if wire.View(d, &n); n.Ret == nil {
		return nil, errors.New("the record is not a return")
	}
	return n.Ret, nil
}

// parcel has returns of one job for one master.
type parcel struct {
	jid   string
	asked bool
	// describe means that the master has no description of the job yet.
	describe bool
	returns  map[string]*value.Dict
	ids      []string // of returns, in order
}

// Limits of one message with returns.
const (
	maxParcelReturns = 500
	maxParcelBytes   = 4 << 20
)

// parcels returns what may be sent to a master now, oldest jobs first. Returns that the master
// could not store before are alone: others must not wait for them.
func (b *book) parcels(to string) (out []parcel, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, n, size := b.now(), 0, int64(0)
	for _, j := range b.order {
		if j.waiting == 0 {
			continue
		}
		p := parcel{jid: j.jid, asked: len(j.askers) > 0, describe: len(j.askers) == 0 && !j.described, returns: map[string]*value.Dict{}}
		for id, r := range j.returns {
			if !slices.Contains(r.to, to) || now.Before(r.later) {
				continue
			}
			if n > 0 && (n >= maxParcelReturns || size+r.size > maxParcelBytes || r.fails > 0) {
				more = true
				continue
			}
			load, err := b.read(r)
			if err != nil {
				b.log.Error("cannot read a return from the syndic's journal; it is read from the master again", "jid", j.jid, "minion", id, "err", err)
				b.release(j, r)
				delete(j.returns, id)
				continue
			}
			p.returns[id] = load
			p.ids = append(p.ids, id)
			n, size = n+1, size+r.size
			if r.fails > 0 {
				return append(out, p), true
			}
		}
		if len(p.ids) > 0 {
			slices.Sort(p.ids)
			out = append(out, p)
		}
	}
	return out, more
}

// delivered records that a master has accepted returns.
func (b *book) delivered(to string, parcels []parcel) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range parcels {
		j := b.jobs[p.jid]
		if j == nil {
			continue
		}
		j.described = j.described || p.describe
		for _, id := range p.ids {
			b.strike(j, id, to)
			_, _ = b.write(recDelivered, &note{JID: p.jid, ID: id, To: to})
		}
	}
	b.compact()
}

// refused records that a master answered that it could not store returns. They are sent again
// later, each alone.
func (b *book) refused(parcels []parcel) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range parcels {
		j := b.jobs[p.jid]
		if j == nil {
			continue
		}
		for _, id := range p.ids {
			if r := j.returns[id]; r != nil {
				r.fails++
				r.later = b.now().Add(min(time.Duration(r.fails*r.fails)*time.Second, time.Minute))
			}
		}
	}
}

// nextAttempt returns when refused returns of a master may be sent again, zero for never.
func (b *book) nextAttempt(to string) (at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range b.order {
		if j.waiting == 0 {
			continue
		}
		for _, r := range j.returns {
			if slices.Contains(r.to, to) && r.fails > 0 && (at.IsZero() || r.later.Before(at)) {
				at = r.later
			}
		}
	}
	return at
}

// reassign gives the returns of own jobs that wait for one master to another one.
func (b *book) reassign(from, to string) (moved int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range b.order {
		if len(j.askers) > 0 || j.waiting == 0 {
			continue
		}
		for id, r := range j.returns {
			if !slices.Contains(r.to, from) {
				continue
			}
			if load, err := b.read(r); err == nil {
				b.keep(j, id, []string{to}, load)
				moved++
			}
		}
	}
	return moved
}

// open returns up to n jobs from above, newest first, that lack returns: the lower master may
// have these although its event was missed.
func (b *book) open(n int) (jids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.order) - 1; i >= 0 && len(jids) < n; i-- {
		j := b.order[i]
		if len(j.askers) > 0 && !j.commanded() && (j.again || !j.complete()) {
			jids = append(jids, j.jid)
		}
	}
	return jids
}

// looked records that all returns that the lower master has of a job were recorded.
func (b *book) looked(jid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.jobs[jid]; j != nil {
		j.again = false
	}
}

// commanded reports whether the lower master has to publish a command of the job.
func (j *bookJob) commanded() bool {
	for _, c := range j.seen {
		if c != nil {
			return true
		}
	}
	return false
}

func (j *bookJob) complete() bool {
	for id := range j.expected {
		if j.returns[id] == nil {
			return false
		}
	}
	return true
}

// prune forgets old jobs; b.mu is held.
func (b *book) prune() {
	now, early := b.now(), b.steady.Removal()
	for len(b.order) > 0 {
		j := b.order[0]
		old := early.Sub(j.at) > keepJobs
		if !old && (len(b.order) < maxJobs) {
			break
		}
		b.drop(j)
	}
	if now.Sub(b.tidied) < tidyEvery {
		return
	}
	b.tidied = now
	for _, j := range b.order {
		if now.Sub(j.at) < forgetReturns {
			break
		}
		if len(j.returns) > 0 && !j.commanded() && j.waiting == 0 && j.complete() {
			j.returns, j.expected = nil, map[string]bool{}
		}
	}
}

// drop forgets the oldest job; b.mu is held.
func (b *book) drop(j *bookJob) {
	lost := 0
	for _, r := range j.returns {
		if len(r.to) > 0 {
			lost++
		}
		b.release(j, r)
	}
	if lost > 0 {
		b.log.Error("dropped returns: no master of masters accepted them in time, or too many wait", "jid", j.jid, "returns", lost, "hours", keepJobs.Hours())
	}
	delete(b.jobs, j.jid)
	b.order[0] = nil
	b.order = b.order[1:]
}

// makeRoom drops the oldest jobs until the returns are within the limits; b.mu is held.
func (b *book) makeRoom() {
	limit := int64(maxHeld)
	if b.file == nil || b.failing {
		limit = maxHeldInMemory
	}
	for len(b.order) > 1 && (b.waiting > maxWaiting || b.held > limit) {
		b.drop(b.order[0])
	}
}

// compact rewrites the journal when most of it is outdated; b.mu is held.
func (b *book) compact() {
	if b.file == nil {
		return
	}
	size := b.file.Size()
	if size < garbage || size < 2*b.held+int64(len(b.order))*256 {
		return
	}
	if err := b.rewrite(); err != nil {
		b.log.Error("cannot rewrite the syndic's journal", "err", err)
	}
}

// rewrite replaces the journal by the current records; b.mu is held.
func (b *book) rewrite() error {
	moved := map[*bookReturn]journal.Position{}
	err := b.file.Rewrite(func(emit func(byte, []byte) (journal.Position, error), read func(journal.Position) ([]byte, error)) error {
		for _, j := range b.order {
			if err := b.emit(j, moved, emit, read); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for r, at := range moved {
		b.held += at.Size() - r.size
		r.at, r.size = at, at.Size()
	}
	return nil
}

// emit writes the records of one job.
func (b *book) emit(j *bookJob, moved map[*bookReturn]journal.Position, emit func(byte, []byte) (journal.Position, error),
	read func(journal.Position) ([]byte, error)) error {
	put := func(kind byte, n note) error {
		payload, err := msgpack.Marshal(wire.Encode(n), msgpack.NewSpec)
		if err == nil {
			_, err = emit(kind, payload)
		}
		return err
	}
	from := value.Strings(j.askers)
	for target, c := range j.seen {
		n := note{JID: j.jid, From: from, At: j.at.UnixMilli(), Target: target}
		if c != nil {
			n.At, n.Load = c.at.UnixMilli(), c.load
		}
		if err := put(recCommand, n); err != nil {
			return err
		}
	}
	if len(j.expected) > 0 {
		ids := slices.Collect(maps.Keys(j.expected))
		if err := put(recPublished, note{JID: j.jid, Minions: value.Strings(ids)}); err != nil {
			return err
		}
	}
	for _, r := range j.returns {
		switch {
		case len(r.to) > 0 && r.load == nil:
			raw, err := read(r.at)
			if err != nil {
				b.log.Error("cannot read a return from the syndic's journal", "jid", j.jid, "minion", r.id, "err", err)
				continue
			}
			v, err := msgpack.UnmarshalTyped(raw)
			d, _ := v.(*value.Dict)
			if err != nil || d == nil {
				continue
			}
			d.Set("to", value.Strings(r.to))
			if raw, err = msgpack.Marshal(d, msgpack.NewSpec); err != nil {
				return err
			}
			if moved[r], err = emit(recReturn, raw); err != nil {
				return err
			}
		case len(r.to) == 0:
			if err := put(recReturn, note{JID: j.jid, ID: r.id, To: &value.List{}, At: j.at.UnixMilli()}); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush writes the journal to disk.
func (b *book) flush() {
	b.mu.Lock()
	file := b.file
	b.mu.Unlock()
	if file == nil {
		return
	}
	if err := file.Sync(); err != nil {
		b.log.Error("cannot flush the syndic's journal; a power failure may lose its newest records", "err", err)
	}
}

func (b *book) close() {
	b.flush()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file != nil {
		_ = b.file.Close()
		b.file = nil
	}
}

// count returns the numbers of jobs, and of returns that wait for masters.
func (b *book) count() (jobs, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.jobs), b.waiting
}

// only drops what waits for masters that are not configured any more.
func (b *book) only(masters []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lost := 0
	for _, j := range b.order {
		j.askers = slices.DeleteFunc(j.askers, func(s string) bool { return !slices.Contains(masters, s) })
		for _, r := range j.returns {
			for _, to := range slices.Clone(r.to) {
				if !slices.Contains(masters, to) {
					lost++
					b.strike(j, r.id, to)
				}
			}
		}
	}
	if lost > 0 {
		b.log.Warn("dropped returns for masters of masters that syndic_master no longer names", "returns", lost)
	}
}
