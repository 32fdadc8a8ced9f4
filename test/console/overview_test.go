package console

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"brine/internal/net/crypt"
	"brine/test/browsertest"
	"brine/test/daemontest"
	"brine/test/eventually"
)

const pki = "etc/salt/pki/master/"

// pair is two masters with one key, each with its salt-api, and minions of both. OTHER stands for the
// address of the other master.
func pair(t *testing.T, b *browsertest.Browser, more string, minion string, minions ...string) (first, second *stage, nodes []*daemontest.Node) {
	t.Helper()
	var stages []*stage
	hosts := []string{daemontest.Host(), daemontest.Host()}
	for i, host := range hosts {
		other := fmt.Sprintf("http://%s:%d", hosts[1-i], port)
		text := configure(t, host) + fmt.Sprintf("  console_masters: ['%s']\nauto_accept: true\n", other) + strings.ReplaceAll(more, "OTHER", hosts[1-i])
		m := daemontest.NewMaster(t, daemontest.Brine, fmt.Sprintf("m%d", i+1), host, text)
		if i > 0 {
			first := stages[0].master
			eventually.Nil(t, time.Minute, "the master's key", func() error {
				_, err := os.Stat(first.Path(pki + "master.pub"))
				return err
			})
			for _, f := range []string{"master.pem", "master.pub"} {
				m.Write(pki+f, first.Read(pki+f))
			}
		}
		m.Start()
		s := &stage{b, t, m, daemontest.NewAPI(m).Launch(), fmt.Sprintf("http://%s:%d", host, port)}
		s.await()
		stages = append(stages, s)
	}
	for _, id := range minions {
		nodes = append(nodes, daemontest.NewMinion(t, daemontest.Brine, id, hosts, minion).Start())
	}
	return stages[0], stages[1], nodes
}

// held waits until the overview shows n minions at a master.
func (s *stage) held(master string, n int) {
	s.t.Helper()
	s.until(fmt.Sprintf("%s holds %d minions", master, n),
		`[...document.querySelectorAll("#band .row")].some((r) => r.dataset.master.includes(args[0]) && r.dataset.count === String(args[1]))`, master, n)
}

// TestFailoverIsSeen: the console of the second master shows which master holds the
// minions, and how they move when the first one is killed.
func TestFailoverIsSeen(t *testing.T) {
	b := browsertest.Start(t)
	one, two, nodes := pair(t, b, "", "master_type: failover", "w1", "w2", "w3")
	b.Open(two.url + "/console/")
	two.enter()
	two.held(one.master.Host, 3)
	two.held("m2", 0)
	two.sees("standby of 3")
	two.until("the master's version and start", `/^Brine \S+, since .*20\d\d/.test(document.querySelector("#band .row[data-master=m2] .about").textContent)`)
	two.picture("overview-before")

	two.Run(nil, `window.seen = new Promise((done) => {
		const look = () => { const r = [...document.querySelectorAll("#band .row")].find((r) => r.dataset.master === "m2"); if (r && r.dataset.count === "3") done(Date.now()); };
		new MutationObserver(look).observe(document.getElementById("band"), {subtree: true, childList: true, attributes: true});
	});`)
	killed := time.Now()
	one.master.Kill()
	two.held("m2", 3)
	var at int64
	two.Run(&at, `return await window.seen;`)
	t.Logf("the band has moved %.2f s after the master was killed", float64(at-killed.UnixMilli())/1000)
	two.held(one.master.Host, 0)
	two.sees("Failover: 3 minions have moved from " + one.master.Host)
	two.until("the changes are listed", `document.querySelectorAll("#moves tbody tr").length === 3`)
	two.picture("overview-after")
	// Who opens the page later sees them, too, and a key that waits.
	k, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	two.master.Write(pki+"minions_pre/new", string(k.Public().PEM()))
	two.Run(nil, `location.reload();`)
	two.until("the earlier changes are listed", `document.querySelectorAll("#moves tbody tr").length === 3`)
	two.sees("key waits")

	// The page of a minion shows each of its changes of masters, and its masters now.
	two.page("#/minions/w1")
	two.until("its changes", `[...document.querySelectorAll("#connections tr[data-to]")].map((r) => r.cells[1].textContent).join() ===
		args[0] + ",first connection"`, one.master.Host)
	two.until("its masters", `document.querySelector("#connections tr[data-link=m2]").innerText.includes("connected") &&
		!document.querySelector("#connections tr[data-link='" + args[0] + "']").innerText.includes("\u2713")`, one.master.Host)
	two.page("#/overview")

	// A minion that stops is shown, too.
	nodes[2].Kill()
	two.held("m2", 2)
	two.sees("1 not connected")
	two.until("the banner says so", `document.querySelector("#banner").innerText.includes("1 minion is not connected")`)

	// A dismissed banner does not come back when the page reads the changes again.
	two.click("#dismiss")
	two.until("it is dismissed", `document.querySelector("#banner").hidden`)
	two.page("#/minions")
	two.page("#/overview")
	two.until("the changes are listed again", `document.querySelectorAll("#moves tbody tr").length === 3`)
	two.Run(nil, `const {takeMoves} = await import("./store.js");
		takeMoves([]);
		await new Promise((r) => setTimeout(r, 200));`) // watchers are called within 50 ms
	two.until("it stays dismissed", `document.querySelector("#banner").hidden`)

	// The changes are there after the master was started again, also those of the minion that does not report them any more.
	two.master.Kill()
	two.master.Start()
	two.await()
	two.page("#/minions/w3")
	two.until("its changes before", `(document.querySelector("#sign-in") && location.reload(), [...document.querySelectorAll("#connections tr[data-to]")]
		.map((r) => r.cells[1].textContent).join() === args[0] + ",first connection")`, one.master.Host)
	two.clean("401")
}

