package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// moves are the ways through docs/migrating.md: a fleet, and the sections whose commands are
// run on it in this order.
var moves = []struct {
	name     string
	fleet    func(m *move)
	sections []string
}{
	{"one master", (*move).single, []string{"Before", "One master", "Minions", addedMinion, "Minions back", "Masters back"}},
	{"hot masters", (*move).hot, []string{"Before", "Minions", "Hot masters", addedMinion, "Masters back", "Minions back"}},
	{"failover", (*move).failover, []string{"Before", "Failover", "Minions", addedMinion, "Minions back", "Masters back"}},
	{"shared directory", (*move).shared, []string{"Before", "A cluster on a shared directory", "Minions", addedMinion, "Minions back",
		"A cluster on a shared directory back"}},
	{"3008", (*move).isolated, []string{"Before", "A cluster of Salt 3008", "Minions", addedMinion, "Minions back", "A cluster of Salt 3008 back"}},
}

// consoles are the sections about Salt's Enterprise console, which is not there to be tested with.
var consoles = []string{"Before", "An installation with the Enterprise console", "The Enterprise console back"}

// addedMinion is, among the sections, a minion that Brine alone has seen.
const addedMinion = ""

// TestMigrationPage reads docs/migrating.md without stock Salt: every command must be known,
// with its options and functions, and every block must be run by one of the moves.
func TestMigrationPage(t *testing.T) {
	used := map[int]bool{}
	ran := 0
	for _, way := range moves {
		t.Run(way.name, func(t *testing.T) {
			ran++
			m := &move{t: t, dry: true, blocks: readPage(t)}
			way.fleet(m)
			for _, section := range way.sections {
				for _, b := range m.section(section) {
					used[b.at] = true
					m.sh.run(b)
				}
			}
			for _, x := range m.sh.machines {
				if x.hasUnit() || x.kindOf("salt") == brine || x.kindOf("brine") == brine {
					t.Errorf("the way back has left programs or unit files of Brine on %s", x.name)
				}
			}
		})
	}
	t.Run("console", func(t *testing.T) {
		ran++
		m := &move{t: t, dry: true, blocks: readPage(t)}
		m.console()
		for _, section := range consoles {
			for _, b := range m.section(section) {
				used[b.at] = true
				m.sh.run(b)
			}
		}
	})
	if ran <= len(moves) {
		return // -run selects some of the moves
	}
	for _, b := range readPage(t) {
		if !used[b.at] {
			t.Errorf("%s:%d: no test runs this block", page, b.at)
		}
	}
}

// TestMigration runs the commands of docs/migrating.md on fleets of stock daemons, and looks
// after each block that nothing is lost.
func TestMigration(t *testing.T) {
	for _, way := range moves {
		if way.name == "3008" {
			continue // 3008.0 has no such clusters: TestMigrationPage checks that the commands exist
		}
		t.Run(way.name, func(t *testing.T) {
			stockTree(t)
			t.Parallel()
			(&move{t: t, blocks: readPage(t)}).all(way.fleet, way.sections)
		})
	}
}

// all runs sections of the page on a fleet.
func (m *move) all(fleet func(*move), sections []string) {
	m.t.Helper()
	fleet(m)
	m.check("the start of the fleet")
	for _, section := range sections {
		if section == addedMinion {
			m.addedMinion()
		}
		for _, b := range m.section(section) {
			for _, x := range m.sh.on(b) {
				one := b
				if x != nil {
					one.machine = x.name
				}
				m.sh.run(one)
				m.check(fmt.Sprintf("%s:%d on %s", page, b.at, one.machine))
			}
		}
		switch section {
		case "Minions":
			m.changeMinion()
		case "Minions back":
			m.changedMinion("stock")
		}
	}
	for _, x := range m.sh.machines {
		if x.Kind != stock {
			m.t.Errorf("%s is not stock Salt's at the end", x.name)
		}
	}
}

// move is a fleet that moves to Brine and back.
type move struct {
	t      *testing.T
	dry    bool
	blocks []block
	sh     *shell
	tree   string

	masters []*machine
	minions []*machine
	options string // of minions
	// oneEach is true if a stock minion answers to one of the masters only.
	oneEach bool
	// perMinion is true if each minion has one of the masters.
	perMinion bool
	// apart is true if the masters have directories of keys of their own, and may have joined.
	apart bool
	// everywhere is true if every master has the jobs of all.
	everywhere bool
	pki        func(x *machine) string

	keys map[string]string // the keys of each master, by name
	jobs []ranJob
	kind map[string]kind // whose master ran at the last check
	last string          // id of the addedMinion
}

