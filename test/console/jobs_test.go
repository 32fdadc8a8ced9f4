package console

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestJobs: a job is started with the form, and its results appear as they arrive.
func TestJobs(t *testing.T) {
	roots := daemontest.ShortDir(t)
	sls := `first: {test.succeed_without_changes: []}
broken: {test.fail_without_changes: []}
changed: {test.succeed_with_changes: []}
`
	if err := os.WriteFile(filepath.Join(roots, "web.sls"), []byte(sls), 0o644); err != nil {
		t.Fatal(err)
	}
	s := start(t, "file_roots: {base: ["+roots+"]}\npillar_roots: {base: ["+roots+"]}\n", "alpha", "beta")
	gone := daemontest.NewMinion(t, daemontest.Brine, "gone", []string{s.master.Host}, "").Start()
	eventually.Nil(t, time.Minute, "the minion answers", func() error { return s.master.PingOnly(daemontest.Brine, "gone") })
	gone.Kill()
	s.enter()

	// The form shows how many minions match, and the arguments of a function.
	s.page("#/run")
	s.sees("3 minions match")
	s.set("#tgt", "alp*")
	s.sees("1 minion matches: 1 up. alpha")
	s.set("#fun", "test.arg")
	s.until("functions are offered", `[...document.querySelectorAll("#functions option")].some((o) => o.value === "test.arg")`)
	s.set("#fun", "test.echo")
	s.sees("test.echo text")
	s.set("#fun", "test.arg")
	s.set("#args", `1 two 'thr ee' a=4`)
	s.sees(`salt 'alp*' test.arg 1 two 'thr ee' a=4`)
	s.picture("run")
	s.set("#batch", "1")
	s.sees(`salt -b 1 'alp*' test.arg 1 two 'thr ee' a=4`)
	s.set("#batch", "")

	// The builder and the text field are the same target.
	s.click("#builder summary")
	s.set("#b-kind", "grain")
	s.set("#b-value", "os:Debian")
	s.click("#b-add")
	s.click("#builder [data-operator=or]")
	s.set("#b-kind", "list")
	s.set("#b-value", "beta, gone")
	s.click("#b-add")
	s.until("the target", `document.querySelector("#tgt").value === "alp* and G@os:Debian or L@beta,gone" &&
		document.querySelector("#tgt_type").value === "compound"`)
	s.set("#tgt", "alp* or ( beta )")
	s.until("the chips", `[...document.querySelectorAll("#chips button")].map((b) => b.firstChild.textContent).join("|") === "alp*|or|(|beta|)"`)
	s.sees("2 minions match")
	s.click("#chips button:nth-child(4)")
	s.until("what is left", `document.querySelector("#tgt").value === "alp*" && document.querySelector("#tgt_type").value === "glob"`)
	s.picture("builder")
	s.click("#start")
	s.sees("1 of 1 minions returned")
	s.until("the arguments are those of a command line", `document.querySelector("#results").textContent.replace(/\s/g, "").includes("args:-1-two-three")`)
	s.set("#f-only", "failed")
	s.until("no failure", `document.querySelectorAll("#results tr[data-id]").length === 0`)

	// In batches: the second minion gets the job after the first one.
	s.page("#/run?tgt=alpha,beta&tgt_type=list&fun=test.ping&batch=1")
	s.click("#start")
	s.sees("2 of 2 minions returned")

	// A wrong target, and quotes that are not closed.
	s.page("#/run?tgt=nosuch&fun=test.ping")
	s.sees("0 minions match.")
	s.click("#start")
	s.sees("No minion matches the target.")
	s.set("#args", `'open`)
	s.click("#start")
	s.sees("A quote in the arguments is not closed.")

	// States: failures first.
	s.page("#/run?tgt=alpha,beta&tgt_type=list&fun=state.apply")
	s.set("#args", "web")
	s.click("#start")
	s.sees("2 of 2 minions returned, 2 failed")
	s.until("the summary of each minion", `document.querySelectorAll("#results .status.failed").length >= 2`)
	s.sees("1 failed, 1 changed, 1 in order")
	var kinds []string
	s.json(&kinds, `[...document.querySelectorAll("tr[data-id=alpha] .states > details")].map((d) => d.className)`)
	if got := strings.Join(kinds, " "); got != "state-failed state-changed state-ok" {
		t.Errorf("states are shown as %s", got)
	}
	s.sees("test.fail_without_changes: broken")
	s.picture("states")

	var saved string
	s.Run(&saved, `let text = null;
		const real = URL.createObjectURL;
		URL.createObjectURL = (b) => { text = b.text(); return real(b); };
		document.querySelector("#save-json").click();
		URL.createObjectURL = real;
		return await text;`)
	var returns map[string]map[string]struct{ Comment string }
	if err := json.Unmarshal([]byte(saved), &returns); err != nil || len(returns) != 2 || len(returns["alpha"]) != 3 {
		t.Errorf("saved returns: %v %.500s", err, saved)
	}

	// Again on those that failed, with the same arguments, which are not in the address.
	s.sees("Run it again on the failed (2)")
	s.click("[data-again=failed]")
	s.until("the form has the job", `document.querySelector("#tgt").value === "alpha,beta" && document.querySelector("#tgt_type").value === "list" &&
		document.querySelector("#fun").value === "state.apply" && document.querySelector("#args").value === "web" && !location.hash.includes("web")`)
	s.Run(nil, `location.reload();`)
	s.until("without the job no target is suggested", `document.querySelector("#tgt") && document.querySelector("#tgt").value === ""`)
	s.Run(nil, `history.back();`)
	s.until("the matrix", `document.querySelector("#matrix summary")`)

	// The same as a matrix, and the difference of returns.
	s.click("#matrix summary")
	var cells []string
	s.json(&cells, `[...document.querySelectorAll("#matrix tr[data-minion=beta] td .hidden-text")].map((e) => e.textContent)`)
	if got := strings.Join(cells, ","); got != "in order,failed,changed" {
		t.Errorf("matrix: %s", got)
	}
	s.sees("test.fail_without_changes: broken ✗ 2 failed")
	s.picture("matrix")

	// Results appear while the page still waits for a minion that does not answer.
	s.page("#/run?tgt=*&fun=test.ping")
	s.click("#start")
	s.sees("2 of 3 minions returned")
	s.until("the dead one is told of", `document.querySelector("tr[data-id=gone] .status").textContent.includes("no return yet")`)

	// A job is killed where it has not returned.
	s.page("#/run?tgt=alpha,beta&tgt_type=list&fun=test.sleep")
	s.set("#args", "600")
	s.click("#start")
	s.until("two minions wait", `document.querySelector("[data-again=missing]").textContent.includes("(2)")`)
	eventually.Nil(t, time.Minute, "the job runs on both", func() error {
		out, _, err := s.master.Run(daemontest.Brine, "salt", "-L", "alpha,beta", "saltutil.is_running", "test.sleep", "--out=json", "--static")
		if strings.Count(out, `"test.sleep"`) != 2 {
			return fmt.Errorf("%s %v", out, err)
		}
		return nil
	})
	s.click("#kill")
	s.sees("This kills the job on 2 minions without a return.")
	s.click("dialog .confirm")
	s.sees("The minions are asked to kill it")
	s.click("#acts + p a")
	s.sees("2 of 2 minions returned")
	eventually.Nil(t, time.Minute, "the job is killed", func() error {
		out, _, err := s.master.Run(daemontest.Brine, "salt", "-L", "alpha,beta", "saltutil.is_running", "test.sleep", "--out=json", "--static")
		if !strings.Contains(out, "alpha") || !strings.Contains(out, "beta") || strings.Contains(out, "test.sleep") {
			return fmt.Errorf("%s %v", out, err)
		}
		return nil
	})

	// A dry run, its command lines, and many minions.
	s.page("#/run?tgt=alpha&fun=state.apply")
	s.set("#args", "web")
	s.sees("--data-urlencode tgt=alpha --data-urlencode tgt_type=glob --data-urlencode fun=state.apply --data-urlencode arg=web")
	s.click("#test-first")
	s.sees("1 of 1 minions returned")
	s.sees("1 would change")
	s.page("#/run?tgt=alpha&fun=test.ping")
	s.until("functions without a dry run", `document.querySelector("#test-first").hidden`)

	s.page("#/jobs")
	s.until("the jobs are listed", `document.querySelectorAll("tr[data-jid]").length >= 3`)
	s.sees("2 of 2 failed")
	s.sees("2 of 3 returned")
	s.picture("jobs")
	s.set("#f-fun", "state.*")
	s.until("the filter", `document.querySelectorAll("tr[data-jid]").length === 2`)
	s.click("tr[data-jid]:last-child a")
	s.sees("2 of 2 minions returned, 2 failed")
	s.lastStates(roots)
	s.clean("401", "404")
}

