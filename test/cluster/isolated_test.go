package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"brine/test/daemontest"
	"brine/test/eventually"
)

const secret = "7ef7697a5ec2e70f7e5755ecd0123456"

// apart is a cluster of masters without a shared directory.
type apart struct {
	t       *testing.T
	masters []*node
	more    string
}

func newApart(t *testing.T, n int, more string) *apart {
	t.Helper()
	a := &apart{t: t, more: more}
	var hosts []string
	for range n {
		hosts = append(hosts, daemontest.Host())
	}
	slices.Sort(hosts) // the first one creates the cluster
	for i, h := range hosts {
		a.add(h, slices.Delete(slices.Clone(hosts), i, i+1)...)
	}
	return a
}

// add configures a master that knows some others.
func (a *apart) add(host string, peers ...string) *node {
	a.t.Helper()
	n := daemontest.NewMaster(a.t, brine, host, host, "")
	n.Write("master", n.Read("master")+a.options(n, secret, peers...))
	a.masters = append(a.masters, n)
	a.t.Cleanup(func() {
		if strings.Contains(n.Log(), "shared directory: its cachedir") {
			a.t.Errorf("%s complains of a directory that there is not", n.Name)
		}
	})
	return n
}

func (a *apart) options(n *node, secret string, peers ...string) string {
	return fmt.Sprintf("keysize: 2048\ncluster_id: test\ncluster_isolated_filesystem: True\ncluster_secret: %s\ncluster_peers: [%s]\n"+
		"cluster_pki_dir: %s\ncluster_pool_port: %d\n%s",
		secret, strings.Join(peers, ", "), n.Path("cluster"), poolPort, a.more)
}

func (a *apart) start() *apart {
	a.t.Helper()
	for _, m := range a.masters {
		m.Launch()
	}
	for _, m := range a.masters {
		m.Await()
	}
	return a
}

// shownSecret returns the secret in a program's output, "" for none.
func shownSecret(out string) string {
	_, rest, ok := strings.Cut(out, "It asks for the secret")
	words := strings.Fields(rest)
	if !ok || len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

type report struct {
	Masters     []string                                `json:"masters"`
	Silent      []string                                `json:"silent"`
	Counts      map[string]int                          `json:"counts"`
	Differences map[string]map[string]map[string]string `json:"differences"`
	Equal       bool                                    `json:"equal"`
}

// check asks a master whether all masters have the same records.
func check(m *node) (r report, err error) {
	out, errs, code := m.Run(brine, "salt-run", "--out=json", "cluster.check")
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return r, fmt.Errorf("%w: %s%s", err, out, errs)
	}
	if (code == 0) != r.Equal {
		return r, fmt.Errorf("exit code %d, equal %v", code, r.Equal)
	}
	return r, nil
}

// equal waits until n masters have the same records, and at least the given number of each kind.
func (a *apart) equal(at *node, n int, least map[string]int) report {
	a.t.Helper()
	var r report
	eventually.Nil(a.t, soon, fmt.Sprintf("%d masters have the same", n), func() (err error) {
		if r, err = check(at); err != nil {
			return err
		}
		if !r.Equal || len(r.Masters) != n {
			return fmt.Errorf("%+v", r)
		}
		for k, v := range least {
			if r.Counts[k] < v {
				return fmt.Errorf("%d of %s, not %d", r.Counts[k], k, v)
			}
		}
		return nil
	})
	return r
}

func (a *apart) minion(id string, at ...*node) *node {
	a.t.Helper()
	var hosts []string
	for _, m := range at {
		hosts = append(hosts, m.Host)
	}
	return daemontest.NewMinion(a.t, brine, id, hosts, "").Start()
}

func state(m *node, id string) string {
	keys, err := m.Keys()
	if err != nil {
		return err.Error()
	}
	for directory, ids := range keys {
		if slices.Contains(ids, id) {
			return directory
		}
	}
	return ""
}

