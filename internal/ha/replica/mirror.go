package replica

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/store/oplog"
)

// FileSet is the files of one kind.
type FileSet interface {
	// Dir is the folder itself.
	Dir() string
	// News reports whether anything may have changed since the last call.
	News() bool
	// List returns what there is, with a text for each that is another one when
	// the content is.
	List() (map[string]string, error)
	// Read returns the content, nil if there is none.
	Read(name string) ([]byte, error)
	// Write replaces the content, nil removes it. The disk has it then.
	Write(name string, content []byte) error
}

// Known is a FileSet of which is known who changes something in it.
type Known interface {
	// Who says who has made of a thing what it is, "" if that is not known.
	Who(name string, was, is []byte) (who, how string)
	// Looked says that the changes so far have been asked about and are on disk.
	Looked()
}

var _ Known = (*Keys)(nil)

// initial is a FileSet whose contents may be older than any record if it does not
// belong to the records.
type initial interface{ FoundIsOld() bool }

// Mirror makes records of what changes in a folder, and changes the folder as
// records from elsewhere say.
type Mirror struct {
	s    *Store
	kind string
	f    FileSet

	mu    sync.Mutex // held for a whole round
	known map[string]state
	ready bool
	wake  chan struct{}
}

// state is what is in the folder of one thing.
type state struct {
	stamp string
	sum   [sha256.Size]byte
	there bool
	ctx   oplog.Vector // what whoever sees it knows
}

func sumOf(content []byte) (sum [sha256.Size]byte) {
	if content != nil {
		sum = sha256.Sum256(content)
	}
	return sum
}

// NewMirror makes the mirror of a kind. Sync or Run start its work.
func NewMirror(s *Store, kind string, f FileSet) *Mirror {
	m := &Mirror{s: s, kind: kind, f: f, known: map[string]state{}, wake: make(chan struct{}, 1)}
	s.OnChange(func(k, _ string) {
		if k == kind {
			m.Wake()
		}
	})
	return m
}

// Wake has the mirror look at once.
func (m *Mirror) Wake() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// look is how often a folder is looked at.
const look = 100 * time.Millisecond

// reportAgain is how long a failure that goes on is not reported again.
const reportAgain = time.Minute

// Run keeps folder and records the same until ctx ends.
func (m *Mirror) Run(ctx context.Context) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	var reported time.Time // zero while all is well
	for {
		err := m.Sync()
		switch {
		case err == nil:
			reported = time.Time{}
		case time.Since(reported) > reportAgain: // its text may be another one each time
			reported = time.Now()
			m.s.log.Error("what masters have in common is not the same in the files", "folder", m.f.Dir(), "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-m.wake:
		}
	}
}

// markFile, with the kind behind it, says in a folder which records the folder
// belongs to.
const markFile = ".brine-replica-"

// Sync does one round: what changed here becomes records, what changed
// elsewhere files.
func (m *Mirror) Sync() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ready {
		if err := m.begin(); err != nil {
			return err
		}
	} else if m.f.News() {
		if err := m.collect(false); err != nil {
			return err
		}
	}
	return m.apply()
}

// begin compares all files with all records. A folder that is not the one that
// the records are of was lost or replaced: what is missing there was not
// deleted by anybody.
func (m *Mirror) begin() error {
	mark := filepath.Join(m.f.Dir(), markFile+m.kind)
	b, err := os.ReadFile(mark)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, cached := m.f.(*Nested) // nobody deletes these by hand to decide something
	ours := string(b) == m.s.name() && !cached
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
		// Whatever is not restored was deleted while the master was down.
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
		m.s.log.Warn("a folder has lost what masters have in common; it is restored", "folder", m.f.Dir(), "things", len(restore))
	}
	for _, name := range restore {
		if err := m.write(name); err != nil {
			return err
		}
	}
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
		if !ours {
			// What is not the same is an older state, for all that is known.
			if content, err := m.f.Read(name); err != nil || sumOf(content) != st.sum {
				st.ctx = oplog.Vector{}
			}
		}
		m.known[name] = st
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

// maxRound bounds the changes that become records in one transaction.
const maxRound = 500

// collect makes records of what has changed here. old says that they are older
// than any other record.
func (m *Mirror) collect(old bool) error {
	files, about, err := m.list()
	if err != nil {
		return err
	}
	if _, err := os.Stat(m.f.Dir()); err != nil {
		return err // a folder that is away deletes nothing
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
				m.s.log.Warn("a file is not given to other masters", "err", err)
				old.stamp = stamp
				m.known[name] = old
			}
			continue
		}
		if err != nil {
			return err
		}
		if content == nil {
			continue // just gone
		}
		st := state{stamp: stamp, sum: sumOf(content), there: true}
		if ok && old.there && old.sum == st.sum {
			st.ctx = old.ctx
			m.known[name] = st
			continue
		}
		if err := add(name, content, st); err != nil {
			return err
		}
	}
	for name, old := range m.known {
		if _, there := files[name]; old.there && !there && about(name) {
			// A key that was moved from one folder to another while these were
			// read, one after the other, may be in none of the lists.
			content, err := m.f.Read(name)
			if err != nil && !errors.Is(err, errUnfit) {
				return err
			}
			if content != nil {
				continue // the folder has changed just now, and is looked at again
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
	return nil
}

// list returns the files to be looked at, and which others are not there.
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

// base is what whoever has seen the folder knows of a thing.
func (m *Mirror) base(name string) (oplog.Vector, error) {
	if st, ok := m.known[name]; ok && st.ctx != nil {
		return st.ctx, nil
	}
	// Of what is not here it may have been deleted, which others may know yet.
	return m.s.Forgotten()
}

// apply writes what came from elsewhere.
func (m *Mirror) apply() error {
	names, err := m.s.todo(m.kind)
	if err != nil || len(names) == 0 {
		return err
	}
	written := map[string]oplog.Vector{}
	for _, name := range names {
		if err := m.write(name); err != nil {
			return err
		}
		written[name] = m.known[name].ctx
	}
	return m.s.done(m.kind, written)
}

// write brings the file of a thing to what counts.
func (m *Mirror) write(name string) error {
	r, ctx, err := m.s.current(m.kind, name)
	if err != nil {
		return err
	}
	if r == nil { // nothing counts any more: it was deleted long ago
		r, ctx = &Record{}, nil
	}
	old, ok := m.known[name]
	st := state{there: r.Value != nil, sum: sumOf(r.Value), ctx: ctx}
	if ok && old.there == st.there && old.sum == st.sum && old.stamp != "" {
		st.stamp = old.stamp
	} else if err := m.f.Write(name, r.Value); err != nil {
		return err
	}
	m.known[name] = st
	return nil
}

// Equal reports whether the folder and the records are the same, for tests and
// for who wants to know.
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

// Each calls fn with all that is in the folder, as it is there.
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
