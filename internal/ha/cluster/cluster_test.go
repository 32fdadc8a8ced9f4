package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/ha/cluster/clustertest"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/queue"
	"brine/internal/ha/roster"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// host records the calls of a cluster to its master.
type host struct {
	mu      sync.Mutex
	jobs    []string
	events  []string // FROM TAG
	data    []*value.Dict
	notes   []string
	lost    []string
	rotated int
	present []string
}

func (h *host) Relay(from, tag string, data *value.Dict) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, from+" "+tag)
	h.data = append(h.data, data)
}

func (h *host) Job(j Job) { h.mu.Lock(); defer h.mu.Unlock(); h.jobs = append(h.jobs, j.JID) }

func (h *host) Note(n Note, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, string(n)+" "+id)
}

func (h *host) Present() []string { h.mu.Lock(); defer h.mu.Unlock(); return h.present }

func (h *host) Lost(p string) { h.mu.Lock(); defer h.mu.Unlock(); h.lost = append(h.lost, p) }

func (h *host) Rotated() { h.mu.Lock(); defer h.mu.Unlock(); h.rotated++ }

func (h *host) has(ok func(h *host) bool) func() error {
	return func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !ok(h) {
			return fmt.Errorf("jobs %d, events %v, lost %v, notes %v", len(h.jobs), h.events, h.lost, h.notes)
		}
		return nil
	}
}

var hosts atomic.Int32

// newHosts returns loopback addresses that no other test uses, and a port that is
// free on all of them.
func newHosts(t testing.TB, n int) (ids []string, port int) {
	t.Helper()
	pid := os.Getpid()
	for range n {
		ids = append(ids, fmt.Sprintf("127.%d.%d.%d", 192+pid>>8&0x3f, pid&0xff, 1+hosts.Add(1)%250))
	}
	for range 20 {
		l, err := net.Listen("tcp", ids[0]+":0")
		if err != nil {
			t.Skip("no loopback addresses: ", err)
		}
		port = l.Addr().(*net.TCPAddr).Port
		l.Close()
		free := true
		for _, id := range ids {
			l, err := net.Listen("tcp", net.JoinHostPort(id, strconv.Itoa(port)))
			if err != nil {
				free = false
				continue
			}
			l.Close()
		}
		if free {
			return ids, port
		}
	}
	t.Fatal("no port is free")
	return nil, 0
}

// set is the configurations of masters on one shared directory.
type set struct {
	t    testing.TB
	dir  string
	cfgs []Config
}

func newSet(t testing.TB, n int) *set {
	t.Helper()
	keys, err := clustertest.Keys()
	if err != nil {
		t.Fatal(err)
	}
	ids, port := newHosts(t, n)
	s := &set{t: t, dir: t.TempDir()}
	for i, id := range ids {
		s.cfgs = append(s.cfgs, Config{
			ID: id, Listen: id, CacheDir: filepath.Join(s.dir, "cache"), HashType: "sha256", Own: keys[i], OwnPub: keys[i].Public().PEM(), Keysize: 2048,
			Options: Options{ID: "test", Peers: slices.Delete(slices.Clone(ids), i, i+1), PKIDir: filepath.Join(s.dir, "pki"), Port: port},
		})
	}
	return s
}

type running struct {
	*Cluster
	*host
	stop func()
}

func (s *set) start(i int) *running {
	s.t.Helper()
	c, err := New(s.cfgs[i], clustertest.Quiet())
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Cluster: c, host: &host{}}
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, r.host) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				s.t.Errorf("%s: %v", s.cfgs[i].ID, err)
			}
		})
	}
	s.t.Cleanup(r.stop)
	return r
}

func (r *running) linked(n int) func() error {
	return func() error {
		up := 0
		for _, m := range r.Members() {
			if m.Up && m.Kind == "brine" {
				up++
			}
		}
		if up != n {
			return fmt.Errorf("%v", r.Members())
		}
		return nil
	}
}

