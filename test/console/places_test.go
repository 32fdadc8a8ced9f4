package console

import (
	"strings"
	"testing"

	"brine/test/daemontest"
)

// TestPalette goes to pages, minions, jobs and functions by the keyboard alone.
func TestPalette(t *testing.T) {
	s := start(t, "", "alpha", "beta")
	s.enter()
	s.held("m1", 2)
	for _, c := range []struct{ text, kind, hash string }{
		{"Audi", "page", "#/audit"}, {"bet", "minion", "#/minions/beta"}, {"20260101120000000000", "job", "#/jobs/20260101120000000000"},
		{"disk.usag", "run", "#/run?fun=disk.usage"},
	} {
		s.Type("Control+k")
		s.until("the palette is open", `document.activeElement.id === "palette-input"`)
		s.Type(c.text)
		s.until(c.text+" is offered", `document.querySelector("#palette-list [aria-selected=true] .quiet").textContent.trim() === args[0]`, c.kind)
		s.Type("Enter")
		s.until("it goes to "+c.hash, `location.hash === args[0] && !document.querySelector("dialog")`, c.hash)
	}
	// The function runs by the keyboard, too.
	s.until("the form", `document.querySelector("#fun").value === "disk.usage"`)
	s.Type("/", "Enter")
	s.sees("2 of 2 minions returned")
	s.click("#go")
	s.set("#palette-input", "no such place")
	s.sees("Nothing has this name.")
	s.clean("401", "404")
}

// TestAccess tests permissions, shows requests, and ends sessions.
func TestAccess(t *testing.T) {
	s := start(t, "approval_above: 1\n", "alpha", "beta")
	s.signIn("limited", "s3cret", "sharedsecret")
	s.page("#/access")
	s.until("the user's own session", `document.querySelectorAll("#sessions tr[data-user=limited]").length === 1`)
	if s.text(`document.querySelector("#can")`) != "null" {
		t.Error("a user without permission is offered the test")
	}
	s.sees("You may run test.* on minions that match alpha")
	s.page("#/audit")
	s.sees("Your permissions do not include runner audit.list")
	session := s.text(`document.cookie`) // empty: scripts cannot read it
	if session != "" {
		t.Errorf("cookie %q", session)
	}
	s.Run(nil, `location.hash = "#/overview"; await fetch("../login", {method: "POST", headers: {"Content-Type": "application/json"},
		body: JSON.stringify({username: "admin", password: "s3cret", eauth: "sharedsecret"})}); location.reload();`)
	s.until("the other user", `document.querySelector("#who").textContent === "admin"`)
	if _, err := s.master.SaltJSON(daemontest.Brine, "alpha", "test.version"); err != nil {
		t.Fatal(err)
	}

	s.page("#/access")
	s.set("#f-user", "limited")
	s.set("#f-fun", "test.echo")
	s.set("#f-tgt", "alpha")
	s.click("#test")
	s.sees("limited may do this")
	s.sees("external_auth: sharedsecret: may run test.* on minions that match alpha")
	s.picture("access")
	s.until("other entries in words", `document.querySelector("#everyone tr[data-who=viewer]").textContent.includes("may run the runner saved.list") &&
		document.querySelector("#everyone tr[data-who=admin]").textContent.includes("may run all functions on all minions")`)
	s.until("the permissions of all users", `document.querySelector("#everyone tr[data-who=limited]").textContent.
		includes("may run test.* on minions that match alpha")`)
	s.set("#f-tgt", "*")
	s.click("#test")
	s.sees("limited may not do this")
	s.set("#f-form", "wheel")
	s.set("#f-user", "admin")
	s.set("#f-fun", "key.accept")
	s.click("#test")
	s.sees("may run all wheel functions")
	s.set("#f-form", "minions")
	s.set("#f-tgt", "(a")
	s.click("#test")
	s.sees("admin may do this")

	s.until("all sessions", `document.querySelectorAll("#sessions tr[data-user]").length === 2`)
	s.click("#sessions tr[data-user=limited] button.end")
	s.click("dialog .confirm")
	s.until("one is left", `document.querySelectorAll("#sessions tr[data-user]").length === 1`)

	// A job for more minions than approval_above waits for a second user.
	s.page("#/run?tgt=*&fun=test.ping")
	s.click("#start")
	s.until("it waits", `location.hash === "#/approvals" && document.querySelector("tr[data-state=waiting]")`)
	s.sees("this job is for 2 minions, more than 1")
	if got := s.text(`document.querySelectorAll(".approve").length`); got != "0" {
		t.Error("a user is offered to approve its own job")
	}
	s.api.Kill() // the job survives that
	s.api.Launch()
	s.await()
	as := func(user string) {
		t.Helper()
		s.Run(nil, `await fetch("../login", {method: "POST", headers: {"Content-Type": "application/json", "X-Brine-Console": "1"},
			body: JSON.stringify({username: args[0], password: "s3cret", eauth: "sharedsecret"})}); location.reload();`, user)
		s.until("the other user", `document.querySelector("#who").textContent === args[0]`, user)
	}
	as("limited") // who may not start it
	s.click(".approve")
	s.click("dialog .confirm")
	s.sees("limited is not permitted to start this job")
	as("boss")
	s.click(".approve")
	s.picture("approvals")
	s.click("dialog .confirm")
	s.until("it is approved", `document.querySelector("tr[data-state=approved] a")`)
	s.click("tr[data-state=approved] a")
	s.sees("2 of 2 minions returned")
	s.sees("by admin, approved by boss")
	s.page("#/jobs")
	s.until("the list has who approved", `[...document.querySelectorAll("tr[data-jid]")].some((r) => r.cells[4].innerText.includes("approved by boss"))`)
	as("admin")
	out, errs, _ := s.master.Run(daemontest.Brine, "salt", "-a", "sharedsecret", "--username=admin", "--password=s3cret", "*", "test.ping")
	if !strings.Contains(out+errs, "a second user must approve it") {
		t.Errorf("the command line: %s %s", out, errs)
	}

	s.page("#/audit")
	s.sees("approved by boss")
	s.until("the job that needed approval", `[...document.querySelectorAll("#list tr")].some((r) => r.innerText.includes("test.ping") &&
		r.innerText.includes("needs approval"))`)
	s.until("the approval", `[...document.querySelectorAll("#list tr")].some((r) => r.cells[1].innerText === "boss" &&
		r.cells[3].innerText.includes("approvals.approve") && r.cells[3].innerText.includes("test.ping, asked by admin"))`)
	s.sees("test.version")
	s.picture("audit")
	s.set("#f-user", "nobody*")
	s.sees("There are no records.")
	s.clean("401", "403", "net::ERR_") // salt-api was restarted
}

