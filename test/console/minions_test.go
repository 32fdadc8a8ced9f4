package console

import (
	"slices"
	"strings"
	"testing"

	"brine/internal/net/crypt"
	"brine/test/daemontest"
)

// lists waits until the list has these ids.
func (s *stage) lists(ids ...string) {
	s.t.Helper()
	s.until("the list has "+strings.Join(ids, ", "), `
		JSON.stringify([...document.querySelectorAll("tr[data-id]")].map((r) => r.dataset.id)) === JSON.stringify(args[0])`, ids)
}

// TestMinions: the list and its filters, and the page of a minion.
func TestMinions(t *testing.T) {
	s := start(t, "", "alpha", "beta", "gamma")
	s.enter()
	s.page("#/minions")
	s.lists("alpha", "beta", "gamma")
	s.sees("3 of 3 minions")
	s.set("#f-search", "MA")
	s.lists("gamma")
	s.until("the filter is in the address", `location.hash === "#/minions?search=MA"`)
	s.Run(nil, `location.reload();`)
	s.lists("gamma")
	s.set("#f-search", "")
	s.until("the states are offered", `document.querySelector("#f-state option[value=down]")`)
	s.set("#f-state", "down")
	s.sees("No accepted minion matches.")
	s.set("#f-state", "")
	s.set("#f-master", "m1")
	s.lists("alpha", "beta", "gamma")

	// The user chooses the columns, and saves the rows as a table.
	s.click(".columns summary")
	s.click("input[data-column=Standby]")
	s.until("the column is hidden", `getComputedStyle(document.querySelector("#list th:nth-child(4)")).display === "none"`)
	var csv string
	s.Run(&csv, `let blob; const old = URL.createObjectURL;
		URL.createObjectURL = (b) => { blob = b; return old.call(URL, b); };
		document.querySelector(".csv").click();
		URL.createObjectURL = old;
		return await blob.text();`)
	if lines := strings.Split(csv, "\r\n"); len(lines) != 5 || lines[0] != `"Minion","State","Masters","Last states","Operating system","Version"` ||
		!strings.HasPrefix(lines[1], `"alpha","✓ connected","m1",`) {
		t.Errorf("CSV: %q", csv)
	}
	s.Run(nil, `location.reload();`)
	s.lists("alpha", "beta", "gamma")
	s.until("the browser keeps it", `getComputedStyle(document.querySelector("#list th:nth-child(4)")).display === "none"`)

	// Using the keyboard: select the second row, and open it.
	s.Run(nil, `document.activeElement.blur();`)
	s.Type("jj", "Enter")
	s.until("the page of the minion", `location.hash === "#/minions/beta" && document.querySelector("h1").textContent === "beta"`)
	s.sees("Masters: m1")
	s.sees("saltversion:")
	s.sees("test.ping")
	s.picture("minion")
	s.page("#/minions/nosuch")
	s.sees("there is no accepted minion")

	// Some of the minions get a job.
	s.page("#/minions")
	s.lists("alpha", "beta", "gamma")
	s.click("#pick-all")
	s.sees("3 selected")
	s.Run(nil, `document.activeElement.blur();`)
	s.Type("jj", "x") // the second row, without a mouse
	s.sees("2 selected")
	s.Type("r") // the form for those
	s.until("the form has them", `location.hash === "#/run?job=" && document.querySelector("#tgt").value === "alpha,gamma"`)
	s.page("#/minions")
	s.lists("alpha", "beta", "gamma")
	s.click("tr[data-id=alpha] .pick")
	s.click("tr[data-id=gamma] .pick")
	s.sees("2 selected")
	s.set("#f-search", "alp")
	s.lists("alpha")
	s.sees("2 selected")
	s.click("#act-test")
	s.until("the form has them", `document.querySelector("#tgt").value === "alpha,gamma" && document.querySelector("#tgt_type").value === "list" &&
		document.querySelector("#fun").value === "state.highstate" && document.querySelector("#args").value === "test=True"`)
	s.clean("401", "404")
}

