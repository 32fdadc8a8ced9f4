package voter

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	"brine/internal/ha/lease"
)

// operation is a change of the voters that an operator requests on a machine until it has ended.
type operation struct {
	op     lease.Op
	name   string
	force  bool
	begun  bool
	end    lease.Change
	reason string
	until  time.Duration
}

// change requests a change of the voters, like lease.Holder.ChangeVoters.
func (m *machine) change(op lease.Op, name string, force bool) *operation {
	o := &operation{op: op, name: name, force: force, until: m.w.now + 20*time.Second}
	m.ask(lease.Request{Op: op, Voter: name, Force: force}, o.answered)
	m.again(o)
	return o
}

func (m *machine) again(o *operation) {
	m.w.after(250*time.Millisecond, func() {
		if o.end == "" && m.w.now < o.until {
			if !m.gone && m.frozen <= m.w.now {
				m.ask(lease.Request{Op: o.op, Voter: o.name, Force: o.force}, o.answered)
			}
			m.again(o)
		}
	})
}

func (o *operation) answered(a lease.Answer) {
	if a.Change == "" || o.end != "" {
		return
	}
	o.reason = a.Reason
	switch a.Change {
	case lease.ChangeBegun:
		o.begun = true
	case lease.ChangeDone, lease.ChangeAbsent, lease.ChangeRefused:
		o.end = a.Change
	}
}

// voters creates a world in which only the first of the machines vote, and all have that list.
func voters(t *testing.T, seed uint64, masters, witnesses, first int, f faults) *world {
	cryptotest.SetGlobalRandom(t, seed)
	w := newWorld(t, seed, masters, witnesses, f)
	list := w.names[:first]
	for _, name := range w.names {
		w.machines[name].list = list
		w.machines[name].disk = &memory{}
		w.machines[name].back()
	}
	w.until("one has the lease", func() bool { return w.holder() != nil && w.work > 0 })
	return w
}

// back starts a machine again with its disk.
func (m *machine) back() {
	m.gone = false
	m.start()
	m.ticks()
	if !m.witness {
		m.beats()
	}
}

// ends runs the world until an operation has ended, and expects the end want and a reason with these words.
func (w *world) ends(o *operation, want lease.Change, words ...string) {
	w.t.Helper()
	w.until(fmt.Sprintf("%s %s ends: %s", o.op, o.name, o.reason), func() bool { return o.end != "" || w.now >= o.until })
	if o.end != want {
		w.t.Fatalf("%s %s: %q (%s), not %q", o.op, o.name, o.end, o.reason, want)
	}
	for _, word := range words {
		if !strings.Contains(o.reason, word) {
			w.t.Errorf("%s %s: it does not say %q: %s", o.op, o.name, word, o.reason)
		}
	}
}

// vote runs the world until these are the voters according to each of them, and one master has the lease.
func (w *world) vote(names ...string) {
	w.t.Helper()
	state := ""
	w.until(fmt.Sprint(names, " vote"), func() bool {
		state = ""
		for _, name := range names {
			m := w.machines[name]
			if !m.node.e.ready() || !m.member() || !slices.Equal(m.node.List().Names, names) {
				state += fmt.Sprint(name, m.node.List(), " ")
			}
		}
		return state == "" && w.holder() != nil && (w.leader() != nil && slices.Contains(names, w.leader().name))
	})
}

// out expects a machine not to vote, and to give a reason with these words.
func (w *world) out(m *machine, words string) {
	w.t.Helper()
	why := ""
	m.node.Handle(lease.Request{Op: lease.Query, Group: m.node.e.group}, func(a lease.Answer) { why = a.Why })
	if m.node.e.raft != nil || !strings.Contains(why, words) {
		w.t.Errorf("%s takes part still, or does not say %q: %q", m.name, words, why)
	}
}

