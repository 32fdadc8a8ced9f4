package master

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/call/audit"
	"brine/internal/catalogue/runners"
	"brine/internal/net/remote"
	pyjson "brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/store/consoledb"
	"brine/internal/store/lastrun"
	"brine/internal/store/returner"
	"brine/internal/store/shared"
)

// consoleStore exchanges what consoles show with a PostgreSQL server, which several masters use (console_store): what
// users saved, audit records, and runs of states. The master's own files stay complete: what it shows does not depend on
// the server. A nil *consoleStore does nothing.
type consoleStore struct {
	id, name string // of this master, and the value of the option
	db       *consoledb.Store
	waiting  *returner.Outbox // audit records
	saved    *shared.Store
	runs     *lastrun.Store
	approval *approvals // set before run
	keep     time.Duration
	timeout  time.Duration
	log      *ratelimit.Log

	mu      sync.Mutex
	usage   []consoledb.Usage
	problem error
	since   time.Time // of the problem
}

const (
	// consoleEvery is the interval in which what users saved is exchanged, consoleRunsEvery that of runs: a minion that
	// returns more often does not fill the database.
	consoleEvery, consoleRunsEvery = time.Second, 5 * time.Second
	// consoleUsageEvery is the interval in which the tables are measured, consoleCleanEvery that of removing old rows.
	consoleUsageEvery, consoleCleanEvery = 5 * time.Minute, time.Hour
	// consoleCompareEvery is the interval in which everything is compared, and consoleMaxPause the longest pause after failures.
	consoleCompareEvery, consoleMaxPause = time.Hour, 4 * time.Second
	// consoleAtOnce bounds the rows of one transaction, maxConsoleSeen the runs of which this master knows that they are stored.
	consoleAtOnce, maxConsoleSeen = 100, 200_000
	// consoleAnswer bounds the time for an answer to a console.
	consoleAnswer = 3 * time.Second
)

// openConsoleStore opens the server of the option console_store; nil without it.
func openConsoleStore(cfg *Config, own string, saved *shared.Store, runs *lastrun.Store, log *slog.Logger) (*consoleStore, error) {
	o := &cfg.Options
	if o.ConsoleStore == "" {
		return nil, nil
	}
	db, err := consoledb.Open(o.ConsoleStore, remote.Options(cfg.Opts), cfg.Returners.Timeout)
	if err != nil {
		return nil, salt.Errorf(salt.KindOf(err), "console_store: %w", err)
	}
	c := &consoleStore{
		id: cfg.ID, name: o.ConsoleStore, db: db, saved: saved, runs: runs, keep: time.Duration(o.ConsoleDays) * 24 * time.Hour, timeout: cfg.Returners.Timeout,
		log: ratelimit.NewLog(log, 1, time.Minute),
	}
	if c.waiting, err = returner.OpenOutbox(filepath.Join(own, "outbox.console_store"), "console_store", c.timeout, c.deliver, log); err != nil {
		db.Close()
		return nil, err
	}
	return c, nil
}

// approvals returns the table of jobs that wait for approval; nil without a server.
func (c *consoleStore) approvals(a *approvals, proofs approvalProofs) *approvalTable {
	if c == nil {
		return nil
	}
	c.approval = a
	return &approvalTable{db: c.db, proofs: proofs, timeout: c.timeout, log: c.log, rows: map[string]consoledb.Approval{}}
}

// close closes the connections. run must have ended.
func (c *consoleStore) close() {
	if c != nil {
		c.waiting.Close()
		c.db.Close()
	}
}

// add queues an audit record, as it is in the master's own file.
func (c *consoleStore) add(d *value.Dict, end audit.End) {
	if c != nil {
		end.Set(d)
		c.waiting.Put(consoledb.Queued(d))
	}
}

// deliver stores an audit record.
func (c *consoleStore) deliver(ctx context.Context, d *value.Dict) error {
	return c.db.Deliver(ctx, c.id, d)
}

// found returns the newest audit records that match, by master.
func (c *consoleStore) found(ctx context.Context, q audit.Query) (map[string][]*value.Dict, error) {
	ctx, cancel := context.WithTimeout(ctx, consoleAnswer)
	defer cancel()
	out, n, match := map[string][]*value.Dict{}, 0, q.Matcher()
	err := c.db.EachAudit(ctx, func(master, text string) bool {
		v, err := pyjson.Load(text)
		if d, ok := v.(*value.Dict); err == nil && ok && match(d) && n < min(max(q.Limit, 0), audit.MaxRecords) {
			out[master] = append(out[master], d)
			n++
		}
		return n < q.Limit
	})
	return out, err
}

