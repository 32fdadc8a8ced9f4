// Package journal is an append-only file of records that is sometimes rewritten as a whole. It is the durable
// state of a daemon that may be killed at any moment. A record survives the end of the process once Append
// has returned, and a crash of the machine after Sync. Concurrent calls of Sync share one flush. The package
// does not interpret the records.
//
// The file begins with a line that names its format. Each record is
//
//	length   4 bytes, little endian, of kind and payload
//	sum      4 bytes, CRC-32C of kind and payload
//	kind     1 byte
//	payload
//
// A record that was incomplete when the machine lost power is cut off. A record damaged in the middle ends
// the journal there; what follows is moved aside, never deleted.
package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"brine/internal/base/atomicfile"
)

const (
	magic  = "brine journal 1\n"
	header = 8
)

// MaxRecord bounds one record in bytes.
const MaxRecord = 80 << 20

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	// ErrInUse means that another process has opened the journal.
	ErrInUse  = errors.New("the journal is in use by another process")
	errClosed = errors.New("the journal is closed")
	errFormat = errors.New("not a journal, or of another version")
)

// Position locates a record until the next Rewrite.
type Position struct {
	offset int64
	size   int // of kind and payload
}

// Size is the number of bytes that the record takes in the file.
func (p Position) Size() int64 { return int64(p.size) + header }

// Record is one record.
type Record struct {
	Kind byte
	// Payload is only valid during the call that receives it.
	Payload []byte
	At      Position
}

// Journal is safe for concurrent use.
type Journal struct {
	path string
	lock *os.File

	mu   sync.Mutex // guards appending and reading
	f    *os.File   // nil after Close
	size int64
	buf  []byte
	// reserve is the disk space that Append leaves free for AppendNote. reserved is the offset
	// where the allocated disk space of the file ends.
	reserve, reserved int64

	flush  sync.Mutex // serializes flushes; locked before mu
	synced int64      // bytes that are on disk; guarded by flush
	// unnamed means that the directory was not flushed since the file was replaced; guarded by flush.
	unnamed bool
}

// Open opens the journal at path, creating it if necessary, and calls replay for each record. cut is the
// number of unreadable bytes at its end, which are dropped. A damaged record and what follows it are saved in
// PATH.damaged. An error of replay is returned unchanged.
func Open(path string, replay func(Record) error) (_ *Journal, cut int64, err error) {
	if err := atomicfile.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, 0, err
	}
	j := &Journal{path: path}
	defer func() {
		if err != nil {
			j.Close()
		}
	}()
	if j.lock, err = os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, 0, err
	}
	if err := syscall.Flock(int(j.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, 0, ErrInUse
	}
	if j.f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, 0, err
	}
	cut, err = j.load(replay)
	return j, cut, err
}

// load replays the file and cuts off an unreadable end.
func (j *Journal) load(replay func(Record) error) (cut int64, err error) {
	info, err := j.f.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() < int64(len(magic)) { // new, or created but not initialized
		if err := j.f.Truncate(0); err != nil {
			return 0, err
		}
		_, err := j.f.WriteAt([]byte(magic), 0)
		j.size = int64(len(magic))
		if err == nil {
			err = atomicfile.SyncDir(filepath.Dir(j.path)) // Sync flushes the file, not its name
		}
		return 0, err
	}
	good, torn, err := scan(j.f, replay)
	if err != nil {
		return 0, err
	}
	j.size, j.synced = good, good
	cut = info.Size() - good
	if cut == 0 {
		return 0, nil
	}
	if !torn {
		if err := j.setAside(good, cut); err != nil {
			return cut, err
		}
	}
	return cut, j.f.Truncate(good)
}

// setAside copies the damaged end of the file.
func (j *Journal) setAside(from, size int64) error {
	out, err := os.OpenFile(j.path+".damaged", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.NewSectionReader(j.f, from, size))
	return errors.Join(err, out.Close())
}

// scan reads records until the end or the first unreadable one. good is the offset of that one; torn says
// that it is only incomplete.
func scan(r io.ReaderAt, replay func(Record) error) (good int64, torn bool, err error) {
	in := bufio.NewReaderSize(io.NewSectionReader(r, 0, 1<<62), 64<<10)
	first := make([]byte, len(magic))
	if _, err := io.ReadFull(in, first); err != nil || string(first) != magic {
		return 0, false, errFormat
	}
	good = int64(len(magic))
	var head [header]byte
	var body []byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return good, true, nil
		}
		n := int(binary.LittleEndian.Uint32(head[:]))
		if n < 1 || n > MaxRecord {
			return good, false, nil
		}
		if body, err = readBody(in, body, n); err != nil {
			return good, true, nil
		}
		if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
			return good, false, nil
		}
		if err := replay(Record{body[0], body[1:], Position{good, n}}); err != nil {
			return good, false, err
		}
		good += header + int64(n)
	}
}

// readBody reads n bytes and allocates only as they arrive, since the length may be wrong.
func readBody(in io.Reader, body []byte, n int) ([]byte, error) {
	body = body[:0]
	for len(body) < n {
		step := min(n-len(body), 1<<20)
		at := len(body)
		body = append(body, make([]byte, step)...)
		if _, err := io.ReadFull(in, body[at:]); err != nil {
			return body, err
		}
	}
	return body, nil
}

// Reserve reserves n bytes of disk space after the records for AppendNote. Append writes a record
// only if this space stays free. On a file system that cannot reserve space, Reserve has no effect.
// An error means that less space is available now; each append tries again.
func (j *Journal) Reserve(n int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		return errClosed
	}
	j.reserve = n
	return atomicfile.Cause(j.ensure(j.size))
}