// ranJob is a job that must be found.
type ranJob struct {
	jid, text string
	at        *machine
	ids       []string
}

func (m *move) section(name string) (out []block) {
	for _, b := range m.blocks {
		if b.section == name && name != "" {
			out = append(out, b)
		}
	}
	if len(out) == 0 && name != addedMinion {
		m.t.Fatalf("%s has no commands in a section %q", page, name)
	}
	return out
}

// master makes a stock master with pillar and a tree.
func (m *move) master(name, id, host, more string) *machine {
	m.t.Helper()
	if m.tree == "" {
		m.tree = daemontest.ShortDir(m.t)
		for file, text := range map[string]string{
			"pillar/top.sls": "base: {'*': [p]}\n", "pillar/p.sls": "color: {{ 'pillar-' ~ grains.id }}\n",
			"states/top.sls": "base: {'*': [s]}\n", "states/s.sls": "nothing:\n  test.nop: []\n",
		} {
			must(m.t, os.MkdirAll(filepath.Dir(filepath.Join(m.tree, file)), 0o755))
			must(m.t, os.WriteFile(filepath.Join(m.tree, file), []byte(text), 0o644))
		}
	}
	n := newMaster(m.t, stock, id, host, fmt.Sprintf("timeout: 15\ngather_job_timeout: 10\nfile_roots: {base: [%s/states]}\npillar_roots: {base: [%s/pillar]}\n%s",
		m.tree, m.tree, more))
	x := asHost(m.t, name, n)
	m.masters = append(m.masters, x)
	return x
}

// minion makes a stock minion of masters.
func (m *move) minion(id string, masters ...*machine) *machine {
	m.t.Helper()
	var hosts []string
	for _, x := range masters {
		hosts = append(hosts, x.Host)
	}
	n := newMinion(m.t, stock, id, hosts, "grains: {role: 'grain-"+id+"'}\nmine_functions: {test.ping: [], nick: [{mine_function: grains.get}, role]}\n"+m.options)
	return asHost(m.t, id, n)
}

// begin starts the masters, and a minion that moves and one that stays.
func (m *move) begin(start func()) {
	m.t.Helper()
	if m.pki == nil {
		m.pki = func(x *machine) string { return x.Path("etc/salt/pki/master") }
	}
	of := [][]*machine{m.masters, m.masters}
	if m.perMinion {
		of = [][]*machine{m.masters[:1], m.masters[1:]}
	}
	m.minions = []*machine{m.minion("w1", of[0]...), m.minion("w0", of[1]...)}
	m.sh = newShell(m.t, m.dry, m.pki, slices.Concat(m.masters, m.minions)...)
	m.sh.oneEach = m.oneEach
	m.keys, m.kind = map[string]string{}, map[string]kind{}
	if m.dry {
		return
	}
	start()
	for _, w := range m.minions {
		w.Start()
	}
	if m.oneEach { // stock minions sign in to one master; the other one gets the keys from its administrator
		m.masters[0].Accept("w1", "w0")
		from, to := m.pki(m.masters[0])+"/minions", m.pki(m.masters[1])+"/minions"
		must(m.t, os.RemoveAll(to))
		must(m.t, os.CopyFS(to, os.DirFS(from)))
	} else {
		m.accept("w1", "w0")
	}
	for _, x := range m.masters {
		m.keys[x.name] = m.keysOf(x)
	}
}

// keysOf lists the keys that must not change.
func (m *move) keysOf(x *machine) string {
	m.t.Helper()
	lines := keysIn(m.t, m.pki(x))
	if m.apart { // each master has other peers at another time
		lines = regexp.MustCompile(`(?m)^/peers/.*(?:\n[^/].*)*\n`).ReplaceAllString(lines, "")
	}
	return lines
}

// accept accepts minions on all masters, with the program that a user finds there.
func (m *move) accept(ids ...string) {
	m.t.Helper()
	for _, x := range m.masters {
		if m.perMinion && x != m.masters[0] {
			continue
		}
		x.Accept(ids...)
	}
}

func (m *move) single() {
	m.master("m1", "m1", daemontest.Host(), "")
	m.begin(func() { m.masters[0].Start() })
}

// pair makes two masters with one key.
func (m *move) pair() {
	m.master("m1", "m1", daemontest.Host(), "")
	m.master("m2", "m2", daemontest.Host(), "")
	m.begin(func() {
		m.masters[0].Start()
		copyKeys(m.t, m.masters[0].node, m.masters[1].node)
		m.masters[1].Start()
	})
}

