package runners

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/store/cache"
)

// text runs a runner and returns its return, formatted as Python does.
func (h *house) text(line string) string {
	h.t.Helper()
	return value.Repr(h.call(line).Return)
}

func TestFleetTopology(t *testing.T) {
	h := newHouse(t)
	now := time.Now()
	h.standing = map[string]Standing{
		"alpha": {Mode: "failover", At: now, Masters: []StandingMaster{
			{Master: "one", State: "connected", Here: true}, {Master: "two", State: "standby"}, {Master: "three", State: "refused"}},
			Last: &StandingChange{To: "one", Reason: "first connection", At: now}},
		"gamma": {Mode: "failover", At: now, Masters: []StandingMaster{{Master: "one", State: "standby", Here: true}, {Master: "two", State: "connected"}},
			Last: &StandingChange{From: "one", To: "two", Reason: "closed", At: now}},
	}
	want := `'here': 'vm_master', 'keys_waiting': 0, 'masters': [` +
		`{'id': 'three', 'state': 'down', 'here': False, 'problem': 'refused', 'minions': 0, 'names': ['three']}, ` +
		`{'id': 'two', 'state': 'up', 'here': False, 'minions': 1, 'names': ['two']}, ` +
		`{'id': 'vm_master', 'state': 'up', 'here': True, 'version': '` + salt.BrineVersion + `', 'since': 'WHEN', 'minions': 2, 'names': ['one']}], 'minions': {` +
		`'alpha': {'state': 'up', 'by': ['vm_master'], 'standby': ['two']}, ` +
		`'beta': {'state': 'up', 'by': ['vm_master']}, ` +
		`'gamma': {'state': 'elsewhere', 'by': ['two'], 'standby': ['vm_master']}}}`
	got := regexp.MustCompile(`'since': '[^']+'`).ReplaceAllString(h.text("fleet.topology"), "'since': 'WHEN'")
	if !strings.HasSuffix(got, want) {
		t.Errorf("%s, want\n%s", got, want)
	}
	revision := strings.Split(got, "'")[3]
	if got := h.text("fleet.topology since=" + revision); got != "{'revision': '"+revision+"'}" {
		t.Errorf("unchanged: %s", got)
	}
	for line, want := range map[string]string{
		"fleet.minions search=ALP": `{'accepted': 3, 'matched': 1, 'offset': 0, 'rows': [{'id': 'alpha', ` +
			`'state': 'up', 'by': ['vm_master'], 'standby': ['two']`,
		"fleet.minions state=elsewhere":  `{'accepted': 3, 'matched': 1, 'offset': 0, 'rows': [{'id': 'gamma'`,
		"fleet.minions master=two":       `{'accepted': 3, 'matched': 1, 'offset': 0, 'rows': [{'id': 'gamma'`,
		"fleet.minions offset=2 limit=5": `{'accepted': 3, 'matched': 3, 'offset': 2, 'rows': [{'id': 'gamma'`,
		"fleet.minions offset=9":         `{'accepted': 3, 'matched': 3, 'offset': 3, 'rows': [], `,
		"fleet.minions version=1":        `{'accepted': 3, 'matched': 0, 'offset': 0, 'rows': [], `,
		"fleet.minion gamma": `{'id': 'gamma', 'state': 'elsewhere', 'by': ['two'], ` +
			`'standby': ['vm_master'], 'changed': {'from': 'one', 'to': 'two', 'reason': 'closed'`,
		"fleet.moves":         `{'matched': 1, 'offset': 0, 'rows': [{'id': 'gamma', 'from': 'one', 'to': 'two', 'reason': 'closed'`,
		"fleet.minion delta":  `Exception occurred in runner fleet.minion: there is no accepted minion "delta`,
		"fleet.preview alpha": `{'matched': 1, 'unknown': 0, 'states': {'up': 1}, 'masters': {'vm_master': 1}, 'ids': ['alpha']}`,
		"fleet.preview 'alpha,gamma' list": `{'matched': 2, 'unknown': 0, 'states': {'elsewhere': 1, 'up': 1}, ` +
			`'masters': {'two': 1, 'vm_master': 1}, 'ids': ['alpha', 'gamma']}`,
		"fleet.preview 'id:gamma' grain": `{'matched': 1, 'unknown': 1, 'states': {'elsewhere': 1}`, // its grains are unknown
		"fleet.preview 'id:alpha' grain": `{'matched': 2, 'unknown': 1, `,
		"fleet.preview nosuch":           `{'matched': 0, 'unknown': 0, 'states': {}, 'masters': {}, 'ids': []}`,
		"fleet.preview '(alpha or beta)' compound": `Exception occurred in runner fleet.preview: a parenthesis needs a blank ` +
			`on both sides, and "(alpha" has none`,
	} {
		if got := strings.Trim(h.text(line), `'"`); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want\n%s", line, got, want)
		}
	}
	if got := h.text("fleet.minions"); !strings.Contains(got, `'counts': {'master': `+
		`{'vm_master': 2, 'two': 1}, 'os': {'': 3}, 'severity': {'unknown': 3}, 'state': {'up': 2, 'elsewhere': 1}`) {
		t.Error(got)
	}
}

