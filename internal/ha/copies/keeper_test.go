package copies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/job"
	"brine/internal/store/oplog"
)

// fleet are masters with real job stores, which exchange changes and questions without sockets. Keepers work only when step is
// called, with a time of their own.
type fleet struct {
	t       *testing.T
	copies  int
	now     time.Time
	nodes   map[string]*node
	cut     map[[2]string]bool
	removed map[string]bool
	full    map[string]bool // masters that store nothing
	next    int
	sent    int // bytes of changes
}

type node struct {
	f      *fleet
	id     string
	dir    string
	store  *job.Store // nil: it is down
	keeper *Keeper
	heard  map[string]int // contents of returns from other masters
}

func newFleet(t *testing.T, n, copies int) *fleet {
	f := &fleet{t: t, copies: copies, now: time.Now(), nodes: map[string]*node{}, cut: map[[2]string]bool{}, removed: map[string]bool{},
		full: map[string]bool{}}
	for range n {
		f.join()
	}
	f.look()
	t.Cleanup(func() {
		for _, m := range f.nodes {
			m.kill()
		}
	})
	return f
}

func (f *fleet) join() *node {
	m := &node{f: f, id: string(rune('a' + len(f.nodes))), dir: f.t.TempDir(), heard: map[string]int{}}
	f.nodes[m.id] = m
	m.start()
	return m
}

// look makes all running masters see the present members.
func (f *fleet) look() {
	for _, m := range f.nodes {
		if m.store != nil {
			m.keeper.Look(f.now)
		}
	}
}

func (f *fleet) ids() []string { return slices.Sorted(maps.Keys(f.nodes)) }

func (f *fleet) linked(a, b string) bool {
	return f.nodes[a].store != nil && f.nodes[b].store != nil && !f.cut[[2]string{a, b}] && !f.cut[[2]string{b, a}] && !f.removed[a] && !f.removed[b]
}

func (m *node) start() {
	f := m.f
	s, err := job.OpenSharing(m.dir, m.id, job.Options{KeepJobsSeconds: 86400, KeepJobs: 24, JobCache: true}, func(news []job.Taken) {
		for _, t := range news {
			if t.ID != "" && !t.Short {
				m.heard[t.JID+"\x00"+t.ID]++
			}
		}
		m.keeper.Took(news)
	}, slog.New(slog.DiscardHandler))
	must(f.t, err)
	m.store = s
	m.keeper = &Keeper{Store: s.Stream(), Self: m.id, Log: slog.New(slog.DiscardHandler),
		Members: func() (out []Member) {
			for _, id := range f.ids() {
				if !f.removed[id] {
					out = append(out, Member{ID: id, Known: true, Copies: f.copies, Keep: 86400, Up: id == m.id || f.linked(m.id, id),
						Full: id != m.id && f.full[id] && f.linked(m.id, id)})
				}
			}
			return out
		},
		Ask: func(_ context.Context, peer string, names []string) (map[string][]byte, int, error) {
			if !f.linked(m.id, peer) {
				return nil, 0, errors.New("unreachable")
			}
			return f.nodes[peer].keeper.Answer(names)
		}}
	s.Stream().Fetch(m.keeper.Contents, m.keeper.Where)
	m.keeper.Look(f.now)
}

