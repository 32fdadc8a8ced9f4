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
	"brine/internal/py/msgpack"
)

// Driver is a store that masters share. Data is what Store got: msgpack. An
// error of kind Unavailable says that the store is away, any other that this
// call cannot work. Calls come from several goroutines.
type Driver interface {
	Store(ctx context.Context, bank, key string, data []byte) error
	// Fetch returns nil if there is nothing.
	Fetch(ctx context.Context, bank, key string) ([]byte, error)
	// Written returns when a value was written, by the clock of whoever did, to
	// the second; the zero time if that is not known.
	Written(ctx context.Context, bank, key string) (time.Time, error)
	// Each returns what several banks have under one key, in their order. known
	// are the versions of what the caller has, "" for none: what has the same
	// is not sent again.
	Each(ctx context.Context, banks []string, key string, known []string) ([]Value, error)
	// Flush removes a key, or with key "" a bank and those below it.
	Flush(ctx context.Context, bank, key string) error
	// List returns the names in a bank, keys and banks right below it.
	List(ctx context.Context, bank string) ([]string, error)
	Close() error
}

// Value is one that a driver has. With neither there is none; without a
// Version it must be sent again each time; without Data it is the known one.
type Value struct {
	Data    []byte
	Version string
}

// Status says how a shared store is.
type Status struct {
	Driver string
	// Away is why it cannot be reached, nil if it can; Since when that changed.
	Away  error
	Since time.Time
	// Waiting is how many changes are not in it yet.
	Waiting int
}

const (
	// believe is for how long grains, pillar and mine are not asked for again
	// in any case: a command by grains needs those of thousands of minions. It
	// is longer where asking takes long, so that it takes no more than a share
	// of the time.
	believe = time.Second
	share   = 10
	// chunk is how many minions are asked about at a time.
	chunk = 256
	// writers is how many changes are written at the same time.
	writers = 4
	// retry is how long it takes until a store that is away is tried again.
	retry = time.Second
	// relist is how often it is looked for minions that only others know.
	relist = time.Minute
)

// far is the shared store of a Cache and what has to go there.
type far struct {
	c       *Cache
	d       Driver
	log     *slog.Logger
	dirty   string // folder with a mark for each change that is not in the store
	now     func() time.Time
	wake    chan struct{}
	quit    context.Context
	stop    context.CancelFunc
	done    chan struct{}
	watched sync.Mutex // held while the store is asked about all minions

	mu      sync.Mutex
	pending map[string]*change // by mark
	serial  uint64
	asking  map[*question]bool
	away    error
	since   time.Time
	listed  time.Time        // when the store was asked for its minions
	kinds   map[string]*kind // what is known of minions, by key
	memo    map[string]time.Time
	order   []string // of memo, oldest first
	calls   int      // and hits, for memcache_debug
	hits    int
}

// change is one that the store has not got.
type change struct {
	bank, key string
	flush     bool
	serial    uint64
}

// question is an answer of the store that is under way. What is changed
// meanwhile must not be overwritten with it.
type question struct{ touched map[string]bool }

// kind is what the store was asked about one key of all minions.
type kind struct {
	at       time.Time
	took     time.Duration
	versions map[string]string // by id; an id without one is known to have none
}

// Open is New with a shared store, nil for none. own is a folder of this master
// alone, usually CACHEDIR/brine. Close must be called.
func Open(cachedir, own string, o Options, d Driver, log *slog.Logger) (*Cache, error) {
	c := New(cachedir, o, log)
	if d == nil {
		return c, nil
	}
	c.dir = filepath.Join(own, "cache")
	f := &far{
		c: c, d: d, log: log, dirty: filepath.Join(own, "cache.dirty"), now: time.Now, wake: make(chan struct{}, 1), done: make(chan struct{}),
		pending: map[string]*change{}, asking: map[*question]bool{}, since: time.Now(), memo: map[string]time.Time{},
		kinds: map[string]*kind{minionKey: {versions: map[string]string{}}, mineKey: {versions: map[string]string{}}},
	}
	f.quit, f.stop = context.WithCancel(context.Background())
	if err := f.load(); err != nil {
		return nil, err
	}
	c.far = f
	go f.run()
	return c, nil
}

