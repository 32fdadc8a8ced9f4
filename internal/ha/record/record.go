// Package record keeps the state that masters replicate on a server that they use together: the
// store of record. A master whose disk is lost gets everything from there.
//
// The server is a passive peer of the masters (package oplog). It has the changes of each origin that
// still count, and the number up to which it has all of them. Each master writes its own changes
// there, also those of others that have not done so for a while, and applies all changes that it
// lacks by the rules for those of other masters. A transaction writes the changes after a number only
// if the server has all up to that number, so that no number is used twice and none is left out.
//
// Nothing waits for the server. A master decides with its own disk, and writes later what the server
// lacks. A server that was emptied, or restored from a backup, lacks changes like any peer that was
// unreachable, and gets them from any master that has them.
//
// All rows are encrypted and authenticated with keys derived from a secret in the configuration.
package record

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/net/remote"
	"brine/internal/net/remote/rows"
	"brine/internal/store/oplog"
)

// requestTime is the timeout of a request.
const requestTime = 5 * time.Second

// times are the times of the exchange with the server.
type times struct {
	// poll is the time between looks for changes of other masters, and pause the time after an error
	// before the next attempt.
	poll, pause time.Duration
	// hearsay is how long the server may lack changes of another master before this one writes them.
	hearsay time.Duration
	// audit is the time between comparisons of all rows with what this master has, and full the time
	// between those that read all contents.
	audit, full time.Duration
	// stuck is the time between attempts to read a row that could not be read.
	stuck time.Duration
	// sweepRenew is the time between changes of the sweep row by the master that sweeps. The row of a
	// dead master counts for sweepOver for one that can continue its work, and for sweepGone for any
	// other one, in which case outdated entries may stay.
	sweepRenew, sweepOver, sweepGone time.Duration
}

var usual = times{
	poll: 500 * time.Millisecond, pause: time.Second, hearsay: 2 * time.Second, audit: 10 * time.Minute, full: 24 * time.Hour, stuck: 10 * time.Second,
	sweepRenew: 5 * time.Second, sweepOver: 30 * time.Second, sweepGone: 10 * time.Minute,
}

// MinSecret is the minimum number of hexadecimal digits of the secret: a reader of the server can
// guess offline.
const MinSecret = 32

// CheckSecret returns an error for a secret that could be guessed.
func CheckSecret(secret string) error {
	if len(secret) < MinSecret || strings.Trim(secret, "0123456789abcdefABCDEF") != "" {
		return salt.Errorf(salt.Invalid, "store_of_record_secret must have at least %d hexadecimal digits, the same on all masters: it encrypts what they "+
			"store there. Create one with openssl rand -hex 32", MinSecret)
	}
	return nil
}

// Store is a master's connection to the store of record.
type Store struct {
	engine  string
	id      string // of this master
	rows    rows.Store
	top     rows.Store // the rows of all secrets of the cluster
	seal    *sealer
	log     *slog.Logger
	limited *limitlog.Log
	times   times

	mu        sync.Mutex
	followers map[string]*follower
	excluded  func() bool
	foreign   error // why this store may not be used
	checked   bool
}

// Config is the configuration of a Store.
type Config struct {
	// Engine is the kind of the server, Options the connection.
	Engine  string
	Options remote.Source
	// Cluster is the name of the cluster, ID the id of this master.
	Cluster, ID string
	Secret      string
	Log         *slog.Logger
}

// Open prepares the connection. It does not connect.
func Open(c Config) (*Store, error) {
	if err := CheckSecret(c.Secret); err != nil {
		return nil, err
	}
	seal, err := newSealer(strings.ToLower(c.Secret), c.Cluster)
	if err != nil {
		return nil, err
	}
	top := "/salt_record/" + escape(c.Cluster) + "/"
	s := &Store{engine: c.Engine, id: c.ID, seal: seal, log: c.Log, limited: limitlog.New(c.Log), times: usual,
		followers: map[string]*follower{}}
	if s.rows, err = openBounded(c.Engine, c.Options, top+seal.id+"/"); err != nil {
		return nil, salt.Errorf(salt.Invalid, "store_of_record: %w", err)
	}
	if s.top, err = openBounded(c.Engine, c.Options, top); err != nil {
		return nil, err
	}
	return s, nil
}

// bounded gives each request a timeout.
type bounded struct{ rows.Store }

func openBounded(engine string, src remote.Source, under string) (rows.Store, error) {
	s, err := rows.Open(engine, src, under, requestTime)
	if err != nil {
		return nil, err
	}
	return bounded{s}, nil
}