// TestKeys: the page shows the fingerprint, and makes a decision only after a confirmation.
func TestKeys(t *testing.T) {
	s := start(t, "", "alpha")
	fingers := map[string]string{}
	waiting := func(ids ...string) {
		for _, id := range ids {
			k, err := crypt.GenerateKey(2048)
			if err != nil {
				t.Fatal(err)
			}
			s.master.Write(pki+"minions_pre/"+id, string(k.Public().PEM()))
			fingers[id] = crypt.Fingerprint(k.Public().PEM(), "sha256")
		}
	}
	waiting("one", "two", "three")
	s.enter()
	s.page("#/keys")
	in := func(state string, ids ...string) {
		t.Helper()
		ids = append([]string{}, ids...) // not null
		slices.Sort(ids)
		s.until("the keys "+strings.Join(ids, ", ")+" are in "+state, `
			JSON.stringify([...document.querySelectorAll("section[data-state=" + args[0] + "] tr[data-id]")].map((r) => r.dataset.id).sort()) ===
			JSON.stringify(args[1])`, state, ids)
	}
	in("minions_pre", "one", "three", "two")
	press := func(what, id string) {
		t.Helper()
		s.click(`tr[data-id="` + id + `"] button.` + what)
		s.until("the question", `document.querySelector("dialog[open] #fingerprint")`)
		if got := s.text(`document.querySelector("#fingerprint").textContent`); got != fingers[id] {
			t.Errorf("fingerprint of %s: %s, want %s", id, got, fingers[id])
		}
	}
	press("accept", "one")
	s.picture("keys")
	s.click("dialog .cancel")
	s.until("nothing is done", `!document.querySelector("dialog")`)
	in("minions_pre", "one", "three", "two")
	press("accept", "one")
	s.click("dialog .confirm")
	in("minions", "alpha", "one")
	press("reject", "two")
	s.click("dialog .confirm")
	in("minions_rejected", "two")
	press("delete", "three")
	s.click("dialog .confirm")
	in("minions_pre")

	// A key that changes while the confirmation is shown is not accepted.
	waiting("four")
	s.page("#/overview")
	s.page("#/keys")
	press("accept", "four")
	waiting("four")
	s.click("dialog .confirm")
	s.sees("has changed meanwhile: nothing was done")
	in("minions_pre", "four")

	// Several at once: only those with the expected fingerprints.
	waiting("five", "six")
	s.page("#/overview")
	s.page("#/keys")
	in("minions_pre", "five", "four", "six")
	s.click("section[data-state=minions_pre] .pick-all")
	s.click(".bulk-accept")
	s.set("#expected", "on five: "+fingers["five"]+"\nand "+fingers["six"])
	s.picture("keys-bulk")
	s.click("dialog .confirm")
	s.sees("2 of 3 done.")
	s.sees("four: its fingerprint is not among the expected ones")
	in("minions", "alpha", "five", "one", "six")
	in("minions_pre", "four")

	keys, err := s.master.Keys()
	if err != nil || !slices.Equal(keys["minions"], []string{"alpha", "five", "one", "six"}) || !slices.Equal(keys["minions_rejected"], []string{"two"}) {
		t.Errorf("keys: %v %v", keys, err)
	}
	s.clean("401")
}

const evilScript = `<img src=x onerror="window.owned=1"><script>window.owned=1</script>`

// TestHostileData: the page shows ids, grains and returns with HTML, terminal sequences, direction
// marks and huge lines as plain text.
func TestHostileData(t *testing.T) {
	s := start(t, "")
	grains := `grains:
  evil: '<img src=x onerror="window.owned=1"><script>window.owned=1</script>'
  ansi: "\e[31mred\e[0m"
  rtl: "a\u202Egpj.exe"
  os: '<b onmouseover="window.owned=1">OS</b>'
  '<i>key</i>': "line one\nline two"
`
	m := daemontest.NewMinion(t, daemontest.Brine, "<b>alpha<", []string{s.master.Host}, grains)
	m.Start()
	s.enter()
	s.page("#/minions")
	s.until("the minion is there", `[...document.querySelectorAll("tr[data-id]")].some((r) => r.dataset.id === "<b>alpha<")`)
	s.page("#/minions/" + "%3Cb%3Ealpha%3C")
	s.sees(evilScript)
	for _, text := range []string{"␛[31mred␛[0m", "a⟨U+202E⟩gpj.exe", "<i>key</i>:", "line one", `<b onmouseover="window.owned=1">OS</b>`} {
		s.sees(text)
	}
	s.picture("hostile")
	s.page("#/run?tgt=*&fun=test.echo")
	s.set("#args", "'"+evilScript+"'")
	s.click("#start")
	s.sees("1 of 1 minions returned")
	s.sees(evilScript)

	// 10 MB in one line: the page stays usable, and can show the beginning.
	s.page("#/run?tgt=*&fun=cmd.run")
	s.set("#args", `"head -c 10000000 /dev/zero | tr '\\0' x" python_shell=True`)
	s.click("#start")
	s.sees("1 of 1 minions returned")
	s.click("#results button")
	s.sees("The return is larger than the console shows")
	s.page("#/run?tgt=*&fun=cmd.run")
	s.set("#args", `"head -c 1000000 /dev/zero | tr '\\0' x" python_shell=True`)
	s.click("#start")
	s.sees("1 of 1 minions returned")
	s.click("#results button")
	s.sees("more characters")
	if n := s.text(`document.body.innerText.length`); len(n) > 6 {
		t.Errorf("the page has %s characters", n)
	}
	s.page("#/events")
	s.until("events are there", `document.querySelectorAll("tr[data-tag]").length > 0`)
	if got := s.text(`window.owned`); got != "undefined" {
		t.Error("a script of a minion has run")
	}
	if got := s.text(`document.querySelectorAll("main img, main script, main b, main i").length`); got != "0" {
		t.Errorf("%s elements are made of data", got)
	}
	s.clean("401")
}
