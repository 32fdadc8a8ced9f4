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

// Decision is a change of a key that is about to be made, and who makes it.
type Decision struct {
	ID string `json:"id"`
	// From and To are the names of the folders (State.Folder): "" where the key
	// was in none, or is in none afterwards.
	From string `json:"from"`
	To   string `json:"to"`
	// Sum is the SHA-256 of the key's text in hexadecimal digits.
	Sum string `json:"sum"`
	// Who is the user, or the rule, and How by what: salt-key, say.
	Who string `json:"who"`
	How string `json:"how"`
}

// by is who works on a folder.
type by struct {
	note     func(Decision)
	who, how string
}

// As returns the same store for one who works on it: each change is told to note
// before it is made, which may be nil.
func (s *Store) As(note func(Decision), who, how string) *Store {
	return &Store{folder: s.folder, by: by{note, who, how}}
}

// decide tells of a change that is about to be made.
func (s *Store) decide(from, to State, id, pub string) {
	if s.by.note != nil {
		s.by.note(Decision{ID: id, From: from.Folder(), To: to.Folder(), Sum: sumOf(pub), Who: s.by.who, How: s.by.how})
	}
}

func sumOf(pub string) string {
	sum := sha256.Sum256([]byte(pub))
	return hex.EncodeToString(sum[:])
}

// done reports whether the keys of an id, by folder, are as the decision wants
// them.
func (d *Decision) done(keys map[string]string) bool {
	is := func(folder string) bool {
		pub, ok := keys[folder]
		return ok && sumOf(pub) == d.Sum
	}
	return (d.To == "" || is(d.To)) && (d.From == "" || !is(d.From))
}

// Bounds of what is noted: the bytes of a note, of a name in it, how many there
// may be, and how long one is kept that nothing comes of.
const (
	maxNote   = 8 << 10
	maxWho    = 128
	maxNotes  = 20_000
	noteTime  = time.Minute
	noteAfter = ".json"
)

// DecisionsDir is the folder in which programs beside the master note what they
// decide. It is not in the folder of keys, where Salt's master would find it.
func DecisionsDir(cacheDir string) string { return filepath.Join(cacheDir, "brine", "decisions") }

// Decisions are those that are known of and not found in the folder of keys yet.
// Nil is good for nothing, and takes what it is told.
type Decisions struct {
	dir string
	log *slog.Logger

	mu    sync.Mutex
	notes map[string][]note
	count int
	files []string // that were read
	read  bool     // in this round
}

type note struct {
	Decision
	at time.Time // when this master got to know of it
}

// OpenDecisions makes the folder for what other programs note.
func OpenDecisions(cacheDir string, log *slog.Logger) (*Decisions, error) {
	d := &Decisions{dir: DecisionsDir(cacheDir), log: log, notes: map[string][]note{}}
	if err := os.MkdirAll(filepath.Dir(d.dir), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make a folder: %w", err)
	}
	if err := makeDir(d.dir, 0o700); err != nil {
		return nil, err
	}
	atomicfile.RemoveTemps(d.dir)
	return d, nil
}

// Note tells of a change that this process is about to make.
func (d *Decisions) Note(n Decision) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(n)
}

// add takes a decision. It is called with the lock.
func (d *Decisions) add(n Decision) {
	if d.count >= maxNotes {
		return // who it was will not be known
	}
	n.Who, n.How = CleanName(n.Who), CleanName(n.How)
	d.notes[n.ID] = append(d.notes[n.ID], note{n, time.Now()})
	d.count++
}

// CleanName makes of what somebody is said to be called what can be shown.
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

// Who returns who has made of the keys of an id, by folder, what they are now;
// both names are empty if nobody has noted it.
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

// Looked says that all that has changed until now was asked about, and that the
// disk has the answers.
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

// readAll takes what other programs have noted.
func (d *Decisions) readAll() {
	f, err := os.Open(d.dir)
	if err != nil {
		d.log.Warn("who has decided about keys cannot be read", "folder", d.dir, "err", err)
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxNotes)
	slices.Sort(names) // they begin with the time
	for _, name := range names {
		if strings.HasPrefix(name, atomicfile.TempPrefix) {
			continue
		}
		path := filepath.Join(d.dir, name)
		n, err := readNote(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotFile) || errors.Is(err, syscall.ELOOP):
			continue // nobody who notes something leaves a folder, or a link
		case err != nil:
			d.log.Warn("a note of who has decided about a key is of no use; it is removed", "file", path, "err", err)
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
		return n, fmt.Errorf("it has more than %d bytes", maxNote)
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
	ok := func(folder string) bool { return folder == "" || slices.Contains(folders[1:], folder) }
	if sum, err := hex.DecodeString(n.Sum); err != nil || len(sum) != sha256.Size || !ok(n.From) || !ok(n.To) || n.From == n.To {
		return n, errors.New("it tells of no change of a key")
	}
	return n, nil
}

// NoteBeside returns what a program beside the master notes its changes with. The
// master has made the folder if it keeps such notes; otherwise, and when it is not
// to be written, nothing is noted.
func NoteBeside(cacheDir string, log *slog.Logger) func(Decision) {
	dir := DecisionsDir(cacheDir)
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return nil
	}
	owner := -1
	if st, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		owner = int(st.Uid) // the master, which may not be root
	}
	return func(n Decision) {
		if err := writeNote(dir, owner, n); err != nil {
			log.Debug("the master does not learn who has decided about a key", "id", n.ID, "err", err)
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
	temp := filepath.Join(dir, atomicfile.TempPrefix+name)
	if err := os.WriteFile(temp, b, 0o600); err != nil {
		return err
	}
	if owner > 0 {
		err = os.Chown(temp, owner, -1)
	}
	if err == nil {
		err = os.Rename(temp, filepath.Join(dir, name))
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}
