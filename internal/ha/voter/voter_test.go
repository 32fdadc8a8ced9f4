package voter

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"brine/internal/ha/lease"
	"brine/test/eventually"
	"brine/test/fuzztest"
)

// until runs the world until fn returns true.
func (w *world) until(what string, fn func() bool) {
	w.t.Helper()
	for end := w.now + 2*time.Minute; !fn(); {
		if w.now > end {
			w.t.Fatalf("after two minutes not yet: %s", what)
		}
		if err := w.run(100 * time.Millisecond); err != nil {
			w.t.Fatalf("%s: after %v: %v", what, w.now, err)
		}
	}
}

// holder returns the machine that holds the lease, nil if none does.
func (w *world) holder() *machine {
	for _, m := range w.machines {
		if _, holds := m.holder.Token(); holds && !m.gone {
			return m
		}
	}
	return nil
}

func (w *world) leader() *machine {
	for _, m := range w.machines {
		if m.node.Leads() && !m.gone {
			return m
		}
	}
	return nil
}

// TestWitnessLeads: only a witness and a dead master have the last entry. The other master still gets the lease, because the witness leads
// until that master has the entry, and then passes the leadership on.
func TestWitnessLeads(t *testing.T) {
	for seed := range uint64(5) {
		cryptotest.SetGlobalRandom(t, seed)
		w := newWorld(t, seed, 2, 1, faults{})
		a, b, witness := w.machines["v0"], w.machines["v1"], w.machines["v2"]
		w.until("the first master leads", func() bool {
			if b.node.Leads() { // it steps down without the others
				b.frozen = w.now + 10*time.Second
			}
			return a.node.Leads() && a.node.e.state.Floor != 0
		})
		for _, name := range []string{"v0", "v2"} {
			w.cut[[2]string{name, "v1"}], w.cut[[2]string{"v1", name}] = true, true
		}
		a.node.mu.Lock()
		a.node.e.propose(command{Op: opClaim, Claim: "x"}, func(lease.Answer, bool) {})
		a.node.mu.Unlock()
		w.until("the witness has the entry", func() bool {
			theirs, _ := witness.node.e.log.LastIndex()
			own, _ := a.node.e.log.LastIndex()
			return theirs == own
		})
		ours, _ := b.node.e.log.LastIndex()
		if theirs, _ := witness.node.e.log.LastIndex(); theirs <= ours {
			t.Fatal("the other master has the entry")
		}
		a.gone = true
		clear(w.cut)
		w.until("the other master has the lease", func() bool { return w.holder() == b })
		if witness.node.Leads() {
			t.Error("the witness leads still")
		}
	}
}

// TestRestartedWitnesses: two of three masters are lost. The two witnesses, which have no connection to each other, vote also after a restart.
// Otherwise the third master could never get the lease.
func TestRestartedWitnesses(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 7)
	w := newWorld(t, 7, 3, 2, faults{})
	w.until("one has the lease", func() bool { return w.holder() != nil })
	w.machines["v1"].gone, w.machines["v2"].gone = true, true
	for _, name := range []string{"v3", "v4"} {
		w.machines[name].start()
		w.machines[name].ticks()
	}
	w.run(waitLimit * TickTime)
	w.until("the third master has the lease", func() bool { return w.holder() == w.machines["v0"] })
}

// TestRemovedDisk: a voter that has lost its disk takes a new number in place of the old one. If its old disk comes back, that is outdated.
func TestRemovedDisk(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	w := newWorld(t, 1, 3, 0, faults{})
	w.until("one has the lease", func() bool { return w.holder() != nil })
	m := w.machines["v1"]
	old, first := m.disk.clone(), m.node.e.meta.Number
	back := func() {
		m.start()
		m.ticks()
		m.beats()
	}
	m.disk = &memory{}
	back()
	replaced := func() bool {
		l := w.leader()
		return l != nil && m.member() && l.node.e.state.Members[m.node.e.meta.Number] == "v1" && m.node.e.applied == l.node.e.applied
	}
	w.until("it votes under a new number", replaced)
	second := m.node.e.meta.Number
	if second == first {
		t.Error("the number is the same")
	}
	m.disk = old
	back()
	w.until("it votes under a third number", func() bool { return m.node.e.meta.Number != first && replaced() })
	if n := m.node.e.meta.Number; n == second {
		t.Error("the number is the second one")
	}
	for _, o := range w.machines {
		if o.node.e.state.Members[first] != "" || o.node.e.state.Members[second] != "" || len(o.node.e.state.Members) != 3 {
			t.Errorf("%s knows %v", o.name, o.node.e.state.Members)
		}
	}
}

