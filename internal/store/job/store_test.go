package job

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/internal/base/field"
	"brine/internal/base/salt"
	"brine/internal/py/value"
)

var quiet = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) {
	if dir := os.Getenv("JOB_TEST_WRITER"); dir != "" {
		writeForever(dir)
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func check(t testing.TB, err error, want salt.Kind, text string) {
	t.Helper()
	if err == nil || salt.KindOf(err) != want || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want one of kind %v with %q", err, want, text)
	}
}

func options(t testing.TB) Options {
	t.Helper()
	var o Options
	must(t, field.Defaults(&o))
	return o
}

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir, options(t), quiet)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

const jid = "20261121041024915335"

func load(jid string) *value.Dict {
	return value.DictOf("cmd", "publish", "fun", "test.ping", "arg", value.ListOf(), "tgt", "*", "jid", jid, "user", "root")
}

func ret(jid, id string, v any) *value.Dict {
	return value.DictOf("cmd", "_return", "id", id, "success", true, "return", v, "retcode", 0, "jid", jid, "fun", "test.ping", "fun_args", value.ListOf(),
		"out", "nested")
}

func TestOptions(t *testing.T) {
	if _, err := field.Of(reflect.TypeFor[Options]()); err != nil {
		t.Fatal(err)
	}
	o := options(t)
	if o.Keep() != 24*time.Hour || !o.JobCache {
		t.Errorf("%+v", o)
	}
	o.KeepJobs = 2
	if o.Keep() != 2*time.Hour {
		t.Error("keep_jobs is not used")
	}
	o.KeepJobsSeconds = 5
	if o.Keep() != 5*time.Second {
		t.Error("keep_jobs_seconds does not take precedence")
	}
}

func TestJobAndReturns(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	must(t, s.NewJob(load(jid), []string{"b", "a"}))
	must(t, s.AddMinions(jid, []string{"a", "c"}))
	for _, id := range []string{"b", "a"} {
		if dup, err := s.Return(ret(jid, id, "x"+id)); dup || err != nil {
			t.Error(dup, err)
		}
	}
	if dup, err := s.Return(ret(jid, "a", "again")); !dup || err != nil {
		t.Error("a duplicate return was not detected", dup, err)
	}
	look := func(s *Store) {
		t.Helper()
		l, err := s.Load(jid)
		if err != nil || !value.Equal(l, load(jid)) {
			t.Error(value.Repr(l), err)
		}
		if ids, err := s.Minions(jid); err != nil || !slices.Equal(ids, []string{"b", "a", "c"}) {
			t.Error(ids, err)
		}
		rs, err := s.Returns(jid)
		want := value.DictOf("return", "xa", "retcode", 0, "success", true, "out", "nested")
		if err != nil || len(rs) != 2 || !value.Equal(rs["a"], want) {
			t.Error(value.Repr(rs["a"]), len(rs), err)
		}
		jobs, err := s.Active(time.Now().Add(-time.Hour))
		if err != nil || len(jobs) != 1 || !slices.Equal(jobs[0].Missing(), []string{"c"}) {
			t.Error(jobs, err)
		}
	}
	look(s)
	must(t, s.Close())
	look(open(t, dir))
	if info, _ := os.Stat(filepath.Join(dir, fileName)); info.Mode() != 0o600 {
		t.Error(info.Mode())
	}
}

func TestUnknownJobIsMadeFromItsReturn(t *testing.T) {
	s := open(t, t.TempDir())
	if l, err := s.Load(jid); l != nil || err != nil {
		t.Error(l, err)
	}
	if rs, err := s.Returns(jid); len(rs) != 0 || err != nil {
		t.Error(rs, err)
	}
	first := ret(jid, "a", 1)
	if dup, err := s.Return(first); dup || err != nil {
		t.Fatal(dup, err)
	}
	s.Return(ret(jid, "b", 2))
	if l, _ := s.Load(jid); !value.Equal(l, first) {
		t.Error(value.Repr(l))
	}
	if rs, _ := s.Returns(jid); len(rs) != 2 {
		t.Error(rs)
	}
}

