// Package shared stores small records that masters share, such as what users save in the console. Each record is
// a file. Masters of a cluster have the same files, because they share the directory or replicate it. Hot masters
// exchange the records (Export, Merge).
//
// A version that was made knowing another one replaces it, whatever the clocks say. Of two independent versions a
// deletion wins, then the higher Rank, then the later clock. A deleted record stays as a mark, so that a master that
// was unreachable, or whose disk is an old copy, does not bring it back.
package shared

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	// Changed is the time of the last change in milliseconds since 1970, but later than all versions that the master By
	// knew when it made the change.
	Changed int64  `json:"changed"`
	By      string `json:"by"`
	// Deleted marks a record that no longer exists.
	Deleted bool `json:"deleted,omitempty"`
	// Rank decides between independent versions: the highest wins, up to MaxRank.
	Rank int `json:"rank,omitempty"`
	// Seen has the last change of each master that this version follows or has won over.
	Seen map[string]int64 `json:"seen,omitempty"`
}

// Bounds of records.
const (
	// MaxData bounds the data of a record in bytes, MaxName its name and MaxOwner its owner in characters.
	MaxData, MaxName, MaxOwner = 4 << 10, 100, 200
	// MaxOfOwner bounds the records of one owner, MaxRecords all.
	MaxOfOwner, MaxRecords = 200, 2000
	// maxFiles bounds the files, including the marks of deleted records; maxFile the bytes of one.
	maxFiles, maxFile = 4000, 16 << 10
	// maxMarks bounds the marks of deleted records: the last ones stay.
	maxMarks = maxFiles - MaxRecords
	// MaxRank bounds Rank.
	MaxRank = 100
	// maxSeen bounds Seen.
	maxSeen = 64
	// maxChanged bounds Changed: this time is after the year 2200.
	maxChanged = 1 << 43
)

// Store has the records of one directory.
type Store struct {
	dir, by string
	now     func() time.Time
	marks   int // how many marks of deleted records stay

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
	return &Store{dir: dir, by: by, now: time.Now, marks: maxMarks, known: map[string]entry{}}, nil
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
	case r.Rank < 0 || r.Rank > MaxRank || r.Changed < 0 || r.Changed > maxChanged || len(r.Seen) > maxSeen:
		return salt.Errorf(salt.Invalid, "a record has an invalid rank or time")
	case r.ID != ID(r.Kind, r.Owner, r.Name):
		return salt.Errorf(salt.Invalid, "the id of a record does not match its name")
	}
	return nil
}

func plain(s string, most int) bool {
	return s != "" && utf8.ValidString(s) && utf8.RuneCountInString(s) <= most && !strings.ContainsFunc(s, unicode.IsControl)
}

// follows reports whether r was made knowing another version, has won over it, or is the same.
func (r *Record) follows(o *Record) bool {
	return r.By == o.By && r.Changed >= o.Changed || r.Seen[o.By] >= o.Changed
}

// see adds what another version follows to what r follows, and reports whether that was new.
func (r *Record) see(o *Record) (news bool) {
	seen := maps.Clone(r.Seen)
	if seen == nil {
		seen = map[string]int64{}
	}
	add := func(by string, at int64) {
		if at > seen[by] && (by != r.By || at > r.Changed) {
			seen[by], news = at, true
		}
	}
	for by, at := range o.Seen {
		add(by, at)
	}
	add(o.By, o.Changed)
	for len(seen) > maxSeen {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(seen)), func(a, b string) int {
			return cmp.Or(cmp.Compare(seen[a], seen[b]), cmp.Compare(a, b))
		})
		delete(seen, oldest)
	}
	if news {
		r.Seen = seen
	}
	return news
}

// weight orders independent versions: the highest wins.
func (r *Record) weight() int64 {
	w := int64(min(max(r.Rank, 0), MaxRank))
	if r.Deleted {
		w = MaxRank + 1
	}
	return w<<44 | min(max(r.Changed, 0), maxChanged)
}

// compare orders independent versions. Two that a master made before and after its disk was set back may have the same time.
func compare(a, b *Record) int {
	return cmp.Or(cmp.Compare(a.weight(), b.weight()), cmp.Compare(a.By, b.By), bytes.Compare(a.Data, b.Data))
}

