package federation

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"brine/internal/net/crypt"
	"brine/internal/net/sealed"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// ledger is a command that appends a word to a file of the minion, and takes a while.
func ledger(word string, seconds float64) string {
	return fmt.Sprintf("echo %s >> /proc/$PPID/cwd/ran; sleep %v; echo %[1]s", word, seconds)
}

// times returns how often a minion ran a word.
func (f *fleet) times(id, word string) (n int) {
	b, _ := os.ReadFile(f.minions[id].Path("ran"))
	for _, w := range strings.Fields(string(b)) {
		if w == word {
			n++
		}
	}
	return n
}

// begun waits until a minion has begun a word.
func (f *fleet) begun(id, word string) {
	f.t.Helper()
	eventually.Nil(f.t, limit, id+" begins "+word, func() error {
		if f.times(id, word) == 0 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}

// isComplete waits until the summary of a job at a site is final, with one successful minion.
func (f *fleet) isComplete(jid, site string) {
	f.t.Helper()
	eventually.Nil(f.t, limit, "the summary of "+jid+" at "+site, func() error {
		all, err := f.job(jid)
		if s := all[site]; err == nil && (s.State != "stored" || !s.Final || s.OK != 1) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
}

// returns reads the returns of a job above.
func (f *fleet) returns(jid string) (rets map[string]any, err error) {
	out, errs, _ := f.above.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
	if err := json.Unmarshal([]byte(out), &rets); err != nil {
		return nil, fmt.Errorf("%s %s %w", out, errs, err)
	}
	return rets, nil
}

// TestSites: what users see of sites, and what broken and hostile ones can do.
func TestSites(t *testing.T) {
	tools.Slow(t)
	f := newFleet(t)
	f.above.Kill()
	f.above.Write("master", f.above.Read("master")+"external_auth: {auto: {ann: [{meu: ['test.*']}]}}\n")
	f.above.Start()
	f.addSite("eu", "meu")
	f.addSite("us", "mus")
	if err := f.above.PingOnly(brine, "meu", "mus"); err != nil {
		t.Fatal(err)
	}
	t.Run("limited", f.limited)
	t.Run("summary", f.summary)
	t.Run("events", f.events)
	t.Run("replayed", f.replayed)
	t.Run("restored site", f.restoredSite)
	t.Run("restored above", f.restoredAbove)
	t.Run("status", f.status)
}

// limited: a user of the master above has its permissions at the sites, and no others.
func (f *fleet) limited(t *testing.T) {
	ann := func(args ...string) string {
		out, errs, _ := f.above.Run(brine, "salt", append([]string{"-a", "auto", "--username=ann", "--password=x", "-t", "5"}, args...)...)
		return out + errs
	}
	eventually.Nil(t, limit, "ann may ping meu", func() error {
		if out := ann("meu", "test.ping"); !strings.Contains(out, "True") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	for _, args := range [][]string{{"mus", "test.ping"},
		{"meu", "cmd.run", ledger("ann", 0)}, {"-C", "site:us", "test.ping"}, {"*", "cmd.run", ledger("ann", 0)}} {
		if out := ann(args...); strings.Contains(out, "True") {
			t.Errorf("ann may run %v: %s", args, out)
		}
	}
	if err := f.above.PingOnly(brine, "meu", "mus"); err != nil { // after it, nothing of ann's is under way
		t.Error(err)
	}
	if n := f.times("meu", "ann") + f.times("mus", "ann"); n > 0 {
		t.Errorf("a command of ann ran %d times", n)
	}
}

// summary: with --site-summary no returns travel until they are asked for.
func (f *fleet) summary(t *testing.T) {
	out, errs, code := f.above.Run(brine, "salt", "--site-summary", "--show-jid", "--out=json", "-t", "60", "*", "test.echo", "word")
	first, rest, _ := strings.Cut(out, "\n")
	jid := strings.TrimSpace(strings.TrimPrefix(first, "jid:"))
	var sites map[string]siteJob
	if err := json.Unmarshal([]byte(rest), &sites); err != nil || code != 0 || sites["eu"].OK != 1 || sites["us"].OK != 1 || !sites["us"].Final {
		t.Fatalf("%d %s %s %v", code, out, errs, err)
	}
	if rets, err := f.returns(jid); err != nil || len(rets) != 0 {
		t.Errorf("returns above: %v %v", rets, err)
	}
	out, errs, _ = f.above.Run(brine, "salt-run", "--out=json", "federation.returns", jid, "timeout=60")
	var rets map[string]any
	if err := json.Unmarshal([]byte(out), &rets); err != nil || len(rets) != 2 || rets["meu"] != "word" || rets["mus"] != "word" {
		t.Errorf("%s %s %v", out, errs, err)
	}
	if out, errs, code := f.above.Run(brine, "salt", "--site-summary", "-t", "60", "-C", "site:us", "test.fail"); code == 0 || strings.Contains(out, "eu:") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// events: a site sends those events up that its option names.
func (f *fleet) events(t *testing.T) {
	m := f.sites["eu"]
	before := m.Read("master")
	m.Kill()
	m.Write("master", before+"federation_events: ['deploy/*']\n")
	m.Start()
	eventually.Nil(t, limit, "the site is back", func() error { return f.above.PingOnly(brine, "meu") })
	events := f.above.Tagged("salt/site/")
	eventually.Nil(t, limit, "an event arrives above", func() error {
		for _, n := range []*daemontest.Node{m, f.sites["us"]} {
			for _, tag := range []string{"other/x", "deploy/" + n.Name} {
				if out, errs, code := n.Run(brine, "salt-run", "event.send", tag, `{"a": "b"}`); code != 0 {
					return fmt.Errorf("%s %s", out, errs)
				}
			}
		}
		if all := events(); !strings.Contains(all, "salt/site/eu/deploy/eu\t") || !strings.Contains(all, `"b"`) {
			return fmt.Errorf("%s", all)
		}
		return nil
	})
	if all := events(); strings.Contains(all, "other/x") || strings.Contains(all, "deploy/us") {
		t.Errorf("events that no option names: %s", all)
	}
}

// replayed: a hostile bus repeats messages, in another order, later, and with changes.
func (f *fleet) replayed(t *testing.T) {
	key, err := crypt.LoadPrivate(f.above.Path("etc/salt/pki/master/master.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	c := f.client(t, "hub", sealed.NewSealer("hub", sealed.Hub, func() *crypt.PrivateKey { return key }))
	all, err := c.SubscribeSync("brine.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	jid := f.give("--expire", "10m", "meu", "cmd.run", ledger("replayed", 0))
	f.isComplete(jid, "eu")
	var seen []*nats.Msg
	for {
		m, err := all.NextMsg(200 * time.Millisecond)
		if err != nil {
			break
		}
		if strings.HasSuffix(m.Subject, ".eu") {
			seen = append(seen, m)
		}
	}
	if len(seen) < 4 {
		t.Fatalf("%d messages", len(seen))
	}
	before := f.above.Log()
	for i := range 3 * len(seen) {
		m := seen[(len(seen) - 1 - i%len(seen))]
		data := append([]byte(nil), m.Data...)
		if i >= 2*len(seen) {
			data[len(data)/2]++ // forged
		}
		if err := c.Publish(m.Subject, data); err != nil {
			t.Fatal(err)
		}
	}
	for _, data := range [][]byte{nil, []byte("x"), make([]byte, 8<<20), []byte(strings.Repeat("\x91", 100_000))} { // also large and deeply nested
		for _, subject := range []string{"brine.cmd.eu", "brine.down.eu", "brine.up.eu", "brine.sum.eu", "brine.kept.eu", "brine.hello.eu", "brine.all"} {
			if err := c.Publish(subject, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	eventually.Nil(t, limit, "the master above refuses a changed message", func() error {
		if !strings.Contains(strings.TrimPrefix(f.above.Log(), before), "refused a message of a site") {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	if page := get(t, "http://"+f.above.Host+":9175/metrics"); strings.Contains(page, "brine_federation_returns_total 0\n") ||
		strings.Contains(page, "brine_federation_summaries_total 0\n") {
		t.Errorf("no metrics of returns and summaries:\n%s", page)
	}
	eventually.Nil(t, limit, "refused messages are counted", func() error {
		if page := get(t, "http://"+f.above.Host+":9175/metrics"); strings.Contains(page, "brine_federation_refused_total 0\n") {
			return fmt.Errorf("%s", page)
		}
		return nil
	})
	eventually.Nil(t, limit, "both still work", func() error { return f.above.PingOnly(brine, "meu", "mus") })
	f.isComplete(jid, "eu")
	if n := f.times("meu", "replayed"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
}

// snapshot copies the directory of a daemon, and returns what restores it.
func snapshot(t *testing.T, n *daemontest.Node, path string) (restore func()) {
	t.Helper()
	to := filepath.Join(daemontest.ShortDir(t), "copy")
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	run("cp", "-a", n.Path(path), to)
	return func() {
		t.Helper()
		if err := os.RemoveAll(n.Path(path)); err != nil {
			t.Fatal(err)
		}
		run("cp", "-a", to, n.Path(path))
	}
}

const cachePath = "var/cache/salt/master"

// restoredSite: the disk of a site is set back to a copy from before some commands. The one that was
// not complete is given again under its id, so that the minion does not run it again; one that has
// expired is reported as lost.
func (f *fleet) restoredSite(t *testing.T) {
	m := f.sites["us"]
	m.Kill()
	restore := snapshot(t, m, cachePath)
	m.Start()
	eventually.Nil(t, limit, "the site is back", func() error { return f.above.PingOnly(brine, "mus") })
	done := f.give("--expire", "10m", "mus", "cmd.run", ledger("done", 0))
	f.isComplete(done, "us")
	open := f.give("--expire", "10m", "mus", "cmd.run", ledger("open", 4))
	lost := f.give("--expire", "1", "mus", "cmd.run", ledger("lost", 4))
	expired := time.Now().Add(time.Second)
	f.begun("mus", "open")
	f.begun("mus", "lost")
	m.Kill()
	restore()
	time.Sleep(time.Until(expired))
	m.Start()
	f.isComplete(open, "us")
	eventually.Nil(t, limit, "the other one is lost", func() error {
		all, err := f.job(lost)
		if err == nil && (all["us"].State != "lost" || !strings.Contains(all["us"].Reason, "does not know it any more")) {
			err = fmt.Errorf("%+v", all)
		}
		return err
	})
	f.isComplete(done, "us")
	for _, word := range []string{"done", "open", "lost"} {
		if n := f.times("mus", word); n != 1 {
			t.Errorf("%s ran %d times", word, n)
		}
	}
}

// restoredAbove: the disk of the master above is set back to a copy from before a command was
// confirmed, and from before another one was given.
func (f *fleet) restoredAbove(t *testing.T) {
	m := f.sites["us"]
	m.Kill()
	jid := f.give("--expire", "10m", "mus", "cmd.run", ledger("again", 0))
	f.above.Kill()
	restore := snapshot(t, f.above, cachePath)
	f.above.Start()
	m.Start()
	f.isComplete(jid, "us")
	later := f.give("--expire", "10m", "mus", "cmd.run", ledger("later", 0))
	f.isComplete(later, "us")
	open := f.give("--expire", "10m", "mus", "cmd.run", ledger("unfinished", 5))
	f.begun("mus", "unfinished")
	f.above.Kill()
	restore()
	f.above.Start()
	f.isComplete(jid, "us")
	f.isComplete(open, "us")
	eventually.Nil(t, limit, "the return of the command that was open is above", func() error {
		rets, err := f.returns(open)
		if err == nil && rets["mus"] != "unfinished" {
			err = fmt.Errorf("%v", rets)
		}
		return err
	})
	eventually.Nil(t, limit, "the return is above again", func() error {
		rets, err := f.returns(jid)
		if err == nil && rets["mus"] != "again" {
			err = fmt.Errorf("%v", rets)
		}
		return err
	})
	if _, err := f.job(later); err == nil {
		t.Errorf("the master above knows a command that it has lost")
	}
	if out, _, _ := m.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", later); !strings.Contains(out, "later") {
		t.Errorf("the site does not have the return: %s", out)
	}
	for _, word := range []string{"again", "later", "unfinished"} {
		if n := f.times("mus", word); n != 1 {
			t.Errorf("%s ran %d times", word, n)
		}
	}
}

// status: manage.status, federation.sites and the metrics above show the minions of sites, and what
// waits for one that is unreachable.
func (f *fleet) status(t *testing.T) {
	type lists struct{ Up, Down []string }
	status := func() (all struct {
		lists
		Sites map[string]lists
	}, err error) {
		out, errs, _ := f.above.Run(brine, "salt-run", "--out=json", "manage.status", "timeout=5", "gather_job_timeout=2")
		if err = json.Unmarshal([]byte(out), &all); err != nil {
			err = fmt.Errorf("%s %s %w", out, errs, err)
		}
		return all, err
	}
	eventually.Nil(t, limit, "all are up", func() error {
		all, err := status()
		if err == nil && fmt.Sprint(all) != "{{[meu mus] []} map[eu:{[meu] []} us:{[mus] []}]}" {
			err = fmt.Errorf("%v", all)
		}
		return err
	})
	f.atSite(t)
	eventually.Nil(t, limit, "the bus counts its clients", func() error {
		page := get(t, "http://"+f.buses[0].Host+":9180/metrics")
		for _, line := range []string{`brine_hub_connections{role="above"} 1`, `brine_hub_connections{role="site"} 2`, `brine_hub_connections{role="pending"} 0`} {
			if !strings.Contains(page, line+"\n") {
				return fmt.Errorf("no %s:\n%s", line, page)
			}
		}
		return nil
	})
	f.sites["us"].Kill()
	f.give("--expire", "10m", "mus", "test.ping")
	eventually.Nil(t, limit, "one is down", func() error {
		all, err := status()
		if err == nil && fmt.Sprint(all) != "{{[meu] [mus]} map[eu:{[meu] []} us:{[] [mus]}]}" {
			err = fmt.Errorf("%v", all)
		}
		return err
	})
	eventually.Nil(t, limit, "the site counts as unreachable", func() error {
		out, errs, _ := f.above.Run(brine, "salt-run", "--out=json", "federation.sites")
		var all map[string]struct {
			Connected               bool
			Waiting, Silent, Oldest int
			Seen                    string
			Lag                     float64
		}
		err := json.Unmarshal([]byte(out), &all)
		if us, eu := all["us"], all["eu"]; err != nil || us.Connected || us.Waiting < 1 || us.Silent < 1 || us.Seen == "" || !eu.Connected || eu.Waiting != 0 {
			return fmt.Errorf("%s %s %w", out, errs, err)
		}
		page := get(t, "http://"+f.above.Host+":9175/metrics")
		for _, line := range []string{`brine_federation_sites{state="accepted"} 2`, `brine_federation_sites{state="connected"} 1`, "brine_federation_connected 1",
			`brine_federation_commands{site="eu",state="waiting"} 0`} {
			if !strings.Contains(page, line+"\n") {
				return fmt.Errorf("no %s:\n%s", line, page)
			}
		}
		for _, line := range []string{`brine_federation_commands{site="us",state="waiting"} 0`, "brine_federation_oldest_command_seconds 0"} {
			if strings.Contains(page, line+"\n") {
				return fmt.Errorf("%s:\n%s", line, page)
			}
		}
		return nil
	})
	f.sites["us"].Start()
	eventually.Nil(t, limit, "all are up again", func() error { return f.above.PingOnly(brine, "meu", "mus") })
}

// atSite: the metrics of a site show what waits there while the master above is down.
func (f *fleet) atSite(t *testing.T) {
	m := f.sites["eu"]
	m.Kill()
	m.Write("master", m.Read("master")+"metrics_address: "+m.Host+":9175\n")
	m.Start()
	shows := func(what string, open, returns int, old bool) {
		t.Helper()
		eventually.Nil(t, limit, what, func() error {
			page := get(t, "http://"+m.Host+":9175/metrics")
			if !strings.Contains(page, fmt.Sprintf("brine_federation_site_open_jobs %d\n", open)) ||
				!strings.Contains(page, fmt.Sprintf("brine_federation_site_waiting_returns %d\n", returns)) ||
				strings.Contains(page, "brine_federation_site_oldest_seconds 0\n") == old {
				return fmt.Errorf("%s", page)
			}
			return nil
		})
	}
	shows("nothing waits", 0, 0, false)
	gate := filepath.Join(t.TempDir(), "gate")
	jid := f.give("--expire", "10m", "meu", "cmd.run", "while [ ! -e "+gate+" ]; do sleep 0.1; done")
	shows("a job is open", 1, 0, true)
	f.above.Kill()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shows("a return waits", 1, 1, true)
	f.above.Start()
	f.isComplete(jid, "eu")
	shows("nothing waits any more", 0, 0, false)
}

// get reads a page of a daemon, which may be starting.
func get(t *testing.T, url string) (page string) {
	t.Helper()
	eventually.Nil(t, limit, url+" answers", func() error {
		r, err := http.Get(url)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		page = string(b)
		return err
	})
	return page
}
