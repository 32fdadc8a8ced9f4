package lastrun

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/store/boltfile"
)

// Past is a run in a history, without its states.
type Past struct {
	Minion string    `json:"-"` // it, the job id and the kind are in the key
	JID    string    `json:"-"`
	Fun    string    `json:"f"`
	Mods   []string  `json:"m,omitempty"`
	Time   time.Time `json:"-"`
	Test   bool      `json:"-"`
	// OK, Changed, Failed and Would count states, as those of Run. Broken says that the run ended before any state.
	OK      int64 `json:"o,omitempty"`
	Changed int64 `json:"c,omitempty"`
	Failed  int64 `json:"b,omitempty"`
	Would   int64 `json:"w,omitempty"`
	Broken  bool  `json:"e,omitempty"`
	// MS is the sum of the durations of all states.
	MS float64 `json:"d,omitempty"`

	day string // of the position that ReadPlace read
}

// maxAway bounds the time between the job id of a run and its return. The clock of a minion may be wrong.
const maxAway = 30 * 24 * time.Hour

// Day returns the day of the run: that of its job id. A run has it also when it is read again from the job store.
func (p *Past) Day() string {
	if p.day != "" {
		return p.day
	}
	if at, err := salt.JIDTime(p.JID); err == nil && p.Time.Sub(at).Abs() < maxAway {
		return DayOf(at)
	}
	return DayOf(p.Time)
}

// Outcome returns what the run did: Failed, Drift, Changed or Clean, the worst of it.
func (p *Past) Outcome() string {
	switch {
	case p.Broken || p.Failed > 0:
		return Failed
	case p.Would > 0:
		return Drift
	case p.Changed > 0:
		return Changed
	}
	return Clean
}

// Past returns what a history has of a run.
func (r *Run) Past(minion string) Past {
	p := Past{Minion: minion, JID: r.JID, Fun: cut(r.Fun), Mods: r.Mods[:min(len(r.Mods), maxPastMods)], Time: r.Time, Test: r.Test,
		OK: r.OK, Changed: r.Changed, Failed: r.Failed, Would: r.Would, Broken: r.Broken, MS: r.MS}
	if y := p.Time.Year(); y < 1970 || y > 2200 {
		p.Time = time.Now().UTC()
	}
	return p
}

// Day has the number of runs of a day (of UTC) by their outcomes.
type Day struct {
	Day     string `json:"-"` // such as 2026-03-01
	Failed  int64  `json:"f"`
	Drift   int64  `json:"d"`
	Changed int64  `json:"c"`
	Clean   int64  `json:"o"`
}

func (d *Day) add(outcome string) {
	switch outcome {
	case Failed:
		d.Failed++
	case Drift:
		d.Drift++
	case Changed:
		d.Changed++
	default:
		d.Clean++
	}
}

// Query selects runs: those of a minion, the newest first, or else those of a day by the ids of minions.
type Query struct {
	Minion, Day string
	Outcome     string // "" for all
	// After is where the next page begins: Place of the last run of the page before.
	After string
	Limit int
}

// DayLayout is the form of a day.
const DayLayout = "2006-01-02"

// DayOf returns the day of a time.
func DayOf(t time.Time) string { return t.UTC().Format(DayLayout) }

// Place returns the position of a run for Query.After.
func (p *Past) Place() string { return p.Day() + "/" + p.JID + "/" + p.kind() + "/" + p.Minion }

func (p *Past) kind() string {
	if p.Test {
		return "t"
	}
	return "a"
}

// ReadPlace reads a position.
func ReadPlace(s string) (p Past, err error) {
	parts := strings.SplitN(s, "/", 4)
	if len(parts) == 4 {
		p = Past{Minion: parts[3], JID: parts[1], Test: parts[2] == "t", day: parts[0]}
		if _, err = time.Parse(DayLayout, p.day); err == nil && salt.ValidJID(p.JID) && p.Place() == s {
			return p, nil
		}
	}
	return p, salt.Errorf(salt.Invalid, "%.80q is no position in the history: take that of the page before", s)
}

