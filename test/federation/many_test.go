package federation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/net/event"
	saltjson "brine/internal/py/json"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// commandCount returns the number of commands of TestManyCommands.
func commandCount(t *testing.T) int {
	t.Helper()
	text := os.Getenv("BRINE_FEDERATION")
	if text == "" {
		return 60
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("BRINE_FEDERATION=%q is not a number of commands", text)
	}
	return n
}

// order is a command of TestManyCommands.
type order struct {
	jid     string
	tgt     any
	tgtType string
	minions map[string][]string // by site
}

// company is a hub of three nodes, the master above, and three sites: eu are two hot masters that
// share a cachedir, us are two hot masters that share only a key, and asia is a cluster of three.
type company struct {
	t       *testing.T
	hubs    []*daemontest.Node
	above   *daemontest.Node
	c       *client.Client
	links   map[string]*link // by the name of a site, or above
	masters map[string][]*daemontest.Node
	minions map[string][]*daemontest.Node
}

const (
	hubClusterPort = 24516
	poolPort       = 24520
	clusterSecret  = "7ef7697a5ec2e70f7e5755ecd0123456"
)

func newCompany(t *testing.T, perSite int) *company {
	t.Helper()
	m := &company{t: t, links: map[string]*link{}, masters: map[string][]*daemontest.Node{}, minions: map[string][]*daemontest.Node{}}
	aboveHost := daemontest.Host()
	m.above = daemontest.NewMaster(t, brine, "above", aboveHost, "")
	finger := keyPair(t, m.above)

	var hosts, addresses, clusterNodes, all []string
	for range 3 {
		h := daemontest.Host()
		hosts, addresses = append(hosts, h), append(addresses, fmt.Sprintf("%s:%d", h, daemontest.HubPort))
		clusterNodes = append(clusterNodes, fmt.Sprintf("'%s:%d'", h, hubClusterPort))
	}
	all = append(all, hosts...)
	for _, name := range []string{"above", "eu", "us", "asia"} {
		m.links[name] = newLink(t, daemontest.Host(), addresses...)
		all = append(all, m.links[name].host)
	}
	cert, key := certificate(t, all...)
	for i, h := range hosts {
		n := daemontest.NewHub(t, fmt.Sprint("hub", i+1), h, fmt.Sprintf("tls_cert: %s\ntls_key: %s\ncluster_listen: %s:%d\ncluster_nodes: [%s]\n"+
			"cluster_secret: a secret of these nodes\n", cert, key, h, hubClusterPort, strings.Join(clusterNodes, ", ")), finger)
		m.hubs = append(m.hubs, n.Launch())
	}
	bus := func(name string) string {
		var urls []string
		for i := range hosts {
			urls = append(urls, "'tls://"+m.links[name].address(i)+"'")
		}
		return fmt.Sprintf("federation_urls: [%s]\nfederation_ca: %s\n", strings.Join(urls, ", "), cert)
	}
	m.above.Write("master", m.above.Read("master")+bus("above")+"federation_hub: true\nfederation_replicas: 3\nfederation_wait: 1\ntimeout: 5\n")
	m.above.Level = "info"
	m.above.Start()
	m.c = commander(t, m.above)

	site := func(name string) string {
		return bus(name) + fmt.Sprintf("federation_site: %s\nfederation_finger: ['%s']\nauto_accept: true\n", name, finger)
	}
	// eu: two hot masters with one cachedir and one pki_dir.
	shared := daemontest.ShortDir(t)
	for i := range 2 {
		n := daemontest.NewMaster(t, brine, fmt.Sprint("eu", i+1), daemontest.Host(), site("eu"))
		share(t, n, "var/cache/salt/master", shared+"/cache")
		share(t, n, "etc/salt/pki/master", shared+"/pki")
		m.masters["eu"] = append(m.masters["eu"], n)
	}
	// us: two hot masters with one key.
	for i := range 2 {
		n := daemontest.NewMaster(t, brine, fmt.Sprint("us", i+1), daemontest.Host(), site("us"))
		if i == 0 {
			keyPair(t, n)
		} else {
			copyKeys(t, m.masters["us"][0], n)
		}
		m.masters["us"] = append(m.masters["us"], n)
	}
	// asia: a cluster without a shared directory.
	var members []string
	for range 3 {
		members = append(members, daemontest.Host())
	}
	slices.Sort(members)
	for i, h := range members {
		n := daemontest.NewMaster(t, brine, h, h, "")
		n.Write("master", n.Read("master")+site("asia")+fmt.Sprintf("keysize: 2048\ncluster_id: asia\ncluster_isolated_filesystem: True\ncluster_secret: %s\n"+
			"cluster_peers: [%s]\ncluster_pki_dir: %s\ncluster_pool_port: %d\ncluster_voters: [%s]\n", clusterSecret,
			strings.Join(slices.Delete(slices.Clone(members), i, i+1), ", "), n.Path("cluster"), poolPort, strings.Join(members, ", ")))
		m.masters["asia"] = append(m.masters["asia"], n)
	}
	for _, name := range m.sites() {
		for i, n := range m.masters[name] {
			n.Level = "info"
			n.Launch()
			if i == 0 && name == "eu" {
				n.Await() // it owns the cachedir
			}
		}
	}
	for _, name := range m.sites() {
		var at []string
		for _, n := range m.masters[name] {
			at = append(at, n.Await().Host)
		}
		for i := range perSite {
			n := daemontest.NewMinion(t, brine, fmt.Sprintf("%s-m%d", name, i+1), at, "")
			n.Level = "info"
			m.minions[name] = append(m.minions[name], n.Start())
		}
	}
	for _, name := range m.sites() {
		eventually.Nil(t, limit, "the key of the site arrives", func() error {
			out, errs, code := m.above.Run(brine, "salt-run", "federation.accept", name)
			if code != 0 || !strings.Contains(out, "True") {
				return fmt.Errorf("%s %s", out, errs)
			}
			return nil
		})
	}
	for _, name := range m.sites() {
		for _, n := range m.masters[name] {
			eventually.Nil(t, limit, "the minions answer "+n.Name, func() error { return n.PingOnly(brine, m.ids(name)...) })
		}
	}
	eventually.Nil(t, limit, "the minions answer from above", func() error { return m.above.PingAll(brine, m.ids(m.sites()...)...) })
	return m
}

