// Package keystore stores the public keys of minions in the directories that Salt's master uses,
// one file for each minion id:
//
//	PKI_DIR/minions           accepted
//	PKI_DIR/minions_pre       waiting for a decision
//	PKI_DIR/minions_rejected  rejected by the operator
//	PKI_DIR/minions_denied    a key that differs from the one known for the id
//	PKI_DIR/minions_autosign  empty stubs: accept the key of this id
//
// The directories are the only authority. Existing ones are used as they are, and other programs
// (such as salt-key) may change them at any time. Every lookup costs at least one stat, and caches
// are only valid while the stamp of the file or directory is unchanged.
//
// An id is a file name. Names that fail salt.CheckID, such as those of dot files, are refused. List
// ignores such files, as Salt does. A directory, pipe or device with the name of a key is not a
// key. A symbolic link to a file is a key, but writes never follow the link.
//
// Other packages decide what the master replies to a minion.
package keystore

import (
	"bytes"
	"cmp"
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

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/host"
	"brine/internal/net/crypt"
)

// State is the operator's decision about a key.
type State uint8

// The states. None means that the id has no key.
const (
	None State = iota
	Accepted
	Pending
	Rejected
	Denied
)

// States are all states that a key can be in, in the order of salt-key -L.
var States = [...]State{Accepted, Denied, Pending, Rejected}

var dirNames = [...]string{"", "minions", "minions_pre", "minions_rejected", "minions_denied"}

// DirName is the name of the state's directory, which Salt's tools also use as the name of the state.
func (s State) DirName() string { return dirNames[s] }

func (s State) String() string {
	return [...]string{"none", "accepted", "pending", "rejected", "denied"}[s]
}

// DirNames returns the names of the directories of all states.
func DirNames() []string { return dirNames[1:] }

const autosignDir = "minions_autosign"

// maxKeyFile bounds a key file in bytes. A 16384-bit key takes under 4 KiB.
const maxKeyFile = 64 << 10

// maxParsed bounds the parsed keys in memory; each takes about 2 KiB.
const maxParsed = 20_000

// Store is the keys in one directory. It is safe for concurrent use.
type Store struct {
	*directory
	by     actor
	locked bool // see Exclusive
}

// directory is the state that all Stores of one directory share.
type directory struct {
	dir string
	log *slog.Logger

	mu       sync.RWMutex
	accepted listing
	counts   [Denied + 1]counted // by State
	parsed   map[string]parsedKey
}

// counted is the number of ids in a state.
type counted struct {
	n     int
	stamp host.Stamp
	valid bool
}

// listing is a snapshot of the accepted ids.
type listing struct {
	ids   []string
	stamp host.Stamp
	valid bool
}

type parsedKey struct {
	stamp host.Stamp
	key   *Key
}

// Key is an accepted key.
type Key struct {
	// PEM is the content of the file, cleaned (crypt.CleanKey).
	PEM string
	// Public is the key itself.
	Public *crypt.PublicKey
}

// Open opens the keys in dir, Salt's pki_dir (cluster_pki_dir in a cluster), and creates missing directories.
func Open(dir string, log *slog.Logger) (*Store, error) {
	s := &Store{directory: &directory{dir: dir, log: log, parsed: map[string]parsedKey{}}}
	if err := makeDir(dir, 0o700); err != nil {
		return nil, err
	}
	for _, name := range append(dirNames[1:], autosignDir) {
		path := filepath.Join(dir, name)
		if err := makeDir(path, 0o755); err != nil {
			return nil, err
		}
		atomicfile.RemoveTemps(path)
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm() != 0o700 && info.Mode().Perm() != 0o750 {
		// Salt narrows it too: a user who can write here can accept keys.
		if err := os.Chmod(dir, 0o700); err != nil {
			log.Warn("cannot change the mode of the key directory; its mode should be 0700 or 0750", "path", dir, "err", err)
		}
	}
	return s, nil
}

func makeDir(path string, mode fs.FileMode) error {
	err := os.Mkdir(path, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err = atomicfile.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			err = os.Mkdir(path, mode)
		}
	}
	switch {
	case err == nil:
		// The mode is independent of the umask.
		err = cmp.Or(os.Chmod(path, mode), atomicfile.SyncDir(filepath.Dir(path)))
	case errors.Is(err, fs.ErrExist):
		info, statErr := os.Stat(path)
		if err = statErr; err == nil && !info.IsDir() {
			err = errors.New("it is not a directory")
		}
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot use %s for minion keys: %w", path, atomicfile.Cause(err))
	}
	return nil
}