func (m *node) kill() {
	if m.store != nil {
		must(m.f.t, m.store.Close())
		m.store = nil
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// exchange sends changes between all linked masters, each what the other lacks. Masters that are not linked get them from a third one.
func (f *fleet) exchange() {
	f.t.Helper()
	for range 3 {
		for _, a := range f.ids() {
			for _, b := range f.ids() {
				if a != b && f.linked(a, b) && !f.full[b] {
					f.send(a, b)
				}
			}
		}
	}
}

func (f *fleet) send(a, b string) {
	f.t.Helper()
	from, to := f.nodes[a].store.Stream(), f.nodes[b].store.Stream()
	mine, err := from.Vector()
	must(f.t, err)
	theirs, err := to.Vector()
	must(f.t, err)
	for origin := range mine {
		for at := theirs[origin]; at < mine[origin]; {
			batch, err := from.ReadFor(b, true, origin, at, 256, 256<<10)
			must(f.t, err)
			must(f.t, to.Apply(batch))
			for _, it := range batch.Items {
				f.sent += len(it.Data)
			}
			at = batch.To
		}
	}
}

// step makes the keepers do what is due after some time.
func (f *fleet) step(d time.Duration) {
	f.t.Helper()
	f.now = f.now.Add(d)
	for _, id := range f.ids() {
		if m := f.nodes[id]; m.store != nil && !f.removed[id] {
			m.keeper.Look(f.now)
		}
	}
	for _, id := range f.ids() {
		if m := f.nodes[id]; m.store != nil && !f.removed[id] {
			m.work()
		}
	}
}

// work does the work of Keeper.Run once.
func (m *node) work() {
	k, ctx := m.keeper, context.Background()
	for {
		places := k.take()
		if len(places) == 0 {
			break
		}
		lacks, failed, err := k.get(ctx, places)
		must(m.f.t, err)
		k.got(len(lacks) > 0 || failed, nil)
	}
	if !k.begin(m.f.now.Add(lastRetry)) {
		return
	}
	var at job.Cursor
	missing, failed := 0, false
	for done := false; !done; {
		var places []job.Place
		var err error
		places, at, done, err = k.Store.Wanted(at, 40)
		must(m.f.t, err)
		lacks, silent, err := k.get(ctx, places)
		must(m.f.t, err)
		missing, failed = missing+len(lacks), failed || silent
	}
	k.end(missing, "", failed, nil)
}

// publish starts a job at a master.
func (f *fleet) publish(at string, minions ...string) (jid string) {
	f.t.Helper()
	f.next++
	jid = salt.NewJID(time.Now().Add(-time.Duration(1000-f.next) * time.Second))
	must(f.t, f.nodes[at].store.NewJob(value.DictOf("jid", jid, "fun", "test.echo", "tgt", "*"), minions))
	return jid
}

func (f *fleet) answer(at, jid, minion string) {
	f.t.Helper()
	_, err := f.nodes[at].store.Return(value.DictOf("jid", jid, "id", minion, "return", text(jid, minion), "retcode", 0, "success", true))
	must(f.t, err)
}

func text(jid, minion string) string {
	return "from " + minion + " for " + jid + strings.Repeat(".", 300)
}

// complete checks that a master answers for some jobs.
func (f *fleet) complete(at string, jobs map[string][]string) {
	f.t.Helper()
	for jid, ids := range jobs {
		got, err := f.nodes[at].store.Returns(jid)
		must(f.t, err)
		if len(got) != len(ids) {
			f.t.Errorf("%s has %d of %d returns of %s", at, len(got), len(ids), jid)
		}
		for _, id := range ids {
			if got[id] == nil || got[id].Str("return") != text(jid, id) {
				f.t.Fatalf("%s: the return of %s for %s is %v", at, id, jid, got[id])
			}
		}
	}
}

// copiesOf returns how many running masters have the content of a return.
func (f *fleet) copiesOf(jid, id string) (on []string) {
	for _, at := range f.ids() {
		if m := f.nodes[at]; m.store != nil && !f.removed[at] {
			full, _, err := m.store.Stream().Full([]string{jid + "\x00" + id}, 1)
			must(f.t, err)
			if len(full) == 1 {
				on = append(on, at)
			}
		}
	}
	return on
}

// explain returns the views of all masters of a return.
func (f *fleet) explain(jid, id string) (out string) {
	for _, at := range f.ids() {
		m := f.nodes[at]
		if m.store == nil || f.removed[at] {
			continue
		}
		m.store.Stream().Place(func(string, job.Place) bool { return true })
		wanted, err := m.store.Stream().WantedOf([]job.Taken{{JID: jid, ID: id, Short: true}})
		m.store.Stream().Place(m.keeper.rule.Holds)
		out += fmt.Sprintf("\n%s (%s): %+v, %v, %v, %+v", at, oplog.Mark(at), m.keeper.Status(), m.keeper.rule.Members, err, wanted)
		for _, p := range wanted {
			out += fmt.Sprint(" on ", holders(m.keeper.rule, p))
		}
	}
	return out
}

// least checks that each return is on at least n masters.
func (f *fleet) least(n int, jobs map[string][]string) (total int) {
	f.t.Helper()
	for jid, ids := range jobs {
		for _, id := range ids {
			on := f.copiesOf(jid, id)
			if total += len(on); len(on) < n {
				f.t.Errorf("the return of %s for %s is on %v only%s", id, jid, on, f.explain(jid, id))
			}
		}
	}
	return total
}

// TestCopies: five masters, three copies of each return. Each master knows who has returned, and answers completely, also after one
// that has copies is lost; then the others make further copies. A removed or wiped master changes nothing for callers.
func TestCopies(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5, 3)
	jobs := map[string][]string{}
	var minions []string
	for i := range 40 {
		minions = append(minions, fmt.Sprintf("m%02d", i))
	}
	for i, at := range f.ids() {
		jid := f.publish(at, minions...)
		f.exchange()
		for j, id := range minions {
			f.answer(f.ids()[(i+j)%5], jid, id)
		}
		jobs[jid] = minions
	}
	f.exchange()
	if total := f.least(3, jobs); total != 3*5*len(minions) {
		t.Errorf("%d copies of %d returns", total, 5*len(minions))
	}
	for _, at := range f.ids() {
		f.complete(at, jobs)
		for jid := range jobs {
			if ids, err := f.nodes[at].store.ReturnedBy(jid); err != nil || len(ids) != len(minions) {
				t.Errorf("%s knows of %d: %v", at, len(ids), err)
			}
		}
		if n, err := f.nodes[at].store.Stream().Short(); err != nil || n < 20 {
			t.Errorf("%s has %d short returns, %v", at, n, err)
		}
	}
	same := sums(t, f, jobs)
	f.nodes["b"].kill()
	f.step(time.Second)
	for _, at := range []string{"a", "c", "d", "e"} {
		f.complete(at, jobs)
	}
	// It is lost for good: three copies again, and then another one may be lost.
	f.removed["b"] = true
	f.step(time.Minute)
	f.least(3, jobs)
	f.nodes["c"].kill()
	f.step(time.Second)
	for _, at := range []string{"a", "d", "e"} {
		f.complete(at, jobs)
	}
	// c comes back without its disk.
	f.nodes["c"].dir = t.TempDir()
	f.nodes["c"].start()
	f.exchange()
	f.step(time.Minute)
	f.least(3, jobs)
	f.complete("c", jobs)
	if got := sums(t, f, jobs); !maps.Equal(same, got) {
		t.Error("checksums of returns differ between masters, or have changed")
	}
	for _, at := range []string{"a", "c", "d", "e"} {
		if s := f.nodes[at].keeper.Status(); s.Missing != 0 || s.Copies != 3 {
			t.Errorf("%s: %+v", at, s)
		}
	}
}

// TestFullDiskOfHolder: a master that can store nothing for a while counts as one that lacks its copies. After ten minutes the others
// make them, and it still answers for what it has. Later it gets all that it has to store.
func TestFullDiskOfHolder(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4, 2)
	few := func() (n int) {
		for _, id := range f.ids() {
			k := f.nodes[id].keeper
			k.mu.Lock()
			k.count = true
			k.mu.Unlock()
			if c := k.beginCount(f.now); c != nil {
				for !c.step(k.Store) {
				}
				n += c.n
			}
		}
		return n
	}
	var minions []string
	for i := range 60 {
		minions = append(minions, fmt.Sprintf("m%02d", i))
	}
	work := func(at time.Time) map[string][]string {
		f.next++
		jid := salt.FormatJID(at.UTC())
		must(t, f.nodes["a"].store.NewJob(value.DictOf("jid", jid, "fun", "test.echo", "tgt", "*"), minions))
		f.exchange()
		for _, id := range minions {
			f.answer("a", jid, id)
		}
		f.exchange()
		return map[string][]string{jid: minions}
	}
	old := work(f.now.Add(-time.Hour))
	f.least(2, old)
	f.full["c"] = true
	f.step(0)
	jobs := work(f.now.Add(time.Second))
	lacking := 0
	for jid := range jobs {
		for _, id := range minions {
			if len(f.copiesOf(jid, id)) == 1 {
				lacking++
			}
		}
	}
	if n := few(); lacking == 0 || n != lacking {
		t.Errorf("%d returns have too few copies, and %d are counted", lacking, n)
	}
	for _, at := range []string{"a", "b", "d"} {
		f.complete(at, jobs)
	}
	f.complete("c", old)
	f.step(DownTime + time.Second)
	f.least(2, jobs)
	if n := few(); n != 0 {
		t.Errorf("%d returns have too few copies after ten minutes", n)
	}
	f.complete("b", old) // also what only a and c have

	delete(f.full, "c")
	f.exchange()
	f.step(time.Minute)
	f.complete("c", jobs)
	f.least(2, jobs)
	for _, at := range f.ids() {
		if s := f.nodes[at].keeper.Status(); s.Missing != 0 || s.Copies != 2 {
			t.Errorf("%s: %+v", at, s)
		}
	}
}

