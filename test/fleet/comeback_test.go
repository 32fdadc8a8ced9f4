package fleet

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/daemons/master"
	"brine/internal/daemons/minion"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/test/eventually"
	"brine/test/tools"
)

// TestFleetComesBackAtASetRate restarts the only master of a hundred minions, which do not spread
// their sign-ins themselves. Afterwards each is soon usable again, and in no second are there more
// sign-ins than the master's sign_in_rate allows. The same holds for the first sign-ins.
func TestFleetComesBackAtASetRate(t *testing.T) {
	tools.Slow(t)
	const fleet, rate = 100, 30
	m := startMaster(t, "one", "zeromq", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		cfg.Channel.SignInRate = rate
		cfg.Options.GatherJobTimeout = 2 * time.Minute // jobs are kept for this time
	})
	key, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	first := m.events("salt/auth")
	for i := range fleet {
		startMinion(t, fmt.Sprintf("w%03d", i), "zeromq", []*theMaster{m}, func(cfg *minion.Config) {
			err := os.MkdirAll(cfg.PKIDir, 0o700)
			if err == nil {
				err = crypt.WriteKeyPair(cfg.PKIDir, "minion", key, "")
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	eventually.Nil(t, eventually.Limit, "all keys are accepted", func() error {
		ids, err := m.keys.Accepted()
		if len(ids) < fleet {
			return fmt.Errorf("%d of %d: %v", len(ids), fleet, err)
		}
		return nil
	})
	pingAll(t, m, fleet)
	checkRate(t, "at first", first, rate, fleet)

	m.stop()
	time.Sleep(time.Second) // until all have tried without effect
	m.start(slog.New(slog.NewTextHandler(m.log, nil)))
	back := m.events("salt/auth")
	start := time.Now()
	pingAll(t, m, fleet)
	t.Logf("%d minions were of use %v after the master was back", fleet, time.Since(start).Round(time.Millisecond))
	checkRate(t, "after the outage", back, rate, fleet)
}

// pingAll publishes test.ping, which is kept for minions that are not connected yet, and waits
// until all have returned.
func pingAll(t *testing.T, m *theMaster, fleet int) {
	t.Helper()
	events := m.events("salt/job/")
	jid := m.publish("glob", "*", "test.ping", "")
	rets := map[string]bool{}
	for late := time.After(2 * time.Minute); len(rets) < fleet; {
		select {
		case e := <-events:
			if strings.HasPrefix(e.Tag, "salt/job/"+jid+"/ret/") {
				rets[e.Data.Str("id")] = true
			}
		case <-late:
			t.Fatalf("%d of %d minions returned", len(rets), fleet)
		}
	}
}

// checkRate checks the times of all sign-ins so far. In any second there must be no more than the
// rate allows, plus a twentieth that may be caught up, and those in progress when the second began.
func checkRate(t *testing.T, when string, events <-chan *event.Event, rate, fleet int) {
	t.Helper()
	var at []time.Time
	for len(events) > 0 {
		e := <-events
		stamp, err := time.Parse("2006-01-02T15:04:05.000000", e.Data.Str("_stamp"))
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, stamp)
	}
	if len(at) < fleet {
		t.Errorf("%s: %d sign-ins of %d minions", when, len(at), fleet)
	}
	slices.SortFunc(at, time.Time.Compare)
	most := 0
	for i, from := range at {
		n := 0
		for n < len(at)-i && at[i+n].Sub(from) < time.Second {
			n++
		}
		most = max(most, n)
	}
	t.Logf("%s: %d sign-ins, at most %d in one second", when, len(at), most)
	if limit := rate + rate/20 + 8; most > limit {
		t.Errorf("%s: %d sign-ins in one second, with sign_in_rate %d", when, most, rate)
	}
}
