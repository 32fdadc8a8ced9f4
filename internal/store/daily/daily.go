// Package daily keeps text in one file for each day, with bounds in days and bytes. What it keeps may be lost in a crash of the machine: files are
// not flushed.
package daily

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"brine/internal/base/atomicfile"
)

// Dir is a directory with the files of one kind. Only one goroutine may change it.
type Dir struct {
	Path, Name string
	// MaxDay bounds the bytes of a day, MaxAll those of all days.
	MaxDay, MaxAll int64
}

// ErrFull says that a day has all that it may have.
var ErrFull = errors.New("the bound of bytes of a day is reached")

const (
	layout = "2006-01-02"
	suffix = ".json"
)

// Day returns the day of a time, in UTC.
func Day(t time.Time) string { return t.UTC().Format(layout) }

func (d Dir) file(day string) string { return filepath.Join(d.Path, d.Name+"-"+day+suffix) }

// Append appends lines to the file of a day.
func (d Dir) Append(day string, lines []byte) error {
	if err := atomicfile.MkdirAll(d.Path, 0o700); err != nil {
		return fmt.Errorf("cannot keep %s of %s: %w", d.Name, day, err)
	}
	f, err := os.OpenFile(d.file(day), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("cannot keep %s of %s: %w", d.Name, day, err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err == nil && fi.Size()+int64(len(lines)) > d.MaxDay {
		err = ErrFull
	}
	if err == nil && fi.Size() > 0 {
		last := make([]byte, 1)
		if _, err = f.ReadAt(last, fi.Size()-1); err == nil && last[0] != '\n' {
			lines = append([]byte("\n"), lines...) // a crash cut off the last line
		}
	}
	if err == nil {
		if _, err = f.Write(lines); err != nil {
			err = errors.Join(err, f.Truncate(fi.Size())) // as on a full disk: they are written again
		}
	}
	if err != nil {
		return fmt.Errorf("cannot keep %s of %s: %w", d.Name, day, err)
	}
	return nil
}

// Replace writes the file of a day.
func (d Dir) Replace(day string, text []byte) error {
	err := atomicfile.MkdirAll(d.Path, 0o700)
	if err == nil && int64(len(text)) > d.MaxDay {
		err = ErrFull
	}
	if err == nil {
		err = atomicfile.Write(d.file(day), text, 0o600, false)
	}
	if err != nil {
		return fmt.Errorf("cannot keep %s of %s: %w", d.Name, day, err)
	}
	return nil
}

// Each calls do with the content of each day, the oldest first. It skips files that are larger than a day may be.
func (d Dir) Each(do func(day string, text []byte)) error {
	days, err := d.days()
	for _, day := range days {
		if day.size > d.MaxDay {
			continue
		}
		b, e := os.ReadFile(d.file(day.name))
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		do(day.name, b)
	}
	return err
}

type dayFile struct {
	name string
	size int64
}

// days returns the days that have a file, the oldest first.
func (d Dir) days() (out []dayFile, err error) {
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		day, ok := strings.CutPrefix(e.Name(), d.Name+"-")
		day, found := strings.CutSuffix(day, suffix)
		if t, err := time.Parse(layout, day); !ok || !found || err != nil || Day(t) != day {
			continue
		}
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() {
			out = append(out, dayFile{day, fi.Size()})
		}
	}
	slices.SortFunc(out, func(a, b dayFile) int { return strings.Compare(a.name, b.name) })
	return out, err
}

// Clean removes days that ended longer ago than keep, 0 for none, and then the oldest ones until the rest is within the bound of bytes. It reports
// whether it removed any.
func (d Dir) Clean(keep time.Duration, removal time.Time) (removed bool, err error) {
	days, err := d.days()
	var sum int64
	for _, day := range days {
		sum += day.size
	}
	for i, day := range days {
		t, _ := time.Parse(layout, day.name) // days has it checked
		old := keep > 0 && removal.Sub(t.Add(24*time.Hour)) > keep
		if !old && (sum <= d.MaxAll || i == len(days)-1) {
			continue
		}
		if e := os.Remove(d.file(day.name)); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
			continue
		}
		sum -= day.size
		removed = true
	}
	return removed, err
}
