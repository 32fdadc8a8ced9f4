package voter

import (
	"container/heap"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/cryptotest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"brine/internal/ha/lease"
	"brine/test/tools"
)

// memory is a disk in memory. It can be copied, and can be full.
type memory struct {
	s    saved
	full bool
}

var errFull = errors.New("the disk is full")

func (m *memory) load() (*saved, error) {
	c := m.clone().s
	return &c, nil
}

func (m *memory) Close() error { return nil }

func (m *memory) save(c change) error {
	if m.full {
		return errFull
	}
	if c.meta != nil {
		m.s = saved{meta: *c.meta}
	}
	if c.hard != nil {
		m.s.hard = proto.Clone(c.hard).(*pb.HardState)
	}
	if c.snap != nil {
		m.s.snap = proto.Clone(c.snap).(*pb.Snapshot)
	}
	m.s.writes, m.s.marks = c.writes, maps.Clone(c.marks)
	m.s.entries = slices.DeleteFunc(slices.Clone(m.s.entries), func(e *pb.Entry) bool { return e.GetIndex() <= c.compact })
	for _, e := range c.entries {
		m.s.entries = slices.DeleteFunc(m.s.entries, func(o *pb.Entry) bool { return o.GetIndex() >= e.GetIndex() })
		m.s.entries = append(m.s.entries, proto.Clone(e).(*pb.Entry))
	}
	return nil
}

// clone copies the disk. Its content is never modified in place.
func (m *memory) clone() *memory {
	c := *m
	c.s.entries = slices.Clone(m.s.entries)
	c.s.Before.By = maps.Clone(m.s.Before.By)
	if c.s.marks = maps.Clone(m.s.marks); c.s.marks == nil {
		c.s.marks = map[uint64]mark{}
	}
	return &c
}

// world has machines with voters and masters, connected by a network that loses, delays and repeats packets. Machines are suspended, and
// restarted with their disk, an older one, or an empty one; their clocks differ by days and run at different rates. Everything runs in one
// goroutine, in an order determined by the seed.
type world struct {
	t        *testing.T
	rand     *rand.Rand
	now      time.Duration
	events   events
	machines map[string]*machine
	names    []string
	faults   faults
	cut      map[[2]string]bool

	greatest uint64
	owner    *lease.Holder
	changes  int
	lost     int  // number of lost disks
	whole    bool // all voters have been connected
	quiet    bool // no master wants the lease
	begun    map[string]*lease.Holder
	work     int
	failed   error
	// forgetful voters start with their first disk, and the others have no marks of them. hasty leaders do not wait.
	forgetful, hasty bool
}

// faults are probabilities in thousandths.
type faults struct {
	lose, slow, freeze, restart, cut, oldDisk, noDisk, full int
}

type machine struct {
	w       *world
	name    string
	list    []string // its cluster_voters
	witness bool
	node    *Node
	disk    *memory
	old     []*memory
	holder  *lease.Holder
	offset  time.Duration
	rate    float64
	frozen  time.Duration // until when it is suspended
	life    int
	forgot  bool   // its disk was reset or emptied
	stale   uint64 // the number on its old disk, until it takes part again
	gone    bool   // it is stopped for good
}

