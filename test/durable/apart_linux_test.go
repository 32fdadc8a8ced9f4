package durable

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/netns"
)

// member is one master of a cluster without a shared directory, on a separate machine, and a client
// that commands it.
type member struct {
	*node
	on      *netns.Machine
	disk    *daemontest.FailingDisk // nil if this machine cannot have one
	old     string                  // a copy of the disk from a while ago, "" for none
	clock   func(by time.Duration)  // sets the clock; nil if the program cannot be built with another one
	mu      sync.Mutex
	orders  *json.Encoder
	answers *json.Decoder
}

func (m *member) speaker(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := append(slices.Clone(m.on.Within()), exe)
	c := exec.Command(args[0], args[1:]...)
	c.Env = append(os.Environ(), speakerEnv+"="+m.Dir+" "+m.Host)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); c.Wait() })
	m.orders, m.answers = json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
}

func (m *member) tell(o order) (map[string]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var a answer
	if err := errors.Join(m.orders.Encode(o), m.answers.Decode(&a)); err != nil {
		return nil, err
	}
	if a.Err != "" {
		return nil, errors.New(a.Err)
	}
	return a.Shown, nil
}

// trouble causes one fault after the other in masters and the networks between all machines, while
// jobs are published.
type trouble struct {
	t       *testing.T
	rand    *rand.Rand
	net     *netns.Network
	masters []*member
	fields  []*netns.Machine // networks of the minions
	spare   *netns.Machine   // for copies of masters
	kinds   []string         // empty for all
	counts  map[string]int
}

func (f *trouble) nap(most time.Duration) {
	time.Sleep(most/4 + time.Duration(f.rand.Int64N(int64(most*3/4))))
}

// one causes one fault, and ends it.
func (f *trouble) one() {
	i := f.rand.IntN(len(f.masters))
	m, other := f.masters[i], f.masters[(i+1+f.rand.IntN(len(f.masters)-1))%len(f.masters)]
	const long = 6 * time.Second
	kinds := []string{"kill", "kill", "freeze", "freeze", "part two masters", "cut one off from masters", "cut minions off", "kill two",
		"freeze one, kill one", "stop", "kill all", "set back", "set back"}
	if os.Getenv("BRINE_DURABLE") != "" { // it takes long, and TestCopiedMember tests it, too
		kinds = append(kinds, "copy beside")
	}
	if m.disk != nil {
		kinds = append(kinds, "read-only disk", "full disk")
	}
	if m.clock != nil {
		kinds = append(kinds, "wrong clock", "wrong clock")
	}
	if names := os.Getenv("BRINE_DURABLE_FAULTS"); names != "" {
		kinds = strings.Split(names, ";")
	} else if f.kinds != nil {
		kinds = f.kinds
	}
	kind := kinds[f.rand.IntN(len(kinds))]
	f.counts[kind]++
	switch kind {
	case "set back":
		f.setBack(m)
	case "copy beside":
		f.copyBeside(m)
	case "wrong clock":
		const day = 24 * time.Hour
		offs := []time.Duration{3 * day, -3 * day, 5 * time.Minute, -5 * time.Minute}
		m.clock(offs[f.rand.IntN(len(offs))])
		f.nap(long)
		m.clock(0)
	case "full disk":
		m.disk.Fill()
		f.nap(long)
		m.disk.Free()
	case "read-only disk":
		m.disk.Fail()
		f.nap(long)
		m.Kill()
		m.disk.Mend()
		m.Launch()
	case "kill":
		m.Kill()
		f.nap(long)
		m.Launch()
	case "stop":
		m.Signal(syscall.SIGTERM)
		m.node.Wait(waitLimit)
		f.nap(long)
		m.Launch()
	case "freeze":
		m.Signal(syscall.SIGSTOP)
		f.nap(long)
		m.Signal(syscall.SIGCONT)
	case "part two masters":
		f.net.Part(m.on, other.on)
		f.nap(2 * long)
		f.net.Join(m.on, other.on)
	case "cut one off from masters":
		for _, o := range f.masters {
			if o != m {
				f.net.Part(m.on, o.on)
			}
		}
		f.nap(2 * long)
		for _, o := range f.masters {
			if o != m {
				f.net.Join(m.on, o.on)
			}
		}
	case "cut minions off":
		w := f.fields[f.rand.IntN(len(f.fields))]
		f.net.Part(m.on, w)
		f.nap(2 * long)
		f.net.Join(m.on, w)
	case "kill two":
		m.Kill()
		other.Kill()
		f.nap(long)
		other.Launch()
		m.Launch()
	case "freeze one, kill one":
		m.Signal(syscall.SIGSTOP)
		other.Kill()
		f.nap(long)
		m.Signal(syscall.SIGCONT)
		other.Launch()
	case "kill all":
		for _, b := range f.masters {
			b.Kill()
		}
		for _, b := range f.masters {
			b.Launch()
		}
	}
	f.nap(long)
}