// TestChangeVoters: voters are added and removed while the group runs, including the leader and the holder of the lease. The lease continues
// and no claim is lost. A removed voter reports that it was removed, also when all are restarted with the list with which the group began.
func TestChangeVoters(t *testing.T) {
	for seed := range uint64(4) {
		w := voters(t, seed, 5, 0, 3, faults{lose: 30, slow: 10})
		at := w.machines["v4"]
		learned := false
		o := at.change(lease.AddVoter, "v3", false)
		w.until("it is added", func() bool {
			for _, m := range w.machines {
				learned = learned || slices.Contains(m.node.List().Learners, "v3")
			}
			return o.end != "" || w.now >= o.until
		})
		w.ends(o, lease.ChangeDone)
		if !learned {
			t.Errorf("seed %d: it was no learner", seed)
		}
		w.vote("v0", "v1", "v2", "v3")
		w.ends(at.change(lease.AddVoter, "v4", false), lease.ChangeDone)
		w.vote("v0", "v1", "v2", "v3", "v4")
		rest := []string{"v0", "v1", "v2", "v3", "v4"}
		for _, who := range []func() *machine{w.leader, w.holder} {
			w.until("there is one", func() bool { return who() != nil })
			out := who()
			w.ends(at.change(lease.RemoveVoter, out.name, false), lease.ChangeAbsent)
			rest = slices.DeleteFunc(rest, func(name string) bool { return name == out.name })
			w.vote(rest...)
			w.until(out.name+" knows", func() bool { return out.node.e.meta.Left })
			w.out(out, "was removed from the voters")
		}
		// The configuration has the initial list, the present one, or one in between.
		for i, name := range w.names {
			m := w.machines[name]
			m.list = [][]string{w.names[:3], rest, w.names}[(i+int(seed))%3]
			m.back()
		}
		w.vote(rest...)
		for _, name := range w.names {
			if !slices.Contains(rest, name) {
				w.out(w.machines[name], "was removed from the voters")
			}
		}
		work := w.work
		w.until("work goes on", func() bool { return w.work > work+2 })
		for name := range w.begun {
			if w.machines[rest[0]].node.e.state.By[name] == "" && w.machines[rest[1]].node.e.state.By[name] == "" {
				t.Errorf("seed %d: %s is forgotten", seed, name)
			}
		}
		// A removed voter can be added again.
		for _, name := range w.names {
			if !slices.Contains(rest, name) {
				w.ends(at.change(lease.AddVoter, name, false), lease.ChangeDone)
				rest = append(rest, name)
				slices.Sort(rest)
			}
		}
		w.vote(rest...)
	}
}

// TestChangesRefused: forbidden changes are refused with a reason that says what to do.
func TestChangesRefused(t *testing.T) {
	w := voters(t, 1, 4, 1, 3, faults{})
	at := w.machines["v0"]
	w.ends(at.change(lease.AddVoter, "v1", false), lease.ChangeDone)
	if o := at.change(lease.AddVoter, "v1", false); o.begun {
		t.Error("a voter is added twice")
	}
	w.ends(at.change(lease.RemoveVoter, "nobody", false), lease.ChangeAbsent)
	w.ends(at.change(lease.RemoveVoter, "v2", false), lease.ChangeRefused, "2 voters would be left", "--force")

	// It cannot be reached.
	w.machines["v3"].gone = true
	o := at.change(lease.AddVoter, "v3", false)
	w.ends(o, "", "it has not answered")
	w.run(time.Minute)
	w.machines["v3"].back()
	w.run(20 * time.Second)
	if l := w.leader().node.List(); len(l.Names) != 3 || len(l.Learners) > 0 {
		t.Errorf("one that could not be reached is added later: %+v", l)
	}

	// A learner without its disk does not vote.
	o = at.change(lease.AddVoter, "v3", false)
	for end := w.now + time.Minute; !w.machines["v3"].gone && w.now < end; w.run(5 * time.Millisecond) {
		l := w.leader()
		w.machines["v3"].gone = l != nil && slices.Contains(l.node.List().Learners, "v3")
	}
	w.ends(o, "", "cannot be reached")
	if l := w.leader().node.List(); len(l.Names) != 3 {
		t.Errorf("a lost learner votes: %+v", l)
	}
	w.ends(at.change(lease.AddVoter, "v4", false), "", "brine cluster voters remove v3")
	w.ends(at.change(lease.RemoveVoter, "v3", false), lease.ChangeAbsent)
	w.machines["v3"].back()

	// If one voter is down and another were removed, no majority would be left.
	w.ends(at.change(lease.AddVoter, "v3", false), lease.ChangeDone)
	w.vote("v0", "v1", "v2", "v3")
	down := w.machines["v1"]
	if w.leader() == down || w.holder() == down {
		down = w.machines["v2"]
	}
	down.gone = true
	w.run(10 * time.Second)
	rest := slices.DeleteFunc([]string{"v1", "v2", "v3"}, func(name string) bool { return name == down.name })
	w.until("there is a leader", func() bool { return w.leader() != nil })
	w.ends(at.change(lease.AddVoter, "v4", false), lease.ChangeDone)
	w.machines["v4"].gone = true
	w.run(10 * time.Second)
	w.until("there is a leader", func() bool { return w.leader() != nil })
	w.ends(at.change(lease.RemoveVoter, rest[1], false), lease.ChangeRefused, down.name+", v4", "no majority")
	w.ends(at.change(lease.RemoveVoter, "v4", false), lease.ChangeAbsent)
	down.back()
	w.machines["v4"].back()
	w.vote("v0", "v1", "v2", "v3")
	w.until("the witness knows", func() bool { return w.machines["v4"].node.e.meta.Left })

	// Down to one, by force.
	for _, name := range []string{"v3", "v2", "v1"} {
		w.ends(w.machines["v3"].change(lease.RemoveVoter, name, true), lease.ChangeAbsent)
	}
	w.vote("v0")
	w.ends(w.machines["v3"].change(lease.RemoveVoter, "v0", true), lease.ChangeRefused, "no master would be left")
}

