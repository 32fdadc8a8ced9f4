package replica

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/wait"
	"brine/internal/store/oplog"
)

// FileSet is the files of one kind.
type FileSet interface {
	// Dir returns the directory.
	Dir() string
	// News reports whether anything may have changed since the last call.
	News() bool
	// List returns the names, each with a stamp that changes with the content.
	List() (map[string]string, error)
	// Read returns the content, nil if the file does not exist.
	Read(name string) ([]byte, error)
	// Write replaces the content; nil deletes the file. It returns after syncing to disk. If was is not nil, it gets the present content,
	// nil if there is none, and reports whether that may be replaced. If not, nothing is written and the error is errChanged. If the kind
	// has a lock, no other process changes the file between this check and the write.
	Write(name string, content []byte, was func(now []byte) bool) error
}

// errChanged means that a file has changed since it was last read.
var errChanged = errors.New("the file has just changed")

// Known is a FileSet that knows who changes its files.
type Known interface {
	// Who returns who changed a file to its present content, and how; "" if unknown.
	Who(name string, was, is []byte) (who, how string)
	// Looked means that all changes so far were attributed and stored.
	Looked()
}

var _ Known = (*Keys)(nil)

// initial is a FileSet whose contents may be older than any record if the directory does not belong to the records.
type initial interface{ FoundIsOld() bool }

// fragile is a FileSet that recognizes what a crash of the machine leaves of a file.
type fragile interface {
	// Damaged reports whether a content is only a rest of the recorded one.
	Damaged(now, recorded []byte) bool
}

// aside is a FileSet that can move something that is no file out of the way.
type aside interface{ aside(name string) error }

// Mirror records changes of files in a directory, and applies records from other masters to it.
type Mirror struct {
	s    *Store
	kind string
	f    FileSet

	mu    sync.Mutex // held during a whole round
	known map[string]state
	ready bool
	wake  wait.Wakeup
	age   age
	// damaged are files with a rest of what is recorded, by name. scanned is when all files were last listed; after again they are listed
	// although nothing is new.
	damaged map[string]rest
	scanned time.Time
	again   time.Time
	problem atomic.Pointer[string]
}

// rest is the damaged content of a file.
type rest struct {
	sum   [sha256.Size]byte
	since time.Time
}

// state is the known content of a file in the directory.
type state struct {
	stamp string
	sum   [sha256.Size]byte
	there bool
	ctx   oplog.Vector // the versions known to a writer who has seen this content
}

func sumOf(content []byte) (sum [sha256.Size]byte) {
	if content != nil {
		sum = sha256.Sum256(content)
	}
	return sum
}

// NewMirror returns the mirror of a kind. Sync or Run do its work.
func NewMirror(s *Store, kind string, f FileSet) *Mirror {
	m := &Mirror{s: s, kind: kind, f: f, known: map[string]state{}, wake: wait.NewWakeup()}
	s.OnChange(func(k, _ string) {
		if k == kind {
			m.Wake()
		}
	})
	return m
}

// Wake starts a round at once.
func (m *Mirror) Wake() {
	m.wake.Wake()
}

// look is the interval between checks of a directory.
const look = 100 * time.Millisecond

// reportAgain is the interval for repeated reports of a continuing failure.
const reportAgain = time.Minute

// Run keeps files and records in sync until ctx ends.
func (m *Mirror) Run(ctx context.Context) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	var reported time.Time // zero while there is no failure
	for {
		err := m.Sync()
		switch {
		case err == nil:
			reported = time.Time{}
		case time.Since(reported) > reportAgain: // the message may differ each time
			reported = time.Now()
			m.s.log.Error("cannot synchronize replicated files", "path", m.f.Dir(), "err", err)
		}
		select {
		case <-ctx.Done():
			m.mu.Lock()
			m.age.pass(m, 0)
			m.mu.Unlock()
			return nil
		case <-tick.C:
		case <-m.wake.C():
		}
	}
}