// TestPermissions: the console does for a user only what the master allows.
func TestPermissions(t *testing.T) {
	s := start(t, "", "alpha", "beta")
	s.signIn("limited", "s3cret", "sharedsecret")
	s.sees("Your permissions do not include runner fleet.topology")
	s.page("#/run?tgt=alpha&fun=test.echo")
	s.set("#args", "hello")
	s.click("#start")
	s.sees("1 of 1 minions returned")
	s.sees("hello")
	s.page("#/run?tgt=beta&fun=test.ping")
	s.click("#start")
	s.sees("Authorization error occurred.")
	s.page("#/run?tgt=alpha&fun=cmd.run")
	s.set("#args", "id")
	s.click("#start")
	s.sees("Authorization error occurred.")
	// The job of another user is not shown, not even as an event.
	if _, err := s.master.SaltJSON(daemontest.Brine, "*", "test.version"); err != nil {
		t.Fatal(err)
	}
	s.page("#/jobs")
	s.sees("test.echo")
	s.page("#/events")
	s.sees("You see the events of your own jobs")
	s.until("own events are there", `document.querySelectorAll("tr[data-tag]").length > 0`)
	if body := s.text("document.body.innerText"); strings.Contains(body, "test.version") {
		t.Errorf("it shows the job of another user:\n%s", body)
	}
	var status []int
	s.Run(&status, `const out = [];
		for (const fun of ["topology", "minions", "minion?id=alpha", "jobs", "preview", "functions", "job?jid=1", "result?jid=1&id=alpha"]) out.push((await fetch("look/" + fun)).status);
		return out;`)
	for _, st := range status {
		if st != 401 {
			t.Errorf("the master's data for a user without permission: %v", status)
			break
		}
	}
	s.sees("Events")
	s.click("#sign-out")

	s.signIn("reader", "s3cret", "sharedsecret")
	s.sees("Sign out")
	s.page("#/overview")
	s.held("m1", 2)
	s.page("#/run?tgt=alpha&fun=test.ping")
	s.click("#start")
	s.sees("Authorization error occurred.")
	s.clean("401", "403")
}