func (m *move) hot() { m.pair() }

func (m *move) failover() {
	m.options, m.oneEach = "master_type: failover\nmaster_alive_interval: 5\n", true
	m.pair()
}

// shared makes a cluster of two masters on a shared directory, with a minion at each.
func (m *move) shared() {
	dir := daemontest.ShortDir(m.t)
	hosts := []string{daemontest.Host(), daemontest.Host()}
	for _, d := range []string{"pki", "cache"} {
		must(m.t, os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	for i, host := range hosts {
		x := m.master(fmt.Sprintf("m%d", i+1), host, host,
			fmt.Sprintf("cluster_id: test\ncluster_peers: [%s]\ncluster_pki_dir: %s/pki\ncluster_pool_port: 24520\n", hosts[1-i], dir))
		// root_dir is put before cachedir, so that it cannot be named itself.
		must(m.t, os.Symlink(filepath.Join(dir, "cache"), x.Path("var/cache/salt/master")))
	}
	m.everywhere, m.perMinion = true, true
	m.pki = func(*machine) string { return filepath.Join(dir, "pki") }
	m.begin(m.startTogether)
}

// startTogether starts the masters of a cluster. Each needs the others to become ready, but two that
// make the cluster's files at once fail.
func (m *move) startTogether() {
	m.t.Helper()
	for i, x := range m.masters {
		x.Launch()
		if i == 0 {
			eventually.Nil(m.t, stockLimit, "the cluster has a key", func() error {
				_, err := os.Stat(filepath.Join(m.pki(x), "cluster.pub"))
				return err
			})
		}
	}
	for _, x := range m.masters {
		x.Await()
	}
}

// isolated makes a cluster of two masters with directories of their own.
func (m *move) isolated() {
	hosts := []string{daemontest.Host(), daemontest.Host()}
	m.pki = func(x *machine) string { return x.Path("etc/salt/pki/cluster") }
	for i, host := range hosts {
		x := m.master(fmt.Sprintf("m%d", i+1), host, host, "")
		x.Write("etc/salt/master", x.Read("etc/salt/master")+fmt.Sprintf("cluster_id: test\ncluster_isolated_filesystem: True\n"+
			"cluster_secret: 7ef7697a5ec2e70f7e5755ecd0123456\ncluster_peers: [%s]\ncluster_pki_dir: %s\ncluster_pool_port: 24520\n", hosts[1-i], m.pki(x)))
	}
	must(m.t, os.MkdirAll(m.pki(m.masters[0]), 0o700))
	// Salt 3008.0 does not know cluster_isolated_filesystem, and needs shared directories.
	must(m.t, os.MkdirAll(m.masters[1].Path("etc/salt/pki"), 0o700))
	must(m.t, os.Symlink(m.pki(m.masters[0]), m.pki(m.masters[1])))
	m.apart, m.perMinion = true, true
	m.begin(m.startTogether)
}

// console makes a master with the plugin of the Enterprise console.
func (m *move) console() {
	x := m.master("m1", "m1", daemontest.Host(), "")
	x.Write("etc/salt/master.d/raas.conf", "sseapi_server: https://raas.example.com\nengines: [{sseapi: {}}]\next_pillar: [{sseapi: {}}]\n"+
		"fileserver_backend: [sseapi, roots]\nevent_return: [sseapi]\n"+
		"external_auth: {sseapi: {admin: ['.*']}}\nmaster_job_cache: sseapi\n")
	x.Write("etc/salt/master.d/eAPIMasterPaths.conf", "engines_dirs: [/usr/lib/python3/site-packages/sseape/engines]\n")
	m.begin(nil)
}

// TestConsoleTakenOut: Brine's master does not start, and says why, with the options of the
// Enterprise console, and starts when the commands of the page have taken them out.
func TestConsoleTakenOut(t *testing.T) {
	m := &move{t: t, dry: true, blocks: readPage(t)}
	m.console()
	x := m.masters[0]
	for _, b := range m.section("Before") {
		m.sh.run(b)
	}
	raas := x.Read("etc/salt/master.d/raas.conf")
	for line := range strings.Lines(raas) {
		option, _, _ := strings.Cut(line, ":")
		if strings.HasPrefix(option, "sseapi_") {
			continue // a warning
		}
		x.Write("etc/salt/master.d/raas.conf", line)
		if out, errs, code := x.Run(brine, "salt-master", "--check-config"); code == 0 || !strings.Contains(out+errs,
			option+": ") && !strings.Contains(out+errs, "sseapi") {
			t.Errorf("%s does not keep the master from its start: %d %s%s", option, code, out, errs)
		}
	}
	x.Write("etc/salt/master.d/raas.conf", raas)
	for _, b := range m.section(consoles[1]) {
		m.sh.run(b)
	}
	if out, errs, code := x.Run(brine, "salt-master", "--check-config"); code != 0 {
		t.Errorf("--check-config: %d %s%s", code, out, errs)
	}
	x.Kind = brine
	x.Start()
}

// keysIn lists keys with their contents.
func keysIn(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for _, glob := range []string{"*.pem", "*.pub", "peers/*.pub", "minions/*", "minions_pre/*", "minions_rejected/*", "minions_denied/*"} {
		files, err := filepath.Glob(filepath.Join(dir, glob))
		must(t, err)
		for _, f := range files {
			if strings.HasPrefix(filepath.Base(f), ".") {
				continue // a cache, or what Brine's masters tell each other
			}
			text, err := os.ReadFile(f)
			must(t, err)
			fmt.Fprintf(&b, "%s: %s\n", strings.TrimPrefix(f, dir), strings.TrimSpace(string(text)))
		}
	}
	return b.String()
}

// ids are those of the minions that run.
func (m *move) ids() (ids []string) {
	for _, w := range m.minions {
		ids = append(ids, w.name)
	}
	return ids
}

// answering returns the minions that answer to a master.
func (m *move) answering(x *machine) (ids []string, err error) {
	m.t.Helper()
	rets, err := x.SaltJSON(brine, "-L", strings.Join(m.ids(), ","), "test.ping") // the page's commands run the machine's own program
	if err != nil {
		return nil, err
	}
	for _, id := range m.ids() {
		if rets[id] == true {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// allAnswer returns an error unless the minions answer to the masters that should command them.
func (m *move) allAnswer() error {
	m.t.Helper()
	seen := map[string]bool{}
	for _, x := range m.masters {
		ids, err := m.answering(x)
		if err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		if !m.oneEach && len(ids) != len(m.ids()) {
			return fmt.Errorf("%s gets answers from %v alone", x.name, ids)
		}
		for _, id := range ids {
			seen[id] = true
		}
		if m.oneEach && len(seen) == len(m.ids()) {
			break
		}
	}
	if got := slices.Sorted(maps.Keys(seen)); len(got) != len(m.ids()) {
		return fmt.Errorf("only %v answer to a master", got)
	}
	return nil
}

// check looks after the fleet when all its daemons run.
func (m *move) check(after string) {
	m.t.Helper()
	for _, x := range m.sh.machines {
		if x.stopped {
			return
		}
	}
	for _, x := range m.sh.machines {
		if !x.Alive() {
			m.t.Fatalf("after %s %s does not run:\n%s", after, x.name, x.Log())
		}
	}
	eventually.Nil(m.t, stockLimit, "all minions answer after "+after, m.allAnswer)
	for _, x := range m.masters {
		if got := m.keysOf(x); got != m.keys[x.name] {
			m.t.Errorf("after %s %s has other keys:\n%s\nnot\n%s", after, x.name, got, m.keys[x.name])
		}
		if m.kind[x.name] == x.Kind {
			continue // the rest is about a master that was started
		}
		eventually.Nil(m.t, stockLimit, x.name+" has the data of minions after "+after, func() error { return m.hasData(x, m.ids()...) })
		for _, j := range m.jobs {
			if j.at == x || m.everywhere {
				eventually.Nil(m.t, stockLimit, "after "+after+" "+x.name+" knows the job "+j.text, func() error { return found(x, j) })
			}
		}
		m.kind[x.name] = x.Kind
		m.publish(x)
	}
}

// publish runs a job that must be found from now on.
func (m *move) publish(x *machine) {
	m.t.Helper()
	ids, err := m.answering(x)
	must(m.t, err)
	if len(ids) == 0 {
		return
	}
	j := ranJob{text: fmt.Sprintf("job-%d-of-%s-by-%s", len(m.jobs), x.name, x.Kind), at: x, ids: ids}
	out, errs, _ := x.Run(x.kindOf("salt"), "salt", "--async", "-L", strings.Join(ids, ","), "test.echo", j.text)
	if j.jid = regexp.MustCompile(`20\d{18}`).FindString(out + errs); j.jid == "" {
		m.t.Fatalf("no job: %s%s", out, errs)
	}
	eventually.Nil(m.t, stockLimit, "all return "+j.text, func() error { return found(x, j) })
	m.jobs = append(m.jobs, j)
}

// found looks for a job with all its returns.
func found(x *machine, j ranJob) error {
	out, errs, _ := x.Run(x.kindOf("salt-run"), "salt-run", "--out=json", "jobs.lookup_jid", j.jid)
	var rets map[string]any
	if err := json.Unmarshal([]byte(out), &rets); err != nil {
		return fmt.Errorf("%w: %s%s", err, out, errs)
	}
	for _, id := range j.ids {
		if rets[id] != j.text {
			return fmt.Errorf("%s: %v", id, rets)
		}
	}
	return nil
}

// hasData looks for the data of minions at a master, or at any one if minions send it to one of
// them alone.
func (m *move) hasData(x *machine, ids ...string) error {
	m.t.Helper()
	if m.last != "" {
		ids = append(ids, m.last)
	}
	lacks := m.data(x, ids...)
	if !m.oneEach && !m.apart || len(lacks) == 0 {
		return errors.Join(slices.Collect(maps.Values(lacks))...)
	}
	for _, other := range m.masters {
		if other != x {
			there := m.data(other, slices.Sorted(maps.Keys(lacks))...)
			maps.DeleteFunc(lacks, func(id string, _ error) bool { return there[id] == nil })
		}
	}
	return errors.Join(slices.Collect(maps.Values(lacks))...)
}

// data looks for grains, pillar and mine of minions, as a master has them, and returns what is
// missing, by minion.
func (m *move) data(x *machine, ids ...string) map[string]error {
	m.t.Helper()
	lacks := map[string]error{}
	for fun, mark := range map[string]string{"cache.grains": "grain-", "cache.pillar": "pillar-", "cache.mine": "grain-"} {
		out, said, _ := x.Run(x.kindOf("salt-run"), "salt-run", "--out=json", fun, strings.Join(ids, ","), "tgt_type=list")
		for _, id := range ids {
			if !strings.Contains(out, mark+id) {
				lacks[id] = errors.Join(lacks[id], fmt.Errorf("%s of %s has no %s%s: %s%s", fun, x.name, mark, id, cutText(out), said))
			}
		}
	}
	return lacks
}

// addedMinion starts a minion, whose key and data Brine's masters alone see, and ends it.
func (m *move) addedMinion() {
	if m.dry {
		return
	}
	m.t.Helper()
	for _, x := range m.masters {
		if x.Kind != brine {
			m.t.Fatalf("%s is not Brine's", x.name)
		}
	}
	of := m.masters
	if m.perMinion {
		of = of[:1]
	}
	w := m.minion("w9", of...)
	w.Kind = brine
	w.Start()
	m.accept("w9")
	for _, x := range m.masters {
		m.last = "w9"
		eventually.Nil(m.t, stockLimit, x.name+" has the data of w9", func() error { return m.hasData(x) })
		eventually.Nil(m.t, stockLimit, x.name+" has the key of w9", func() error {
			if m.keys[x.name] = m.keysOf(x); !strings.Contains(m.keys[x.name], "/minions/w9") {
				return errors.New(m.keys[x.name])
			}
			return nil
		})
	}
	w.Kill()
	m.sh.down = []string{"w9"}
}

// changeMinion changes the schedule and the beacons of the minion that runs Brine now.
func (m *move) changeMinion() {
	m.t.Helper()
	w := m.minions[0]
	if w.Kind != brine {
		m.t.Fatalf("%s is not Brine's", w.name)
	}
	for _, line := range [][]string{
		{"schedule.add", "brinesjob", "function=test.ping", "hours=5"}, {"schedule.save"},
		{"beacons.add", "diskusage", `[{"/": "99%"}, {"interval": 3600}]`}, {"beacons.save"},
		{"grains.setval", "made", "by-brine"},
	} {
		if out, errs, code := w.Run(brine, "salt-call", line...); code != 0 || !strings.Contains(out, "True") && !strings.Contains(out, "by-brine") {
			m.t.Errorf("salt-call %v: %d %s%s", line, code, out, errs)
		}
	}
	m.changedMinion("Brine's")
}

// changedMinion looks for that.
func (m *move) changedMinion(whose string) {
	m.t.Helper()
	w := m.minions[0]
	for line, want := range map[string]string{"schedule.list": "brinesjob", "beacons.list": "diskusage", "grains.get made": "by-brine"} {
		eventually.Nil(m.t, stockLimit, whose+" minion has what Brine wrote", func() error {
			out, errs, _ := w.Run(w.kindOf("salt-call"), "salt-call", strings.Fields(line)...)
			if !strings.Contains(out, want) {
				return fmt.Errorf("%s: %s%s", line, out, errs)
			}
			return nil
		})
	}
}
