package revision

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// Store holds the revisions of a master. It is safe for concurrent use.
type Store struct {
	dir string
	mu  sync.Mutex // held while adding or removing
}

// Directories and files of a store.
const (
	contentsDir  = "contents"
	treesDir     = "trees"
	workDir      = "work" // for incomplete files and revisions
	manifestName = "list"
	partPrefix   = "part-"
)

// Open opens the revisions in a directory, which is created if missing. Files that an earlier process may
// have left incomplete are verified.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir}
	for _, d := range []string{contentsDir, treesDir, workDir} {
		if err := atomicfile.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, salt.Errorf(salt.Unavailable, "cannot make a directory: %w", err)
		}
	}
	if err := s.sweep(); err != nil {
		return nil, err
	}
	return s, s.eachContent(func(name, path string, fi fs.FileInfo) error {
		if links(fi) > 1 {
			return nil
		}
		// No revision uses it yet, so it may not have been synced before a crash.
		if sum, err := sumOfFile(path); err == nil && sum == name[:2*sha256.Size] {
			return nil
		}
		return os.Remove(path)
	})
}

// sweep removes unfinished work, except for partial files, which Fetch continues.
func (s *Store) sweep() error {
	work := filepath.Join(s.dir, workDir)
	entries, err := os.ReadDir(work)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), partPrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(work, e.Name())))
		}
	}
	return err
}

func links(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 1
}

func sumOfFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (s *Store) eachContent(fn func(name, path string, fi fs.FileInfo) error) error {
	top := filepath.Join(s.dir, contentsDir)
	dirs, err := os.ReadDir(top)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		entries, err := os.ReadDir(filepath.Join(top, d.Name()))
		if err != nil {
			return err
		}
		for _, e := range entries {
			fi, err := e.Info()
			if err != nil || len(e.Name()) < 2*sha256.Size {
				continue
			}
			if err := fn(e.Name(), filepath.Join(top, d.Name(), e.Name()), fi); err != nil {
				return err
			}
		}
	}
	return nil
}

// usualMode is the mode of most files.
const usualMode = 0o644

// content returns the path of a content with a mode.
func (s *Store) content(sum string, mode uint32) string {
	name := sum
	if mode != usualMode {
		name += "." + strconv.FormatUint(uint64(mode), 8)
	}
	return filepath.Join(s.dir, contentsDir, sum[:2], name)
}

func (s *Store) has(sum string, mode uint32) bool {
	_, err := os.Lstat(s.content(sum, mode))
	return err == nil
}

// place moves a complete file to its path.
func (s *Store) place(temp, sum string, mode uint32) error {
	if err := os.Chmod(temp, fs.FileMode(mode)); err != nil {
		return err
	}
	dest := s.content(sum, mode)
	if err := os.Mkdir(filepath.Dir(dest), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Rename(temp, dest) // rename: flushed by its caller, with others
}

func (s *Store) tree(id string) string { return filepath.Join(s.dir, treesDir, id) }

// Has reports whether the store has a revision.
func (s *Store) Has(id string) bool {
	if !validSum(id) {
		return false
	}
	_, err := os.Stat(s.tree(id))
	return err == nil
}

// Info describes a revision.
func (s *Store) Info(id string) (Info, error) {
	trees, err := s.load(id)
	return infoOf(id, trees), err
}

// Diff compares two revisions; an unknown old one counts as empty.
func (s *Store) Diff(old, now string) (Diff, error) {
	b, err := s.load(now)
	if err != nil {
		return Diff{}, err
	}
	a, _ := s.load(old)
	return diff(a, b), nil
}

func (s *Store) load(id string) ([]Listed, error) {
	if !s.Has(id) {
		return nil, salt.Errorf(salt.NotFound, "this master does not have the revision %.80q", id)
	}
	b, err := os.ReadFile(filepath.Join(s.tree(id), manifestName))
	if err != nil {
		return nil, err
	}
	return decode(b)
}

// Roots returns the directories of a kind in a revision as the value of an option such as file_roots.
func (s *Store) Roots(id, kind string) (*value.Dict, error) {
	trees, err := s.load(id)
	if err != nil {
		return nil, err
	}
	out := value.NewDict(len(trees))
	for n, t := range trees {
		if t.Kind != kind {
			continue
		}
		dirs := &value.List{}
		for i := range t.Dirs {
			dirs.Append(filepath.Join(s.tree(id), strconv.Itoa(n), strconv.Itoa(i)))
		}
		out.Set(t.Env, dirs)
	}
	return out, nil
}

// Take creates a revision of the current content of some directories.
func (s *Store) Take(ctx context.Context, trees []Tree) (Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed, err := read(ctx, trees, s.keep)
	if err != nil {
		return Info{}, err
	}
	b, err := encode(listed)
	if err != nil {
		return Info{}, err
	}
	id := sumOf(b)
	if !s.Has(id) {
		if err := s.build(id, b, listed); err != nil {
			return Info{}, err
		}
	}
	return infoOf(id, listed), nil
}

// keep stores the content of a file and returns its hash and size.
func (s *Store) keep(path string, fi fs.FileInfo) (sum string, size int64, err error) {
	src, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer src.Close()
	h := sha256.New()
	if size, err = io.Copy(h, src); err != nil {
		return "", 0, err
	}
	mode := uint32(fi.Mode().Perm())
	if sum = hex.EncodeToString(h.Sum(nil)); s.has(sum, mode) {
		return sum, size, nil
	}
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return "", 0, err
	}
	temp, err := os.CreateTemp(filepath.Join(s.dir, workDir), atomicfile.TempPrefix)
	if err != nil {
		return "", 0, err
	}
	defer os.Remove(temp.Name())
	h.Reset()
	size, err = io.Copy(io.MultiWriter(temp, h), src)
	if e := temp.Close(); err == nil {
		err = e
	}
	if err != nil {
		return "", 0, err
	}
	sum = hex.EncodeToString(h.Sum(nil)) // it may have changed
	return sum, size, s.place(temp.Name(), sum, mode)
}