// TestAddToOthers: a machine that votes in another group is not added to this one.
func TestAddToOthers(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 2)
	w := newWorld(t, 2, 6, 0, faults{})
	for i, name := range w.names {
		m := w.machines[name]
		m.list, m.disk = []string{"v0", "v1", "v2"}, &memory{}
		if i > 2 {
			m.list = []string{"v3", "v4", "v5"}
		}
		m.back()
		m.holder = lease.NewHolder(m.name, lease.Voters{Now: m.clock, Group: "none"}, m.node.e.cfg.Log) // two groups grant two leases
	}
	leader := func(first int) *machine {
		for _, name := range w.names[first : first+3] {
			if m := w.machines[name]; m.node.Leads() && m.node.e.state.Floor != 0 {
				return m
			}
		}
		return nil
	}
	w.until("both have a leader", func() bool { return leader(0) != nil && leader(3) != nil })
	o := &operation{op: lease.AddVoter, name: "v4"}
	w.until("it is refused", func() bool {
		l := leader(0)
		l.node.Handle(lease.Request{Op: o.op, Voter: o.name, Group: l.node.e.group}, o.answered)
		return o.end != ""
	})
	if o.end != lease.ChangeRefused || !strings.Contains(o.reason, "votes with other voters") {
		t.Errorf("%q: %s", o.end, o.reason)
	}
}

// TestTwoOperators: each of two concurrent changes takes the other one into account. Two voters of four are not both removed; two added voters
// are both added.
func TestTwoOperators(t *testing.T) {
	for seed := range uint64(4) {
		w := voters(t, seed, 6, 0, 3, faults{lose: 20})
		a, b := w.machines["v4"], w.machines["v5"]
		one, two := a.change(lease.AddVoter, "v3", false), b.change(lease.AddVoter, "v4", false)
		w.ends(one, lease.ChangeDone)
		w.ends(two, lease.ChangeDone)
		w.vote("v0", "v1", "v2", "v3", "v4")
		one, two = a.change(lease.RemoveVoter, "v3", false), b.change(lease.RemoveVoter, "v3", false)
		w.ends(one, lease.ChangeAbsent)
		w.ends(two, lease.ChangeAbsent)
		w.vote("v0", "v1", "v2", "v4")
		one, two = a.change(lease.RemoveVoter, "v1", false), b.change(lease.RemoveVoter, "v2", false)
		w.until("both end", func() bool { return one.end != "" && two.end != "" })
		if ends := []lease.Change{one.end, two.end}; !slices.Contains(ends, lease.ChangeAbsent) || !slices.Contains(ends, lease.ChangeRefused) {
			t.Errorf("seed %d: %q", seed, ends)
		}
		if n := len(w.leader().node.List().Names); n != 3 {
			t.Errorf("seed %d: %d voters are left", seed, n)
		}
	}
}