func jid(n int) string { return fmt.Sprintf("20260101%012d", n) }

func (r *running) publish(t *testing.T, n int) {
	t.Helper()
	if err := r.Cluster.Relay.Publish(Job{JID: jid(n), Map: value.DictOf("fun", "test.ping", "jid", jid(n)), Minions: []string{"m"},
		Until: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
}

func (r *running) fire(tag string, pairs ...any) {
	bus := event.NewBus(0)
	defer bus.Handle(r.Cluster.Relay.Event)()
	bus.Fire(tag, value.DictOf(pairs...))
}

// TestThreeMasters: all masters get each job once and in order, events go only
// to masters with listeners, and connected minions are known everywhere.
func TestThreeMasters(t *testing.T) {
	s := newSet(t, 3)
	a := s.start(0)
	for i := range 10 { // before any master is connected
		a.publish(t, i)
	}
	b, c := s.start(1), s.start(2)
	for _, r := range []*running{a, b, c} {
		clustertest.Eventually(t, "all are connected", r.linked(2))
	}
	for i := range 990 {
		a.publish(t, 10+i)
	}
	for _, r := range []*running{b, c} {
		clustertest.Eventually(t, "all jobs are there", r.has(func(h *host) bool { return len(h.jobs) >= 1000 }))
		var want []string
		for i := range 1000 {
			want = append(want, jid(i))
		}
		if !slices.Equal(r.jobs, want) {
			t.Error("jobs came in another order, or twice")
		}
	}

	// b's minion returns for a's job: only a needs it.
	b.fire("salt/job/"+jid(3)+"/ret/m", "id", "m")
	clustertest.Eventually(t, "the return comes to who published the job",
		a.has(func(h *host) bool { return slices.Contains(h.events, b.cfg.ID+" salt/job/"+jid(3)+"/ret/m") }))
	if err := c.has(func(h *host) bool { return len(h.events) == 0 })(); err != nil {
		t.Error("an event came to a master without a listener for it: ", err)
	}
	// A listener at c waits.
	c.Cluster.Relay.Want([]string{"custom/"})
	clustertest.Eventually(t, "c hears what it wants", func() error {
		b.fire("custom/x")
		b.fire("other/x")
		return c.has(func(h *host) bool { return slices.Contains(h.events, b.cfg.ID+" custom/x") })()
	})
	if err := c.has(func(h *host) bool { return !slices.Contains(h.events, b.cfg.ID+" other/x") })(); err != nil {
		t.Error("an event came for which no listener waits: ", err)
	}

	a.Cluster.Relay.Tell(NoteSpeaks, "m1")
	for _, r := range []*running{b, c} {
		clustertest.Eventually(t, "a note is there", r.has(func(h *host) bool { return slices.Contains(h.notes, "speaks m1") }))
	}
	a.present, b.present = []string{"m1"}, []string{"m2", "m3"}
	got := c.Cluster.Present(t.Context())
	if !slices.Equal(got[a.cfg.ID], []string{"m1"}) || !slices.Equal(got[b.cfg.ID], []string{"m2", "m3"}) {
		t.Errorf("%v", got)
	}
	old := c.Secrets().AES.Current()
	if err := a.Rotate(); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the new key is known", c.has(func(h *host) bool { return h.rotated > 0 }))
	if now := c.Secrets().AES.Current(); now == old || now != a.Secrets().AES.Current() {
		t.Error("not the same new key")
	}
}

// TestResume: messages sent while a connection is broken, or the peer is
// unreachable, arrive afterwards, once.
func TestResume(t *testing.T) {
	s := newSet(t, 2)
	a, b := s.start(0), s.start(1)
	clustertest.Eventually(t, "connected", a.linked(1))
	sent := 0
	for range 20 {
		for range 50 {
			a.publish(t, sent)
			sent++
		}
		// Cut the existing connections in the middle of a transfer.
		p := a.peers.all()[b.cfg.ID]
		p.mu.Lock()
		if p.link != nil {
			p.link.Close()
		}
		p.mu.Unlock()
	}
	clustertest.Eventually(t, "all jobs are there", b.has(func(h *host) bool { return len(h.jobs) >= sent }))
	if slices.Sort(b.jobs); len(slices.Compact(b.jobs)) != sent {
		t.Error("a job came twice")
	}
	b.stop()
	clustertest.Eventually(t, "a knows that b is unreachable", a.has(func(h *host) bool { return slices.Contains(h.lost, b.cfg.ID) }))
	a.publish(t, sent)
	b = s.start(1)
	clustertest.Eventually(t, "the job that was sent meanwhile is there", b.has(func(h *host) bool { return slices.Contains(h.jobs, jid(sent)) }))
}

// TestBounded: an unreachable peer uses a bounded amount of memory, and learns
// that messages were lost.
func TestBounded(t *testing.T) {
	o := queue.New(10, 1000)
	for i := range 25 {
		o.Add([]byte{byte(i)})
	}
	first, items := o.From(1, 100, 1000)
	if first != 16 || len(items) != 10 || items[0][0] != 15 || o.TakeLost() != 15 {
		t.Errorf("first %d, %d items", first, len(items))
	}
	o.Ack(20)
	if first, items := o.From(0, 2, 1000); first != 21 || len(items) != 2 {
		t.Errorf("first %d, %d items", first, len(items))
	}
	o.Add(make([]byte, 2000))
	if first, items := o.From(0, 9, 10_000); first != 26 || len(items) != 1 {
		t.Errorf("first %d, %d items: too many bytes", first, len(items))
	}

	s := newSet(t, 2)
	a, b := s.start(0), s.start(1)
	clustertest.Eventually(t, "connected", a.linked(1))
	a.publish(t, 0)
	clustertest.Eventually(t, "the first is there", b.has(func(h *host) bool { return len(h.jobs) == 1 }))
	p := a.peers.all()[b.cfg.ID]
	clustertest.Eventually(t, "the first is acknowledged", func() error { // otherwise the next message would get another number
		p.out.Mu.Lock()
		defer p.out.Mu.Unlock()
		if n := len(p.out.Items); n > 0 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	p.out.Mu.Lock() // as if a hundred had been dropped
	p.out.First += 100
	p.out.Mu.Unlock()
	a.publish(t, 1)
	clustertest.Eventually(t, "the gap is noticed", b.has(func(h *host) bool { return len(h.jobs) == 2 && slices.Contains(h.lost, a.cfg.ID) }))
}

// TestRemoval: a peer whose key is deleted is dropped, and added again when the
// key is back.
func TestRemoval(t *testing.T) {
	s := newSet(t, 3)
	a, b, c := s.start(0), s.start(1), s.start(2)
	for _, r := range []*running{a, b, c} {
		clustertest.Eventually(t, "all are connected", r.linked(2))
	}
	if err := os.Remove(a.secrets.PeerPath(c.cfg.ID)); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*running{a, b} {
		clustertest.Eventually(t, "it is dropped", r.linked(1))
	}
	clustertest.Eventually(t, "it has no peer, and knows why", func() error {
		for _, m := range c.Members() {
			if m.Up || !strings.Contains(m.Problem, "was removed from the cluster") || !strings.Contains(m.Problem, "restart") {
				return fmt.Errorf("%+v", m)
			}
		}
		return nil
	})
	c.stop()
	a.publish(t, 1)
	clustertest.Eventually(t, "the others go on", b.has(func(h *host) bool { return len(h.jobs) == 1 }))
	c = s.start(2)
	for _, r := range []*running{a, b, c} {
		clustertest.Eventually(t, "all are connected again", r.linked(2))
	}
}

// TestRefusals: incompatible masters report the exact difference, at the start
// if possible.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *set, cfg *Config)
		want   []string
	}{
		"unshared cachedir": {func(s *set, cfg *Config) { cfg.CacheDir = filepath.Join(s.dir, "other") },
			[]string{"cachedir of", "is not the directory that"}},
		"other cluster_id": {func(_ *set, cfg *Config) { cfg.Options.ID = "else" }, []string{`cluster_id is "else" on`, `and "test" on`}},
		"other hash_type":  {func(_ *set, cfg *Config) { cfg.HashType = "md5" }, []string{`hash_type is "md5" on`}},
		"asymmetric peers": {func(s *set, _ *Config) { s.cfgs[0].Options.Peers = nil }, []string{"cluster_peers of", "does not name"}},
		"another id there": {func(s *set, cfg *Config) { s.cfgs[0].ID = "boss" }, nil},
		"another cluster key": {func(s *set, cfg *Config) {
			// Another directory, with the keys of the peers and the marks copied.
			cfg.Options.PKIDir = filepath.Join(s.dir, "pki2")
			if err := os.CopyFS(cfg.Options.PKIDir, os.DirFS(s.cfgs[0].Options.PKIDir)); err != nil {
				s.t.Fatal(err)
			}
			os.Remove(filepath.Join(cfg.Options.PKIDir, "cluster.pem"))
			os.Remove(filepath.Join(cfg.Options.PKIDir, "cluster.pub"))
		}, []string{"fingerprint of cluster.pub"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSet(t, 2)
			if name == "asymmetric peers" {
				c.change(s, nil)
			}
			if name == "another id there" {
				address := s.cfgs[0].ID
				s.cfgs[0].ID = "boss"
				s.cfgs[1].Options.Peers = []string{address}
				s.start(0)
				// The key and the mark of b are stored under its id; a master that looks for its
				// address finds neither.
				b := s.start(1)
				if b.Members()[0].Up {
					t.Error("it is a peer")
				}
				clustertest.Eventually(t, "nothing comes of it", func() error {
					if m := b.Members()[0]; m.Up {
						return errors.New("up")
					}
					return nil
				})
				return
			}
			s.start(0)
			if name != "asymmetric peers" {
				c.change(s, &s.cfgs[1])
			}
			_, err := New(s.cfgs[1], clustertest.Quiet())
			if err == nil {
				t.Fatal("it starts")
			}
			for _, w := range append(c.want, s.cfgs[1].ID) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v does not say %q", err, w)
				}
			}
		})
	}
}

