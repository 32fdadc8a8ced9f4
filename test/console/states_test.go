package console

import (
	"os"
	"path/filepath"
	"strings"

	"brine/test/daemontest"
)

// lastStates looks at the pages about states, orchestrations, files and schedules, on the fleet of
// TestJobs: alpha and beta run, and have applied web.sls, where one state fails.
func (s *stage) lastStates(roots string) {
	s.t.Helper()
	target := filepath.Join(roots, "target")
	for name, text := range map[string]string{
		"target":   "port: 80\nuser: www\n",
		"conf.sls": target + ":\n  file.managed:\n    - contents: |\n        port: 8080\n        user: www\n",
		"orch.sls": "step one: {salt.function: [{name: test.ping}, {tgt: 'alpha,beta'}, {tgt_type: list}]}\n" +
			"step two: {test.succeed_with_changes: []}\n",
		"top.sls": "base: {'*': [secrets]}\n",
		"secrets.sls": "role: web\ndb_password: hunter2\n" +
			"schedule: {nightly: {function: test.ping, seconds: 86400, splay: 10}}\n",
		"chain.sls": "third: {test.succeed_without_changes: [{require: [{test: second}]}]}\nsecond: {test.succeed_without_changes: [{require: [{test: cause}]}]}\n" +
			"cause: {test.fail_without_changes: []}\nother: {test.succeed_without_changes: []}\n",
		"page.html": "<script>window.owned=1</script>\n",
	} {
		if err := os.WriteFile(filepath.Join(roots, name), []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	if _, err := s.master.SaltJSON(daemontest.Brine, "alpha,beta", "-L", "saltutil.refresh_pillar", "wait=True"); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.master.SaltJSON(daemontest.Brine, "alpha,beta", "-L", "state.apply", "conf", "test=True"); err != nil {
		s.t.Fatal(err)
	}
	s.page("#/states")
	s.until("what failed, and what would change", `document.querySelector("details[data-state=broken]") && document.querySelector(".lines del")`)
	s.until("the difference of the file", `document.querySelector(".lines del").textContent.trim() === "-port: 80" &&
		document.querySelector(".lines ins").textContent.trim() === "+port: 8080"`)
	s.sees("2 would change file.managed: " + target)
	s.click("#split")
	s.until("side by side", `[...document.querySelectorAll(".split td")].some((c) => c.textContent === "port: 8080")`)
	s.picture("drift")
	s.set("#f-outcome", "drift")
	s.until("only drift", `!document.querySelector("details[data-state=broken]") && document.querySelectorAll("details.state").length === 1`)

	// The same run with another file: what is different in the change.
	conf := strings.ReplaceAll(target+":\n  file.managed:\n    - contents: |\n        port: 8080\n        user: www\n", "8080", "9090")
	if err := os.WriteFile(filepath.Join(roots, "conf.sls"), []byte(conf), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.master.SaltJSON(daemontest.Brine, "alpha,beta", "-L", "state.apply", "conf", "test=True"); err != nil {
		s.t.Fatal(err)
	}
	s.page("#/overview")
	s.until("minions whose states failed", `
		document.querySelector("a[href='#/minions?severity=failed']").closest(".card").querySelector(".figure").textContent === "2"`)
	s.page("#/states")
	s.click("#compare-runs summary")
	s.until("an earlier run is offered", `!document.querySelector("#compare").disabled`)
	s.click("#compare")
	s.sees("0 of 2 minions gave the same result.")
	s.until("the difference of the changes", `document.querySelectorAll(".difference").length === 1 &&
		document.querySelector(".difference del").textContent === "8080" && document.querySelector(".difference ins").textContent === "9090"`)
	s.picture("compare")
	s.until("earlier jobs are offered", `document.querySelectorAll("#against option").length > 1`)
	s.page("#/minions?severity=failed")
	s.lists("alpha", "beta")
	s.click("#same summary")
	s.sees("salt-run fleet.minions severity=failed offset=0 limit=200")
	s.sees("--data-urlencode client=runner --data-urlencode fun=fleet.minions --data-urlencode severity=failed")
	s.page("#/minions/alpha")
	s.until("another page closes it", `!document.querySelector("#same").open`)
	s.sees("would change file.managed: " + target)
	s.sees("test.fail_without_changes: broken")

	s.click("a[href='#/history/alpha']")
	s.until("the runs of the minion", `document.querySelectorAll("tr[data-jid]").length >= 3 && document.querySelectorAll("#durations rect").length >= 3`)
	s.set("#f-outcome", "drift")
	s.until("only drift", `document.querySelectorAll("tr[data-outcome=drift]").length === 2 && document.querySelectorAll("tr[data-jid]").length === 2`)
	s.page("#/history")
	s.until("the runs of the day", `document.querySelector("#days rect.failed") && document.querySelector("#days rect.drift") &&
		document.querySelectorAll("tr[data-day]").length > 0`)
	s.sees("4 would change")
	s.picture("history")
	s.click("tr[data-day] a.failed")
	s.until("the runs that failed", `document.querySelectorAll("tr[data-outcome=failed]").length >= 2 && !document.querySelector("tr[data-outcome=drift]")`)
	s.click("tr[data-jid] a[href='#/history/alpha']")
	s.sees("Runs of states of alpha")

	// Why states did not run: what failed first, and below it what it has stopped.
	s.page("#/run?tgt=alpha&fun=state.apply")
	s.set("#args", "chain")
	s.click("#start")
	s.sees("1 of 1 minions returned, 1 failed")
	s.until("the cause and what it stops", `(() => {
		const all = [...document.querySelectorAll(".states > details")], first = all[0];
		return all.length === 4 && first.open && first.querySelector("summary").textContent.includes("cause") &&
			[...first.querySelectorAll(".stops > ul > li")].map((l) => l.firstChild.textContent).join("|") === "test.succeed_without_changes: second" &&
			[...first.querySelectorAll(".stops ul ul > li")].map((l) => l.firstChild.textContent).join("|") === "test.succeed_without_changes: third" &&
			all[1].querySelector(".status").textContent === "✗ did not run" && !all[1].open;
	})()`)
	s.picture("chain")

	s.page("#/orchestrations")
	s.set("#mods", "orch")
	s.click("#start")
	s.until("its steps", `document.querySelectorAll("tr[data-step]").length === 2 && document.querySelector("#return")`)
	s.sees("step one (test.ping)")
	s.picture("orchestration")
	// It is there when the page is opened later.
	s.Run(nil, `location.reload();`)
	s.until("its steps of the job cache", `document.querySelectorAll("tr[data-step]").length === 2 && document.querySelector("#return") &&
		document.querySelector("#list h2").textContent.includes("done")`)
	s.sees("step one (test.ping)")
	s.page("#/orchestrations")
	s.until("it is in the list", `document.querySelector("tr[data-jid]").innerText.includes("done") &&
		document.querySelector("tr[data-jid]").innerText.includes("runner.state.orchestrate")`)
	s.page("#/orchestrations/20200101000000000000")
	s.sees("there is no job")
	if s.text(`document.querySelector("nav a[data-page=files]")`) == "null" {
		s.t.Fatal("the page of files is not offered")
	}
	s.page("#/files")
	s.click("tr[data-path='page.html'] button")
	s.until("the file is text", `document.querySelector("#content").textContent.includes("<script>window.owned=1</script>")`)
	s.set("#p-minion", "alpha")
	s.click("#show-pillar")
	s.sees("role: web")
	if body := s.text("document.body.innerText"); strings.Contains(body, "hunter2") {
		s.t.Error("a password of the pillar is shown unasked")
	}
	s.click(".masked")
	s.sees("hunter2")
	s.picture("files")
	s.page("#/schedules")
	s.until("the schedule", `document.querySelectorAll("tr[data-name=nightly]").length === 2`)
	s.click("tr[data-minion=alpha] .now")
	s.click("dialog .confirm")
	s.until("its job", `location.hash.startsWith("#/jobs/")`)
	if got := s.text(`window.owned`); got != "undefined" {
		s.t.Error("a script of a file has run")
	}
}