// copies returns the copies of this master's newest audit records.
func (c *consoleStore) copies(ctx context.Context) (out []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, consoleAnswer)
	defer cancel()
	err = c.db.EachAudit(ctx, func(master, text string) bool {
		if master == c.id {
			out = append(out, text)
		}
		return true
	})
	return out, err
}

// consoleState is what an exchange has done. After a failure, and once an hour, everything is compared again: the server
// may have been replaced, its data restored, or rows changed by others.
type consoleState struct {
	began    time.Time           // of the comparison of everything
	version  int64               // of the saved records that were read
	stored   map[string][32]byte // hashes of the saved records on the server, by id
	revision string              // of the saved records of this master that were written

	learned bool // the last runs were read
	place   consoledb.Place
	written uint64          // number of the last change of the runs that was written
	seen    map[string]bool // runs that are on the server

	lastRuns, lastUsage, lastClean time.Time
}

// newConsoleState returns a state in which everything is compared. The times of what is done by time stay.
func newConsoleState(old *consoleState) *consoleState {
	st := &consoleState{began: time.Now(), stored: map[string][32]byte{}, seen: map[string]bool{}}
	if old != nil {
		st.lastClean, st.lastUsage = old.lastClean, old.lastUsage
	}
	return st
}

// run exchanges until ctx ends.
func (c *consoleStore) run(ctx context.Context) error {
	if c == nil {
		return nil
	}
	var delivering sync.WaitGroup
	delivering.Go(func() { c.waiting.Run(ctx) })
	delivering.Go(func() { c.approval.runTable(ctx) })
	defer delivering.Wait()
	tick := time.NewTicker(consoleEvery)
	defer tick.Stop()
	var st *consoleState
	var pause time.Duration // after failures
	for {
		if st == nil || time.Since(st.began) >= consoleCompareEvery {
			st = newConsoleState(st)
		}
		err := c.exchange(ctx, st)
		if ctx.Err() != nil {
			return nil
		}
		pause = min(2*pause, consoleMaxPause)
		if err == nil {
			pause = 0
		} else {
			st, pause = newConsoleState(st), max(pause, consoleEvery)
			c.log.Log(slog.LevelWarn, "cannot exchange saved items and runs of states with the console_store; retrying", "err", err)
		}
		c.note(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (c *consoleStore) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if (err == nil) != (c.problem == nil) {
		c.since = time.Now()
	}
	c.problem = err
}

// exchange reads and writes what has changed.
func (c *consoleStore) exchange(ctx context.Context, st *consoleState) error {
	if err := c.exchangeSaved(ctx, st); err != nil {
		return err
	}
	now := time.Now()
	if now.Sub(st.lastRuns) >= consoleRunsEvery {
		st.lastRuns = now
		if err := c.readRuns(ctx, st); err != nil {
			return err
		}
		if err := c.writeRuns(ctx, st); err != nil {
			return err
		}
	}
	if now.Sub(st.lastClean) >= consoleCleanEvery {
		st.lastClean = now
		if err := c.timed(ctx, func(ctx context.Context) error { return c.db.Clean(ctx, c.keep, steady.Removal()) }); err != nil {
			return err
		}
	}
	if now.Sub(st.lastUsage) >= consoleUsageEvery {
		st.lastUsage = now
		return c.timed(ctx, func(ctx context.Context) error {
			u, err := c.db.Usage(ctx)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.usage = u
			return err
		})
	}
	return nil
}

// timed bounds a request. Those over whole tables get more time.
func (c *consoleStore) timed(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 6*c.timeout)
	defer cancel()
	return do(ctx)
}

// consoleKinds reports whether records of a kind are exchanged. Approvals have a table of their own.
func consoleKinds(kind string) bool { return kind != kindApproval }

// exchangeSaved reads and writes what users saved. Of two versions of a record the store decides which one counts, as it
// does for hot masters.
func (c *consoleStore) exchangeSaved(ctx context.Context, st *consoleState) error {
	ctx, cancel := context.WithTimeout(ctx, 6*c.timeout)
	defer cancel()
	have := st.revision
	var take []string
	merge := func() error {
		if len(take) == 0 {
			return nil
		}
		have = "" // the server may have got an older version than this master has
		err := c.saved.Merge(take)
		take = take[:0]
		return err
	}
	version, err := c.db.EachSaved(ctx, st.version, func(id, text string) error {
		var r shared.Record
		if json.Unmarshal([]byte(text), &r) != nil || !consoleKinds(r.Kind) || !shared.ValidID(r.ID) || r.ID != id {
			delete(st.stored, id) // not ours, or damaged: what this master has replaces it
			have = ""
			return nil
		}
		st.stored[r.ID] = sha256.Sum256([]byte(text))
		if take = append(take, text); len(take) < consoleAtOnce {
			return nil
		}
		return merge()
	})
	if err != nil {
		return err
	}
	if err := merge(); err != nil {
		return err
	}
	revision, own, err := c.saved.Export(have)
	if err != nil {
		return err
	}
	st.version = version
	var put []consoledb.Saved
	for _, text := range own {
		var r shared.Record
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return err
		}
		if consoleKinds(r.Kind) && st.stored[r.ID] != sha256.Sum256([]byte(text)) {
			put = append(put, consoledb.Saved{ID: r.ID, Kind: r.Kind, Owner: r.Owner, Name: r.Name, Deleted: r.Deleted, Record: text})
		}
	}
	for some := range slices.Chunk(put, consoleAtOnce) {
		if err := c.db.PutSaved(ctx, some); err != nil {
			return err
		}
		for _, r := range some {
			st.stored[r.ID] = sha256.Sum256([]byte(r.Record))
		}
	}
	st.revision = revision
	return nil
}

