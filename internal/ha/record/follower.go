package record

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/net/remote/rows"
	"brine/internal/store/oplog"
)

// follower exchanges the changes of one stream with the server. All but the fields below mu belong to
// the goroutine of run.
type follower struct {
	s      *Store
	name   string
	stream oplog.Lister

	generation []byte // of the last look; nil: look again
	looked     map[string]row
	forgot     map[string]row // see oplog.Forgetful
	sweeping   []byte         // the row of a master that removes outdated entries; nil: none
	own        []byte         // that row if it is this process
	sweptBy    sweeper
	marked     map[string]bool // rows that were reported to other masters
	lag        map[string]lag
	stuck      map[string]stuck
	healed     string
	audited    time.Time // the last audit, the zero time if one is due
	full       time.Time // the last audit that has read all contents

	mu     sync.Mutex
	have   oplog.Vector // what the server has; nil if unknown
	bad    map[string]bool
	status Status
}

// row is a row with a number. raw is nil if there is none.
type row struct {
	number uint64
	raw    []byte
}

// lag records which changes of another master the server lacked at some moment.
type lag struct {
	number uint64
	since  time.Time
}

// stuck is an origin with a row that cannot be read. The changes after it up to done were applied.
type stuck struct {
	done  uint64
	again time.Time
}

func newFollower(s *Store, name string, stream oplog.Lister) *follower {
	return &follower{s: s, name: name, stream: stream, lag: map[string]lag{}, stuck: map[string]stuck{}, bad: map[string]bool{},
		marked: map[string]bool{}}
}

// run exchanges changes until ctx ends.
func (f *follower) run(ctx context.Context) {
	for {
		changed := f.stream.Changed()
		err := f.round(ctx)
		f.note(err)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			f.generation = nil
			f.s.limited.Warn("store of record "+f.name, "cannot exchange changes with the store of record; they stay on this master's disk", "stream", f.name,
				"err", err)
			if !wait.Sleep(ctx, wait.Jitter(f.s.times.pause)) {
				return
			}
			continue
		}
		if wait.Until(ctx, changed, f.s.times.poll); ctx.Err() != nil {
			return
		}
	}
}

// note records the result of a round.
func (f *follower) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.status.Problem = err.Error()
		return
	}
	f.status.Problem, f.status.Since = "", time.Now()
}

// round applies what the server has, and writes what it lacks.
func (f *follower) round(ctx context.Context) error {
	if err := f.s.usable(); err != nil {
		return err
	}
	if err := f.look(ctx); err != nil {
		return err
	}
	if err := f.pull(ctx); err != nil {
		return err
	}
	if f.s.isExcluded() {
		return salt.Errorf(salt.Denied, "this master was removed from the cluster: to let it join again, run brine cluster readmit %s on a member and restart it",
			f.s.id)
	}
	if err := f.push(ctx); err != nil || f.blocked() {
		return err
	}
	if err := f.heal(ctx); err != nil {
		return err
	}
	return f.audit(ctx)
}

// catchUp applies all that the server has.
func (f *follower) catchUp(ctx context.Context) error {
	for {
		err := f.s.usable()
		if err == nil {
			f.generation = nil
			err = f.look(ctx)
		}
		if err == nil {
			err = f.pull(ctx)
		}
		if err != nil || !f.blocked() {
			f.note(err)
			return err
		}
		if !wait.Sleep(ctx, f.s.times.poll) {
			return ctx.Err()
		}
	}
}

// look reads up to which numbers the server has changes, if anything has changed there.
func (f *follower) look(ctx context.Context) error {
	small, err := f.s.rows.Get(ctx, generationRow(f.name), sweepRow(f.name))
	if err != nil {
		return err
	}
	f.noteSweep(small[sweepRow(f.name)])
	g := small[generationRow(f.name)]
	if f.generation != nil && bytes.Equal(g, f.generation) {
		return nil
	}
	looked, err := f.numbers(ctx, "v/"+f.name+"/")
	if err != nil {
		return err
	}
	var forgot map[string]row
	if _, ok := f.stream.(oplog.Forgetful); ok {
		if forgot, err = f.numbers(ctx, "f/"+f.name+"/"); err != nil {
			return err
		}
	}
	for origin, r := range f.looked {
		if looked[origin].number < r.number { // restored from a backup, or emptied
			f.s.log.Warn("the store of record has lost changes; writing them again", "stream", f.name, "origin", origin, "had", r.number, "has",
				looked[origin].number)
			f.audited = time.Time{}
			break
		}
	}
	f.generation = g
	if g == nil {
		f.generation = []byte{}
	}
	f.forgot = forgot
	f.setLooked(looked)
	return nil
}

