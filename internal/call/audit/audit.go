// Package audit records who requested what from a master, and the result: one JSON line per
// request, in a file that is rotated by size. Arguments are not recorded, since they may be
// secrets. Keyed hashes connect the records.
//
// A record is a map with time (UTC), user, auth (user, token, eauth or reactor), from (not for the
// reactor), cmd, fun, tgt and result, for a job jid, and at its end seq and hash.
package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/net/event"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// maxSize is the size in bytes at which a file is rotated. One old file is kept.
const maxSize = 16 << 20

// headEvery is the interval in which the number of the last record is stored.
const headEvery = time.Minute

// Log is an audit log, safe for concurrent use.
type Log struct {
	path string
	seal *sealer // used with mu held

	mu     sync.Mutex
	f      *os.File // nil if it could not be opened
	closed bool
	size   int64
	max    int64
	seq    int64 // of the last record
	last   link  // its hash
	oldest int64 // number of the first record of the file, 0 if unknown
	// part is the size of a part of a line at the end: a crash or a full disk cut it off. need is the mark that comes before the next record; nil for
	// none. lost counts records that were not written since the last one that was.
	part, lost int64
	need       *mark
	stored     int64 // number in the head
	buf        []byte
	// write is (*os.File).Write, except in tests.
	write func(f *os.File, b []byte) (int, error)

	heads sync.Mutex // held while the head is written
	done  chan struct{}
	tends sync.WaitGroup
	checks
}

// Open opens the log at path or creates it. secret is that of the master: without it no program can make a record that Verify accepts.
func Open(path string, secret []byte) (*Log, error) {
	l := &Log{path: path, max: maxSize, write: (*os.File).Write, seal: newSealer(secret), done: make(chan struct{}), stored: -1}
	if err := l.open(); err != nil {
		return nil, err
	}
	// A full disk must not keep the master from its start: the next record and the next minute try these again.
	l.mu.Lock()
	_ = l.settle()
	l.mu.Unlock()
	_ = l.saveHead(false)
	l.tends.Go(l.tend)
	return l, nil
}

// tend stores the number of the last record, and finds a file that was replaced, until the log is closed.
func (l *Log) tend() {
	tick := time.NewTicker(headEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-tick.C:
			l.reopen()
			_ = l.saveHead(false) // the next minute tries it again; without it Verify finds less after a restart
		}
	}
}

// reopen opens the file again if another one has its name: one from a backup, or none.
func (l *Log) reopen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil || l.closed {
		return
	}
	mine, err := l.f.Stat()
	if err != nil {
		return
	}
	if now, err := os.Stat(l.path); err == nil && os.SameFile(mine, now) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	l.f.Close()
	l.f = nil
	_ = l.open() // the next record tries it again, and its error is reported
}

