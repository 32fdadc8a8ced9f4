package cluster

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/call/auth"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/servertest"
	"brine/test/tools"
)

// engine is a store of record: real servers, and the options for them.
type engine struct {
	servers []*servertest.Server
	options string
}

const recordSecret = "5d41402abc4b2a76b9719d911017c592"

// engines start a store of each kind.
var engines = map[string]func(t *testing.T) *engine{
	"etcd": func(t *testing.T) *engine {
		all := servertest.EtcdCluster(t)
		var hosts []string
		for _, s := range all {
			hosts = append(hosts, s.Addr())
		}
		return &engine{all, fmt.Sprintf("store_of_record: etcd\netcd.host: ['%s']\n", strings.Join(hosts, "', '"))}
	},
	"postgres": func(t *testing.T) *engine {
		s := servertest.Postgres(t)
		t.Cleanup(s.Remove)
		return &engine{[]*servertest.Server{s}, fmt.Sprintf("store_of_record: postgres\ncache.postgres.host: %s\ncache.postgres.port: %d\n"+
			"cache.postgres.user: %s\ncache.postgres.password: '%s'\ncache.postgres.database: %s\n", s.Host, s.Port, s.User, s.Password, s.Database)}
	},
}

// onStore configures masters that have only the store in common: they cannot reach each other.
func onStore(t *testing.T, e *engine, n int) *apart {
	t.Helper()
	a := &apart{t: t}
	for i := range n {
		host := daemontest.Host()
		m := daemontest.NewMaster(t, brine, host, host, "")
		m.Write("master", m.Read("master")+fmt.Sprintf("keysize: 2048\ncluster_id: test\ncluster_isolated_filesystem: True\ncluster_secret: %s\n"+
			"cluster_pki_dir: %s\ncluster_pool_port: %d\nstore_of_record_secret: %s\n%s", secret, m.Path("cluster"), poolPort+1+i, recordSecret, e.options))
		a.masters = append(a.masters, m)
	}
	return a
}

