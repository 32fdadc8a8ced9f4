package channel

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/net/crypt"
)

// Sessions keeps the session keys of minions in files, one per id, so that they
// survive the master's process, like Salt in cachedir/sessions. Other masters
// may use the same directory.
type Sessions struct {
	dir    string
	maxAge time.Duration
	now    func() time.Time
	derive *derivation // nil: keys are random, and stored in files

	// made has the ids whose key this process created, with the key (unwritten) if it could not be
	// written. If it is nil, keys of other processes are valid, too. See DistrustOld.
	made *sync.Map

	// generations counts the early replacements of the derived key of an id.
	generations sync.Map // id -> generation

	// making is held while a key is created, so that two callers that need the same
	// key do not replace each other's.
	making sync.Mutex
}

// NewSessions keeps the keys in dir, which it creates if necessary. A key older
// than maxAge (publish_session) is replaced; 0 means never.
func NewSessions(dir string, maxAge time.Duration) (*Sessions, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the directory for session keys: %w", err)
	}
	atomicfile.RemoveTemps(dir)
	return &Sessions{dir: dir, maxAge: maxAge, now: time.Now}, nil
}

// DistrustOld replaces each key that this process did not create at its first
// use. A master that ends forgets the nonces of requests: with the old key,
// each of them could be replayed once. It must not be used if other masters
// create keys in the directory, and must be called before the first use of a
// key.
func (s *Sessions) DistrustOld() { s.made = &sync.Map{} }

// unwritten is a key in memory because the disk is full or broken. After a restart all minions need
// new keys, and must not be locked out.
type unwritten struct {
	key string
	at  time.Time
}

// inMemory returns the unwritten key of id.
func (s *Sessions) inMemory(id string) (unwritten, bool) {
	if s.made == nil {
		return unwritten{}, false
	}
	v, _ := s.made.Load(id)
	u, ok := v.(unwritten)
	return u, ok
}

// derivation is how session keys are derived.
type derivation struct {
	secret func() []byte
	key    func(id string) (string, error)
}

// Derive computes session keys from a secret that the masters of a cluster
// share, so that all have the same keys without communication. Nothing is
// written to disk. secret returns the current secret and must be quick; when it
// changes, all earlier keys are invalid. key returns the public key of a
// minion. A key is used for a fixed period; the periods of different minions
// start at different moments. Derive must be called before the first use of a
// key.
func (s *Sessions) Derive(secret func() []byte, key func(id string) (string, error)) error {
	s.derive = &derivation{secret, key}
	// Versions that wrote derived keys to files left them here.
	left, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("cannot read the directory of session keys: %w", err)
	}
	for _, e := range left {
		if err := s.Forget(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// derived computes the session key of id.
func (s *Sessions) derived(id string) (string, stamp, error) {
	secret, from := s.derive.secret(), s.begin(id)
	pub, err := s.derive.key(id)
	if err != nil {
		return "", stamp{}, fmt.Errorf("session key of %s: %w", id, err)
	}
	generation := s.generation(id, secretTag(secret))
	return derivedKey(secret, id, from, pub, generation), derivedStamp(secret, from, generation), nil
}

// derivedAt computes the current session key of id for a generation; "" if keys
// are not derived.
func (s *Sessions) derivedAt(id string, generation uint32) (string, error) {
	if s.derive == nil {
		return "", nil
	}
	pub, err := s.derive.key(id)
	if err != nil {
		return "", err
	}
	return derivedKey(s.derive.secret(), id, s.begin(id), pub, generation), nil
}

func derivedKey(secret []byte, id string, from time.Time, pub string, generation uint32) string {
	text := fmt.Sprintf("%s\x00%d\x00%s", id, from.Unix(), pub)
	if generation > 0 {
		text += fmt.Sprintf("\x00%d", generation)
	}
	return crypt.DeriveKey(secret, text)
}

// derivedStamp changes with the key, except when the minion gets another key
// pair.
func derivedStamp(secret []byte, from time.Time, generation uint32) stamp {
	return stamp{from, int64(secretTag(secret)), generation}
}

// secretTag distinguishes a secret from the previous one.
func secretTag(secret []byte) uint64 {
	h := fnv.New64a()
	h.Write(secret)
	return h.Sum64()
}

// generation is how often a derived key was replaced under one secret. With
// another secret all keys are new, so the count starts over.
type generation struct {
	secret uint64 // its tag
	n      uint32
}

// maxGenerations bounds how far the generation of another master may be ahead of
// our own. Without a limit, one wrong number would exhaust all later ones.
const maxGenerations = 1000

// errGeneration is the error of a generation that is not adopted.
var errGeneration = errors.New("the generation of the session key is too far above the own one")

func (s *Sessions) generation(id string, secret uint64) uint32 {
	v, _ := s.generations.Load(id)
	if g, _ := v.(generation); g.secret == secret {
		return g.n
	}
	return 0
}

// renewed returns the ids whose derived keys were replaced early, with the
// generation.
func (s *Sessions) renewed() map[string]uint32 {
	if s.derive == nil {
		return nil
	}
	secret, out := secretTag(s.derive.secret()), map[string]uint32{}
	s.generations.Range(func(id, v any) bool {
		if g := v.(generation); g.secret == secret && g.n > 0 {
			out[id.(string)] = g.n
		}
		return true
	})
	return out
}

// adopt applies the generation of a derived key from another master. Masters
// use the highest that one of them has.
func (s *Sessions) adopt(id string, n uint32) error {
	if s.derive == nil {
		return nil
	}
	s.making.Lock()
	defer s.making.Unlock()
	secret := secretTag(s.derive.secret())
	own := s.generation(id, secret)
	switch {
	case n <= own:
		return nil
	case n-own > maxGenerations:
		return errGeneration
	}
	s.generations.Store(id, generation{secret, n})
	return nil
}

// Renew replaces the session key of id early. A derived key gets another
// generation, which other masters learn from reports.
func (s *Sessions) Renew(id string) error {
	if s.derive == nil {
		return s.Forget(id)
	}
	s.making.Lock()
	defer s.making.Unlock()
	secret := secretTag(s.derive.secret())
	s.generations.Store(id, generation{secret, s.generation(id, secret) + 1})
	return nil
}

// begin returns the start of the period in which a derived key is used.
func (s *Sessions) begin(id string) time.Time {
	if s.maxAge <= 0 {
		return time.Unix(1, 0)
	}
	h := fnv.New64a()
	h.Write([]byte(id))
	age := int64(s.maxAge)
	shift := int64(h.Sum64() % uint64(age))
	return time.Unix(0, (s.now().UnixNano()+shift)/age*age-shift)
}

// stamp identifies a version of a session file. A file that is replaced within
// a tick of the file system's clock keeps its stamp.
type stamp struct {
	mtime time.Time
	size  int64
	// generation is that of a derived key.
	generation uint32
}

// errUnusable is the error of a key that must be created again.
var errUnusable = errors.New("too old or damaged")

// Get returns the session key of id. It creates one if there is none, or if it
// is too old or damaged.
func (s *Sessions) Get(id string) (key string, st stamp, err error) {
	if err := salt.CheckID(id); err != nil {
		return "", stamp{}, err
	}
	if s.derive != nil {
		return s.derived(id)
	}
	if key, st, err = s.read(id); !replaceable(err) {
		return key, st, err
	}
	s.making.Lock()
	defer s.making.Unlock()
	if key, st, err = s.read(id); !replaceable(err) {
		return key, st, err
	}
	path, now := filepath.Join(s.dir, id), s.now()
	key = crypt.NewKey()
	err = atomicfile.Write(path, []byte(key), 0o600, false)
	switch {
	case s.made == nil && err != nil:
		return "", stamp{}, fmt.Errorf("session key of %s: %w", id, err)
	case err != nil:
		s.made.Store(id, unwritten{key, now})
		return s.read(id)
	case s.made != nil:
		s.made.Store(id, nil)
	}
	// Its age is measured with our clock, not that of a file server.
	if err := os.Chtimes(path, now, now); err != nil {
		return "", stamp{}, fmt.Errorf("session key of %s: %w", id, err)
	}
	// Use the stored key: another master may have been faster.
	return s.read(id)
}

// replaceable distinguishes errors that a new key fixes from errors such as too
// many open files, for which a valid key must not be discarded.
func replaceable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, errUnusable)
}