// TestApart: three masters with empty disks form one cluster. Decisions, notes and returns of one
// are known to all.
func TestApart(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "").start()
	for i, m := range a.masters {
		a.minion(fmt.Sprint("m", i), m)
	}
	// Keys: seen, accepted, rejected and deleted at any master.
	for i := range 3 {
		id := fmt.Sprint("m", i)
		for _, m := range a.masters {
			eventually.Nil(t, soon, id+" is seen at "+m.Name, func() error {
				if s := state(m, id); s != "minions_pre" {
					return errors.New(s)
				}
				return nil
			})
		}
		a.masters[(i+1)%3].Accept(id)
		from := time.Now()
		for _, m := range a.masters {
			eventually.Nil(t, soon, id+" is accepted at "+m.Name, func() error {
				if s := state(m, id); s != "minions" {
					return errors.New(s)
				}
				return nil
			})
		}
		t.Logf("%s was accepted at all after %v", id, time.Since(from).Round(time.Millisecond))
	}
	for _, m := range a.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, "m0", "m1", "m2") })
	}
	// Jobs and returns.
	out, errs, _ := a.masters[0].Run(brine, "salt", "--async", "--out=json", "*", "test.echo", "hello")
	jid := jidIn(out + errs)
	for _, m := range a.masters {
		eventually.Nil(t, soon, "the job is known to "+m.Name, func() error {
			out, _, _ := m.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
			if strings.Count(out, "hello") != 3 {
				return errors.New(out)
			}
			return nil
		})
	}
	r := a.equal(a.masters[1], 3, map[string]int{"key": 3, "peer": 3, "secret": 1, "minion": 3, "job": 1, "return": 3})
	t.Logf("%v", r.Counts)
	// All masters find minions by grains, regardless of the master that got them.
	for _, m := range a.masters {
		out, _, _ := m.Run(brine, "salt-run", "--out=json", "cache.grains", "*")
		for i := range 3 {
			if !strings.Contains(out, fmt.Sprintf(`"m%d"`, i)) {
				t.Errorf("%s does not know the grains of m%d: %s", m.Name, i, out)
			}
		}
	}
	if _, errs, code := a.masters[2].Run(brine, "salt-key", "-y", "-d", "m0"); code != 0 {
		t.Fatal(errs)
	}
	for _, m := range a.masters {
		eventually.Nil(t, soon, "m0 is not accepted at "+m.Name, func() error {
			if s := state(m, "m0"); s == "minions" {
				return errors.New(s)
			}
			return nil
		})
	}
}

// TestApartAtOnce starts three masters with empty disks at the same moment, BRINE_CLUSTER_STARTS
// times: they form one cluster each time.
func TestApartAtOnce(t *testing.T) {
	t.Parallel()
	times := 2
	if n, err := strconv.Atoi(os.Getenv("BRINE_CLUSTER_STARTS")); err == nil {
		times = n
	}
	for range times {
		a := newApart(t, 3, "")
		var wg sync.WaitGroup
		for _, m := range a.masters {
			wg.Go(func() { m.Launch() })
		}
		wg.Wait()
		for _, m := range a.masters {
			m.Await()
		}
		a.equal(a.masters[0], 3, map[string]int{"peer": 3})
		want := a.masters[0].Read("cluster/cluster.pem")
		for _, m := range a.masters[1:] {
			if m.Read("cluster/cluster.pem") != want {
				t.Fatal("there is more than one cluster")
			}
		}
		for _, m := range a.masters {
			m.Kill()
		}
	}
}

// TestApartJoinAndLeave: a fourth master that knows only one member joins while jobs run, gets all
// data, and is removed again. A master that does not know the secret, or finds another cluster than
// configured, is refused.
func TestApartJoinAndLeave(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "auto_accept: true\n").start()
	a.minion("m0", a.masters[0])
	eventually.Nil(t, soon, "it answers", func() error { return a.masters[1].PingAll(brine, "m0") })
	for _, c := range []struct{ secret, more, want string }{
		{strings.Repeat("f", 32), "", "does not know cluster_secret"},
		{"short", "", "cluster_secret of at least"},
		{"not so short, but weak", "", "has fewer than 32 hexadecimal digits"},
		{secret, "cluster_pub_fingerprint: " + strings.Repeat("0", 64) + "\n", "cluster_pub_fingerprint is"},
	} {
		stranger := a.add(daemontest.Host(), a.masters[2].Host)
		a.masters = a.masters[:3]
		stranger.Write("master", strings.Replace(stranger.Read("master"), secret, c.secret, 1)+c.more)
		stranger.Launch()
		if code := stranger.Wait(60 * time.Second); code == 0 || !strings.Contains(stranger.Log(), c.want) {
			t.Errorf("exit code %d, and it does not say %q:\n%s", code, c.want, stranger.Log())
		}
	}
	late := a.add(daemontest.Host(), a.masters[2].Host)
	from := time.Now()
	late.Start()
	a.equal(late, 4, map[string]int{"key": 1, "peer": 4, "minion": 1, "job": 1, "return": 1})
	t.Logf("joined and had all after %v", time.Since(from).Round(time.Millisecond))
	eventually.Nil(t, soon, "it commands", func() error { return late.PingAll(brine, "m0") })
	if _, errs, code := a.masters[0].Run(brine, "salt-run", "cluster.remove", late.Name); code != 0 {
		t.Fatal(errs)
	}
	for _, m := range a.masters[:3] {
		eventually.Nil(t, soon, m.Name+" has dropped it", func() error {
			if _, err := os.Stat(m.Path("cluster/peers/" + late.Name + ".pub")); err == nil {
				return errors.New("its key is there")
			}
			out, _, _ := m.Run(brine, "salt-run", "--out=json", "cluster.members")
			var d map[string]struct{ Up bool }
			if err := json.Unmarshal([]byte(out), &d); err != nil || d[late.Name].Up {
				return errors.New(out)
			}
			return nil
		})
	}
	a.equal(a.masters[1], 3, map[string]int{"peer": 3})
}