func (f *follower) setLooked(looked map[string]row) {
	f.looked = looked
	have := make(oplog.Vector, len(looked))
	for origin, r := range looked {
		have[origin] = r.number
	}
	f.mu.Lock()
	f.have = have
	f.mu.Unlock()
}

// page is the number of rows to read at once without their contents, pageValues with them.
const (
	page       = 2000
	pageValues = 64
)

// numbers reads the rows with numbers below a prefix, by origin. A row that cannot be read counts as
// 0: a master that knows the origin writes it again.
func (f *follower) numbers(ctx context.Context, prefix string) (map[string]row, error) {
	out := map[string]row{}
	for after := ""; ; {
		got, err := f.s.rows.Scan(ctx, prefix, after, page, true)
		if err != nil {
			return nil, err
		}
		for _, r := range got {
			after = r.Name
			_, word := last(r.Name, prefix)
			origin := unescape(word)
			_, b, err := f.s.seal.open(r.Name, r.Value)
			if err == nil && len(b) != 8 {
				err = errSealed
			}
			if err != nil {
				f.unreadable(r.Name, err)
				out[origin] = row{0, r.Value}
				continue
			}
			f.readable(r.Name)
			out[origin] = row{binary.BigEndian.Uint64(b), r.Value}
		}
		if len(got) < page {
			return out, nil
		}
	}
}

// unreadable reports a row that cannot be read.
func (f *follower) unreadable(name string, err error) {
	f.mu.Lock()
	f.bad[name] = true
	f.mu.Unlock()
	f.s.limited.Error("row "+name, "cannot read a row of the store of record; a master that has its content writes it again, else delete the row", "row", name,
		"err", err)
}

func (f *follower) readable(name string) {
	f.mu.Lock()
	delete(f.bad, name)
	f.mu.Unlock()
}

// pull applies the changes that the server has and this master lacks.
func (f *follower) pull(ctx context.Context) error {
	mine, err := f.stream.Vector()
	if err != nil {
		return err
	}
	self := f.stream.Self()
	if f.looked[self].number > mine[self] {
		f.s.log.Warn("the store of record has changes of this process that it lacks: was a virtual machine restored from a snapshot? continuing with a new origin id",
			"stream", f.name)
		if err := f.stream.Renew(); err != nil {
			return err
		}
	}
	lost := uint64(0)
	for origin, r := range f.looked {
		if _, isStuck := f.stuck[origin]; r.number > mine[origin] && f.stream.Own(origin) && !isStuck {
			lost += r.number - mine[origin]
		}
	}
	if lost > 0 {
		f.s.log.Warn("the store of record has changes that this master made before its start and now lacks: restored from an old copy, or a new disk? fetching them",
			"stream", f.name, "changes", lost)
	}
	if ready, err := f.pullLive(ctx, mine); err != nil || !ready {
		return err
	}
	for _, origin := range slices.Sorted(maps.Keys(f.looked)) {
		if to := f.looked[origin].number; to > mine[origin] {
			if err := f.pullOrigin(ctx, origin, mine[origin], to); err != nil {
				return err
			}
		}
	}
	return nil
}

