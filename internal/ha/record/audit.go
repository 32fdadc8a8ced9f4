package record

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/net/remote/rows"
	"brine/internal/store/oplog"
)

// local returns the numbers of the changes that count, by origin, and a vector from after they were
// read: every change by which another one no longer counts is in it.
func (f *follower) local() (live map[string][]uint64, after oplog.Vector, err error) {
	mine, err := f.stream.Vector()
	if err != nil {
		return nil, nil, err
	}
	live = map[string][]uint64{}
	for origin, to := range mine {
		for at := uint64(0); at < to; {
			b, err := f.stream.ReadLive(origin, at)
			if err != nil {
				return nil, nil, err
			}
			numbers, err := b.ParseLive()
			if err != nil {
				return nil, nil, err
			}
			if b.To <= at {
				break
			}
			live[origin] = append(live[origin], numbers...)
			at = b.To
		}
	}
	after, err = f.stream.Vector()
	return live, after, err
}

// audit compares the entries on the server with those of this master. It writes what is missing or
// damaged there, and removes what no longer counts.
func (f *follower) audit(ctx context.Context) error {
	if time.Since(f.audited) < f.s.times.audit {
		return nil
	}
	before, err := f.stream.Vector()
	if err != nil {
		return err
	}
	for origin, r := range f.looked {
		if before[origin] < r.number {
			return nil // this master lacks something; the next round tries again
		}
	}
	live, after, err := f.local()
	if err != nil {
		return err
	}
	// This must also be known to the server before anything is removed there.
	for origin, n := range after {
		for f.looked[origin].number < n {
			has := f.looked[origin].number
			if err := f.pushBatch(ctx, origin); err != nil {
				return err
			}
			if f.looked[origin].number <= has {
				return nil // another master works there; the next round tries again
			}
		}
	}
	full := time.Since(f.full) > f.s.times.full
	put, gone := 0, 0
	var tombstones []dead
	for origin, r := range f.looked {
		missing, outdated, err := f.compare(ctx, origin, min(r.number, before[origin]), live[origin], full)
		if err != nil {
			return err
		}
		n, err := f.restore(ctx, origin, missing)
		if err != nil {
			return err
		}
		put += n
		var plain []uint64
		for _, d := range outdated {
			if d.tombstone {
				tombstones = append(tombstones, d)
			} else {
				plain = append(plain, d.number)
			}
		}
		if err := f.remove(ctx, origin, plain, false); err != nil {
			return err
		}
		gone += len(plain)
	}
	// A master that reads an outdated entry must find the deletion, or that it was forgotten.
	if err := f.writeForgotten(ctx); err != nil {
		return err
	}
	for _, d := range tombstones {
		if err := f.remove(ctx, d.origin, []uint64{d.number}, false); err != nil {
			return err
		}
	}
	gone += len(tombstones)
	if put > 0 {
		f.s.log.Warn("entries were missing in the store of record, or damaged; wrote them again", "stream", f.name, "entries", put)
	}
	f.s.log.Debug("compared the store of record", "stream", f.name, "written", put, "removed", gone)
	f.audited = time.Now().Add(wait.Jitter(f.s.times.audit / 2)) // not all masters at once
	if full {
		f.full = time.Now()
	}
	return nil
}

// dead is an entry that no longer counts.
type dead struct {
	origin    string
	number    uint64
	tombstone bool
}

