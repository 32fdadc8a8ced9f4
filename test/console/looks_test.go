package console

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/net/crypt"
	"brine/test/daemontest"
)

// TestNothingThere: a master without minions says what to do first.
func TestNothingThere(t *testing.T) {
	s := start(t, "")
	s.enter()
	s.sees("No minion is accepted. Start a minion whose option master names this master")
	k, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	s.master.Write(pki+"minions_pre/new", string(k.Public().PEM()))
	s.until("the key that waits", `document.querySelector("#first").innerText === "No minion is accepted. Decide on the keys that wait."`)

	// A failover of long ago is listed, but not announced.
	s.page("#/overview")
	s.Run(nil, `const {takeMoves} = await import("./store.js");
		takeMoves([{id: "old", from: "x", to: "y", reason: "closed", at: new Date(Date.now() - 3 * 86400000).toISOString()}]);`)
	s.until("the change is listed, with its day", `/20\d\d/.test(document.querySelector("#moves tbody td").textContent)`)
	s.until("it is not announced", `document.querySelector("#banner").hidden`)

	// A target that asks for data of a minion of which there is none says so.
	s.master.Write(pki+"minions/ghost", string(k.Public().PEM()))
	s.page("#/run?tgt=os:Debian&tgt_type=grain&fun=test.ping")
	s.until("the minion without data", `document.querySelector("#matches").innerText.startsWith("1 minion matches: 1 down. 1 is counted only because")`)
	s.clean("401")
}

// TestLongNames: names of functions and arguments stay readable beside long ids, and a state that fails in a run and in a later test counts once.
func TestLongNames(t *testing.T) {
	roots := daemontest.ShortDir(t)
	sls := []byte("a: {test.fail_without_changes: []}\nb: {test.succeed_without_changes: [{require: [{test: a}]}]}\n")
	if err := os.WriteFile(filepath.Join(roots, "web.sls"), sls, 0o644); err != nil {
		t.Fatal(err)
	}
	pillar := []byte("schedule: {nightly: {function: saltutil.sync_all, cron: '0 3 * * *'}}\n")
	if err := os.WriteFile(filepath.Join(roots, "p.sls"), pillar, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(roots, "top.sls"), []byte("base: {'*': [p]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	id := strings.Repeat("long-minion-id-", 12) + "end"
	s := start(t, "file_roots: {base: ["+roots+"]}\npillar_roots: {base: ["+roots+"]}\n", id)
	for _, c := range [][]string{{"saltutil.refresh_pillar", "wait=True"}, {"state.apply", "web"}, {"state.apply", "web", "test=True"}} {
		s.master.Run(daemontest.Brine, "salt", append([]string{id}, c...)...)
	}
	s.enter()
	s.page("#/states")
	s.until("each state counts once", `[...document.querySelectorAll(".state > summary .status")].map((e) => e.textContent).join() ===
		"\u2717 1 failed,\u2717 1 failed"`)
	s.page("#/jobs")
	s.until("arguments as on a command line", `[...document.querySelectorAll("tr[data-jid]")].some((r) => r.cells[2].textContent === "web test=true")`)
	s.page("#/schedules")
	s.until("the function is on one line", `document.querySelector("tr[data-name=nightly] td:nth-child(3) .data").getClientRects().length === 1 &&
		document.querySelector("tr[data-name=nightly] td:nth-child(3) .data").offsetHeight < 30`)
	for _, width := range []int{0, 360} {
		s.Width(width)
		for _, p := range []string{"#/minions", "#/minions/" + id, "#/keys", "#/jobs", "#/states", "#/schedules", "#/events", "#/audit", "#/history"} {
			s.page(p)
			s.until("the page is there", `document.querySelector("main h1") && location.hash === args[0]`, p)
			s.fits(p)
		}
	}
	s.clean("401")
}
