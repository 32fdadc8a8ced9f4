package cluster

import (
	"fmt"
	"slices"
	"testing"

	"brine/test/eventually"
)

// TestKeysAtOnce: a decision about a key at one master takes effect for the next request at any
// master, by command line or daemon.
func TestKeysAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "", brine, brine, brine).start()
	a, b, c := f.masters[0], f.masters[1], f.masters[2]
	w := f.minion(brine, "m0", a.Host, "")
	in := func(what, state string, m *node) {
		t.Helper()
		keys, err := m.Keys()
		if err != nil || !slices.Contains(keys[state], "m0") {
			t.Errorf("%s: %s shows %v: %v", what, m.Name, keys, err)
		}
	}
	eventually.Nil(t, soon, "the key has come", func() error {
		keys, err := c.Keys()
		if err == nil && !slices.Contains(keys["minions_pre"], "m0") {
			err = fmt.Errorf("%v", keys)
		}
		return err
	})
	act := func(m *node, args ...string) {
		t.Helper()
		if out, errs, code := m.Run(brine, "salt-key", append([]string{"-y"}, args...)...); code != 0 {
			t.Fatalf("salt-key %v on %s: %s%s", args, m.Name, out, errs)
		}
	}
	// call calls the daemon to which the minion is connected.
	call := func(want int) {
		t.Helper()
		eventually.Nil(t, soon, fmt.Sprintf("salt-call ends with %d", want), func() error {
			if out, errs, code := w.Run(brine, "salt-call", "--out=json", "pillar.items"); code != want {
				return fmt.Errorf("%d: %s%s", code, out, errs)
			}
			return nil
		})
	}
	act(b, "-a", "m0")
	for _, m := range f.masters {
		in("accepted", "minions", m)
	}
	for _, m := range f.masters {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "m0") })
	}
	call(0)
	act(c, "-r", "m0", "--include-accepted")
	for _, m := range f.masters {
		in("rejected", "minions_rejected", m)
		if rets, err := m.SaltJSON(brine, "m0", "test.ping"); err == nil && rets["m0"] == true {
			t.Errorf("%s commands a minion whose key was rejected", m.Name)
		}
	}
	act(a, "-a", "m0", "--include-rejected")
	for _, m := range f.masters {
		in("accepted again", "minions", m)
		eventually.Nil(t, soon, "it answers again to "+m.Name, func() error { return m.PingAll(brine, "m0") })
	}
	act(b, "-d", "m0")
	for _, m := range f.masters {
		if keys, err := m.Keys(); err != nil || slices.Contains(keys["minions"], "m0") {
			t.Errorf("deleted: %s shows %v: %v", m.Name, keys, err)
		}
	}
	call(2) // which requests acceptance
	for _, m := range f.masters {
		in("deleted, and here again", "minions_pre", m)
	}
}