// compare returns the numbers up to a number that are missing on the server or, if full is set,
// damaged there, and the entries there that no longer count. live is sorted.
func (f *follower) compare(ctx context.Context, origin string, to uint64, live []uint64, full bool) (missing []uint64, outdated []dead, err error) {
	there := map[uint64]bool{}
	prefix := entriesOf(f.name, origin)
	size := page
	if full {
		size = pageValues
	}
	for after := ""; ; {
		got, err := f.s.rows.Scan(ctx, prefix, after, size, full)
		if err != nil {
			return nil, nil, err
		}
		var gone []uint64
		for _, r := range got {
			after = r.Name
			n, ok := number(strings.TrimPrefix(r.Name, prefix))
			if !ok || n > to {
				continue
			}
			if _, counts := slices.BinarySearch(live, n); !counts {
				gone = append(gone, n)
				continue
			}
			if full {
				if _, err := f.content(ctx, r); err != nil {
					if salt.KindOf(err) == salt.Unavailable {
						return nil, nil, err
					}
					f.unreadable(r.Name, err)
					continue // missing
				}
			}
			there[n] = true
		}
		for some := range slices.Chunk(gone, removeSome) {
			names := make([]string, len(some))
			for i, n := range some {
				names[i] = entryRow(f.name, origin, n)
			}
			values, err := f.s.rows.Get(ctx, names...)
			if err != nil {
				return nil, nil, err
			}
			for i, n := range some {
				v := values[names[i]]
				outdated = append(outdated, dead{origin, n, len(v) > 1 && v[1]&flagTombstone != 0})
			}
		}
		if len(got) < size {
			break
		}
	}
	for _, n := range live {
		if n <= to && !there[n] {
			missing = append(missing, n)
		}
	}
	return missing, outdated, nil
}

// restore writes entries again, and returns how many still count.
func (f *follower) restore(ctx context.Context, origin string, numbers []uint64) (n int, err error) {
	for _, at := range numbers {
		b, err := f.stream.Read(origin, at-1, 1, 1)
		if err != nil {
			return n, err
		}
		if len(b.Items) != 1 || b.Items[0].Number != at {
			continue // replaced meanwhile, or expired
		}
		c, err := f.entry(ctx, origin, b.Items[0])
		if err != nil {
			return n, err
		}
		if ok, err := f.commit(ctx, nil, []rows.Change{c}); err != nil || !ok {
			return n, err
		}
		f.readable(c.Name)
		n++
	}
	return n, nil
}

// writeForgotten writes which deletions this master has forgotten.
func (f *follower) writeForgotten(ctx context.Context) error {
	stream, ok := f.stream.(oplog.Forgetful)
	if !ok {
		return nil
	}
	forgotten, err := stream.Forgotten()
	if err != nil {
		return err
	}
	for origin, n := range forgotten {
		old := f.forgot[origin]
		if old.number >= n {
			continue
		}
		name := forgotRow(f.name, origin)
		v, err := f.s.seal.seal(name, 0, binary.BigEndian.AppendUint64(nil, n))
		if err != nil {
			return err
		}
		ok, err := f.commit(ctx, []rows.Condition{{Name: name, Value: old.raw}}, []rows.Change{{Name: name, Value: v}})
		if err != nil {
			return err
		}
		if !ok {
			f.generation = nil
			return salt.Errorf(salt.Unavailable, "another master changes %s at the same time", f.s.what())
		}
		all := maps.Clone(f.forgot)
		if all == nil {
			all = map[string]row{}
		}
		all[origin] = row{n, v}
		f.forgot = all
	}
	return nil
}

// heal writes the entries again that another master could not read.
func (f *follower) heal(ctx context.Context) error {
	mine, err := f.stream.Vector()
	if err != nil {
		return err
	}
	prefix := "x/" + f.name + "/"
	if f.generation != nil && f.healed == string(f.generation) {
		return nil
	}
	got, err := f.s.rows.Scan(ctx, prefix, "", page, false)
	if err != nil {
		return err
	}
	for _, r := range got {
		origin, word := last(r.Name, prefix)
		n, ok := number(word)
		if !ok || mine[origin] < n {
			continue
		}
		put, err := f.restore(ctx, origin, []uint64{n})
		if err != nil {
			return err
		}
		changes := []rows.Change{{Name: r.Name}}
		if put == 0 { // it no longer counts
			changes = append(changes, rows.Change{Name: entryRow(f.name, origin, n)})
		}
		if _, err := f.commit(ctx, nil, changes); err != nil {
			return err
		}
		if put > 0 {
			f.s.log.Warn("another master could not read an entry of the store of record; wrote it again", "row", entryRow(f.name, origin, n))
		}
	}
	f.healed = string(f.generation)
	return nil
}
