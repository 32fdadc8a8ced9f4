package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// copiesOf returns what each member reports about the copies of returns.
func copiesOf(m *node) (map[string]string, error) {
	out, errs, _ := m.Run(brine, "cluster", "status", "--out=json")
	var rows []struct{ ID, Copies string }
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		return nil, fmt.Errorf("%w: %s%s", err, out, errs)
	}
	all := map[string]string{}
	for _, r := range rows {
		all[r.ID] = r.Copies
	}
	return all, nil
}

// awaitCopies waits until n members report this about the copies of returns.
func awaitCopies(t *testing.T, at *node, n int, want string) {
	t.Helper()
	eventually.Nil(t, soon, fmt.Sprintf("%d masters have %q copies", n, want), func() error {
		all, err := copiesOf(at)
		count := 0
		for _, c := range all {
			if c == want {
				count++
			}
		}
		if err != nil || count != n || len(all) != n {
			return fmt.Errorf("%v %w", all, err)
		}
		return nil
	})
}

// TestCopiesOfReturns: five masters store each return twice. Each of them shows all returns of all jobs, also after one that has
// copies was killed and removed, another one was killed, and then left the cluster; the check of the cluster stays clean.
func TestCopiesOfReturns(t *testing.T) {
	tools.Slow(t)
	t.Parallel()
	a := newApart(t, 5, "auto_accept: true\ncluster_return_copies: 2\n")
	for _, m := range a.masters {
		var sls strings.Builder
		for i := range 5 {
			fmt.Fprintf(&sls, "state number %d:\n  test.succeed_without_changes\n", i)
		}
		m.Write("srv/five.sls", sls.String())
		m.Write("master", m.Read("master")+"file_roots: {base: ["+m.Path("srv")+"]}\n")
	}
	a.start()
	var ids []string
	for i, m := range a.masters {
		id := fmt.Sprintf("m%d", i)
		daemontest.NewMinion(t, brine, id, []string{m.Host}, "").Start()
		ids = append(ids, id)
	}
	awaitCopies(t, a.masters[0], 5, "2 of 5")
	// A client at each master gets the returns of the minions of all masters at once.
	for _, m := range a.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
	}
	jobs := map[string]string{} // words by job id
	for i, m := range a.masters[1:3] {
		word := fmt.Sprintf("the-word-%d", i) + strings.Repeat(".", 300) // small returns are stored on all
		out, errs, _ := m.Run(brine, "salt", "--async", "*", "test.echo", word)
		jid := jidIn(out + errs)
		if jid == "" {
			t.Fatal(out, errs)
		}
		jobs[jid] = word
	}
	complete := func(at ...*node) {
		t.Helper()
		for _, m := range at {
			for jid, word := range jobs {
				eventually.Nil(t, soon, m.Name+" has all returns of "+word, func() error {
					out, errs, _ := m.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
					if strings.Count(out, word) != len(ids) {
						return errors.New(out + errs)
					}
					return nil
				})
			}
		}
	}
	complete(a.masters...)
	// Each master shows the last run of states of all minions, also if it does not store its return.
	if out, errs, code := a.masters[1].Run(brine, "salt", "*", "state.apply", "five"); code != 0 {
		t.Fatal(out, errs)
	}
	for _, m := range a.masters {
		eventually.Nil(t, soon, m.Name+" shows the last runs", func() error {
			out, errs, _ := m.Run(brine, "salt-run", "--out=json", "fleet.minions")
			var shown struct {
				Counts struct{ Severity map[string]int }
			}
			if err := json.Unmarshal([]byte(out), &shown); err != nil || shown.Counts.Severity["clean"] != len(ids) {
				return fmt.Errorf("%w %s%s", err, out, errs)
			}
			return nil
		})
	}
	a.equal(a.masters[4], 5, map[string]int{"return": 2 * len(ids)})

	one, two, three, rest := a.masters[0], a.masters[1], a.masters[2], a.masters[3:]
	three.Kill()
	if full, short := storedReturns(t, three, jobs); full == 0 || short == 0 || full+short != 2*len(ids) {
		t.Errorf("the third master stores %d returns, and knows of %d others", full, short)
	}
	complete(one, two, rest[0], rest[1])
	if out, errs, code := one.Run(brine, "cluster", "remove", three.Name); code != 0 {
		t.Fatal(out, errs)
	}
	awaitCopies(t, one, 4, "2 of 4")
	a.equal(one, 4, map[string]int{"return": 2 * len(ids)})
	two.Kill()
	complete(one, rest[0], rest[1])
	two.Start()
	complete(two)
	a.equal(one, 4, map[string]int{"return": 2 * len(ids)})
	// The master with all returns of one of the jobs leaves.
	if out, errs, code := two.Run(brine, "cluster", "leave"); code != 0 {
		t.Fatal(out, errs)
	}
	awaitCopies(t, one, 3, "2 of 3")
	complete(one, rest[0], rest[1])
	for _, m := range []*node{one, two, rest[0], rest[1]} {
		if strings.Contains(m.Log(), "a replicated record differs") {
			t.Errorf("%s found a difference", m.Name)
		}
	}
}

// storedReturns counts the returns of some jobs that a stopped master stores, and those that it knows of.
func storedReturns(t *testing.T, m *node, jobs map[string]string) (full, short int) {
	t.Helper()
	db, err := bolt.Open(m.Path("var/cache/salt/master/brine/masters/"+m.Name+"/jobs.db"), 0o600, &bolt.Options{ReadOnly: true})
	must(t, err)
	defer db.Close()
	must(t, db.View(func(tx *bolt.Tx) error {
		hours := tx.Bucket([]byte("hours"))
		return hours.ForEach(func(k, _ []byte) error {
			return hours.Bucket(k).ForEach(func(k, v []byte) error {
				jid, rest, _ := bytes.Cut(k, []byte{0})
				word := jobs[string(jid)]
				switch {
				case word == "" || !bytes.HasPrefix(rest, []byte("r")):
				case bytes.Contains(v, []byte(word)):
					full++
				default:
					short++
				}
				return nil
			})
		})
	}))
	return full, short
}