// TestPartialList: a master whose cluster_peers lacks some of the others prevents
// none of them from starting, as long as one other agrees.
func TestPartialList(t *testing.T) {
	s := newSet(t, 4)
	for i := 1; i < 3; i++ {
		s.cfgs[i].Options.Peers = []string{s.cfgs[0].ID, s.cfgs[3-i].ID, s.cfgs[3].ID}
	}
	s.cfgs[3].Options.Peers = []string{s.cfgs[0].ID}
	a, _ := s.start(0), s.start(3)
	clustertest.Eventually(t, "the joining master is linked", a.linked(1))
	b := s.start(1)
	clustertest.Eventually(t, "b and a are linked", b.linked(1))
	s.start(2)
	clustertest.Eventually(t, "b, a and c are linked", b.linked(2))
}

// TestLateData: a network file system may show outdated data for some time.
func TestLateData(t *testing.T) {
	s := newSet(t, 2)
	a := s.start(0)
	token := filepath.Join(a.cfg.CacheDir, ownDir, filepath.Base(a.cfg.ID), tokenFile)
	now, err := os.ReadFile(token)
	if err != nil {
		t.Fatal(err)
	}
	write := func(b []byte) {
		if err := os.WriteFile(token+".new", b, 0o600); err != nil {
			t.Error(err)
		}
		if err := os.Rename(token+".new", token); err != nil {
			t.Error(err)
		}
	}
	write([]byte("older"))
	late := time.AfterFunc(time.Second, func() { write(now) })
	t.Cleanup(func() { late.Stop() })
	b := s.start(1)
	clustertest.Eventually(t, "both are linked", b.linked(1))
}

