package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/net/crypt"
	"brine/test/browsertest"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// token signs a user in without a browser.
func (s *stage) token(user string) string {
	s.t.Helper()
	resp, err := http.PostForm(s.url+"/login", url.Values{"username": {user}, "password": {"s3cret"}, "eauth": {"sharedsecret"}})
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.Header.Get("X-Auth-Token")
}

// request sends a request without a browser.
func (s *stage) request(method, path, token string) (status int, body string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("X-Auth-Token", token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestCluster: the console of any member shows all members and their minions. A key that
// is accepted there is accepted at all members, and a member that dies is shown with its
// minions at the others.
func TestCluster(t *testing.T) {
	b := browsertest.Start(t)
	hosts := []string{daemontest.Host(), daemontest.Host(), daemontest.Host()}
	var masters []*daemontest.Node
	for i, host := range hosts {
		peers := slices.Delete(slices.Clone(hosts), i, i+1)
		text := configure(t, host) + "cluster_id: shown\ncluster_isolated_filesystem: True\ncluster_secret: 7ef7697a5ec2e70f7e5755ecd0123456\napproval_above: 1\n" +
			fmt.Sprintf("cluster_peers: [%s]\n", strings.Join(peers, ", "))
		masters = append(masters, daemontest.NewMaster(t, daemontest.Brine, host, host, text).Launch())
	}
	for _, m := range masters {
		m.Await()
	}
	third := &stage{b, t, masters[2], daemontest.NewAPI(masters[2]).Launch(), fmt.Sprintf("http://%s:%d", hosts[2], port)}
	third.await()
	for _, id := range []string{"w1", "w2"} {
		daemontest.NewMinion(t, daemontest.Brine, id, hosts, "master_type: cluster").Start()
	}
	b.Open(third.url + "/console/#/keys")
	third.enter()
	for _, id := range []string{"w1", "w2"} {
		third.click(`section[data-state=minions_pre] tr[data-id=` + id + `] button.accept`)
		third.until("the question", `document.querySelector("dialog[open] #fingerprint")`)
		third.click("dialog .confirm")
		third.until(id+" is accepted", `document.querySelector("section[data-state=minions] tr[data-id=" + args[0] + "]")`, id)
	}
	for _, m := range masters {
		eventually.Nil(t, time.Minute, "the keys are accepted at "+m.Name, func() error {
			keys, err := m.Keys()
			if err == nil && !slices.Equal(keys["minions"], []string{"w1", "w2"}) {
				err = fmt.Errorf("%v", keys)
			}
			return err
		})
	}
	third.page("#/overview")
	third.until("three masters hold two minions", `document.querySelectorAll("#band .row.up").length === 3 &&
		[...document.querySelectorAll("#band .row")].reduce((n, r) => n + Number(r.dataset.count), 0) === 2`)
	holder := third.text(`[...document.querySelectorAll("#band .row")].sort((a, b) => b.dataset.count - a.dataset.count)[0].dataset.master`)
	third.until("each says how busy it is, with its version and start", `[...document.querySelectorAll("#band .row")].every((r) =>
		/CPU \d+ % of a core, machine \d+ % of \d+ core.*memory \d+ MB of .*requests a second.*heard/.test(r.querySelector(".load").textContent) &&
		/^Brine \S+, since /.test(r.querySelector(".about").textContent))`)
	third.until("and one leads", `[...document.querySelectorAll("#band .id")].filter((e) => e.textContent.includes(" leads")).length === 1`)
	third.picture("cluster")
	i := slices.Index(hosts, holder)
	if i < 0 {
		t.Fatalf("the master %s holds most minions; there are %v", holder, hosts)
	}
	if i == 2 {
		i = 0 // the console is at the third
	}
	other := masters[1-min(i, 1)]
	otherAPI := &stage{b, t, other, daemontest.NewAPI(other).Launch(), fmt.Sprintf("http://%s:%d", other.Host, port)}
	otherAPI.await()

	// What users save is at all members.
	if got := third.call("POST", "../v1/saved", 1); got != 400 {
		t.Errorf("an empty request: %d", got)
	}
	third.page("#/run?tgt=w*")
	third.click(".save-target")
	third.set("#saved-name", "workers")
	third.click("#saved-public")
	third.click("dialog .confirm")
	eventually.Nil(t, time.Minute, "the target is at "+other.Name, func() error {
		out, errs, _ := other.Run(daemontest.Brine, "salt-run", "saved.list", "--out=json")
		if !strings.Contains(out, `"workers"`) {
			return errors.New(out + errs)
		}
		return nil
	})
	third.page("#/overview")
	masters[i].Kill()
	third.until("the member is down, and the others hold its minions", `[...document.querySelectorAll("#band .row.down")].map((r) => r.dataset.master + r.dataset.count).join() === args[0] + "0" &&
		[...document.querySelectorAll("#band .row")].reduce((n, r) => n + Number(r.dataset.count), 0) === 2`, hosts[i])

	// A job for two minions waits for a second user, who approves it at another salt-api.
	third.page("#/run?fun=test.ping")
	third.click("#start")
	third.until("it waits", `location.hash === "#/approvals" && document.querySelector("tr[data-state=waiting]")`)
	approve := func(user string, want int) {
		t.Helper()
		token := otherAPI.token(user)
		eventually.Nil(t, time.Minute, "the job waits at the other salt-api", func() error {
			status, body := otherAPI.request("GET", "/v1/approvals", token)
			var all struct{ Approvals []struct{ ID, State string } }
			if err := json.Unmarshal([]byte(body), &all); err != nil || len(all.Approvals) != 1 || all.Approvals[0].State != "waiting" ||
				strings.Contains(body, "token") {
				return fmt.Errorf("%d %s %v", status, body, err)
			}
			if status, body = otherAPI.request("POST", "/v1/approvals/"+all.Approvals[0].ID, token); status != want {
				t.Errorf("%s: %d %s, want %d", user, status, body, want)
			}
			return nil
		})
	}
	approve("admin", 409)
	approve("boss", 200)
	third.until("it is approved", `document.querySelector("tr[data-state=approved] a")`)
	third.click("tr[data-state=approved] a")
	third.sees("2 of 2 minions returned")
	eventually.Nil(t, time.Minute, "the job is known at the other member", func() error {
		out, errs, _ := masters[1-min(i, 1)].Run(daemontest.Brine, "salt-run", "jobs.list_jobs", "--out=json", "search_function=test.ping")
		if !strings.Contains(out, "test.ping") {
			return errors.New(out + errs)
		}
		return nil
	})
	third.clean("401", "400")
}

// TestHotKeys: one press accepts a minion's key at two hot masters, which no cluster connects.
func TestHotKeys(t *testing.T) {
	b := browsertest.Start(t)
	one, two, _ := pair(t, b, "hot_masters: [OTHER]\n", "")
	k, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*stage{one, two} {
		s.master.Write(pki+"minions_pre/new", string(k.Public().PEM()))
	}
	b.Open(two.url + "/console/")
	two.enter()
	two.page("#/keys")
	two.until("the key waits at both masters", `
		[...document.querySelectorAll("tr[data-id=new] [data-master]")].filter((e) => e.title.endsWith(": pending")).length === 2`)
	two.click("tr[data-id=new] button.accept")
	two.until("the question", `document.querySelector("dialog[open] #fingerprint").textContent === args[0]`, crypt.Fingerprint(k.Public().PEM(), "sha256"))
	two.click("dialog .confirm")
	two.until("it is accepted at both", `document.querySelector("section[data-state=minions] tr[data-id=new]") &&
		[...document.querySelectorAll("tr[data-id=new] [data-master]")].filter((e) => e.title.endsWith(": accepted")).length === 2`)
	for _, s := range []*stage{one, two} {
		eventually.Nil(t, time.Minute, "the key is accepted at "+s.master.Name, func() error {
			keys, err := s.master.Keys()
			if err == nil && !slices.Equal(keys["minions"], []string{"new"}) {
				err = fmt.Errorf("%v", keys)
			}
			return err
		})
	}
	two.clean("401")
}
