// Package syndic tests the syndic with real daemons on loopback.
package syndic

import (
	"encoding/json"
	"fmt"
	"maps"
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
				return fmt.Errorf("%q %q: %v, %w", out, errs, rets, err)
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