// Close ends the use of a shared store. What it has not got is sent after the
// next Open.
func (c *Cache) Close() error {
	if c.far == nil {
		return nil
	}
	c.far.stop()
	<-c.far.done
	return c.far.d.Close()
}

// Status says how the shared store is. Without one the driver is localfs.
func (c *Cache) Status() Status {
	if c.far == nil {
		return Status{Driver: Local}
	}
	f := c.far
	f.mu.Lock()
	defer f.mu.Unlock()
	return Status{Driver: c.o.Driver, Away: f.away, Since: f.since, Waiting: len(f.pending)}
}

const mineKey = "mine"

// load reads the marks of a former process, and whom the copy knows.
func (f *far) load() error {
	if err := os.MkdirAll(f.dirty, 0o700); err != nil {
		return salt.Errorf(salt.Unavailable, "cannot make a folder of the cache: %w", err)
	}
	atomicfile.RemoveTemps(f.dirty)
	entries, err := os.ReadDir(f.dirty)
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot read what waits for the cache: %w", err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(f.dirty, e.Name()))
		parts := strings.Split(string(b), "\x00")
		if err != nil || len(parts) != 3 || mark(parts[1], parts[2]) != e.Name() {
			f.log.Warn("a mark of what waits for the cache is not understood", "file", e.Name(), "error", err)
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

// change makes a change of the copy, and has it made in the store.
func (f *far) change(bank, key string, local func() error) error {
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
	if key == "" { // what waited to be written below is gone
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
	f.stir()
	return nil
}

func (f *far) stir() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// settle forgets a change; f.mu is held.
func (f *far) settle(name string) {
	delete(f.pending, name)
	os.Remove(filepath.Join(f.dirty, name))
}

// run writes changes, and looks whether a store that is away is back.
func (f *far) run() {
	defer close(f.done)
	f.greet()
	for {
		f.drain()
		f.mu.Lock()
		away, waiting := f.away != nil, len(f.pending)
		f.mu.Unlock()
		var again <-chan time.Time
		wake := f.wake
		if away || waiting > 0 {
			again = time.After(retry)
			wake = nil // what is added waits with the rest
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

// greet learns of the minions that others have written about, so that they are
// asked about together.
func (f *far) greet() {
	ctx, cancel := f.bounded()
	defer cancel()
	names, err := f.d.List(ctx, "minions")
	if f.judge(err) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.learn(names)
}

// learn takes the ids of minions that the store has; f.mu is held.
func (f *far) learn(ids []string) {
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

// unlisted reports whether the store should be asked for its minions: one is
// new here, so there may be more.
func (f *far) unlisted(key, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, known := f.kinds[key].versions[id]
	age := f.now().Sub(f.listed)
	return f.away == nil && (!known && age >= believe || age >= relist)
}

// probe asks the store for anything if it was away.
func (f *far) probe() {
	if !f.isAway() {
		return
	}
	ctx, cancel := f.bounded()
	defer cancel()
	_, err := f.d.Fetch(ctx, "minions", "brine")
	f.judge(err)
}

func (f *far) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(f.quit, max(f.c.o.Timeout, 100*time.Millisecond))
}

func (f *far) isAway() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.away != nil
}

// judge notes from an answer whether the store is there, and reports whether it
// is away.
func (f *far) judge(err error) bool {
	gone := err != nil && salt.KindOf(err) != salt.Invalid
	if gone && f.quit.Err() != nil {
		return true // this side ends
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case gone && f.away == nil:
		f.log.Error("the store of the cache is away; what is known here is used, changes are written when it is back", "cache", f.c.o.Driver, "error", err)
		f.since = f.now()
	case !gone && f.away != nil:
		f.log.Info("the store of the cache is back", "cache", f.c.o.Driver, "waiting", len(f.pending), "away", f.now().Sub(f.since).Round(time.Second).String())
		f.since = f.now()
		for _, k := range f.kinds {
			k.at = time.Time{}
		}
		f.stir()
	}
	f.away = nil
	if gone {
		f.away = err
	}
	return gone
}

// drain writes what waits, as long as the store is there.
func (f *far) drain() {
	for f.quit.Err() == nil && !f.isAway() {
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
				if !f.isAway() {
					f.send(name)
				}
			})
		}
		wg.Wait()
	}
}

// next returns marks of changes to be made now, in any order: the removal of a
// bank is made alone and first, because what was written into it since comes
// after it.
func (f *far) next() []string {
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

// send makes one change in the store.
func (f *far) send(name string) {
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
	if f.judge(err) {
		return
	}
	if err != nil {
		f.log.Error("the store of the cache does not take a value; it is only known here", "bank", made.bank, "key", made.key, "error", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.pending[name]; now != nil && now.serial == made.serial {
		f.settle(name)
	}
}

// waits reports whether a value is newer here than in the store; f.mu is held.
func (f *far) waits(bank, key string) bool {
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

// ask begins a question.
func (f *far) ask() *question {
	q := &question{touched: map[string]bool{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asking[q] = true
	return q
}

func (f *far) answered(q *question) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.asking, q)
}

// take puts into the copy what the store has, nil for nothing, unless it was
// changed here. It reports whether it did. f.mu is held.
func (f *far) take(q *question, bank, key string, data []byte) bool {
	if f.waits(bank, key) || q.touched[bank+"/"+key] || q.touched[bank+"/"] {
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
	// What cannot be read must not replace what can.
	if _, err := msgpack.UnmarshalTyped(data); err != nil {
		f.log.Warn("a value in the store of the cache is damaged", "bank", bank, "key", key, "error", err)
		return false
	}
	return f.c.write(bank, path, data) == nil
}

// refresh brings a value of the copy up to date, if the store can be reached.
func (f *far) refresh(bank, key string) {
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
	if f.judge(err) || err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.take(q, bank, key, data)
	f.remember(name)
}

// remembered reports whether a value need not be asked for.
func (f *far) remembered(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.memo[name]
	hit := ok && f.now().Sub(at) < f.c.o.Expire
	f.count(hit)
	return hit || f.away != nil
}

// count is for memcache_debug; f.mu is held.
func (f *far) count(hit bool) {
	if !f.c.o.Debug {
		return
	}
	f.calls++
	if hit {
		f.hits++
	}
	f.log.Debug("MemCache stats", "call", f.calls, "hit", f.hits, "rate", float64(f.hits)/float64(f.calls))
}

// remember notes that a value was asked for; f.mu is held.
func (f *far) remember(name string) {
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

// fresh returns whom to ask about for one of them: nobody if what is here is
// good enough, all if it was asked for too long ago, the one if it is new.
func (f *far) fresh(key, id string) (ids []string, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.kinds[key]
	_, known := k.versions[id]
	old := f.now().Sub(k.at) >= max(believe, f.c.o.Expire, share*k.took)
	f.count(!old && known)
	switch {
	case f.away != nil || !old && known:
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

// refreshMinion brings what is known of a minion up to date, and of all others
// with it, because they will be asked for next.
func (f *far) refreshMinion(key, id string) {
	if ids, _ := f.fresh(key, id); ids == nil {
		return
	}
	f.watched.Lock()
	defer f.watched.Unlock()
	if f.unlisted(key, id) {
		f.greet()
	}
	ids, all := f.fresh(key, id) // another may have asked meanwhile
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

func (f *far) askAbout(q *question, key string, ids []string) bool {
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
	if f.judge(err) || err != nil || len(values) != len(ids) {
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

// list returns the names in a bank; ok is false if the copy has to do.
func (f *far) list(bank string) (names []string, ok bool) {
	if f.isAway() {
		return nil, false
	}
	ctx, cancel := f.bounded()
	defer cancel()
	names, err := f.d.List(ctx, bank)
	if f.judge(err) || err != nil {
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