// TestUnmountedShare: a master with an empty key directory does not create a cluster while a peer
// runs.
func TestUnmountedShare(t *testing.T) {
	s := newSet(t, 2)
	s.start(0)
	dir := filepath.Join(s.dir, "unmounted")
	s.cfgs[1].Options.PKIDir = dir
	for range 2 { // as a service manager does
		if _, err := New(s.cfgs[1], clustertest.Quiet()); err == nil || !strings.Contains(err.Error(), "is not the directory that the masters share") ||
			!strings.Contains(err.Error(), s.cfgs[0].ID) {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"cluster.pem", "cluster.pub"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}

// TestSpelledPeers: no master is named twice, by itself, or in a way by which it cannot be reached.
func TestSpelledPeers(t *testing.T) {
	for _, c := range []struct {
		id, peers, want string // peers are separated by commas; "" is accepted
	}{
		{"master1", "master2,master3", ""},
		{"Master1", "MASTER2,2001:db8::1,127.0.0.9", ""},
		{"master1", "Master1", "is this master itself"},
		{"127.0.0.1", "::ffff:127.0.0.1", "is this master itself"},
		{"::1", "0:0::1", "is this master itself"},
		{"master1", "master2,master2", "names master2 twice"},
		{"master1", "master2,MASTER2", "names one master twice, as master2 and MASTER2"},
		{"master1", "2001:db8::1,2001:DB8:0::1", "names one master twice, as 2001:db8::1 and 2001:DB8:0::1"},
		{"master1", "master2.", "without the dot at its end"},
		{"master1", "[2001:db8::1]", "without brackets, as 2001:db8::1"},
		{"master1", "[2001:db8::1]:4520", "without a port, as 2001:db8::1"},
		{"master1", "192.0.2.1:4520", "without a port, as 192.0.2.1"},
		{"master1", "master2:4520", "without a port, as master2"},
		{"master1", "master2,", "an entry is empty"},
		{"master1", "master2, ", "an entry is empty"},
		{"master1", " master2", "is not an address or name"},
		{"master1.", "master2", "id: write"},
		{"master1:4520", "master2", "id: write"},
	} {
		err := (&Options{Port: 4520, Peers: strings.Split(c.peers, ",")}).Check(c.id, true, "0.0.0.0")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with %q: %v", c.id, c.peers, err)
		}
	}
}

// TestFounder: of several masters one creates the cluster, and never one that is
// configured to join an existing cluster.
func TestFounder(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want bool
	}{
		{Options{}, true},
		{Options{Peers: []string{"b", "c"}}, true},
		{Options{Peers: []string{"b", "Z"}}, true}, // in all spellings the same order
		{Options{Peers: []string{"b", "A"}}, false},
		{Options{Peers: []string{"b", "::ffff:192.0.2.1"}}, false},
		{Options{Peers: []string{"b"}, Fingerprint: strings.Repeat("a", 64)}, false},
		{Options{Fingerprint: strings.Repeat("a", 64)}, false},
	} {
		if got := c.o.founds("a"); got != c.want {
			t.Errorf("%+v: %v", c.o, got)
		}
	}
	s := newSet(t, 1)
	s.cfgs[0].Options.Isolated, s.cfgs[0].Options.Secret, s.cfgs[0].Options.Fingerprint = true, strings.Repeat("0", joinSecret), strings.Repeat("a", 64)
	if _, err := New(s.cfgs[0], clustertest.Quiet()); err == nil || !strings.Contains(err.Error(), "cluster_peers names no member") {
		t.Error(err)
	}
}