func TestBadInput(t *testing.T) {
	s := open(t, t.TempDir())
	check(t, s.NewJob(load("req"), nil), salt.Invalid, `"req" is not a job id`)
	check(t, s.NewJob(load(jid+"\x00r"), nil), salt.Invalid, "not a job id")
	check(t, s.AddMinions("../../x", []string{"a"}), salt.Invalid, "not a job id")
	for _, id := range []string{"", "..", "a/b", "a\x00b"} {
		_, err := s.Return(ret(jid, id, 1))
		check(t, err, salt.Invalid, "minion id")
	}
	_, err := s.Return(ret(strings.Repeat("1", 70), "a", 1))
	check(t, err, salt.Invalid, "not a job id")
}

func TestWithoutJobCache(t *testing.T) {
	o := options(t)
	o.JobCache = false
	s, err := Open(t.TempDir(), o, quiet)
	must(t, err)
	defer s.Close()
	must(t, s.NewJob(load(jid), []string{"a"}))
	for range 2 {
		if dup, err := s.Return(ret(jid, "a", 1)); dup || err != nil {
			t.Error(dup, err)
		}
	}
	if l, _ := s.Load(jid); l != nil {
		t.Error("stored")
	}
}

func TestManyAtOnce(t *testing.T) {
	s := open(t, t.TempDir())
	must(t, s.NewJob(load(jid), nil))
	const minions, copies = 1500, 3
	var stored, dups atomic.Int32
	var wg sync.WaitGroup
	for range copies {
		wg.Go(func() {
			for i := range minions {
				wg.Add(1)
				s.ReturnAsync(ret(jid, fmt.Sprint("m", i), i), func(dup bool, err error) {
					defer wg.Done()
					switch {
					case err != nil:
						t.Error(err)
					case dup:
						dups.Add(1)
					default:
						stored.Add(1)
					}
				})
			}
		})
	}
	wg.Wait()
	if stored.Load() != minions || dups.Load() != minions*(copies-1) {
		t.Error(stored.Load(), dups.Load())
	}
	last := ""
	n := 0
	must(t, s.EachReturn(jid, func(id string, r *value.Dict) bool {
		if id <= last || r.At("return") == nil {
			t.Errorf("%s after %s: %v", id, last, value.Repr(r))
		}
		last = id
		n++
		return true
	}))
	if n != minions {
		t.Error(n)
	}
	if w := s.writer.waiting.Load(); w != 0 {
		t.Errorf("%d bytes are still counted as waiting", w)
	}
}

