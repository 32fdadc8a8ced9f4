package cluster

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestUpgradeToSessionSecret: masters of a version that computed session keys from the cluster's
// key (BRINE_PREVIOUS, its program) are upgraded one after the other while jobs run. Until all are
// upgraded their session keys are the same as before. Then they are computed from a secret, and a
// master removed before knows none of the keys.
func TestUpgradeToSessionSecret(t *testing.T) {
	t.Parallel()
	old := os.Getenv("BRINE_PREVIOUS")
	if old == "" {
		t.Skip("BRINE_PREVIOUS does not name the program of a version that computes session keys from the cluster's key")
	}
	within := []string{"sh", "-c", `shift; exec "` + old + `" "$@"`, "sh"}
	a := newApart(t, 3, "auto_accept: true\npublish_session: 0\ntimeout: 20\n")
	for _, m := range a.masters {
		m.Within = within
	}
	a.start()
	v := a.minion("v", a.masters...)
	for _, m := range a.masters {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "v") })
	}
	gone := a.add(daemontest.Host(), a.masters[0].Host)
	a.masters = a.masters[:3]
	gone.Within = within
	gone.Start()
	a.equal(gone, 4, map[string]int{"key": 1})
	if out, errs, code := a.masters[0].Run(brine, "salt-run", "cluster.remove", gone.Name); code != 0 {
		t.Fatal(out, errs)
	}
	l := steal(t, gone, v)
	gone.Kill()
	a.equal(a.masters[1], 3, map[string]int{"key": 1})
	for i, m := range a.masters {
		m.Signal(syscall.SIGTERM)
		m.Wait(60 * time.Second)
		m.Within = nil
		m.Start()
		a.equal(m, 3, map[string]int{"key": 1})
		for k, m := range a.masters {
			eventually.Nil(t, soon, "it is connected to "+m.Name, func() error { return m.PingAll(brine, "v") })
			word := fmt.Sprint("word", i, k)
			if out, errs, _ := m.Run(brine, "salt", "v", "test.echo", word); !strings.Contains(out, word) {
				t.Errorf("with %d new masters a job of %s is lost: %s%s", i+1, m.Name, out, errs)
			}
		}
		if _, err := os.Stat(m.Path("cluster/.sessions")); err == nil && i < 2 {
			t.Errorf("with %d new masters there is a secret that the others cannot use", i+1)
		}
	}
	a.equal(a.masters[0], 3, map[string]int{"session": 1})
	for _, m := range a.masters {
		l.isStranger(m, "the upgrade", func() {
			if err := m.PingAll(brine, "v"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStockMinionSignsInAgain: a stock minion keeps working when the secret of session keys is
// replaced.
func TestStockMinionSignsInAgain(t *testing.T) {
	t.Parallel()
	daemontest.StockTree(t)
	a := newApart(t, 2, "auto_accept: true\ntimeout: 30\n").start()
	one := a.masters[0]
	daemontest.NewMinion(t, stock, "s", []string{one.Host}, "").Start()
	eventually.Nil(t, soon, "it answers", func() error { return one.PingAll(brine, "s") })
	for i := range 3 {
		if out, errs, code := one.Run(brine, "cluster", "rotate-secret"); code != 0 {
			t.Fatal(out, errs)
		}
		// The first job is published with a key that the minion does not know, the second after it
		// has signed in again.
		for k := range 2 {
			word := fmt.Sprint("word", i, k)
			if out, errs, _ := one.Run(brine, "salt", "s", "test.echo", word); !strings.Contains(out, word) {
				t.Errorf("job %d after rotation %d is lost: %s%s", k, i, out, errs)
			}
		}
	}
}
