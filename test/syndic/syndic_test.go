// Package syndic tests the syndic with real daemons on loopback.
package syndic

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

func TestMain(m *testing.M) { daemontest.Main(m) }

const (
	brine = daemontest.Brine
	limit = time.Minute
)

// site is a master of masters, and a master with a syndic and minions below it.
type site struct {
	above, below, syndic *daemontest.Node
	minions              []*daemontest.Node
}

const topOptions = "auto_accept: true\norder_masters: true\nsyndic_wait: 2\n"

func newSite(t *testing.T, ids ...string) *site {
	t.Helper()
	up, down := daemontest.Host(), daemontest.Host()
	s := &site{above: daemontest.NewMaster(t, brine, "above", up, topOptions).Start()}
	s.below = daemontest.NewMaster(t, brine, "below", down, "auto_accept: true\n").Start()
	for _, id := range ids {
		s.minions = append(s.minions, daemontest.NewMinion(t, brine, id, []string{down}, "").Start())
	}
	eventually.Nil(t, limit, "the minions answer the master below", func() error { return s.below.PingAll(brine, ids...) })
	s.syndic = daemontest.NewSyndic(brine, s.below, "", up).Start()
	eventually.Nil(t, limit, "the minions answer the master above", func() error { return s.above.PingAll(brine, ids...) })
	return s
}

// returns reads what a master stored of a job, by minion.
func returns(n *daemontest.Node, jid string) (map[string]any, error) {
	out, errs, _ := n.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
	var rets map[string]any
	if err := json.Unmarshal([]byte(out), &rets); err != nil {
		return nil, fmt.Errorf("not JSON: %q %q", out, errs)
	}
	return rets, nil
}

// TestPing: a command goes through a syndic, and the id of the syndic is no minion that is missing.
func TestPing(t *testing.T) {
	s := newSite(t, "m1", "m2")
	began := time.Now()
	rets, err := s.above.SaltJSON(brine, "*", "test.ping")
	if err != nil || len(rets) != 2 || rets["m1"] != true || rets["m2"] != true {
		t.Fatalf("%v, %v", rets, err)
	}
	t.Logf("a ping took %v", time.Since(began))

	// The job has the same id, user and result at both masters.
	out, errs, _ := s.above.Run(brine, "salt", "--async", "*", "test.echo", "word")
	jid := strings.TrimSpace(out[strings.LastIndex(strings.TrimSpace(out), " ")+1:])
	for _, n := range []*daemontest.Node{s.above, s.below} {
		eventually.Nil(t, limit, "the returns are at "+n.Name, func() error {
			rets, err := returns(n, jid)
			if err != nil || rets["m1"] != "word" || rets["m2"] != "word" {
				return fmt.Errorf("%q %q: %v %v", out, errs, rets, err)
			}
			return nil
		})
		about, errs, _ := n.Run(brine, "salt-run", "--out=json", "jobs.list_job", jid)
		var job struct {
			User    string
			Minions []string
		}
		if err := json.Unmarshal([]byte(about), &job); err != nil || job.User == "" ||
			!slices.Equal(slices.Sorted(slices.Values(job.Minions)), []string{"m1", "m2"}) {
			t.Errorf("%s: %s %s", n.Name, about, errs)
		}
	}
}

// ids returns the minions of returns.
func ids(rets map[string]any) string { return strings.Join(slices.Sorted(maps.Keys(rets)), " ") }