// wipe removes all that a stopped master has but its configuration.
func wipe(t *testing.T, m *node) {
	t.Helper()
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "master" && e.Name() != "out" {
			if err := os.RemoveAll(m.Path(e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func reject(t *testing.T, m *node, id string) {
	t.Helper()
	if out, errs, code := m.Run(brine, "salt-key", "-y", "-r", id); code != 0 {
		t.Fatal(out, errs)
	}
}

// knows waits until a master knows jobs with their returns.
func knows(t *testing.T, m *node, minion string, jids map[string]string) {
	t.Helper()
	for jid, ret := range jids {
		eventually.Nil(t, soon, m.Name+" knows job "+jid, func() error {
			out, errs, _ := m.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
			if !strings.Contains(out, minion) || !strings.Contains(out, ret) {
				return errors.New(out + errs)
			}
			return nil
		})
	}
}

// TestStoreOfRecord: masters that have only the store in common are one cluster. All of them lose their
// disks, and come back with their configuration alone: keys, tokens, jobs, returns, and the key that
// minions know.
func TestStoreOfRecord(t *testing.T) {
	t.Parallel()
	for name, start := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t)
			a := onStore(t, e, 2).start()
			one, two := a.masters[0], a.masters[1]
			if one.Read("cluster/cluster.pub") != two.Read("cluster/cluster.pub") {
				t.Fatal("the masters created two clusters")
			}
			a.pend(one, "rej", "gone", "pend")
			reject(t, one, "rej")
			a.deleteKey(one, "gone")
			daemontest.NewMinion(t, brine, "m1", []string{one.Host}, "").Start()
			isState(t, two, "m1", "minions_pre")
			two.Accept("m1")
			isState(t, one, "m1", "minions")
			eventually.Nil(t, soon, "the minion answers", func() error { return one.PingAll(brine, "m1") })
			eventually.Nil(t, soon, "the minion answers through the store", func() error { return two.PingAll(brine, "m1") })
			jids := map[string]string{}
			for i := range 10 {
				m := a.masters[i%2]
				ret := fmt.Sprintf("return%d", i)
				out, errs, _ := m.Run(brine, "salt", "--async", "m1", "test.echo", ret)
				jids[jidIn(out+errs)] = ret
			}
			tokens, err := auth.OpenTokens(one.Path("var/cache/salt/master/tokens"))
			made := value.DictOf("name", "admin", "eauth", "pam", "start", float64(time.Now().Unix()), "expire", float64(time.Now().Add(time.Hour).Unix()))
			if err == nil {
				err = tokens.Add(made)
			}
			if err != nil {
				t.Fatal(err)
			}
			token := "var/cache/salt/master/tokens/" + made.Str("token")
			for _, m := range a.masters {
				knows(t, m, "m1", jids)
				eventually.Nil(t, soon, "the token", func() error { _, err := os.Stat(m.Path(token)); return err })
			}
			pub := one.Read("cluster/cluster.pub")

			for _, m := range a.masters {
				m.Kill()
				wipe(t, m)
			}
			a.start()
			for _, m := range a.masters {
				for id, st := range map[string]string{"rej": "minions_rejected", "gone": "", "pend": "minions_pre", "m1": "minions"} {
					isState(t, m, id, st)
				}
				knows(t, m, "m1", jids)
				if m.Read("cluster/cluster.pub") != pub {
					t.Errorf("%s has another key for minions", m.Name)
				}
				eventually.Nil(t, soon, "the token", func() error { _, err := os.Stat(m.Path(token)); return err })
				eventually.Nil(t, soon, "the minion answers", func() error { return m.PingAll(brine, "m1") })
			}
			out, errs, _ := one.Run(brine, "salt-run", "cluster.status")
			if !strings.Contains(out, "store") || !strings.Contains(out, name) {
				t.Errorf("%s%s", out, errs)
			}

			// Both decide while the store is down: the rejection wins.
			for _, s := range e.servers {
				s.Stop()
			}
			from := time.Now()
			one.Accept("pend")
			reject(t, two, "pend")
			if took := time.Since(from); took > soon/2 {
				t.Errorf("the decisions took %v", took)
			}
			eventually.Nil(t, soon, "the doctor finds it", func() error {
				out, errs, code := one.Run(brine, "salt-run", "cluster.doctor")
				if code == 0 || !strings.Contains(out, "cannot use the store of record") {
					return errors.New(out + errs)
				}
				return nil
			})
			restarted := make(chan error, len(e.servers))
			for _, s := range e.servers {
				go func() { restarted <- s.Start() }()
			}
			for range e.servers {
				if err := <-restarted; err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range a.masters {
				isState(t, m, "pend", "minions_rejected")
			}
		})
	}
}

// TestStoreAddedLater: a cluster gets a store of record by a restart of its masters one by one. Then a
// wiped master comes back while the other one is down.
func TestStoreAddedLater(t *testing.T) {
	t.Parallel()
	e := engines["postgres"](t)
	a := newApart(t, 2, "").start()
	one, two := a.masters[0], a.masters[1]
	a.pend(one, "acc", "rej")
	one.Accept("acc")
	reject(t, one, "rej")
	isState(t, two, "rej", "minions_rejected")
	pub := one.Read("cluster/cluster.pub")
	for _, m := range a.masters {
		m.Kill()
		m.Write("master", m.Read("master")+"store_of_record_secret: "+recordSecret+"\n"+e.options)
		m.Start()
		eventually.Nil(t, soon, m.Name+" has stored everything", func() error {
			out, errs, _ := m.Run(brine, "salt-run", "cluster.status")
			if !strings.Contains(out, "postgres") || strings.Contains(out, "changes to") {
				return errors.New(out + errs)
			}
			return nil
		})
	}
	one.Kill()
	two.Kill()
	wipe(t, one)
	one.Start()
	isState(t, one, "acc", "minions")
	isState(t, one, "rej", "minions_rejected")
	if one.Read("cluster/cluster.pub") != pub {
		t.Error("it has another key for minions")
	}
	two.Start()
	eventually.Nil(t, soon, "both work together", func() error {
		out, errs, code := two.Run(brine, "salt-run", "cluster.status")
		if code != 0 {
			return errors.New(out + errs)
		}
		return nil
	})
}

// TestStoreLeaderKilled: the leader of etcd is killed while 500 jobs run. None is lost or runs twice, and
// the other master has them all.
func TestStoreLeaderKilled(t *testing.T) {
	t.Parallel()
	e := engines["etcd"](t)
	a := onStore(t, e, 2).start()
	one, two := a.masters[0], a.masters[1]
	daemontest.NewMinion(t, brine, "m1", []string{one.Host}, "").Start()
	isState(t, one, "m1", "minions_pre")
	one.Accept("m1")
	eventually.Nil(t, soon, "the minion answers", func() error { return one.PingAll(brine, "m1") })
	const jobs, workers = 500, 4
	file := filepath.Join(daemontest.ShortDir(t), "ran")
	var mu sync.Mutex
	jids := map[string]bool{}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < jobs; i += workers {
				out, errs, code := one.Run(brine, "salt", "--async", "m1", "cmd.run", fmt.Sprintf("echo %d >> %s", i, file))
				mu.Lock()
				if jid := jidIn(out + errs); code == 0 && jid != "" {
					jids[jid] = true
				} else {
					t.Errorf("job %d: %s%s", i, out, errs)
				}
				mu.Unlock()
			}
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(jids) }
	for _, at := range []int{100, 250, 400} {
		eventually.Nil(t, soon, "jobs are published", func() error {
			if n := count(); n < at {
				return fmt.Errorf("%d jobs", n)
			}
			return nil
		})
		leader := leaderOf(t, e.servers)
		leader.Stop()
		eventually.Nil(t, soon, "another leader", func() error {
			for _, s := range e.servers {
				if s != leader && leads(s) {
					return nil
				}
			}
			return errors.New("there is none")
		})
		if err := leader.Start(); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	eventually.Nil(t, 2*soon, "all jobs ran once", func() error {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		ran := map[string]int{}
		for _, line := range strings.Fields(string(b)) {
			if ran[line]++; ran[line] > 1 {
				t.Fatalf("job %s ran twice", line)
			}
		}
		if len(ran) < jobs {
			return fmt.Errorf("%d jobs ran", len(ran))
		}
		return nil
	})
	if len(jids) != jobs {
		t.Fatalf("%d job ids", len(jids))
	}
	hasAll := func(m *node) {
		t.Helper()
		eventually.Nil(t, 2*soon, m.Name+" has all jobs", func() error {
			out, errs, _ := m.Run(brine, "salt-run", "--out=json", "jobs.list_jobs")
			for jid := range jids {
				if !strings.Contains(out, jid) {
					return errors.New(jid + " is not there " + errs)
				}
			}
			return nil
		})
	}
	hasAll(one)
	hasAll(two)
	two.Kill()
	wipe(t, two)
	two.Start()
	hasAll(two)
	some := map[string]string{}
	for jid := range jids {
		if some[jid] = ""; len(some) == 20 {
			break
		}
	}
	knows(t, two, "m1", some)
}

// TestStoreRotatesKey: masters that have only the store in common take a new key of the cluster and new
// secrets from there, also a master that was down and has lost its disk. A removed master changes
// nothing there.
func TestStoreRotatesKey(t *testing.T) {
	tools.Slow(t)
	t.Parallel()
	a := onStore(t, engines["postgres"](t), 3).start()
	one, two, three := a.masters[0], a.masters[1], a.masters[2]
	for _, m := range a.masters {
		for _, other := range a.masters {
			eventually.Nil(t, soon, "the masters know each other", func() error {
				_, err := os.Stat(m.Path("cluster/peers/" + other.Name + ".pub"))
				return err
			})
		}
	}
	old := one.Read("cluster/cluster.pub")
	two.Kill()
	wipe(t, two)
	if out, errs, code := one.Run(brine, "salt-run", "cluster.rotate_key", "force=True"); code != 0 {
		t.Fatal(out, errs)
	}
	pub := one.Read("cluster/cluster.pub")
	if pub == old {
		t.Fatal("the key is the same")
	}
	two.Start()
	for _, m := range []*node{two, three} {
		eventually.Nil(t, soon, m.Name+" has the new key", func() error {
			if b, err := os.ReadFile(m.Path("cluster/cluster.pub")); err != nil || string(b) != pub {
				return fmt.Errorf("%s%w", b, err)
			}
			return nil
		})
	}
	if out, errs, code := one.Run(brine, "salt-run", "cluster.remove", three.Name); code != 0 {
		t.Fatal(out, errs)
	}
	eventually.Nil(t, soon, "the removed master knows it", func() error {
		if !strings.Contains(three.Log(), "this master was removed from the cluster") {
			return errors.New("it does not")
		}
		return nil
	})
	three.Write("cluster/minions/evil", pub)
	a.masters = a.masters[:2]
	one.Write("cluster/minions_pre/later", pub)
	isState(t, two, "later", "minions_pre")
	for _, m := range a.masters {
		if s := state(m, "evil"); s != "" {
			t.Errorf("%s has a key of a removed master: %s", m.Name, s)
		}
	}
}

// leads reports whether a server is the leader of etcd.
func leads(s *servertest.Server) bool {
	resp, err := (&http.Client{Timeout: 5 * time.Second}).Get("http://" + s.Addr() + "/metrics")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return err == nil && strings.Contains(string(b), "etcd_server_is_leader 1")
}

func leaderOf(t *testing.T, all []*servertest.Server) (leader *servertest.Server) {
	t.Helper()
	eventually.Nil(t, soon, "there is a leader", func() error {
		for _, s := range all {
			if leads(s) {
				leader = s
				return nil
			}
		}
		return errors.New("none")
	})
	return leader
}