// sums returns the checksums of all returns, which must be the same on all running masters.
func sums(t *testing.T, f *fleet, jobs map[string][]string) map[string]string {
	t.Helper()
	var first map[string]string
	for _, at := range f.ids() {
		if f.nodes[at].store == nil || f.removed[at] {
			continue
		}
		all := map[string]string{}
		for jid := range jobs {
			s, err := f.nodes[at].store.ReturnSums(jid)
			must(t, err)
			for id, sum := range s {
				all[jid+"/"+id] = sum
			}
		}
		if first != nil && !maps.Equal(first, all) {
			t.Errorf("%s has other checksums", at)
		}
		first = all
	}
	return first
}

// TestSentAgain: a minion repeats a return at a master that knows of it and has no content. The content is
// stored, since the masters that had it may have lost it.
func TestSentAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5, 2)
	jid := f.publish("a", "m")
	f.exchange()
	f.answer("b", jid, "m")
	f.exchange()
	on := f.copiesOf(jid, "m")
	if !slices.Equal(on, []string{"a", "b"}) {
		t.Fatal(on)
	}
	f.nodes["a"].kill()
	f.nodes["b"].kill()
	f.removed["a"], f.removed["b"] = true, true
	got, err := f.nodes["c"].store.Returns(jid)
	if err != nil || got["m"].At("success") != false || got["m"].Str("return") == text(jid, "m") {
		t.Fatalf("%v %v", got, err)
	}
	if _, err := f.nodes["c"].store.Whole(jid); salt.KindOf(err) != salt.Unavailable {
		t.Error(err)
	}
	f.answer("c", jid, "m")
	f.complete("c", map[string][]string{jid: {"m"}})
	f.exchange()
	f.step(time.Minute)
	f.least(2, map[string][]string{jid: {"m"}})
	f.complete("e", map[string][]string{jid: {"m"}})
}

