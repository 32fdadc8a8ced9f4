package replica

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// errUnfit is the error of a file that is not replicated.
var errUnfit = errors.New("not a regular file, or too large")

// maxContent bounds the size of a replicated file in bytes.
const maxContent = 16 << 20

// settled is the age from which any further change of a file changes its stamp.
const settled = 100 * time.Millisecond

func stampOf(fi fs.FileInfo) string {
	if time.Since(fi.ModTime()) < settled {
		return ""
	}
	return fmt.Sprint(fi.ModTime().UnixNano(), fi.Size())
}

// dirStamp detects changes of the names in a directory.
type dirStamp struct {
	stamp string
	ok    bool
}

func (f *dirStamp) news(dir string) bool {
	fi, err := os.Stat(dir)
	if err != nil {
		f.ok = false
		return true
	}
	st := stampOf(fi)
	same := f.ok && st != "" && st == f.stamp
	f.stamp, f.ok = st, true
	return !same
}

// Files are the files directly in a directory, or some of them. Each is a record with the file's name.
type Files struct {
	Path string
	Mode fs.FileMode
	// Keep reports whether a name is replicated.
	Keep func(name string) bool
	// Within means that files may be modified in place: they are checked every time, not only when the names have changed.
	Within bool
	// Initial makes files that are found in a directory that does not belong to the records older than any record. A joining master may
	// bring secrets that have been replaced since.
	Initial bool

	at dirStamp
}

// FoundIsOld implements initial.
func (f *Files) FoundIsOld() bool { return f.Initial }

// Dir implements FileSet.
func (f *Files) Dir() string { return f.Path }

// News implements FileSet.
func (f *Files) News() bool { return f.at.news(f.Path) || f.Within }

func (f *Files) keeps(name string) bool {
	return !strings.HasPrefix(name, markFile) && !strings.HasPrefix(name, atomicfile.TempPrefix) && filepath.Base(name) == name && name != "." &&
		name != ".." && f.Keep(name)
}

// List implements FileSet.
func (f *Files) List() (map[string]string, error) {
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, e := range entries {
		if !e.Type().IsRegular() || !f.keeps(e.Name()) {
			continue
		}
		if fi, err := e.Info(); err == nil {
			out[e.Name()] = stampOf(fi)
		}
	}
	return out, nil
}

// Read implements FileSet.
func (f *Files) Read(name string) ([]byte, error) { return readFile(filepath.Join(f.Path, name)) }

func readFile(path string) ([]byte, error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxContent {
		return nil, fmt.Errorf("%s: %w", path, errUnfit)
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if b == nil && err == nil {
		b = []byte{}
	}
	return b, err
}

// aside implements aside.
func (f *Files) aside(name string) error { return moveAside(filepath.Join(f.Path, name)) }

// Write implements FileSet.
func (f *Files) Write(name string, content []byte, was func([]byte) bool) error {
	if !f.keeps(name) {
		return nil // another version of Brine may replicate more files
	}
	if err := unchanged(f, name, was); err != nil {
		return err
	}
	return writeFile(filepath.Join(f.Path, name), content, f.Mode)
}

// unchanged returns errChanged unless was permits replacing the present content of a file. A file that is not replicated may always be
// replaced.
func unchanged(f FileSet, name string, was func([]byte) bool) error {
	if was == nil {
		return nil
	}
	now, err := f.Read(name)
	if err != nil {
		if errors.Is(err, errUnfit) {
			return nil
		}
		return err
	}
	if !was(now) {
		return errChanged
	}
	return nil
}

func writeFile(path string, content []byte, mode fs.FileMode) error {
	if content != nil {
		return atomicfile.Write(path, content, mode, true)
	}
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return cmp.Or(err, atomicfile.SyncDir(filepath.Dir(path)))
}

// Nested are the files in the subdirectories of a directory, named DIR/FILE. Writers must call Touch because there may be too many files
// to scan.
type Nested struct {
	Path string
	Mode fs.FileMode

	mu      sync.Mutex
	touched map[string]bool // directories
	some    map[string]bool // directories to check in this round
}

// Touch records that something in a subdirectory has changed.
func (f *Nested) Touch(dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.touched == nil {
		f.touched = map[string]bool{}
	}
	f.touched[dir] = true
}

// Dir implements FileSet.
func (f *Nested) Dir() string { return f.Path }

// News implements FileSet.
func (f *Nested) News() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.some, f.touched = f.touched, nil
	return len(f.some) > 0
}

