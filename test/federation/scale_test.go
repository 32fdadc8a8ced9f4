package federation

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/ha/federation"
	"brine/internal/net/crypt"
	"brine/internal/net/sealed"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// simulatedSites is how many sites TestManyMinions has.
const simulatedSites = 20

// simulated is the master of a site whose minions answer every command at once, with ten kinds of
// answers. What it sends to the hub is what a master sends.
type simulated struct {
	site *federation.Site
	ids  []string

	mu   sync.Mutex
	jobs map[string]bool
	runs int // commands that it published
}

// Publish implements federation.SiteHost.
func (m *simulated) Publish(c *wire.SiteCommand) (minions, missing []string, err error) {
	m.mu.Lock()
	m.jobs[c.JID] = true
	m.runs++
	m.mu.Unlock()
	go func() {
		for i, id := range m.ids {
			m.site.Returned(c.JID, id, m.ret(i))
		}
	}()
	return m.ids, nil, nil
}

func (m *simulated) ret(i int) *value.Dict {
	return value.DictOf("return", fmt.Sprintf("%-256s", fmt.Sprint("answer ", i%10)), "retcode", int64(0), "success", true)
}

// Job implements federation.SiteHost.
func (m *simulated) Job(jid string) ([]string, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.jobs[jid] {
		return nil, false, nil
	}
	return m.ids, true, nil
}

// Returns implements federation.SiteHost.
func (m *simulated) Returns(string) (map[string]*value.Dict, error) {
	out := make(map[string]*value.Dict, len(m.ids))
	for i, id := range m.ids {
		out[id] = m.ret(i)
	}
	return out, nil
}

// Leads implements federation.SiteHost.
func (m *simulated) Leads() bool { return true }

// Shared implements federation.SiteHost.
func (m *simulated) Shared() bool { return false }

// Claim implements federation.SiteHost.
func (m *simulated) Claim(context.Context, string) (bool, error) { return true, nil }

// Presence implements federation.SiteHost.
func (m *simulated) Presence() (accepted, connected int) { return len(m.ids), len(m.ids) }