// TestFleetOfManyFailures checks that a page of jobs reads a bounded number of
// returns.
func TestFleetOfManyFailures(t *testing.T) {
	h := newHouse(t)
	h.addPing()
	ids := make([]string, maxJudged)
	returns := map[string]*value.Dict{}
	for i := range ids {
		ids[i] = fmt.Sprintf("m%d", i)
		returns[ids[i]] = value.DictOf("return", false, "retcode", 1)
	}
	const jobs = maxJudgedAll/maxJudged + 2
	for i := range jobs {
		h.add(fmt.Sprintf("202611210700000000%02d", i), "test.false", "*", "glob", ids, nil, returns)
	}
	got := h.text("fleet.jobs")
	if n := strings.Count(got, fmt.Sprintf("'failed': %d", maxJudged)); n != maxJudgedAll/maxJudged || strings.Count(got, "'jid'") != jobs+1 {
		t.Errorf("the failures of %d jobs of %d are counted", n, strings.Count(got, "'jid'"))
	}
}

// TestFleetOldReport covers a minion that is not connected here and reported another
// master some time ago: it may be switched off by now.
func TestFleetOldReport(t *testing.T) {
	h := newHouse(t)
	h.standing = map[string]Standing{"gamma": {At: time.Now().Add(-2 * elsewhereAge), Masters: []StandingMaster{{Master: "two", State: "connected"}}}}
	if got := h.text("fleet.topology"); !strings.Contains(got, `'gamma': {'state': 'down', 'by': []}`) {
		t.Error(got)
	}
}