// TestRestarts restarts each part while commands are given: each minion runs each command once, and
// the master above gets and stores one return of each.
func TestRestarts(t *testing.T) {
	s := newSite(t, "m1", "m2")
	jobs := 100
	if testing.Short() {
		jobs = 30
	}
	parts := []*daemontest.Node{s.syndic, s.below, s.minions[0], s.minions[1], s.above}
	events := s.above.Events()
	ran := daemontest.ShortDir(t)
	tokens := map[string]string{} // by job id
	var down *daemontest.Node
	for i := range jobs {
		step := i % (jobs / len(parts))
		if step == 1 {
			down = parts[i/(jobs/len(parts))]
			if down == s.above {
				s.arrived(t, tokens)
				s.checkEvents(t, events(), tokens)
			}
			down.Kill()
			if down == s.above { // no command can be given while it is down
				down.Start()
				down = nil
			}
		}
		token := fmt.Sprint("job", i)
		out, errs, _ := s.above.Run(brine, "salt", "--async", "-L", "m1,m2", "cmd.run", "echo "+token+" >>"+ran+"/{{ grains.id }}", "template=jinja")
		words := strings.Fields(out)
		if len(words) == 0 {
			t.Fatalf("job %d: %s", i, errs)
		}
		tokens[words[len(words)-1]] = token
		if step == 3 && down != nil {
			down.Start()
			down = nil
		}
	}
	s.arrived(t, tokens)
	for _, id := range []string{"m1", "m2"} {
		b, err := os.ReadFile(filepath.Join(ran, id))
		if err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for line := range strings.Lines(string(b)) {
			count[strings.TrimSpace(line)]++
		}
		for token, n := range count {
			if n > 1 {
				t.Errorf("%s ran %s %d times", id, token, n)
			}
		}
	}
}

// arrived waits until the master above has stored the return of each minion for each job.
func (s *site) arrived(t *testing.T, tokens map[string]string) {
	t.Helper()
	left := maps.Clone(tokens)
	eventually.Nil(t, limit, "all returns are stored above", func() error {
		for jid := range left {
			rets, err := returns(s.above, jid)
			if err != nil || ids(rets) != "m1 m2" {
				return fmt.Errorf("%d jobs lack returns, such as %s (%s): %v %v", len(left), jid, left[jid], rets, err)
			}
			delete(left, jid)
		}
		return nil
	})
}

// checkEvents expects one event for each return.
func (s *site) checkEvents(t *testing.T, events string, tokens map[string]string) {
	t.Helper()
	count := map[string]int{}
	for line := range strings.Lines(events) {
		count[strings.TrimSpace(line)]++
	}
	for jid := range tokens {
		for _, id := range []string{"m1", "m2"} {
			if n := count["salt/job/"+jid+"/ret/"+id]; n != 1 {
				t.Errorf("%d events of %s for job %s", n, id, jid)
			}
		}
	}
}

// TestTwoMastersOfMasters: the return of a job goes only to the master that gave the command; that of
// a job of the lower master to one of them, and to the other one while that is unreachable.
func TestTwoMastersOfMasters(t *testing.T) {
	ups, down := []string{daemontest.Host(), daemontest.Host()}, daemontest.Host()
	var tops []*daemontest.Node
	for i, up := range ups {
		tops = append(tops, daemontest.NewMaster(t, brine, fmt.Sprint("above", i), up, topOptions).Start())
	}
	below := daemontest.NewMaster(t, brine, "below", down, "auto_accept: true\n").Start()
	daemontest.NewMinion(t, brine, "m1", []string{down}, "").Start()
	eventually.Nil(t, limit, "the minion answers the master below", func() error { return below.PingAll(brine, "m1") })
	daemontest.NewSyndic(brine, below, "syndic_failover: ordered\n", ups...).Start()
	var events []func() string
	for _, top := range tops {
		eventually.Nil(t, limit, "the minion answers "+top.Name, func() error { return top.PingAll(brine, "m1") })
		events = append(events, top.Events())
	}
	returned := func(i int, jid string) bool { return strings.Contains(events[i](), "salt/job/"+jid+"/ret/m1\n") }
	arrives := func(i int, jid string) {
		t.Helper()
		eventually.Nil(t, limit, fmt.Sprintf("the return of job %s is at master %d", jid, i), func() error {
			if !returned(i, jid) {
				return fmt.Errorf("events:\n%s", events[i]())
			}
			return nil
		})
	}
	var jids []string
	for i := range tops {
		jids = append(jids, start(t, tops[i]))
		arrives(i, jids[i])
	}
	own := start(t, below)
	arrives(0, own)
	// A later job of each shows that nothing else is under way.
	for i := range tops {
		arrives(i, start(t, tops[i]))
	}
	if returned(0, jids[1]) || returned(1, jids[0]) || returned(1, own) {
		t.Errorf("returns went to other masters:\n%s\n%s", events[0](), events[1]())
	}
	tops[0].Kill()
	arrives(1, start(t, below))
	rets, err := returns(tops[0].Start(), jids[0])
	if err != nil || ids(rets) != "m1" {
		t.Errorf("%v, %v", rets, err)
	}
}