// TestContentFollows: the master that published a job gets a return from a third one, which has no content. It gets the content, and is told
// of it once.
func TestContentFollows(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5, 2)
	jid := f.publish("a", "m")
	f.exchange()
	f.cut[[2]string{"a", "b"}] = true
	f.answer("b", jid, "m")
	f.send("b", "c")
	f.send("c", "a") // c has no content
	if on := f.copiesOf(jid, "m"); !slices.Equal(on, []string{"b"}) {
		t.Fatal(on)
	}
	f.step(time.Second) // b is not reachable from a
	f.cut = map[[2]string]bool{}
	f.step(time.Minute)
	if on := f.copiesOf(jid, "m"); !slices.Equal(on, []string{"a", "b"}) {
		t.Error(on)
	}
	if n := f.nodes["a"].heard[jid+"\x00m"]; n != 1 {
		t.Errorf("told %d times", n)
	}
}

// TestRelease: a master that leaves is released when the others have what only it, and unreachable masters, have.
func TestRelease(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5, 2)
	jobs := map[string][]string{}
	for range 5 {
		jid := f.publish("a", "m1", "m2", "m3")
		f.exchange()
		for _, id := range []string{"m1", "m2", "m3"} {
			f.answer("b", jid, id)
		}
		jobs[jid] = []string{"m1", "m2", "m3"}
	}
	f.exchange()
	f.nodes["a"].kill()
	f.step(time.Second)
	others := []string{"c", "d", "e"}
	for round := 0; ; round++ {
		done := true
		for _, id := range others {
			done = f.nodes[id].keeper.Release("b") && done
		}
		if done {
			break
		}
		if round > 3 {
			t.Fatal("it is not released")
		}
		for _, id := range others {
			f.nodes[id].work()
		}
	}
	f.nodes["b"].kill()
	f.removed["b"] = true
	f.least(2, jobs)
	for _, at := range others {
		f.complete(at, jobs)
	}
}