// Dir is the directory given to Open.
func (s *Store) Dir() string { return s.dir }

// checkID is salt.CheckID with an error of kind Invalid.
func checkID(id string) error {
	if err := salt.CheckID(id); err != nil {
		return salt.Errorf(salt.Invalid, "%w", err)
	}
	return nil
}

func (s *Store) path(st State, id string) string {
	return s.dir + "/" + dirNames[st] + "/" + id
}

// errNotFile means that the name belongs to something other than a regular file.
var errNotFile = errors.New("not a regular file")

// readFile reads a small regular file. It follows symbolic links and does not block on a pipe.
func readFile(path string, limit int64) ([]byte, host.Stamp, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, host.Stamp{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, host.Stamp{}, err
	}
	if !info.Mode().IsRegular() {
		return nil, host.Stamp{}, errNotFile
	}
	st, err := host.StampOfFile(f) // before reading, so that a concurrent change is noticed
	if err != nil {
		return nil, host.Stamp{}, err
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("larger than %d bytes", limit)
	}
	return b, st, err
}

// Read returns the key of an id in a state, as stored in the file. The error is of kind NotFound if there is
// none.
func (s *Store) Read(st State, id string) (pub string, err error) {
	if err := checkID(id); err != nil {
		return "", err
	}
	b, _, err := readFile(s.path(st, id), maxKeyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotFile):
		return "", salt.Errorf(salt.NotFound, "minion %q has no %s key", id, st)
	case err != nil:
		return "", salt.Errorf(salt.Unavailable, "cannot read the %s key of minion %q: %w", st, id, atomicfile.Cause(err))
	}
	return string(b), nil
}

// Lookup returns the state of an id and its key. It checks in the order in which the master
// decides: rejected, accepted, pending. It ignores denied keys, since they differ from the id's own
// key; Read returns them. An id without a key is None.
//
// If something other than a file has the name of a pending key, the error is of kind Denied: such
// an id gets no key.
func (s *Store) Lookup(id string) (st State, pub string, err error) {
	for _, st := range []State{Rejected, Accepted, Pending} {
		pub, err := s.Read(st, id)
		if err == nil {
			return st, pub, nil
		}
		if salt.KindOf(err) != salt.NotFound {
			return None, "", err
		}
	}
	if info, err := os.Stat(s.path(Pending, id)); err == nil && !info.Mode().IsRegular() {
		return None, "", salt.Errorf(salt.Denied, "minion %q gets no key: remove %s, which is not a file", id, s.path(Pending, id))
	}
	return None, "", nil
}

// List returns the ids in every state, sorted ignoring case.
func (s *Store) List() (map[State][]string, error) {
	out := make(map[State][]string, len(States))
	for _, st := range States {
		ids, err := s.readDir(st)
		if err != nil {
			return nil, err
		}
		out[st] = ids
	}
	return out, nil
}

// Count returns the number of ids in a state. It costs one stat while nothing changes.
func (s *Store) Count(st State) (int, error) {
	if st == Accepted {
		ids, err := s.Accepted()
		return len(ids), err
	}
	now, err := host.StampOf(s.dir + "/" + dirNames[st])
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, salt.Errorf(salt.Unavailable, "cannot count the %s keys: %w", st, err)
	}
	s.mu.RLock()
	c := s.counts[st]
	s.mu.RUnlock()
	if c.valid && c.stamp == now {
		return c.n, nil
	}
	ids, err := s.readDir(st)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[st] = counted{n: len(ids), stamp: now, valid: now.Settled()}
	return len(ids), nil
}

