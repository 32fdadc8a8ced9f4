package record

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"brine/internal/net/remote/rows"
	"brine/internal/store/oplog"
)

// Masters forget a deletion when all of them know it. If the server is then restored from a backup, it
// lacks the deletion and has the deleted entry, and so may a master whose disk was restored. A master
// that knows better must therefore do three things before another one reads or writes entries: remove
// the outdated entries, say which deletions were forgotten, and write all that the server lacks. That
// is a sweep. While it is under way the sweep row exists, which all other transactions require to be
// absent. A master that lacks forgotten deletions applies nothing until the row is gone; then it drops
// what the server does not list.

// sweeper is the row as this master first saw it.
type sweeper struct {
	raw   []byte
	since time.Time
}

// noteSweep takes the sweep row as it is now.
func (f *follower) noteSweep(raw []byte) {
	if len(raw) == 0 {
		raw = nil
	}
	f.sweeping = raw
	if !bytes.Equal(raw, f.sweptBy.raw) {
		f.sweptBy = sweeper{raw, time.Now()}
	}
}

// blocked reports whether another master removes outdated entries.
func (f *follower) blocked() bool { return f.sweeping != nil && !bytes.Equal(f.sweeping, f.own) }

// lacksForgotten reports whether the server lacks deletions that this master has forgotten.
func (f *follower) lacksForgotten() (lacks bool, err error) {
	stream, ok := f.stream.(oplog.Forgetful)
	if !ok {
		return false, nil
	}
	forgotten, err := stream.Forgotten()
	for origin, n := range forgotten {
		lacks = lacks || f.looked[origin].number < n
	}
	return lacks, err
}

// sweep removes the outdated entries of a server that lacks forgotten deletions, and brings it up to
// date.
func (f *follower) sweep(ctx context.Context) error {
	lacks, err := f.lacksForgotten()
	if err != nil {
		return err
	}
	waited := time.Since(f.sweptBy.since)
	if f.blocked() && (!lacks || waited < f.s.times.sweepOver) {
		if waited < f.s.times.sweepGone {
			return nil
		}
		f.s.log.Warn("a master ended while it removed outdated entries from the store of record", "stream", f.name)
		_, err := f.commit(ctx, nil, []rows.Change{{Name: sweepRow(f.name)}})
		f.sweeping = nil
		return err
	}
	if begun := f.sweeping != nil && !f.blocked(); !lacks && !begun {
		return nil
	} else if !begun {
		f.s.log.Info("removing outdated entries from the store of record, which lacks deletions that all masters know", "stream", f.name)
	}
	if ok, err := f.renewSweep(ctx); err != nil || !ok {
		return err
	}
	if err := f.writeForgotten(ctx); err != nil {
		return err
	}
	live, _, err := f.local()
	if err != nil {
		return err
	}
	mine, err := f.stream.Vector()
	if err != nil {
		return err
	}
	for origin, r := range f.looked {
		up := min(r.number, mine[origin])
		numbers, err := f.list(ctx, origin, up)
		if err != nil {
			return err
		}
		var gone []uint64
		for _, n := range numbers {
			if _, counts := slices.BinarySearch(live[origin], n); !counts {
				gone = append(gone, n)
			}
		}
		if err := f.remove(ctx, origin, gone, true); err != nil {
			return err
		}
	}
	for origin, n := range mine {
		for f.looked[origin].number < n {
			if ok, err := f.keepSweep(ctx); err != nil || !ok {
				return err
			}
			has := f.looked[origin].number
			if err := f.pushBatch(ctx, origin); err != nil {
				return err
			}
			if f.looked[origin].number <= has {
				return nil // another master works there; the next round tries again
			}
		}
	}
	ok, err := f.commit(ctx, nil, []rows.Change{{Name: sweepRow(f.name)}})
	if err == nil && ok {
		f.noteSweep(nil)
	}
	return err
}

// renewSweep writes the sweep row. ok is false if another master was faster.
func (f *follower) renewSweep(ctx context.Context) (ok bool, err error) {
	name := sweepRow(f.name)
	v, err := f.s.seal.seal(name, 0, []byte(f.s.id))
	if err != nil {
		return false, err
	}
	ok, err = f.commit(ctx, nil, []rows.Change{{Name: name, Value: v}})
	if err == nil && ok {
		f.own = v
		f.noteSweep(v)
	}
	return ok, err
}

// keepSweep renews the sweep row now and then, so that no other master thinks that this one is dead.
func (f *follower) keepSweep(ctx context.Context) (ok bool, err error) {
	if time.Since(f.sweptBy.since) < f.s.times.sweepRenew {
		return true, nil
	}
	return f.renewSweep(ctx)
}

// removeSome is the number of entries that one transaction removes.
const removeSome = 50

// remove removes entries and their parts.
func (f *follower) remove(ctx context.Context, origin string, numbers []uint64, sweeping bool) error {
	for some := range slices.Chunk(numbers, removeSome) {
		if sweeping {
			if ok, err := f.keepSweep(ctx); err != nil || !ok {
				return err
			}
		}
		var changes []rows.Change
		for _, n := range some {
			name := entryRow(f.name, origin, n)
			changes = append(changes, rows.Change{Name: name})
		}
		if _, err := f.commit(ctx, nil, changes); err != nil {
			return err
		}
	}
	return f.removeParts(ctx, origin, numbers)
}

// removeParts removes the parts of removed entries.
func (f *follower) removeParts(ctx context.Context, origin string, numbers []uint64) error {
	if len(numbers) == 0 {
		return nil
	}
	gone := map[string]bool{}
	for _, n := range numbers {
		gone[digits(n)] = true
	}
	var changes []rows.Change
	flush := func() error {
		if len(changes) == 0 {
			return nil
		}
		_, err := f.commit(ctx, nil, changes)
		changes = nil
		return err
	}
	prefix := partsOf(f.name, origin)
	err := f.eachName(ctx, prefix, func(word string) error {
		if n, _, _ := strings.Cut(word, "/"); !gone[n] {
			return nil
		}
		changes = append(changes, rows.Change{Name: prefix + word})
		if len(changes) >= removeSome {
			return flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}
