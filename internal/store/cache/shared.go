package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/py/msgpack"
)

// Driver is a store that several masters share. Data is encoded as msgpack, as given to Store. An error of
// kind Unavailable means that the store is unreachable; any other error means that this call cannot succeed.
// Drivers must be safe for concurrent use.
type Driver interface {
	Store(ctx context.Context, bank, key string, data []byte) error
	// Fetch returns nil if there is no value.
	Fetch(ctx context.Context, bank, key string) ([]byte, error)
	// Written returns the time at which a value was written, by the writer's clock and to the second. It is
	// the zero time if unknown.
	Written(ctx context.Context, bank, key string) (time.Time, error)
	// Each returns the values of one key in several banks, in their order. known are the versions
	// that the caller has, "" for none; an unchanged value is returned without its data.
	Each(ctx context.Context, banks []string, key string, known []string) ([]Value, error)
	// Flush removes a key, or with key "" a bank and those below it.
	Flush(ctx context.Context, bank, key string) error
	// List returns the names in a bank: its keys and the banks directly below it.
	List(ctx context.Context, bank string) ([]string, error)
	Close() error
}

// Value is a value of a driver. An empty Value means that there is none; one without a Version must be sent
// each time; one without Data is the known version.
type Value struct {
	Data    []byte
	Version string
}

// Status is the state of a shared store.
type Status struct {
	Driver string
	// Unreachable is the last error if the store cannot be reached, else nil. Since is when this changed.
	Unreachable error
	Since       time.Time
	// Waiting is the number of changes not yet written to the store.
	Waiting int
}

const (
	// minFresh is the minimum time for which grains, pillar and mine are answered from the local
	// copy: a command that targets grains needs those of thousands of minions. The time grows with
	// the duration of a read, so that reads take at most 1/share of the time.
	minFresh = time.Second
	share    = 10
	// chunk is the number of minions per read.
	chunk = 256
	// writers is the number of concurrent writes.
	writers = 4
	// retry is the interval of attempts to reach an unreachable store.
	retry = time.Second
	// relist is the interval of listing the store's minions, which other masters may have added.
	relist = time.Minute
)

// shared is the shared store of a Cache and the queue of changes to write there.
type shared struct {
	c       *Cache
	d       Driver
	log     *slog.Logger
	dirty   string // directory with a mark file for each change not yet in the store
	now     func() time.Time
	wake    wait.Wakeup
	quit    context.Context
	stop    context.CancelFunc
	done    chan struct{}
	watched sync.Mutex // held while all minions are read from the store

	mu      sync.Mutex
	pending map[string]*change // by mark
	serial  uint64
	asking  map[*question]bool
	downErr error
	since   time.Time
	listed  time.Time        // when the store's minions were listed
	kinds   map[string]*kind // what was read about minions, by key
	memo    map[string]time.Time
	order   []string // of memo, oldest first
	calls   int      // calls and hits are counted for memcache_debug
	hits    int
}

// change is a change that is not in the store yet.
type change struct {
	bank, key string
	flush     bool
	serial    uint64
}

// question is a running read of the store. Its answer must not overwrite values that were queued
// when it began or changed since.
type question struct{ touched map[string]bool }

// kind is what was read about one key of all minions.
type kind struct {
	at       time.Time
	took     time.Duration
	versions map[string]string // by id; an id without a version has no value
}

// Open is New with the shared store d, nil for none. own is a directory that only this master uses,
// usually CACHEDIR/brine. Close must be called.
func Open(cachedir, own string, o Options, d Driver, log *slog.Logger) (*Cache, error) {
	c := New(cachedir, o, log)
	if d == nil {
		return c, nil
	}
	c.dir = filepath.Join(own, "cache")
	f := &shared{
		c: c, d: d, log: log, dirty: filepath.Join(own, "cache.dirty"), now: time.Now, wake: wait.NewWakeup(), done: make(chan struct{}),
		pending: map[string]*change{}, asking: map[*question]bool{}, since: time.Now(), memo: map[string]time.Time{},
		kinds: map[string]*kind{minionKey: {versions: map[string]string{}}, mineKey: {versions: map[string]string{}}},
	}
	f.quit, f.stop = context.WithCancel(context.Background())
	if err := f.load(); err != nil {
		return nil, err
	}
	c.shared = f
	go f.run()
	return c, nil
}