// readRuns learns the runs that other masters have stored: at first the last ones of each minion, then what is new.
func (c *consoleStore) readRuns(ctx context.Context, st *consoleState) error {
	ctx, cancel := context.WithTimeout(ctx, 12*c.timeout)
	defer cancel()
	pages, place := c.db.RunsSince, st.place
	if !st.learned {
		newest, err := c.db.NewestRun(ctx)
		if err != nil {
			return err
		}
		pages, st.place = c.db.LastRuns, newest
	}
	for more := true; more; {
		var err error
		if place, more, err = pages(ctx, place, func(r consoledb.Run) {
			c.saw(st, r.Minion, r.JID, r.Test)
			if err := c.runs.Learn([]byte(r.Record)); err != nil {
				c.log.Log(slog.LevelWarn, "ignoring a damaged run of states in the console_store", "id", fmt.Sprintf("%.100s", r.Minion), "err", err)
			}
		}); err != nil {
			return err
		}
	}
	if st.learned {
		st.place = place
	}
	st.learned = true
	return nil
}

func seenRun(minion, jid string, test bool) string { return fmt.Sprint(minion, " ", jid, " ", test) }

func (c *consoleStore) saw(st *consoleState, minion, jid string, test bool) {
	if len(st.seen) >= maxConsoleSeen {
		clear(st.seen) // what is written again changes nothing
	}
	st.seen[seenRun(minion, jid, test)] = true
}

// writeRuns stores the runs that this master has learned from minions.
func (c *consoleStore) writeRuns(ctx context.Context, st *consoleState) error {
	ctx, cancel := context.WithTimeout(ctx, 12*c.timeout)
	defer cancel()
	for more := true; more; {
		runs, next, rest, err := c.runs.Singles(st.written, consoleAtOnce, func(minion string, r *lastrun.Run) bool {
			return st.seen[seenRun(minion, r.JID, r.Test)]
		})
		if err != nil {
			return err
		}
		put := make([]consoledb.Run, len(runs))
		for i, s := range runs {
			put[i] = consoledb.Run{Past: s.Run.Past(s.Minion), Record: string(s.Shared)}
		}
		if len(put) > 0 {
			if err := c.db.PutRuns(ctx, put); err != nil {
				return err
			}
		}
		for _, r := range put {
			c.saw(st, r.Minion, r.JID, r.Test)
		}
		st.written, more = next, rest
	}
	return nil
}

// rows describes the tables for consoles.
func (c *consoleStore) rows() (out []runners.StoreRow) {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	usage := c.usage
	if len(usage) == 0 { // not measured yet
		usage = []consoledb.Usage{{Name: "audit", Count: -1}, {Name: "states", Count: -1}, {Name: "saved", Count: -1}}
	}
	for _, u := range usage {
		r := runners.StoreRow{Name: u.Name, Driver: "console_store: " + c.name, Bytes: u.Bytes, Count: u.Count, Oldest: u.Oldest, Keep: c.keep}
		if u.Name == "saved" {
			r.Limit = "2,000 records"
		}
		problem, since := c.problem, c.since
		if u.Name == "audit" {
			s := c.waiting.Status()
			r.Waiting = int64(s.Waiting)
			if s.Unreachable != nil {
				problem, since = s.Unreachable, s.Since
			}
		}
		if problem != nil {
			r.Problem = fmt.Sprintf("unreachable since %s: %.300s", since.UTC().Format(time.RFC3339), problem)
		}
		out = append(out, r)
	}
	return out
}