// TestOldDiskOfRestartedGroup: the others recognize a voter's old disk even if they were restarted, too.
func TestOldDiskOfRestartedGroup(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 4)
	w := newWorld(t, 4, 3, 0, faults{})
	w.until("one has the lease", func() bool { return w.holder() != nil })
	m := w.machines["v1"]
	old, number, work := m.disk.clone(), m.node.e.meta.Number, w.work
	w.until("work has begun", func() bool { return w.work > work+2 })
	for _, name := range w.names {
		o := w.machines[name]
		if o == m {
			o.disk = old
		}
		o.start()
		o.ticks()
		o.beats()
	}
	w.until("it votes under a new number", func() bool { return m.node.e.meta.Number != number && m.member() && m.recovered() })
}

// TestSetBackWhileRunning: a machine that is reset while it runs, as by a snapshot of its memory, continues with the same start. It takes a
// new number when the others report a higher count for that start.
func TestSetBackWhileRunning(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 8)
	w := newWorld(t, 8, 3, 0, faults{})
	w.until("one has the lease", func() bool { return w.holder() != nil })
	m := w.machines["v1"]
	old, start, number, work := m.disk.clone(), m.node.e.begun, m.node.e.meta.Number, w.work
	w.until("work has begun", func() bool { return w.work > work+2 })
	m.disk = old
	m.start()
	m.node.e.begun, m.node.e.sure = start, true
	p := w.machines["v0"].node.Exchange("v1", m.node.Packet("v0", nil))
	p.Messages = nil // raft may detect it, too
	if m.node.Returned("v0", p); m.node.e.meta.Number == number {
		t.Error("it goes on when it hears of that")
	}
	m.ticks()
	m.beats()
	w.until("it votes under a new number", func() bool { return m.node.e.meta.Number != number && m.member() && m.recovered() })
}

// TestMessagesOfFormerNumber: a message that a voter sent before it was replaced is not attributed to its new number, to which the count in the
// packet belongs.
func TestMessagesOfFormerNumber(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 9)
	w := newWorld(t, 9, 3, 0, faults{})
	w.until("one has the lease", func() bool { return w.holder() != nil })
	a, b := w.machines["v0"].node, w.machines["v1"].node
	term := a.e.raft.BasicStatus().GetTerm()
	text, err := proto.Marshal(&pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(b.e.meta.Number), To: new(a.e.meta.Number), Term: new(term + 5)})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.e.replace("a test"); err != nil {
		t.Fatal(err)
	}
	a.Exchange("v1", b.Packet("v0", [][]byte{text}))
	if now := a.e.raft.BasicStatus().GetTerm(); now != term {
		t.Errorf("term %d after %d", now, term)
	}
}

// TestReplacedOnce: reports about the state of a voter before it was replaced do not replace it again. With its new number it is silent
// after a start until it is confirmed, even if the number is not in its log yet.
func TestReplacedOnce(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 5)
	w := newWorld(t, 5, 3, 0, faults{})
	w.until("one has the lease", func() bool { return w.holder() != nil })
	m := w.machines["v1"]
	p := w.machines["v0"].node.Packet("v1", nil)
	p.Old = m.node.e.begun
	number := m.node.e.meta.Number
	m.node.Returned("v0", p)
	second := m.node.e.meta.Number
	if second == number {
		t.Fatal("it is not replaced")
	}
	m.node.Returned("v0", p)
	if m.node.e.meta.Number != second {
		t.Error("it is replaced twice")
	}
	m.start()
	if m.node.e.meta.Number != second || m.node.e.ready() {
		t.Errorf("after a start: number %d, ready %v", m.node.e.meta.Number, m.node.e.ready())
	}
}

