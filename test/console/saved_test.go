package console

import (
	"strings"
	"testing"
)

// TestSaved saves targets, jobs and views, which other users see if they are for all.
func TestSaved(t *testing.T) {
	s := start(t, "", "alpha", "beta")
	s.enter()
	save := func(kind, name string, public bool) {
		t.Helper()
		s.click(".save-" + kind)
		s.set("#saved-name", name)
		if public {
			s.click("#saved-public")
		}
		s.click("dialog .confirm")
		s.until(name+" is saved", `document.querySelector("#saved-" + args[0]).selectedOptions[0].textContent.includes(args[1])`, kind, name)
	}
	pick := func(kind, name string) {
		t.Helper()
		s.until(name+" is offered", `[...document.querySelectorAll("#saved-" + args[0] + " option")].some((o) => o.textContent.includes(args[1]))`, kind, name)
		s.Run(nil, `const e = document.querySelector("#saved-" + args[0]);
			e.value = [...e.options].find((o) => o.textContent.includes(args[1])).value;
			e.dispatchEvent(new Event("change", {bubbles: true}));`, kind, name)
	}

	s.page("#/run?tgt=alpha&tgt_type=list&fun=test.echo")
	s.set("#args", "'one two' 3")
	save("target", "first", true)
	save("job", "echo", true)
	save("target", "mine", false)
	s.page("#/run")
	s.until("an empty form", `document.querySelector("#fun").value === "" && document.querySelector("#tgt").value === "*"`)
	pick("job", "echo")
	s.until("the job", `document.querySelector("#tgt").value === "alpha" && document.querySelector("#tgt_type").value === "list" &&
		document.querySelector("#fun").value === "test.echo" && document.querySelector("#args").value === "'one two' 3"`)

	// A view has the filters and the columns.
	s.page("#/minions")
	s.lists("alpha", "beta")
	s.click(".columns summary")
	s.click("input[data-column=Standby]")
	s.set("#f-search", "bet")
	s.lists("beta")
	const hostile = `<img src=x onerror=document.title=1> __proto__`
	save("view", hostile, true)
	s.set("#f-search", "")
	s.click("input[data-column=Standby]")
	s.lists("alpha", "beta")
	pick("view", hostile)
	s.lists("beta")
	s.until("the columns are hidden", `getComputedStyle(document.querySelector("#list th:nth-child(4)")).display === "none" &&
		location.hash === "#/minions?search=bet"`)
	s.page("#/jobs")
	s.set("#f-fun", "test.*")
	save("view", "tests", false)
	s.picture("saved")

	// Another user sees what is for all, and can remove none of it without the permission.
	s.click("#sign-out")
	s.signIn("amy", "pa ss", "file")
	s.until("the other user", `document.querySelector("#who").textContent === "amy"`)
	s.page("#/run")
	pick("target", "first, by admin")
	s.until("the target", `document.querySelector("#tgt").value === "alpha"`)
	if got := s.text(`[...document.querySelectorAll("#saved-target option")].length`); got != "2" {
		t.Errorf("%s options, want the public target alone: %s", got, s.text(`document.querySelector("#saved-target").textContent`))
	}
	s.click("#sign-out")
	s.signIn("viewer", "s3cret", "sharedsecret")
	s.until("the third user", `document.querySelector("#who").textContent === "viewer"`)
	s.page("#/minions")
	pick("view", hostile)
	s.lists("beta")
	s.until("removing is not offered", `document.querySelector(".remove-saved").disabled && !document.querySelector(".save-view")`)
	s.click("#sign-out")
	s.enter()
	s.page("#/minions")
	pick("view", hostile)
	s.until("removing is offered", `!document.querySelector(".remove-saved").disabled`)
	s.click(".remove-saved")
	s.click("dialog .confirm")
	s.until("it is gone", `document.querySelectorAll("#saved-view option").length === 1`)
	if title := s.text("document.title"); strings.HasPrefix(title, "1") {
		t.Errorf("a name was run as a script: %s", title)
	}
	s.clean("401")
}
