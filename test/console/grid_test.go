package console

import (
	"os"
	"path/filepath"
	"testing"

	"brine/test/daemontest"
)

// TestMatrixKeys goes through the matrix of a job with the keyboard, and hears jobs as sentences.
func TestMatrixKeys(t *testing.T) {
	roots := daemontest.ShortDir(t)
	sls := "a: {test.succeed_with_changes: []}\nb: {test.fail_without_changes: []}\nc: {test.nop: []}\n"
	if err := os.WriteFile(filepath.Join(roots, "web.sls"), []byte(sls), 0o644); err != nil {
		t.Fatal(err)
	}
	s := start(t, "file_roots: {base: ["+roots+"]}\n", "alpha", "beta")
	s.master.Run(daemontest.Brine, "salt", "*", "state.apply", "web")
	s.enter()
	s.page("#/jobs")
	s.until("a job as a sentence", `[...document.querySelectorAll("tr[data-jid] a")].some((a) => a.getAttribute("aria-label").startsWith(a.textContent + ": ") &&
		a.getAttribute("aria-label").endsWith(": state.apply with web on *, by root: 2 of 2 minions returned, 2 failed"))`)
	s.Run(nil, `[...document.querySelectorAll("tr[data-jid] a")].find((a) => a.getAttribute("aria-label").includes("state.apply")).click();`)
	s.until("it is said", `document.getElementById("live").textContent === "state.apply with web on *, by root: 2 of 2 minions returned, 2 failed"`)
	s.click("#matrix summary")
	var grid struct{ Role, Rows, Columns, Stops, Heads string }
	s.json(&grid, `(() => { const t = document.querySelector("table.matrix"); return {Role: t.getAttribute("role"), Rows: t.getAttribute("aria-rowcount"),
		Columns: t.getAttribute("aria-colcount"), Stops: String(t.querySelectorAll("[tabindex='0']").length),
		Heads: t.rows[0].cells[2].innerText.replace(/\s+/g, " ")}; })()`)
	if grid.Role != "grid" || grid.Rows != "3" || grid.Columns != "4" || grid.Stops != "1" || grid.Heads != "2 test.fail_without_changes: b" {
		t.Errorf("%+v", grid)
	}
	const where = `(() => { const c = document.activeElement.closest("td, th");
		return c ? c.parentElement.getAttribute("aria-rowindex") + "," + c.getAttribute("aria-colindex") : "outside"; })()`
	s.Run(nil, `document.querySelector("#matrix summary").focus();`)
	for _, c := range []struct{ key, want string }{
		{"Tab", "2,2"}, {"ArrowRight", "2,3"}, {"ArrowDown", "3,3"}, {"ArrowDown", "3,3"}, {"End", "3,4"}, {"ArrowRight", "3,4"}, {"Home", "3,1"},
		{"ArrowLeft", "3,1"}, {"PageUp", "1,1"}, {"ArrowUp", "1,1"}, {"PageDown", "3,1"}, {"Control+Home", "1,1"}, {"Control+End", "3,4"}, {"ArrowLeft", "3,3"},
	} {
		s.Type(c.key)
		if got := s.text(where); got != c.want {
			t.Fatalf("%s goes to %s, want %s", c.key, got, c.want)
		}
		if got := s.text(`document.querySelectorAll("table.matrix [tabindex='0']").length`); got != "1" {
			t.Fatalf("%s stops for Tab after %s", got, c.key)
		}
	}
	s.Type("Enter")
	s.until("the cell is open", `document.querySelector("dialog").getAttribute("aria-label") === "test.fail_without_changes: b on beta" &&
		document.querySelector("#cell").innerText.includes("failed")`)
	s.Type("Escape")
	s.until("the focus is back", `!document.querySelector("dialog") && `+where+` === "3,3"`)

	// A return that arrives draws the matrix again: the place and the focus stay.
	s.Run(nil, `const {takeEvents} = await import("./store.js");
		takeEvents({events: [{tag: "salt/job/" + location.hash.split("/")[2] + "/ret/gamma", data: {return: {}, id: "gamma"}}], skipped: 0});`)
	s.until("it counts", `document.querySelector("#counts").textContent.startsWith("3 of 3")`)
	if got := s.text(where); got != "3,3" {
		t.Errorf("after a return the focus is at %s", got)
	}
	s.Type("Tab")
	if got := s.text(where); got != "outside" {
		t.Errorf("Tab leaves the grid: %s", got)
	}

	// What was said of a job is gone on the next page.
	s.page("#/settings")
	s.until("nothing is said", `location.hash === "#/settings" && document.getElementById("live").textContent === ""`)
	s.Run(nil, `history.back();`)
	s.until("the job again", `document.querySelector("#counts")`)

	// With a zoom of 200 % everything fits, and who wants no motion has none.
	s.Command("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-reduced-motion", "value": "reduce"}}})
	s.Command("Emulation.setDeviceMetricsOverride", map[string]any{"width": 700, "height": 500, "deviceScaleFactor": 2, "mobile": false})
	s.fits("a job")
	for _, p := range []string{"#/overview", "#/minions", "#/keys", "#/jobs", "#/run?fun=cmd.run", "#/states", "#/history",
		"#/schedules", "#/files", "#/events", "#/access", "#/audit", "#/settings"} {
		s.page(p)
		s.until("the page is there", `document.querySelector("main h1") && location.hash === args[0]`, p)
		s.fits(p)
		moving := `[...document.querySelectorAll("*")].filter((e) => /[1-9]/.test(getComputedStyle(e).transitionDuration +
			getComputedStyle(e).animationDuration)).map((e) => e.outerHTML.slice(0, 80)).join()`
		if got := s.text(moving); got != "" {
			t.Errorf("%s moves: %s", p, got)
		}
	}
	s.Width(0)
	s.clean("401", "404")
}