// ListSome is List for the subdirectories touched before the last call of News; about reports which files it covers. Recently changed
// ones stay touched, since they may change again within the resolution of the stamp.
func (f *Nested) ListSome() (files map[string]string, about func(string) bool) {
	files = map[string]string{}
	for dir := range f.some {
		if salt.CheckID(dir) != nil {
			continue
		}
		f.listIn(dir, files)
		for name, stamp := range files {
			if stamp == "" && strings.HasPrefix(name, dir+"/") {
				f.Touch(dir)
				break
			}
		}
	}
	return files, func(name string) bool {
		dir, _, _ := strings.Cut(name, "/")
		return f.some[dir]
	}
}

func nestedName(name string) bool {
	dir, file, ok := strings.Cut(name, "/")
	return ok && salt.CheckID(dir) == nil && salt.CheckID(file) == nil && !strings.HasPrefix(file, ".")
}

// List implements FileSet.
func (f *Nested) List() (map[string]string, error) {
	dirs, err := os.ReadDir(f.Path)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, d := range dirs {
		if !d.IsDir() {
			continue
		}
		f.listIn(d.Name(), out)
	}
	return out, nil
}

func (f *Nested) listIn(dir string, out map[string]string) {
	entries, _ := os.ReadDir(filepath.Join(f.Path, dir)) // ignore a directory that was just deleted
	for _, e := range entries {
		name := dir + "/" + e.Name()
		if !e.Type().IsRegular() || !nestedName(name) {
			continue
		}
		if fi, err := e.Info(); err == nil {
			out[name] = stampOf(fi)
		}
	}
}

// Read implements FileSet.
func (f *Nested) Read(name string) ([]byte, error) { return readFile(filepath.Join(f.Path, name)) }

// aside implements aside.
func (f *Nested) aside(name string) error { return moveAside(filepath.Join(f.Path, name)) }

// Write implements FileSet.
func (f *Nested) Write(name string, content []byte, was func([]byte) bool) error {
	if !nestedName(name) {
		return nil
	}
	if err := unchanged(f, name, was); err != nil {
		f.Touch(filepath.Dir(name))
		return err
	}
	path := filepath.Join(f.Path, name)
	if content == nil {
		err := writeFile(path, nil, f.Mode)
		os.Remove(filepath.Dir(path)) // fails unless it is empty now
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return writeFile(path, content, f.Mode)
}

// Keys are the keys of minions: for each id its keys in all states.
type Keys struct {
	Store *keystore.Store
	// Decisions knows who made a change; it may be nil.
	Decisions *keystore.Decisions

	at [len(keystore.States)]dirStamp
}

// Dir implements FileSet.
func (f *Keys) Dir() string { return f.Store.Dir() }

// News implements FileSet.
func (f *Keys) News() bool {
	news := false
	for i, st := range keystore.States {
		if f.at[i].news(filepath.Join(f.Store.Dir(), st.DirName())) {
			news = true
		}
	}
	return news
}

// List implements FileSet.
func (f *Keys) List() (map[string]string, error) {
	out := map[string]string{}
	for _, st := range keystore.States {
		dir := filepath.Join(f.Store.Dir(), st.DirName())
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			id := e.Name()
			if salt.CheckID(id) != nil {
				continue
			}
			fi, err := os.Stat(filepath.Join(dir, id))
			if err != nil || !fi.Mode().IsRegular() {
				continue
			}
			stamp := stampOf(fi)
			old, ok := out[id]
			if stamp != "" && (!ok || old != "") {
				stamp = old + " " + st.DirName() + " " + stamp
			} else {
				stamp = ""
			}
			out[id] = stamp
		}
	}
	return out, nil
}

// readTries bounds how often a key is read again because it may be moving between states.
const readTries = 5

// Read implements FileSet. The content is a msgpack map of states and keys.
func (f *Keys) Read(id string) (content []byte, err error) {
	for range readTries {
		if content, err = f.readOnce(id); content != nil || err != nil {
			return content, err
		}
	}
	return nil, nil
}

func (f *Keys) readOnce(id string) ([]byte, error) {
	d := value.NewDict(1)
	var odd error
	for _, st := range keystore.States {
		pub, err := f.Store.Read(st, id)
		switch {
		case err == nil:
			d.Set(st.DirName(), pub)
		case salt.KindOf(err) != salt.NotFound:
			return nil, err
		case isOdd(f.path(st, id)):
			odd = fmt.Errorf("%s: %w", f.path(st, id), errUnfit)
		}
	}
	if d.Len() == 0 {
		return nil, odd
	}
	return msgpack.Marshal(d, msgpack.NewSpec)
}