// TestUnconfirmedIsSilent: a restarted voter sends no messages until the others have confirmed that they know no later state of its disk.
func TestUnconfirmedIsSilent(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 2)
	w := newWorld(t, 2, 3, 0, faults{})
	w.until("one has the lease", func() bool { return w.holder() != nil })
	m := w.machines["v1"]
	late := w.machines["v0"].node.Packet("v1", nil) // from before the start
	m.start()
	heartbeat := func(from string) {
		o := w.machines[from].node
		b, err := proto.Marshal(&pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(o.e.meta.Number), To: new(m.node.e.meta.Number), Term: new(late.Term)})
		if err != nil {
			t.Fatal(err)
		}
		p := late
		p.Number, p.Start, p.Writes, p.Messages = o.e.meta.Number, o.e.begun, o.e.writes, [][]byte{b}
		if out := m.node.Exchange(from, p); len(out.Messages) > 0 {
			t.Errorf("it answers %s", from)
		}
	}
	heartbeat("v0")
	heartbeat("v2")
	silent := func(when string) {
		t.Helper()
		for range waitLimit {
			if m.node.e.ready() {
				t.Fatalf("it takes part %s", when)
			}
			m.node.Tick()
		}
	}
	silent("without an answer")
	answer := func(from string) {
		m.node.Returned(from, w.machines[from].node.Exchange("v1", m.node.Packet(from, nil)))
	}
	answer("v0")
	silent("though one has not answered")
	if !m.node.e.ready() {
		t.Error("it does not take part though a majority has answered in time")
	}
	m.start()
	answer("v0")
	answer("v2")
	if !m.node.e.ready() {
		t.Error("it does not take part though all have answered")
	}
}

// TestChangedList: while a voter is replaced in the configured list there is at most one lease, tokens grow, and no claim is lost. This holds
// even if the list is changed back and the replaced voter has its old disk.
func TestChangedList(t *testing.T) {
	for seed := range uint64(4) {
		cryptotest.SetGlobalRandom(t, seed)
		w := newWorld(t, seed, 4, 0, faults{lose: 50, slow: 20})
		a, b, c, d := w.machines["v0"], w.machines["v1"], w.machines["v2"], w.machines["v3"]
		before, after := []string{"v0", "v1", "v2"}, []string{"v0", "v1", "v3"}
		set := func(list []string, machines ...*machine) {
			for _, m := range machines {
				m.list, m.gone = list, false
				m.start()
				m.ticks()
				m.beats()
			}
		}
		d.gone = true
		set(before, a, b, c)
		work := w.work
		w.until("one has the lease with the first list", func() bool { return w.holder() != nil && w.work > work+2 })
		for _, step := range []struct {
			list    []string
			out, in *machine
		}{{after, c, d}, {before, d, c}} {
			generation := a.node.e.meta.Generation
			step.out.gone = true
			set(step.list, a)
			w.run(7 * time.Second)
			set(step.list, step.in)
			w.run(7 * time.Second)
			set(step.list, b)
			work = w.work
			w.until("one has the lease with another list", func() bool { return w.holder() != nil && w.work > work+2 })
			w.until("all take part", func() bool {
				return !slices.ContainsFunc([]*machine{a, b, step.in}, func(m *machine) bool { return !m.node.e.ready() || !m.member() })
			})
			if a.node.e.meta.Generation <= generation {
				t.Error("the generation is the same")
			}
		}
		if len(a.node.e.state.By) < w.work/2 {
			t.Errorf("%d of %d claims are known", len(a.node.e.state.By), w.work)
		}
	}
}