func TestListOrderAndFilter(t *testing.T) {
	s := open(t, t.TempDir())
	now := time.Date(2026, 11, 21, 4, 30, 0, 0, time.UTC)
	s.now = func() time.Time { return now }
	var jids []string
	for i := range 10 {
		j := salt.FormatJID(now)
		jids = append(jids, j)
		must(t, s.NewJob(load(j), []string{"a"}))
		if i%2 == 0 {
			s.Return(ret(j, "a", 1))
		}
		now = now.Add(20 * time.Minute)
	}
	list := func(f Filter) []string {
		t.Helper()
		jobs, err := s.List(f)
		must(t, err)
		var out []string
		for _, j := range jobs {
			out = append(out, j.JID)
		}
		return out
	}
	newest := slices.Clone(jids)
	slices.Reverse(newest)
	for name, c := range map[string]struct {
		got, want []string
	}{
		"newest": {list(Filter{}), newest},
		"oldest": {list(Filter{Oldest: true}), jids},
		"limit":  {list(Filter{Limit: 3}), newest[:3]},
		"first":  {list(Filter{Limit: 3, Oldest: true}), jids[:3]},
		"range":  {list(Filter{After: jids[2], Before: jids[5]}), []string{jids[4], jids[3]}},
		"since":  {list(Filter{Since: now.Add(-time.Hour)}), newest[:5]},
		"keep":   {list(Filter{Keep: func(j *Job) bool { return j.Load.Str("jid") == jids[1] }}), jids[1:2]},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	active, err := s.Active(time.Time{})
	if err != nil || len(active) != 5 || active[0].JID != jids[9] {
		t.Error(len(active), err)
	}
	func() {
		defer func() {
			if recover() != "mine" {
				t.Error("a filter's panic was lost")
			}
		}()
		s.List(Filter{Keep: func(*Job) bool { panic("mine") }})
	}()
	if s.file.damaged.Load() {
		t.Error("a filter's panic was reported as damage")
	}
}

func TestPrune(t *testing.T) {
	s := open(t, t.TempDir())
	start := time.Date(2026, 11, 21, 4, 59, 59, 0, time.UTC)
	now := start
	s.now = func() time.Time { return now }
	store := func() string {
		j := salt.FormatJID(now)
		must(t, s.NewJob(load(j), nil))
		return j
	}
	known := func(j string) bool {
		l, err := s.Load(j)
		must(t, err)
		return l != nil
	}
	old := store()
	now = start.Add(2 * time.Second) // the next hour
	young := store()
	s.Return(ret(old, "late", 1)) // belongs to the old hour
	now = start.Add(24*time.Hour + 2*time.Second)
	if n, err := s.Prune(); n != 1 || err != nil || known(old) || !known(young) {
		t.Error(n, err, known(old), known(young))
	}
	if rs, _ := s.Returns(old); len(rs) != 0 {
		t.Error("a return was kept after its job")
	}
	// The clock jumps ahead and back: nothing is lost, and the job from the future expires after the same
	// time as others.
	now = now.Add(1000 * time.Hour)
	future := store()
	now = start.Add(24*time.Hour + 3*time.Second)
	if n, err := s.Prune(); n != 0 || err != nil || !known(young) || !known(future) {
		t.Error(n, err)
	}
	now = now.Add(-10 * time.Hour) // and further back
	past := store()
	if n, err := s.Prune(); n != 0 || err != nil || !known(past) {
		t.Error(n, err)
	}
	now = now.Add(26 * time.Hour)
	if _, err := s.Prune(); err != nil || known(future) {
		t.Error("a job from the future is kept for ever", err)
	}
	s.o.KeepJobsSeconds = 0
	now = now.Add(1e6 * time.Hour)
	last := store()
	if n, err := s.Prune(); n != 0 || err != nil || !known(last) {
		t.Error(n, err)
	}
}

// TestForeignJID checks that a job is found although its id has a wrong time.
func TestForeignJID(t *testing.T) {
	s := open(t, t.TempDir())
	for _, j := range []string{"00000000000000000000", "99999999999999999999", "20990101000000000000_77"} {
		must(t, s.NewJob(load(j), []string{"a"}))
		if dup, err := s.Return(ret(j, "a", 1)); dup || err != nil {
			t.Error(dup, err)
		}
		if rs, err := s.Returns(j); len(rs) != 1 || err != nil {
			t.Error(j, rs, err)
		}
	}
	// A job id that is a prefix of another one is a different job.
	if l, _ := s.Load("20990101000000000000"); l != nil {
		t.Error("found")
	}
}

func TestInUse(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	_, err := Open(dir, options(t), quiet)
	check(t, err, salt.Unavailable, "is in use by another process: stop it, or, if two masters are meant to share a cachedir")
	if !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
	_, err = OpenReadOnly(dir, Options{}, quiet)
	check(t, err, salt.Unavailable, "is in use")
}

func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	_, err := OpenReadOnly(dir, Options{}, quiet)
	check(t, err, salt.NotFound, "there is no job database")
	s := open(t, dir)
	must(t, s.NewJob(load(jid), nil))
	must(t, s.Close())
	for range 2 { // several at once
		r, err := OpenReadOnly(dir, Options{}, quiet)
		must(t, err)
		defer r.Close()
		if l, err := r.Load(jid); l == nil || err != nil {
			t.Error(l, err)
		}
		r.o.JobCache = true
		check(t, r.NewJob(load(jid), nil), salt.Invalid, "for reading only")
	}
}

