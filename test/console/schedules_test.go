package console

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestSavedSchedules makes a schedule by the keyboard, changes, disables and enables it, gives it to minions, sees its
// runs, and takes it back.
func TestSavedSchedules(t *testing.T) {
	s := start(t, "", "alpha")
	beta := daemontest.NewMinion(t, daemontest.Brine, "beta", []string{s.master.Host}, "").Start()
	// A minion has one with the name of a later one, which has run.
	if out, stderr, code := s.master.Run(daemontest.Brine, "salt", "alpha", "schedule.add", "each second", "function=test.arg", "seconds=1"); code != 0 {
		t.Fatal(out, stderr)
	}
	eventually.Nil(t, time.Minute, "the minion runs it", func() error {
		out, stderr, _ := s.master.Run(daemontest.Brine, "salt-run", "jobs.list_jobs", "search_function=test.arg", "--out=json")
		if !strings.Contains(out, "test.arg") {
			return fmt.Errorf("%s%s", out, stderr)
		}
		return nil
	})
	s.enter()
	s.page("#/schedules")
	s.sees("Nothing is saved.")

	// By the keyboard alone.
	s.Run(nil, `document.querySelector("#s-new").focus();`)
	s.Type("Enter")
	s.until("the form has the focus", `document.activeElement.id === "s-name" && !document.querySelector("#s-form").hidden`)
	s.Type("Escape")
	s.until("Escape closes it", `document.querySelector("#s-form").hidden && document.activeElement.id === "s-new"`)
	s.Type("Enter", "nightly", "Tab", "Tab")
	s.set("#s-tgt", "alpha")
	s.set("#s-fun", "test.arg")
	s.set("#s-args", `'one two' 5 '"7"' text="a b" test=True list='[1, "x"]'`)
	s.set("#s-unit", "cron")
	s.set("#s-time", "61 * * * *")
	s.Run(nil, `document.querySelector("#s-time").focus();`)
	s.Type("Enter")
	s.until("the master refuses it", `document.querySelector("#saved-error").textContent.includes("schedule cannot be saved")`)
	s.set("#s-time", "0 3 * * *")
	s.Type("Enter")
	s.until("it is saved", `document.querySelector("tr[data-saved=nightly]") && document.querySelector("#s-form").hidden`)
	if got := s.text(`document.querySelector("tr[data-saved=nightly]").innerText.replace(/\s+/g, " ")`); !strings.Contains(got, "cron 0 3 * * *") ||
		!strings.Contains(got, "enabled") || !strings.Contains(got, `test.arg 'one two' 5 '"7"' 'text=a b' test=true 'list=[1,"x"]'`) {
		t.Errorf("the row: %s", got)
	}
	if got := s.text(`document.querySelector("tr[data-saved=nightly] td:nth-child(7)").textContent`); !strings.Contains(got, "0") {
		t.Errorf("no next run by a cron expression: %q", got)
	}
	data := func() string {
		t.Helper()
		return s.text(`JSON.stringify((await (await fetch("../v1/saved?kind=schedule")).json()).saved.map((s) => [s.name, s.public, s.data]))`)
	}
	const args = `"args":["one two",5,"7"],"kwargs":{"text":"a b","test":true,"list":[1,"x"]}`
	if got := data(); !strings.Contains(got, args) {
		t.Errorf("the entry: %s", got)
	}

	// A change is offered to the minions.
	declined := func() {
		t.Helper()
		s.until("it is offered to minions", `document.querySelector("dialog").textContent.includes("go on with what they have")`)
		s.click("dialog .cancel")
	}
	row := func(name, about, text string) {
		t.Helper()
		s.until(about, `document.querySelector("tr[data-saved='`+name+`'] .given").textContent.includes(args[0])`, text)
	}

	// Another time, for all, and with the same arguments; other parts of an entry stay.
	s.click("tr[data-saved=nightly] .turn")
	declined()
	row("nightly", "no minion has it", "on the master only")
	s.until("it is disabled", `document.querySelector("tr[data-saved=nightly]").textContent.includes("disabled")`)
	if got := data(); !strings.Contains(got, args) || !strings.Contains(got, `"enabled":false`) {
		t.Errorf("the disabled entry: %s", got)
	}
	s.click("tr[data-saved=nightly] .edit")
	s.until("its values", `document.querySelector("#s-time").value === "0 3 * * *" && !document.querySelector("#s-enabled").checked`)
	s.click("#s-cancel")
	s.click("tr[data-saved=nightly] .turn")
	declined()
	s.until("it is enabled", `document.querySelector("tr[data-saved=nightly]").textContent.includes("enabled")`)
	s.click("tr[data-saved=nightly] .edit")
	s.set("#s-name", "each second")
	s.set("#s-unit", "seconds")
	s.set("#s-time", "1")
	s.click("#s-public")
	s.picture("schedules")
	s.click("#s-save")
	s.until("the minions of its old name", `document.querySelector("dialog").textContent.includes("Remove nightly from the minions")`)
	s.click("dialog .cancel")
	declined()
	s.until("it has its new name", `document.querySelector("tr[data-saved='each second']") && !document.querySelector("tr[data-saved=nightly]")`)
	if got := data(); !strings.Contains(got, args) || !strings.Contains(got, `"seconds":1`) || strings.Contains(got, "cron") ||
		!strings.Contains(got, `["each second",true,`) {
		t.Errorf("the changed entry: %s", got)
	}

	// Minions get it, twice: the second one replaces the first.
	listed := func(about string, good func(string) bool) {
		t.Helper()
		eventually.Nil(t, time.Minute, about, func() error {
			out, stderr, _ := s.master.Run(daemontest.Brine, "salt", "*", "schedule.list", "--out=json")
			if !good(out) {
				return fmt.Errorf("%s%s", out, stderr)
			}
			return nil
		})
	}
	for range 2 {
		s.page("#/schedules")
		s.until("its row", `document.querySelector("tr[data-saved='each second'] .give")`)
		s.click("tr[data-saved='each second'] .give")
		s.click("dialog .confirm")
		s.until("the answer", `document.querySelector("#s-progress").textContent.includes("given to 1 of 1 minions.")`)
		row("each second", "the minion has it", "given to 1 minion")
	}
	listed("alpha has it", func(out string) bool {
		return strings.Contains(out, "each second") && strings.Contains(out, "text: a b")
	})
	s.page("#/schedules")
	s.until("its last run", `document.querySelector("tr[data-saved='each second'] td:nth-child(6) a")`)
	s.sees("1 minion has it")

	// Disabling stops it at once.
	s.click("tr[data-saved='each second'] .turn")
	s.until("it is offered to minions", `document.querySelector("dialog").textContent.includes("go on with what they have")`)
	s.click("dialog .confirm")
	row("each second", "the minion has the change", "given to 1 minion")
	listed("alpha has it disabled", func(out string) bool {
		_, of, _ := strings.Cut(out, "each second:")
		return strings.Contains(of, "enabled: false")
	})

	// A minion that does not answer is named, until it has answered.
	s.click("tr[data-saved='each second'] .edit")
	s.set("#s-tgt", "*")
	s.click("#s-save")
	s.until("the minions of its old target", `document.querySelector("dialog").textContent.includes("Remove each second from the minions that match alpha")`)
	s.click("dialog .cancel")
	declined()
	eventually.Nil(t, time.Minute, "beta answers", func() error { return s.master.PingAll(daemontest.Brine, "beta") })
	row("each second", "the change is on the master only", "on the master only")
	beta.Signal(syscall.SIGSTOP)
	s.click("tr[data-saved='each second'] .give")
	s.click("dialog .confirm")
	s.until("who has not answered", `document.querySelector("#s-progress").textContent.includes("given to 1 of 2 minions. Not yet: beta.")`)
	row("each second", "who has not answered", "not given to beta")
	s.page("#/jobs")
	s.page("#/schedules")
	row("each second", "that is remembered", "not given to beta")
	beta.Signal(syscall.SIGCONT)
	eventually.Nil(t, time.Minute, "beta answers", func() error { return s.master.PingAll(daemontest.Brine, "beta") })
	eventually.Nil(t, time.Minute, "the late answer is seen", func() error {
		s.page("#/jobs")
		s.page("#/schedules")
		var ok bool
		s.Run(&ok, `for (const end = Date.now() + 3000; Date.now() < end; await new Promise((r) => setTimeout(r, 20))) {
			const e = document.querySelector("tr[data-saved='each second'] .given");
			if (e && e.textContent.includes("given to 2 minions")) return true;
		}
		return false;`)
		if !ok {
			return fmt.Errorf("the row: %s", s.text(`document.querySelector("tr[data-saved='each second'] .given").textContent`))
		}
		return nil
	})
	s.click("tr[data-saved='each second'] .take")
	s.click("dialog .confirm")
	row("each second", "no minion has it", "removed from 2 minions")
	listed("alpha has it no longer", func(out string) bool { return strings.Contains(out, "alpha") && !strings.Contains(out, "each second") })

	// A narrow page does not scroll sideways.
	s.page("#/schedules")
	s.until("its row", `document.querySelector("tr[data-saved='each second'] .edit")`)
	s.click("tr[data-saved='each second'] .edit")
	s.Width(360)
	s.fits("the form of a schedule")
	s.Width(0)

	// A user who may only look sees it, and cannot change it.
	s.click("#sign-out")
	s.signIn("viewer", "s3cret", "sharedsecret")
	s.page("#/schedules")
	s.until("it is shown", `document.querySelector("tr[data-saved='each second']")`)
	if got := s.text(`document.querySelectorAll("#s-new, #saved-schedules button").length`); got != "0" {
		t.Errorf("a user without permissions is offered %s buttons", got)
	}
	s.click("#sign-out")
	s.enter()
	s.page("#/schedules")
	s.until("its row", `document.querySelector("tr[data-saved='each second'] .drop")`)
	s.click("tr[data-saved='each second'] .drop")
	s.click("dialog .confirm")
	s.sees("Nothing is saved.")
	s.clean("400", "401")
}