// Bounds of a history.
const (
	maxPastMods = 5
	// maxPast bounds the stored runs of all days, maxPastOfDay those of a minion on a day. Days count all.
	maxPast, maxPastOfDay = 1_000_000, 300
	// maxPending bounds the runs that are not in the file yet, maxPage those of an answer.
	maxPending, maxPage = 200_000, 1000
	// pastAtOnce bounds the runs of one transaction.
	pastAtOnce = 20_000
	// pastLock is how long to wait for another process that has the file open.
	pastLock = time.Second
)

// History has the outcomes of the runs of states of all minions, for some time: each run without its states, and how many there were on each
// day. It is a file, which is created with the first run. Runs are written now and then (Flush): what a crash loses is in the job store.
type History struct {
	path    string
	most    int64
	mu      sync.Mutex
	pending []Past
	lost    int

	flush sync.Mutex // held by Flush; locked before the others
	file  sync.Mutex // held while db is used
	db    *boltfile.File
}

// OpenHistory returns the history in a file.
func OpenHistory(path string) *History { return &History{path: path, most: maxPast} }

var (
	runsBucket = []byte("runs") // by day, minion, job id and kind: the first letter of the outcome, and a Past as JSON
	daysBucket = []byte("days") // by day: storedDay
)

// storedDay is a Day with the number of its runs that are stored.
type storedDay struct {
	Day
	Runs int64 `json:"n"`
}

// add notes a run. A nil *History does nothing.
func (h *History) add(minion string, r *Run) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pending) >= maxPending {
		h.lost++
		return
	}
	h.pending = append(h.pending, r.Past(minion))
}

// has reports whether the file has a run of a minion. at is when it was returned.
func (h *History) has(minion, jid string, at time.Time) (found bool) {
	if err := h.view(false, func(_, runs *bolt.Bucket) error {
		for _, test := range []bool{false, true} {
			p := Past{Minion: minion, JID: jid, Time: at, Test: test}
			found = found || runs.Get(p.key()) != nil
		}
		return nil
	}); err != nil {
		return true // it cannot be stored now
	}
	return found
}

// errDamaged is the error if the content of the file is damaged.
var errDamaged = errors.New("the history of runs of states is damaged")

// open opens the file. h.file is held.
func (h *History) open() error {
	if h.db != nil {
		return nil
	}
	if err := atomicfile.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return err
	}
	db, err := boltfile.Open(h.path, bolt.Options{Timeout: pastLock, FreelistType: bolt.FreelistMapType})
	if err != nil {
		var p *fs.PathError
		if errors.Is(err, berrors.ErrTimeout) || errors.As(err, &p) {
			return fmt.Errorf("cannot open %s: %w", h.path, err)
		}
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	h.db = db
	return nil
}

// use calls do with the open file. A damaged file is moved aside: it is a record for people, which no work depends on. bbolt panics on invalid
// pages, and a page that the disk cannot read is a memory fault.
func (h *History) use(do func(*boltfile.File) error) (err error) {
	h.file.Lock()
	defer h.file.Unlock()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errDamaged, r)
		}
		if errors.Is(err, errDamaged) {
			err = errors.Join(err, h.replace())
		}
	}()
	if err := h.open(); err != nil {
		return err
	}
	return do(h.db)
}

