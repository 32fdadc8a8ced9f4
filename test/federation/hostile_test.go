package federation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"brine/internal/net/sealed"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// hostileBus is a NATS server that lets everyone do everything, and a client that sees all messages.
type hostileBus struct {
	server *natsserver.Server
	c      *nats.Conn

	mu   sync.Mutex
	seen []*nats.Msg
	more func(m *nats.Msg) // is called for each message
}

func newHostileBus(t *testing.T) (b *hostileBus, host string) {
	t.Helper()
	host = daemontest.Host()
	s, err := natsserver.NewServer(&natsserver.Options{Host: host, Port: natsPort, NoSigs: true, NoLog: true, MaxPayload: 4 << 20, AlwaysEnableNonce: true,
		JetStream: true, StoreDir: daemontest.ShortDir(t), JetStreamMaxStore: 4 << 30, JetStreamMaxMemory: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(limit) {
		t.Fatal("the server does not start")
	}
	b = &hostileBus{server: s}
	if b.c, err = nats.Connect(fmt.Sprintf("nats://%s:%d", host, natsPort), nats.NoEcho()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.c.Close)
	if _, err := b.c.Subscribe("brine.>", func(m *nats.Msg) {
		b.mu.Lock()
		b.seen = append(b.seen, m)
		more := b.more
		b.mu.Unlock()
		if more != nil {
			more(m)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return b, host
}

// messages returns what was seen below a subject.
func (b *hostileBus) messages(subjects ...string) (out []*nats.Msg) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.seen {
		for _, s := range subjects {
			if m.Subject == s {
				out = append(out, m)
			}
		}
	}
	return out
}

// forge publishes a message that is signed with a key.
func (b *hostileBus) forge(t *testing.T, s *sealed.Sealer, subject, kind, to string, data any) {
	t.Helper()
	text, err := s.Seal(kind, to, data)
	if err == nil {
		err = b.c.Publish(subject, text)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// breakConnections breaks the connections of all others every three seconds, so that they repeat what is
// not confirmed without a long pause.
func (b *hostileBus) breakConnections(end <-chan struct{}) {
	tick := time.NewTicker(3 * time.Second)
	defer tick.Stop()
	own, _ := b.c.GetClientID() // connected
	for {
		select {
		case <-end:
			return
		case <-tick.C:
		}
		all, err := b.server.Connz(nil)
		if err != nil {
			continue
		}
		for _, c := range all.Conns {
			if c.Cid != own {
				_ = b.server.DisconnectClientByID(c.Cid) // it is gone otherwise
			}
		}
	}
}

// TestHostileBus: a bus drops, repeats and delays messages, breaks connections, carries messages of a site to places that are
// for others, and repeats commands to other sites and after their end. No rule of it protects anyone.
func TestHostileBus(t *testing.T) {
	tools.Slow(t)
	b, host := newHostileBus(t)
	f := &fleet{t: t, sites: map[string]*daemontest.Node{}, minions: map[string]*daemontest.Node{}}
	f.above = daemontest.NewMaster(t, brine, "above", daemontest.Host(), "")
	f.finger = keyPair(t, f.above)
	f.conf = fmt.Sprintf("federation_urls: ['nats://%s:%d']\n", host, natsPort)
	f.above.Write("master", f.above.Read("master")+f.conf+"federation_hub: true\n")
	f.above.Start()
	f.addSite("eu", "meu")
	f.addSite("us", "mus")

	old := f.give("--expire", "1", "meu", "cmd.run", ledger("old", 0))
	expired := time.Now().Add(time.Second)
	f.isComplete(old, "eu")

	// A third of all messages is lost, others come twice, or much later.
	account := b.server.GlobalAccount()
	for _, subject := range []string{"brine.cmd.*", "brine.down.*", "brine.up.*", "brine.sum.*"} {
		kept := strings.TrimSuffix(subject, "*") + "{{wildcard(1)}}"
		if err := account.AddWeightedMappings(subject, natsserver.NewMapDest(kept, 66), natsserver.NewMapDest("lost.{{wildcard(1)}}", 34)); err != nil {
			t.Fatal(err)
		}
	}
	var late sync.WaitGroup
	b.mu.Lock()
	b.more = func(m *nats.Msg) {
		if n := rand.N(10); n < 4 {
			late.Add(1)
			time.AfterFunc(time.Duration(n)*300*time.Millisecond, func() { defer late.Done(); _ = b.c.Publish(m.Subject, m.Data) })
		}
	}
	b.mu.Unlock()
	given := commands{}
	for i := range 10 {
		word := fmt.Sprint("word", i)
		given[word] = f.give("--expire", "10m", "*", "cmd.run", ledger(word, 0))
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); b.breakConnections(end) }()
	f.complete(given, limit, "eu", "us")
	close(end)
	<-ended
	b.mu.Lock()
	b.more = nil
	b.mu.Unlock()
	for _, subject := range []string{"brine.cmd.*", "brine.down.*", "brine.up.*", "brine.sum.*"} {
		account.RemoveMapping(subject)
	}
	late.Wait()

	// The site us has a key that is accepted, and may send what it likes.
	key := keyOf(t, f.sites["us"])
	only := f.give("-C", "site:eu", "test.echo", "word")
	f.isComplete(only, "eu")
	for _, role := range []string{sealed.Site, sealed.Hub} {
		for _, name := range []string{"us", "eu", "hub"} {
			s := sealed.NewSealer(name, role, key)
			for _, subject := range []string{"brine.up.eu", "brine.sum.eu", "brine.up.us", "brine.sum.us", "brine.kept.HUB+"} {
				b.forge(t, s, subject, "summary", "", wire.SiteSummary{JID: only, Version: 99, Final: true, Targeted: 9, OK: 7, Failed: 2})
				b.forge(t, s, subject, "stored", "", wire.SiteStored{JID: only, Refused: "forged"})
				b.forge(t, s, subject, "command", "eu", wire.SiteCommand{JID: "20300101000000000000", Tgt: "*", TgtType: "glob", Fun: "cmd.run",
					Arg: value.ListOf(ledger("forged", 0)), Expires: time.Now().Add(time.Hour).UnixMilli()})
			}
			for _, subject := range []string{"brine.cmd.eu", "brine.down.eu", "brine.kept.eu", "brine.all"} {
				b.forge(t, s, subject, "command", "eu", wire.SiteCommand{JID: "20300101000000000001", Tgt: "*", TgtType: "glob", Fun: "cmd.run",
					Arg: value.ListOf(ledger("forged", 0)), Expires: time.Now().Add(time.Hour).UnixMilli()})
				b.forge(t, s, subject, "confirmed", "eu", wire.SiteConfirmed{JID: only, Version: 99, Counted: 99, Final: true})
			}
		}
	}
	// Commands of the master above, which is believed: to another site, and after their end.
	commands := b.messages("brine.cmd.eu", "brine.down.eu")
	if len(commands) < 10 {
		t.Fatalf("%d commands were seen", len(commands))
	}
	for _, m := range commands {
		for _, subject := range []string{"brine.cmd.us", "brine.down.us", "brine.kept.us"} {
			if err := b.c.Publish(subject, m.Data); err != nil {
				t.Fatal(err)
			}
		}
	}
	time.Sleep(time.Until(expired))
	m := f.sites["eu"]
	m.Kill()
	m.Start()
	eventually.Nil(t, limit, "the site is back", func() error { return f.above.PingOnly(brine, "meu") })
	for range 2 {
		for _, m := range commands {
			if err := b.c.Publish("brine.down.eu", m.Data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.c.Flush(); err != nil {
		t.Fatal(err)
	}
	logs(t, f.sites["us"], 0, "refused a message of the hub")
	logs(t, f.above, 0, "refused a message of a site")
	// Later messages of one client arrive after these.
	last := f.give("--expire", "10m", "*", "cmd.run", ledger("last", 0))
	f.complete(map[string]string{"last": last}, limit, "eu", "us")
	f.complete(given, limit, "eu", "us")
	all, err := f.job(only)
	if _, us := all["us"]; err != nil || us || all["eu"].OK != 1 || all["eu"].Failed != 0 || all["eu"].Targeted != 1 || all["eu"].State != "stored" {
		t.Errorf("%+v %v", all, err)
	}
	for word, want := range map[string]int{"old": 1, "forged": 0} {
		if n := f.times("meu", word); n != want {
			t.Errorf("meu ran %s %d times", word, n)
		}
		if n := f.times("mus", word); n != 0 {
			t.Errorf("mus ran %s %d times", word, n)
		}
	}
}