// TestSecretRotates: all members get a new secret without a restart, including one that was
// unreachable. Afterwards the new secret admits a master, and the old one does not.
func TestSecretRotates(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "").start()
	away := a.masters[2]
	away.Kill()
	out, errs, code := a.masters[0].Run(brine, "cluster", "rotate-secret")
	if code != 0 {
		t.Fatal(out, errs)
	}
	now := shownSecret(out)
	if len(now) != 32 || now == secret {
		t.Fatalf("no secret: %s%s", out, errs)
	}
	away.Start()
	a.equal(away, 3, map[string]int{"secret": 2})
	for _, m := range a.masters {
		for s, want := range map[string]string{secret: "does not know cluster_secret", now: ""} {
			late := a.add(daemontest.Host(), m.Host)
			a.masters = a.masters[:3]
			late.Write("master", strings.Replace(late.Read("master"), "cluster_secret: "+secret, "cluster_secret: "+s, 1))
			late.Launch()
			if want == "" {
				late.Await()
				eventually.Nil(t, soon, "it has joined at "+m.Name, func() error {
					if r, err := check(late); err != nil || !r.Equal {
						return fmt.Errorf("%+v %w", r, err)
					}
					return nil
				})
				continue
			}
			if code := late.Wait(60 * time.Second); code == 0 || !strings.Contains(late.Log(), want) {
				t.Errorf("at %s with %q: exit code %d, and it does not say %q:\n%s", m.Name, s, code, want, late.Log())
			}
		}
	}
	// Rotate a second time, at the master that joined with the first new secret.
	if out, errs, code := a.masters[1].Run(brine, "cluster", "rotate-secret", "--out=json"); code != 0 || !strings.Contains(out, a.masters[2].Name) ||
		shownSecret(out) != "" {
		t.Error(code, out, errs)
	}
}

// TestApartWhileMastersDie: masters are killed, frozen and restarted while jobs are published; two
// of three are unreachable at once. Every minion runs each job once, and afterwards all masters
// have the same records. BRINE_CLUSTER_JOBS is the number of jobs.
func TestApartWhileMastersDie(t *testing.T) {
	t.Parallel()
	jobs := 18
	if n, err := strconv.Atoi(os.Getenv("BRINE_CLUSTER_JOBS")); err == nil {
		jobs = n
	}
	a := newApart(t, 3, "auto_accept: true\n").start()
	ids := []string{"m0", "m1"}
	for i, id := range ids { // each knows all masters, and is connected to one
		a.minion(id, slices.Concat(a.masters[i:], a.masters[:i])...)
	}
	for _, m := range a.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
	}
	ledger := daemontest.ShortDir(t)
	give := func(at *node, i int) string {
		jid := ""
		eventually.Nil(t, soon, "a job is published", func() error {
			out, errs, _ := at.Run(brine, "salt", "--async", "--expire=5m", "*", "cmd.run", fmt.Sprintf("echo %d >> %s/{{grains.id}}", i, ledger),
				"python_shell=True", "template=jinja")
			if jid = jidIn(out + errs); jid == "" {
				return errors.New(out + errs)
			}
			return nil
		})
		return jid
	}
	jids := make([]string, jobs)
	var undo []func()
	for i := range jobs {
		at := a.masters[i%3]
		if len(undo) > 0 {
			at = a.masters[0]
		}
		jids[i] = give(at, i)
		switch i % 9 {
		case 1:
			v := a.masters[1+i/9%2]
			v.Kill()
			undo = append(undo, func() { v.Start() })
		case 3: // two of three
			v := a.masters[2-i/9%2]
			v.Signal(syscall.SIGSTOP)
			undo = append(undo, func() { v.Signal(syscall.SIGCONT) })
		case 6:
			for _, fn := range undo {
				fn()
			}
			undo = nil
		case 8: // all at once
			for _, m := range a.masters {
				m.Kill()
			}
			a.start()
		}
	}
	for _, fn := range undo {
		fn()
	}
	r := a.equal(a.masters[2], 3, map[string]int{"job": jobs, "return": jobs * len(ids)})
	t.Logf("%v", r.Counts)
	for _, id := range ids {
		if err := ranOnce(filepath.Join(ledger, id), jobs); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	out, _, _ := a.masters[1].Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jids[0])
	for _, id := range ids {
		if !strings.Contains(out, `"`+id+`"`) {
			t.Errorf("no return of %s for %s: %s", id, jids[0], out)
		}
	}
}