func (s *Store) readDir(st State) ([]string, error) {
	dir := filepath.Join(s.dir, dirNames[st])
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot list the %s keys: %w", st, err)
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot list the %s keys: %w", st, err)
	}
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		if checkID(e.Name()) != nil {
			continue
		}
		mode := e.Type()
		if mode&fs.ModeSymlink != 0 {
			if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil {
				mode = info.Mode().Type()
			}
		}
		if mode.IsRegular() {
			ids = append(ids, e.Name())
		}
	}
	sortIDs(ids)
	return ids, nil
}

// sortIDs sorts ids ignoring case. It computes each lower-case form once, since comparisons
// dominate the time of listing thousands of keys.
func sortIDs(ids []string) {
	type pair struct{ lower, id string }
	pairs := make([]pair, len(ids))
	for i, id := range ids {
		pairs[i] = pair{strings.ToLower(id), id}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		if c := strings.Compare(a.lower, b.lower); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	})
	for i, p := range pairs {
		ids[i] = p.id
	}
}

// Accepted returns the accepted ids, sorted ignoring case. It costs one stat while nothing changes. The slice
// is shared: do not write to it.
func (s *Store) Accepted() ([]string, error) {
	now, err := host.StampOf(s.dir + "/" + dirNames[Accepted])
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, salt.Errorf(salt.Unavailable, "cannot list the accepted keys: %w", err)
	}
	s.mu.RLock()
	l := s.accepted
	s.mu.RUnlock()
	if l.valid && l.stamp == now {
		return l.ids, nil
	}
	ids, err := s.readDir(Accepted)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted = listing{ids: ids, stamp: now, valid: now.Settled()}
	return ids, nil
}

// AcceptedKey returns the accepted key of an id, parsed. It is fast enough to be called for every
// request: it costs one stat while the file does not change. The error is of kind NotFound if the
// id is not accepted, and Invalid if the file contains no usable key.
func (s *Store) AcceptedKey(id string) (*Key, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	path := s.path(Accepted, id)
	now, err := host.StampOf(path)
	if err == nil {
		s.mu.RLock()
		p, ok := s.parsed[id]
		s.mu.RUnlock()
		if ok && p.stamp == now {
			return p.key, nil
		}
	}
	return s.parseAccepted(id, path)
}

func (s *Store) parseAccepted(id, path string) (*Key, error) {
	s.mu.Lock()
	delete(s.parsed, id)
	s.mu.Unlock()
	b, stamp, err := readFile(path, maxKeyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotFile):
		return nil, salt.Errorf(salt.NotFound, "minion %q is not accepted", id)
	case err != nil:
		return nil, salt.Errorf(salt.Unavailable, "cannot read the accepted key of minion %q: %w", id, atomicfile.Cause(err))
	}
	pub, err := crypt.ParsePublic(b)
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "the accepted key of minion %q is not usable: %w", id, err)
	}
	k := &Key{PEM: crypt.CleanKey(string(b)), Public: pub}
	if !stamp.Settled() {
		return k, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parsed) >= maxParsed {
		for other := range s.parsed { // evict an arbitrary entry
			delete(s.parsed, other)
			break
		}
	}
	s.parsed[id] = parsedKey{stamp, k}
	return k, nil
}

// Put stores a key in a state and replaces one that exists. It does not touch the id's keys in other states.
// When it returns without error the key is on disk.
func (s *Store) Put(st State, id, pub string) error {
	return s.write(st, id, pub, func(path string, b []byte) error {
		if old, _, err := readFile(path, maxKeyFile); err == nil && bytes.Equal(old, b) {
			return atomicfile.SyncDir(filepath.Dir(path)) // the flush of its writer may have failed
		}
		s.announce(None, st, id, pub)
		return atomicfile.Write(path, b, 0o644, true)
	})
}