// stat returns the state of id's file; it fails if there is none or the key in
// it is too old or must not be trusted.
func (s *Sessions) stat(id string) (stamp, error) {
	if s.derive != nil {
		secret := s.derive.secret()
		return derivedStamp(secret, s.begin(id), s.generation(id, secretTag(secret))), nil
	}
	if u, ok := s.inMemory(id); ok {
		if age := s.now().Sub(u.at); s.maxAge > 0 && (age > s.maxAge || age < -s.maxAge) {
			return stamp{}, errUnusable
		}
		return stamp{mtime: u.at, size: int64(len(u.key))}, nil
	}
	fi, err := os.Stat(filepath.Join(s.dir, id))
	if err != nil {
		return stamp{}, err
	}
	// The time of the file is not reliable: file systems round it, and clocks are
	// set.
	if s.made != nil {
		if _, own := s.made.Load(id); !own {
			return stamp{}, errUnusable
		}
	}
	// A time in the future means that the clock was set back, which must not extend
	// the life of a key.
	if age := s.now().Sub(fi.ModTime()); s.maxAge > 0 && (age > s.maxAge || age < -s.maxAge) {
		return stamp{}, errUnusable
	}
	return stamp{mtime: fi.ModTime(), size: fi.Size()}, nil
}

func (s *Sessions) read(id string) (string, stamp, error) {
	st, err := s.stat(id)
	if err != nil {
		return "", stamp{}, err
	}
	if u, ok := s.inMemory(id); ok {
		return u.key, st, nil
	}
	b, err := os.ReadFile(filepath.Join(s.dir, id))
	if err != nil {
		return "", stamp{}, err
	}
	key := strings.TrimSpace(string(b))
	if _, err := crypt.NewCrypticle(key); err != nil {
		return "", stamp{}, errUnusable
	}
	return key, st, nil
}

// Forget removes the session key of id; a minion whose key was deleted must not
// be able to decrypt later messages.
func (s *Sessions) Forget(id string) error {
	if err := salt.CheckID(id); err != nil {
		return err
	}
	if s.made != nil {
		s.made.Delete(id)
	}
	if err := os.Remove(filepath.Join(s.dir, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the session key of %s: %w", id, err)
	}
	return nil
}