// Problem returns why the last round failed, "" if it did not.
func (m *Mirror) Problem() string {
	if p := m.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// Times of rounds in which all files are listed although no directory has changed.
const (
	// scanPause is the interval of searches for files that were damaged in place.
	scanPause = time.Minute
	// againPause is how long after a failure, or after damage was seen, files are listed again.
	againPause = time.Second
	// damagedTime is how long a damaged file must stay the same: a program may be writing it.
	damagedTime = 2 * time.Second
)

// markFile, followed by the kind, is a file in a directory. It identifies the records that the directory belongs to.
const markFile = ".brine-replica-" // keystore.MirrorMark is the one of keys

// Sync does one round: it records local changes, and writes the records of other masters to files.
func (m *Mirror) Sync() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.age.pass(m, agePause)
	err := m.round()
	if err == nil {
		m.problem.Store(nil)
	} else {
		text := err.Error()
		m.problem.Store(&text)
	}
	return err
}

// due reports whether the files must be listed.
func (m *Mirror) due() bool {
	news, now := m.f.News(), time.Now()
	_, fragile := m.f.(fragile)
	return news || !m.again.IsZero() && now.After(m.again) || fragile && now.Sub(m.scanned) > scanPause
}

func (m *Mirror) round() error {
	var unread error // a file that cannot be read must not delay the changes of others
	if !m.ready {
		if err := m.begin(); err != nil {
			return err
		}
	} else if m.due() {
		unread = m.collect(false)
	}
	for range applyTries {
		changed, err := m.apply()
		if err != nil || !changed {
			return errors.Join(unread, err)
		}
		// Record local changes made meanwhile first. News does not detect that a file was rewritten in place.
		m.f.News()
		if err := m.collect(false); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %w, again and again", m.f.Dir(), errChanged)
}

// applyTries bounds how often a round begins again because files change while it writes.
const applyTries = 5

// begin compares all files with all records. A directory that does not belong to the records was lost or replaced, so that missing files
// are not deletions. One that belongs to them and is an older copy counts for nothing where they have something.
func (m *Mirror) begin() error {
	mark := filepath.Join(m.f.Dir(), markFile+m.kind)
	b, err := os.ReadFile(mark)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, cached := m.f.(*Nested) // deleting cached files by hand is not a decision
	older, err := m.age.begin(m)
	if err != nil {
		return err
	}
	same := string(b) == m.s.name() && !cached
	older = same && older
	ours := same && !older
	m.f.News()
	todo, err := m.s.todo(m.kind)
	if err != nil {
		return err
	}
	unwritten := map[string]bool{}
	for _, n := range todo {
		unwritten[n] = true
	}
	files, err := m.f.List()
	if err != nil {
		return err
	}
	var restore []string
	err = m.s.Each(m.kind, func(r *Record) {
		if _, there := files[r.Name]; there {
			return
		}
		if r.Value != nil && (!ours || unwritten[r.Name]) {
			restore = append(restore, r.Name)
		}
		// Known files that were not restored were deleted while the master was down.
		m.known[r.Name] = state{there: r.Value != nil, sum: sumOf(r.Value)}
	})
	if err != nil {
		return err
	}
	for name, st := range m.known {
		if _, st.ctx, err = m.s.current(m.kind, name); err != nil {
			return err
		}
		m.known[name] = st
	}
	if !ours && !cached && len(restore) > 0 {
		m.s.log.Warn("replicated files are missing; restoring them", "path", m.f.Dir(), "things", len(restore))
	}
	for _, name := range restore {
		if err := m.write(name); err != nil {
			return err
		}
	}
	reverted := 0
	for name := range files {
		r, ctx, err := m.s.current(m.kind, name)
		if err != nil {
			return err
		}
		if r == nil && !unwritten[name] {
			continue
		}
		if unwritten[name] {
			if err := m.write(name); err != nil {
				return err
			}
			continue
		}
		st := state{there: r.Value != nil, sum: sumOf(r.Value), ctx: ctx}
		if older {
			content, err := m.f.Read(name)
			if err != nil && !errors.Is(err, errUnfit) {
				return err
			}
			if err != nil || sumOf(content) != st.sum {
				reverted++
				if err := m.write(name); err != nil {
					return err
				}
				continue
			}
		} else if !ours {
			// Other contents are treated as older than the records.
			if content, err := m.f.Read(name); err != nil || sumOf(content) != st.sum {
				st.ctx = oplog.Vector{}
			}
		}
		m.known[name] = st
	}
	if reverted > 0 {
		m.s.log.Warn("the directory is an older copy, restored from a backup? what it has differently is no decision: writing what is recorded",
			"path", m.f.Dir(), "kind", m.kind, "things", reverted)
	}
	f, _ := m.f.(initial)
	if err := m.collect(!ours && f != nil && f.FoundIsOld()); err != nil {
		return err
	}
	if !ours && !cached {
		if err := atomicfile.Write(mark, []byte(m.s.name()), 0o600, true); err != nil {
			return err
		}
	}
	m.ready = true
	return nil
}

// maxRound bounds the changes recorded in one transaction.
const maxRound = 500

// collect records local changes. old makes them older than any other record.
func (m *Mirror) collect(old bool) (err error) {
	m.scanned, m.again = time.Now(), time.Time{}
	defer func() {
		if err != nil || len(m.damaged) > 0 {
			m.again = time.Now().Add(againPause)
		}
	}()
	files, about, err := m.list()
	if err != nil {
		return err
	}
	if _, err := os.Stat(m.f.Dir()); err != nil {
		return err // an unreachable directory does not mean that files were deleted
	}
	var unread error // the first file that cannot be read; the others are recorded all the same
	fails := func(err error) {
		if unread == nil {
			unread = err
		}
	}
	by, _ := m.f.(Known)
	var changes []change
	var next []state
	flush := func() error {
		known, err := m.s.put(changes)
		if err != nil {
			return err
		}
		for i, c := range changes {
			st := next[i]
			st.ctx = known[i]
			m.known[c.name] = st
		}
		changes, next = nil, nil
		m.age.changed = true
		return nil
	}
	add := func(name string, content []byte, st state) error {
		base, err := m.base(name)
		if err != nil {
			return err
		}
		c := change{kind: m.kind, name: name, value: content, base: base, old: old}
		if by != nil {
			was, err := m.s.Get(m.kind, name)
			if err != nil {
				return err
			}
			if was == nil {
				was = &Record{}
			}
			c.who, c.how = by.Who(name, was.Value, content)
		}
		changes = append(changes, c)
		next = append(next, st)
		if len(changes) >= maxRound {
			return flush()
		}
		return nil
	}
	for name, stamp := range files {
		old, ok := m.known[name]
		if ok && old.there && old.stamp == stamp && stamp != "" {
			continue
		}
		content, err := m.f.Read(name)
		if errors.Is(err, errUnfit) {
			if !ok || old.stamp != stamp {
				m.s.log.Warn("file is not replicated", "err", err)
				old.stamp = stamp
				m.known[name] = old
			}
			continue
		}
		if err != nil {
			fails(err)
			continue
		}
		if content == nil {
			continue // just deleted
		}
		st := state{stamp: stamp, sum: sumOf(content), there: true}
		if ok && old.there && old.sum == st.sum {
			delete(m.damaged, name)
			st.ctx = old.ctx
			m.known[name] = st
			continue
		}
		if ok && old.there {
			if mended, err := m.mend(name, content); err != nil {
				fails(err)
				continue
			} else if mended {
				continue
			}
		}
		if err := add(name, content, st); err != nil {
			return err
		}
	}
	for name, old := range m.known {
		if _, there := files[name]; old.there && !there && about(name) {
			// A key that moved between states while the directories were listed one after the other may be missing in the list.
			content, err := m.f.Read(name)
			if errors.Is(err, errUnfit) {
				err = m.replace(name, err)
				if err == nil {
					continue
				}
			}
			if err != nil {
				fails(err)
				continue
			}
			if content != nil {
				continue // the directory has just changed, and is checked again
			}
			if err := add(name, nil, state{}); err != nil {
				return err
			}
		}
	}
	if len(changes) > 0 {
		if err := flush(); err != nil {
			return err
		}
	}
	if by != nil {
		by.Looked()
	}
	return unread
}

// mend writes what is recorded if a file was damaged: that is no decision. While the process runs, it waits until the file stays as it is.
// mended is true if the content must not be recorded.
func (m *Mirror) mend(name string, content []byte) (mended bool, err error) {
	f, ok := m.f.(fragile)
	if !ok {
		return false, nil
	}
	r, err := m.s.Get(m.kind, name)
	if err != nil || r == nil || !f.Damaged(content, r.Value) {
		delete(m.damaged, name)
		return false, err
	}
	sum := sumOf(content)
	if seen := m.damaged[name]; m.ready && (seen.sum != sum || time.Since(seen.since) < damagedTime) {
		if seen.sum != sum {
			if m.damaged == nil {
				m.damaged = map[string]rest{}
			}
			m.damaged[name] = rest{sum, time.Now()}
		}
		return true, nil
	}
	m.s.log.Warn("replicated file is damaged; writing what is recorded", "path", m.f.Dir(), "kind", m.kind, "name", name)
	delete(m.damaged, name)
	return true, m.restore(name, state{there: true, sum: sum, ctx: m.known[name].ctx})
}

// replace writes what is recorded if something that is no file has the name of a file: that is no decision, either. What is there is
// moved aside.
func (m *Mirror) replace(name string, why error) error {
	f, ok := m.f.(aside)
	if !ok {
		return why
	}
	m.s.log.Warn("something that is no file has the name of a replicated file; moving it aside, and writing what is recorded", "path", m.f.Dir(),
		"kind", m.kind, "name", name)
	if err := f.aside(name); err != nil {
		return err
	}
	return m.restore(name, state{ctx: m.known[name].ctx})
}

// restore writes what is recorded over what is there now.
func (m *Mirror) restore(name string, now state) error {
	old := m.known[name]
	m.known[name] = now
	err := m.write(name)
	if err != nil {
		m.known[name] = old
	}
	return err
}

// list returns the files to check, and which other files it covers.
func (m *Mirror) list() (files map[string]string, about func(name string) bool, err error) {
	if p, ok := m.f.(interface {
		ListSome() (map[string]string, func(string) bool)
	}); ok && m.ready {
		files, about = p.ListSome()
		return files, about, nil
	}
	files, err = m.f.List()
	return files, func(string) bool { return true }, err
}

// base returns the versions known to a writer who has seen the directory.
func (m *Mirror) base(name string) (oplog.Vector, error) {
	if st, ok := m.known[name]; ok && st.ctx != nil {
		return st.ctx, nil
	}
	// A missing file may have been deleted; the writer knows at most the deletions that were dropped.
	return m.s.Forgotten()
}

// apply writes records of other masters to files. changed reports whether it skipped files that have changed meanwhile.
func (m *Mirror) apply() (changed bool, err error) {
	names, err := m.s.todo(m.kind)
	if err != nil || len(names) == 0 {
		return false, err
	}
	written := map[string]oplog.Vector{}
	for _, name := range names {
		switch err := m.write(name); {
		case errors.Is(err, errChanged):
			changed = true
		case err != nil:
			return changed, err
		default:
			written[name] = m.known[name].ctx
		}
	}
	return changed, m.s.done(m.kind, written)
}

// write updates a file to the winning version. Once the files have been compared with the records, it replaces only content that it has
// seen: other content is a local decision, which must be recorded first.
func (m *Mirror) write(name string) error {
	r, ctx, err := m.s.current(m.kind, name)
	if err != nil {
		return err
	}
	if r == nil { // no version exists: deleted long ago
		r, ctx = &Record{}, nil
	}
	old, ok := m.known[name]
	st := state{there: r.Value != nil, sum: sumOf(r.Value), ctx: ctx}
	if ok && old.there == st.there && old.sum == st.sum && old.stamp != "" {
		st.stamp = old.stamp
	} else {
		var was func(now []byte) bool
		if m.ready {
			was = func(now []byte) bool { return (now != nil) == old.there && sumOf(now) == old.sum }
		}
		if err := m.f.Write(name, r.Value, was); err != nil {
			return err
		}
		m.age.changed = true
	}
	m.known[name] = st
	return nil
}

// Equal reports whether files and records match, for tests and diagnostics.
func (m *Mirror) Equal() (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	same := true
	err := m.s.Each(m.kind, func(r *Record) {
		content, err := m.f.Read(r.Name)
		if err != nil || !bytes.Equal(content, r.Value) {
			same = false
		}
	})
	return same, err
}

// Each calls fn with the contents of all files.
func (m *Mirror) Each(fn func(name string, content []byte)) error {
	files, err := m.f.List()
	if err != nil {
		return err
	}
	for name := range files {
		content, err := m.f.Read(name)
		if errors.Is(err, errUnfit) {
			continue
		}
		if err != nil {
			return err
		}
		if content != nil {
			fn(name, content)
		}
	}
	return nil
}
