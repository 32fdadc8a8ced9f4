package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestHotPair runs two hot masters with one key and minions of both kinds, kills each master in
// turn, and expects every ping through the other to succeed.
func TestHotPair(t *testing.T) {
	t.Run("brine-brine", func(t *testing.T) { testHotPair(t, brine, brine, []kind{brine, brine}) })
	t.Run("brine-stock", func(t *testing.T) {
		stockTree(t)
		testHotPair(t, brine, stock, []kind{brine, stock})
	})
}

func testHotPair(t *testing.T, ka, kb kind, workers []kind) {
	masters := []string{daemontest.Host(), daemontest.Host()}
	a := newMaster(t, ka, "one", masters[0], "").Start()
	b := newMaster(t, kb, "two", masters[1], "")
	copyKeys(t, a, b)
	b.Start()
	var ids []string
	for i, k := range workers {
		id := string(rune('a'+i)) + "-" + string(k)
		ids = append(ids, id)
		newMinion(t, k, id, masters, "").Start()
	}
	for _, m := range []*node{a, b} {
		m.Accept(ids...)
		eventually.Nil(t, stockLimit, "all minions answer "+m.Name, func() error { return m.PingAll(m.Kind, ids...) })
	}
	for _, pair := range [][2]*node{{a, b}, {b, a}} {
		dead, living := pair[0], pair[1]
		dead.Kill()
		for range 5 {
			if err := patientPing(living, ids); err != nil {
				t.Errorf("a ping through %s was lost while %s was dead: %v", living.Name, dead.Name, err)
			}
		}
		dead.Start()
		took := eventually.Nil(t, stockLimit, dead.Name+" commands all minions again", func() error { return dead.PingAll(dead.Kind, ids...) })
		t.Logf("%s (%s) commanded all minions %.1f s after it listened again", dead.Name, dead.Kind, took.Seconds())
		if err := patientPing(living, ids); err != nil {
			t.Error(err)
		}
	}
}

// patientPing pings all minions once. On a busy machine stock minions need more than PingAll's five
// seconds.
func patientPing(m *node, ids []string) error {
	rets, err := m.SaltJSON(m.Kind, "-t", "90", "*", "test.ping")
	if err != nil {
		return err
	}
	for _, id := range ids {
		if rets[id] != true {
			return fmt.Errorf("no answer from %s: %v", id, rets)
		}
	}
	return nil
}

// copyKeys prepares a second master as in Salt's tutorial: it only needs the key pair.
func copyKeys(t *testing.T, from, to *node) {
	t.Helper()
	pki := "etc/salt/pki/master"
	if err := os.MkdirAll(filepath.Join(to.Dir, pki), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"master.pem", "master.pub"} {
		b, err := os.ReadFile(filepath.Join(from.Dir, pki, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to.Dir, pki, name), b, 0o400); err != nil {
			t.Fatal(err)
		}
	}
}