// TestChangedListWaits: the only voter that knows the last claims is the last to start with the new list. No lease is granted before
// that, since the others do not know what they have missed.
func TestChangedListWaits(t *testing.T) {
	for seed := range uint64(8) {
		cryptotest.SetGlobalRandom(t, seed)
		w := newWorld(t, seed, 4, 0, faults{})
		a, b, c, d := w.machines["v0"], w.machines["v1"], w.machines["v2"], w.machines["v3"]
		set := func(list []string, machines ...*machine) {
			for _, m := range machines {
				m.list, m.gone = list, false
				m.start()
				m.ticks()
				m.beats()
			}
		}
		d.gone = true
		set([]string{"v0", "v1", "v2"}, a, b, c)
		w.until("one has the lease with the first list, and all vote", func() bool { return w.holder() != nil && a.member() })
		for _, name := range []string{"v1", "v2"} {
			w.cut[[2]string{name, "v0"}], w.cut[[2]string{"v0", name}] = true, true
		}
		work := w.work
		w.until("work has begun while one voter is cut off", func() bool { return w.holder() != nil && w.holder() != a && w.work > work+2 })
		c.gone = true
		clear(w.cut)
		after := []string{"v0", "v1", "v3"}
		set(after, a, d)
		if w.run(20 * time.Second); w.failed != nil {
			t.Fatal(seed, w.failed)
		}
		for _, m := range []*machine{a, d} {
			if _, holds := m.holder.Token(); holds {
				t.Fatalf("seed %d: %s has the lease, and does not know what %s knows", seed, m.name, b.name)
			}
		}
		why := ""
		for _, m := range []*machine{a, d} {
			m.node.Handle(lease.Request{Op: lease.Query, Group: m.node.e.group}, func(a lease.Answer) { why += a.Why })
		}
		if !strings.Contains(why, "missing: v1, v2") {
			t.Errorf("seed %d: the leader does not say for whom it waits: %q", seed, why)
		}
		set(after, b)
		w.until("one has the lease with the new list", func() bool { return w.holder() != nil })
		for name := range w.begun {
			if w.holder().node.e.state.By[name] == "" {
				t.Errorf("seed %d: %s is forgotten", seed, name)
			}
		}
	}
}

// TestManyLists: running voters are replaced, added and removed in any order. Those left out continue with the former list for a while. There is
// at most one lease, tokens grow, and no claim is lost.
func TestManyLists(t *testing.T) {
	lists := [][]string{{"v0", "v1", "v2"}, {"v0", "v1", "v3"}, {"v0", "v1", "v3", "v4", "v5"}, {"v0", "v3", "v4"}, {"v0", "v2", "v3"}}
	n, _ := seeds(t, 6)
	for seed := range n {
		cryptotest.SetGlobalRandom(t, seed)
		w := newWorld(t, seed, 6, 0, faults{lose: 50, slow: 20})
		for _, m := range w.machines {
			m.gone = true
		}
		for i, list := range append(lists, lists[0]) {
			names := slices.Clone(list)
			w.rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			for _, name := range names {
				m := w.machines[name]
				m.list, m.gone = list, false
				m.start()
				m.ticks()
				m.beats()
				w.run(w.within(8 * time.Second))
			}
			work := w.work
			w.until(fmt.Sprintf("seed %d: one has the lease with list %d, and all take part", seed, i), func() bool {
				return w.holder() != nil && slices.Contains(list, w.holder().name) && w.work > work+1 && !slices.ContainsFunc(list, func(name string) bool {
					m := w.machines[name]
					return !m.node.e.ready() || !m.member() || m.node.e.state.Floor == 0
				})
			})
			w.until(fmt.Sprintf("seed %d: all claims are known with list %d", seed, i), func() bool {
				for name := range w.begun {
					if w.machines[list[0]].node.e.state.By[name] == "" {
						return false
					}
				}
				return true
			})
			for name, m := range w.machines {
				m.gone = !slices.Contains(list, name)
			}
		}
	}
}