// TestDisksFromBeforeChange: the disk of a voter is reset to before the change, or lost, while the configuration has the initial list. It votes
// again if it is a voter. If it was removed, it neither votes nor takes part in elections.
func TestDisksFromBeforeChange(t *testing.T) {
	for seed := range uint64(4) {
		w := voters(t, seed, 4, 0, 3, faults{})
		w.vote("v0", "v1", "v2")
		old := map[string]*memory{}
		for _, name := range w.names {
			old[name] = w.machines[name].disk.clone()
		}
		at := w.machines["v3"]
		w.ends(at.change(lease.AddVoter, "v3", false), lease.ChangeDone)
		w.ends(at.change(lease.RemoveVoter, "v2", false), lease.ChangeAbsent)
		w.vote("v0", "v1", "v3")
		for _, disk := range []func(name string) *memory{func(name string) *memory { return old[name] }, func(string) *memory { return &memory{} }} {
			for _, name := range w.names {
				m := w.machines[name]
				m.disk = disk(name)
				m.back()
				if name == "v2" {
					w.until("it knows that it was removed", func() bool { return m.node.e.meta.Left })
				}
				w.vote("v0", "v1", "v3")
			}
			w.out(w.machines["v2"], "was removed from the voters")
		}
	}
}

// TestRemovedWhileUnreachable: two voters are unreachable while others replace voters. One is still a voter and finds the present ones, although
// all others in its list were replaced. The other one was removed and learns that.
func TestRemovedWhileUnreachable(t *testing.T) {
	for seed := range uint64(4) {
		w := voters(t, seed, 6, 0, 3, faults{lose: 20})
		at := w.machines["v5"]
		do := func(op lease.Op, name string, end lease.Change, names ...string) {
			t.Helper()
			w.ends(at.change(op, name, false), end)
			w.until(fmt.Sprint(names), func() bool { return w.leader() != nil && slices.Equal(w.leader().node.List().Names, names) })
		}
		a := w.machines["v0"]
		a.gone = true
		w.run(10 * time.Second)
		do(lease.AddVoter, "v3", lease.ChangeDone, "v0", "v1", "v2", "v3")
		do(lease.AddVoter, "v4", lease.ChangeDone, "v0", "v1", "v2", "v3", "v4")
		b := w.machines["v1"]
		do(lease.RemoveVoter, "v2", lease.ChangeAbsent, "v0", "v1", "v3", "v4")
		do(lease.AddVoter, "v5", lease.ChangeDone, "v0", "v1", "v3", "v4", "v5")
		b.gone = true
		w.run(10 * time.Second)
		do(lease.RemoveVoter, "v1", lease.ChangeAbsent, "v0", "v3", "v4", "v5")
		w.machines["v2"].gone = true
		a.back()
		w.vote("v0", "v3", "v4", "v5")
		b.back()
		w.until("the removed one knows", func() bool { return b.node.e.meta.Left })
		w.out(b, "v0, v3, v4, v5")
	}
}

// TestChangesAtRandom: two operators add and remove arbitrary voters, while packets are lost or late, and machines are disconnected,
// suspended and restarted with the initial list. There is at most one lease, tokens grow, and no two masters begin the same work. After the
// faults all voters have the same list, and one master has the lease.
func TestChangesAtRandom(t *testing.T) {
	n, few := seeds(t, 6)
	made := 0
	for seed := range n {
		w := voters(t, 2000+seed, 5, 2, 3, faults{lose: 80, slow: 40, freeze: 30, restart: 30, cut: 30, full: 30})
		w.trouble()
		for end := w.now + 4*time.Minute; w.now < end; {
			var both []*operation
			for range 2 {
				at := w.machines[w.names[w.rand.IntN(5)]]
				op := []lease.Op{lease.AddVoter, lease.RemoveVoter}[w.rand.IntN(2)]
				both = append(both, at.change(op, w.names[w.rand.IntN(len(w.names))], false))
			}
			for w.now < both[0].until && slices.ContainsFunc(both, func(o *operation) bool { return o.end == "" }) {
				if err := w.run(250 * time.Millisecond); err != nil {
					t.Fatalf("seed %d, after %v: %v", seed, w.now, err)
				}
			}
			for _, o := range both {
				if o.begun && (o.end == lease.ChangeDone || o.end == lease.ChangeAbsent) {
					made++
				}
			}
		}
		held, err := w.recovers()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !held && !w.split() {
			t.Fatalf("seed %d: without faults no master gets the lease", seed)
		}
		if l := w.leader(); l != nil {
			w.vote(l.node.List().Names...)
			for name := range w.begun {
				if l.node.e.state.By[name] == "" {
					t.Errorf("seed %d: %s is forgotten", seed, name)
				}
			}
		}
	}
	if t.Logf("%d changes were made", made); few && made < 20 {
		t.Error("these are too few")
	}
}