// ensure allocates disk space up to end and the reserve behind it; j.mu is held.
func (j *Journal) ensure(end int64) error {
	want := end + j.reserve
	if j.reserve <= 0 || j.reserved >= want {
		return nil
	}
	to := want + j.reserve // twice the reserve, so that allocations are rare
	err := allocate(j.f, j.size, to)
	if err != nil {
		to = want
		err = allocate(j.f, j.size, to)
	}
	switch {
	case err == nil:
		j.reserved = to
	case cannotAllocate(err):
		j.reserve = 0
		return nil
	}
	return err
}

// Append writes a record. A record that cannot be written as a whole is removed.
func (j *Journal) Append(kind byte, payload []byte) (Position, error) {
	return j.append(kind, payload, false)
}

// AppendNote is Append for a short record that may use the reserved disk space.
func (j *Journal) AppendNote(kind byte, payload []byte) (Position, error) {
	return j.append(kind, payload, true)
}

func (j *Journal) append(kind byte, payload []byte, note bool) (Position, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		return Position{}, errClosed
	}
	if len(payload)+1 > MaxRecord {
		return Position{}, fmt.Errorf("a record of %d bytes is too large", len(payload))
	}
	j.buf = frame(j.buf[:0], kind, payload)
	end := j.size + int64(len(j.buf))
	err := j.ensure(end)
	if err != nil && note && end > j.reserved {
		// Space that an earlier process reserved and did not use is still allocated.
		if err = allocate(j.f, j.size, end); err == nil {
			j.reserved = end
		}
	} else if note {
		err = nil
	}
	if err != nil {
		return Position{}, atomicfile.Cause(err)
	}
	if n, err := j.f.WriteAt(j.buf, j.size); err != nil {
		if n > 0 {
			_ = j.f.Truncate(j.size)
			j.reserved = j.size // the reserved space is gone with the rest
		}
		return Position{}, atomicfile.Cause(err)
	}
	at := Position{j.size, len(payload) + 1}
	j.size = end
	if cap(j.buf) > 64<<10 {
		j.buf = nil
	}
	return at, nil
}

func frame(b []byte, kind byte, payload []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)+1))
	sum := crc32.Update(crc32.Checksum([]byte{kind}, castagnoli), castagnoli, payload)
	b = binary.LittleEndian.AppendUint32(b, sum)
	b = append(b, kind)
	return append(b, payload...)
}

// Sync returns when all records appended before the call are on disk.
func (j *Journal) Sync() error {
	j.mu.Lock()
	want := j.size
	j.mu.Unlock()
	j.flush.Lock()
	defer j.flush.Unlock()
	if err := j.flushName(); err != nil || j.synced >= want {
		return err // the records are included in a concurrent flush
	}
	j.mu.Lock()
	f, has := j.f, j.size
	j.mu.Unlock()
	if f == nil {
		return errClosed
	}
	if err := toDisk(f); err != nil {
		return atomicfile.Cause(err)
	}
	j.synced = has
	return nil
}

// flushName flushes the name of the file if that has not succeeded since it was replaced; j.flush is held.
func (j *Journal) flushName() error {
	if !j.unnamed {
		return nil
	}
	err := atomicfile.SyncDir(filepath.Dir(j.path))
	j.unnamed = err != nil
	return err
}

// Read returns the payload of a record.
func (j *Journal) Read(at Position) ([]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		return nil, errClosed
	}
	b := make([]byte, at.Size())
	if _, err := j.f.ReadAt(b, at.offset); err != nil {
		return nil, atomicfile.Cause(err)
	}
	body := b[header:]
	if int(binary.LittleEndian.Uint32(b)) != at.size || crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, errors.New("damaged record")
	}
	return body[1:], nil
}

// Size is the size of the file in bytes.
func (j *Journal) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size
}

// Rewrite replaces all records by those that fill emits, and syncs them. On an error the journal and all
// positions are unchanged. fill must not call methods of the journal, only emit and read.
func (j *Journal) Rewrite(fill func(emit func(kind byte, payload []byte) (Position, error), read func(Position) ([]byte, error)) error) error {
	j.flush.Lock()
	defer j.flush.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		return errClosed
	}
	temp := j.path + ".new"
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 256<<10)
	_, err = out.WriteString(magic)
	size := int64(len(magic))
	emit := func(kind byte, payload []byte) (Position, error) {
		at := Position{size, len(payload) + 1}
		b := frame(nil, kind, payload)
		size += int64(len(b))
		_, err := out.Write(b)
		return at, err
	}
	old := &Journal{f: j.f}
	if err == nil {
		err = fill(emit, old.Read)
	}
	reserved := size + j.reserve
	reserve := func() error {
		if j.reserve <= 0 {
			return nil
		}
		if err := allocate(f, size, reserved); !cannotAllocate(err) {
			return err
		}
		j.reserve = 0
		return nil
	}
	place := func() error { return os.Rename(temp, j.path) } // rename: flushed before; the open file stays in use
	for _, step := range []func() error{out.Flush, reserve, f.Sync, place} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		f.Close()
		os.Remove(temp)
		return atomicfile.Cause(err)
	}
	j.f.Close()
	j.f, j.size, j.synced, j.reserved, j.unnamed = f, size, size, reserved, true
	_ = j.flushName() // otherwise Sync does it, and reports the error
	return nil
}

// Close closes the file. It does not sync.
func (j *Journal) Close() error {
	j.flush.Lock()
	defer j.flush.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	var err error
	if j.f != nil {
		err = j.f.Close()
		j.f = nil
	}
	if j.lock != nil {
		j.lock.Close()
		j.lock = nil
	}
	return err
}