// pullLive drops the entries that are outdated if this master lacks forgotten deletions. ready is
// false if it has to wait for a sweep, after which the server has no outdated entries.
func (f *follower) pullLive(ctx context.Context, mine oplog.Vector) (ready bool, err error) {
	stream, ok := f.stream.(oplog.Forgetful)
	if !ok {
		return true, nil
	}
	known, err := stream.Forgotten()
	if err != nil {
		return false, err
	}
	lacks := false
	for origin, r := range f.forgot {
		lacks = lacks || r.number > mine[origin] && r.number > known[origin]
	}
	if !lacks {
		return true, nil
	}
	if f.blocked() {
		return false, nil
	}
	var all []oplog.Batch
	for origin, r := range f.looked {
		numbers, err := f.list(ctx, origin, r.number)
		if err != nil {
			return false, err
		}
		all = append(all, oplog.Lists(origin, r.number, f.forgot[origin].number, numbers)...)
	}
	// While the lists were read, the server may have been restored from a backup.
	before := f.looked
	f.generation = nil
	if err := f.look(ctx); err != nil {
		return false, err
	}
	for origin, r := range before {
		if f.looked[origin].number < r.number {
			return false, salt.Errorf(salt.Unavailable, "%s has lost changes meanwhile", f.s.what())
		}
	}
	if f.blocked() {
		return false, nil
	}
	for _, b := range all {
		if err := stream.ApplyLive(b); err != nil {
			return false, err
		}
	}
	return true, nil
}

// list returns the numbers of the entries of an origin up to a number.
func (f *follower) list(ctx context.Context, origin string, to uint64) (out []uint64, err error) {
	err = f.eachName(ctx, entriesOf(f.name, origin), func(word string) error {
		if n, ok := number(word); ok && n <= to {
			out = append(out, n)
		}
		return nil
	})
	return out, err
}

// eachName calls fn with the last words of all names with a prefix.
func (f *follower) eachName(ctx context.Context, prefix string, fn func(word string) error) error {
	for after := ""; ; {
		got, err := f.s.rows.Scan(ctx, prefix, after, page, false)
		if err != nil {
			return err
		}
		for _, r := range got {
			after = r.Name
			if err := fn(strings.TrimPrefix(r.Name, prefix)); err != nil {
				return err
			}
		}
		if len(got) < page {
			return nil
		}
	}
}

// maxPull is the size of a batch, in bytes, from which no more entries are added.
const maxPull = 4 << 20

// pullOrigin applies the changes of an origin after a number. If a row cannot be read, it applies the
// later ones without raising the vector, and tries again later.
func (f *follower) pullOrigin(ctx context.Context, origin string, at, to uint64) error {
	st, isStuck := f.stuck[origin]
	loose := isStuck && time.Now().Before(st.again)
	if loose {
		at = st.done
	}
	for at < to {
		b, bad, err := f.read(ctx, origin, at, to, loose)
		if err != nil {
			return err
		}
		refused, err := f.apply(b)
		if err != nil {
			return err
		}
		at = b.To
		switch {
		case loose:
			st.done = at
			f.stuck[origin] = st
		case refused > 0 || bad > 0:
			// Go on after the row, but keep the vector before it.
			at = max(st.done, cmp.Or(refused, bad))
			st = stuck{at, time.Now().Add(f.s.times.stuck)}
			f.stuck[origin], loose = st, true
		case isStuck:
			st, isStuck = stuck{}, false
			delete(f.stuck, origin)
		}
	}
	return nil
}

// read reads the next entries of an origin, up to a number. bad is the number of a row that cannot be
// read, before which the batch ends, unless loose is set.
func (f *follower) read(ctx context.Context, origin string, from, to uint64, loose bool) (b oplog.Batch, bad uint64, err error) {
	prefix := entriesOf(f.name, origin)
	got, err := f.s.rows.Scan(ctx, prefix, entryRow(f.name, origin, from), pageValues, true)
	if err != nil {
		return b, 0, err
	}
	b = oplog.Batch{Origin: origin, From: from, To: to, Loose: loose}
	size, seen := 0, from
	for _, r := range got {
		n, ok := number(strings.TrimPrefix(r.Name, prefix))
		if !ok {
			f.unreadable(r.Name, errors.New("its name does not end in a number of 16 hexadecimal digits"))
			continue
		}
		if n > to {
			return b, 0, nil
		}
		if size > maxPull {
			b.To = seen
			return b, 0, nil
		}
		content, err := f.content(ctx, r)
		if err != nil && salt.KindOf(err) == salt.Unavailable {
			return b, 0, err
		}
		if err != nil {
			if err := f.mark(ctx, origin, r.Name, digits(n), err); err != nil {
				return b, 0, err
			}
			if !loose {
				b.To = n - 1
				return b, n, nil
			}
		} else {
			f.readable(r.Name)
			b.Items = append(b.Items, oplog.Item{Number: n, Data: content})
			size += len(content)
		}
		seen = n
	}
	if len(got) == pageValues && seen > from {
		b.To = seen
	}
	return b, 0, nil
}