// TestCopiesAtRandom: masters are killed, cut off, wiped and removed at random while minions return. Fewer than N masters lose their
// disks between two moments at which all others are level, so no return may be lost.
func TestCopiesAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			const n = 3
			r := rand.New(rand.NewPCG(seed, 41))
			f := newFleet(t, 6, n)
			jobs := map[string][]string{}
			alive := func() (out []string) {
				for _, id := range f.ids() {
					if f.nodes[id].store != nil && !f.removed[id] {
						out = append(out, id)
					}
				}
				return out
			}
			for range 6 {
				for range 8 {
					up := alive()
					jid := f.publish(up[r.IntN(len(up))])
					if r.IntN(3) > 0 {
						f.exchange()
					}
					for i := range 5 {
						id := fmt.Sprintf("m%d", i)
						f.answer(up[r.IntN(len(up))], jid, id)
						jobs[jid] = append(jobs[jid], id)
						if r.IntN(4) == 0 { // the minion repeats it elsewhere
							f.answer(up[r.IntN(len(up))], jid, id)
						}
					}
					switch a, b := up[r.IntN(len(up))], up[r.IntN(len(up))]; r.IntN(6) {
					case 0:
						f.cut[[2]string{a, b}] = true
					case 1:
						f.cut = map[[2]string]bool{}
					case 2:
						if len(up) > 4 {
							f.nodes[a].kill()
						}
					case 3:
						f.step(time.Duration(r.IntN(700)) * time.Second)
					case 4:
						if f.linked(a, b) {
							f.send(a, b)
						}
					}
				}
				// All are level, and then up to N-1 disks are lost.
				f.cut = map[[2]string]bool{}
				for _, id := range f.ids() {
					if f.nodes[id].store == nil && !f.removed[id] {
						f.nodes[id].start()
					}
				}
				f.exchange()
				f.step(time.Minute)
				f.step(lastRetry)
				f.least(n, jobs)
				up := alive()
				r.Shuffle(len(up), func(i, j int) { up[i], up[j] = up[j], up[i] })
				for _, id := range up[:r.IntN(n)] {
					f.nodes[id].kill()
					switch {
					case r.IntN(3) == 0 && len(alive()) > 4 && len(f.nodes) < 20:
						f.removed[id] = true
						f.join()
					default:
						f.nodes[id].dir = filepath.Join(t.TempDir(), "new")
						f.nodes[id].start()
					}
				}
				for _, id := range alive() {
					f.complete(id, known(t, f, id, jobs))
				}
			}
			f.exchange()
			f.step(time.Minute)
			f.step(lastRetry)
			f.least(n, jobs)
			for _, id := range alive() {
				f.complete(id, jobs)
			}
			sums(t, f, jobs)
		})
	}
}

// known returns those of some jobs that a master has: one with a new disk has none yet.
func known(t *testing.T, f *fleet, at string, jobs map[string][]string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for jid, ids := range jobs {
		load, err := f.nodes[at].store.Load(jid)
		must(t, err)
		if load != nil {
			out[jid] = ids
		}
	}
	return out
}

var _ oplog.Selective = (*job.Stream)(nil)

// TestDamagedContent: a master that gets a return prefers the content with the expected checksum, whatever the master answers that it asks
// first, and never takes one that cannot be decoded.
func TestDamagedContent(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5, 3)
	jid := f.publish(f.ids()[0], "m0")
	f.exchange()
	f.answer(f.ids()[0], jid, "m0")
	f.exchange()
	f.step(lastRetry)
	for _, at := range f.ids() {
		m := f.nodes[at]
		places, _, _, err := m.store.Stream().Shorts(job.Cursor{}, 10, func(job.Place) bool { return true })
		must(t, err)
		if len(places) == 0 {
			continue
		}
		name, ask := places[0].Name(), m.keeper.Ask
		good := m.keeper.Contents(places)[name]
		other := bytes.Replace(good, []byte("m0"), []byte("m1"), 1)
		if len(good) == 0 || bytes.Equal(good, other) {
			t.Fatalf("%s gets %q", at, good)
		}
		for _, c := range []struct {
			first, rest, want []byte
		}{{other, good, good}, {good[:len(good)-1], good, good}, {other, other, other}, {good[:len(good)-1], other, other}, {good[1:], good[1:], nil}} {
			asked := 0
			m.keeper.Ask = func(ctx context.Context, peer string, names []string) (map[string][]byte, int, error) {
				contents, done, err := ask(ctx, peer, names)
				if asked++; contents[name] != nil && asked == 1 {
					contents[name] = c.first
				} else if contents[name] != nil {
					contents[name] = c.rest
				}
				return contents, done, err
			}
			if got := m.keeper.Contents(places)[name]; !bytes.Equal(got, c.want) {
				t.Errorf("%s, answers %q and %q: %q", at, c.first, c.rest, got)
			}
		}
		return
	}
	t.Error("all masters store the return")
}