func TestClosed(t *testing.T) {
	s := open(t, t.TempDir())
	must(t, s.Close())
	must(t, s.Close())
	check(t, s.NewJob(load(jid), nil), salt.Unavailable, "is closed")
	_, err := s.Return(ret(jid, "a", 1))
	check(t, err, salt.Unavailable, "is closed")
	_, err = s.Load(jid)
	check(t, err, salt.Unavailable, "is closed")
}

func TestCloseStoresWhatIsQueued(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var acked atomic.Int32
	for i := range 500 {
		s.ReturnAsync(ret(jid, fmt.Sprint("m", i), 1), func(_ bool, err error) {
			if err == nil {
				acked.Add(1)
			}
		})
	}
	must(t, s.Close())
	if acked.Load() != 500 {
		t.Error(acked.Load())
	}
	if rs, _ := open(t, dir).Returns(jid); len(rs) != 500 {
		t.Error(len(rs))
	}
}

// damage creates a database, changes its bytes and returns its directory.
func damage(t *testing.T, change func([]byte) []byte) string {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir)
	for i := range 300 {
		must(t, s.NewJob(load(fmt.Sprintf("202611210410249%05d", i)), []string{strings.Repeat("x", 100)}))
		if i > 30 {
			break
		}
	}
	for i := range 2000 {
		s.ReturnAsync(ret(jid, fmt.Sprint("m", i), strings.Repeat("y", 200)), func(bool, error) {})
	}
	must(t, s.Close())
	path := filepath.Join(dir, fileName)
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, change(b), 0o600))
	return dir
}

func TestDamagedFile(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"text":  func([]byte) []byte { return []byte(strings.Repeat("no database ", 10000)) },
		"short": func([]byte) []byte { return []byte("x") },
		"cut":   func(b []byte) []byte { return b[:3*4096] },
		"meta": func(b []byte) []byte {
			for i := range 2 * 4096 {
				b[i] ^= 0x55
			}
			return b
		},
		"pages": func(b []byte) []byte {
			for i := 2 * 4096; i < len(b); i++ {
				b[i] = 0xff
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := damage(t, change)
			before, _ := os.ReadFile(filepath.Join(dir, fileName))
			s := open(t, dir)
			// Damage inside is found at the first read, other damage at once.
			s.List(Filter{})
			s.Load(jid)
			for i := range 3 {
				if err := s.NewJob(load(jid), []string{"a"}); err != nil {
					t.Fatalf("attempt %d: %v", i, err)
				}
			}
			if l, err := s.Load(jid); l == nil || err != nil {
				t.Error(l, err)
			}
			aside, _ := filepath.Glob(filepath.Join(dir, "*.damaged-*"))
			if len(aside) != 1 {
				t.Fatal("not moved aside:", aside)
			}
			after, _ := os.ReadFile(aside[0])
			if len(after) != len(before) {
				t.Error("the file moved aside is not the damaged one")
			}
		})
	}
}

// writeForever stores returns and prints those that are stored.
func writeForever(dir string) {
	s, err := Open(dir, Options{KeepJobsSeconds: 86400, KeepJobs: 24, JobCache: true}, quiet)
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	for i := 0; ; i++ {
		id := fmt.Sprint("m", i)
		room := make(chan struct{})
		s.ReturnAsync(ret(jid, id, i), func(_ bool, err error) {
			if err == nil {
				mu.Lock()
				fmt.Println(id)
				mu.Unlock()
			}
			close(room)
		})
		if i%50 == 0 {
			<-room
		}
	}
}

