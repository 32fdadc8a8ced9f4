package cluster

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"brine/test/eventually"
)

type keyRecord struct{ State, Since, On, Who, How string }

func keyRecords(m *node) (map[string]keyRecord, error) {
	var d struct{ Keys map[string]keyRecord }
	out, errs, _ := m.Run(brine, "salt-run", "--out=json", "cluster.keys", "m*")
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		return nil, fmt.Errorf("%w: %s%s", err, out, errs)
	}
	return d.Keys, nil
}

// TestKeyRecords: all masters show when and where each decision about a key was made, including a
// deletion.
func TestKeyRecords(t *testing.T) {
	t.Parallel()
	a := newApart(t, 2, "").start()
	one, two := a.masters[0], a.masters[1]
	from := time.Now().Add(-time.Second)
	var minions []*node
	for i, id := range []string{"m0", "m1", "m2", "x0"} {
		minions = append(minions, a.minion(id, a.masters[i%2]))
	}
	is := func(id, state string, on *node) {
		t.Helper()
		for _, m := range a.masters {
			eventually.Nil(t, soon, fmt.Sprintf("%s says that %s is %s, by %s", m.Name, id, state, on.Name), func() error {
				all, err := keyRecords(m)
				r := all[id]
				if at, perr := time.Parse(time.RFC3339, r.Since); err == nil &&
					(r.State != state || r.On != on.Name || perr != nil || at.Before(from) || at.After(time.Now().Add(time.Minute))) {
					err = fmt.Errorf("%+v", all)
				}
				return err
			})
		}
	}
	is("m0", "pending", one)
	is("m1", "pending", two)
	is("m2", "pending", one)
	two.Accept("m0")
	is("m0", "accepted", two)
	minions[2].Kill() // it would sign in again
	for _, args := range [][]string{{"-y", "-r", "m1"}, {"-y", "-d", "m2"}} {
		if _, errs, code := one.Run(brine, "salt-key", args...); code != 0 {
			t.Fatal(errs)
		}
	}
	is("m1", "rejected", one)
	is("m2", "deleted", one)
	var seen [2]map[string]keyRecord
	eventually.Nil(t, soon, "both say the same", func() (err error) {
		for i, m := range a.masters {
			if seen[i], err = keyRecords(m); err != nil {
				return err
			}
		}
		if !reflect.DeepEqual(seen[0], seen[1]) || len(seen[0]) != 3 {
			return fmt.Errorf("%+v", seen)
		}
		return nil
	})
}