// TestRefusedOptions lists the errors that are found without contacting peers.
func TestRefusedOptions(t *testing.T) {
	ok := Options{ID: "test", Peers: []string{"127.0.0.2"}, Port: 4520}
	if err := ok.Check("127.0.0.1", true, "0.0.0.0"); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		o      Options
		id     string
		chosen bool
		listen string
		want   string
	}{
		"id not set":        {ok, "host_master", false, "0.0.0.0", "id is not"},
		"itself":            {Options{ID: "t", Peers: []string{"a"}, Port: 1}, "a", true, "0.0.0.0", "itself"},
		"twice":             {Options{ID: "t", Peers: []string{"b", "b"}, Port: 1}, "a", true, "0.0.0.0", "twice"},
		"no address":        {Options{ID: "t", Peers: []string{"b c"}, Port: 1}, "a", true, "0.0.0.0", "not an address"},
		"not here":          {ok, "192.0.2.77", true, "0.0.0.0", "not an address of this machine"},
		"listens elsewhere": {ok, "127.0.0.1", true, "127.0.0.9", "listens on 127.0.0.9"},
		"port":              {Options{ID: "t", Port: 0}, "a", true, "0.0.0.0", "port"},
	} {
		if err := c.o.Check(c.id, c.chosen, c.listen); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for weight, good := range map[int]bool{-1: false, 0: true, 1: true, roster.MaxShare: true, roster.MaxShare + 1: false} {
		o := Options{ID: "x", Port: 4520, Weight: weight}
		if err := o.Check("a", true, "0.0.0.0"); (err == nil) != good {
			t.Errorf("cluster_weight %d: %v", weight, err)
		}
	}
	s := newSet(t, 1)
	s.start(0).stop()
	keys, _ := clustertest.Keys()
	s.cfgs[0].Own, s.cfgs[0].OwnPub = keys[3], keys[3].Public().PEM()
	if _, err := New(s.cfgs[0], clustertest.Quiet()); err == nil || !strings.Contains(err.Error(), "Shared key does not match, remove it to continue") {
		t.Errorf("another key under the same id: %v", err)
	}
}