// Close releases the shared store. Changes not yet written are sent after the next Open.
func (c *Cache) Close() error {
	if c.shared == nil {
		return nil
	}
	c.shared.stop()
	<-c.shared.done
	return c.shared.d.Close()
}

// Status returns the state of the shared store. Without one the driver is localfs.
func (c *Cache) Status() Status {
	if c.shared == nil {
		return Status{Driver: Local}
	}
	f := c.shared
	f.mu.Lock()
	defer f.mu.Unlock()
	return Status{Driver: c.o.Driver, Unreachable: f.downErr, Since: f.since, Waiting: len(f.pending)}
}

const mineKey = "mine"

// load reads the marks of an earlier process and the minions of the local copy.
func (f *shared) load() error {
	if err := os.MkdirAll(f.dirty, 0o700); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot create a cache directory: %w", err)
	}
	atomicfile.RemoveTemps(f.dirty)
	entries, err := os.ReadDir(f.dirty)
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot read pending changes of the cache: %w", err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(f.dirty, e.Name()))
		parts := strings.Split(string(b), "\x00")
		if err != nil || len(parts) != 3 || mark(parts[1], parts[2]) != e.Name() {
			f.log.Warn("ignoring invalid mark of a pending cache change", "path", e.Name(), "err", err)
			continue
		}
		f.serial++
		f.pending[e.Name()] = &change{parts[1], parts[2], parts[0] == "flush", f.serial}
	}
	ids, _ := listDir(filepath.Join(f.c.dir, "minions"))
	for _, id := range ids {
		for _, k := range f.kinds {
			k.versions[id] = ""
		}
	}
	return nil
}

func mark(bank, key string) string {
	h := sha256.Sum256([]byte(bank + "\x00" + key))
	return hex.EncodeToString(h[:16])
}

// change makes a change in the local copy and queues it for the store.
func (f *shared) change(bank, key string, local func() error) error {
	path, err := f.c.file(bank, key)
	if key == "" {
		path, err = f.c.bank(bank)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name := mark(bank, key)
	ch := &change{bank: bank, key: key}
	if err := local(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = os.Lstat(path)
	ch.flush = err != nil
	word := "store"
	if ch.flush {
		word = "flush"
	}
	if err := atomicfile.Write(filepath.Join(f.dirty, name), []byte(word+"\x00"+bank+"\x00"+key), 0o600, false); err != nil {
		return err
	}
	if key == "" { // drops pending writes below the bank
		for n, other := range f.pending {
			if other.bank == bank || strings.HasPrefix(other.bank, bank+"/") {
				f.settle(n)
			}
		}
	}
	f.serial++
	ch.serial = f.serial
	f.pending[name] = ch
	for q := range f.asking {
		q.touched[bank+"/"+key] = true
	}
	if id, ok := strings.CutPrefix(bank, minionBank); ok {
		for k, kd := range f.kinds {
			if key == k || key == "" {
				kd.versions[id] = ""
			}
		}
	}
	f.signal()
	return nil
}

func (f *shared) signal() {
	f.wake.Wake()
}

// settle removes a queued change; f.mu is held.
func (f *shared) settle(name string) {
	delete(f.pending, name)
	os.Remove(filepath.Join(f.dirty, name))
}

// run writes queued changes and checks whether an unreachable store is back.
func (f *shared) run() {
	defer close(f.done)
	f.learnMinions()
	for {
		f.drain()
		f.mu.Lock()
		down, waiting := f.downErr != nil, len(f.pending)
		f.mu.Unlock()
		var again <-chan time.Time
		wake := f.wake.C()
		if down || waiting > 0 {
			again = time.After(retry)
			wake = nil // further changes wait with the others until the next retry
		}
		select {
		case <-f.quit.Done():
			return
		case <-wake:
		case <-again:
			f.probe()
		}
	}
}

// learnMinions lists the minions that other masters have stored, so that all are read together.
func (f *shared) learnMinions() {
	ctx, cancel := f.bounded()
	defer cancel()
	names, err := f.d.List(ctx, "minions")
	if f.noteResult(err) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.learn(names)
}

// learn adds ids of minions in the store; f.mu is held.
func (f *shared) learn(ids []string) {
	f.listed = f.now()
	for _, id := range ids {
		for _, k := range f.kinds {
			if _, ok := k.versions[id]; !ok && checkName("minion", id) == nil {
				k.versions[id] = ""
				k.at = time.Time{}
			}
		}
	}
}

// unlisted reports whether the store's minions should be listed: an unknown id suggests that there are more.
func (f *shared) unlisted(key, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, known := f.kinds[key].versions[id]
	age := f.now().Sub(f.listed)
	return f.downErr == nil && (!known && age >= minFresh || age >= relist)
}

// probe makes a request if the store was unreachable.
func (f *shared) probe() {
	if !f.isDown() {
		return
	}
	ctx, cancel := f.bounded()
	defer cancel()
	_, err := f.d.Fetch(ctx, "minions", "brine")
	f.noteResult(err)
}

func (f *shared) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(f.quit, max(f.c.o.Timeout, 100*time.Millisecond))
}

func (f *shared) isDown() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.downErr != nil
}