// Add is Put for an id that has no key in that state yet; otherwise the error is of kind Exists. Of several
// concurrent callers, in any process, one succeeds: the first key of a new minion is kept.
func (s *Store) Add(st State, id, pub string) error {
	return s.write(st, id, pub, func(path string, b []byte) error {
		s.announce(None, st, id, pub)
		return atomicfile.Create(path, b, 0o644)
	})
}

func (s *Store) write(st State, id, pub string, write func(string, []byte) error) error {
	if err := checkID(id); err != nil {
		return err
	}
	if len(pub) > maxKeyFile {
		return salt.Errorf(salt.Invalid, "the key of minion %q is larger than %d bytes", id, maxKeyFile)
	}
	defer s.shared()()
	path := s.path(st, id)
	err := write(path, []byte(pub))
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeDir(filepath.Dir(path), 0o755); err == nil {
			err = write(path, []byte(pub))
		}
	}
	s.forget(id)
	if errors.Is(err, fs.ErrExist) {
		if info, statErr := os.Stat(path); statErr == nil && !info.Mode().IsRegular() {
			return s.failed("store", st, id, fmt.Errorf("%s exists and is not a file", path))
		}
		return salt.Errorf(salt.Exists, "minion %q has a %s key", id, st)
	}
	return s.failed("store", st, id, err)
}

// failed describes a failed operation. A full or read-only disk is described by the system's error.
func (s *Store) failed(verb string, st State, id string, err error) error {
	if err == nil {
		return nil
	}
	return salt.Errorf(salt.Unavailable, "cannot %s the %s key of minion %q: %w", verb, st, id, err)
}

// Move moves the key of an id from one state to another and replaces a key there. The error is of kind
// NotFound if there is none to move.
func (s *Store) Move(id string, from, to State) error {
	defer s.shared()()
	pub, err := s.Read(from, id)
	if err != nil {
		return err
	}
	s.announce(from, to, id, pub)
	src, dst := s.path(from, id), s.path(to, id)
	err = rename(src, dst)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeDir(filepath.Dir(dst), 0o755); err == nil {
			err = rename(src, dst)
		}
	}
	s.forget(id)
	if err != nil {
		return s.failed("move", from, id, fmt.Errorf("to %s: %w", dst, atomicfile.Cause(err)))
	}
	return s.failed("move", from, id, cmp.Or(atomicfile.SyncDir(filepath.Dir(dst)), atomicfile.SyncDir(filepath.Dir(src))))
}

// rename moves a key. Two names of one file would stay as they are, without an error (rename(2)). On a
// network file system the system may take dst for such a name, because it was one a moment ago: another
// master has moved the key from there to src.
func rename(src, dst string) error {
	there, err := os.Lstat(dst)
	if err == nil {
		var here fs.FileInfo
		if here, err = os.Lstat(src); err != nil {
			return err
		}
		if os.SameFile(here, there) {
			// The file system has the last word: it may not have the name, which the system then forgets.
			if err := os.Remove(dst); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return os.Rename(src, dst) // rename: moves a key
}

// Delete removes the key of an id from a state. The error is of kind NotFound
// if there is none.
func (s *Store) Delete(st State, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	defer s.shared()()
	path := s.path(st, id)
	info, err := os.Lstat(path)
	if err == nil && info.IsDir() || errors.Is(err, fs.ErrNotExist) {
		return salt.Errorf(salt.NotFound, "minion %q has no %s key", id, st)
	}
	if err == nil {
		if s.by.note != nil {
			if pub, err := s.Read(st, id); err == nil {
				s.announce(st, None, id, pub)
			}
		}
		err = os.Remove(path)
	}
	s.forget(id)
	if errors.Is(err, fs.ErrNotExist) { // another process was faster
		return salt.Errorf(salt.NotFound, "minion %q has no %s key", id, st)
	}
	if err != nil {
		return s.failed("delete", st, id, atomicfile.Cause(err))
	}
	return s.failed("delete", st, id, atomicfile.SyncDir(filepath.Dir(path)))
}

// forget drops the caches of an id and of the listing.
func (s *Store) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.parsed, id)
	s.accepted = listing{}
}
