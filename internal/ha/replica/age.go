package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/atomicfile"
)

// ageFile, followed by the kind, is a file in a directory that belongs to the records. It has a number, as the records do, which grows after
// changes. If that of the directory is the lower one, the directory was restored from a backup: its differences from the records are no
// decisions, as none of them was made by someone who knew the records. If the records have the lower one, they were restored; the directory
// then says what was decided since.
const ageFile = markFile + "age-"

// agePause is the least time between two numbers. Changes within it share one: a directory that is copied between the first and the last
// of them, and restored after the process was killed within this time, is not recognized.
const agePause = time.Minute

// age is the number of a directory.
type age struct {
	changed bool      // since the last number
	last    time.Time // when that was written
	number  uint64
}

func ageKey(kind string) []byte { return []byte("age " + kind) }

func (m *Mirror) agePath() string { return filepath.Join(m.f.Dir(), ageFile+m.kind) }

// begin reads both numbers, and reports whether the directory is an older copy.
func (a *age) begin(m *Mirror) (older bool, err error) {
	b, err := os.ReadFile(m.agePath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	directory, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		directory = 0 // missing: copied before there was a number
	}
	var records uint64
	err = m.s.db.View(func(tx *bolt.Tx) error {
		records, _ = strconv.ParseUint(string(tx.Bucket(metaBucket).Get(ageKey(m.kind))), 10, 64)
		return nil
	})
	a.number = max(directory, records)
	a.changed = a.changed || directory != records
	return directory < records, failed(err)
}

// pass writes the next number if something has changed, at most once in a time.
func (a *age) pass(m *Mirror, pause time.Duration) {
	if _, cached := m.f.(*Nested); cached || !m.ready || !a.changed || !a.last.IsZero() && time.Since(a.last) < pause {
		return
	}
	a.last = time.Now()
	next := a.number + 1
	// A crash between the two makes the records look older, which loses no decision.
	err := atomicfile.Write(m.agePath(), fmt.Appendln(nil, next), 0o600, true)
	if err == nil {
		err = failed(m.s.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(metaBucket).Put(ageKey(m.kind), fmt.Append(nil, next)) }))
	}
	if err != nil {
		m.s.log.Warn("cannot number the state of replicated files; an older copy of the directory may not be recognized", "path", m.f.Dir(), "err", err)
		return
	}
	a.number, a.changed = next, false
}