// TestRoles: the master applies the roles of users for the console, the API and the command line, and the
// page Access explains them.
func TestRoles(t *testing.T) {
	s := start(t, "publisher_acl_blacklist: {modules: [test.fib]}\n", "alpha", "beta")
	s.enter()
	s.page("#/access")
	text := func(role string) string {
		return `document.querySelector("[data-role=` + role + `]").innerText.replace(/\s+/g, " ")`
	}
	s.until("the role in words", text("operator")+`.startsWith("operator looks after alpha A user with it may run test.* on minions that match alpha " +
		"may run all functions of the master's module fleet")`)
	for _, part := range []string{"It does not let a user run commands on minions (cmd.run)", "accept keys (key.accept)",
		"Who has it user roled (external_auth: sharedsecret)"} {
		s.until(part, text("operator")+`.includes(args[0])`, part)
	}
	s.until("the one that has no user", text("unused")+`.includes("No list names it.")`)
	s.until("who has it", `document.querySelector("#everyone tr[data-who=roled]").textContent.includes("has the role operator")`)
	s.set("#f-user", "roled")
	s.set("#f-fun", "test.ping")
	s.set("#f-tgt", "alpha")
	s.click("#test")
	s.sees("external_auth: sharedsecret, by the role operator: may run test.* on minions that match alpha")
	s.set("#f-user", "operator") // a user with the name of a role does not have it
	s.click("#test")
	s.sees("operator may not do this")
	s.set("#f-user", "roled")
	s.set("#f-fun", "test.fib")
	s.click("#test")
	s.sees("publisher_acl_blacklist forbids the user or the function")

	for _, c := range []struct{ user, tgt, fun, want string }{
		{"roled", "alpha", "test.ping", "True"}, {"roled", "beta", "test.ping", "Authorization error"}, {"roled", "alpha", "cmd.run", "Authorization error"},
		{"roled", "alpha", "test.fib", "Authorization error"}, {"operator", "alpha", "test.ping", "Authorization error"},
	} {
		out, errs, _ := s.master.Run(daemontest.Brine, "salt", "-a", "sharedsecret", "--username="+c.user, "--password=s3cret", c.tgt, c.fun)
		if !strings.Contains(out+errs, c.want) {
			t.Errorf("%+v: %s %s", c, out, errs)
		}
	}
	s.click("#sign-out")
	s.signIn("roled", "s3cret", "sharedsecret")
	s.page("#/access")
	s.sees("You may run test.* on minions that match alpha")
	if s.text(`document.querySelector("#roles")`) != "null" {
		t.Error("a user without permission sees the roles of others")
	}
	s.page("#/run?tgt=beta&fun=test.ping")
	s.click("#start")
	s.sees("Authorization error occurred.")
	s.page("#/run?tgt=alpha&fun=test.ping")
	s.click("#start")
	s.sees("1 of 1 minions returned")
	s.clean("401", "403")
}

// TestDifferenceOfAnswers: the answers of few minions show what differs from that of most.
func TestDifferenceOfAnswers(t *testing.T) {
	s := start(t, "", "alpha", "beta", "gamma")
	for i, id := range []string{"alpha", "beta", "gamma"} {
		text := "port: 80\nuser: www\n"
		if i == 2 {
			text = "port: 8080\nuser: www\n"
		}
		if _, err := s.master.SaltJSON(daemontest.Brine, id, "grains.set", "conf", text, "force=True"); err != nil {
			t.Fatal(err)
		}
	}
	s.enter()
	s.page("#/run?tgt=*&fun=grains.get")
	s.set("#args", "conf")
	s.click("#start")
	s.sees("3 of 3 minions returned")
	s.click("#equal summary")
	s.until("what differs", `document.querySelector("#equal .diff del").textContent === "80" && document.querySelector("#equal .diff ins").textContent === "8080"`)
	var parts []string
	s.json(&parts, `await (async () => {
		const m = await import("./matrix.js");
		const d = m.difference("one two three\nfour", "one 2 three\nfour five");
		return [...d.children].map((e) => e.tagName + ":" + e.textContent);
	})()`)
	if got := strings.Join(parts, "|"); got != "SPAN:one |DEL:two|INS:2|SPAN: three\nfour|INS: five" {
		t.Errorf("difference: %q", got)
	}
	s.clean("401")
}
