package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestJobsReturnToMaster: one of three masters has lost a job, and a return of another one, after
// acknowledging them. This is found without a command, logged, shown, reported by an event, and
// repaired from the others.
func TestJobsReturnToMaster(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "auto_accept: true\n").start()
	one, two, three := a.masters[0], a.masters[1], a.masters[2]
	var ids []string
	for i, m := range a.masters {
		id := fmt.Sprintf("m%d", i)
		daemontest.NewMinion(t, brine, id, []string{m.Host}, "").Start()
		ids = append(ids, id)
	}
	eventually.Nil(t, soon, "all answer", func() error { return one.PingAll(brine, ids...) })
	run := func(word string) string {
		t.Helper()
		out, errs, _ := one.Run(brine, "salt", "--async", "*", "test.echo", word)
		jid := jidIn(out + errs)
		if jid == "" {
			t.Fatal(out, errs)
		}
		return jid
	}
	has := func(m *node, jid, word string) {
		t.Helper()
		eventually.Nil(t, soon, m.Name+" has all returns of "+word, func() error {
			out, errs, _ := m.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
			if strings.Count(out, word) != len(ids) {
				return errors.New(out + errs)
			}
			return nil
		})
	}
	first, second := run("the-first"), run("the-second")
	for _, m := range a.masters {
		has(m, first, "the-first")
		has(m, second, "the-second")
	}
	events := three.Tagged("salt/cluster/difference")
	two.Kill()
	lost := 0
	db, err := bolt.Open(two.Path("var/cache/salt/master/brine/masters/"+two.Name+"/jobs.db"), 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error {
		hours := tx.Bucket([]byte("hours"))
		return hours.ForEach(func(k, _ []byte) error {
			var keys [][]byte
			b := hours.Bucket(k)
			err := b.ForEach(func(k, _ []byte) error {
				if bytes.HasPrefix(k, []byte(first)) || bytes.Equal(k, []byte(second+"\x00r"+ids[1])) {
					keys = append(keys, bytes.Clone(k))
				}
				return nil
			})
			for _, k := range keys {
				err = errors.Join(err, b.Delete(k))
				lost++
			}
			return err
		})
	}))
	must(t, db.Close())
	if lost < 2+len(ids) {
		t.Fatalf("only %d entries were lost", lost)
	}
	two.Start()
	has(two, first, "the-first")
	has(two, second, "the-second")
	log := two.Log()
	for _, want := range []string{"kind=job", "kind=return", first, second + "/" + ids[1], "was repaired"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	eventually.Nil(t, soon, "it is told by an event", func() error {
		if all := events(); !strings.Contains(all, second+"/"+ids[1]) {
			return errors.New(all)
		}
		return nil
	})
	eventually.Nil(t, soon, "there is no difference", func() error {
		rows, code, err := status(one)
		if err != nil || code != 0 {
			return fmt.Errorf("%d %+v %w", code, rows, err)
		}
		return nil
	})
	a.equal(one, 3, map[string]int{"return": 2 * len(ids)})
}
