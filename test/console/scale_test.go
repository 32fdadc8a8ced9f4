package console

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"brine/internal/net/crypt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/browsertest"
	"brine/test/daemontest"
	"brine/test/tools"
)

// TestFigures measures the console with 5,000 minions that the master knows: the time to the first
// paint and to the first rows, from an event to the screen, and the memory of 10,000 events. Times
// depend on the machine, so only the memory has a limit here.
func TestFigures(t *testing.T) {
	tools.Slow(t)
	const many, events = 5000, 10000
	b := browsertest.Start(t)
	host := daemontest.Host()
	m := daemontest.NewMaster(t, daemontest.Brine, "m1", host, configure(t, host))
	key, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	for i := range many {
		id := fmt.Sprintf("web%04d.example", i)
		data, err := msgpack.Marshal(value.DictOf("grains", value.DictOf("id", id, "os", "Debian", "osfinger", "Debian-12", "saltversion", "3007.10",
			"roles", value.ListOf("web", "site"+id[3:5])), "pillar", value.NewDict(0)), msgpack.NewSpec)
		if err != nil {
			t.Fatal(err)
		}
		m.Write(pki+"minions/"+id, string(key.Public().PEM()))
		m.Write("var/cache/salt/master/minions/"+id+"/data.p", string(data))
	}
	m.Start()
	s := &stage{b, t, m, daemontest.NewAPI(m).Launch(), fmt.Sprintf("http://%s:%d", host, port)}
	s.await()
	s.Open(s.url + "/console/")
	s.enter()
	var paints, lists []float64
	for range 5 {
		s.Open(s.url + "/health")
		s.Open(s.url + "/console/#/overview")
		s.until("all minions are there", `[...document.querySelectorAll(".figure")].some((f) => f.textContent === "5000")`)
		var at struct{ Paint, Full float64 }
		s.Run(&at, `const paint = performance.getEntriesByName("first-contentful-paint")[0];
			return {paint: paint ? paint.startTime : 0, full: performance.now()};`)
		paints, lists = append(paints, at.Paint), append(lists, at.Full)
	}
	t.Logf("overview of %d minions: first paint %.0f ms, all figures within %.0f ms (median of 5)", many, median(paints), median(lists))
	var list []float64
	s.Run(&list, `const out = [];
		for (let i = 0; i < 5; i++) {
			location.hash = "#/overview";
			while (!document.querySelector("#band")) await new Promise((r) => setTimeout(r, 2));
			const start = performance.now();
			location.hash = "#/minions";
			while (document.querySelectorAll("tr[data-id]").length !== 200) await new Promise((r) => setTimeout(r, 2));
			out.push(performance.now() - start);
			await new Promise((r) => setTimeout(r, 500)); // the limit of look-ups
		}
		return out;`)
	t.Logf("list of minions, 200 of %d rows: %.0f ms (median of 5)", many, median(list))

	// What open pages cost the master and salt-api.
	for _, c := range []struct{ what, hash string }{{"overview", "#/overview"}, {"minions", "#/minions"}, {"no page", ""}} {
		if s.page(c.hash); c.hash == "" {
			s.Open("about:blank")
		}
		time.Sleep(5 * time.Second) // until what the change of pages costs is over
		master, api, began := cpuTime(t, s.master.PID()), cpuTime(t, s.api.PID()), time.Now()
		time.Sleep(costTime)
		share := func(before, after time.Duration) float64 {
			return 100 * (after - before).Seconds() / time.Since(began).Seconds()
		}
		t.Logf("open page %s: the master takes %.2f %% of a core, salt-api %.2f %%", c.what, share(master, cpuTime(t, s.master.PID())),
			share(api, cpuTime(t, s.api.PID())))
	}
	s.Open(s.url + "/console/#/events")
	s.sees("Pattern of the tag")
	var late []float64
	s.Run(&late, `const out = [];
		const csrf = (await (await fetch("me")).json()).csrf;
		for (let i = 0; i < 20; i++) {
			const tag = "salt/netapi/hook/late/" + i;
			const seen = new Promise((done) => {
				const o = new MutationObserver(() => {
					if (!document.querySelector("tr[data-tag='" + tag + "']")) return;
					o.disconnect();
					done(performance.now());
				});
				o.observe(document.querySelector("main"), {childList: true, subtree: true});
			});
			const start = performance.now();
			const headers = {"Content-Type": "application/json", "X-Csrf-Token": csrf};
			await fetch("../hook/late/" + i, {method: "POST", headers, body: "{}"});
			out.push(await seen - start);
		}
		return out;`)
	t.Logf("from the request that fires an event to its row: median %.0f ms, longest %.0f ms (of 20)", median(late), slices.Max(late))

	heap := func() float64 {
		var used struct{ UsedSize float64 }
		s.Command("HeapProfiler.collectGarbage", map[string]any{})
		s.Ask(&used, "Runtime.getHeapUsage", map[string]any{})
		return used.UsedSize / (1 << 20)
	}
	before := heap()
	s.Run(nil, `const {takeEvents} = await import("./store.js");
		for (let i = 0; i < args[0] / 50; i++) {
			const jid = "20260101000000" + String(100000 + i);
			const event = (id) => ({tag: "salt/job/" + jid + "/ret/" + id, data: {id, jid, fun: "test.echo", fun_args: ["x".repeat(200)], retcode: 0,
				success: true, return: {text: "y".repeat(500), list: Array.from({length: 10}, (_, n) => n)}}});
			takeEvents({skipped: 0, events: Array.from({length: 50}, (_, k) => event("web" + (i * 50 + k)))});
			await new Promise((r) => setTimeout(r, 1));
		}
		await new Promise((r) => setTimeout(r, 500));`, events)
	after := heap()
	t.Logf("memory of scripts: %.1f MB before, %.1f MB after %d events", before, after, events)
	if after > 50 {
		t.Errorf("%d events need %.1f MB", events, after)
	}
	if dir := os.Getenv("BRINE_PICTURES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "many-events.png"), s.Picture(), 0o644); err != nil {
			t.Error(err)
		}
	}
	s.clean("401", "/favicon.ico") // which the browser wants for /health
}

// costTime is how long the cost of open pages is measured.
const costTime = 10 * time.Second

// cpuTime returns the CPU time that a process has used.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	ticks := 0
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// median returns the middle of several figures.
func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