// noteResult records from the result of a call whether the store is reachable, and reports whether it is
// unreachable.
func (f *shared) noteResult(err error) bool {
	gone := err != nil && salt.KindOf(err) != salt.Invalid
	if gone && f.quit.Err() != nil {
		return true // this master is closing the store
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case gone && f.downErr == nil:
		f.log.Error("shared cache unreachable; using the local copy and queueing changes", "cache", f.c.o.Driver, "err", err)
		f.since = f.now()
	case !gone && f.downErr != nil:
		f.log.Info("shared cache reachable again", "cache", f.c.o.Driver, "waiting", len(f.pending), "down", f.now().Sub(f.since).Round(time.Second).String())
		f.since = f.now()
		for _, k := range f.kinds {
			k.at = time.Time{}
		}
		f.signal()
	}
	f.downErr = nil
	if gone {
		f.downErr = err
	}
	return gone
}

// drain writes queued changes while the store is reachable.
func (f *shared) drain() {
	for f.quit.Err() == nil && !f.isDown() {
		batch := f.next()
		if len(batch) == 0 {
			return
		}
		var wg sync.WaitGroup
		gate := make(chan struct{}, writers)
		for _, name := range batch {
			gate <- struct{}{}
			wg.Go(func() {
				defer func() { <-gate }()
				if !f.isDown() {
					f.send(name)
				}
			})
		}
		wg.Wait()
	}
}

// next returns marks of changes to make now, in any order. The removal of a bank is sent alone and
// first, because later writes to the bank must follow it.
func (f *shared) next() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := make([]string, 0, len(f.pending))
	for n := range f.pending {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int { return int(int64(f.pending[a].serial) - int64(f.pending[b].serial)) })
	for _, n := range names {
		if f.pending[n].key == "" {
			return []string{n}
		}
	}
	return names[:min(len(names), chunk)]
}

