package console

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// evilName is a name that a page must show as text.
const evilName = `<img src=x onerror=window.owned=1>`

// TestHostileFleet opens every page of a fleet whose ids, pillars, schedules, files, states and saved records have
// names that mean something to browsers. No page breaks, runs a script, or violates the policy.
func TestHostileFleet(t *testing.T) {
	roots := daemontest.ShortDir(t)
	for name, text := range map[string]string{
		"top.sls": "base: {'*': [evil]}\n",
		"evil.sls": `"` + evilName + `": {"__proto__": {"constructor": "\u202Egpj.exe"}}
"__proto__": "\e[31mred"
"javascript:alert(1)": ["<script>window.owned=1</script>"]
schedule: {"` + evilName + `": {function: "test.ping", seconds: 86400}, "__proto__": {function: "<b>", cron: "* * * * *"}, constructor: {function: test.ping, hours: 5}}
`,
		"bad.sls": `"` + evilName + `": {test.fail_without_changes: [{comment: "<script>window.owned=1</script>"}]}
"__proto__": {test.succeed_with_changes: []}
"javascript:alert(1)": {test.succeed_with_changes: [{name: "\u202Egpj.exe"}]}
constructor: {test.fail_without_changes: []}
`,
		"orch.sls":    `"` + evilName + `": {test.succeed_with_changes: []}` + "\n" + `"__proto__": {test.fail_without_changes: []}` + "\n",
		"__proto__":   "constructor\n",
		"a\u202Eb":    evilName + "\n",
		"long.txt":    strings.Repeat("x", 200_000),
		"huge.txt":    strings.Repeat("x", 10_000_000),
		evilName:      "x\n",
		"constructor": "\x1b]0;title\x07\n",
	} {
		if err := os.WriteFile(filepath.Join(roots, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ids := []string{"__proto__", "constructor"}
	s := start(t, "approval_above: 1\nfile_roots: {base: ["+roots+"]}\npillar_roots: {base: ["+roots+"]}\n", ids...)
	if _, err := s.master.SaltJSON(daemontest.Brine, "*", "saltutil.refresh_pillar", "wait=True"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.master.Run(daemontest.Brine, "salt", "*", "state.apply", "bad")
	}
	s.enter()
	s.Run(nil, `window.violations = [];
		document.addEventListener("securitypolicyviolation", (e) => window.violations.push(e.violatedDirective + " " + e.blockedURI));`)
	// Records, a job that waits, and events.
	var statuses []int
	s.Run(&statuses, `const csrf = (await (await fetch("me")).json()).csrf;
		const post = async (path, body) => (await fetch(path, {method: "POST", headers: {"Content-Type": "application/json", "X-Csrf-Token": csrf}, body: JSON.stringify(body)})).status;
		const out = [];
		for (const name of [args[0], "__proto__", "constructor", "\u202egpj", "javascript:alert(1)"]) {
			out.push(await post("../v1/saved", {kind: "target", name, public: true, data: {tgt: name, tgt_type: "__proto__"}}));
			out.push(await post("../v1/saved", {kind: "schedule", name, public: true, data: {tgt: name, tgt_type: "__proto__", schedule: JSON.parse(
				'{"function": "test.echo", "args": ["<img src=x onerror=window.owned=1>", "\\u202egpj"], "kwargs": {"__proto__": "<b>", "constructor": 1}, "hours": 5, "toString": "x"}')}}));
			out.push(await post("../v1/saved", {kind: "view", name, public: true, data: {page: "minions", query: "search=" + name, columns: "constructor"}}));
		}
		out.push(await post("../v1/jobs", {tgt: "*", fun: "test.echo", arg: [args[0]], kwarg: JSON.parse('{"__proto__": "\\u001b[31m", "constructor": 1}')}));
		out.push(await post("../hook/" + encodeURIComponent(args[0]) + "/__proto__", JSON.parse('{"__proto__": {"toString": 1}, "minions": 5, "fun": {"x": 1}}')));
		return out;`, evilName)
	for i, st := range statuses {
		if st != 200 && st != 201 {
			t.Errorf("request %d: status %d", i, st)
		}
	}

	job := func() (jid string) {
		eventually.Nil(t, time.Minute, "the job is listed", func() error {
			s.Run(&jid, `return (await (await fetch("../v1/jobs?fun=state.apply")).json()).rows[0].jid;`)
			return nil
		})
		return jid
	}()
	pages := []struct{ hash, sees string }{
		{"#/overview", "Masters and their minions"}, {"#/minions", "__proto__"}, {"#/minions/__proto__", "test.fail_without_changes: " + evilName},
		{"#/minions/constructor", "javascript:alert(1)"}, {"#/keys", "constructor"}, {"#/jobs", "state.apply"}, {"#/jobs/" + job, evilName},
		{"#/run?tgt=__proto__&tgt_type=constructor&fun=__proto__", "1 minion matches"}, {"#/states", evilName},
		{"#/orchestrations", "No orchestration is in the job cache"},
		{"#/history", "4 failed"}, {"#/history/__proto__", "✗ 2 failed"},
		{"#/history?day=" + time.Now().UTC().Format(time.DateOnly), "constructor"},
		{"#/history?days=constructor&outcome=__proto__", "4 failed"}, {"#/history/%3Cimg%20src=x%3E", "Runs of states of <img src=x>"},
		{"#/history?day=%3Cimg%20src=x%3E", "day must be a date"},
		{"#/schedules", evilName}, {"#/files", evilName}, {"#/approvals", evilName}, {"#/events", "Pattern"}, {"#/access", "Sessions"}, {"#/audit", "state.apply"},
		{"#/settings", "jobs and results"}, {"#/constructor", "Masters and their minions"}, {"#/__proto__/x", "Masters and their minions"},
		{"#/jobs/%ED%A0%80", "there is no job"}, {"#/minions?search=%E2%80%AE%00&state=__proto__&master=constructor", "0 of 2 minions"},
		{"#/jobs/" + job + "?against=__proto__", "there is no job"},
	}
	for _, p := range pages {
		s.page(p.hash)
		s.sees(p.sees)
		if got := s.text(`[window.owned, document.querySelectorAll("main img, main script, main b, main i").length,
			document.querySelectorAll("nav a").length].map(String).join(" ")`); got != "undefined 0 15" {
			t.Errorf("%s: %s", p.hash, got)
		}
	}

	// What the pages do with such names still works.
	s.page("#/run")
	s.until("the targets", `document.querySelectorAll("#saved-target option").length === 6`)
	for i := range 5 {
		s.Run(nil, `const e = document.querySelector("#saved-target"); e.selectedIndex = args[0]; e.dispatchEvent(new Event("change", {bubbles: true}));`, i+1)
		s.until("the target is taken", `document.querySelector("#saved-target").selectedOptions[0].textContent.replace(", for all", "").slice(0, 5) ===
			(document.querySelector("#tgt").value.replace("\u202e", "\u27e8U+202E\u27e9")).slice(0, 5) && document.querySelector("#tgt_type").value === "glob"`)
	}
	s.page("#/files")
	for _, f := range []struct{ path, sees string }{
		{evilName, "salt://" + evilName}, {"__proto__", "constructor"}, {"constructor", "␛]0;title"}, {"long.txt", "more characters"},
		{"huge.txt", "larger than the console shows"},
	} {
		s.until(f.path+" is listed", `[...document.querySelectorAll("tr[data-path]")].some((r) => r.dataset.path === args[0])`, f.path)
		s.Run(nil, `[...document.querySelectorAll("tr[data-path]")].find((r) => r.dataset.path === args[0]).querySelector("button").click();`, f.path)
		s.sees(f.sees)
	}
	s.set("#p-minion", "__proto__")
	s.click("#show-pillar")
	s.sees("javascript:alert(1)")
	s.sees("⟨U+202E⟩gpj.exe")
	s.page("#/orchestrations")
	s.set("#mods", "orch")
	s.click("#start")
	s.sees(evilName)
	s.page("#/approvals")
	s.click("button.reject")
	s.click("dialog .confirm")
	s.sees("rejected by admin")
	s.picture("hostile-fleet")

	if got := s.text(`window.owned + JSON.stringify(window.violations)`); got != "undefined[]" {
		t.Errorf("scripts that ran, and violations: %s", got)
	}
	s.clean("401", "404", "400", "429") // the requests of this test come fast
	// A violation would have been seen.
	s.Run(nil, `const e = document.createElement("img"); e.src = "http://127.0.0.1:1/x"; document.body.append(e);`)
	s.until("a violation is reported", `window.violations.some((v) => v.startsWith("img-src "))`)
}