type event struct {
	at  time.Duration
	seq int
	fn  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

var seq int

func (w *world) after(d time.Duration, fn func()) {
	seq++
	heap.Push(&w.events, event{w.now + d, seq, fn})
}

func newWorld(t *testing.T, seed uint64, masters, witnesses int, f faults) *world {
	w := &world{t: t, rand: rand.New(rand.NewPCG(seed, 1)), machines: map[string]*machine{}, faults: f,
		begun: map[string]*lease.Holder{}, cut: map[[2]string]bool{}}
	for i := range masters + witnesses {
		w.names = append(w.names, fmt.Sprint("v", i))
	}
	for i, name := range w.names {
		w.add(name, i >= masters)
	}
	return w
}

func (w *world) add(name string, witness bool) *machine {
	m := &machine{w: w, name: name, list: w.names, witness: witness, disk: &memory{}, offset: time.Duration(w.rand.Int64N(int64(144*time.Hour))) - 72*time.Hour,
		rate: 0.97 + 0.06*w.rand.Float64()}
	w.machines[name] = m
	m.start()
	m.old = append(m.old, m.disk.clone())
	m.ticks()
	if !witness {
		m.beats()
	}
	return m
}

func (w *world) chance(of1000 int) bool { return w.rand.IntN(1000) < of1000 }

func (w *world) within(d time.Duration) time.Duration { return time.Duration(w.rand.Int64N(int64(d))) }

// clock returns the time of the machine's clock.
func (m *machine) clock() time.Time {
	return time.Unix(1_800_000_000, 0).Add(m.offset + time.Duration(float64(m.w.now)*m.rate))
}

// start starts the voter and the master of a machine.
func (m *machine) start() {
	w := m.w
	m.life++
	cfg := Config{Name: m.name, Voters: m.list, Path: "/nonexistent/voter", Witness: m.witness, Log: slog.New(slog.DiscardHandler),
		MayLead: func(name string) bool { o := w.machines[name]; return o != nil && !o.witness }}
	life := m.life
	if !m.witness {
		cfg.Mail = func(to string, messages [][]byte) {
			if m.life == life {
				m.send(to, m.node.e.packet(to), messages)
			}
		}
	}
	m.node = newNode(cfg, m.disk)
	m.node.e.now = m.clock
	if err := m.node.e.open(); err != nil {
		w.t.Fatal(err)
	}
	if w.forgetful {
		m.node.e.sure = true
		for _, o := range w.machines {
			if o.node != nil {
				clear(o.node.e.marks)
			}
		}
	}
	m.holder = lease.NewHolder(m.name, lease.Voters{Names: m.list, Group: lease.Fingerprint(m.list), Now: m.clock}, cfg.Log)
}

// run calls fn on a machine after d, or when it is no longer suspended.
func (m *machine) run(d time.Duration, fn func()) {
	life := m.life
	m.w.after(d, func() {
		switch {
		case m.life != life || m.gone:
		case m.frozen > m.w.now:
			m.run(m.frozen-m.w.now+m.w.within(50*time.Millisecond), fn)
		default:
			fn()
		}
	})
}

// network passes something between machines, unless it is lost.
func (w *world) network(from, to string, fn func()) {
	if w.machines[to] == nil || w.machines[to].gone || w.cut[[2]string{from, to}] || w.chance(w.faults.lose) {
		return
	}
	d := w.within(20 * time.Millisecond)
	if w.chance(w.faults.slow) {
		d = w.within(4 * time.Second)
	}
	w.machines[to].run(d, fn)
	if w.chance(w.faults.lose / 4) {
		w.machines[to].run(d+w.within(time.Second), fn) // a duplicate
	}
}

func (m *machine) send(to string, p Packet, messages [][]byte) {
	p.Messages = messages
	w, life := m.w, m.life
	w.network(m.name, to, func() {
		back := w.machines[to].node.Exchange(m.name, p)
		w.network(to, m.name, func() {
			if m.life == life {
				m.node.Returned(to, back)
			}
		})
	})
}

// ask sends a request to all voters that are masters.
func (m *machine) ask(r lease.Request, fn func(lease.Answer)) {
	w, life := m.w, m.life
	if r.Group = lease.Fingerprint(m.list); !m.witness {
		r.Group = m.holder.List().Group
	}
	h := m.holder
	for _, name := range slices.Sorted(maps.Keys(w.machines)) {
		if w.machines[name].witness || w.machines[name].gone {
			continue
		}
		w.network(m.name, name, func() {
			w.machines[name].node.Handle(r, func(a lease.Answer) {
				w.network(name, m.name, func() {
					if m.life == life {
						h.Learn(a)
						fn(a)
					}
				})
			})
		})
	}
}

func (m *machine) ticks() {
	life := m.life
	m.run(TickTime, func() {
		if m.life != life {
			return
		}
		m.node.Tick()
		if m.node.Begins() {
			m.begin()
		}
		m.ticks()
	})
}

// begin is Node.Begin without goroutines.
func (m *machine) begin() {
	known := map[string]lease.Before{m.name: m.node.e.meta.Before}
	for name, o := range m.w.machines {
		if name != m.name && !o.gone && !m.w.cut[[2]string{m.name, name}] && o.frozen <= m.w.now {
			o.node.Handle(lease.Request{Op: lease.Past, Group: m.node.e.group, Generation: m.node.e.meta.Generation}, func(a lease.Answer) {
				if a.Past != nil {
					known[name] = *a.Past
				}
			})
		}
	}
	m.node.begin(known, len(m.node.e.state.Members))
}

func (m *machine) beats() {
	m.run(lease.Term/6, func() {
		if m.w.quiet {
			return
		}
		from := m.clock()
		m.ask(m.holder.Wish(), func(a lease.Answer) { m.holder.Granted(a, from) })
		if token, holds := m.holder.Token(); holds {
			m.claim(token)
		}
		m.beats()
	})
}

// claim claims work and begins it. Several holders claim the same names.
func (m *machine) claim(token uint64) {
	w := m.w
	name := fmt.Sprintf("work/%06d", w.now/(6*time.Second))
	h := m.holder
	m.ask(lease.Request{Op: lease.Claim, Holder: m.holder.Wish().Holder, Token: token, Name: name}, func(a lease.Answer) {
		if now, holds := h.Token(); !a.Claimed || !holds || now != token {
			return
		}
		if old := w.begun[name]; old != nil && old != h {
			w.failed = fmt.Errorf("%s was begun twice", name)
		} else if old == nil {
			w.work++
		}
		w.begun[name] = h
	})
}

// restart starts a machine again.
func (m *machine) restart() {
	w := m.w
	switch {
	case w.forgetful:
		first := m.old[0].clone()
		if hard := m.disk.s.hard; hard != nil {
			first = m.old[min(1, len(m.old)-1)].clone()
		}
		m.disk = first
	case w.chance(w.faults.oldDisk) && w.mayForget(m):
		m.disk = m.old[w.rand.IntN(len(m.old))].clone()
		w.forgets(m)
		// All others are reachable until it takes part again, under its number or another one.
		m.stale = m.disk.s.Number
		clear(w.cut)
		for _, o := range w.machines {
			o.frozen, o.disk.full = 0, false
		}
	case w.chance(w.faults.noDisk) && w.mayForget(m):
		m.disk = &memory{}
		w.forgets(m)
	}
	m.start()
	m.ticks()
	if !m.witness {
		m.beats()
	}
}

// mayForget reports whether the disk of a machine may be lost: see the package documentation.
func (w *world) mayForget(m *machine) bool {
	if !w.whole {
		w.whole = !slices.ContainsFunc(w.names, func(name string) bool {
			return w.machines[name].node.e.state.Members == nil || !w.machines[name].member()
		})
	}
	n := 1
	for _, name := range w.names {
		if o := w.machines[name]; o != m && !o.recovered() {
			n++
		}
	}
	return w.whole && n <= (len(w.names)-1)/2
}

// forgets records that a machine has an old or an empty disk.
func (w *world) forgets(m *machine) {
	m.forgot = true
	w.lost++
}

// starting reports whether a machine's voter has an old disk and does not take part yet.
func (m *machine) starting() bool {
	if m.stale != 0 && (m.node.e.meta.Number != m.stale || m.node.e.ready()) {
		m.stale = 0
	}
	return m.stale != 0
}

// member reports whether a machine's voter has its number in the group.
func (m *machine) member() bool { return m.node.e.state.Members[m.node.e.meta.Number] == m.name }

// recovered reports whether a machine's voter has recovered its state, or has a new number that a majority knows.
func (m *machine) recovered() bool {
	if !m.forgot {
		return true
	}
	if !m.node.e.ready() || !m.member() {
		return false
	}
	know := 0
	for _, o := range m.w.machines {
		if e := &o.node.e; e.state.Members[e.meta.Number] != "" && e.state.Members[m.node.e.meta.Number] == m.name && len(e.conf.GetVotersOutgoing()) == 0 {
			know++
		}
	}
	m.forgot = know <= len(m.w.names)/2
	return !m.forgot
}

// trouble causes random faults.
func (w *world) trouble() {
	w.after(250*time.Millisecond, func() {
		if slices.ContainsFunc(w.names, func(name string) bool { return w.machines[name].starting() }) {
			w.trouble()
			return
		}
		m := w.machines[w.names[w.rand.IntN(len(w.names))]]
		if w.chance(w.faults.freeze) {
			m.frozen = w.now + w.within(2*lease.Term)
		}
		if w.chance(w.faults.cut) {
			if clear(w.cut); w.chance(700) {
				for _, name := range w.names {
					w.cut[[2]string{name, m.name}] = true
					w.cut[[2]string{m.name, name}] = w.chance(700)
				}
			}
		}
		m.disk.full = w.chance(w.faults.full)
		if w.chance(50) || len(m.old) == 1 && m.disk.s.Number != 0 {
			m.old = append(m.old, m.disk.clone())
		}
		if w.chance(w.faults.restart) {
			m.restart() // last, because it may end the faults of others
		}
		w.trouble()
	})
}

// run runs the world for a time, or until an invariant is violated.
func (w *world) run(d time.Duration) error {
	end := w.now + d
	for len(w.events) > 0 && w.events[0].at < end {
		e := heap.Pop(&w.events).(event)
		w.now = max(w.now, e.at)
		if w.hasty {
			for _, m := range w.machines {
				m.node.e.renewed = time.Time{}
			}
		}
		e.fn()
		if err := w.check(); err != nil {
			return err
		}
	}
	w.now = end
	return w.failed
}

func (w *world) check() error {
	if w.failed != nil {
		return w.failed
	}
	var held []string
	for _, m := range w.machines {
		token, holds := m.holder.Token()
		if !holds {
			continue
		}
		held = append(held, fmt.Sprint(m.name, " ", token))
		if token < w.greatest || token == w.greatest && w.owner != m.holder {
			return fmt.Errorf("%s holds %d after %d was held", m.name, token, w.greatest)
		}
		if token > w.greatest {
			w.greatest, w.owner = token, m.holder
			w.changes++
		}
	}
	if len(held) > 1 {
		return fmt.Errorf("more than one: %v", held)
	}
	return nil
}

// recovers ends all faults, and reports whether a master then has the lease.
func (w *world) recovers() (held bool, err error) {
	w.faults = faults{}
	clear(w.cut)
	for _, m := range w.machines {
		m.frozen, m.disk.full = 0, false
	}
	err = w.run(40 * time.Second)
	return w.holder() != nil, err
}

// split reports whether only witnesses and lost disks have the last entries. Then no voter can be elected, because witnesses have no
// connections to each other: one of several witnesses lacks a majority, and a master lacks the entries.
func (w *world) split() bool {
	last, known := uint64(0), map[bool]uint64{}
	for _, m := range w.machines {
		if m.node.e.log != nil {
			i, _ := m.node.e.log.LastIndex()
			last, known[m.witness] = max(last, i), max(known[m.witness], i)
		}
	}
	return known[true] == last && known[false] < last
}

// runs runs worlds of several sizes, and returns how often each event occurred. It stops at the first failure.
func runs(t *testing.T, few bool, first, n uint64, f faults, set func(*world)) (changes, work, lost int, err error) {
	t.Helper()
	for _, size := range [][2]int{{3, 0}, {2, 1}, {3, 2}} {
		for seed := first; seed < first+n; seed++ {
			cryptotest.SetGlobalRandom(t, seed) // raft uses it for elections
			w := newWorld(t, seed, size[0], size[1], f)
			if set != nil {
				set(w)
			}
			w.trouble()
			if err := w.run(5 * time.Minute); err != nil {
				return changes, work, lost, fmt.Errorf("%v, seed %d, after %v: %w", size, seed, w.now, err)
			}
			if set == nil && few && (w.changes < 3 || w.work < 5) {
				t.Errorf("%v, seed %d: the lease changed hands %d times, and %d pieces of work were begun", size, seed, w.changes, w.work)
			}
			if held, err := w.recovers(); err != nil {
				return changes, work, lost, fmt.Errorf("%v, seed %d, after %v: %w", size, seed, w.now, err)
			} else if set == nil && !held && !w.split() {
				t.Errorf("%v, seed %d: without faults no master gets the lease", size, seed)
			}
			changes, work, lost = changes+w.changes, work+w.work, lost+w.lost
		}
	}
	return changes, work, lost, nil
}

// seeds returns how many seeds a test uses, and whether this is the usual number.
func seeds(t *testing.T, usual uint64) (n uint64, few bool) {
	if tools.Race {
		t.Skip("a simulation in one goroutine, which make test-all runs")
	}
	text := os.Getenv("BRINE_VOTERS")
	if text == "" {
		return usual, true
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal("BRINE_VOTERS:", err)
	}
	return n, false
}

// TestOneHolder: at most one master holds the lease, tokens grow from holder to holder, and no two masters begin the same work. Packets are
// lost and late, machines are disconnected, suspended and restarted, disks are full, and clocks differ by days. With voters that forget, or
// leaders that do not wait, the same checks find two holders.
func TestOneHolder(t *testing.T) {
	n, few := seeds(t, 3)
	f := faults{lose: 100, slow: 50, freeze: 40, restart: 30, cut: 40, full: 50}
	changes, work, _, err := runs(t, few, 0, n, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the lease changed hands %d times, %d pieces of work were begun", changes, work)
	for what, set := range map[string]func(*world){
		"voters that forget":       func(w *world) { w.forgetful = true },
		"leaders that do not wait": func(w *world) { w.hasty = true },
	} {
		if _, _, _, err := runs(t, false, 0, 40, f, set); err == nil {
			t.Errorf("two holders were not found with %s", what)
		} else {
			t.Logf("%s: %v", what, err)
		}
	}
}

// TestLostDisks: the same holds if voters find an old or an empty disk after a restart, within the bounds that the package documentation
// names.
func TestLostDisks(t *testing.T) {
	n, few := seeds(t, 4)
	f := faults{lose: 100, slow: 50, freeze: 40, restart: 40, cut: 40, full: 50, oldDisk: 250, noDisk: 150}
	changes, work, lost, err := runs(t, few, 1000, n, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lost < 40 {
		t.Errorf("only %d disks were lost", lost)
	}
	t.Logf("%d disks were lost, the lease changed hands %d times, %d pieces of work were begun", lost, changes, work)
}
