package api

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/steady"
)

// sessionTime is how long a browser keeps the session cookie after its last
// request.
const sessionTime = 10 * time.Hour

// session is the data of a session id.
type session struct {
	Token  string  `json:"token"` // token of the master
	Expire float64 `json:"expire"`
	User   string  `json:"user"`
	// Start is the time of the login in Unix seconds, From the client's address.
	Start float64 `json:"start,omitempty"`
	From  string  `json:"from,omitempty"`
	// Forgery is the token against request forgery of a session that the console has started: a
	// request that changes something and is authenticated by the cookie must have it in a header.
	// Such sessions end when their user is idle. Other sessions have none.
	Forgery string `json:"csrf,omitempty"`

	// used is the time of the last request of the user in Unix nanoseconds; stamped is the value
	// of used in the time stamp of the file, which a restart reads.
	used, stamped atomic.Int64
}

// sessions stores sessions in files, so that they survive a restart. The name of a file is
// a hash of the session id; the id itself is not stored.
type sessions struct {
	dir string
	now func() time.Time
	// steady is the time by which sessions are removed.
	steady *steady.Clock
	// idle is the time without a request of the user after which a session of the console ends;
	// 0: never.
	idle time.Duration

	mu    sync.Mutex
	known map[string]*session // by hash of the id
}

// maxKnown bounds the sessions in memory; the others are read from disk.
const maxKnown = 10000

func openSessions(dir string, idle time.Duration) (*sessions, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the directory of sessions: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot close the directory of sessions to others: %w", err)
	}
	s := &sessions{dir: dir, now: time.Now, idle: idle, known: map[string]*session{}}
	s.steady = steady.New(func() time.Time { return s.now() })
	return s, nil
}

// newID returns a new session id.
func newID() string {
	var b [20]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func hashed(id string) string {
	h := sha256.Sum256([]byte(id))
	return hex.EncodeToString(h[:])
}

// add stores a session under a new id.
func (s *sessions) add(of *session) (id string, err error) {
	id = newID()
	of.used.Store(s.now().UnixNano())
	of.stamped.Store(of.used.Load())
	b, err := json.Marshal(of)
	if err == nil {
		err = atomicfile.Create(filepath.Join(s.dir, hashed(id)), b, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("cannot store a session: %w", err)
	}
	s.remember(hashed(id), of)
	return id, nil
}

func (s *sessions) remember(name string, of *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[name] = of
}

// get returns the valid session with an id, or nil.
func (s *sessions) get(id string) *session {
	if len(id) != 40 {
		return nil
	}
	name := hashed(id)
	s.mu.Lock()
	of := s.known[name]
	s.mu.Unlock()
	if of == nil {
		if of = s.read(name); of == nil {
			return nil
		}
		s.remember(name, of)
	}
	if !of.goodAt(s.now()) {
		if !of.goodAt(s.steady.Removal()) {
			s.drop(id)
		}
		return nil
	}
	if s.isIdle(of, s.now()) {
		return nil // endIdle removes it
	}
	return of
}

// goodAt reports whether a session has not expired.
func (of *session) goodAt(t time.Time) bool { return of.Expire >= float64(t.UnixNano())/1e9 }

// read reads a session from its file, nil if there is none or it is damaged.
func (s *sessions) read(name string) *session {
	path := filepath.Join(s.dir, name)
	b, err := os.ReadFile(path)
	of := &session{}
	if err != nil || json.Unmarshal(b, of) != nil || of.Token == "" {
		return nil
	}
	if fi, err := os.Stat(path); err == nil {
		of.used.Store(fi.ModTime().UnixNano())
		of.stamped.Store(of.used.Load())
	}
	return of
}

// stampTime is the interval in which the use of a session is written to its file.
const stampTime = time.Minute

// use records a request of the user.
func (s *sessions) use(id string, of *session) {
	now := s.steady.Late()
	of.used.Store(now.UnixNano())
	if s.idle == 0 || of.Forgery == "" || now.UnixNano()-of.stamped.Load() < int64(stampTime) {
		return
	}
	of.stamped.Store(now.UnixNano())
	_ = os.Chtimes(filepath.Join(s.dir, hashed(id)), now, now) // after a restart it would end earlier
}

// isIdle reports whether a session has ended at a time because its user did nothing.
func (s *sessions) isIdle(of *session, now time.Time) bool {
	return s.idle > 0 && of.Forgery != "" && now.UnixNano()-of.used.Load() > int64(s.idle)
}

// endIdle ends the sessions whose users did nothing for too long, and returns them.
func (s *sessions) endIdle() ([]namedSession, error) {
	all, err := s.all()
	now := s.steady.Removal()
	ended := slices.DeleteFunc(all, func(n namedSession) bool { return !s.isIdle(n.session, now) })
	for _, n := range ended {
		s.end(n.name)
	}
	return ended, err
}

// drop ends the session with an id.
func (s *sessions) drop(id string) { s.end(hashed(id)) }

// end ends a session by the hash of its id.
func (s *sessions) end(name string) {
	s.mu.Lock()
	delete(s.known, name)
	s.mu.Unlock()
	os.Remove(filepath.Join(s.dir, name))
}

// sweep removes expired sessions.
func (s *sessions) sweep() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	now := s.steady.Removal()
	for _, e := range entries {
		p := filepath.Join(s.dir, e.Name())
		b, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		of := &session{}
		if json.Unmarshal(b, of) == nil && of.goodAt(now) {
			continue
		}
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// namedSession is a session with the hash of its id.
type namedSession struct {
	name string
	*session
}

// all returns the sessions that have not expired, those that expire first at the front.
func (s *sessions) all() ([]namedSession, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	at := float64(s.now().UnixNano()) / 1e9
	var out []namedSession
	for _, e := range entries {
		s.mu.Lock()
		of := s.known[e.Name()]
		s.mu.Unlock()
		if of == nil {
			of = s.read(e.Name())
		}
		if of == nil || of.Expire < at {
			continue // removed since, damaged or expired
		}
		out = append(out, namedSession{e.Name(), of})
	}
	slices.SortFunc(out, func(a, b namedSession) int {
		return cmp.Or(cmp.Compare(a.Expire, b.Expire), cmp.Compare(a.name, b.name))
	})
	return out, nil
}