// TestSameInstant: three masters that start at the same moment on an empty
// directory form one cluster each time. BRINE_CLUSTER_STARTS sets the number of
// runs; default: 3.
func TestSameInstant(t *testing.T) {
	times := 3
	if n, err := strconv.Atoi(os.Getenv("BRINE_CLUSTER_STARTS")); err == nil {
		times = n
	}
	for i := range times {
		s := newSet(t, 3)
		var wg, run sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		go_ := make(chan struct{})
		cs, errs := make([]*Cluster, 3), make([]error, 3)
		for j := range 3 {
			wg.Go(func() {
				<-go_
				if cs[j], errs[j] = New(s.cfgs[j], clustertest.Quiet()); errs[j] == nil {
					run.Go(func() { cs[j].Run(ctx, &host{}) }) // the others wait for its answer
				}
			})
		}
		close(go_)
		wg.Wait()
		for j, c := range cs {
			if errs[j] != nil {
				t.Fatalf("start %d: %v", i, errs[j])
			}
			if !c.secrets.Key.Public().Equal(cs[0].secrets.Key.Public()) || c.secrets.AES.Current() != cs[0].secrets.AES.Current() {
				t.Fatalf("start %d: not one cluster", i)
			}
			pub, err := os.ReadFile(filepath.Join(s.dir, "pki", "cluster.pub"))
			if err != nil || string(pub) != string(c.secrets.Key.Public().PEM()) {
				t.Fatalf("start %d: cluster.pub is not that of cluster.pem", i)
			}
		}
		cancel()
		run.Wait()
	}
}

