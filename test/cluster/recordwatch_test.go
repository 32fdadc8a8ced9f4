package cluster

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"brine/internal/ha/replica"
	"brine/test/eventually"
)

// TestRecordsCompared: a record that one of three masters has lost is found and restored from the
// others. A record that only one of them has is found, reported and kept until the next decision
// about it.
func TestRecordsCompared(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "")
	for _, m := range a.masters {
		m.Write("master", m.Read("master")+"metrics_address: "+m.Host+":24575\n")
	}
	a.start()
	one, two, three := a.masters[0], a.masters[1], a.masters[2]
	a.pend(one, "lost", "kept", "few")
	one.Accept("lost", "kept", "few")
	for _, m := range a.masters {
		for _, id := range []string{"lost", "kept", "few"} {
			isState(t, m, id, "minions")
		}
	}
	a.equal(one, 3, map[string]int{"key": 3})
	events := three.Tagged("salt/cluster/difference")
	forget := func(m *node, ids ...string) {
		t.Helper()
		m.Kill()
		s, err := replica.Open(m.Path("var/cache/salt/master/brine/masters/"+m.Name), m.Name, replica.Ranks{"key": replica.KeyRank}, slog.New(slog.DiscardHandler))
		must(t, err)
		for _, id := range ids {
			must(t, s.Drop("key", id))
			must(t, os.Remove(m.Path("cluster/minions/"+id)))
		}
		must(t, s.Close())
	}
	forget(one, "few")
	forget(two, "few", "lost")
	one.Start()
	two.Start()
	isState(t, two, "lost", "minions")
	if log := two.Log(); !strings.Contains(log, "was repaired") {
		t.Error("it does not say that a record was repaired")
	}
	eventually.Nil(t, soon, "the other difference is told", func() error {
		rows, code, err := status(three)
		if err != nil || code == 0 || slices.ContainsFunc(rows, func(r statusRow) bool { return r.Differs == 0 }) {
			return fmt.Errorf("%d %+v %w", code, rows, err)
		}
		if all := events(); !strings.Contains(all, "few") {
			return errors.New("no event")
		}
		d, _, err := diagnose(three)
		if err != nil || !strings.Contains(fmt.Sprint(d.Findings), "cannot be repaired safely") {
			return fmt.Errorf("%+v %w", d, err)
		}
		return nil
	})
	if n := metric(t, three, "brine_cluster_differences"); n < 1 { // one for each peer, plus those under repair
		t.Errorf("brine_cluster_differences is %v", n)
	}
	if s := state(three, "few") + state(one, "few") + state(two, "few"); s != "minions" {
		t.Errorf("what one of three has is now %q", s)
	}
	a.deleteKey(three, "few")
	eventually.Nil(t, soon, "there is no difference", func() error {
		if n := metric(t, three, "brine_cluster_differences"); n != 0 {
			return fmt.Errorf("brine_cluster_differences is %v", n)
		}
		rows, code, err := status(one)
		if err != nil || code != 0 || slices.ContainsFunc(rows, func(r statusRow) bool { return r.Differs != 0 }) {
			return fmt.Errorf("%d %+v %w", code, rows, err)
		}
		return nil
	})
	a.equal(one, 3, map[string]int{"key": 2})
}

// metric returns the value of a metric without labels.
func metric(t *testing.T, m *node, name string) (v float64) {
	t.Helper()
	rep, err := http.Get("http://" + m.Host + ":24575/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer rep.Body.Close()
	b, err := io.ReadAll(rep.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(b), "\n"+name+" ")
	if _, err := fmt.Sscan(after, &v); !ok || err != nil {
		t.Fatalf("no %s: %v", name, err)
	}
	return v
}