// start gives a command to all minions and returns its job id.
func start(t *testing.T, n *daemontest.Node) string {
	t.Helper()
	out, errs, _ := n.Run(brine, "salt", "--async", "*", "test.ping")
	words := strings.Fields(out)
	if len(words) == 0 {
		t.Fatalf("%s: %s", n.Name, errs)
	}
	return words[len(words)-1]
}

// TestNested: commands pass through two syndics, and the minions of each level answer; a syndic refuses
// a master without the required fingerprint.
func TestNested(t *testing.T) {
	up, middle, down := daemontest.Host(), daemontest.Host(), daemontest.Host()
	above := daemontest.NewMaster(t, brine, "above", up, strings.Replace(topOptions, "syndic_wait: 2", "syndic_wait: 4", 1)).Start()
	between := daemontest.NewMaster(t, brine, "between", middle, topOptions).Start()
	below := daemontest.NewMaster(t, brine, "below", down, "auto_accept: true\n").Start()
	daemontest.NewMinion(t, brine, "high", []string{middle}, "").Start()
	daemontest.NewMinion(t, brine, "low", []string{down}, "").Start()
	eventually.Nil(t, limit, "the minion answers the master below", func() error { return below.PingAll(brine, "low") })
	finger := func(n *daemontest.Node) string {
		out, _, _ := n.Run(brine, "salt-key", "-f", "master.pub", "--out=json")
		var keys map[string]map[string]string
		if err := json.Unmarshal([]byte(out), &keys); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		for _, byName := range keys {
			return byName["master.pub"]
		}
		return ""
	}
	daemontest.NewSyndic(brine, below, "", middle).Start()
	upper := daemontest.NewSyndic(brine, between, "syndic_finger: "+finger(below)+"\n", up)
	upper.Start().Logged("the option syndic_finger demands " + finger(below))
	upper.Kill()
	upper.Write("master", strings.Replace(upper.Read("master"), finger(below), finger(above), 1))
	upper.Start()
	eventually.Nil(t, limit, "all minions answer the master at the top", func() error { return above.PingAll(brine, "high", "low") })
	jid := start(t, above)
	eventually.Nil(t, limit, "all returns are stored at the top", func() error {
		if rets, err := returns(above, jid); err != nil || ids(rets) != "high low" {
			return fmt.Errorf("%v %v", rets, err)
		}
		return nil
	})
}

// TestTransports: a syndic gets the commands for all minions over each transport, also where the
// master above sends a command only to those that it is for.
func TestTransports(t *testing.T) {
	for _, option := range []string{"transport: tcp", "transport: ws", "zmq_filtering: True"} {
		t.Run(option, func(t *testing.T) {
			up, down := daemontest.Host(), daemontest.Host()
			above := daemontest.NewMaster(t, brine, "above", up, topOptions+option+"\n").Start()
			below := daemontest.NewMaster(t, brine, "below", down, "auto_accept: true\n").Start()
			daemontest.NewMinion(t, brine, "m1", []string{down}, "").Start()
			syndic := daemontest.NewSyndic(brine, below, "", up)
			syndic.Write("minion", syndic.Read("minion")+option+"\n")
			syndic.Start()
			eventually.Nil(t, limit, "the minion answers the master above", func() error { return above.PingOnly(brine, "m1") })
		})
	}
}