func (m *company) sites() []string { return slices.Sorted(maps.Keys(m.masters)) }

// ids returns the ids of the minions of some sites.
func (m *company) ids(sites ...string) (out []string) {
	for _, s := range sites {
		for _, n := range m.minions[s] {
			out = append(out, n.Name)
		}
	}
	return out
}

// share makes a directory of a master a link to another one.
func share(t *testing.T, n *daemontest.Node, path, to string) {
	t.Helper()
	err := os.MkdirAll(to, 0o700)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(n.Path(path)), 0o700)
	}
	if err == nil {
		err = os.Symlink(to, n.Path(path))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// copyKeys gives a master the key of another one.
func copyKeys(t *testing.T, from, to *daemontest.Node) {
	t.Helper()
	for _, name := range []string{"master.pem", "master.pub"} {
		to.Write("etc/salt/pki/master/"+name, from.Read("etc/salt/pki/master/"+name))
	}
}

// commander returns a client of a master that keeps its connection.
func commander(t *testing.T, n *daemontest.Node) *client.Client {
	t.Helper()
	var o event.MasterOptions
	o.IPCMode, o.SockDir = "ipc", n.Path("var/run/salt/master")
	log := slog.New(slog.DiscardHandler)
	local, err := client.NewLocal(client.Place{Interface: n.Host, RetPort: daemontest.RetPort, Sockets: o.Sockets(),
		CacheDir: n.Path("var/cache/salt/master")}, "root", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	return client.New(client.Options{Timeout: 5 * time.Second, GatherJobTimeout: 2 * time.Second}, "", local, local, log)
}

// order makes the command number i.
func (m *company) order(i int) *order {
	o := &order{jid: salt.NewJID(time.Now()), tgt: "*", tgtType: "glob", minions: map[string][]string{}}
	sites := m.sites()
	one := sites[i%len(sites)]
	switch i % 8 {
	case 3:
		o.tgt, o.tgtType = "site:"+one, "compound"
		o.minions[one] = m.ids(one)
	case 5:
		o.tgt, o.tgtType = "not site:"+one+" and *-m1", "compound"
		for _, s := range sites {
			if s != one {
				o.minions[s] = []string{s + "-m1"}
			}
		}
	case 7:
		o.tgt, o.tgtType = value.ListOf(one+"-m1"), "list"
		o.minions[one] = []string{one + "-m1"}
	default:
		for _, s := range sites {
			o.minions[s] = m.ids(s)
		}
	}
	return o
}

// give gives a command until the master above has recorded it, as an operator would.
func (m *company) give(o *order) (retries int32) {
	for from := time.Now(); ; retries++ {
		ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Second)
		_, err := m.c.Publish(ctx, client.Job{Target: o.tgt, Type: o.tgtType, Fun: "cmd.run",
			Arg: value.ListOf("echo " + o.jid + " >> /proc/$PPID/cwd/ran; echo " + o.jid), JID: o.jid, Kwargs: value.DictOf("expire", 3600)})
		cancel()
		if err == nil {
			return retries
		}
		if time.Since(from) > limit {
			m.t.Errorf("the command %s could not be given: %v", o.jid, err)
			return retries
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// run runs a runner above, and decodes what it returns.
func (m *company) run(fun, jid string, to any) error {
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	d, err := m.c.Run(ctx, client.Runner{Fun: fun, Args: []any{jid}}, nil, nil)
	if err != nil {
		return err
	}
	ret := d.At("return")
	if in, ok := ret.(*value.Dict); ok && in.Has("outputter") && in.Has("data") {
		ret = in.At("data")
	}
	text, err := saltjson.Dump(ret, saltjson.Format{})
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(text), to); err != nil {
		return fmt.Errorf("%s %s: %.300s: %w", fun, jid, text, err)
	}
	return nil
}

// complete reports why the summaries and the returns of a command are not complete above.
func (m *company) complete(o *order) error {
	var sites map[string]siteJob
	if err := m.run("federation.job", o.jid, &sites); err != nil {
		return err
	}
	for name, ids := range o.minions {
		s, n := sites[name], len(ids)
		if s.State != "stored" || !s.Final || s.Targeted != n || s.OK != n || s.Failed != 0 {
			return fmt.Errorf("%s at %s: %+v", o.jid, name, s)
		}
	}
	var rets map[string]any
	if err := m.run("jobs.lookup_jid", o.jid, &rets); err != nil {
		return err
	}
	n := 0
	for _, ids := range o.minions {
		for _, id := range ids {
			if n++; fmt.Sprint(rets[id]) != o.jid {
				return fmt.Errorf("%s on %s returned %v", o.jid, id, rets[id])
			}
		}
	}
	if len(rets) != n {
		return fmt.Errorf("%s has %d returns: %v", o.jid, len(rets), slices.Sorted(maps.Keys(rets)))
	}
	return nil
}

// faults causes one fault after the other until end is closed, each at least once.
func (m *company) faults(end <-chan struct{}) (counts map[string]int) {
	counts = map[string]int{}
	nap := func(d time.Duration) { time.Sleep(d) }
	again := func(out time.Duration, all ...*daemontest.Node) {
		for _, n := range all {
			n.Kill()
		}
		nap(out)
		for _, n := range all {
			n.Launch()
		}
	}
	freeze := func(n *daemontest.Node) {
		n.Signal(syscall.SIGSTOP)
		nap(3 * time.Second)
		n.Signal(syscall.SIGCONT)
	}
	cut := func(name string, s linkState) {
		m.links[name].set(s)
		nap(3 * time.Second)
		m.links[name].set(linkUp)
	}
	wipe := func(all ...*daemontest.Node) {
		for _, n := range all {
			n.Kill()
		}
		for _, n := range all {
			if err := os.RemoveAll(n.Path("data/jetstream")); err != nil {
				m.t.Error(err)
			}
		}
		for _, n := range all {
			n.Launch()
		}
	}
	second := time.Second
	list := []struct {
		name string
		do   func(round int)
	}{
		{"kill a node of the hub", func(i int) { again(second, m.hubs[i%3]) }},
		{"kill a master of eu", func(i int) { again(2*second, m.masters["eu"][i%2]) }},
		{"kill a master of us", func(i int) { again(2*second, m.masters["us"][i%2]) }},
		{"kill a master of asia", func(i int) { again(2*second, m.masters["asia"][i%3]) }},
		{"kill the master above", func(int) { again(second, m.above) }},
		{"wipe the streams of a node", func(i int) { wipe(m.hubs[i%3]) }},
		{"cut a site off", func(i int) { cut(m.sites()[i%3], linkCut) }},
		{"stall a site", func(i int) { cut(m.sites()[(i+1)%3], linkStalled) }},
		{"freeze a node of the hub", func(i int) { freeze(m.hubs[(i+1)%3]) }},
		{"freeze a master of a site", func(i int) { freeze(m.masters[m.sites()[i%3]][i%2]) }},
		{"wipe the streams of all nodes", func(int) { wipe(m.hubs...) }},
		{"cut the master above off", func(int) { cut("above", linkCut) }},
		{"kill all masters of a site", func(i int) { again(second, m.masters[m.sites()[i%3]]...) }},
		{"freeze the master above", func(int) { freeze(m.above) }},
		{"kill all nodes of the hub", func(int) { again(second, m.hubs...) }},
		{"stall the master above", func(int) { cut("above", linkStalled) }},
	}
	for i := 0; ; i++ {
		f := list[i%len(list)]
		if i >= len(list) {
			select {
			case <-end:
				return counts
			default:
			}
		}
		m.t.Logf("%s %s", time.Now().Format("15:04:05"), f.name)
		f.do(i / len(list))
		counts[f.name]++
		nap(second / 2)
	}
}

// TestManyCommands gives commands to three sites by a hub of three nodes, while nodes, masters and
// links fail in turn and the streams are wiped. Each command runs once on each minion that it is for,
// and its summaries and returns are complete above. BRINE_FEDERATION is the number of commands.
func TestManyCommands(t *testing.T) {
	tools.Slow(t)
	count := commandCount(t)
	m := newCompany(t, 2)
	end, done := make(chan struct{}), make(chan map[string]int, 1)
	from := time.Now()
	go func() { done <- m.faults(end) }()

	// The commands are spread over all faults.
	const givers = 8
	pace := max(50*time.Millisecond, 25*time.Second*givers/time.Duration(count))
	orders := make([]*order, count)
	var next, retries atomic.Int32
	var wg sync.WaitGroup
	for range givers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				orders[i] = m.order(i)
				retries.Add(m.give(orders[i]))
				time.Sleep(pace)
			}
		})
	}
	wg.Wait()
	close(end)
	counts := <-done
	took := time.Since(from)

	settled := time.Now()
	within := limit + time.Duration(count)*50*time.Millisecond
	for _, o := range orders {
		eventually.Nil(t, within, "the command "+o.jid+" is complete", func() error { return m.complete(o) })
	}
	m.ledgers(orders)
	t.Logf("%d commands to 3 sites given in %.1f s with %d faults and %d repetitions, all complete %.1f s later", count, took.Seconds(), sum(counts),
		retries.Load(), time.Since(settled).Seconds())
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// ledgers checks that each minion ran each command that was for it once, and no other one.
func (m *company) ledgers(orders []*order) {
	m.t.Helper()
	wrong := 0
	for _, site := range m.sites() {
		for _, n := range m.minions[site] {
			b, err := os.ReadFile(filepath.Join(n.Dir, "ran"))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				m.t.Fatal(err)
			}
			ran := map[string]int{}
			for _, jid := range strings.Fields(string(b)) {
				ran[jid]++
			}
			for _, o := range orders {
				want := 0
				if slices.Contains(o.minions[site], n.Name) {
					want = 1
				}
				if ran[o.jid] != want {
					if wrong++; wrong < 20 {
						m.t.Errorf("%s ran %s %d times, not %d", n.Name, o.jid, ran[o.jid], want)
					}
				}
			}
		}
	}
}