// TestKilled checks that acknowledged returns survive the kill of the process.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "JOB_TEST_WRITER="+dir)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		acked := map[string]bool{}
		sc := bufio.NewScanner(out)
		for len(acked) < 300 && sc.Scan() {
			acked[sc.Text()] = true
		}
		cmd.Process.Kill()
		for sc.Scan() {
			if id := sc.Text(); strings.HasPrefix(id, "m") && len(id) > 1 {
				acked[id] = true
			}
		}
		cmd.Wait()
		s, err := Open(dir, options(t), quiet)
		must(t, err)
		rs, err := s.Returns(jid)
		must(t, err)
		lost := 0
		for id := range acked {
			if rs[id] == nil {
				lost++
			}
		}
		// The kill can cut off the very last line, which makes it another id; everything else must be stored.
		if lost > 1 || len(acked) < 300 {
			t.Errorf("round %d: %d of %d acknowledged returns are lost", round, lost, len(acked))
		}
		must(t, s.Close())
		must(t, os.Remove(filepath.Join(dir, fileName)))
		if aside, _ := filepath.Glob(filepath.Join(dir, "*.damaged-*")); len(aside) != 0 {
			t.Error("taken for damaged:", aside)
		}
	}
}

// spoilLeaves makes only the pages that contain entries unreadable.
func spoilLeaves(b []byte) {
	size := os.Getpagesize()
	for at := 2 * size; at+size <= len(b); at += size {
		if b[at+8] == 0x02 && b[at+9] == 0 { // the flags of a leaf
			b[at+8], b[at+9] = 0xff, 0xff
		}
	}
}

// fill stores enough for the entries to have pages of their own.
func fill(t *testing.T, s *Store) {
	t.Helper()
	must(t, s.NewJob(load(jid), nil))
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Add(1)
		s.ReturnAsync(ret(jid, fmt.Sprint("m", i), strings.Repeat("y", 500)), func(_ bool, err error) {
			if err != nil {
				t.Error(err)
			}
			wg.Done()
		})
	}
	wg.Wait()
}

func asideOf(dir string) []string {
	names, _ := filepath.Glob(filepath.Join(dir, "*.damaged-*"))
	return names
}

// TestDamagedWhileOpen checks that damage at run time is found by the first reader or writer, and that the
// master continues.
func TestDamagedWhileOpen(t *testing.T) {
	for name, meet := range map[string]func(*Store) error{
		"reader": func(s *Store) error { _, err := s.Returns(jid); return err },
		"writer": func(s *Store) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			fill(t, s)
			f, err := os.OpenFile(s.file.path, os.O_RDWR, 0)
			must(t, err)
			b, err := os.ReadFile(s.file.path)
			must(t, err)
			spoilLeaves(b)
			_, err = f.WriteAt(b[2*os.Getpagesize():], int64(2*os.Getpagesize()))
			must(t, err)
			must(t, f.Close())

			if err := meet(s); name == "reader" {
				check(t, err, salt.Internal, "the job database is damaged")
			}
			// The change that finds the damage is not lost.
			if dup, err := s.Return(ret(jid, "after", 1)); dup || err != nil {
				t.Error(dup, err)
			}
			if rs, err := s.Returns(jid); len(rs) != 1 || err != nil {
				t.Error(len(rs), err)
			}
			if got := asideOf(dir); len(got) != 1 {
				t.Error("not moved aside once:", got)
			}
		})
	}
}

// TestDamageIsLookedForAfterACrash checks that the whole file is verified after a crash.
func TestDamageIsLookedForAfterACrash(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	s := open(t, from)
	fill(t, s)
	b, err := os.ReadFile(s.file.path) // not closed, as after a crash
	must(t, err)
	// Damage the entries only; the small pages above them stay.
	size := os.Getpagesize()
	for at := 2 * size; at+size <= len(b); at += size {
		if b[at+8] == 0x02 && b[at+9] == 0 && strings.Contains(string(b[at:at+size]), "yyyy") {
			b[at+8], b[at+9] = 0xff, 0xff
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, fileName), b, 0o600))
	damaged := open(t, dir)
	for deadline := time.Now().Add(time.Minute); len(asideOf(dir)) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the damage was not found")
		}
	}
	must(t, damaged.NewJob(load(jid), nil))
}

func TestGuard(t *testing.T) {
	_, err := guard(func() (int, error) { panic("page 7 already freed") })
	if !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "page 7") {
		t.Error(err)
	}
}

