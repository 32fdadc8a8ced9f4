package api

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestV1HotMasters shows two masters with one key as one fleet, and decides on keys at both.
func TestV1HotMasters(t *testing.T) {
	one, two := daemontest.Host(), daemontest.Host()
	manual := func(conf string) string { return strings.Replace(conf, "auto_accept: true", "auto_accept: false", 1) }
	s := startWith(t, one, func(conf string) string { return manual(conf) + "hot_masters: [" + two + "]\n" })
	admin := s.login("admin")
	second := daemontest.NewMaster(t, daemontest.Brine, "second", two, "hot_masters: ["+one+"]\ntimeout: 10\n")

	type topology struct {
		Masters []struct {
			ID, State, Problem, Version string
			Minions                     int
		}
	}
	masters := func(about string, good func(topology) bool) {
		t.Helper()
		eventually.Nil(t, time.Minute, about, func() error {
			var top topology
			if s.get(admin, "/v1/topology", &top); !good(top) {
				return fmt.Errorf("%+v", top)
			}
			return nil
		})
	}
	masters("a master that does not run is down", func(top topology) bool {
		return len(top.Masters) == 2 && slices.ContainsFunc(top.Masters, func(m struct {
			ID, State, Problem, Version string
			Minions                     int
		}) bool {
			return m.State == "down" && m.Problem != ""
		})
	})
	type record struct{ User, Fun, Result, Auth, Master, Problem string }
	audit := func(query string) (rows []record) {
		t.Helper()
		s.get(admin, "/v1/audit?"+query, &rows)
		return rows
	}
	if rows := audit("fun=nothing"); len(rows) != 1 || !strings.HasPrefix(rows[0].Master, two) || rows[0].Result != "no answer" || rows[0].Problem == "" {
		t.Errorf("audit without the second master: %+v", rows)
	}
	// With another key it is refused.
	second.Start()
	eventually.Nil(t, time.Minute, "a foreign master is refused", func() error {
		if !strings.Contains(s.master.Log(), "refused request as a hot master") {
			return fmt.Errorf("not logged")
		}
		return nil
	})
	second.Kill()
	for _, name := range []string{"etc/salt/pki/master/master.pem", "etc/salt/pki/master/master.pub"} {
		second.Write(name, s.master.Read(name))
	}
	second.Start()
	masters("both masters are up", func(top topology) bool {
		return len(top.Masters) == 2 && top.Masters[0].ID == "master" && top.Masters[1].ID == "second" && top.Masters[1].State == "up" &&
			top.Masters[1].Version != ""
	})

	daemontest.NewMinion(t, daemontest.Brine, "alpha", []string{one, two}, "").Launch()
	daemontest.NewMinion(t, daemontest.Brine, "beta", []string{two}, "").Launch()
	type keyRow struct {
		ID, State string
		Masters   map[string]any
	}
	var keys struct {
		Keys     []keyRow
		Problems map[string]string
	}
	row := func(about, id string, good func(keyRow) bool) {
		t.Helper()
		eventually.Nil(t, time.Minute, about, func() error {
			s.get(admin, "/v1/keys", &keys)
			for _, r := range keys.Keys {
				if r.ID == id && good(r) {
					return nil
				}
			}
			return fmt.Errorf("%+v", keys)
		})
	}
	row("alpha is pending at both", "alpha", func(r keyRow) bool {
		return r.State == "pending" && r.Masters["master"] == "pending" && r.Masters["second"] == "pending"
	})
	row("beta is pending at the second", "beta", func(r keyRow) bool {
		return r.State == "" && r.Masters["master"] == nil && r.Masters["second"] == "pending"
	})
	decide := func(body, want string) {
		t.Helper()
		a := s.do("POST", "/v1/keys", body, "Content-Type", asJSON, "X-Auth-Token", admin)
		if a.status != 200 || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s, want %s", body, a.status, a.body, want)
		}
	}
	decide(`{"action":"accept","ids":["alpha","beta"]}`,
		`{"keys": [{"id": "alpha", "state": "accepted", "done": true, "masters": {"second": {"done": true}}}, `+
			`{"id": "beta", "state": null, "done": false, "reason": "there is no key of this minion", "masters": {"second": {"done": true}}}], "done": 1}`)
	row("alpha is accepted at both", "alpha", func(r keyRow) bool { return r.State == "accepted" && r.Masters["second"] == "accepted" })

	type minions struct {
		Rows []struct {
			ID, State, Severity string
			By                  []string
		}
	}
	var fleet minions
	eventually.Nil(t, time.Minute, "each minion is shown with its masters", func() error {
		fleet = minions{}
		s.get(admin, "/v1/minions", &fleet)
		if r := fleet.Rows; len(r) != 2 || !slices.Equal(r[0].By, []string{"master", "second"}) || r[0].State != "up" ||
			!slices.Equal(r[1].By, []string{"second"}) || r[1].State != "elsewhere" {
			return fmt.Errorf("%+v", fleet)
		}
		return nil
	})
	// A run that only the second master knows.
	eventually.Nil(t, time.Minute, "beta answers", func() error { return second.PingAll(daemontest.Brine, "beta") })
	second.Run(daemontest.Brine, "salt", "beta", "state.apply", "nosuch")
	eventually.Nil(t, time.Minute, "its result is shown here", func() error {
		s.get(admin, "/v1/minions?search=beta", &fleet)
		if len(fleet.Rows) != 1 || fleet.Rows[0].Severity != "failed" {
			return fmt.Errorf("%+v", fleet)
		}
		return nil
	})
	out, _, _ := second.Run(daemontest.Brine, "salt-run", "audit.list", "fun=key.accept_dict", "--out=json")
	if !strings.Contains(out, `"user": "admin"`) || !strings.Contains(out, "hot master master") {
		t.Errorf("audit of the second master: %s", out)
	}
	// One query has the records of both masters.
	byMaster := map[string]int{}
	for _, r := range audit("fun=key.accept_dict&user=admin") {
		byMaster[r.Master+" "+r.Result]++
	}
	if byMaster["master done"] == 0 || byMaster["second done"] == 0 || len(byMaster) != 2 {
		t.Errorf("audit of both masters: %v", byMaster)
	}
	if rows := audit("fun=key.accept_dict&user=admin&here=true"); len(rows) == 0 || slices.ContainsFunc(rows, func(r record) bool { return r.Master != "" }) {
		t.Errorf("audit of this master alone: %+v", rows)
	}
	out, errs, code := second.Run(daemontest.Brine, "salt-run", "audit.list", "fun=key.accept_dict", "--out=json")
	if !strings.Contains(out, `"master": "master"`) || !strings.Contains(out, `"master": "second"`) || code != 0 {
		t.Errorf("audit of both masters at the second, code %d: %s%s", code, out, errs)
	}

	// What users save is at both.
	if a := s.do("POST", "/v1/saved", `{"kind": "target", "name": "web", "public": true, "data": {"tgt": "web*"}}`, "Content-Type", asJSON,
		"X-Auth-Token", admin); a.status != 201 {
		t.Errorf("save: %d %s", a.status, a.body)
	}
	eventually.Nil(t, time.Minute, "the target is at the second master", func() error {
		if out, _, _ := second.Run(daemontest.Brine, "salt-run", "saved.list", "--out=json"); !strings.Contains(out, `"tgt": "web*"`) {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	second.Run(daemontest.Brine, "salt-run", "saved.put_public", "job", "ping", "data={tgt: '*', fun: test.ping}")
	eventually.Nil(t, time.Minute, "the job is here", func() error {
		if a := s.do("GET", "/v1/saved?kind=job", "", "X-Auth-Token", admin); !strings.Contains(a.body, `"fun": "test.ping"`) {
			return fmt.Errorf("%s", a.body)
		}
		return nil
	})
	if a := s.do("POST", "/v1/saved", `{"kind": "schedule", "name": "nightly", "public": true, "data": {"tgt": "*", "schedule": {"function": "state.apply"}}}`,
		"Content-Type", asJSON, "X-Auth-Token", admin); a.status != 400 || !strings.Contains(a.body, "no time is given") {
		t.Errorf("save a schedule without a time: %d %s", a.status, a.body)
	}
	second.Run(daemontest.Brine, "salt-run", "saved.put_public", "schedule", "nightly", "data={tgt: '*', schedule: {function: state.apply, days: 1}}")
	eventually.Nil(t, time.Minute, "the schedule is here", func() error {
		if a := s.do("GET", "/v1/saved?kind=schedule", "", "X-Auth-Token", admin); !strings.Contains(a.body, `"function": "state.apply"`) {
			return fmt.Errorf("%s", a.body)
		}
		return nil
	})

	// A decision that only one master can carry out says so.
	second.Kill()
	masters("the second is down", func(top topology) bool {
		return len(top.Masters) == 2 && top.Masters[1].State == "down" && top.Masters[1].Problem != ""
	})
	if rows := audit("fun=key.accept_dict"); len(rows) < 2 || rows[0].Master != "second" || rows[0].Result != "no answer" || rows[0].Problem == "" ||
		rows[1].Master != "master" {
		t.Errorf("audit with a dead master: %+v", rows)
	}
	if out, _, code := s.master.Run(daemontest.Brine, "salt-run", "audit.list", "--out=json"); code != 1 || !strings.Contains(out, "no answer") {
		t.Errorf("audit with a dead master, code %d: %s", code, out)
	}
	decide(`{"action":"reject","ids":["alpha"]}`, `{"id": "alpha", "state": "rejected", "done": true, "masters": {"second": {"done": false, "reason": "`)
	if s.get(admin, "/v1/keys", &keys); keys.Problems["second"] == "" {
		t.Errorf("keys: %+v", keys)
	}
}

// TestHotApprovals: users of two hot masters decide on the same job before the masters have exchanged their records. Only the first
// decision counts, the other one is refused, and an approved job starts once.
func TestHotApprovals(t *testing.T) {
	one, two := daemontest.Host(), daemontest.Host()
	with := func(other string) func(string) string {
		return func(conf string) string {
			return strings.Replace(conf, "    admin:", "    bob: ['.*']\n    carol: ['.*']\n    admin:", 1) + "approval_above: 1\nhot_masters: [" + other + "]\n"
		}
	}
	first := startWith(t, one, with(two))
	second := startNamed(t, "second", two, with(one), func(m *daemontest.Node) {
		for _, name := range []string{"etc/salt/pki/master/master.pem", "etc/salt/pki/master/master.pub"} {
			m.Write(name, first.master.Read(name))
		}
	})
	var minions []*daemontest.Node
	for _, id := range []string{"alpha", "beta"} {
		minions = append(minions, daemontest.NewMinion(t, daemontest.Brine, id, []string{one, two}, "").Start())
	}
	for _, m := range []*daemontest.Node{first.master, second.master} {
		eventually.Nil(t, time.Minute, "the minions answer "+m.Name, func() error { return m.PingAll(daemontest.Brine, "alpha", "beta") })
	}
	admin, bob, carol := first.login("admin"), first.login("bob"), second.login("carol")

	ask := func(word string) string { t.Helper(); return first.ask(admin, word) }
	decide := func(s *site, token, method, id string) bool {
		t.Helper()
		a := s.do(method, "/v1/approvals/"+id, "", "X-Auth-Token", token)
		if a.status != 200 && a.status != 409 {
			t.Errorf("%s %s: %d %s", method, id, a.status, a.body)
		}
		return a.status == 200
	}
	here := func(method, id string) bool { return decide(first, bob, method, id) }
	there := func(method, id string) bool { return decide(second, carol, method, id) }
	type way = func(method, id string) bool
	cases := []struct {
		word          string
		by            way
		method        string
		thenBy        way
		then, counted string
	}{
		{"approved-here", here, "POST", there, "DELETE", "approved"},
		{"approved-there", there, "POST", here, "DELETE", "approved"},
		{"rejected-here", here, "DELETE", there, "POST", "rejected"},
		{"rejected-there", there, "DELETE", here, "POST", "rejected"},
		{"approved-twice", there, "POST", here, "POST", "approved"},
		{word: "both-0"}, {word: "both-1"}, {word: "both-2"},
	}
	asked, ids, want := map[string]string{}, map[string]string{}, map[string]int{}
	for _, c := range cases {
		asked[c.word] = ask(c.word)
		ids[asked[c.word]] = "waiting"
	}
	eventually.Nil(t, time.Minute, "all jobs wait at the second master", func() error {
		if got := second.approvals(carol); !maps.Equal(got, ids) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	for _, c := range cases {
		id := asked[c.word]
		if c.by == nil { // at the same time
			var approved, rejected bool
			var both sync.WaitGroup
			both.Go(func() { approved = here("POST", id) })
			both.Go(func() { rejected = there("DELETE", id) })
			both.Wait()
			if approved == rejected {
				t.Errorf("%s: approved %v, rejected %v", c.word, approved, rejected)
			}
			if c.counted = "rejected"; approved {
				c.counted = "approved"
			}
		} else if !c.by(c.method, id) {
			t.Errorf("%s: the first decision is refused", c.word)
		} else if c.thenBy(c.then, id) {
			t.Errorf("%s: a second decision is accepted", c.word)
		}
		if ids[id], want[c.word] = c.counted, 0; c.counted == "approved" {
			want[c.word] = 1
		}
	}
	if t.Failed() {
		return
	}
	for _, s := range []*site{first, second} {
		token := admin
		if s == second {
			token = carol
		}
		eventually.Nil(t, time.Minute, "all decisions are shown at "+s.master.Name, func() error {
			if got := s.approvals(token); !maps.Equal(got, ids) {
				return fmt.Errorf("%v, want %v", got, ids)
			}
			return nil
		})
	}
	for _, m := range minions {
		eventually.Nil(t, time.Minute, "approved jobs run once at "+m.Name, func() error {
			b, err := os.ReadFile(m.Path("ledger"))
			if errors.Is(err, fs.ErrNotExist) {
				return err
			}
			for word, n := range want {
				if got := strings.Count(string(b), word); got < n {
					return fmt.Errorf("%s ran %d times", word, got)
				} else if got > n {
					t.Fatalf("%s ran %d times at %s, not %d", word, got, m.Name, n)
				}
			}
			return nil
		})
	}
}