// TestRotateByAge: one master replaces a key that is too old.
func TestRotateByAge(t *testing.T) {
	s := newSet(t, 3)
	for i := range s.cfgs {
		s.cfgs[i].PublishSession = time.Hour
	}
	a, b, c := s.start(0), s.start(1), s.start(2)
	old := a.Secrets().AES.Current()
	path := filepath.Join(s.dir, "pki", keys.AESName)
	long := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*running{a, b, c} {
		clustertest.Eventually(t, "a new key", func() error {
			if r.Secrets().AES.Current() == old {
				return errors.New("the old one")
			}
			return nil
		})
	}
	// The file is missing while a stock master replaces it: the previous key stays valid.
	now := a.Secrets().AES.Current()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if a.Secrets().AES.Current() != now {
		t.Error("no key while the file is missing")
	}
}

// TestReturnBeforeItsJob: a return that arrives before the announcement of its
// job reaches the master that published the job, once, whether or not that
// master wants all events; events of jobs that no master announces are dropped.
func TestReturnBeforeItsJob(t *testing.T) {
	s := newSet(t, 3)
	a, b, c := s.start(0), s.start(1), s.start(2)
	for _, r := range []*running{a, b, c} {
		clustertest.Eventually(t, "all are connected", r.linked(2))
	}
	ret := func(n int) string { return "salt/job/" + jid(n) + "/ret/m" }
	heard := func(h *host, n int) (times int) {
		for _, e := range h.events {
			if e == b.cfg.ID+" "+ret(n) {
				times++
			}
		}
		return times
	}
	b.fire(ret(1), "id", "m", "jid", jid(1))
	a.publish(t, 1)
	clustertest.Eventually(t, "the return that was early is there", a.has(func(h *host) bool { return heard(h, 1) == 1 }))

	a.Cluster.Relay.Want([]string{"salt/"})
	clustertest.Eventually(t, "b knows that a waits for all", func() error {
		if !b.peers.all()[a.cfg.ID].wants(ret(2)) {
			return errors.New("not yet")
		}
		return nil
	})
	b.fire(ret(2), "id", "m", "jid", jid(2))
	a.publish(t, 2)
	clustertest.Eventually(t, "b knows the job", b.has(func(h *host) bool { return slices.Contains(h.jobs, jid(2)) }))
	b.fire(ret(1), "id", "m", "jid", jid(1)) // arrives after everything else
	clustertest.Eventually(t, "the last one is there", a.has(func(h *host) bool { return heard(h, 1) == 2 }))
	if err := a.has(func(h *host) bool { return heard(h, 2) == 1 })(); err != nil {
		t.Error("not once: ", err)
	}
	if err := c.has(func(h *host) bool { return len(h.events) == 0 })(); err != nil {
		t.Error("an event came to a master without a listener for it: ", err)
	}
	b.fire("salt/job/"+jid(3)+"/new", "jid", jid(3)) // for b's own job, which it is about to publish
	b.Cluster.Relay.mu.Lock()
	waited := len(b.Cluster.Relay.early.byJob)
	b.Cluster.Relay.mu.Unlock()
	if waited != 0 {
		t.Errorf("%d jobs are waited for", waited)
	}

	var u unclaimed
	from := time.Unix(0, 0)
	for i := range heldItems + 10 {
		u.add(jid(i), heldEvent{msg: make([]byte, 10)}, from)
	}
	if len(u.byJob) != heldItems || u.byJob[jid(9)] != nil || u.bytes != 10*heldItems {
		t.Errorf("%d jobs, %d bytes", len(u.byJob), u.bytes)
	}
	u.add(jid(0), heldEvent{msg: make([]byte, heldBytes)}, from)
	if len(u.byJob) != 1 || u.bytes != heldBytes {
		t.Errorf("%d jobs, %d bytes", len(u.byJob), u.bytes)
	}
	u.add(jid(1), heldEvent{}, from.Add(heldTime+1))
	if len(u.byJob) != 1 || u.byJob[jid(1)] == nil || u.bytes != 0 {
		t.Errorf("%d jobs, %d bytes", len(u.byJob), u.bytes)
	}
}