// ranOnce returns an error unless a ledger contains each number once.
func ranOnce(path string, jobs int) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	times := map[string]int{}
	for _, n := range strings.Fields(string(b)) {
		times[n]++
	}
	for i := range jobs {
		if n := times[strconv.Itoa(i)]; n != 1 {
			return fmt.Errorf("job %d ran %d times", i, n)
		}
	}
	return nil
}

// TestCheckFinds: the comparison fails when something was lost or differs, and so does the ledger
// of runs.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	a := newApart(t, 2, "auto_accept: true\n").start()
	a.minion("m0", a.masters[0])
	eventually.Nil(t, soon, "it answers", func() error { return a.masters[1].PingAll(brine, "m0") })
	a.equal(a.masters[0], 2, map[string]int{"return": 1})
	b := a.masters[1]
	b.Kill()
	db, err := bolt.Open(b.Path(filepath.Join("var/cache/salt/master/brine/masters", b.Name, "jobs.db")), 0o600, &bolt.Options{Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	planted := ""
	err = db.Update(func(tx *bolt.Tx) error {
		hours := tx.Bucket([]byte("hours"))
		return hours.ForEach(func(hour, _ []byte) error {
			c := hours.Bucket(hour).Cursor()
			for k, _ := c.First(); k != nil; k, _ = c.Next() {
				if jid, id, ok := strings.Cut(string(k), "\x00r"); ok && planted == "" {
					planted = jid + "/" + id
					return c.Delete()
				}
			}
			return nil
		})
	})
	if err := errors.Join(err, db.Close()); err != nil || planted == "" {
		t.Fatal("nothing to be planted", err)
	}
	b.Start()
	var r report
	eventually.Nil(t, soon, "the loss is found", func() (err error) {
		if r, err = check(a.masters[0]); err != nil {
			return err
		}
		// The last jobs may still be in transit.
		if d := r.Differences["return"]; r.Equal || len(r.Masters) != 2 || len(d) != 1 || d[planted][b.Name] != "" || d[planted][a.masters[0].Name] == "" {
			return fmt.Errorf("planted the loss of %s, found %+v", planted, r)
		}
		return nil
	})
	path := filepath.Join(t.TempDir(), "ledger")
	for text, want := range map[string]bool{"0\n1\n": true, "0\n1\n0\n": false, "0\n": false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := ranOnce(path, 2); (err == nil) != want {
			t.Errorf("ledger %q: %v", text, err)
		}
	}
}

// TestHotMastersBecomeOne: two hot masters with one key, of which only one has accepted a minion,
// become a cluster by a command each and a restart. The minion notices nothing, and both know it.
// Then one leaves by a command while jobs run, and nothing is lost.
func TestHotMastersBecomeOne(t *testing.T) {
	t.Parallel()
	var ms []*node
	for range 2 {
		h := daemontest.Host()
		ms = append(ms, daemontest.NewMaster(t, brine, h, h, fmt.Sprintf("cluster_pool_port: %d\n", poolPort)))
	}
	slices.SortFunc(ms, func(a, b *node) int { return strings.Compare(a.Host, b.Host) })
	one, two := ms[0], ms[1]
	one.Start()
	for _, f := range []string{"master.pem", "master.pub"} {
		two.Write("etc/salt/pki/master/"+f, one.Read("etc/salt/pki/master/"+f))
	}
	two.Start()
	a := &apart{t: t, masters: ms}
	a.minion("m0", one, two)
	one.Accept("m0")
	eventually.Nil(t, soon, "it answers", func() error { return one.PingAll(brine, "m0") })

	out, errs, code := one.Run(brine, "cluster", "init", "--id", one.Host, "--name", "former")
	if code != 0 {
		t.Fatal(out, errs)
	}
	line := ""
	for l := range strings.Lines(out) {
		if strings.Contains(l, "brine cluster join") {
			line = strings.Replace(strings.TrimSpace(l), "ITS-ADDRESS", two.Host, 1)
		}
	}
	words := strings.Fields(line)
	given := shownSecret(out)
	if len(words) < 8 || len(given) != 32 || slices.Contains(words, "--secret") {
		t.Fatalf("it does not say how to join: %s", out)
	}
	words = slices.Insert(words, 4, "--secret-file", two.Path("secret-of-cluster"))
	two.Write("secret-of-cluster", given+"\n")
	two.Write("secret-not", strings.Repeat("0", 32)+"\n")
	restart := func(m *node) {
		t.Helper()
		m.Signal(syscall.SIGTERM)
		m.Wait(30 * time.Second)
		m.Start()
	}
	restart(one)
	if _, errs, code := one.Run(brine, "cluster", "init", "--id", one.Host); code == 0 ||
		!strings.Contains(errs, "configured for the cluster former already") {
		t.Errorf("twice: %d %s", code, errs)
	}
	secret, print := slices.Index(words, "--secret-file")+1, slices.Index(words, "--fingerprint")+1
	for _, c := range []struct {
		at   int
		text string
		want string
	}{
		{secret, two.Path("secret-not"), "does not know cluster_secret"},
		{secret, two.Path("secret-nowhere"), "cannot read the secret of the cluster from"},
		{print, strings.Repeat("0", 64), "cluster_pub_fingerprint is"},
		{slices.Index(words, "--name") + 1, "another", `cluster_id is "former"`},
		{slices.Index(words, "--id") + 1, one.Host, "which is this master itself"},
		{3, daemontest.Host(), "connection refused"},
	} {
		bad := slices.Clone(words)
		bad[c.at] = c.text
		if _, errs, code := two.Run(brine, bad[1], bad[2:]...); code == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%q: %d %s", bad, code, errs)
		}
	}
	// A secret in the arguments is visible to all users, so there is a warning. A missing or a weak
	// secret is an error.
	bare := slices.Delete(slices.Clone(words), 4, 6)
	if _, errs, code := two.Run(brine, bare[1], append(bare[2:len(bare):len(bare)], "--secret", strings.Repeat("0", 32))...); code == 0 ||
		!strings.Contains(errs, "--secret shows the secret to all users") {
		t.Errorf("among the arguments: %d %s", code, errs)
	}
	if _, errs, code := two.Run(brine, bare[1], bare[2:]...); code == 0 || !strings.Contains(errs, "the secret of the cluster is missing") {
		t.Errorf("no secret: %d %s", code, errs)
	}
	if _, errs, code := two.Run(brine, "cluster", "join", one.Host, "--id", two.Host, "--name", "former", "--secret", "sixteen letters!"); code == 0 ||
		!strings.Contains(errs, "32 hexadecimal digits") {
		t.Errorf("a weak secret: %d %s", code, errs)
	}
	if out, errs, code := two.Run(brine, words[1], words[2:]...); code != 0 {
		t.Fatal(out, errs)
	}
	restart(two)
	a.equal(two, 2, map[string]int{"key": 1, "peer": 2, "minion": 1})
	for _, m := range ms {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
		if got := state(m, "m0"); got != "minions" {
			t.Errorf("m0 is in %q at %s", got, m.Name)
		}
	}
	if out, errs, code := two.Run(brine, "cluster", "members", "--out=json"); code != 0 || !strings.Contains(out, one.Name) || !strings.HasPrefix(out, "{") {
		t.Errorf("%d %s%s", code, out, errs)
	}

	var jids []string
	for range 5 {
		out, errs, _ := one.Run(brine, "salt", "--async", "m0", "test.echo", "kept")
		jids = append(jids, jidIn(out+errs))
	}
	if out, errs, code := one.Run(brine, "cluster", "leave"); code != 0 {
		t.Fatal(out, errs)
	}
	if code := one.Wait(60 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, jid := range jids {
		eventually.Nil(t, soon, "the job is at the one that is left", func() error {
			out, _, _ := two.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
			if !strings.Contains(out, "kept") {
				return errors.New(out)
			}
			return nil
		})
	}
	eventually.Nil(t, soon, "the one that is left is alone", func() error {
		out, _, _ := two.Run(brine, "cluster", "members", "--out=json")
		if !strings.Contains(out, "was removed from the cluster") {
			return errors.New(out)
		}
		return two.PingAll(brine, "m0")
	})
	if out, errs, code := two.Run(brine, "cluster", "leave"); code == 0 || !strings.Contains(out, "what this one alone has would be lost") {
		t.Errorf("the last one leaves: %d %s%s", code, out, errs)
	}
	one.Launch()
	if code := one.Wait(60 * time.Second); code == 0 ||
		!containsAll(one.Log(), "is no member of the cluster (any more)", "brine cluster readmit "+one.Name, "cluster.pem") {
		t.Errorf("one that has left came back: %d\n%s", code, one.Log())
	}
}