func (f *Keys) path(st keystore.State, id string) string {
	return filepath.Join(f.Store.Dir(), st.DirName(), id)
}

// isOdd reports whether something is there that is neither a file nor a link to one.
func isOdd(path string) bool {
	if _, err := os.Lstat(path); err != nil {
		return false
	}
	fi, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !fi.Mode().IsRegular()
}

// aside implements aside.
func (f *Keys) aside(id string) error {
	for _, st := range keystore.States {
		if isOdd(f.path(st, id)) {
			if err := moveAside(f.path(st, id)); err != nil {
				return err
			}
		}
	}
	return nil
}

// moveAside renames something to a name that no FileSet lists.
func moveAside(path string) error {
	dir, name := filepath.Split(path)
	return os.Rename(path, filepath.Join(dir, fmt.Sprintf(".%s.damaged-%d", name, time.Now().UnixNano()))) // rename: the contents do not matter
}

// Damaged implements fragile: a key is empty, has only zero bytes, or lacks its end.
func (f *Keys) Damaged(now, recorded []byte) bool {
	keys, had := keysByDir(now), keysByDir(recorded)
	for dir, key := range keys {
		whole := had[dir]
		if len(key) > len(whole) || key == whole || strings.Trim(key, "\x00") != "" && !strings.HasPrefix(whole, key) {
			return false
		}
	}
	return len(keys) > 0
}

// Who implements Known.
func (f *Keys) Who(id string, was, is []byte) (who, how string) {
	return f.Decisions.Who(id, keysByDir(was), keysByDir(is))
}

// Looked implements Known.
func (f *Keys) Looked() { f.Decisions.Looked() }

func keysByDir(content []byte) map[string]string {
	out := map[string]string{}
	for k, v := range decodeKeys(content).All() {
		out[value.Str(k)] = value.Str(v)
	}
	return out
}

func decodeKeys(content []byte) *value.Dict {
	v, err := msgpack.Limits{Items: 64, Bytes: maxContent, Depth: 2}.UnmarshalTyped(content)
	d, _ := v.(*value.Dict)
	if err != nil {
		return nil
	}
	return d
}

// Write implements FileSet. It holds the lock of the keys. It first removes keys that must no longer admit a minion, and writes the key
// that admits one last.
func (f *Keys) Write(id string, content []byte, was func([]byte) bool) error {
	if salt.CheckID(id) != nil {
		return nil
	}
	return f.Store.Exclusive(func(locked *keystore.Store) error {
		if err := unchanged(f, id, was); err != nil {
			return err
		}
		return writeKeys(locked, id, content)
	})
}

func writeKeys(s *keystore.Store, id string, content []byte) error {
	d := decodeKeys(content)
	order := []keystore.State{keystore.Rejected, keystore.Denied, keystore.Pending, keystore.Accepted}
	put := func(st keystore.State) error {
		if pub, ok := d.Get(st.DirName()); ok {
			return s.Put(st, id, value.Str(pub))
		}
		return nil
	}
	if err := put(keystore.Rejected); err != nil {
		return err
	}
	for _, st := range order {
		if !d.Has(st.DirName()) {
			if err := s.Delete(st, id); err != nil && salt.KindOf(err) != salt.NotFound {
				return err
			}
		}
	}
	for _, st := range order[1:] {
		if err := put(st); err != nil {
			return err
		}
	}
	return nil
}

// KeyStates returns the states in which an id has keys, none if they were deleted.
func KeyStates(content []byte) (out []keystore.State) {
	d := decodeKeys(content)
	for _, st := range keystore.States {
		if d.Has(st.DirName()) {
			out = append(out, st)
		}
	}
	return out
}

// KeyRank ranks concurrent decisions about a key: rejecting wins over deleting, deleting over accepting, accepting over no decision.
func KeyRank(content []byte) int {
	if content == nil {
		return 3
	}
	d := decodeKeys(content)
	i := slices.IndexFunc([]keystore.State{keystore.Rejected, keystore.None, keystore.Accepted, keystore.Pending}, func(st keystore.State) bool {
		return st != keystore.None && d.Has(st.DirName())
	})
	if i < 0 {
		return 0
	}
	return 4 - i
}