// replace moves a damaged file aside. h.file is held.
func (h *History) replace() error {
	h.db = nil                                  // not closed: that may panic, too
	err := os.Rename(h.path, h.path+".damaged") // rename: the file is damaged, and nothing depends on it
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Close writes what is pending, and closes the file.
func (h *History) Close() error {
	if h == nil {
		return nil
	}
	err := h.Flush()
	h.file.Lock()
	defer h.file.Unlock()
	if h.db != nil {
		err = errors.Join(err, h.db.Close())
		h.db = nil
	}
	return err
}

// Flush writes the pending runs to the file. They stay pending if that fails.
func (h *History) Flush() error {
	h.flush.Lock()
	defer h.flush.Unlock()
	for {
		h.mu.Lock()
		some := h.pending[:min(len(h.pending), pastAtOnce)]
		h.mu.Unlock()
		if len(some) == 0 {
			return nil
		}
		err := h.use(func(db *boltfile.File) error {
			return db.Update(func(tx *bolt.Tx) error { return write(tx, some) })
		})
		if err != nil {
			return fmt.Errorf("cannot write the history of runs of states: %w", err)
		}
		h.mu.Lock()
		lost := h.lost
		h.pending, h.lost = h.pending[len(some):], 0
		h.mu.Unlock()
		if lost > 0 {
			return fmt.Errorf("the history of runs of states lacks %d runs, since it could not be written", lost)
		}
	}
}

// key returns the key of a run.
func (p *Past) key() []byte { return append(prefix(p.Day(), p.Minion), p.JID+p.kind()...) }

// prefix returns the beginning of the keys of a minion on a day. Neither a day nor an id has a zero byte.
func prefix(day, minion string) []byte { return []byte(day + "\x00" + minion + "\x00") }

// write writes runs.
func write(tx *bolt.Tx, runs []Past) error {
	b, err := tx.CreateBucketIfNotExists(runsBucket)
	if err != nil {
		return err
	}
	days, err := tx.CreateBucketIfNotExists(daysBucket)
	if err != nil {
		return err
	}
	changed := map[string]*storedDay{}
	// In the order of the keys, so that pages are full.
	b.FillPercent = 0.9
	type keyed struct {
		key []byte
		Past
	}
	sorted := make([]keyed, len(runs))
	for i, p := range runs {
		sorted[i] = keyed{p.key(), p}
	}
	slices.SortFunc(sorted, func(a, b keyed) int { return bytes.Compare(a.key, b.key) })
	for _, x := range sorted {
		p, name := x.Past, x.Day()
		if salt.CheckID(p.Minion) != nil || b.Get(x.key) != nil {
			continue // after a start a run may come again from the job store
		}
		if changed[name] == nil {
			d, err := readDay(name, days.Get([]byte(name)))
			if err != nil {
				return err
			}
			changed[name] = d
		}
		d := changed[name]
		d.add(p.Outcome())
		text, err := json.Marshal(storedPast{p, p.Time.UnixMilli()})
		if err != nil {
			return err
		}
		n := 0
		c, begin := b.Cursor(), prefix(name, p.Minion)
		for k, _ := c.Seek(begin); bytes.HasPrefix(k, begin) && n < maxPastOfDay; k, _ = c.Next() {
			n++
		}
		if n >= maxPastOfDay {
			continue
		}
		if err := b.Put(x.key, append([]byte{p.Outcome()[0], p.Outcome()[1]}, text...)); err != nil {
			return err
		}
		d.Runs++
	}
	for name, d := range changed {
		if err := putDay(days, name, d); err != nil {
			return err
		}
	}
	return nil
}

// storedPast is a Past with its time in milliseconds.
type storedPast struct {
	Past
	At int64 `json:"t"`
}

// readPast reads a run from its key and its value.
func readPast(k, v []byte) (Past, error) {
	var p storedPast
	parts := strings.Split(string(k), "\x00")
	err := json.Unmarshal(v[2:], &p)
	if err != nil || len(parts) != 3 || parts[2] == "" {
		return p.Past, fmt.Errorf("%w: run %.200q: %w", errDamaged, k, err)
	}
	last := len(parts[2]) - 1
	p.Minion, p.JID, p.Test, p.Time = parts[1], parts[2][:last], parts[2][last] == 't', time.UnixMilli(p.At).UTC()
	return p.Past, nil
}

func readDay(name string, text []byte) (*storedDay, error) {
	d := &storedDay{}
	if text != nil {
		if err := json.Unmarshal(text, d); err != nil {
			return nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	d.Day.Day = name
	return d, nil
}

func putDay(days *bolt.Bucket, name string, d *storedDay) error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return days.Put([]byte(name), text)
}

// view reads the file, with what is pending if flush is set. Without a file do is not called.
func (h *History) view(flush bool, do func(days, runs *bolt.Bucket) error) error {
	if h == nil {
		return salt.Errorf(salt.Unavailable, "only a running master has a history of runs of states")
	}
	if flush {
		if err := h.Flush(); err != nil {
			return err
		}
	}
	if _, err := os.Stat(h.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return h.use(func(db *boltfile.File) error {
		return db.View(func(tx *bolt.Tx) error {
			days, runs := tx.Bucket(daysBucket), tx.Bucket(runsBucket)
			if days == nil || runs == nil {
				return nil
			}
			return do(days, runs)
		})
	})
}

// Days returns the days with runs since a time, the oldest first.
func (h *History) Days(since time.Time) (out []Day, err error) {
	err = h.view(true, func(days, _ *bolt.Bucket) error {
		c := days.Cursor()
		for k, v := c.Seek([]byte(DayOf(since))); k != nil; k, v = c.Next() {
			d, err := readDay(string(k), v)
			if err != nil {
				return err
			}
			out = append(out, d.Day)
		}
		return nil
	})
	return out, err
}

// Runs returns a page of runs, and where the next one begins; "" at the end.
func (h *History) Runs(q Query) (out []Past, next string, err error) {
	if q, err = q.check(); err != nil {
		return nil, "", err
	}
	full := false
	take := func(k, v []byte) error {
		if len(v) < 2 || q.Outcome != "" && string(v[:2]) != q.Outcome[:2] {
			return nil
		}
		if full = len(out) >= q.Limit; full {
			return nil
		}
		p, err := readPast(k, v)
		out = append(out, p)
		return err
	}
	err = h.view(true, func(days, runs *bolt.Bucket) error {
		if q.Minion == "" {
			return ofDay(runs, q, take, &full)
		}
		return ofMinion(days, runs, q, take, &full)
	})
	if full {
		next = out[len(out)-1].Place()
	}
	return out, next, err
}

// check bounds a query.
func (q Query) check() (Query, error) {
	q.Limit = min(max(q.Limit, 1), maxPage)
	if q.Outcome != "" && !slices.Contains([]string{Failed, Drift, Changed, Clean}, q.Outcome) {
		return q, salt.Errorf(salt.Invalid, "outcome must be failed, drift, changed or clean")
	}
	if q.Minion == "" {
		if _, err := time.Parse(DayLayout, q.Day); err != nil {
			return q, salt.Errorf(salt.Invalid, "day must be a date such as 2026-03-01")
		}
	}
	if q.After != "" {
		if _, err := ReadPlace(q.After); err != nil {
			return q, err
		}
	}
	return q, nil
}

// Check bounds a query, and returns its position.
func (q Query) Check() (Query, *Past, error) {
	q, err := q.check()
	if err != nil || q.After == "" {
		return q, nil, err
	}
	p, err := ReadPlace(q.After)
	return q, &p, err
}

func ofDay(runs *bolt.Bucket, q Query, take func(k, v []byte) error, full *bool) error {
	c, begin := runs.Cursor(), []byte(q.Day+"\x00")
	from := begin
	if q.After != "" {
		p, err := ReadPlace(q.After)
		if err != nil {
			return err
		}
		p.day = q.Day
		from = append(p.key(), 0)
	}
	for k, v := c.Seek(from); bytes.HasPrefix(k, begin) && !*full; k, v = c.Next() {
		if err := take(k, v); err != nil {
			return err
		}
	}
	return nil
}

// ofMinion goes through the days backwards.
func ofMinion(days, runs *bolt.Bucket, q Query, take func(k, v []byte) error, full *bool) error {
	d, c := days.Cursor(), runs.Cursor()
	var after *Past
	name, _ := d.Last()
	if q.After != "" {
		p, err := ReadPlace(q.After)
		if err != nil {
			return err
		}
		after = &p
		if name, _ = d.Seek([]byte(p.day)); name == nil {
			name, _ = d.Last()
		}
	}
	for ; name != nil && !*full; name, _ = d.Prev() {
		begin := prefix(string(name), q.Minion)
		if after != nil && after.day < string(name) {
			continue
		}
		// To the last key of the minion on this day, or the one before the last page.
		end := append(slices.Clone(begin), 0xff)
		if after != nil && after.day == string(name) {
			after.Minion = q.Minion
			end = after.key()
		}
		k, v := c.Seek(end)
		if k == nil {
			k, v = c.Last()
		}
		for ; k != nil && bytes.Compare(k, begin) > 0 && !*full; k, v = c.Prev() {
			if bytes.Compare(k, end) >= 0 {
				continue
			}
			if err := take(k, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// Clean removes what is older than keep by removal, the time by which old things may be removed, and the oldest runs if there are too many. With
// keep 0 days stay for ever.
func (h *History) Clean(keep time.Duration, removal time.Time) error {
	var total int64
	old, drop := map[string]bool{}, map[string]bool{}
	err := h.view(true, func(days, _ *bolt.Bucket) error {
		c := days.Cursor()
		for k, v := c.Last(); k != nil; k, v = c.Prev() {
			d, err := readDay(string(k), v)
			if err != nil {
				return err
			}
			total += d.Runs
			old[d.Day.Day] = keep > 0 && d.Day.Day < DayOf(removal.Add(-keep))
			if old[d.Day.Day] || d.Runs > 0 && total > h.most {
				drop[d.Day.Day] = true
			}
		}
		return nil
	})
	for day := range drop {
		for err == nil && drop[day] {
			err = h.use(func(db *boltfile.File) error {
				return db.Update(func(tx *bolt.Tx) error {
					more, err := dropDay(tx, day, old[day])
					drop[day] = more
					return err
				})
			})
		}
	}
	return err
}

// dropDay removes runs of a day, at most some, and the day itself if it is old. It reports whether there are more.
func dropDay(tx *bolt.Tx, day string, whole bool) (more bool, err error) {
	runs, days := tx.Bucket(runsBucket), tx.Bucket(daysBucket)
	begin := []byte(day + "\x00")
	var keys [][]byte
	c := runs.Cursor()
	for k, _ := c.Seek(begin); bytes.HasPrefix(k, begin) && len(keys) < pastAtOnce; k, _ = c.Next() {
		keys = append(keys, slices.Clone(k))
	}
	for _, k := range keys {
		if err := runs.Delete(k); err != nil {
			return false, err
		}
	}
	if len(keys) == pastAtOnce {
		return true, nil
	}
	if whole {
		return false, days.Delete([]byte(day))
	}
	d, err := readDay(day, days.Get([]byte(day)))
	if err != nil {
		return false, err
	}
	d.Runs = 0
	return false, putDay(days, day, d)
}

// Usage returns the size of the file, the number of stored runs, and the first day.
func (h *History) Usage() (bytes, count int64, oldest time.Time, err error) {
	err = h.view(true, func(days, _ *bolt.Bucket) error {
		c := days.Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			d, err := readDay(string(k), v)
			if err != nil {
				return err
			}
			if count += d.Runs; oldest.IsZero() {
				oldest, _ = time.Parse(DayLayout, d.Day.Day)
			}
		}
		return nil
	})
	if info, e := os.Stat(h.path); e == nil {
		bytes = info.Size()
	}
	return bytes, count, oldest, err
}

// clamp bounds the numbers of a run of another master.
func (r *Run) clamp() {
	for _, n := range []*int64{&r.OK, &r.Changed, &r.Failed, &r.Would} {
		*n = min(max(*n, 0), maxSteps)
	}
	if !(r.MS >= 0 && r.MS < math.MaxInt32*1000) {
		r.MS = 0
	}
}