// saveHead flushes the file and stores the number of its last record.
func (l *Log) saveHead(closing bool) error {
	l.heads.Lock()
	defer l.heads.Unlock()
	l.mu.Lock()
	f, seq := l.f, l.seq
	if f == nil || l.stored == seq && !closing {
		l.mu.Unlock()
		return nil
	}
	text, err := l.seal.headText(head{Seq: seq, Hash: l.last.String(), Closed: closing})
	l.mu.Unlock()
	if err == nil {
		err = f.Sync()
	}
	if errors.Is(err, os.ErrClosed) {
		return nil // rotated meanwhile
	}
	if err == nil {
		err = atomicfile.Write(l.headPath(), text, 0o600, true)
	}
	if err != nil {
		return fmt.Errorf("cannot store the number of the last audit record: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored = seq
	return nil
}

func (l *Log) headPath() string { return l.path + ".head" }
func (l *Log) oldPath() string  { return l.path + ".1" }

// open opens the file and finds the end of the chain. If something has happened to it since, a mark comes before the next record.
func (l *Log) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err == nil {
		if err = l.begin(f); err == nil {
			l.f = f
			return nil
		}
		f.Close()
	}
	return fmt.Errorf("cannot open the audit log: %w", err)
}

// begin finds the end of the chain in a file that was opened, or in the one before it.
func (l *Log) begin(f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	tail, err := endOf(f, fi.Size())
	if err != nil {
		return err
	}
	l.size, l.part, l.oldest = fi.Size(), tail.torn, tail.first
	m := mark{Chain: markGoesOn}
	begins := !tail.chained
	if begins {
		// A file without hashes, or none: an older version wrote it, or a rotation was not completed.
		old, err := endOfFile(l.oldPath())
		if err != nil {
			return err
		}
		if m.Chain = markBegins; old.chained {
			m.Chain, m.Oldest = markFile, old.first
		}
		if l.size > 0 {
			if m.Unhashed, m.Sum, err = l.sumOf(f); err != nil {
				return err
			}
		}
		tail = old
	}
	if l.seq > 0 { // opened again: this process knows the end
		m.Missing = max(l.seq-tail.seq, 0)
		l.seq = max(l.seq, tail.seq)
	} else {
		if err := l.compareHead(tail, &m); err != nil {
			return err
		}
		l.seq = tail.seq + m.Missing
	}
	l.last = tail.hash
	if begins || m.Missing > 0 || m.Crash || m.Head != "" || tail.key != l.seal.id {
		l.need = &m
	}
	return nil
}

// sumOf returns the size and the hash of a file without hashes.
func (l *Log) sumOf(f *os.File) (size int64, sum string, err error) {
	text := io.Reader(io.NewSectionReader(f, 0, l.size))
	if l.part > 0 {
		text = io.MultiReader(text, strings.NewReader("\n")) // the mark comes in a line of its own
	}
	hash, err := l.seal.ofFile(text)
	return l.size + min(l.part, 1), hash.String(), err
}

// compareHead compares the end of the chain with the head.
func (l *Log) compareHead(tail end, m *mark) error {
	h, problem, err := l.seal.readHead(l.headPath())
	switch {
	case err != nil:
		return err
	case problem != "":
		if tail.chained && tail.key == l.seal.id {
			m.Head = problem
		}
		return nil
	}
	m.Crash = !h.Closed
	m.Missing = max(h.Seq-tail.seq, 0)
	return nil
}

// settle ends a part of a line, and appends the mark that is needed.
func (l *Log) settle() error {
	if l.part > 0 {
		if l.need == nil {
			l.need = &mark{Chain: markGoesOn}
		}
		part := l.part
		if err := l.put([]byte("\n")); err != nil {
			return err
		}
		if l.part = 0; l.need.Unhashed == 0 {
			l.need.Torn += part
		}
	}
	if l.lost > 0 && l.need == nil {
		l.need = &mark{Chain: markGoesOn}
	}
	if l.need == nil {
		return nil
	}
	m := *l.need
	m.Time, m.Key, m.Prev, m.Lost = event.Stamp(time.Now()), l.seal.id, l.last.String(), l.lost
	text, err := appendRecord(nil, m.dict())
	if err != nil {
		return err
	}
	if err := l.append(text); err != nil {
		return err
	}
	l.need, l.lost = nil, 0
	if l.oldest == 0 {
		l.oldest = l.seq
	}
	return nil
}

// end is the end of a file.
type end struct {
	chained bool
	seq     int64
	hash    link
	key     string // the id of the key of the last mark
	first   int64  // number of the first record of the file
	torn    int64  // bytes after the last newline
}

func endOfFile(path string) (end, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return end{}, nil
	}
	if err != nil {
		return end{}, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return end{}, err
	}
	return endOf(f, fi.Size())
}

// endOf reads a file with a number of bytes. Other programs may have written it.
func endOf(r io.ReaderAt, size int64) (e end, err error) {
	lines := newLines(io.NewSectionReader(r, 0, size))
	for {
		line, whole, err := lines.next()
		if errors.Is(err, io.EOF) {
			return e, nil
		}
		if err != nil {
			return e, err
		}
		if !whole {
			e.torn = lines.length
			continue
		}
		x, ok := parse(line)
		if !ok {
			continue
		}
		if !e.chained {
			e.first = x.seq
		}
		e.chained, e.seq, e.hash = true, x.seq, x.hash
		if x.mark {
			if m, ok := readMark(line); ok {
				e.key = m.Key
			}
		}
	}
}

