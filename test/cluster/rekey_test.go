package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/net/crypt"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// clusterKeys returns the cluster's key as stored and as presented by each master.
func clusterKeys(t *testing.T, masters ...*node) (out []string) {
	t.Helper()
	for _, m := range masters {
		key, err := clusterKey(m)
		if err != nil {
			t.Error(err)
		}
		out = append(out, key)
	}
	return out
}

func clusterKey(m *node) (string, error) {
	key, err := crypt.LoadPrivate(m.Path("cluster/cluster.pem"), "")
	if err != nil {
		return "", err
	}
	if pub, err := crypt.LoadPublic(m.Path("cluster/cluster.pub")); err != nil || !pub.Equal(key.Public()) {
		return "", fmt.Errorf("the halves of the key at %s do not belong together", m.Name)
	}
	return string(key.Public().PEM()), nil
}

// TestRotateKey: the cluster's key is replaced twice while jobs run, once while a member and a
// minion are unreachable. No job is lost, all masters and minions get the new key, and a master can
// join. A holder of the former key can no longer impersonate a master, neither to members nor to
// minions that know the new key.
func TestRotateKey(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "auto_accept: true\ntimeout: 30\n").start()
	one, two, three := a.masters[0], a.masters[1], a.masters[2]
	minions := map[string]*node{
		"hot":     daemontest.NewMinion(t, brine, "hot", []string{one.Host, two.Host, three.Host}, "").Start(),
		"single":  daemontest.NewMinion(t, brine, "single", []string{two.Host}, "").Start(),
		"strict":  daemontest.NewMinion(t, brine, "strict", []string{one.Host}, "sign_pub_messages: True\n").Start(),
		"cluster": daemontest.NewMinion(t, brine, "cluster", []string{one.Host}, "master_type: cluster\n").Start(),
	}
	ids := []string{"hot", "single", "strict", "cluster"}
	for _, m := range a.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
	}
	before := clusterKeys(t, one)[0]
	thief, err := crypt.LoadPrivate(one.Path("cluster/cluster.pem"), "")
	must(t, err)

	rotate := func(at *node) {
		t.Helper()
		from := time.Now()
		out, errs, code := at.Run(brine, "cluster", "rotate-key", "--out=json")
		var d struct{ Have, Late []string }
		if err := json.Unmarshal([]byte(out), &d); err != nil || code != 0 {
			t.Fatalf("%v, exit code %d: %s%s", err, code, out, errs)
		}
		t.Logf("the key was replaced after %v at %q; away: %q", time.Since(from).Round(time.Millisecond), d.Have, d.Late)
	}
	// Jobs run continuously on all masters.
	load := func(masters []*node, ids []string, do func()) {
		t.Helper()
		var stop atomic.Bool
		var jobs, lost atomic.Int64
		var wg sync.WaitGroup
		for i, m := range masters {
			wg.Go(func() {
				for k := 0; !stop.Load(); k++ {
					word := fmt.Sprintf("word-%d-%d", i, k)
					out, errs, _ := m.Run(brine, "salt", "*", "test.echo", word)
					jobs.Add(1)
					if strings.Count(out, word) != len(ids) {
						lost.Add(1)
						t.Errorf("a job at %s is not answered by %q: %s%s", m.Name, ids, out, errs)
					}
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		do()
		time.Sleep(2 * time.Second)
		stop.Store(true)
		wg.Wait()
		t.Logf("%d jobs for %d minions, %d lost", jobs.Load(), len(ids), lost.Load())
	}
	load(a.masters, ids, func() { rotate(two) })
	now := clusterKeys(t, a.masters...)
	for i, m := range a.masters {
		if now[i] == before || now[i] != now[0] {
			t.Errorf("%s has the former key, or another one than the others", m.Name)
		}
	}
	known := func(want string, ids ...string) {
		t.Helper()
		for _, id := range ids {
			eventually.Nil(t, soon, id+" knows the new key", func() error {
				if b, _ := os.ReadFile(minions[id].Path("etc/salt/pki/minion/minion_master.pub")); crypt.CleanKey(string(b)) != crypt.CleanKey(want) {
					return errors.New("it knows another one")
				}
				if left, _ := os.ReadDir(minions[id].Path("etc/salt/pki/minion/minion_masters")); len(left) > 0 {
					return fmt.Errorf("it knows %v besides", left)
				}
				return nil
			})
		}
	}
	known(now[0], ids...)
	a.equal(one, 3, map[string]int{"rotated": 1})

	// The former key alone neither makes a peer a member nor reveals information.
	if got := intrude(t, one, two.Name, shows(t, thief, two.Name, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))); !strings.Contains(got,
		"is not of this cluster") {
		t.Errorf("who shows a certificate of the former key is told %q", got)
	}
	late := a.add(daemontest.Host(), two.Host)
	late.Start()
	a.equal(late, 4, map[string]int{"rotated": 1})
	if got := clusterKeys(t, late)[0]; got != now[0] {
		t.Error("a master that joins has another key")
	}
	if out, errs, code := one.Run(brine, "cluster", "remove", late.Name); code != 0 {
		t.Fatal(out, errs)
	}
	late.Kill()
	a.masters = a.masters[:3]

	// A member and a minion are unreachable, and return with the former key.
	three.Kill()
	minions["single"].Kill()
	some := []string{"hot", "strict", "cluster"}
	eventually.Nil(t, soon, "all others answer", func() error { return one.PingAll(brine, some...) })
	rotate(one)
	for _, m := range a.masters[:2] {
		eventually.Nil(t, soon, "the others answer to "+m.Name, func() error {
			out, errs, _ := m.Run(brine, "salt", "-L", strings.Join(some, ","), "test.echo", "after")
			if strings.Count(out, "after") != len(some) {
				return errors.New(out + errs)
			}
			return nil
		})
	}
	three.Start()
	minions["single"].Start()
	want := clusterKeys(t, one)[0]
	eventually.Nil(t, soon, "the member that was unreachable has the new key", func() error {
		key, err := clusterKey(three) // its two files are replaced one after the other
		if err == nil && key != want {
			err = errors.New("not yet")
		}
		return err
	})
	a.equal(three, 3, map[string]int{"rotated": 1})
	for _, m := range a.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
	}
	known(want, ids...)
	// All of it is so after a restart, too.
	for _, m := range a.masters {
		m.Kill()
	}
	a.start()
	for _, m := range a.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
	}
}

// TestRotateKeyWithStockMinions: the key is not replaced, unless forced, while stock minions are
// connected, which would reject the new one.
func TestRotateKeyWithStockMinions(t *testing.T) {
	t.Parallel()
	daemontest.StockTree(t)
	a := newApart(t, 1, "auto_accept: true\n").start()
	one := a.masters[0]
	s := daemontest.NewMinion(t, stock, "s", []string{one.Host}, "").Start()
	eventually.Nil(t, soon, "it answers", func() error { return one.PingAll(brine, "s") })
	before := clusterKeys(t, one)[0]
	if out, errs, code := one.Run(brine, "cluster", "rotate-key"); code == 0 || !strings.Contains(out+errs, "may be Salt's (s ...)") ||
		clusterKeys(t, one)[0] != before {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	// As the documentation says: the minion accepts the next key that it sees.
	must(t, os.Remove(s.Path("etc/salt/pki/minion/minion_master.pub")))
	if out, errs, code := one.Run(brine, "cluster", "rotate-key", "--force"); code != 0 || clusterKeys(t, one)[0] == before {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	eventually.Nil(t, soon, "it answers after the rotation", func() error { return one.PingAll(brine, "s") })
}
