// Package audit records who requested what from a master, and the result: one JSON line per
// request, in a file that is rotated by size. Arguments are not recorded, since they may be
// secrets.
//
// A record is a map with time (UTC), user, auth (user, token, eauth or reactor), from (not for the
// reactor), cmd, fun, tgt and result, and for a job jid.
package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"brine/internal/py/json"
	"brine/internal/py/value"
)

// maxSize is the size in bytes at which a file is rotated. One old file is kept.
const maxSize = 16 << 20

// Log is an audit log, safe for concurrent use.
type Log struct {
	path string

	mu     sync.Mutex
	f      *os.File // nil if it could not be opened
	closed bool
	size   int64
	max    int64
	// write is (*os.File).WriteString, except in tests.
	write func(f *os.File, text string) (int, error)
}

// Open opens the log at path or creates it.
func Open(path string) (*Log, error) {
	l := &Log{path: path, max: maxSize, write: (*os.File).WriteString}
	return l, l.open()
}

func (l *Log) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open the audit log: %w", err)
	}
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	l.f, l.size = f, fi.Size()
	last := make([]byte, 1)
	if l.size == 0 {
		return nil
	}
	if _, err := f.ReadAt(last, l.size-1); err != nil || last[0] != '\n' {
		f.WriteString("\n") // a crash cut off the last line: start a new one
	}
	return nil
}

// Add appends a record.
func (l *Log) Add(d *value.Dict) error {
	text, err := json.Dump(d, json.Format{ASCII: true})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return os.ErrClosed
	}
	failed := l.prepare(int64(len(text)))
	if l.f == nil {
		return failed
	}
	n, err := l.write(l.f, text+"\n")
	if err != nil && n > 0 {
		// The rest of a line would corrupt the next record.
		if e := l.f.Truncate(l.size); e == nil {
			n = 0
		}
	}
	l.size += int64(n)
	return errors.Join(failed, err)
}

// prepare opens the file for n more bytes. If the file is too large and cannot be renamed, it
// continues to grow.
func (l *Log) prepare(n int64) (err error) {
	if l.f != nil && l.size+n >= l.max {
		l.f.Close()
		l.f = nil
		err = os.Rename(l.path, l.path+".1") // rename: rotates a log
	}
	if l.f == nil {
		err = errors.Join(err, l.open())
	}
	return err
}

// Recent returns up to limit records for which keep returns true, newest first. It skips malformed
// lines, such as those left by a crash.
func (l *Log) Recent(limit int, keep func(*value.Dict) bool) ([]*value.Dict, error) {
	var out []*value.Dict
	for _, path := range []string{l.path, l.path + ".1"} {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for text := strings.TrimSuffix(string(b), "\n"); text != "" && len(out) < limit; {
			line := text
			if i := strings.LastIndexByte(text, '\n'); i >= 0 {
				text, line = text[:i], text[i+1:]
			} else {
				text = ""
			}
			v, err := json.Load(line)
			if d, ok := v.(*value.Dict); err == nil && ok && keep(d) {
				out = append(out, d)
			}
		}
	}
	return out, nil
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}
