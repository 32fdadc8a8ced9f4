package api

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/servertest"
)

// TestApprovalTable: two masters that do not know each other share a console_store. Users of both see and decide on the jobs that wait at the other
// one. The first decision counts, the other is refused, and an approved job starts once, at its own master. While the server is
// unreachable nothing starts and nothing is lost.
func TestApprovalTable(t *testing.T) {
	db := servertest.Postgres(t)
	t.Cleanup(db.Remove)
	statements, err := daemontest.Brine.Command(t.Context(), t, "migrate", "schema", "console_store").Output()
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, "salt", "SET ROLE salt;\n"+string(statements))
	with := func(conf string) string {
		return strings.Replace(conf, "    admin:", "    bob: ['.*']\n    carol: ['.*']\n    eve: [{'gamma': ['.*']}]\n    admin:", 1) +
			fmt.Sprintf("approval_above: 1\nconsole_store: pgjsonb\nconsole_store_secret: 5ee6f5b3c9d1a0b72f4c8e6d9a1b3c5d\n"+
				"returner.pgjsonb.host: %s\nreturner.pgjsonb.port: %d\nreturner.pgjsonb.pass: %s\n",
				db.Host, db.Port, db.Password)
	}
	one, two := daemontest.Host(), daemontest.Host()
	first := startWith(t, one, with, "alpha", "beta")
	second := startNamed(t, "second", two, with, nil)
	daemontest.NewMinion(t, daemontest.Brine, "gamma", []string{two}, "").Start()
	eventually.Nil(t, time.Minute, "the minion of the second master answers", func() error { return second.master.PingAll(daemontest.Brine, "gamma") })
	admin, bob, carol, eve := first.login("admin"), first.login("bob"), second.login("carol"), second.login("eve")

	ask := func(word string) string { t.Helper(); return first.ask(admin, word) }
	decide := func(s *site, token, method, id string) int {
		t.Helper()
		return s.do(method, "/v1/approvals/"+id, "", "X-Auth-Token", token).status
	}
	here := func(method, id string) int { return decide(first, bob, method, id) }
	there := func(method, id string) int { return decide(second, carol, method, id) }
	shown := func(want map[string]string) {
		t.Helper()
		for _, s := range []*site{first, second} {
			token := map[*site]string{first: admin, second: carol}[s]
			eventually.Nil(t, time.Minute, "the jobs at "+s.master.Name, func() error {
				if got := s.approvals(token); !maps.Equal(got, want) {
					return fmt.Errorf("%v, want %v", got, want)
				}
				return nil
			})
		}
	}

	words, want := map[string]string{}, map[string]string{}
	for _, w := range []string{"far-yes", "far-no", "near-yes", "near-no", "both-0", "both-1", "both-2", "kept"} {
		words[w] = ask(w)
		want[words[w]] = "waiting"
	}
	shown(want)
	if got := second.approvals(eve); len(got) != 0 {
		t.Errorf("a user who may command other minions sees %v", got)
	}
	if got := decide(second, eve, "POST", words["far-yes"]); got != 404 {
		t.Errorf("a user who may command other minions approves: %d", got)
	}
	for _, c := range []struct {
		word        string
		first, then func(method, id string) int
		method      string
		state       string
	}{
		{"far-yes", there, here, "POST", "approved"}, {"far-no", there, here, "DELETE", "rejected"},
		{"near-yes", here, there, "POST", "approved"}, {"near-no", here, there, "DELETE", "rejected"},
	} {
		id := words[c.word]
		if got := c.first(c.method, id); got != 200 {
			t.Errorf("%s: %d", c.word, got)
		}
		for _, method := range []string{"POST", "DELETE"} {
			if got := c.then(method, id); got != 409 {
				t.Errorf("%s: a second decision: %d", c.word, got)
			}
		}
		want[id] = c.state
	}
	for _, w := range []string{"both-0", "both-1", "both-2"} {
		var approved, rejected int
		var both sync.WaitGroup
		both.Go(func() { approved = here("POST", words[w]) })
		both.Go(func() { rejected = there("DELETE", words[w]) })
		both.Wait()
		if approved+rejected != 200+409 {
			t.Errorf("%s: approved %d, rejected %d", w, approved, rejected)
		}
		if want[words[w]] = "rejected"; approved == 200 {
			want[words[w]] = "approved"
		}
	}
	shown(want)

	// Who can write to the table, but does not know the key of the masters, approves nothing and shows no job of its own: the row is restored.
	forged := ask("forged")
	want[forged] = "waiting"
	shown(want)
	const other = "00112233445566778899aabbccddeeff00112233"
	db.Exec(t, "salt", `UPDATE console_approvals SET state = 'granted', decided_by = 'carol', version = nextval('console_approvals_version') WHERE id = '`+forged+`';
		INSERT INTO console_approvals (id, home, owner, state, decided_by, minions, record, proof) SELECT '`+other+`', home, owner, state, decided_by, minions,
		record, proof FROM console_approvals WHERE id = '`+forged+`'`)
	eventually.Nil(t, time.Minute, "the row is restored", func() error {
		if got := strings.TrimSpace(db.Exec(t, "salt", "SELECT state FROM console_approvals WHERE id = '"+forged+"'")); got != "waiting" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	shown(want)
	db.Exec(t, "salt", `UPDATE console_approvals SET record = replace(record, 'forged', 'harmless'), version = nextval('console_approvals_version')
		WHERE id = '`+forged+`'`)
	eventually.Nil(t, time.Minute, "approved as it is", func() error {
		if got := there("POST", forged); got != 200 {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
	words["forged"], want[forged] = forged, "approved"
	shown(want)

	// While the server is unreachable, what it has cannot be decided. What it never had can, at its own master.
	db.Stop()
	kept := words["kept"]
	for what, got := range map[string]int{"here": here("POST", kept), "there": there("POST", kept), "a rejection": here("DELETE", kept)} {
		if got != 503 {
			t.Errorf("a decision without the server, %s: %d", what, got)
		}
	}
	words["alone"] = ask("alone")
	words["later"] = ask("later")
	eventually.Nil(t, time.Minute, "the master decides alone", func() error {
		if got := here("POST", words["alone"]); got != 200 {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
	want[words["alone"]] = "approved"
	want[words["later"]] = "waiting"
	if err := db.Start(); err != nil {
		t.Fatal(err)
	}
	delete(want, words["alone"]) // the other master has never heard of it
	eventually.Nil(t, time.Minute, "the jobs at the second master", func() error {
		if got := second.approvals(carol); !maps.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
	for _, id := range []string{kept, words["later"]} {
		eventually.Nil(t, time.Minute, "approved at the second master", func() error {
			if got := there("POST", id); got != 200 {
				return fmt.Errorf("%d", got)
			}
			return nil
		})
		want[id] = "approved"
	}
	want[words["alone"]] = "approved"
	eventually.Nil(t, time.Minute, "the jobs at the first master", func() error {
		if got := first.approvals(admin); !maps.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
	for _, m := range first.minions {
		eventually.Nil(t, time.Minute, "approved jobs run once at "+m.Name, func() error {
			b, err := os.ReadFile(m.Path("ledger"))
			if err != nil {
				return err
			}
			for word, id := range words {
				n := strings.Count(string(b), word+"\n")
				if want[id] != "approved" && n > 0 || n > 1 {
					t.Fatalf("%s ran %d times at %s: it is %s", word, n, m.Name, want[id])
				}
				if want[id] == "approved" && n == 0 {
					return fmt.Errorf("%s has not run", word)
				}
			}
			return nil
		})
	}
}
