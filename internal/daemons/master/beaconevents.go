package master

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/steady"
	"brine/internal/catalogue/runners"
	"brine/internal/store/daily"
)

// Bounds of what is kept of the beacons of minions, and of the bytes of a name.
const (
	maxBeaconMinions, maxBeaconsOfOne = 20_000, 100
	maxBeaconName                     = 100
)

// beaconEvents counts the events of each beacon of each minion: the settings of beacons in the configuration of minions are unknown to the master. The
// counts of each day are kept in a file. A nil *beaconEvents counts none.
type beaconEvents struct {
	dir  daily.Dir
	keep time.Duration // 0: for ever
	log  *ratelimit.Log

	mu sync.Mutex
	// today has the counts of day, before those of the other days.
	day           string
	today, before beaconCounts
	changed       bool // since today was written
}

// beaconCounts are events by minion and beacon.
type beaconCounts map[string]map[string]runners.BeaconEvents

// openBeaconEvents reads the counts that are kept.
func openBeaconEvents(own string, keep time.Duration, now time.Time, log *slog.Logger) *beaconEvents {
	b := &beaconEvents{dir: daily.Dir{Path: filepath.Join(own, minionsDir), Name: "beacons", MaxDay: maxBeaconsDay, MaxAll: maxBeaconsAll}, keep: keep,
		log: ratelimit.NewLog(log, 1, time.Minute), day: daily.Day(now),
		before: beaconCounts{}}
	if err := b.read(); err != nil {
		log.Warn("cannot read earlier counts of events of beacons", "err", err)
	}
	return b
}

// read reads the counts of all days. b.mu is held, or b is new.
func (b *beaconEvents) read() error {
	before, today := beaconCounts{}, beaconCounts{}
	err := b.dir.Each(func(day string, text []byte) {
		counts := before
		if day == b.day {
			counts = today
		}
		var all beaconCounts
		if json.Unmarshal(text, &all) != nil {
			return
		}
		for id, names := range all {
			for name, e := range names {
				if len(name) <= maxBeaconName && e.Count > 0 {
					counts.add(id, name, e)
				}
			}
		}
	})
	if err != nil {
		return err
	}
	if b.before = before; b.today == nil {
		b.today = today
	}
	return nil
}

// add adds events, unless that would exceed the bounds.
func (c beaconCounts) add(id, name string, e runners.BeaconEvents) {
	all := c[id]
	if all == nil {
		if len(c) >= maxBeaconMinions {
			return
		}
		all = map[string]runners.BeaconEvents{}
		c[id] = all
	}
	was, known := all[name]
	if !known && len(all) >= maxBeaconsOfOne {
		return
	}
	if was.Count += e.Count; e.Last.After(was.Last) {
		was.Last = e.Last
	}
	all[name] = was
}

// note counts an event with this tag, if it is that of a beacon.
func (b *beaconEvents) note(tag string) {
	rest, ok := strings.CutPrefix(tag, "salt/beacon/")
	if !ok || b == nil {
		return
	}
	id, rest, _ := strings.Cut(rest, "/")
	name, _, _ := strings.Cut(rest, "/")
	if id == "" || name == "" || len(name) > maxBeaconName {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.today == nil {
		b.today = beaconCounts{}
	}
	b.today.add(id, name, runners.BeaconEvents{Count: 1, Last: time.Now()})
	b.changed = true
}

// of returns the events of the beacons of a minion by name.
func (b *beaconEvents) of(id string) map[string]runners.BeaconEvents {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := beaconCounts{}
	for _, counts := range []beaconCounts{b.before, b.today} {
		for name, e := range counts[id] {
			sum.add(id, name, e)
		}
	}
	if sum[id] == nil {
		return map[string]runners.BeaconEvents{}
	}
	return sum[id]
}

// forget drops minions without an accepted key.
func (b *beaconEvents) forget(accepted map[string]bool) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, counts := range []beaconCounts{b.before, b.today} {
		for id := range counts {
			if !accepted[id] {
				delete(counts, id)
				b.changed = true
			}
		}
	}
}

// write writes the counts of the day, and begins another one if it has ended.
func (b *beaconEvents) write(now time.Time) {
	b.mu.Lock()
	day, changed := b.day, b.changed
	text, err := json.Marshal(b.today)
	b.changed = false
	b.mu.Unlock()
	if changed && err == nil {
		err = b.dir.Replace(day, text)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.changed = true
		b.log.Log(slog.LevelWarn, "cannot keep counts of events of beacons; retrying", "err", err)
	}
	if next := daily.Day(now); next > day {
		for id, names := range b.today {
			for name, e := range names {
				b.before.add(id, name, e)
			}
		}
		b.day, b.today, b.changed = next, beaconCounts{}, false
	}
}

// clean removes old days.
func (b *beaconEvents) clean(removal time.Time) {
	removed, err := b.dir.Clean(b.keep, removal)
	if removed {
		b.mu.Lock()
		err = errors.Join(err, b.read())
		b.mu.Unlock()
	}
	if err != nil {
		b.log.Log(slog.LevelWarn, "cannot remove old counts of events of beacons; retrying", "err", err)
	}
}

// run writes and cleans until ctx ends.
func (b *beaconEvents) run(ctx context.Context) error {
	tick, clean := time.NewTicker(beaconsWritten), time.NewTicker(dailyCleaned)
	defer tick.Stop()
	defer clean.Stop()
	for {
		select {
		case <-ctx.Done():
			b.write(time.Now())
			return nil
		case <-tick.C:
			b.write(time.Now())
		case <-clean.C:
			b.clean(steady.Removal())
		}
	}
}