func TestFleetJobs(t *testing.T) {
	h := newHouse(t)
	h.addPing()
	const jid2, jid3 = "20261121050000000000", "20261121060000000000"
	states := value.DictOf("file_|-a_|-/a_|-managed", value.DictOf("result", true, "changes", value.DictOf("diff", "x")),
		"file_|-b_|-/b_|-managed", value.DictOf("result", false, "changes", value.NewDict(0)))
	h.add(jid2, "state.apply", "*", "glob", []string{"alpha", "beta", "gamma"}, nil, map[string]*value.Dict{
		"alpha": value.DictOf("return", states, "retcode", 0, "success", true), "beta": value.DictOf("return", strings.Repeat("x", maxResult+1), "retcode", 1)})
	h.add(jid3, "saltutil.find_job", "*", "glob", []string{"alpha"}, nil, nil)
	if got := h.text("fleet.jobs"); !strings.Contains(got, "'minions': 3, 'returned': 2, 'failed': 2}") || strings.Contains(got, "find_job") ||
		!strings.HasSuffix(got, "'more': False}") || strings.Index(got, jid2) > strings.Index(got, jid1) {
		t.Error(got)
	}
	for line, want := range map[string]string{
		"fleet.jobs fun='state.*'":    jid2,
		"fleet.jobs minion=gamma":     jid2,
		"fleet.jobs before=" + jid2:   jid1,
		"fleet.jobs all=True limit=1": jid3,
	} {
		if got := h.text(line); strings.Count(got, "'jid'") != 1 || !strings.Contains(got, want) {
			t.Errorf("%s: %s", line, got)
		}
	}
	if got := h.text("fleet.jobs limit=1"); !strings.HasSuffix(got, "'more': True}") {
		t.Error(got)
	}
	got := h.text("fleet.job " + jid2)
	for _, want := range []string{"'minions': ['alpha', 'beta', 'gamma']", "'states': {'ok': 0, 'changed': 1, 'failed': 1, 'unknown': 0}", "'cut': True"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	if len(got) > maxResult {
		t.Errorf("%d bytes", len(got))
	}
	if got := h.text("fleet.result " + jid2 + " beta"); len(got) < maxResult || !strings.Contains(got, "'failed': True") {
		t.Errorf("%.200s", got)
	}
	for _, line := range []string{"fleet.result " + jid2 + " gamma", "fleet.job 20200101000000000000"} {
		if got := h.text(line); !strings.Contains(got, "Exception occurred") {
			t.Errorf("%s: %s", line, got)
		}
	}
}

// TestFleetOfManyResults checks that the answer for a job is bounded for any number
// and size of returns.
func TestFleetOfManyResults(t *testing.T) {
	h := newHouse(t)
	ids, returns := []string{}, map[string]*value.Dict{}
	for i := range 300 {
		id := fmt.Sprintf("w%03d", i)
		ids = append(ids, id)
		returns[id] = value.DictOf("return", strings.Repeat("x", maxResult-10), "retcode", 0)
	}
	h.add("20261121070000000000", "cmd.run", "*", "glob", ids, nil, returns)
	got := h.text("fleet.job 20261121070000000000")
	if len(got) > maxResults+len(ids)*200 || strings.Count(got, "'failed': False") != len(ids)+1 || !strings.Contains(got, "'cut': True") {
		t.Errorf("%d bytes, %d results", len(got), strings.Count(got, "'failed': False"))
	}
}

func TestFleetGrains(t *testing.T) {
	h := newHouse(t)
	grains := value.DictOf("id", "alpha", "os", "Debian", "osrelease", "12", "saltversion", "3007.10", "brine_version", "0.1.0")
	if err := h.deps.Cache.StoreMinion("alpha", cache.Minion{Grains: grains}); err != nil {
		t.Fatal(err)
	}
	if got := h.text("fleet.minions search=debian"); !strings.Contains(got, "'os': 'Debian 12', 'version': '3007.10', 'brine': '0.1.0', 'severity': 'unknown'}") {
		t.Error(got)
	}
	if got := h.text("fleet.minion alpha"); !strings.Contains(got, "'grains': {'id': 'alpha', 'os': 'Debian'") {
		t.Error(got)
	}
}

// TestFleetStates puts the last runs of minions together.
func TestFleetStates(t *testing.T) {
	h := newHouse(t)
	now := time.Now()
	run := func(id, fun string, args *value.List, states *value.Dict) {
		h.states.Returned(id, salt.NewJID(now), fun, args, value.DictOf("return", states, "retcode", int64(0)), now)
	}
	state := func(id string, result any, changes *value.Dict, ms float64) *value.Dict {
		return value.DictOf("result", result, "changes", changes, "comment", "of "+id, "__id__", id, "__sls__", "web", "duration", ms)
	}
	test := value.ListOf(value.DictOf("__kwarg__", true, "test", true))
	for _, id := range []string{"alpha", "beta"} {
		run(id, "state.apply", test, value.DictOf("file_|-/etc/motd_|-/etc/motd_|-managed",
			state("/etc/motd", nil, value.DictOf("diff", "-a\n+b\n"), 3), "pkg_|-nginx_|-nginx_|-installed",
			state("nginx", nil, value.DictOf("nginx", value.DictOf("old", "1", "new", "2 on "+id)), 9)))
	}
	run("beta", "state.highstate", nil, value.DictOf("service_|-nginx_|-nginx_|-running", state("nginx", false, value.NewDict(0), 40)))
	for line, want := range map[string]string{
		"fleet.minions severity=failed": `{'accepted': 3, 'matched': 1, 'offset': 0, 'rows': [{'id': 'beta', `,
		"fleet.minions severity=drift":  `{'accepted': 3, 'matched': 1, 'offset': 0, 'rows': [{'id': 'alpha', `,
		"fleet.minions severity=odd":    `Exception occurred in runner fleet.minions: severity must be one of failed, not_returned, drift`,
		"fleet.states": `{'minions': 3, 'severities': {'drift': 1, 'failed': 1, 'unknown': 1}, 'matched': 3, 'offset': 0, 'rows': [` +
			`{'state': 'nginx', 'fun': 'service.running', 'sls': 'web', 'failed': 1, 'drift': 0, 'changed': 0, 'groups': [{'outcome': 'failed', 'change': '`,
		"fleet.states outcome=changed": `{'minions': 3, 'severities': {'drift': 1, 'failed': 1, 'unknown': 1}, 'matched': 0, 'offset': 0, 'rows': [], 'slowest': [` +
			`{'state': 'nginx', 'fun': 'service.running', 'sls': 'web', 'ms': 40.0, 'mean_ms': 40.0, 'count': 1, 'minion': 'beta'}`,
		"fleet.states minion=gamma":                     `{'minions': 1, 'severities': {'unknown': 1}, 'matched': 0, `,
		"fleet.states outcome=ok":                       `Exception occurred in runner fleet.states: outcome must be`,
		"fleet.change ff":                               `Exception occurred in runner fleet.change: change must be 32`,
		"fleet.change ffffffffffffffffffffffffffffffff": `Exception occurred in runner fleet.change: no minion has the change`,
	} {
		if got := strings.Trim(h.text(line), `'"`); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want\n%s", line, got, want)
		}
	}
	// A state that fails again in a later test counts once, as it was applied.
	run("beta", "state.highstate", test, value.DictOf("service_|-nginx_|-nginx_|-running",
		value.DictOf("result", false, "changes", value.NewDict(0), "comment", "of the test", "__id__", "nginx", "__sls__", "web", "duration", 1.0)))
	if got := h.text("fleet.states search=service"); !strings.Contains(got, `'failed': 1, 'drift': 0, 'changed': 0, 'groups': [{'outcome': 'failed'`) ||
		!strings.Contains(got, `'count': 1, 'minions': ['beta']`) || !strings.Contains(got, "of nginx") || strings.Contains(got, "of the test") {
		t.Errorf("a state that failed twice: %s", got)
	}
	// After beta is repaired, both have the same change of one state, and different ones of the other.
	run("beta", "state.highstate", nil, value.DictOf("service_|-nginx_|-nginx_|-running", state("nginx", true, value.NewDict(0), 40)))
	run("beta", "state.apply", test, value.DictOf("file_|-/etc/motd_|-/etc/motd_|-managed", state("/etc/motd", nil, value.DictOf("diff", "-a\n+b\n"), 3)))
	got := h.call("fleet.states search=motd").Return.(*value.Dict).List("rows")
	groups := got[0].(*value.Dict).List("groups")
	if len(got) != 1 || len(groups) != 1 {
		t.Fatalf("%s", value.Repr(got))
	}
	g := groups[0].(*value.Dict)
	if g.At("count") != int64(2) || g.Dict("changes").Str("diff") != "-a\n+b\n" || g.Str("outcome") != "drift" {
		t.Errorf("group: %s", value.Repr(g))
	}
	if got := h.text("fleet.change " + g.Str("change")); !strings.Contains(got, "'count': 2, 'minions': ['alpha', 'beta'], 'changes': {'diff': ") {
		t.Errorf("one change: %s", got)
	}
	if got := h.text("fleet.minion alpha"); !strings.Contains(got, "'severity': 'drift', 'tested': {'jid': ") ||
		!strings.Contains(got, "'would_change': 2, 'states': [{'state': '/etc/motd', 'fun': 'file.managed', 'sls': 'web', 'outcome': 'drift', 'change': '") {
		t.Errorf("one minion: %s", got)
	}
}

