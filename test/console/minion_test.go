package console

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"brine/test/daemontest"
)

// TestMinionPage: the page of a minion shows its connection, key, schedule, beacons and mine data, of which nothing is asked of the minion.
func TestMinionPage(t *testing.T) {
	pillars := daemontest.ShortDir(t)
	for name, text := range map[string]string{
		"top.sls": "base: {'*': [all]}\n",
		"all.sls": "schedule: {nightly: {function: state.apply, cron: '0 3 * * *'}}\n" +
			"mine_functions: {test.arg: [first, {db_password: hunter2}], grains.get: [os]}\n" +
			"beacons: {diskusage: [{/: 200%}, {interval: 7}], load: [{averages: {1m: [0, 100000]}}, {enabled: false}]}\n",
	} {
		if err := os.WriteFile(filepath.Join(pillars, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, "pillar_roots: {base: ["+pillars+"]}\n", "alpha")
	for _, c := range [][]string{{"saltutil.refresh_pillar", "wait=True"}, {"mine.update"}, {"event.send", "salt/beacon/alpha/own_beacon/x", "{a: 1}"}} {
		if _, err := s.master.SaltJSON(daemontest.Brine, append([]string{"alpha"}, c...)...); err != nil {
			t.Fatal(err)
		}
	}
	s.enter()
	s.page("#/minions/alpha")
	s.until("since when it is connected", `/^Connected since .*20\d\d.* to m1/.test(document.querySelector("#since").textContent)`)
	s.until("its master", `document.querySelector("#connections tr[data-link=m1]").innerText.includes("connected")`)
	var keys map[string]map[string]string
	out, _, _ := s.master.Run(daemontest.Brine, "salt-key", "-f", "alpha", "--out=json")
	if err := json.Unmarshal([]byte(out), &keys); err != nil {
		t.Fatal(err, out)
	}
	if got := s.text(`document.querySelector("#fingerprint").textContent`); got == "" || got != keys["minions"]["alpha"] {
		t.Errorf("fingerprint %q, want %q", got, keys["minions"]["alpha"])
	}
	s.until("its schedule", `document.querySelector("#schedule tr[data-name=nightly]").innerText.includes("cron 0 3 * * *")`)
	s.until("a beacon of its pillar", `document.querySelector("#beacons tr[data-beacon=diskusage]").innerText.includes("every 7 s")`)
	s.until("one that is disabled", `document.querySelector("#beacons tr[data-beacon=load]").innerText.includes("disabled")`)
	s.until("one that has sent an event", `(() => {
		const c = document.querySelectorAll("#beacons tr[data-beacon=own_beacon] td");
		return c[3].textContent === "1" && c[4].textContent !== "";
	})()`)
	s.until("the names of its mine", `[...document.querySelectorAll("#mine tr[data-mine]")].map((r) => r.dataset.mine).join() === "test.arg,grains.get"`)
	s.click("#show-mine")
	s.until("its data, with secrets hidden", `document.querySelector("#mine .tree").innerText.includes("first") &&
		!document.querySelector("#mine").innerText.includes("hunter2")`)
	s.click("#mine button.masked")
	s.sees("hunter2")

	// The path of a grain is copied.
	s.Command("Browser.grantPermissions", map[string]any{"permissions": []string{"clipboardReadWrite", "clipboardSanitizedWrite"}})
	s.click(`#grains button.copy[title="Copy the path saltversion"]`)
	s.until("it says so", `document.querySelector("#live").textContent === "Copied: saltversion" ||
		document.querySelector("dialog #copied").value === "saltversion"`)
	s.Run(nil, `for (const d of document.querySelectorAll("dialog")) d.remove();`)
	s.picture("minion")
	s.Width(360)
	s.fits("the page of a minion")
	s.clean("401")
}