// apply applies a batch. refused is the number of the first change that the stream cannot decode; 0
// if there is none.
func (f *follower) apply(b oplog.Batch) (refused uint64, err error) {
	if !b.Loose {
		err := f.stream.Apply(b)
		if err == nil {
			return 0, nil
		}
		mine, verr := f.stream.Vector()
		if verr != nil || errors.Is(err, oplog.ErrGap) || salt.KindOf(err) == salt.Unavailable {
			return 0, err
		}
		for _, it := range b.Items {
			if it.Number > mine[b.Origin] {
				name := entryRow(f.name, b.Origin, it.Number)
				f.unreadable(name, err)
				return it.Number, nil
			}
		}
		return 0, err
	}
	for _, it := range b.Items {
		one := oplog.Batch{Origin: b.Origin, From: it.Number - 1, To: it.Number, Items: []oplog.Item{it}, Loose: true}
		if err := f.stream.Apply(one); err != nil {
			if salt.KindOf(err) == salt.Unavailable {
				return 0, err
			}
			f.unreadable(entryRow(f.name, b.Origin, it.Number), err)
		}
	}
	return 0, nil
}

// content returns the content of an entry.
func (f *follower) content(ctx context.Context, r rows.Row) ([]byte, error) {
	flags, b, err := f.s.seal.open(r.Name, r.Value)
	if err != nil || flags&flagParts == 0 {
		return b, err
	}
	var parts []byte
	prefix, count, ok := partNames(r.Name, b)
	if !ok {
		return nil, errSealed
	}
	for i := range count {
		name := prefix + digits(uint64(i+1))
		got, err := f.s.rows.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		_, part, err := f.s.seal.open(name, got[name])
		if err != nil {
			return nil, fmt.Errorf("a part of it cannot be read: %w", err)
		}
		if parts = append(parts, part...); len(parts) > maxContent {
			return nil, errors.New("its content is too large")
		}
	}
	return parts, nil
}

// mark reports an entry that cannot be read, here and to the other masters.
func (f *follower) mark(ctx context.Context, origin, name, word string, why error) error {
	f.unreadable(name, why)
	if f.marked[name] || f.s.isExcluded() {
		return nil
	}
	x := badRow(f.name, origin, word)
	v, err := f.s.seal.seal(x, 0, []byte(f.s.id))
	if err != nil {
		return err
	}
	f.marked[name], err = f.commit(ctx, nil, []rows.Change{{Name: x, Value: v}})
	return err
}

// commit makes changes unless another master removes outdated entries. Afterwards the numbers are read
// again: the server may be restored to the moment of the last look.
func (f *follower) commit(ctx context.Context, conditions []rows.Condition, changes []rows.Change) (bool, error) {
	var g [8]byte
	rand.Read(g[:])
	f.generation = nil
	conditions = append(conditions, rows.Condition{Name: sweepRow(f.name), Value: f.sweeping})
	changes = append(changes, rows.Change{Name: generationRow(f.name), Value: []byte(hex.EncodeToString(g[:]))})
	return f.s.rows.Commit(ctx, conditions, changes)
}

// Bounds of one batch to write, in items and bytes. An item larger than maxPart is written in parts.
const (
	pushItems = 100
	maxPart   = 384 << 10
	pushBytes = 384 << 10
	// pushRound is the number of batches after which changes of other masters are read first.
	pushRound = 50
)

// push writes the changes that the server lacks.
func (f *follower) push(ctx context.Context) error {
	if err := f.sweep(ctx); err != nil || f.blocked() {
		return err
	}
	for range pushRound {
		origin, ok, err := f.next()
		if err != nil || !ok {
			return err
		}
		if err := f.pushBatch(ctx, origin); err != nil {
			return err
		}
	}
	return nil
}