// Rank orders the contents of independent versions of a file: the highest wins. A missing file, whose mark has been
// removed, loses.
func Rank(content []byte) int {
	var r Record
	if content == nil || len(content) > maxFile || json.Unmarshal(content, &r) != nil {
		return -1
	}
	return int(r.weight())
}

// merge returns the version that counts of two, knowing both, and whether it differs from now.
func merge(now, other *Record) (r Record, news bool) {
	knows, known := now.follows(other), other.follows(now)
	r = *now
	if known && !knows || known == knows && compare(other, now) > 0 {
		r, news = *other, true
		r.see(now)
		return r, true
	}
	return r, r.see(other)
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
	r.ID, r.Deleted, r.Changed, r.Seen = ID(r.Kind, r.Owner, r.Name), false, 0, nil
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
	s.after(&r, all[r.ID])
	return r, s.write(&r)
}

// after makes a change of a record follow its present version, also in time.
func (s *Store) after(r *Record, now entry) {
	r.By, r.Seen = s.by, nil
	r.Changed = max(s.now().UnixMilli(), 0)
	if now.bad || now.record.ID == "" {
		return
	}
	latest := now.record.Changed
	for _, at := range now.record.Seen {
		latest = max(latest, at)
	}
	r.Changed = min(max(r.Changed, latest+1), maxChanged)
	r.see(&now.record)
}

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
	gone.Deleted, gone.Data, gone.Public, gone.Rank = true, nil, false, 0
	s.after(&gone, e)
	if err := s.write(&gone); err != nil {
		return e.record, err
	}
	all[id] = entry{record: gone}
	return e.record, s.prune(all)
}

// By returns the id of this master.
func (s *Store) By() string { return s.by }

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
		fmt.Fprintf(sum, "%s %d %s %v %x", r.ID, r.Changed, r.By, r.Deleted, sha256.Sum256(r.Data))
		for _, by := range slices.Sorted(maps.Keys(r.Seen)) {
			fmt.Fprintf(sum, " %s %d", by, r.Seen[by])
		}
		fmt.Fprintln(sum)
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

// Merge takes records of another master. It ignores invalid ones and those of which this store has a version that
// counts more.
func (s *Store) Merge(records []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.read()
	if err != nil {
		return err
	}
	count := len(all)
	for _, text := range records {
		var r Record
		if len(text) > maxFile || json.Unmarshal([]byte(text), &r) != nil || r.check() != nil || salt.CheckID(r.By) != nil {
			continue
		}
		e, there := all[r.ID]
		switch {
		case there && !e.bad:
			var news bool
			if r, news = merge(&e.record, &r); !news {
				continue
			}
		case !there && (count >= maxFiles || r.Deleted && !s.keepsMark(all, &r)):
			continue
		case !there:
			count++
		}
		if err := s.write(&r); err != nil {
			return err
		}
		all[r.ID] = entry{record: r}
	}
	return s.prune(all)
}

// marks returns the marks of deleted records, the last ones first.
func marks(all map[string]entry) (out []Record) {
	for _, e := range all {
		if !e.bad && e.record.Deleted {
			out = append(out, e.record)
		}
	}
	slices.SortFunc(out, func(a, b Record) int { return cmp.Or(cmp.Compare(b.Changed, a.Changed), cmp.Compare(a.ID, b.ID)) })
	return out
}

// keepsMark reports whether a mark is one of those that stay, so that masters that exchange their marks keep the same.
func (s *Store) keepsMark(all map[string]entry, r *Record) bool {
	have := marks(all)
	return len(have) < s.marks || cmp.Or(cmp.Compare(r.Changed, have[s.marks-1].Changed), cmp.Compare(have[s.marks-1].ID, r.ID)) > 0
}

// prune removes the first marks if there are too many. The lock is held.
func (s *Store) prune(all map[string]entry) error {
	have := marks(all)
	for _, r := range have[min(len(have), s.marks):] {
		delete(s.known, r.ID)
		if err := os.Remove(filepath.Join(s.dir, r.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove the mark of a deleted record: %w", err)
		}
	}
	return nil
}

// Sweep removes the oldest marks of deleted records if there are too many.
func (s *Store) Sweep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.read()
	if err != nil {
		return err
	}
	return s.prune(all)
}