// build creates the directory of a revision whose contents are all stored.
func (s *Store) build(id string, list []byte, trees []Listed) error {
	work := filepath.Join(s.dir, workDir, id)
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for n, t := range trees {
		for i, dir := range t.Dirs {
			top := filepath.Join(work, strconv.Itoa(n), strconv.Itoa(i))
			if err := os.MkdirAll(top, 0o755); err != nil {
				return err
			}
			for _, e := range dir { // directories precede their entries
				path := filepath.Join(top, e.Path)
				var err error
				switch e.Type {
				case Directory:
					err = os.Mkdir(path, 0o755)
				case File:
					err = os.Link(s.content(e.Sum, e.Mode), path)
				case Link:
					err = os.Symlink(e.To, path)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	if err := os.WriteFile(filepath.Join(work, manifestName), list, 0o600); err != nil {
		return err
	}
	if err := syncTree(work); err != nil {
		return err
	}
	if err := os.Rename(work, s.tree(id)); err != nil { // rename: a directory, flushed above
		return err
	}
	return atomicfile.SyncDir(filepath.Join(s.dir, treesDir))
}

// Want is a requested part of a content, from Offset on. The content of a revision's id is its list.
type Want struct {
	Sum    string
	Offset int64
}

// Source fetches parts of contents from other masters. It returns the parts in the order of wants, nil for
// missing ones; there may be fewer.
type Source func(ctx context.Context, wants []Want) ([][]byte, error)

// Bounds of one request.
const (
	maxWants  = 256
	partBytes = 1 << 20
)

// Read returns the wanted parts that the store has, 1 MiB at most. The list ends at that size.
func (s *Store) Read(wants []Want) (out [][]byte) {
	left := partBytes
	for i, w := range wants {
		if i >= maxWants || left <= 0 {
			break
		}
		b := s.part(w, left)
		left -= len(b)
		out = append(out, b)
	}
	return out
}

func (s *Store) part(w Want, most int) []byte {
	if !validSum(w.Sum) || w.Offset < 0 {
		return nil
	}
	path := filepath.Join(s.tree(w.Sum), manifestName)
	if _, err := os.Lstat(path); err != nil {
		if path = s.content(w.Sum, usualMode); !s.has(w.Sum, usualMode) {
			other, _ := filepath.Glob(path + ".*")
			if len(other) == 0 {
				return nil
			}
			path = other[0]
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || w.Offset > fi.Size() {
		return nil
	}
	b := make([]byte, min(int64(most), fi.Size()-w.Offset))
	if _, err := f.ReadAt(b, w.Offset); err != nil && err != io.EOF {
		return nil
	}
	return b
}

// errAway says that none of the reachable masters has the data.
var errAway = salt.Errorf(salt.Unavailable, "no other master that can be reached has it all")

// Fetch fetches the missing contents of a revision. After an error, fetched contents are kept.
func (s *Store) Fetch(ctx context.Context, id string, from Source) error {
	if !validSum(id) {
		return salt.Errorf(salt.Invalid, "%.80q is the id of no revision", id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Has(id) {
		return nil
	}
	list, err := s.fetchList(ctx, id, from)
	if err != nil {
		return err
	}
	trees, err := decode(list)
	if err != nil {
		return err
	}
	var missing []Entry
	asked := map[string]bool{}
	for e := range files(trees) {
		key := fmt.Sprint(e.Sum, e.Mode)
		if !asked[key] && !s.has(e.Sum, e.Mode) {
			asked[key] = true
			missing = append(missing, e)
		}
	}
	if err := s.fetchFiles(ctx, missing, from); err != nil {
		return err
	}
	return s.build(id, list, trees)
}

func (s *Store) fetchList(ctx context.Context, id string, from Source) ([]byte, error) {
	var list []byte
	for {
		got, err := from(ctx, []Want{{id, int64(len(list))}})
		if err != nil {
			return nil, err
		}
		if len(got) != 1 || len(got[0]) == 0 || len(list)+len(got[0]) > maxManifest {
			return nil, errAway
		}
		list = append(list, got[0]...)
		if sumOf(list) == id {
			return list, nil
		}
	}
}

// partial is a partly fetched file.
type partial struct {
	f    *os.File
	hash hash.Hash
	size int64
}

// open continues the file of an earlier attempt.
func (s *Store) open(e Entry) (*partial, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, workDir, partPrefix+e.Sum), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	p := &partial{f: f, hash: sha256.New()}
	if p.size, err = io.Copy(p.hash, f); err == nil && p.size > e.Size {
		if err = f.Truncate(0); err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		p.size = 0
		p.hash.Reset()
	}
	if err != nil {
		f.Close()
	}
	return p, err
}

// fetchFiles fetches contents, many small ones per request.
func (s *Store) fetchFiles(ctx context.Context, missing []Entry, from Source) error {
	for len(missing) > 0 {
		var wants []Want
		var rest int64
		p, err := s.open(missing[0])
		if err != nil {
			return err
		}
		if p.size > 0 || missing[0].Size >= partBytes {
			err = s.fetchLarge(ctx, missing[0], p, from)
			p.f.Close()
			if err != nil {
				return err
			}
			missing = missing[1:]
			continue
		}
		p.f.Close()
		os.Remove(p.f.Name())
		for _, e := range missing {
			if len(wants) == maxWants || rest+e.Size > partBytes {
				break
			}
			wants, rest = append(wants, Want{e.Sum, 0}), rest+e.Size
		}
		got, err := from(ctx, wants)
		if err != nil {
			return err
		}
		if len(got) == 0 || len(got) > len(wants) {
			return errAway
		}
		for i, b := range got {
			e := missing[i]
			if sumOf(b) != e.Sum {
				return errAway
			}
			if err := s.write(e, b); err != nil {
				return err
			}
		}
		missing = missing[len(got):]
	}
	return nil
}

func (s *Store) write(e Entry, b []byte) error {
	temp, err := os.CreateTemp(filepath.Join(s.dir, workDir), atomicfile.TempPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = io.Copy(temp, bytes.NewReader(b))
	if e := temp.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return s.place(temp.Name(), e.Sum, e.Mode)
}

func (s *Store) fetchLarge(ctx context.Context, e Entry, p *partial, from Source) error {
	for p.size < e.Size {
		got, err := from(ctx, []Want{{e.Sum, p.size}})
		if err != nil {
			return err
		}
		if len(got) != 1 || len(got[0]) == 0 || p.size+int64(len(got[0])) > e.Size {
			return errAway
		}
		n, err := p.f.Write(got[0])
		p.hash.Write(got[0][:n])
		p.size += int64(n)
		if err != nil {
			return err
		}
	}
	if hex.EncodeToString(p.hash.Sum(nil)) != e.Sum {
		os.Remove(p.f.Name())
		return errAway
	}
	return s.place(p.f.Name(), e.Sum, e.Mode)
}

// Keep removes all revisions except some, and the contents that no other revision uses.
func (s *Store) Keep(ids map[string]bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, err := os.ReadDir(filepath.Join(s.dir, treesDir))
	if err != nil {
		return err
	}
	gone := false
	for _, e := range entries {
		if ids[e.Name()] {
			continue
		}
		gone = true
		// Move it first, so that no incomplete revision is visible.
		aside := filepath.Join(s.dir, workDir, "gone-"+e.Name())
		if err := os.Rename(s.tree(e.Name()), aside); err != nil { // rename: moves a directory aside
			return err
		}
		if err := os.RemoveAll(aside); err != nil {
			return err
		}
	}
	if !gone {
		return nil
	}
	return s.eachContent(func(_, path string, fi fs.FileInfo) error {
		if links(fi) > 1 {
			return nil
		}
		return os.Remove(path)
	})
}
