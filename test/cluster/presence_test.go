package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/test/eventually"
	"brine/test/tools"
)

// presenceOf returns the minions that came and went according to the events of a master's bus, in
// order.
func presenceOf(t *testing.T, heard string) (came, gone []string) {
	t.Helper()
	for line := range strings.Lines(heard) {
		tag, data, ok := strings.Cut(line, "\t")
		if !ok || tag != "salt/presence/change" {
			continue
		}
		var d struct{ New, Lost []string }
		if err := json.Unmarshal([]byte(data), &d); err != nil {
			t.Fatal(err, line)
		}
		came, gone = append(came, d.New...), append(gone, d.Lost...)
	}
	return came, gone
}

// TestPresenceOnce: only one master of a cluster reports which minions came and went; another one
// takes over when it dies. A master without a majority reports nothing.
func TestPresenceOnce(t *testing.T) {
	t.Parallel()
	a, w := withWitness(t, "auto_accept: true\npresence_events: True\n")
	w.Launch()
	a.start()
	first, token := holder(t, "at first", 0, a.masters...)
	other := but(a.masters, first)[0]
	heard := []func() string{first.Tagged("salt/presence/"), other.Tagged("salt/presence/")}
	a.minion("at-first", first)
	a.minion("at-other", other)
	ids := []string{"at-first", "at-other"}
	for i := range heard {
		eventually.Nil(t, soon, "both are said to have come", func() error {
			if came, _ := presenceOf(t, heard[i]()); len(came) < 2 {
				return fmt.Errorf("%q", came)
			}
			return nil
		})
	}
	first.Kill()
	second, _ := holder(t, "after a kill", token, other)
	eventually.Nil(t, soon, "the minion of the one that was killed is said to be gone", func() error {
		if _, gone := presenceOf(t, heard[1]()); !slices.Contains(gone, "at-first") {
			return fmt.Errorf("%q", gone)
		}
		return nil
	})
	for i := range heard {
		came, gone := presenceOf(t, heard[i]())
		slices.Sort(came)
		if !slices.Equal(came, ids) || len(gone) > i {
			t.Errorf("at %d came %q and went %q", i, came, gone)
		}
	}
	// Without a majority.
	w.Kill()
	eventually.Nil(t, soon, "no master has the lease", func() error {
		if l, err := lease(second); err != nil || l.Here {
			return fmt.Errorf("%+v %w", l, err)
		}
		return nil
	})
	before := heard[1]()
	late := a.minion("late", second)
	eventually.Nil(t, soon, "it answers", func() error { return second.PingOnly(brine, "late") })
	late.Kill()
	w.Launch()
	eventually.Nil(t, soon, "it is told again", func() error {
		if now := heard[1](); strings.Count(now, "salt/presence/present") < strings.Count(before, "salt/presence/present")+2 {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestMastersOfMinionsElsewhere: each master of a cluster shows a minion's connections to its
// masters, even if the minion is connected to another master.
func TestMastersOfMinionsElsewhere(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "auto_accept: true\n", brine, brine).start()
	f.minion(brine, "m0", f.masters[0].Host, "")
	for _, m := range f.masters {
		eventually.Nil(t, soon, m.Name+" knows how m0 stands", func() error {
			var d map[string]struct {
				Mode   string
				Active map[string]string
				Held   []string `json:"held_by"`
			}
			out, errs, _ := m.Run(brine, "salt-run", "--out=json", "manage.masters")
			if err := json.Unmarshal([]byte(out), &d); err != nil {
				return fmt.Errorf("%w: %s%s", err, out, errs)
			}
			if got := d["m0"]; got.Mode != "hot" || got.Active[f.masters[0].Host] == "" || !slices.Equal(got.Held, []string{f.masters[0].Host}) {
				return errors.New(out)
			}
			return nil
		})
	}
}

// TestMinionLeftTheCluster: a master of a cluster says since when a minion is not connected that was
// connected to another master.
func TestMinionLeftTheCluster(t *testing.T) {
	tools.Slow(t)
	t.Parallel()
	a := newApart(t, 2, "auto_accept: true\n").start()
	w := a.minion("w1", a.masters[0])
	eventually.Nil(t, soon, "it answers", func() error { return a.masters[1].PingOnly(brine, "w1") })
	eventually.Nil(t, soon, "its master has recorded it", func() error {
		paths, err := filepath.Glob(a.masters[0].Path("var/cache/salt/master/brine/masters/*/departures"))
		if err != nil || len(paths) != 1 {
			return fmt.Errorf("%v, %v", paths, err)
		}
		if b, err := os.ReadFile(paths[0]); err != nil || !strings.Contains(string(b), `"w1"`) {
			return fmt.Errorf("%s, %w", b, err)
		}
		return nil
	})
	w.Kill()
	eventually.Nil(t, soon, "the other master says that it is not connected", func() error {
		out, errs, _ := a.masters[1].Run(brine, "salt", "w1", "test.ping")
		if !strings.Contains(out, "[Not connected since ") {
			return errors.New(out + errs)
		}
		return nil
	})
	w.Start()
	eventually.Nil(t, soon, "it answers again", func() error { return a.masters[1].PingOnly(brine, "w1") })
}