// TestTwoOfOneName: a copy of a master, or the master after a restart, has the same name as the holder, but neither its lease nor its claims.
func TestTwoOfOneName(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 3)
	w := newWorld(t, 3, 3, 0, faults{})
	w.until("one has the lease and has begun work", func() bool { return w.holder() != nil && w.work > 0 })
	m := w.holder()
	first, _ := m.holder.Token()
	var names []string
	for name, h := range w.begun {
		if h == m.holder {
			names = append(names, name)
		}
	}
	clone := lease.NewHolder(m.name, lease.Voters{Now: m.clock}, slog.New(slog.DiscardHandler))
	beat := func() {
		from := m.clock()
		m.ask(clone.Wish(), func(a lease.Answer) { clone.Granted(a, from) })
	}
	for range 20 {
		beat()
		w.run(500 * time.Millisecond)
		if _, holds := clone.Token(); holds {
			t.Fatal("both have the lease")
		}
	}
	if w.holder() != m {
		t.Fatal("the first has lost it")
	}
	w.quiet = true // the processes of all masters end
	var second uint64
	w.until("the copy has the lease", func() bool {
		beat()
		var holds bool
		second, holds = clone.Token()
		return holds
	})
	if second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	for _, name := range names {
		var answers []lease.Answer
		m.ask(lease.Request{Op: lease.Claim, Holder: clone.Wish().Holder, Token: second, Name: name}, func(a lease.Answer) { answers = append(answers, a) })
		w.run(time.Second)
		if slices.ContainsFunc(answers, func(a lease.Answer) bool { return a.Claimed }) ||
			!slices.ContainsFunc(answers, func(a lease.Answer) bool { return lease.IDOf(a.By) == m.name }) {
			t.Errorf("%s: %+v", name, answers)
		}
	}
}

// TestAcquireAgain: a holder that has lost its lease gets it again with a greater token. A holder that did not receive its grant gets the same
// grant again.
func TestAcquireAgain(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 6)
	w := newWorld(t, 6, 3, 0, faults{})
	w.until("one has the lease", func() bool { return w.holder() != nil })
	w.run(5 * time.Second) // the leadership is passed on
	m := w.holder()
	w.quiet = true
	token, _ := m.holder.Token()
	ask := func(last uint64) (granted uint64) {
		m.ask(lease.Request{Op: lease.Acquire, Holder: m.holder.Wish().Holder, Token: last}, func(a lease.Answer) {
			if a.Granted {
				granted = a.Seen
			}
		})
		w.run(time.Second)
		return granted
	}
	if got := ask(token - 1); got != token {
		t.Errorf("one that does not know token %d gets %d", token, got)
	}
	if got := ask(token); got <= token {
		t.Errorf("one that had token %d gets %d", token, got)
	}
}