// next selects an origin whose changes the server lacks: first those of this master from before its
// start, then those after it, then those of others that the server lacks for a while.
func (f *follower) next() (origin string, ok bool, err error) {
	mine, err := f.stream.Vector()
	if err != nil {
		return "", false, err
	}
	self, now := f.stream.Self(), time.Now()
	best := 0
	for o, n := range mine {
		has := f.looked[o].number
		if has >= n {
			delete(f.lag, o)
			continue
		}
		rank := 1
		switch {
		case o == self:
			rank = 2
		case f.stream.Own(o):
			rank = 3
		default:
			if l, known := f.lag[o]; !known || has >= l.number {
				f.lag[o] = lag{n, now}
				continue
			} else if now.Sub(l.since) < f.s.times.hearsay {
				continue
			}
		}
		if rank > best {
			origin, ok, best = o, true, rank
		}
	}
	return origin, ok, nil
}

// pushBatch writes the next changes of an origin.
func (f *follower) pushBatch(ctx context.Context, origin string) error {
	has := f.looked[origin]
	b, err := f.stream.Read(origin, has.number, pushItems, pushBytes)
	if err != nil {
		return err
	}
	if b.To <= has.number {
		return fmt.Errorf("cannot read after change %d of %s", has.number, origin)
	}
	var changes []rows.Change
	for _, it := range b.Items {
		c, err := f.entry(ctx, origin, it)
		if err != nil {
			return err
		}
		changes = append(changes, c)
	}
	name := numberRow(f.name, origin)
	v, err := f.s.seal.seal(name, 0, binary.BigEndian.AppendUint64(nil, b.To))
	if err != nil {
		return err
	}
	changes = append(changes, rows.Change{Name: name, Value: v})
	ok, err := f.commit(ctx, []rows.Condition{{Name: name, Value: has.raw}}, changes)
	if err != nil {
		return err
	}
	if !ok { // another master was faster, or removes outdated entries
		f.generation = nil
		return f.look(ctx)
	}
	looked := maps.Clone(f.looked)
	looked[origin] = row{b.To, v}
	f.setLooked(looked)
	return nil
}

// entry returns the row of a change. It writes the parts of a large one first.
func (f *follower) entry(ctx context.Context, origin string, it oplog.Item) (rows.Change, error) {
	name := entryRow(f.name, origin, it.Number)
	flags := byte(0)
	if isDeletion(f.stream, it) {
		flags = flagTombstone
	}
	if len(it.Data) <= maxPart {
		v, err := f.s.seal.seal(name, flags, it.Data)
		return rows.Change{Name: name, Value: v}, err
	}
	var id [8]byte
	rand.Read(id[:])
	head := append(id[:], 0, 0, 0, 0)
	count := (len(it.Data) + maxPart - 1) / maxPart
	binary.BigEndian.PutUint32(head[8:], uint32(count))
	prefix, _, _ := partNames(name, head)
	for i := range count {
		part := it.Data[i*maxPart : min(len(it.Data), (i+1)*maxPart)]
		p := prefix + digits(uint64(i+1))
		v, err := f.s.seal.seal(p, 0, part)
		if err != nil {
			return rows.Change{}, err
		}
		ok, err := f.s.rows.Commit(ctx, []rows.Condition{{Name: sweepRow(f.name), Value: f.sweeping}}, []rows.Change{{Name: p, Value: v}})
		if err == nil && !ok {
			err = salt.Errorf(salt.Unavailable, "another master removes outdated entries from %s", f.s.what())
		}
		if err != nil {
			return rows.Change{}, err
		}
	}
	v, err := f.s.seal.seal(name, flags|flagParts, head)
	return rows.Change{Name: name, Value: v}, err
}

// partNames returns the prefix of the names of an entry's parts, and their number, from the content
// of the entry.
func partNames(entry string, head []byte) (prefix string, count int, ok bool) {
	if len(head) != 12 {
		return "", 0, false
	}
	n := binary.BigEndian.Uint32(head[8:])
	return "b/" + strings.TrimPrefix(entry, "e/") + "/" + hex.EncodeToString(head[:8]) + "/", int(n), n > 0 && n <= maxContent/maxPart+1
}

// isDeletion reports whether a change is a deletion.
func isDeletion(s oplog.Stream, it oplog.Item) bool {
	d, ok := s.(interface{ IsDeletion(it oplog.Item) bool })
	return ok && d.IsDeletion(it)
}
