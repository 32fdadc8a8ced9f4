package steady

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
)

// start is what this process knows of the clock at its start.
var start beginning

// beginning compares the clock at the start of a process with the time that the program had recorded before.
type beginning struct {
	mu    sync.Mutex
	ahead time.Duration // of the record
	at    time.Time     // with the time that passes
}

// doubt returns by how much the clock may be ahead. A clock that is the same for believeTime is right.
func (b *beginning) doubt() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ahead > 0 && time.Since(b.at) >= believeTime {
		b.ahead = 0
	}
	return b.ahead
}

func (b *beginning) resume(seen, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ahead, b.at = now.Round(0).Sub(seen), now; b.ahead <= jumpSize {
		b.ahead = 0
	}
	return b.ahead
}

// Resume reads the time that an earlier process of this program recorded in a file (Record), and returns by how much the clock is ahead of
// it, if that is more than a few minutes. Either the program has not run for that time, or the clock is wrong: Removal is held back for an
// hour. Without a readable file the newest file in its directory and below counts, which an earlier version of the program or another one
// has written: at that time a clock was not ahead of it. If there is none, there is nothing to lose, and the clock is believed. Call it
// before anything is written or removed.
func Resume(path string) (ahead time.Duration) {
	seen, ok := recorded(path)
	if !ok {
		if seen, ok = newest(filepath.Dir(path)); !ok {
			return 0
		}
	}
	return start.resume(seen, time.Now())
}

// recorded returns the time in a file of Record.
func recorded(path string) (at time.Time, ok bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return at, false
	}
	at, err = time.Parse(time.RFC3339, strings.TrimSpace(string(b)))
	return at, err == nil
}

// newestOf bounds the files that newest looks at.
const newestOf = 1000

// newest returns the latest time at which a file below a directory was written. Of a record of another program its content counts: it may
// have been written while the clock was in doubt.
func newest(dir string) (at time.Time, ok bool) {
	left := newestOf
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if left--; left < 0 {
			return fs.SkipAll
		}
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		written := info.ModTime()
		if strings.HasPrefix(d.Name(), "clock") {
			written, _ = recorded(path)
		}
		if written.After(at) {
			at = written
		}
		return nil
	})
	return at, !at.IsZero()
}

// recordEvery is the interval of Record.
const recordEvery = time.Minute

// Record records the time in a file once a minute until ctx ends, for Resume of the next process. A time is recorded only once it is
// believed. failed is called with each error.
func Record(ctx context.Context, path string, failed func(error)) {
	tick := time.NewTicker(recordEvery)
	defer tick.Stop()
	for {
		// No part of the program may have needed the directory yet.
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = atomicfile.Write(path, []byte(Removal().UTC().Format(time.RFC3339)+"\n"), 0o600, false)
		}
		if err != nil {
			failed(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
