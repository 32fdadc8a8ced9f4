package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

type drilled struct {
	Fault, Mode       string
	Commands, Results int
	Lost, Twice       []string
	Minions           map[string]struct{ Detected, Switched, Usable float64 }
}

func drill(t *testing.T, at *node, args ...string) (d drilled) {
	t.Helper()
	out, errs, code := at.Run(brine, "ha", append([]string{"drill", "--out=json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &d); err != nil || code != 0 {
		t.Fatalf("%v: %d %v %s%s", args, code, err, out, errs)
	}
	if len(d.Lost)+len(d.Twice) > 0 || d.Results != d.Commands || d.Commands == 0 {
		t.Errorf("%v: %+v", args, d)
	}
	return d
}

// TestDrillOfCluster: the temporary cluster loses no command and runs none twice,
// whatever happens to one of its masters, and minions are usable again.
func TestDrillOfCluster(t *testing.T) {
	n := daemontest.NewMaster(t, brine, "nobody", daemontest.Host(), "") // only its directory is used
	for _, c := range []struct{ fault, minions, mode string }{
		{"kill", "failover", "failover"}, {"freeze", "hot", "hot"}, {"drain", "failover", "cluster"},
	} {
		d := drill(t, n, "--cluster", "--fault="+c.fault, "--minions="+c.minions, "--away=3")
		if d.Fault != c.fault || d.Mode != c.mode || len(d.Minions) == 0 {
			t.Errorf("%+v", d)
		}
		for id, m := range d.Minions {
			if m.Usable < 0 {
				t.Errorf("%s: %s was not usable any more: %+v", c.fault, id, d)
			}
		}
		t.Logf("%+v", d)
	}
	for _, args := range [][]string{{"--fault=drain"}, {"--cluster", "--fault=cut"}, {"--minions=cluster"}, {"--cluster", "--harm=true", "--mend=true"}} {
		if _, errs, code := n.Run(brine, "ha", append([]string{"drill"}, args...)...); code != 64 {
			t.Errorf("%v: %d %s", args, code, errs)
		}
	}
}

// TestDrillOfOwnCluster: a drill harms a master of an existing cluster only by the command given to
// it.
func TestDrillOfOwnCluster(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "auto_accept: true\n").start()
	one, two := a.masters[0], a.masters[1]
	for _, id := range []string{"m0", "m1"} {
		daemontest.NewMinion(t, brine, id, []string{two.Host, one.Host}, "master_type: failover\n").Start()
	}
	eventually.Nil(t, soon, "they answer", func() error { return one.PingAll(brine, "m0", "m1") })
	a.equal(one, 3, map[string]int{"key": 2})
	d := drill(t, one, "--harm", fmt.Sprintf("kill -STOP %d", two.PID()), "--mend", fmt.Sprintf("kill -CONT %d", two.PID()), "--away=5")
	if len(d.Minions) != 2 || !strings.HasPrefix(d.Fault, "kill -STOP") {
		t.Errorf("%+v", d)
	}
	for id, m := range d.Minions {
		if m.Switched < 0 || m.Usable < 0 {
			t.Errorf("%s: %+v", id, m)
		}
	}
	a.equal(two, 3, map[string]int{"key": 2})
}
