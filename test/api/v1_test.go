package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// get returns the data at a path below /v1.
func (s *site) get(session, path string, into any) {
	s.t.Helper()
	a := s.do("GET", path, "", "X-Auth-Token", session)
	if a.status != 200 {
		s.t.Fatalf("GET %s: %d %.500s", path, a.status, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		s.t.Fatalf("GET %s: %v: %.500s", path, err, a.body)
	}
}

// approvals returns the states of the jobs that wait for a second user, or did, by their ids.
func (s *site) approvals(session string) map[string]string {
	s.t.Helper()
	var all struct{ Approvals []struct{ ID, State string } }
	s.get(session, "/v1/approvals", &all)
	states := map[string]string{}
	for _, a := range all.Approvals {
		states[a.ID] = a.State
	}
	return states
}

// ask asks for a job that has to wait: each minion appends a word to its file ledger. It returns the id of the approval.
func (s *site) ask(session, word string) string {
	s.t.Helper()
	a := s.do("POST", "/v1/jobs", `{"tgt": "*", "fun": "cmd.run", "arg": ["echo `+word+` >> /proc/$PPID/cwd/ledger"]}`, "Content-Type", asJSON,
		"X-Auth-Token", session)
	var asked struct{ Approval string }
	if err := json.Unmarshal([]byte(a.body), &asked); err != nil || asked.Approval == "" {
		s.t.Fatalf("%s is not asked for: %d %s", word, a.status, a.body)
	}
	return asked.Approval
}

type v1Row struct {
	ID, State, Fingerprint, Reason string
	By                             []string
	Done                           bool
}

// TestV1Fleet reads minions, jobs and the topology of real daemons.
func TestV1Fleet(t *testing.T) {
	s := start(t, "alpha", "beta")
	admin := s.login("admin")
	var minions struct {
		Accepted, Matched int
		Rows              []v1Row
		Counts            map[string]map[string]int
	}
	s.get(admin, "/v1/minions", &minions)
	if minions.Accepted != 2 || len(minions.Rows) != 2 || minions.Counts["state"]["up"] != 2 || !slices.Equal(minions.Rows[0].By, []string{"master"}) {
		t.Errorf("minions: %+v", minions)
	}
	s.get(admin, "/v1/minions?tgt="+url.QueryEscape("G@id:beta or nosuch"), &minions)
	if minions.Matched != 1 || minions.Rows[0].ID != "beta" {
		t.Errorf("minions of a target: %+v", minions)
	}
	if s.get(admin, "/v1/minions?limit=1&offset=1", &minions); len(minions.Rows) != 1 || minions.Rows[0].ID != "beta" || minions.Matched != 2 {
		t.Errorf("second page: %+v", minions)
	}
	var one struct {
		ID     string
		Grains map[string]any
	}
	if s.get(admin, "/v1/minions/alpha", &one); one.ID != "alpha" || one.Grains["id"] != "alpha" {
		t.Errorf("minion: %+v", one)
	}
	var topology struct {
		Here    string
		Masters []struct{ Minions int }
	}
	if s.get(admin, "/v1/topology", &topology); topology.Here != "master" || len(topology.Masters) != 1 || topology.Masters[0].Minions != 2 {
		t.Errorf("topology: %+v", topology)
	}
	var preview struct {
		Matched int
		Masters map[string]int
	}
	if s.get(admin, "/v1/preview?tgt=al*", &preview); preview.Matched != 1 || preview.Masters["master"] != 1 {
		t.Errorf("preview: %+v", preview)
	}

	// A job of which one return differs, and one of states.
	jid := func(chunk string) string {
		a := s.post(admin, chunk)
		var out struct{ Return []struct{ JID string } }
		if err := json.Unmarshal([]byte(a.body), &out); err != nil || len(out.Return) != 1 {
			t.Fatalf("%s: %s", chunk, a.body)
		}
		return out.Return[0].JID
	}
	type jobData struct {
		Minions []string
		Counts  map[string]int
		Groups  []struct {
			Count   int
			Minions []string
			Failed  bool
		}
		States []struct {
			State    string
			Ok       int
			Failed   int
			FailedOn []string `json:"failed_on"`
		}
	}
	finished := func(jid string) (j jobData) {
		eventually.Nil(t, time.Minute, "both minions returned", func() error {
			j = jobData{}
			if s.get(admin, "/v1/jobs/"+jid, &j); j.Counts["returned"] != 2 {
				return fmt.Errorf("%+v", j)
			}
			return nil
		})
		return j
	}
	if j := finished(jid(`{"client":"local_async","tgt":"*","fun":"test.ping"}`)); len(j.Groups) != 1 || j.Groups[0].Count != 2 || len(j.States) != 0 {
		t.Errorf("equal returns: %+v", j)
	}
	first, second, other := jid(`{"client":"local_async","tgt":"*","fun":"test.echo","arg":["a"]}`),
		jid(`{"client":"local_async","tgt":"*","fun":"test.echo","arg":["b"]}`), jid(`{"client":"local_async","tgt":"*","fun":"test.ping"}`)
	for _, j := range []string{first, second, other} {
		finished(j)
	}
	var compared struct {
		Compared, Same int
		Differences    []struct {
			Count         int
			Before, After string
		}
	}
	if s.get(admin, "/v1/jobs/"+second+"?against="+first, &compared); compared.Compared != 2 || compared.Same != 0 || len(compared.Differences) != 1 ||
		compared.Differences[0].Count != 2 || compared.Differences[0].Before != "a" || compared.Differences[0].After != "b" {
		t.Errorf("comparison: %+v", compared)
	}
	for against, want := range map[string]int{other: 400, "20200101000000000000": 404} {
		if a := s.do("GET", "/v1/jobs/"+second+"?against="+against, "", "X-Auth-Token", admin); a.status != want {
			t.Errorf("against %s: %d %s, want %d", against, a.status, a.body, want)
		}
	}
	if j := finished(jid(`{"client":"local_async","tgt":"*","fun":"grains.get","arg":["id"]}`)); len(j.Groups) != 2 || j.Groups[1].Minions[0] != "beta" {
		t.Errorf("different returns: %+v", j)
	}
	states := jid(`{"client":"local_async","tgt":"*","fun":"state.single","arg":["test.fail_without_changes","name=bad"]}`)
	if j := finished(states); len(j.States) != 1 || j.States[0].Failed != 2 || len(j.States[0].FailedOn) != 2 || j.Counts["failed"] != 2 ||
		!j.Groups[0].Failed {
		t.Errorf("states: %+v", j)
	}
	var result struct{ Failed bool }
	if s.get(admin, "/v1/jobs/"+states+"/alpha", &result); !result.Failed {
		t.Errorf("one result: %+v", result)
	}
	var jobs struct {
		Rows []struct {
			JID      string
			Returned int
		}
		More bool
	}
	if s.get(admin, "/v1/jobs?fun=state.*&limit=1", &jobs); len(jobs.Rows) != 1 || jobs.Rows[0].JID != states || jobs.Rows[0].Returned != 2 {
		t.Errorf("jobs: %+v", jobs)
	}

	// Permissions, and who asked.
	for query, want := range map[string]string{
		"user=limited&fun=test.ping&tgt=alpha":                      `{"allowed": true, "rules": [{"source": "external_auth: sharedsecret", "entry": {"alpha*": [`,
		"user=limited&fun=test.ping&tgt=*":                          `{"allowed": false, "rules": []}`,
		"user=limited&fun=cmd.run&tgt=alpha&arg=echo+1":             `{"allowed": true`,
		"user=limited&fun=cmd.run&tgt=alpha&arg=rm+1":               `{"allowed": false`,
		"user=limited&fun=jobs.list_jobs&form=runner":               `{"allowed": true`,
		"user=limited&fun=key.accept&form=wheel":                    `{"allowed": false`,
		"user=admin&fun=key.accept&form=wheel&eauth=sharedsecret":   `{"allowed": true, "rules": [{"source": "external_auth: sharedsecret", "entry": "@wheel"}]}`,
		"user=admin&fun=key.accept&form=wheel&eauth=publisher_acl":  `{"allowed": false`,
		"user=unknown&fun=test.ping&tgt=alpha&eauth=sharedsecret":   `{"allowed": false`,
		"user=limited&fun=test.ping&tgt=alpha&eauth=nosuch&groups=": `{"allowed": false`,
	} {
		if a := s.do("GET", "/v1/can?"+query, "", "X-Auth-Token", admin); a.status != 200 || !strings.HasPrefix(a.body, want) {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	var audit []struct{ User, Fun, Result string }
	if s.get(admin, "/v1/audit?user=admin&fun=state.single", &audit); len(audit) != 1 || audit[0].Result != "done" {
		t.Errorf("audit: %+v", audit)
	}

	// What is wrong is said, as JSON to every client.
	for path, want := range map[string]string{
		"/v1/minions?serach=x":      `"unknown parameter \"serach\": this path has search, state`,
		"/v1/minions?limit=many":    `"limit must be a number"`,
		"/v1/minions/nosuch":        `no accepted minion`,
		"/v1/preview?tgt=(a":        `"return"`,
		"/v1/jobs/nosuch":           `no job`,
		"/v1/topology?x=1":          `this path has since`,
		"/v1/can?user=a&form=heron": `"return"`,
	} {
		a := s.do("GET", path, "", "X-Auth-Token", admin, "Accept", "text/html")
		if path == "/v1/preview?tgt=(a" {
			a = s.do("GET", path+"&tgt_type=compound", "", "X-Auth-Token", admin)
		}
		if (a.status != 400 && a.status != 404 && a.status != 406) || !strings.HasPrefix(a.body, `{"status": `) ||
			a.status != 406 && !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// TestV1States reads the last runs of states of real minions, also after the master has started again.
func TestV1States(t *testing.T) {
	dir := t.TempDir()
	s := startWith(t, daemontest.Host(), func(conf string) string { return conf + "file_roots: {base: [" + dir + "]}\n" }, "alpha", "beta")
	admin := s.login("admin")
	conf := filepath.Join(dir, "conf")
	sls := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "web.sls"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	type minions struct {
		Matched int
		Rows    []struct {
			ID, Severity string
			Run          struct {
				Test, Broken bool
				Mods         []string
				Would        int `json:"would_change"`
			}
		}
		Counts map[string]map[string]int
	}
	run := func(session, target, args string) {
		t.Helper()
		a := s.post(session, `{"client":"local","tgt":"`+target+`","fun":"state.apply","arg":["web"`+args+`]}`)
		if a.status != 200 {
			t.Fatalf("state.apply: %d %s", a.status, a.body)
		}
	}
	severity := func(session, id, want string) minions {
		t.Helper()
		var m minions
		eventually.Nil(t, time.Minute, id+" is "+want, func() error {
			m = minions{}
			if s.get(session, "/v1/minions?severity="+want+"&search="+id, &m); m.Matched != 1 || m.Rows[0].ID != id || m.Rows[0].Severity != want {
				return fmt.Errorf("%+v", m)
			}
			return nil
		})
		return m
	}
	severity(admin, "alpha", "unknown")
	sls("{{ grains['id'] }}:\n  file.managed:\n    - name: " + conf + "-{{ grains['id'] }}\n    - contents: one\nsame:\n  test.succeed_with_changes\n")
	run(admin, "*", `,"test=True"`)
	if m := severity(admin, "alpha", "drift"); !m.Rows[0].Run.Test || m.Rows[0].Run.Would != 2 || m.Rows[0].Run.Mods[0] != "web" {
		t.Errorf("a test: %+v", m)
	}
	severity(admin, "beta", "drift")
	var states struct {
		Minions, Matched int
		Severities       map[string]int
		Rows             []struct {
			State, Fun, SLS        string
			Failed, Drift, Changed int
			Groups                 []struct {
				Outcome, Change string
				Count           int
				Minions         []string
				Changes         map[string]any
			}
		}
	}
	s.get(admin, "/v1/states?search=same", &states)
	if states.Minions != 2 || states.Severities["drift"] != 2 || states.Matched != 1 || states.Rows[0].Drift != 2 || states.Rows[0].Groups[0].Count != 2 {
		t.Fatalf("states: %+v", states)
	}
	var change struct{ Minions []string }
	s.get(admin, "/v1/states/"+states.Rows[0].Groups[0].Change, &change)
	if !slices.Equal(change.Minions, []string{"alpha", "beta"}) {
		t.Errorf("one change: %+v", change)
	}
	if s.get(admin, "/v1/states?minion=beta&search=file.managed", &states); states.Matched != 1 || states.Rows[0].Groups[0].Changes["newfile"] == nil &&
		states.Rows[0].Groups[0].Changes["diff"] == nil {
		t.Errorf("one state of beta: %+v", states)
	}
	run(admin, "alpha", "")
	severity(admin, "alpha", "changed")
	sls("bad:\n  test.fail_without_changes\n")
	run(admin, "beta", "")
	severity(admin, "beta", "failed")
	sls("{{ nosuch.thing }}:\n  test.nop\n")
	run(admin, "alpha", "")
	if m := severity(admin, "alpha", "failed"); !m.Rows[0].Run.Broken {
		t.Errorf("an SLS file that cannot be rendered: %+v", m)
	}

	// The history: each run once, in pages, of a day or of a minion.
	type past struct {
		Source, Next string
		Days         []struct {
			Day                           string
			Failed, Drift, Changed, Clean int
		}
		Rows []struct {
			ID, JID, Time, Fun, Outcome string
			Mods                        []string
			Test, Broken                bool
			Changed, Failed             int
			Would                       int `json:"would_change"`
			MS                          float64
		}
	}
	checkHistory := func() {
		t.Helper()
		var days, runs past
		s.get(admin, "/v1/history?days=2", &days)
		sum := map[string]int{}
		for _, d := range days.Days {
			sum["failed"] += d.Failed
			sum["drift"] += d.Drift
			sum["changed"] += d.Changed
			sum["clean"] += d.Clean
		}
		if days.Source != "master" || fmt.Sprint(sum) != "map[changed:1 clean:0 drift:2 failed:2]" {
			t.Errorf("days: %+v", days)
		}
		var got []string
		for path := "/v1/history/alpha?limit=2"; ; path = "/v1/history/alpha?limit=2&after=" + url.QueryEscape(runs.Next) {
			runs = past{}
			s.get(admin, path, &runs)
			for _, r := range runs.Rows {
				got = append(got, fmt.Sprint(r.ID, " ", r.Outcome, " ", r.Broken, " ", r.Test, " ", r.Would, " ", r.Changed, " ", r.Mods[0]))
			}
			if runs.Next == "" {
				break
			}
		}
		if want := []string{"alpha failed true false 0 0 web", "alpha changed false false 0 2 web", "alpha drift false true 2 0 web"}; !slices.Equal(got, want) {
			t.Errorf("the runs of alpha: %q, want %q", got, want)
		}
		var failed []string
		for _, d := range days.Days {
			runs = past{}
			s.get(admin, "/v1/history?outcome=failed&day="+d.Day, &runs)
			for _, r := range runs.Rows {
				failed = append(failed, r.ID)
			}
		}
		if !slices.Equal(failed, []string{"alpha", "beta"}) && !slices.Equal(failed, []string{"beta", "alpha"}) {
			t.Errorf("runs that failed: %q", failed)
		}
	}
	checkHistory()
	for path, status := range map[string]int{"/v1/history?day=today": 400, "/v1/history?outcome=bad&day=2026-03-01": 400, "/v1/history/alpha?after=x": 400,
		"/v1/history?days=x": 400, "/v1/history/alpha?days=3": 400, "/v1/history/alpha/x": 404, "/v1/history?day=2026-03-01": 200, "/v1/history/nosuch": 200} {
		if a := s.do("GET", path, "", "X-Auth-Token", admin); a.status != status {
			t.Errorf("GET %s: %d %.300s, want %d", path, a.status, a.body, status)
		}
	}

	// The master is killed, so that it could not save anything.
	s.master.Kill()
	s.master.Launch()
	eventually.Nil(t, time.Minute, "the master is back", func() error { return s.master.PingAll(daemontest.Brine, "alpha", "beta") })
	severity(admin, "beta", "failed")
	severity(admin, "alpha", "failed")
	checkHistory()
}

// TestV1Places reads files, pillar and schedules, and runs an entry of a schedule.
func TestV1Places(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"files/web/init.sls":  "nothing:\n  test.nop\n",
		"files/web/logo.png":  "\x89PNG\x00\x01",
		"files/web/large.txt": strings.Repeat("x", 300<<10),
		"prod/top.sls":        "base: {}\n",
		"pillar/top.sls":      "base: {'*': [data]}\n",
		"pillar/data.sls": "secret: s3cret of {{ grains['id'] }}\nschedule:\n  often: {function: test.ping, seconds: 3600, run_on_start: false}\n" +
			"  daily: {function: state.apply, cron: '0 3 * * *'}\n  odd: {function: test.ping, cron: nonsense}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := startWith(t, daemontest.Host(), func(conf string) string {
		return conf + fmt.Sprintf("file_roots: {base: [%[1]s/files], prod: [%[1]s/prod]}\npillar_roots: {base: [%[1]s/pillar]}\n", dir)
	}, "alpha")
	admin, limited := s.login("admin"), s.login("limited")
	var files struct {
		Envs    []string
		Matched int
		Rows    []struct{ Path, Hash string }
	}
	s.get(admin, "/v1/files?search=.SLS", &files)
	if !slices.Equal(files.Envs, []string{"base", "prod"}) || files.Matched != 1 || files.Rows[0].Path != "web/init.sls" || len(files.Rows[0].Hash) != 64 {
		t.Errorf("files: %+v", files)
	}
	var file struct {
		Text, Hash  string
		Binary, Cut bool
	}
	if s.get(admin, "/v1/files?path=web/init.sls", &file); file.Text != "nothing:\n  test.nop\n" || file.Hash != files.Rows[0].Hash {
		t.Errorf("a file: %+v", file)
	}
	if s.get(admin, "/v1/files?path=web/logo.png", &file); !file.Binary {
		t.Errorf("a picture: %+v", file)
	}
	if s.get(admin, "/v1/files?path=web/large.txt", &file); !file.Cut {
		t.Errorf("a large file: cut %v", file.Cut)
	}
	for _, query := range []string{"path=nosuch", "path=../pillar/data.sls", "path=/etc/passwd", "saltenv=nosuch", "saltenv=..&path=pillar/data.sls"} {
		if a := s.do("GET", "/v1/files?"+query, "", "X-Auth-Token", admin); a.status != 404 {
			t.Errorf("%s: %d %.200s", query, a.status, a.body)
		}
	}

	var pillar struct {
		ID     string
		Pillar map[string]any
	}
	if s.get(admin, "/v1/pillar/alpha", &pillar); pillar.ID != "alpha" || pillar.Pillar["secret"] != "s3cret of alpha" {
		t.Errorf("pillar: %+v", pillar)
	}
	for path, want := range map[string]int{"/v1/pillar/nosuch": 404, "/v1/pillar/*": 404, "/v1/pillar": 404, "/v1/pillar/alpha?saltenv=x": 400} {
		if a := s.do("GET", path, "", "X-Auth-Token", admin); a.status != want {
			t.Errorf("%s: %d %.200s", path, a.status, a.body)
		}
	}
	if a := s.do("GET", "/v1/pillar/alpha", "", "X-Auth-Token", limited); a.status != 403 {
		t.Errorf("without permission: %d", a.status)
	}
	var audit []struct{ User, Tgt, Result string }
	if s.get(admin, "/v1/audit?fun=pillar.show_pillar", &audit); len(audit) != 1 || audit[0].User != "admin" || audit[0].Tgt != "alpha" {
		t.Errorf("audit: %+v", audit)
	}

	var plan struct {
		Matched int
		Known   int `json:"pillar_known"`
		Rows    []struct {
			Minion, Name, Fun, Source, Next, Problem string
			Every                                    int
			Last                                     struct{ JID string }
		}
	}
	eventually.Nil(t, time.Minute, "the pillar of alpha is known", func() error {
		if s.get(admin, "/v1/schedules", &plan); plan.Known != 1 || plan.Matched != 3 {
			return fmt.Errorf("%+v", plan)
		}
		return nil
	})
	if r := plan.Rows; r[0].Name != "daily" || !strings.HasSuffix(r[0].Next, "03:00:00Z") || r[1].Name != "odd" || r[1].Problem == "" ||
		r[2].Every != 3600 || r[2].Source != "pillar" {
		t.Errorf("schedules: %+v", plan)
	}
	for body, want := range map[string]int{`{"minion":"alpha","name":"often"}`: 202, `{"minion":"nosuch","name":"often"}`: 404,
		`{"minion":"../x","name":"a"}`: 400, `{"minion":"alpha"}`: 400} {
		if a := s.do("POST", "/v1/schedules", body, "Content-Type", asJSON, "X-Auth-Token", admin); a.status != want {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	a := s.do("POST", "/v1/schedules", `{"minion":"alpha","name":"often"}`, "Content-Type", asJSON, "X-Auth-Token", limited)
	if a.status != 401 && a.status != 403 {
		t.Errorf("running an entry without permission: %d", a.status)
	}
	eventually.Nil(t, 2*time.Minute, "the entry ran", func() error {
		if s.get(admin, "/v1/schedules?search=often&minion=alpha", &plan); plan.Matched != 1 || plan.Rows[0].Last.JID == "" || plan.Rows[0].Next == "" {
			return fmt.Errorf("%+v", plan)
		}
		return nil
	})
}

// TestV1Keys decides on keys of minions that wait.
func TestV1Keys(t *testing.T) {
	s := startWith(t, daemontest.Host(), func(conf string) string {
		return strings.Replace(conf, "auto_accept: true", "auto_accept: false", 1)
	})
	for _, id := range []string{"alpha", "beta", "gamma"} {
		daemontest.NewMinion(t, daemontest.Brine, id, []string{s.master.Host}, "").Launch()
	}
	admin := s.login("admin")
	var keys struct {
		Keys   []v1Row
		Counts map[string]int
		Done   int
	}
	eventually.Nil(t, time.Minute, "three keys are pending", func() error {
		if s.get(admin, "/v1/keys?fingerprints=true", &keys); keys.Counts["pending"] != 3 || keys.Keys[0].Fingerprint == "" {
			return fmt.Errorf("%+v", keys)
		}
		return nil
	})
	decide := func(body string, status int, want string) {
		t.Helper()
		a := s.do("POST", "/v1/keys", body, "Content-Type", asJSON, "X-Auth-Token", admin)
		if a.status != status || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s, want %d %s", body, a.status, a.body, status, want)
		}
	}
	decide(`{"action":"accept","ids":["alpha"],"fingerprints":{"alpha":"00:11"}}`, 200,
		`{"keys": [{"id": "alpha", "state": "pending", "done": false, "reason": "the key has another fingerprint"}], "done": 0}`)
	decide(`{"action":"accept","ids":["alpha"],"fingerprints":{"alpha":"`+keys.Keys[0].Fingerprint+`"}}`, 200,
		`{"keys": [{"id": "alpha", "state": "accepted", "done": true}], "done": 1}`)
	decide(`{"action":"accept","ids":["alpha","beta","delta"]}`, 200,
		`{"keys": [{"id": "alpha", "state": "accepted", "done": false, "reason": "the key is accepted"}, `+
			`{"id": "beta", "state": "accepted", "done": true}, {"id": "delta", "state": null, "done": false, "reason": "there is no key of this minion"}], "done": 1}`)
	decide(`{"action":"reject","ids":["gamma","beta"]}`, 200, `"done": 2`)
	decide(`{"action":"accept","ids":["gamma"]}`, 200, `{"id": "gamma", "state": "accepted", "done": true}`)
	eventually.Nil(t, time.Minute, "gamma answers", func() error { return s.master.PingAll(daemontest.Brine, "gamma") })
	decide(`{"action":"delete","ids":["beta"]}`, 200, `"done": 1`)
	for _, body := range []string{``, `[]`, `{}`, `{"action":"accept"}`, `{"action":"accept","ids":[]}`, `{"action":"accept","ids":"*"}`,
		`{"action":"accept","ids":["../x"]}`, `{"action":"accept","ids":[{}]}`, `{"action":"drop","ids":["alpha"]}`,
		`{"action":"accept","ids":["alpha"],"fingerprints":[]}`} {
		decide(body, 400, `{"status": 400, "return": "`)
	}
}

// TestV1Sessions lists and ends sessions.
func TestV1Sessions(t *testing.T) {
	s := start(t)
	admin, limited, other := s.login("admin"), s.login("limited"), s.login("limited")
	type list struct {
		Sessions []struct {
			ID, User string
			Current  bool
		}
	}
	var own, all list
	if s.get(limited, "/v1/sessions", &own); len(own.Sessions) != 2 {
		t.Fatalf("own sessions: %+v", own)
	}
	if s.get(admin, "/v1/sessions", &all); len(all.Sessions) != 3 {
		t.Fatalf("all sessions: %+v", all)
	}
	id := func(l list, user string, current bool) string {
		for _, x := range l.Sessions {
			if x.User == user && x.Current == current {
				return x.ID
			}
		}
		t.Fatalf("no session of %s: %+v", user, l)
		return ""
	}
	// A user cannot end the session of another, and the listed id opens nothing.
	if a := s.do("DELETE", "/v1/sessions/"+id(all, "admin", true), "", "X-Auth-Token", limited); a.status != 404 {
		t.Errorf("session of another: %d", a.status)
	}
	if a := s.do("GET", "/v1/sessions", "", "X-Auth-Token", id(all, "admin", true)); a.status != 401 {
		t.Errorf("with the listed id: %d", a.status)
	}
	if a := s.do("DELETE", "/v1/sessions/"+id(own, "limited", false), "", "X-Auth-Token", limited); a.status != 200 {
		t.Errorf("own session: %d %s", a.status, a.body)
	}
	if a := s.do("GET", "/v1/sessions", "", "X-Auth-Token", other); a.status != 401 {
		t.Errorf("ended session: %d", a.status)
	}
	if a := s.do("DELETE", "/v1/sessions/"+id(own, "limited", true), "", "X-Auth-Token", admin); a.status != 200 {
		t.Errorf("by the administrator: %d %s", a.status, a.body)
	}
	if a := s.do("GET", "/v1/sessions", "", "X-Auth-Token", limited); a.status != 401 {
		t.Errorf("ended by the administrator: %d", a.status)
	}
}

// TestV1Saved saves, lists and removes as several users.
func TestV1Saved(t *testing.T) {
	s := start(t)
	admin, limited := s.login("admin"), s.login("limited")
	save := func(session, body string, status int, want string) (id string) {
		t.Helper()
		a := s.do("POST", "/v1/saved", body, "Content-Type", asJSON, "X-Auth-Token", session)
		if a.status != status || !strings.Contains(a.body, want) {
			t.Errorf("%.200s: %d %s, want %d %s", body, a.status, a.body, status, want)
		}
		var got struct{ ID string }
		if err := json.Unmarshal([]byte(a.body), &got); err != nil {
			t.Error(err)
		}
		return got.ID
	}
	id := save(admin, `{"kind": "target", "name": "web", "data": {"tgt": "web*", "tgt_type": "glob"}}`, 201, `"owner": "admin", "own": true, "public": false`)
	if again := save(admin, `{"kind": "target", "name": "web", "public": true, "data": {"tgt": "w*"}}`, 201, `"public": true`); again != id || id == "" {
		t.Errorf("saved again: %s, want %s", again, id)
	}
	save(admin, `{"kind": "job", "name": "__proto__", "data": {"tgt": ["a", "b"], "tgt_type": "list", "fun": "test.ping", "kwarg": {"constructor": 1}}}`, 201,
		`"constructor": 1`)
	save(limited, `{"kind": "target", "name": "x", "data": {"tgt": "*"}}`, 403, `"return": "`)
	for _, body := range []string{``, `[]`, `{}`, `{"kind": "target", "name": "x"}`, `{"kind": "other", "name": "x", "data": {"tgt": "*"}}`,
		`{"kind": "target", "name": "", "data": {"tgt": "*"}}`, `{"kind": "target", "name": "a\u0007", "data": {"tgt": "*"}}`,
		`{"kind": "target", "name": "x", "data": {}}`, `{"kind": "target", "name": "x", "data": {"tgt": "*", "more": 1}}`,
		`{"kind": "target", "name": "x", "data": [1]}`, `{"kind": "target", "name": "x", "data": {"tgt": "*"}, "public": 1}`,
		`{"kind": "target", "name": "x", "data": {"tgt": "` + strings.Repeat("x", 5000) + `"}}`, `{"kind": "target", "name": {"x": 1}, "data": {"tgt": "*"}}`} {
		save(admin, body, 400, `"status": 400`)
	}
	var list struct {
		Saved []struct{ ID, Name, Kind string }
	}
	if s.get(admin, "/v1/saved", &list); len(list.Saved) != 2 || list.Saved[0].Name != "__proto__" {
		t.Errorf("%+v", list)
	}
	// The command line sees what is for all, as another user.
	out, _, _ := s.master.Run(daemontest.Brine, "salt-run", "saved.list", "--out=json")
	if !strings.Contains(out, `"w*"`) || strings.Contains(out, "__proto__") {
		t.Errorf("salt-run: %s", out)
	}
	if out, _, _ := s.master.Run(daemontest.Brine, "salt-run", "saved.remove", id); !strings.Contains(out, "nothing of yours") {
		t.Errorf("another user removed it: %s", out)
	}
	// It outlives a restart.
	s.master.Kill()
	s.master.Start()
	eventually.Nil(t, time.Minute, "the target is still there", func() error {
		a := s.do("GET", "/v1/saved?kind=target", "", "X-Auth-Token", admin)
		if !strings.Contains(a.body, `"w*"`) {
			return fmt.Errorf("%d %s", a.status, a.body)
		}
		return nil
	})
	for _, want := range []int{200, 404} {
		if a := s.do("DELETE", "/v1/saved/"+id, "", "X-Auth-Token", admin); a.status != want {
			t.Errorf("remove: %d %s, want %d", a.status, a.body, want)
		}
	}
	out, _, _ = s.master.Run(daemontest.Brine, "salt-run", "audit.list", "user=admin", "fun=saved.*", "--out=json")
	if !strings.Contains(out, "saved.put_public") || !strings.Contains(out, "saved.remove") || strings.Contains(out, "saved.list") {
		t.Errorf("audit: %s", out)
	}
}

// follow reads events of /v1/events until n have come, and returns their ids and data, and the number of gaps.
func (s *site) follow(session, query, last string, n int, began func()) (ids, data []string, gaps int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", s.url+"/v1/events"+query, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("X-Auth-Token", session)
	if last != "" {
		r.Header.Set("Last-Event-Id", last)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for len(data) < n && lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "retry: ") && began != nil:
			began()
		case line == "event: gap":
			gaps++
			lines.Scan() // its data
		case strings.HasPrefix(line, "id: "):
			ids = append(ids, line[4:])
		case strings.HasPrefix(line, "data: "):
			data = append(data, line[6:])
		}
	}
	if len(data) < n {
		s.t.Fatalf("%d events of %d: %v", len(data), n, lines.Err())
	}
	return ids, data, gaps
}

// TestV1Events resumes a stream without a gap, and learns of gaps.
func TestV1Events(t *testing.T) {
	s := start(t)
	admin := s.login("admin")
	fire := func(from, to int) {
		for i := from; i < to; i++ {
			if a := s.do("POST", fmt.Sprintf("/hook/n/%d", i), "x=1", "X-Auth-Token", admin); a.status != 200 {
				t.Fatalf("hook: %d", a.status)
			}
		}
	}
	// Each hook has a connection of its own to the bus, so the order may differ.
	has := func(data []string, from, to int) bool {
		for i := from; i < to; i++ {
			if !strings.Contains(strings.Join(data, "\n"), fmt.Sprintf(`"tag": "salt/netapi/hook/n/%d"`, i)) {
				return false
			}
		}
		return true
	}
	// The feed starts with its first reader: wait until it has the bus.
	ids, _, gaps := []string(nil), []string(nil), 0
	eventually.Nil(t, time.Minute, "the feed reads the bus", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		r, _ := http.NewRequestWithContext(ctx, "GET", s.url+"/v1/events?tag=salt/netapi/hook/start", nil)
		r.Header.Set("X-Auth-Token", admin)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if a := s.do("POST", "/hook/start", "", "X-Auth-Token", admin); a.status != 200 {
			return fmt.Errorf("hook: %d", a.status)
		}
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "data: ") {
				return nil
			}
		}
		return fmt.Errorf("no event came")
	})
	ids, data, gaps := s.follow(admin, "?tag=salt/netapi/hook/n/*", "", 3, func() { fire(0, 3) })
	if gaps != 0 || !has(data, 0, 3) {
		t.Fatalf("%v, %d gaps", data, gaps)
	}
	fire(3, 10) // while no client follows
	resumed, data, gaps := s.follow(admin, "?tag=salt/netapi/hook/n/*", ids[1], 8, nil)
	if gaps != 0 || resumed[0] != ids[2] || !has(data[1:], 3, 10) {
		t.Errorf("resumed: %v %v, %d gaps", resumed, data, gaps)
	}
	_, data, _ = s.follow(admin, "?tag=*/n/4&tag=*/n/6&last_event_id="+ids[0], "", 2, nil)
	if !has(data, 4, 5) || !has(data, 6, 7) {
		t.Errorf("two tags: %v", data)
	}
	for _, last := range []string{"0123456789ab-4", ids[0] + "000", "x", strings.Repeat("9", 400)} {
		if _, _, gaps := s.follow(admin, "?tag=salt/netapi/hook/n/*", last, 1, func() { fire(20, 21) }); gaps != 1 {
			t.Errorf("after %.20q: %d gaps", last, gaps)
		}
	}
	// More events than are kept.
	fire(30, 31)
	big := strings.Repeat("x", 100<<10)
	for range 30 {
		s.do("POST", "/hook/big", big, "X-Auth-Token", admin, "Content-Type", "text/plain")
	}
	fire(31, 32)
	if _, data, gaps := s.follow(admin, "?tag=salt/netapi/hook/n/*", ids[0], 1, nil); gaps != 1 || !strings.Contains(data[0], "n/31") {
		t.Errorf("after too many: %v, %d gaps", data, gaps)
	}
}
