package federation

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/net/crypt"
	"brine/internal/net/sealed"
	"brine/internal/net/wire"
	"brine/test/daemontest"
	"brine/test/tools"
)

// latencyPairs is how many pings are sent at the site and from above, alternately.
const latencyPairs = 120

// TestLatency measures pings of one minion at its site and from above, alternately, and when the
// messages of those from above pass the bus. It prints medians, and bounds nothing.
func TestLatency(t *testing.T) {
	tools.Slow(t)
	f := newFleet(t, "eu")
	site, above := commander(t, f.sites["eu"]), commander(t, f.above)
	var atSite, fromAbove []time.Duration
	for range latencyPairs {
		_, took := ping(t, site)
		atSite = append(atSite, took)
		_, took = ping(t, above)
		fromAbove = append(fromAbove, took)
	}
	t.Logf("median of %d pings by a connected client: %v at the site, %v from above", latencyPairs, middle(atSite), middle(fromAbove))

	seen := f.spy(t) // takes CPU time itself
	fromAbove = nil
	steps := map[string][]time.Duration{}
	for range latencyPairs / 2 {
		began := time.Now()
		jid, took := ping(t, above)
		fromAbove = append(fromAbove, took)
		for _, kind := range []string{"command", "stored", "returns"} {
			if at := seen(jid, kind); !at.IsZero() {
				steps[kind] = append(steps[kind], at.Sub(began))
			}
		}
	}
	t.Logf("of %d pings from above, which took %v, the bus has the command after %v, the answer of the site after %v and the return after %v",
		len(fromAbove), middle(fromAbove), middle(steps["command"]), middle(steps["stored"]), middle(steps["returns"]))

	byProgram := map[*daemontest.Node][]time.Duration{}
	for range 21 {
		for _, n := range []*daemontest.Node{f.sites["eu"], f.above} {
			began := time.Now()
			if out, errs, _ := n.Run(brine, "salt", "meu", "test.ping"); !strings.Contains(out, "True") {
				t.Fatalf("%s %s", out, errs)
			}
			byProgram[n] = append(byProgram[n], time.Since(began))
		}
	}
	t.Logf("median of 21 pings of the program salt: %v at the site, %v from above", middle(byProgram[f.sites["eu"]]), middle(byProgram[f.above]))
}

func middle(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2].Round(10 * time.Microsecond)
}

// ping pings meu, and returns the job id.
func ping(t *testing.T, c *client.Client) (jid string, took time.Duration) {
	t.Helper()
	jid = salt.NewJID(time.Now())
	began := time.Now()
	_, rets, err := c.Call(t.Context(), client.Job{Target: "meu", Type: "glob", Fun: "test.ping", JID: jid})
	took = time.Since(began)
	if err != nil || len(rets) != 1 {
		t.Fatalf("%v %v", rets, err)
	}
	return jid, took
}

// spy returns when the first message of a kind about a job passed the bus.
func (f *fleet) spy(t *testing.T) func(jid, kind string) time.Time {
	t.Helper()
	key, err := crypt.LoadPrivate(f.above.Path("etc/salt/pki/master/master.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	c := f.client(t, "hub", sealed.NewSealer("hub", sealed.Hub, func() *crypt.PrivateKey { return key }))
	open := sealed.NewOpener(func(*sealed.Identity) error { return nil })
	var mu sync.Mutex
	first := map[string]time.Time{}
	if _, err := c.Subscribe("brine.>", func(m *nats.Msg) {
		now := time.Now()
		msg, err := open.Open(m.Data)
		if err != nil {
			return
		}
		var in wire.SiteAsk // the other messages about a job have its jid, too
		wire.View(msg.Data, &in)
		mu.Lock()
		defer mu.Unlock()
		if name := fmt.Sprint(in.JID, " ", msg.Kind); first[name].IsZero() {
			first[name] = now
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	return func(jid, kind string) time.Time {
		mu.Lock()
		defer mu.Unlock()
		return first[jid+" "+kind]
	}
}