// onOwnDisk gives a master a disk that can fail, for its keys and its data, if this machine can have one.
func (m *member) onOwnDisk(t *testing.T) {
	t.Helper()
	disk, err := daemontest.TryFailingDisk(t, m.Path("disk"))
	if err != nil {
		t.Log("no disk becomes read-only: ", err)
		return
	}
	m.disk = disk
	err = os.MkdirAll(m.Path("var/cache/salt"), 0o755)
	for path, name := range map[string]string{"cluster": "pki", "var/cache/salt/master": "cache"} {
		err = errors.Join(err, os.Mkdir(m.Path("disk/"+name), 0o700), os.Symlink(m.Path("disk/"+name), m.Path(path)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// connected waits until all masters are connected to each other.
func (f *trouble) connected() {
	for _, o := range f.masters {
		eventually.Nil(f.t, 2*waitLimit, o.Name+" is connected to the others", func() error {
			out, errs, _ := o.Run(brine, "cluster", "members", "--out=json")
			var all map[string]struct{ Up bool }
			if err := json.Unmarshal([]byte(out), &all); err != nil {
				return fmt.Errorf("%w: %s%s", err, out, errs)
			}
			for id, m := range all {
				if !m.Up {
					return errors.New(id)
				}
			}
			return nil
		})
	}
}

// copyBeside starts a copy of a master's disk at another address while the master runs. The others refuse it.
func (f *trouble) copyBeside(m *member) {
	m.Signal(syscall.SIGTERM)
	m.node.Wait(waitLimit)
	clone := newMember(f.t, m.Name, f.spare, f.masters)
	err := os.MkdirAll(clone.Path("var/cache/salt"), 0o755)
	for _, dir := range []string{"cluster", "etc", "var/cache/salt/master"} {
		err = errors.Join(err, os.MkdirAll(clone.Path(dir), 0o700), copyDir(m.Path(dir)+"/.", clone.Path(dir)))
	}
	if err != nil {
		f.t.Error(err)
	}
	m.Launch()
	f.connected()
	clone.Launch()
	if code := clone.Wait(2 * waitLimit); code == 0 || code == -1 {
		f.t.Errorf("a copy of %s beside it ends with %d", m.Name, code)
	}
}

// setBack stops a master, and starts it with the disk that it had when this was called last. What it acknowledged must be at the others: they
// are connected, and it sends them that when it stops, if that does not take long.
func (f *trouble) setBack(m *member) {
	f.connected()
	from := time.Now()
	m.Signal(syscall.SIGTERM)
	m.node.Wait(waitLimit)
	before := m.old
	m.old = f.t.TempDir()
	for _, dir := range []string{"cluster", "var/cache/salt/master"} {
		if err := copyDir(m.Path(dir)+"/.", m.old+"/"+filepath.Base(dir)); err != nil {
			f.t.Error(err)
		}
		if before == "" || time.Since(from) > 3*time.Second {
			continue
		}
		files, err := filepath.Glob(m.Path(dir) + "/*")
		hidden, err2 := filepath.Glob(m.Path(dir) + "/.[!.]*")
		err = errors.Join(err, err2)
		for _, path := range append(files, hidden...) {
			err = errors.Join(err, os.RemoveAll(path))
		}
		if err = errors.Join(err, copyDir(before+"/"+filepath.Base(dir)+"/.", m.Path(dir))); err != nil {
			f.t.Error(err)
		}
		f.counts["older disks"]++
	}
	m.Launch()
}

// copyDir copies a directory. The copy is flushed: the disk may fail next.
func copyDir(from, to string) error {
	if out, err := exec.Command("sh", "-c", `cp -a "$0" "$1" && sync -f "$1"`, from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// newMember configures the master of a name, which the others know by this name, on a machine. The masters are at their places.
func newMember(t *testing.T, name string, on *netns.Machine, all []*member) *member {
	n := daemontest.NewMaster(t, brine, name, on.Addr, "auto_accept: True\nkeysize: 2048\npub_hwm: 20000\n")
	var names, peers []string
	hosts := "127.0.0.1 localhost\n"
	for _, m := range all {
		names = append(names, m.Name)
		at := m.on
		if m.Name == name {
			at = on // also if the machine is a copy
		} else {
			peers = append(peers, m.Name)
		}
		hosts += at.Addr + " " + m.Name + "\n"
	}
	n.Write("master", n.Read("master")+
		fmt.Sprintf("cluster_id: test\ncluster_isolated_filesystem: True\ncluster_secret: 7ef7697a5ec2e70f7e5755ecd0123456\ncluster_peers: [%s]\n"+
			"cluster_pki_dir: %s\ncluster_voters: [%s]\n", strings.Join(peers, ", "), n.Path("cluster"), strings.Join(names, ", ")))
	n.Write("hosts", hosts)
	n.Level = "info"
	n.Within = append(on.Within(), "unshare", "-m", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, n.Path("hosts"))
	return &member{node: n, on: on}
}

// TestManyJobsApart publishes jobs at three masters without a shared directory in turn, while at
// random one, two or all are killed, frozen, stopped, and cut off from each other and from minions, or one gets the disk of
// a while ago, a disk that becomes read-only or full while it runs, a clock that is wrong for a moment, or a copy of itself beside it.
// Each job runs once on each minion, and every master shows every result. BRINE_DURABLE is the
// number of jobs and minions, as JOBSxMINIONS. BRINE_DURABLE_SEED selects the faults, BRINE_DURABLE_FAULTS names their kinds
// (separated by semicolons), and with BRINE_CLOCK clocks are wrong, too.
func TestManyJobsApart(t *testing.T) { manyJobsApart(t, false) }

// TestManyJobsApartOfStock does the same with a stock minion beside the others, and with the faults of masters that it can survive: it
// does not notice that a connection is dead, nor ask for jobs that it missed meanwhile.
func TestManyJobsApartOfStock(t *testing.T) {
	manyJobsApart(t, true, "kill", "kill", "kill two", "kill all", "stop", "part two masters", "cut one off from masters")
}

func manyJobsApart(t *testing.T, withStock bool, kinds ...string) {
	t.Helper()
	jobs, minions := amount(t)
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("BRINE_DURABLE_SEED"), 10, 64); err == nil {
		seed = n
	}
	f := &trouble{t: t, rand: rand.New(rand.NewPCG(seed, 0)), net: netns.New(t), kinds: kinds, counts: map[string]int{}}
	t.Logf("seed %d", seed)
	var clocks *daemontest.Clocks
	if os.Getenv("BRINE_CLOCK") != "" {
		clocks = daemontest.NewClocks(t)
	}
	var places []*member
	var hosts, names []string
	for i := range 3 {
		on := f.net.Machine(i + 1)
		name := fmt.Sprintf("master%d", i+1)
		places = append(places, &member{node: &node{Name: name}, on: on})
		hosts, names = append(hosts, on.Addr), append(names, name)
	}
	f.spare = f.net.Machine(4)
	for _, p := range places {
		m := newMember(t, p.Name, p.on, places)
		if clocks != nil {
			var program []string
			program, m.clock = clocks.One(t)
			m.Within = append(m.Within, program...)
		}
		m.onOwnDisk(t)
		m.Launch()
		m.speaker(t)
		f.masters = append(f.masters, m)
	}
	l := &ledger{everywhere: names, shown: map[string]map[string][]string{}}
	var workers []*node
	ran := func(id string) string { return workers[slices.Index(l.minions, id)].Path("ran") }
	if withStock {
		minions++
	}
	for i := range minions {
		id := fmt.Sprintf("w%02d", i)
		on := f.net.Machine(100 + i)
		kind, options := brine, ""
		switch {
		case withStock && i == minions-1:
			kind = stock
		case i%2 == 0:
			options = "master_type: cluster\n"
		}
		n := daemontest.NewMinion(t, kind, id, hosts, options)
		n.Level, n.Within = "info", on.Within()
		workers = append(workers, n.Launch())
		l.minions, f.fields = append(l.minions, id), append(f.fields, on)
	}
	give := func(m *member, jid string) (retries int) {
		for from := time.Now(); ; retries++ {
			_, err := m.tell(order{jid, "echo " + jid + " >> /proc/$PPID/cwd/ran; echo " + jid})
			if err == nil {
				return retries
			}
			if time.Since(from) > 3*waitLimit {
				t.Errorf("job %s could not be published: %v", jid, err)
				return retries
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	for _, m := range f.masters { // all are connected, and know all minions
		eventually.Nil(t, 2*waitLimit, "all minions answer "+m.Name, func() error {
			jid := salt.NewJID(time.Now())
			if _, err := m.tell(order{jid, "echo " + jid}); err != nil {
				return err
			}
			var err error
			for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				var shown map[string]string
				if shown, err = m.tell(order{JID: jid}); err == nil && len(shown) == minions {
					return nil
				}
			}
			return fmt.Errorf("not all: %w", err)
		})
	}

	from := time.Now()
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-end:
				if i >= 3 {
					return
				}
			default:
			}
			f.one()
		}
	}()
	pace := max(20*time.Millisecond, 30*time.Second/time.Duration(jobs))
	if withStock {
		pace = max(pace, stockPace)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	retries := 0
	next := make(chan string)
	for _, m := range f.masters {
		wg.Go(func() {
			for jid := range next {
				n := give(m, jid)
				mu.Lock()
				retries += n
				mu.Unlock()
			}
		})
	}
	for range jobs {
		jid := salt.NewJID(time.Now())
		l.jobs = append(l.jobs, jid)
		next <- jid
		time.Sleep(pace)
	}
	close(next)
	wg.Wait()
	took := time.Since(from)
	close(end)
	<-done
	settled := time.Now()
	within := 2*waitLimit + time.Duration(jobs*minions)*20*time.Millisecond
	l.read(ran)
	t.Cleanup(func() { // which ones did not run
		for _, jid := range l.jobs {
			for _, id := range l.minions {
				if l.ran[jid][id] == 0 {
					t.Logf("job %s did not run on %s", jid, id)
				}
			}
		}
	})
	eventually.Nil(t, within, "all jobs have run", func() error { l.read(ran); return missing(l) })
	ranAfter := time.Since(settled)
	for _, jid := range l.jobs {
		l.shown[jid] = map[string][]string{}
	}
	eventually.Nil(t, within, "all results are shown by all masters", func() error {
		for _, m := range f.masters {
			for _, jid := range l.jobs {
				if slices.ContainsFunc(l.minions, func(id string) bool { return !slices.Contains(l.shown[jid][id], m.Name) }) {
					shown, err := m.tell(order{JID: jid})
					if err != nil {
						return err
					}
					for id, ret := range shown {
						if ret == jid && !slices.Contains(l.shown[jid][id], m.Name) {
							l.shown[jid][id] = append(l.shown[jid][id], m.Name)
						}
					}
				}
			}
		}
		if faults := l.faults(); len(faults) > 0 && !strings.Contains(faults[0], " times") {
			return errors.New(faults[0])
		}
		return nil
	})
	l.read(ran)
	faults := l.faults()
	for _, text := range faults[:min(len(faults), 20)] {
		t.Error(text)
	}
	t.Logf("%d jobs over 3 masters without a shared directory to %d minions: published in %.1f s with %v and %d repeated publications; all had run "+
		"%.1f s after the last fault; deviations: %d",
		jobs, minions, took.Seconds(), f.counts, retries, ranAfter.Seconds(), len(faults))
}