// TestReconnect: a page continues when its server is back, and shows what has happened meanwhile.
// If the server does not come back, the page switches to another master.
func TestReconnect(t *testing.T) {
	b := browsertest.Start(t)
	one, two, _ := pair(t, b, "hot_masters: [OTHER]\n", "master_type: failover", "w1")
	b.Open(one.url + "/console/#/minions")
	one.enter()
	one.until("the list is there", `document.querySelector("tr[data-id=w1]")`)

	// The masters tell each other: each shows the keys of both.
	one.page("#/keys")
	one.until("the key at both masters", `[...document.querySelectorAll("tr[data-id=w1] [data-master] .hidden-text")].map((e) => e.textContent.trim()).join() ===
		"accepted,accepted"`)
	one.picture("keys-of-two")
	one.page("#/overview")
	one.until("how busy both are", `[...document.querySelectorAll("#band .row .load")].filter((e) => /CPU \d+ %.*heard/.test(e.textContent)).length === 2`)
	one.page("#/minions")
	one.until("the list is there", `document.querySelector("tr[data-id=w1]")`)

	// salt-api is back before or after the page tries another server: either way it is the page of
	// the same address.
	one.Run(nil, `window.same = true;`)
	one.api.Kill()
	one.sees("connection lost")
	one.api.Launch()
	one.until("the stream is open again", `document.getElementById("connection").textContent.includes("live") || location.origin !== args[0]`, one.url)
	if one.text(`location.origin === "`+one.url+`" && window.same`) == "true" {
		one.until("the list is there", `document.querySelector("tr[data-id=w1]")`)
	} else {
		b.Open(one.url + "/console/#/minions") // salt-api was slow: the other server had answered
		one.until("the list is there", `document.querySelector("tr[data-id=w1]")`)
	}

	one.api.Kill()
	one.master.Kill()
	one.until("the page of the other master", `location.origin === args[0] && location.hash === "#/minions" && document.querySelector("#sign-in")`, two.url)
	two.enter()
	two.until("the list is there", `document.querySelector("tr[data-id=w1]")`)
	two.sees("m2")
	for _, m := range two.Messages() {
		if strings.Contains(m.Text, "Content Security Policy") {
			t.Errorf("the browser: %s", m.Text)
		}
	}
}