// send writes one change to the store.
func (f *shared) send(name string) {
	f.mu.Lock()
	ch := f.pending[name]
	if ch == nil {
		f.mu.Unlock()
		return
	}
	made := *ch
	var data []byte
	var err error
	if !made.flush && made.key != "" {
		path, _ := f.c.file(made.bank, made.key)
		if data, err = os.ReadFile(path); errors.Is(err, fs.ErrNotExist) {
			made.flush, err = true, nil
		}
	}
	f.mu.Unlock()
	ctx, cancel := f.bounded()
	defer cancel()
	switch {
	case err != nil:
	case made.flush || made.key == "":
		err = f.d.Flush(ctx, made.bank, made.key)
	default:
		err = f.d.Store(ctx, made.bank, made.key, data)
	}
	if f.noteResult(err) {
		return
	}
	if err != nil {
		f.log.Error("shared cache rejected a value; it is only in the local copy", "bank", made.bank, "key", made.key, "err", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.pending[name]; now != nil && now.serial == made.serial {
		f.settle(name)
	}
}

// waits reports whether a change of a value, or of a bank around it, is queued; f.mu is held.
func (f *shared) waits(bank, key string) bool {
	if f.pending[mark(bank, key)] != nil {
		return true
	}
	for b := bank; ; b = filepath.Dir(b) {
		if f.pending[mark(b, "")] != nil {
			return true
		}
		if !strings.Contains(b, "/") {
			return false
		}
	}
}

// ask begins a read of the store. Queued changes may reach the store after the read.
func (f *shared) ask() *question {
	q := &question{touched: map[string]bool{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ch := range f.pending {
		q.touched[ch.bank+"/"+ch.key] = true
	}
	f.asking[q] = true
	return q
}

// changed reports whether a value, or a bank that it is in, was changed here during the read.
func (q *question) changed(bank, key string) bool {
	for b := bank; !q.touched[b+"/"]; b = filepath.Dir(b) {
		if !strings.Contains(b, "/") {
			return q.touched[bank+"/"+key]
		}
	}
	return true
}

func (f *shared) answered(q *question) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.asking, q)
}

// take copies a value of the store, nil for none, to the local copy unless it was changed here. It
// reports whether it did; f.mu is held.
func (f *shared) take(q *question, bank, key string, data []byte) bool {
	if f.waits(bank, key) || q.changed(bank, key) {
		return false
	}
	path, err := f.c.file(bank, key)
	if err != nil {
		return false
	}
	if data == nil {
		f.c.remove(bank, key, path)
		return true
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return true
	}
	if len(data) > maxFile {
		return false
	}
	// A damaged value must not replace a readable one.
	if _, err := msgpack.UnmarshalTyped(data); err != nil {
		f.log.Warn("ignoring damaged value of the shared cache", "bank", bank, "key", key, "err", err)
		return false
	}
	return f.c.write(bank, path, data) == nil
}

// refresh updates a value of the copy if the store can be reached.
func (f *shared) refresh(bank, key string) {
	id, ok := strings.CutPrefix(bank, minionBank)
	if k := f.kinds[key]; ok && k != nil && checkName("minion", id) == nil {
		f.refreshMinion(key, id)
		return
	}
	name := bank + "/" + key
	if f.remembered(name) {
		return
	}
	q := f.ask()
	defer f.answered(q)
	ctx, cancel := f.bounded()
	defer cancel()
	data, err := f.d.Fetch(ctx, bank, key)
	if f.noteResult(err) || err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.take(q, bank, key, data)
	f.remember(name)
}

// remembered reports whether the copy of a value is recent enough.
func (f *shared) remembered(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.memo[name]
	hit := ok && f.now().Sub(at) < f.c.o.Expire
	f.count(hit)
	return hit || f.downErr != nil
}

// count counts for memcache_debug; f.mu is held.
func (f *shared) count(hit bool) {
	if !f.c.o.Debug {
		return
	}
	f.calls++
	if hit {
		f.hits++
	}
	f.log.Debug("MemCache stats", "call", f.calls, "hit", f.hits, "rate", float64(f.hits)/float64(f.calls))
}

// remember records that a value was read; f.mu is held.
func (f *shared) remember(name string) {
	if f.c.o.Expire <= 0 {
		return
	}
	now := f.now()
	if _, ok := f.memo[name]; ok {
		f.order = slices.DeleteFunc(f.order, func(n string) bool { return n == name })
	}
	f.memo[name] = now
	f.order = append(f.order, name)
	for len(f.order) > max(f.c.o.MaxItems, 1) {
		delete(f.memo, f.order[0])
		f.order = f.order[1:]
		for f.c.o.Cleanup && len(f.order) > 0 && now.Sub(f.memo[f.order[0]]) >= f.c.o.Expire {
			delete(f.memo, f.order[0])
			f.order = f.order[1:]
		}
	}
}

// fresh returns the minions to read for a request about one minion: none if the copy is recent
// enough, all if it is too old, only the id if it is new.
func (f *shared) fresh(key, id string) (ids []string, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.kinds[key]
	_, known := k.versions[id]
	old := f.now().Sub(k.at) >= max(minFresh, f.c.o.Expire, share*k.took)
	f.count(!old && known)
	switch {
	case f.downErr != nil || !old && known:
		return nil, false
	case !old:
		return []string{id}, false
	}
	ids = make([]string, 0, len(k.versions)+1)
	for other := range k.versions {
		ids = append(ids, other)
	}
	if !known {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, true
}

// refreshMinion updates the copy of a minion's data, and that of all others, because they will be needed
// next.
func (f *shared) refreshMinion(key, id string) {
	if ids, _ := f.fresh(key, id); ids == nil {
		return
	}
	f.watched.Lock()
	defer f.watched.Unlock()
	if f.unlisted(key, id) {
		f.learnMinions()
	}
	ids, all := f.fresh(key, id) // another goroutine may have read meanwhile
	if ids == nil {
		return
	}
	begun := f.now()
	q := f.ask()
	defer f.answered(q)
	for part := range slices.Chunk(ids, chunk) {
		if !f.askAbout(q, key, part) {
			return
		}
	}
	if !all {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kinds[key].at, f.kinds[key].took = begun, f.now().Sub(begun)
}

func (f *shared) askAbout(q *question, key string, ids []string) bool {
	banks, known := make([]string, len(ids)), make([]string, len(ids))
	f.mu.Lock()
	k := f.kinds[key]
	for i, id := range ids {
		banks[i], known[i] = minionBank+id, k.versions[id]
	}
	f.mu.Unlock()
	ctx, cancel := f.bounded()
	defer cancel()
	values, err := f.d.Each(ctx, banks, key, known)
	if f.noteResult(err) || err != nil || len(values) != len(ids) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, v := range values {
		switch {
		case v.Data == nil && v.Version != "" && v.Version == known[i]:
		case f.take(q, banks[i], key, v.Data):
			k.versions[ids[i]] = v.Version
		default:
			k.versions[ids[i]] = ""
		}
	}
	return true
}

// list returns the names in a bank; ok is false if the copy must be used.
func (f *shared) list(bank string) (names []string, ok bool) {
	if f.isDown() {
		return nil, false
	}
	ctx, cancel := f.bounded()
	defer cancel()
	names, err := f.d.List(ctx, bank)
	if f.noteResult(err) || err != nil {
		return nil, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if bank+"/" == minionBank {
		f.learn(names)
	}
	if f.pending[mark(bank, "")] != nil {
		names = nil
	}
	for _, ch := range f.pending {
		name, below := strings.CutPrefix(ch.bank, bank+"/")
		name, _, _ = strings.Cut(name, "/")
		switch {
		case ch.bank == bank && ch.key != "" && ch.flush:
			names = slices.DeleteFunc(names, func(n string) bool { return n == ch.key })
		case ch.bank == bank && ch.key != "":
			names = append(names, ch.key)
		case below && ch.key == "" && ch.bank == bank+"/"+name:
			names = slices.DeleteFunc(names, func(n string) bool { return n == name })
		}
	}
	for _, ch := range f.pending {
		if name, below := strings.CutPrefix(ch.bank, bank+"/"); below && !ch.flush && ch.key != "" {
			name, _, _ = strings.Cut(name, "/")
			names = append(names, name)
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool { return checkName("key", n) != nil })
	slices.Sort(names)
	return slices.Compact(names), true
}