// TestFleetMinion: the page of a minion has its links, moves, key, beacons and mine.
func TestFleetMinion(t *testing.T) {
	h := newHouse(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h.standing = map[string]Standing{"alpha": {Mode: "failover", At: time.Now(), Masters: []StandingMaster{
		{Master: "one", State: "connected", Here: true, Since: at}, {Master: "two", State: "standby", Jobs: true}},
		Moves: []StandingChange{{From: "two", To: "one", Reason: "closed", Seconds: 1.5, At: at}, {To: "two", Reason: "first connection", At: at}}}}
	pillar := value.DictOf("beacons", value.DictOf("enabled", true, "disk", value.ListOf(value.DictOf("interval", 5), value.DictOf("token", "s3cret")),
		"load", value.DictOf("enabled", false)))
	if err := h.deps.Cache.StoreMinion("alpha", cache.Minion{Grains: value.DictOf("id", "alpha"), Pillar: pillar}); err != nil {
		t.Fatal(err)
	}
	entry := value.DictOf("__data__", "b", "__saltmine_acl__", 1, "allow_tgt", "web*")
	mine := value.DictOf("plain.fun", "a", "limited.fun", entry, "large.fun", strings.Repeat("x", maxMineValue))
	if err := h.deps.Cache.Store("minions/alpha", "mine", mine); err != nil {
		t.Fatal(err)
	}
	got := h.text("fleet.minion alpha")
	for _, want := range []string{
		`'since': '2026-03-01T12:00:00Z', 'mode': 'failover'`,
		`'links': [{'master': 'vm_master', 'name': 'one', 'state': 'connected', 'here': True, 'since': '2026-03-01T12:00:00Z'}, ` +
			`{'master': 'two', 'name': 'two', 'state': 'standby', 'here': False, 'jobs': True}]`,
		`'moves': [{'from': 'two', 'to': 'one', 'reason': 'closed', 'seconds': 1.5, 'at': '2026-03-01T12:00:00Z'}, {'from': None, 'to': 'two'`,
		`'key': {'fingerprint': 'finger of alpha'}`,
		`'beacons': [{'name': 'disk', 'source': 'pillar', 'enabled': True, 'interval': 5}, {'name': 'load', 'source': 'pillar', 'enabled': False, ` +
			`'events': 3, 'last': '2026-03-01T12:00:00Z'}, {'name': 'own', 'source': 'events', 'events': 1, 'last': '2026-03-01T12:00:00Z'}]`,
		`'mine': [{'name': 'plain.fun', 'bytes': 3}, {'name': 'limited.fun', 'bytes': 3, 'allow_tgt': 'web*'}, {'name': 'large.fun', 'bytes': 65538}]`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks\n%s", got, want)
		}
	}
	if strings.Contains(got, "s3cret") {
		t.Errorf("the settings of a beacon are shown: %s", got)
	}
	if got, want := h.text("fleet.mine alpha"), `{'id': 'alpha', 'mine': {'plain.fun': 'a', 'limited.fun': 'b'}, 'cut': ['large.fun']}`; got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	for _, line := range []string{"fleet.mine delta", "fleet.minion delta"} {
		if got := h.text(line); !strings.Contains(got, `there is no accepted minion "delta"`) {
			t.Errorf("%s: %s", line, got)
		}
	}
}

// TestFailedRunner: the return of a runner in the job cache is the event of its end.
func TestFailedRunner(t *testing.T) {
	ran := func(success bool) *value.Dict {
		return value.DictOf("return", value.DictOf("fun", "runner.state.orchestrate", "jid", "1", "return", "x", "success", success))
	}
	of := value.DictOf("retcode", int64(0), "return", value.DictOf("fun", "x", "success", false))
	if !Failed(ran(false)) || Failed(ran(true)) || Failed(of) {
		t.Error("what failed and what did not")
	}
}
