package console

import (
	"testing"

	"brine/test/daemontest"
)

// TestEvents: events appear as they happen, filtered. A pause keeps the list unchanged, and the
// memory of the page is bounded.
func TestEvents(t *testing.T) {
	s := start(t, "", "alpha")
	s.enter()
	s.page("#/events")
	s.sees("Pattern of the tag")
	fire := func(tag string, n int) {
		t.Helper()
		if got := s.call("POST", "../hook/"+tag, n); got != 200 {
			t.Fatalf("hook: %d", got)
		}
	}
	fire("one", 3)
	s.until("the events", `document.querySelectorAll("tr[data-tag='salt/netapi/hook/one']").length === 3`)
	fire("two", 1)
	s.until("another one", `document.querySelector("tr[data-tag='salt/netapi/hook/two']")`)
	s.set("#f-tag", "salt/netapi/*/two")
	s.until("the filter", `[...document.querySelectorAll("tr[data-tag]")].every((r) => r.dataset.tag === "salt/netapi/hook/two")`)
	s.set("#f-tag", "")
	s.until("no filter", `document.querySelectorAll("tr[data-tag='salt/netapi/hook/one']").length === 3`)
	s.click("#collapse")
	s.until("repeats are one row", `document.querySelectorAll("tr[data-tag='salt/netapi/hook/one']").length === 1 &&
		document.querySelector("tr[data-tag='salt/netapi/hook/one'] .times").textContent.trim() === "× 3" && location.hash.includes("collapse=1")`)
	s.click("#collapse")
	s.until("all rows again", `document.querySelectorAll("tr[data-tag='salt/netapi/hook/one']").length === 3`)
	s.click("tr[data-tag='salt/netapi/hook/two'] summary")
	s.until("the data of an event", `document.querySelector("tr[data-tag='salt/netapi/hook/two'] .tree")`)
	s.picture("events")

	s.click("#pause")
	fire("three", 1)
	if _, err := s.master.SaltJSON(daemontest.Brine, "alpha", "test.ping"); err != nil {
		t.Fatal(err)
	}
	// The events of the job come after the one of the hook.
	s.until("they are counted", `/Paused: ([3-9]|[0-9]{2,}) that came/.test(document.body.textContent)`)
	s.click("#pause")
	fire("four", 1)
	s.until("it goes on", `document.querySelector("tr[data-tag='salt/netapi/hook/four']")`)
	if got := s.text(`document.querySelectorAll("tr[data-tag='salt/netapi/hook/three']").length`); got != "0" {
		t.Error("an event came during the pause")
	}
	s.click("#clear")
	s.until("the list is empty", `document.querySelectorAll("tr[data-tag]").length === 0`)

	// A flood: the page keeps the newest events, and shows how many it dropped.
	var kept struct{ Events, Rows, Bytes int }
	s.Run(&kept, `const {store, takeEvents} = await import("./store.js");
		for (let i = 0; i < 200; i++) takeEvents({events: Array.from({length: 50}, (_, k) => ({tag: "flood/" + i + "/" + k, data: {text: "x".repeat(3000)}})), skipped: 1});
		await new Promise((r) => setTimeout(r, 300));
		return {events: store.events.length, rows: document.querySelectorAll("tr[data-tag]").length, bytes: store.eventBytes};`)
	if kept.Events > 2000 || kept.Rows > 200 || kept.Bytes > 8<<20 || kept.Rows == 0 {
		t.Errorf("of 10000 events are kept %+v", kept)
	}
	s.sees("were left out")
	s.clean("401")
}
