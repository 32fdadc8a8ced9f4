// Package shared stores small records that masters share, such as what users save in the console. Each record is
// a file. Masters of a cluster have the same files, because they share the directory or replicate it. Hot masters
// exchange the records (Export, Merge).
//
// Of two versions of a record the later one wins. A deleted record stays as a mark, so that another master does
// not bring it back; the mark expires.
package shared

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
)

// Record is a record in its file.
type Record struct {
	// ID names the file. It follows from Kind, Owner and Name.
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	Owner string `json:"owner"`
	Name  string `json:"name"`
	// Public records are shown to all users, others to their owner.
	Public bool            `json:"public,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
	// Changed is the time of the last change in milliseconds since 1970, By the master that made it.
	Changed int64  `json:"changed"`
	By      string `json:"by"`
	// Deleted marks a record that no longer exists.
	Deleted bool `json:"deleted,omitempty"`
}

// Bounds of records.
const (
	// MaxData bounds the data of a record in bytes, MaxName its name and MaxOwner its owner in characters.
	MaxData, MaxName, MaxOwner = 4 << 10, 100, 200
	// MaxOfOwner bounds the records of one owner, MaxRecords all.
	MaxOfOwner, MaxRecords = 200, 2000
	// maxFiles bounds the files, including the marks of deleted records; maxFile the bytes of one.
	maxFiles, maxFile = 4000, 16 << 10
	// keepMarks is the age at which marks of deleted records expire.
	keepMarks = 30 * 24 * time.Hour
	// maxAhead bounds how far the clock of another master may be ahead.
	maxAhead = 24 * time.Hour
)

// Store has the records of one directory.
type Store struct {
	dir, by string
	now     func() time.Time

	mu    sync.Mutex
	known map[string]entry // by the name of the file
}

// entry is a file as last read.
type entry struct {
	stamp  string
	record Record
	bad    bool // the file has no valid record
}

// Open opens the records in a directory, which it creates. by is the id of this master.
func Open(dir, by string) (*Store, error) {
	if err := atomicfile.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create a directory: %w", err)
	}
	return &Store{dir: dir, by: by, now: time.Now, known: map[string]entry{}}, nil
}

// ID returns the id of a record.
func ID(kind, owner, name string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%d:%s%s", len(kind), kind, len(owner), owner, name))
	return hex.EncodeToString(sum[:16])
}

// ValidID reports whether a string has the form of an id.
func ValidID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && len(b) == 16 && id == strings.ToLower(id)
}

// check returns an error if a record is invalid.
func (r *Record) check() error {
	switch {
	case !plain(r.Name, MaxName):
		return salt.Errorf(salt.Invalid, "a name has 1 to %d characters, and no control characters", MaxName)
	case !plain(r.Owner, MaxOwner):
		return salt.Errorf(salt.Invalid, "the owner must have 1 to %d characters, and no control characters", MaxOwner)
	case len(r.Data) > MaxData:
		return salt.Errorf(salt.Invalid, "this is too large to be saved: %d bytes; at most %d are possible", len(r.Data), MaxData)
	case !r.Deleted && !json.Valid(r.Data):
		return salt.Errorf(salt.Invalid, "the data of a record must be JSON")
	case r.ID != ID(r.Kind, r.Owner, r.Name):
		return salt.Errorf(salt.Invalid, "the id of a record does not match its name")
	}
	return nil
}

func plain(s string, most int) bool {
	return s != "" && utf8.ValidString(s) && utf8.RuneCountInString(s) <= most && !strings.ContainsFunc(s, unicode.IsControl)
}

// newer reports whether r replaces another version.
func (r *Record) newer(than *Record) bool {
	return cmp.Or(cmp.Compare(r.Changed, than.Changed), cmp.Compare(r.By, than.By)) > 0
}

// read returns the files with valid records. The lock is held.
func (s *Store) read() (map[string]entry, error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read saved records: %w", err)
	}
	now := make(map[string]entry, len(files))
	for _, f := range files {
		if !ValidID(f.Name()) || len(now) >= 2*maxFiles {
			continue
		}
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.Mode().IsRegular() || info.Size() > maxFile) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read a saved record: %w", err)
		}
		stamp := fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size())
		e, ok := s.known[f.Name()]
		// A file that was written just now may change again without a change of its stamp.
		if !ok || e.stamp != stamp || s.now().Sub(info.ModTime()) < 2*time.Second {
			if e, err = s.load(f.Name(), stamp); err != nil {
				return nil, err
			}
		}
		now[f.Name()] = e
	}
	s.known = now
	return now, nil
}

func (s *Store) load(name, stamp string) (entry, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return entry{bad: true}, nil
	}
	if err != nil {
		return entry{}, fmt.Errorf("cannot read a saved record: %w", err)
	}
	e := entry{stamp: stamp}
	e.bad = json.Unmarshal(b, &e.record) != nil || e.record.ID != name || e.record.check() != nil
	return e, nil
}

// write writes a record to its file. The lock is held.
func (s *Store) write(r *Record) error {
	b, err := json.Marshal(r)
	if err == nil {
		err = atomicfile.Write(filepath.Join(s.dir, r.ID), b, 0o600, true)
	}
	if err != nil {
		return fmt.Errorf("cannot save a record: %w", err)
	}
	delete(s.known, r.ID)
	return nil
}

// All returns the records, sorted by kind, name and owner.
func (s *Store) All() ([]Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.read()
	if err != nil {
		return nil, err
	}
	var out []Record
	for _, e := range all {
		if !e.bad && !e.record.Deleted {
			out = append(out, e.record)
		}
	}
	slices.SortFunc(out, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner))
	})
	return out, nil
}

// Put stores a record, and replaces that of the same kind, owner and name.
func (s *Store) Put(r Record) (Record, error) {
	r.ID, r.By, r.Deleted = ID(r.Kind, r.Owner, r.Name), s.by, false
	if err := r.check(); err != nil {
		return r, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.read()
	if err != nil {
		return r, err
	}
	total, own := 0, 0
	for name, e := range all {
		if e.bad || e.record.Deleted || name == r.ID {
			continue
		}
		if total++; e.record.Owner == r.Owner {
			own++
		}
	}
	if own >= MaxOfOwner || total >= MaxRecords || len(all) >= maxFiles {
		return r, salt.Errorf(salt.Invalid, "too much is saved: a user can save %d things, all users %d; remove some", MaxOfOwner, MaxRecords)
	}
	r.Changed = s.after(all[r.ID])
	return r, s.write(&r)
}

// after returns the time of a change of a record, which is later than its present version.
func (s *Store) after(now entry) int64 { return max(s.now().UnixMilli(), now.record.Changed+1) }

// Remove deletes a record and returns it. may decides whether it may be deleted. The error is of the kind
// salt.NotFound if there is no such record, or it may not be deleted.
func (s *Store) Remove(id string, may func(*Record) bool) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.read()
	if err != nil {
		return Record{}, err
	}
	e, ok := all[id]
	if !ok || e.bad || e.record.Deleted || !may(&e.record) {
		return Record{}, salt.Errorf(salt.NotFound, "nothing of yours is saved with this id")
	}
	gone := e.record
	gone.Changed, gone.By, gone.Deleted, gone.Data, gone.Public = s.after(e), s.by, true, nil, false
	return e.record, s.write(&gone)
}

// Drop removes a record without a mark. It is for records that expire by themselves at every master.
func (s *Store) Drop(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ValidID(id) {
		return nil
	}
	delete(s.known, id)
	if err := os.Remove(filepath.Join(s.dir, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove a record: %w", err)
	}
	return nil
}

// Export returns all records, including the marks of deleted ones, as Merge takes them, and their revision. It
// returns no records if have is the revision.
func (s *Store) Export(have string) (revision string, records []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.read()
	if err != nil {
		return "", nil, err
	}
	list := make([]Record, 0, len(all))
	for _, e := range all {
		if !e.bad {
			list = append(list, e.record)
		}
	}
	slices.SortFunc(list, func(a, b Record) int { return cmp.Compare(a.ID, b.ID) })
	sum := sha256.New()
	for _, r := range list {
		fmt.Fprintf(sum, "%s %d %s\n", r.ID, r.Changed, r.By)
	}
	if revision = hex.EncodeToString(sum.Sum(nil)[:16]); revision == have {
		return revision, nil, nil
	}
	for _, r := range list {
		b, err := json.Marshal(r)
		if err != nil {
			return "", nil, err
		}
		records = append(records, string(b))
	}
	return revision, records, nil
}

// Merge takes records of another master. It ignores invalid ones and those of which this store has a newer
// version.
func (s *Store) Merge(records []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.read()
	if err != nil {
		return err
	}
	latest, oldest := s.now().Add(maxAhead).UnixMilli(), s.now().Add(-keepMarks).UnixMilli()
	count := len(all)
	for _, text := range records {
		var r Record
		if len(text) > maxFile || json.Unmarshal([]byte(text), &r) != nil || r.check() != nil || r.Changed > latest ||
			r.Deleted && r.Changed < oldest || salt.CheckID(r.By) != nil {
			continue
		}
		e, there := all[r.ID]
		if there && !e.bad && !r.newer(&e.record) || !there && count >= maxFiles {
			continue
		}
		if !there {
			count++
		}
		if err := s.write(&r); err != nil {
			return err
		}
		all[r.ID] = entry{record: r}
	}
	return nil
}

// Sweep removes expired marks of deleted records.
func (s *Store) Sweep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.read()
	if err != nil {
		return err
	}
	oldest := s.now().Add(-keepMarks).UnixMilli()
	for name, e := range all {
		if e.bad || !e.record.Deleted || e.record.Changed >= oldest {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove the mark of a deleted record: %w", err)
		}
	}
	return nil
}