func BenchmarkReturnAsync(b *testing.B) {
	s, err := Open(b.TempDir(), options(b), quiet)
	must(b, err)
	defer s.Close()
	must(b, s.NewJob(load(jid), nil))
	var wg sync.WaitGroup
	sem := make(chan struct{}, 8000) // returns in flight
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		wg.Add(1)
		sem <- struct{}{}
		s.ReturnAsync(ret(jid, fmt.Sprintf("minion%08d", i*7919%100_000_000), true), func(dup bool, err error) {
			if err != nil || dup {
				b.Error(dup, err)
			}
			<-sem
			wg.Done()
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "returns/s")
}

func BenchmarkNewJob(b *testing.B) {
	s, err := Open(b.TempDir(), options(b), quiet)
	must(b, err)
	defer s.Close()
	for b.Loop() {
		must(b, s.NewJob(load(salt.NewJID(time.Now())), []string{"a"}))
	}
}

// TestQueuedInOrder checks that jobs of one millisecond are delivered in the order of their ids.
func TestQueuedInOrder(t *testing.T) {
	s := open(t, t.TempDir())
	now := time.Now()
	var jids []string
	for i := range 30 {
		jids = append(jids, salt.FormatJID(now.Add(time.Duration(i)*time.Microsecond)))
		must(t, s.NewJobUntil(load(jids[i]), []string{"a"}, now.Add(time.Hour)))
	}
	queued, err := s.Queued(now, 100)
	var got []string
	for _, q := range queued {
		got = append(got, q.JID)
	}
	if err != nil || !slices.Equal(got, jids) {
		t.Errorf("%q %v, want %q", got, err, jids)
	}
}

// TestDamagedEntries checks that a damaged entry, which the file's own structure does not reveal,
// hides no other one.
func TestDamagedEntries(t *testing.T) {
	s := open(t, t.TempDir())
	now := time.Now()
	var jids []string
	for i := range 4 {
		j := salt.FormatJID(now.Add(time.Duration(i) * time.Second))
		jids = append(jids, j)
		must(t, s.NewJobUntil(load(j), []string{"a", "b", "c"}, now.Add(time.Hour)))
		s.Return(ret(j, "a", 1))
		s.Return(ret(j, "b", 2))
	}
	must(t, s.Note(Notes{States: map[string]State{jids[3]: {Handed: []string{"a"}}}}))
	must(t, s.file.db.Update(func(tx *bolt.Tx) error {
		spoil := func(b *bolt.Bucket, k []byte) error { return b.Put(k, append([]byte{0xc1}, b.Get(k)...)) }
		return errors.Join(
			spoil(findHour(tx, jids[1]), key(jids[1], entryLoad, "")),
			spoil(findHour(tx, jids[2]), key(jids[2], entryReturn, "a")),
			spoil(tx.Bucket(statesBucket), []byte(jids[3])))
	}))
	jobs, err := s.List(Filter{Oldest: true, Returned: true})
	if err != nil || len(jobs) != 4 || jobs[1].Load != nil || len(jobs[1].Returned) != 2 || jobs[3].Load == nil {
		t.Errorf("jobs: %v %v", jobs, err)
	}
	if active, err := s.Active(now.Add(-time.Hour)); err != nil || len(active) != 4 {
		t.Errorf("active jobs: %d %v", len(active), err)
	}
	if _, err := s.Load(jids[1]); salt.KindOf(err) != salt.Internal {
		t.Errorf("the damaged load: %v", err)
	}
	rets, err := s.Returns(jids[2])
	if err != nil || len(rets) != 2 || rets["b"].At("return") != int64(2) || rets["a"].At("success") != false {
		t.Errorf("returns: %v %v", rets, err)
	}
	// It is unknown which minions started the last job, so it is not sent again.
	queued, err := s.Queued(now, 10)
	if err != nil || len(queued) != 2 || queued[0].JID != jids[0] || queued[1].JID != jids[2] {
		t.Errorf("queued: %v %v", queued, err)
	}
}