// TestOldVersion: the group knows what a voter granted and recorded with the previous version, and the files of that version are removed.
func TestOldVersion(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Name: "a", Voters: []string{"a", "b", "c"}, Path: filepath.Join(dir, "voter.db"), Log: slog.New(slog.DiscardHandler)}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(oldGrants, `{"token": 1763971200123, "holder": "b/XYZ"}`)
	write(oldClaims, `{"": {"holder": "work/1", "at": "2026-11-24T08:00:00Z"}, "work/2": {"holder": "b/XYZ", "at": "2026-11-24T08:00:00Z"}}`)
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	generation := uint64(0)
	ask := func() *lease.Before {
		a, err := n.Answer(t.Context(), lease.Request{Op: lease.Past, Group: lease.Fingerprint(cfg.Voters), Generation: generation})
		if err != nil || a.Past == nil {
			t.Fatal(a, err)
		}
		return a.Past
	}
	if b := ask(); b.Seen != 1763971200123 || b.Forgotten != "work/1" || b.By["work/2"] != "b/XYZ" || len(b.By) != 1 {
		t.Errorf("%+v", b)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{oldGrants, oldClaims} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is there", name)
		}
	}
	if n, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	if b := ask(); b.Seen != 1763971200123 {
		t.Errorf("after a start: %+v", b)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	write(oldGrants, `{"token": 1763971999999, "holder": "c/XYZ"}`) // the earlier version ran again
	if n, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	generation = 1
	if b := ask(); b.Seen != 1763971999999 || b.By["work/2"] != "b/XYZ" {
		t.Errorf("after the earlier version: %+v", b)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	write(oldGrants, "{")
	cfg.Path = filepath.Join(dir, "other.db")
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "is damaged, remove it") {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestDisk: a file has the same content as a disk in memory after any changes.
func TestDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "voter.db")
	file, err := openDisk(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { file.Close() }()
	memory := &memory{}
	r := rand.New(rand.NewPCG(1, 1))
	last := uint64(0)
	for i := range 200 {
		c := change{writes: uint64(i), marks: map[uint64]mark{uint64(r.IntN(3)): {Writes: uint64(i), Start: 7}}}
		switch r.IntN(8) {
		case 0:
			c.meta = &meta{Group: fmt.Sprint(i), Number: uint64(i), Before: lease.Before{Seen: uint64(i)}}
			last = 0
		case 1:
			last += 5
			c.snap = &pb.Snapshot{Data: []byte("x"), Metadata: &pb.SnapshotMetadata{Index: new(last), Term: new(uint64(i))}}
			c.compact = last
		case 2:
			c.compact = last / 2
		case 3, 4:
			c.hard = &pb.HardState{Term: new(uint64(i)), Vote: new(uint64(1)), Commit: new(last)}
		}
		from := max(1, last-uint64(r.IntN(int(last)+1))) // some entries replace others
		if last = from + uint64(r.IntN(4)); r.IntN(3) > 0 {
			for index := from; index <= last; index++ {
				c.entries = append(c.entries, &pb.Entry{Index: new(index), Term: new(uint64(i)), Data: []byte{byte(i)}})
			}
		}
		if err := file.save(c); err != nil {
			t.Fatal(err)
		}
		if err := memory.save(c); err != nil {
			t.Fatal(err)
		}
		if i%20 == 0 {
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			if file, err = openDisk(path); err != nil {
				t.Fatal(err)
			}
		}
		x, err := file.load()
		if err != nil {
			t.Fatal(err)
		}
		y, err := memory.load()
		if err != nil {
			t.Fatal(err)
		}
		same := reflect.DeepEqual(x.meta, y.meta) && proto.Equal(x.hard, y.hard) && proto.Equal(x.snap, y.snap) && x.writes == y.writes &&
			reflect.DeepEqual(x.marks, y.marks) && slices.EqualFunc(x.entries, y.entries, func(a, b *pb.Entry) bool { return proto.Equal(a, b) })
		if !same {
			t.Fatalf("change %d: %+v\nis %+v\nand %+v", i, c, x, y)
		}
	}
}

// TestDriver: the drivers of three voters in one process reach agreement. The log is compacted, and a voter that has lost its file gets
// everything by a snapshot.
func TestDriver(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	nodes := map[string]*Driver{}
	stops := map[string]func(){}
	list, dir := []string{"a", "b", "c"}, t.TempDir()
	at := func(name string) *Driver {
		mu.Lock()
		defer mu.Unlock()
		return nodes[name]
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	ask := func(ctx context.Context, name string, r lease.Request) (lease.Answer, error) {
		d := at(name)
		if d == nil {
			return lease.Answer{}, os.ErrClosed
		}
		return d.Answer(ctx, r)
	}
	run := func(name string) {
		post := func(_ context.Context, to string, p Packet) (Packet, error) {
			d := at(to)
			if d == nil {
				return Packet{}, os.ErrClosed
			}
			b, err := p.Encode()
			if err != nil {
				return Packet{}, err
			}
			if p, err = ReadPacket(b); err != nil {
				return Packet{}, err
			}
			return d.Exchange(name, p), nil
		}
		d, err := Drive(Config{Name: name, Voters: list, Path: path(name), Log: slog.New(slog.DiscardHandler)}, post, ask)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		nodes[name] = d
		mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx) }()
		stops[name] = func() {
			mu.Lock()
			nodes[name] = nil
			mu.Unlock()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	for _, name := range list {
		run(name)
	}
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := lease.NewHolder("m", lease.Voters{Names: list, Group: lease.Fingerprint(list), Ask: ask}, slog.New(slog.DiscardHandler))
	held := make(chan struct{})
	go func() { defer close(held); h.Run(ctx, func() bool { return true }) }()
	defer func() { cancel(); <-held }()
	eventually.Nil(t, time.Minute, "it has the lease", func() error {
		if _, holds := h.Token(); !holds {
			return os.ErrNotExist
		}
		return nil
	})
	const claims = snapEntries + 2*keepEntries
	for i := range claims {
		name := fmt.Sprintf("work/%06d", i)
		eventually.Nil(t, time.Minute, name, func() error {
			_, by, err := h.Claim(t.Context(), name)
			if by != "" {
				t.Fatal(by)
			}
			return err
		})
	}
	stops["c"]()
	if err := os.Remove(path("c")); err != nil {
		t.Fatal(err)
	}
	run("c")
	eventually.Nil(t, time.Minute, "it has all claims", func() error {
		d := at("c")
		d.mu.Lock()
		defer d.mu.Unlock()
		if n := len(d.e.state.By); n < claims || d.e.state.Members[d.e.meta.Number] != "c" {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	d := at("a")
	d.mu.Lock()
	defer d.mu.Unlock()
	if first, _ := d.e.log.FirstIndex(); first < keepEntries {
		t.Errorf("the log begins at %d", first)
	}
}

// FuzzPacket: packets of another voter are decoded within bounds, and remove no other voter from the group.
func FuzzPacket(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	list := []string{"a", "b", "c"}
	group := lease.Fingerprint(list)
	message := func(m *pb.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	a, b := firstNumber(group, 0, "a"), firstNumber(group, 0, "b")
	for _, p := range []Packet{
		{Group: group, Start: 1},
		{Group: group, Start: 1, Number: b, Term: 2, Writes: 5, About: 3},
		{Group: group, Start: 1, Number: b, Term: 1, Messages: [][]byte{
			message(&pb.Message{Type: pb.MsgPreVote.Enum(), From: new(b), To: new(a), Term: new(uint64(2)), LogTerm: new(uint64(1)), Index: new(uint64(1))}),
			message(&pb.Message{Type: pb.MsgApp.Enum(), From: new(b), To: new(a), Term: new(uint64(2)), LogTerm: new(uint64(1)), Index: new(uint64(1)),
				Entries: []*pb.Entry{{Term: new(uint64(2)), Index: new(uint64(2))}}, Commit: new(uint64(2))}),
			message(&pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(b), To: new(a), Term: new(uint64(2)), Commit: new(uint64(9))}),
		}},
		{Group: group, Generation: 3, Number: b, Term: 5, Start: 1},
	} {
		text, err := p.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ReadPacket(text)
		if err != nil {
			return
		}
		if len(p.Messages) > maxMessages {
			t.Fatalf("%d messages", len(p.Messages))
		}
		cfg := Config{Name: "a", Voters: list, Path: "/nonexistent/voter", Log: slog.New(slog.DiscardHandler), Mail: func(string, [][]byte) {}}
		n := newNode(cfg, &memory{})
		if err := n.e.open(); err != nil {
			t.Fatal(err)
		}
		fresh := Packet{Group: group, Start: 2}
		n.Exchange("c", fresh)
		if n.e.meta.Number != a {
			t.Fatal("it has not begun")
		}
		out := n.Exchange("b", p)
		if out.Group != group {
			t.Fatalf("%+v", out)
		}
		n.Tick()
		if n.e.raft != nil && n.e.raft.BasicStatus().RaftState == raft.StateLeader {
			t.Fatal("it leads by the words of one")
		}
	})
}

// TestPacket: a packet is unchanged after encoding and decoding.
func TestPacket(t *testing.T) {
	p := Packet{Group: "x", Generation: 1, Number: 1<<63 - 1, Term: 3, Writes: 4, Start: 1<<63 + 5, About: 6, Old: 7, Messages: [][]byte{{1, 2}, {}}}
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := ReadPacket(b); err != nil || !reflect.DeepEqual(back, p) {
		t.Errorf("%+v %v", back, err)
	}
	if _, err := ReadPacket(bytes.Repeat([]byte{' '}, MaxPacket+1)); err == nil {
		t.Error("a packet that is too large")
	}
}
