package keystore

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
)

// Decision is a change of a key that is about to be made, and its author.
type Decision struct {
	ID string `json:"id"`
	// From and To are the names of the directories (State.DirName): "" if the key was in none before, or is
	// in none afterwards.
	From string `json:"from"`
	To   string `json:"to"`
	// Sum is the SHA-256 of the key file's content in hexadecimal digits.
	Sum string `json:"sum"`
	// Who is the user or the rule, and How the program, for example salt-key.
	Who string `json:"who"`
	How string `json:"how"`
}

// actor is the author of changes, and the function that records them.
type actor struct {
	note     func(Decision)
	who, how string
}

// As returns the same store for an author of changes: note, unless nil, is called with each change before it
// is made.
func (s *Store) As(note func(Decision), who, how string) *Store {
	return &Store{directory: s.directory, by: actor{note, who, how}, locked: s.locked}
}

// announce records a change that is about to be made.
func (s *Store) announce(from, to State, id, pub string) {
	if s.by.note != nil {
		s.by.note(Decision{ID: id, From: from.DirName(), To: to.DirName(), Sum: sumOf(pub), Who: s.by.who, How: s.by.how})
	}
}

func sumOf(pub string) string {
	sum := sha256.Sum256([]byte(pub))
	return hex.EncodeToString(sum[:])
}

// done reports whether the keys of an id, by directory, are in the state that the decision leads to.
func (d *Decision) done(keys map[string]string) bool {
	is := func(dir string) bool {
		pub, ok := keys[dir]
		return ok && sumOf(pub) == d.Sum
	}
	return (d.To == "" || is(d.To)) && (d.From == "" || !is(d.From))
}

// Bounds of notes: the size of one, of a name in it, their number, and how long one without effect
// is remembered.
const (
	maxNote   = 8 << 10
	maxWho    = 128
	maxNotes  = 20_000
	noteTime  = time.Minute
	noteAfter = ".json"
)

// DecisionsDir is the directory in which programs beside the master record their decisions. It is outside the
// pki_dir, where Salt's master would find it.
func DecisionsDir(cacheDir string) string { return filepath.Join(cacheDir, "brine", "decisions") }

// Decisions are the recorded decisions whose effect has not been seen in the key directories yet. A nil
// *Decisions is a no-op.
type Decisions struct {
	dir string
	log *slog.Logger

	mu    sync.Mutex
	notes map[string][]note
	count int
	files []string // files that were read
	read  bool     // in this round
}

type note struct {
	Decision
	at time.Time // when this master learned of it
}

// OpenDecisions opens the decisions and creates the directory in which other programs record
// theirs.
func OpenDecisions(cacheDir string, log *slog.Logger) (*Decisions, error) {
	d := &Decisions{dir: DecisionsDir(cacheDir), log: log, notes: map[string][]note{}}
	if err := atomicfile.MkdirAll(filepath.Dir(d.dir), 0o700); err != nil {
		return nil, fmt.Errorf("cannot create a directory: %w", err)
	}
	if err := makeDir(d.dir, 0o700); err != nil {
		return nil, err
	}
	atomicfile.RemoveTemps(d.dir)
	return d, nil
}

// Note records a change that this process is about to make.
func (d *Decisions) Note(n Decision) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(n)
}

// add records a decision; d.mu is held.
func (d *Decisions) add(n Decision) {
	if d.count >= maxNotes {
		return // the author will stay unknown
	}
	n.Who, n.How = CleanName(n.Who), CleanName(n.How)
	d.notes[n.ID] = append(d.notes[n.ID], note{n, time.Now()})
	d.count++
}

// CleanName makes a user name printable and bounds its length.
func CleanName(s string) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	for len(s) > maxWho {
		r := []rune(s)
		s = string(r[:len(r)-1-(len(s)-maxWho)/4])
	}
	return s
}

// Who returns the author of the change of an id's keys, by directory, from was to is. Both names are empty if
// none was recorded.
func (d *Decisions) Who(id string, was, is map[string]string) (who, how string) {
	if d == nil {
		return "", ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.read {
		d.read = true
		d.readAll()
	}
	all := d.notes[id]
	for i, n := range slices.Backward(all) {
		if n.done(is) && !n.done(was) {
			d.keep(id, all[i+1:])
			return n.Who, n.How
		}
	}
	return "", ""
}

func (d *Decisions) keep(id string, left []note) {
	d.count -= len(d.notes[id]) - len(left)
	if d.notes[id] = left; len(left) == 0 {
		delete(d.notes, id)
	}
}

// Looked ends a round: Who has been called for all changes so far, and the answers are on disk. It
// deletes the notes that were read, and decisions that had no effect for a minute.
func (d *Decisions) Looked() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, path := range d.files {
		os.Remove(path)
	}
	d.files, d.read = nil, false
	old := time.Now().Add(-noteTime)
	for id, all := range d.notes {
		d.keep(id, slices.DeleteFunc(slices.Clone(all), func(n note) bool { return n.at.Before(old) }))
	}
}

// readAll reads the decisions recorded by other programs.
func (d *Decisions) readAll() {
	f, err := os.Open(d.dir)
	if err != nil {
		d.log.Warn("cannot read the notes of key decisions", "path", d.dir, "err", err)
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxNotes)
	slices.Sort(names) // names begin with the time
	for _, name := range names {
		if strings.HasPrefix(name, atomicfile.TempPrefix) {
			continue
		}
		path := filepath.Join(d.dir, name)
		n, err := readNote(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotFile) || errors.Is(err, syscall.ELOOP):
			continue // no program writes directories or links here
		case err != nil:
			d.log.Warn("removing invalid note of a key decision", "path", path, "err", err)
		default:
			d.add(n)
		}
		d.files = append(d.files, path)
	}
}

func readNote(path string) (n Decision, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return n, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return n, errNotFile
	}
	b, err := io.ReadAll(io.LimitReader(f, maxNote+1))
	if err != nil {
		return n, err
	}
	if len(b) > maxNote {
		return n, fmt.Errorf("it is larger than %d bytes", maxNote)
	}
	return parseNote(b)
}

func parseNote(b []byte) (n Decision, err error) {
	if err := json.Unmarshal(b, &n); err != nil {
		return n, err
	}
	if err := salt.CheckID(n.ID); err != nil {
		return n, err
	}
	ok := func(dir string) bool { return dir == "" || slices.Contains(dirNames[1:], dir) }
	if sum, err := hex.DecodeString(n.Sum); err != nil || len(sum) != sha256.Size || !ok(n.From) || !ok(n.To) || n.From == n.To {
		return n, errors.New("it records no change of a key")
	}
	return n, nil
}

// NoteBeside returns the function with which a program beside the master records its changes. The
// master creates the directory if it records decisions. Without the directory, or if it is not
// writable, nothing is recorded.
func NoteBeside(cacheDir string, log *slog.Logger) func(Decision) {
	dir := DecisionsDir(cacheDir)
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return nil
	}
	owner := -1
	if st, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		owner = int(st.Uid) // the master's user, which may not be root
	}
	return func(n Decision) {
		if err := writeNote(dir, owner, n); err != nil {
			log.Debug("cannot note a key decision for the master", "minion", n.ID, "err", err)
		}
	}
}

func writeNote(dir string, owner int, n Decision) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	var r [8]byte
	rand.Read(r[:])
	name := fmt.Sprintf("%019d-%x%s", time.Now().UnixNano(), r, noteAfter)
	if owner <= 0 {
		owner = -1 // as this process
	}
	return atomicfile.ReplaceAs(filepath.Join(dir, name), atomicfile.As{Mode: 0o600, UID: owner, GID: -1}, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}