// End is what the file has at the end of a record: its number and hash. The zero End is that of a record that is not in the file.
type End struct {
	seq  int64
	hash link
}

// Set adds the end to a record, which then is as in the file.
func (e End) Set(d *value.Dict) {
	if e.seq > 0 {
		d.Set(keySeq, e.seq)
		d.Set(keyHash, e.hash.String())
	}
}

// Add appends a record.
func (l *Log) Add(d *value.Dict) (_ End, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return End{}, os.ErrClosed
	}
	if l.buf, err = appendRecord(l.buf[:0], d); err != nil {
		return End{}, err
	}
	failed := l.prepare(int64(len(l.buf) + endSize))
	if l.f == nil {
		l.lost++
		return End{}, failed
	}
	if err = l.settle(); err == nil {
		err = l.append(l.buf)
	}
	if err != nil {
		l.lost++
		return End{}, errors.Join(failed, err)
	}
	return End{l.seq, l.last}, failed
}

// append appends the text of a record to the file, with the number and the hash.
func (l *Log) append(text []byte) error {
	text, hash := l.seal.appendEnd(text, l.last, l.seq+1)
	if err := l.put(text); err != nil {
		return err
	}
	l.seq, l.last = l.seq+1, hash
	return nil
}

// put writes the end of a line.
func (l *Log) put(b []byte) error {
	n, err := l.write(l.f, b)
	if err != nil && n > 0 {
		// The rest of a line would corrupt the next record.
		if e := l.f.Truncate(l.size); e == nil {
			n = 0
		}
		l.part += int64(n)
	}
	l.size += int64(n)
	return err
}

// prepare opens the file for n more bytes. If the file is too large and cannot be renamed, it
// continues to grow.
func (l *Log) prepare(n int64) error {
	var failed error
	if l.f != nil && l.size+n >= l.max {
		failed = os.Rename(l.path, l.oldPath()) // rename: rotates a log
		switch {
		case errors.Is(failed, fs.ErrNotExist):
			l.f.Close()
			l.f = nil
		case failed == nil:
			return l.rotated()
		}
	}
	if l.f != nil {
		return failed
	}
	return errors.Join(failed, l.open())
}

// rotated begins a new file after the present one got the name of the old one.
func (l *Log) rotated() error {
	err := errors.Join(l.f.Sync(), l.f.Close())
	l.f = nil
	f, e := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_RDWR|os.O_EXCL, 0o600)
	if e != nil {
		return errors.Join(err, fmt.Errorf("cannot open the audit log: %w", e)) // the next record looks for the end
	}
	m := mark{Chain: markFile, Oldest: l.oldest, Torn: l.part}
	if l.need != nil {
		m.Missing, m.Crash, m.Head, m.Torn = l.need.Missing, l.need.Crash, l.need.Head, m.Torn+l.need.Torn
	}
	l.f, l.size, l.part, l.oldest, l.need = f, 0, 0, 0, &m
	return err
}

// Recent returns up to limit records for which keep returns true, newest first. It skips marks of the chain, and malformed
// lines, such as those left by a crash.
func (l *Log) Recent(limit int, keep func(*value.Dict) bool) ([]*value.Dict, error) {
	var out []*value.Dict
	for _, path := range []string{l.path, l.oldPath()} {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for text := bytes.TrimSuffix(b, []byte("\n")); len(text) > 0 && len(out) < limit; {
			line := text
			if i := bytes.LastIndexByte(text, '\n'); i >= 0 {
				text, line = text[:i], text[i+1:]
			} else {
				text = nil
			}
			if bytes.Contains(line, []byte(beforeMark)) {
				continue
			}
			v, err := json.Load(string(line))
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
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	close(l.done)
	l.tends.Wait()
	err := l.saveHead(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return err
	}
	err = errors.Join(err, l.f.Close())
	l.f = nil
	return err
}