// spent is the CPU time of a process so far.
func spent(t *testing.T, n *daemontest.Node) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	user, err := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// TestManyMinions has 20 sites, whose masters and minions are simulated in this process, a master above
// and a brine-hub as processes. Commands go to all, with summaries and with returns; then brine-hub is
// killed and started, and a site is cut off while a command is given. BRINE_FEDERATION_MINIONS is the
// number of minions, and BRINE_FEDERATION_CUT how long the site is cut off. It prints the CPU time of
// the hub for each return.
func TestManyMinions(t *testing.T) {
	tools.Slow(t)
	count, cut := 4000, 2*time.Second
	if text := os.Getenv("BRINE_FEDERATION_MINIONS"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil || count < simulatedSites {
			t.Fatalf("BRINE_FEDERATION_MINIONS=%q is not a number of minions", text)
		}
	}
	if text := os.Getenv("BRINE_FEDERATION_CUT"); text != "" {
		var err error
		if cut, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	linkHost := daemontest.Host()
	f := newFleetWith(t, "tls_names: ['"+linkHost+"']\n")
	bus := f.buses[0]
	far := newLink(t, linkHost, fmt.Sprintf("%s:%d", bus.Host, daemontest.HubPort))
	sites := map[string]*simulated{}
	dir := t.TempDir() // removed after what follows has ended
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	t.Cleanup(func() { stop(); work.Wait() })
	for i := range simulatedSites {
		name := fmt.Sprintf("s%02d", i)
		k, err := crypt.GenerateKey(2048)
		if err != nil {
			t.Fatal(err)
		}
		f.above.Write("etc/salt/pki/master/sites/minions/"+name, string(k.Public().PEM()))
		m := &simulated{jobs: map[string]bool{}}
		for j := range count / simulatedSites {
			m.ids = append(m.ids, fmt.Sprintf("%s-m%05d", name, j))
		}
		host := bus.Host
		if i == 0 {
			host = linkHost
		}
		m.site, err = federation.NewSite(federation.SiteConfig{
			Name: name, Master: name, Version: "simulated", Path: filepath.Join(dir, name+".db"),
			Key:    sealed.NewSealer(name, sealed.Site, func() *crypt.PrivateKey { return k }),
			Bus:    federation.BusOptions{URLs: []string{fmt.Sprintf("tls://%s:%d", host, daemontest.HubPort)}, CAFile: bus.Path("data/hub.crt")},
			Trusts: func(finger string) bool { return finger == f.finger }, Keep: time.Hour, Host: m, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		sites[name] = m
		work.Go(func() {
			if err := m.site.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	count = count / simulatedSites * simulatedSites
	up := func(want int) {
		t.Helper()
		eventually.Nil(t, limit, "the sites are connected", func() error {
			out, errs, _ := f.above.Run(brine, "salt-run", "federation.sites")
			if n := strings.Count(out, "connected:\n        True"); n != want {
				return fmt.Errorf("%d sites: %s %s", n, out[:min(len(out), 500)], errs)
			}
			return nil
		})
	}
	up(simulatedSites)

	above := commander(t, f.above)
	give := func(summary bool) (jid string, began time.Time) {
		jid, began = salt.NewJID(time.Now()), time.Now()
		kwargs := value.DictOf("expire", int64(3600))
		if summary {
			kwargs.Set("site_summary", true)
		}
		if _, err := above.Publish(t.Context(), client.Job{Target: "*", Type: "glob", Fun: "test.ping", JID: jid, Kwargs: kwargs}); err != nil {
			t.Fatal(err)
		}
		return jid, began
	}
	complete := func(jid string, returns int) {
		t.Helper()
		eventually.Nil(t, 2*limit, "the job "+jid+" is complete", func() error {
			all, err := f.job(jid)
			if err != nil {
				return err
			}
			for name, m := range sites {
				if s := all[name]; !s.Final || s.OK != len(m.ids) || s.Targeted != len(m.ids) {
					return fmt.Errorf("%s: %+v", name, s)
				}
			}
			if returns == 0 {
				return nil
			}
			page := get(t, "http://"+f.above.Host+":9175/metrics")
			_, rest, _ := strings.Cut(page, "\nbrine_federation_returns_total ")
			line, _, _ := strings.Cut(rest, "\n")
			if n, err := strconv.ParseFloat(line, 64); err != nil || int(n) < returns {
				return fmt.Errorf("%q returns of %d", line, returns)
			}
			return nil
		})
	}
	// measured returns what the hub spends for what do does.
	measured := func(what string, returns int, do func()) {
		t.Helper()
		aboveBefore, busBefore, began := spent(t, f.above), spent(t, bus), time.Now()
		do()
		a, b := spent(t, f.above)-aboveBefore, spent(t, bus)-busBefore
		each := ""
		if returns > 0 {
			each = fmt.Sprintf(": %.2f µs for each of %d returns", float64((a+b).Microseconds())/float64(returns), returns)
		}
		t.Logf("%s took %.1f s and %v of the master above and %v of brine-hub%s", what, time.Since(began).Seconds(), a, b, each)
	}
	const commands = 5
	measured("5 commands with summaries", commands*count, func() {
		for range commands {
			jid, _ := give(true)
			complete(jid, 0)
		}
	})
	measured("a command with returns", count, func() {
		jid, _ := give(false)
		complete(jid, count)
	})
	measured("presence", 0, func() { time.Sleep(cut) })

	// The hub is killed while a command runs.
	jid, _ := give(true)
	bus.Kill()
	bus.Launch()
	complete(jid, 0)
	up(simulatedSites)
	// A site is cut off: the others answer, and the command waits for it.
	far.set(linkCut)
	eventually.Nil(t, limit, "the site loses its connection", func() error {
		if sites["s00"].site.Connected() {
			return fmt.Errorf("connected")
		}
		return nil
	})
	jid, began := give(true)
	eventually.Nil(t, limit, "the other sites are complete", func() error {
		all, err := f.job(jid)
		done := 0
		for _, s := range all {
			if s.Final {
				done++
			}
		}
		if err == nil && done != simulatedSites-1 {
			err = fmt.Errorf("%d sites", done)
		}
		return err
	})
	time.Sleep(cut - time.Since(began))
	back := time.Now()
	far.set(linkUp)
	complete(jid, 0)
	t.Logf("a site that was cut off for %.0f s has the command, and its summary is above, %.1f s later", cut.Seconds(), time.Since(back).Seconds())
	for name, m := range sites {
		m.mu.Lock()
		if m.runs != commands+3 {
			t.Errorf("%s published %d commands", name, m.runs)
		}
		m.mu.Unlock()
	}
}