func (b bounded) Get(ctx context.Context, names ...string) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	return b.Store.Get(ctx, names...)
}

func (b bounded) Scan(ctx context.Context, prefix, after string, limit int, values bool) ([]rows.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	return b.Store.Scan(ctx, prefix, after, limit, values)
}

func (b bounded) Commit(ctx context.Context, conditions []rows.Condition, changes []rows.Change) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	return b.Store.Commit(ctx, conditions, changes)
}

// Close closes the connections.
func (s *Store) Close() error {
	if s == nil {
		return nil
	}
	s.top.Close()
	return s.rows.Close()
}

// Share adds a stream of changes. It must be called before Run, with the same names on all masters.
func (s *Store) Share(name string, stream oplog.Lister) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.followers[name] = newFollower(s, name, stream)
}

// Exclude sets the function that reports whether the records exclude this master from the cluster.
func (s *Store) Exclude(fn func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.excluded = fn
}

func (s *Store) isExcluded() bool {
	s.mu.Lock()
	fn := s.excluded
	s.mu.Unlock()
	return fn != nil && fn()
}

func (s *Store) follower(name string) *follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.followers[name]
}

// CatchUp applies all changes of a stream that the server has. It returns at the first error, or when
// ctx ends.
func (s *Store) CatchUp(ctx context.Context, name string) error {
	return s.follower(name).catchUp(ctx)
}

// Run exchanges changes with the server until ctx ends.
func (s *Store) Run(ctx context.Context) {
	s.mu.Lock()
	all := make([]*follower, 0, len(s.followers))
	for _, f := range s.followers {
		all = append(all, f)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, f := range all {
		wg.Go(func() { f.run(ctx) })
	}
	wg.Wait()
}

// Known returns the changes of a stream that the server has, as far as this master knows. ok is false
// while the server is unreachable.
func (s *Store) Known(name string) (v oplog.Vector, ok bool) {
	f := s.follower(name)
	if f == nil {
		return nil, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.have.Clone(), f.status.Problem == "" && f.have != nil
}

// Stored waits until the server has all present changes of this master, or until ctx ends.
func (s *Store) Stored(ctx context.Context) error {
	for {
		all := true
		s.mu.Lock()
		followers := make([]*follower, 0, len(s.followers))
		for _, f := range s.followers {
			followers = append(followers, f)
		}
		s.mu.Unlock()
		for _, f := range followers {
			mine, err := f.stream.Vector()
			if err != nil {
				return err
			}
			have, ok := s.Known(f.name)
			for origin, n := range mine {
				all = all && ok && have[origin] >= n
			}
		}
		if all {
			return nil
		}
		if !wait.Sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// Status is the state of the connection.
type Status struct {
	// Engine is the kind of the server.
	Engine string
	// Problem is why the server is not used at present, or "".
	Problem string
	// Since is the last successful contact.
	Since time.Time
	// Waiting is the number of changes that the server lacks, Lacking those that this master lacks, and
	// Unreadable the rows that it cannot read.
	Waiting, Lacking int64
	Unreadable       int
}

// Status returns the state of the connection: the worst of all streams.
func (s *Store) Status() Status {
	out := Status{Engine: s.engine}
	s.mu.Lock()
	followers := make([]*follower, 0, len(s.followers))
	for _, f := range s.followers {
		followers = append(followers, f)
	}
	s.mu.Unlock()
	slices.SortFunc(followers, func(a, b *follower) int { return strings.Compare(a.name, b.name) })
	for i, f := range followers {
		f.mu.Lock()
		st, have, bad := f.status, f.have.Clone(), len(f.bad)
		f.mu.Unlock()
		if out.Problem == "" {
			out.Problem = st.Problem
		}
		if i == 0 || st.Since.Before(out.Since) {
			out.Since = st.Since
		}
		out.Unreadable += bad
		mine, err := f.stream.Vector()
		if err != nil {
			continue
		}
		for origin, n := range mine {
			out.Waiting += int64(n - min(n, have[origin]))
		}
		for origin, n := range have {
			out.Lacking += int64(n - min(n, mine[origin]))
		}
	}
	return out
}

// usable returns an error if this master must not use the store.
func (s *Store) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.foreign != nil:
		return s.foreign
	case !s.checked:
		return salt.Errorf(salt.Unavailable, "the keys of the cluster there have not been compared with those of this master yet")
	}
	return nil
}

// Checked records whether the store belongs to this master's cluster. Until then nothing is exchanged.
func (s *Store) Checked(foreign error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.foreign, s.checked = foreign, true
}

// what names the server in messages.
func (s *Store) what() string { return fmt.Sprintf("the store of record (%s)", s.rows) }
