package master

import (
	"brine/internal/daemons/master/sinks"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/base/ratelimit"
	"brine/internal/base/target"
	"brine/internal/call/audit"
	"brine/internal/call/auth"
	"brine/internal/call/fn"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
	"brine/internal/sls/pillar/gitpillar"
	"brine/internal/store/cache"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
)

// parts are services of a master on stores in a test directory. No daemon runs,
// and no port is open.
type parts struct {
	t       *testing.T
	cfg     Config
	sent    *sentJobs
	limited *ratelimit.Log
	events  *event.Subscription
	store   *job.Store
	Master
}

// sentJobs is a publisher that records publications.
type sentJobs struct {
	transport.Publisher
	mu      sync.Mutex
	sent    []transport.Publication
	peers   []transport.Peer
	changes uint64
}

func (s *sentJobs) Publish(p transport.Publication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, p)
}

// take returns the receivers of each publication since the last call.
func (s *sentJobs) take() (out [][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.sent {
		out = append(out, p.Minions)
	}
	s.sent = nil
	return out
}

func (s *sentJobs) Peers() []transport.Peer { return s.peers }
func (s *sentJobs) Changes() uint64         { return s.changes }

// discard is a logger without output.
var discard = slog.New(slog.DiscardHandler)

// testKey is generated once, because that is slow.
var testKey = sync.OnceValues(func() (*crypt.PrivateKey, error) { return crypt.GenerateKey(2048) })

// newParts builds the services with these accepted minions. set changes options
// from their defaults.
func newParts(t *testing.T, minions []string, set func(*Config)) *parts {
	t.Helper()
	p := &parts{t: t, sent: &sentJobs{}}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := &p.cfg
	for _, o := range []any{&c.Options, &c.Auth, &c.Publish, &c.Keys, &c.Cache, &c.Client, &c.Jobs, &c.Returners, &c.Files, &c.Top, &c.Pillar, &c.EventReturn} {
		check(field.Defaults(o))
	}
	c.ID, c.User, c.PKIDir, c.CacheDir, c.Opts = "boss", "root", t.TempDir(), t.TempDir(), value.NewDict(0)
	c.Files.FileRoots = value.DictOf("base", value.ListOf(t.TempDir()))
	if set != nil {
		set(c)
	}
	m := &p.Master
	m.cfg, m.log = *c, discard
	p.limited = ratelimit.NewLog(discard, 10, time.Second)
	m.refusals = p.limited
	m.own.dir = t.TempDir()
	m.queue = newQueue(time.Now)
	m.pending = &pendingCount{rateLimitedLog: p.limited}
	m.local = localKeys{"root": "root's key", "ann": "ann's key", "eve": "eve's key"}
	var err error
	m.tokens, err = auth.OpenTokens(t.TempDir())
	check(err)
	m.keys, err = keystore.Open(c.PKIDir, discard)
	check(err)
	key, err := testKey()
	check(err)
	for _, id := range minions {
		check(m.keys.Put(keystore.Accepted, id, string(key.Public().PEM())))
	}
	m.identity = handshake.NewIdentity(key, nil)
	m.cache = cache.New(c.CacheDir, c.Cache, discard)
	m.audit, err = audit.Open(filepath.Join(t.TempDir(), "audit"), []byte("secret"))
	check(err)
	p.store, err = job.Open(t.TempDir(), c.Jobs, discard)
	check(err)
	m.jobs = p.store
	m.lastRuns = openLastStates(t.TempDir(), m.jobs, discard)
	t.Cleanup(func() { p.store.Close(); m.audit.Close(); m.cache.Close() })
	m.sinks, err = sinks.Open(m.sinkConfig(), t.TempDir(), m.jobs, discard)
	check(err)
	m.bus = event.NewBus(c.Events.MaxEventSize)
	p.events = m.bus.Subscribe(1000)
	t.Cleanup(p.events.Close)
	m.settings = &settings{
		cacheDir: c.CacheDir, log: discard, keys: m.keys, tokens: m.tokens, roots: func(c Config) Config { return c },
		compiler: func(Config, *gitpillar.Source, target.Nodegroups) *pillar.Compiler { return nil },
	}
	m.settings.set(*c)
	m.publishers = []transport.Publisher{p.sent}
	m.addresses = &addresses{}
	m.targets = &targets{groups: m.settings.nodegroups, keys: m.keys, cache: m.cache}
	m.access = &access{ctx: m.life.context, settings: m.settings, targets: m.targets, local: m.local, user: c.User}
	m.recorder = &recorder{audit: m.audit, log: discard, unauthenticated: newRefusalLimit()}
	m.runners = &runnerCalls{
		id: c.ID, ctx: m.life.context, options: c.Jobs, running: &running{}, jobs: m.jobs, sinks: m.sinks, bus: m.bus, log: discard, rateLimitedLog: p.limited,
		sdb: func() fn.SDB { return nil },
	}
	m.states = &jobStates{queue: m.queue, jobs: m.jobs, bus: m.bus, log: discard, rateLimitedLog: p.limited}
	m.stockJobs, err = job.NewLocalCache(c.CacheDir, c.Options.HashType)
	check(err)
	m.stock = sinks.NewStockFiles(m.stockJobs, func() bool { return true }, func() bool { return true }, discard)
	check(m.wireServices())
	return p
}

// ask passes a request to a handler and returns the answer.
func ask(t *testing.T, handle func(*channel.Call), id, cmd string, load *value.Dict) any {
	t.Helper()
	replies := make(chan []byte, 1)
	handle(channel.NewCall(cmd, id, load, &transport.Request{
		Body: make([]byte, 100), Peer: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9}, NewSpec: true, Reply: func(b []byte) { replies <- b },
	}))
	select {
	case b := <-replies:
		v, err := msgpack.UnmarshalTyped(b)
		if err != nil {
			t.Fatal(err)
		}
		return v
	case <-time.After(time.Minute):
		t.Fatalf("%s is not answered", cmd)
	}
	return nil
}

// answer is ask for handlers that return a map.
func answer(t *testing.T, handle func(*channel.Call), id, cmd string, load *value.Dict) *value.Dict {
	t.Helper()
	v := ask(t, handle, id, cmd, load)
	d, ok := v.(*value.Dict)
	if !ok {
		t.Fatalf("%s is answered by %s, not by a map", cmd, value.Repr(v))
	}
	return d
}

// tags returns the tags of the events since the last call.
func (p *parts) tags() (out []string) {
	for {
		select {
		case e := <-p.events.C:
			out = append(out, e.Tag)
		default:
			return out
		}
	}
}

// data stores grains and pillar of a minion.
func (p *parts) data(id string, grains, pillar *value.Dict) {
	p.t.Helper()
	if err := p.cache.StoreMinion(id, cache.Minion{Grains: grains, Pillar: pillar}); err != nil {
		p.t.Fatal(err)
	}
}

// begin starts the lifetime of the master, which ends with the test.
func (p *parts) begin() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	p.life.run, p.life.end = ctx, cancel
	p.t.Cleanup(cancel)
	return ctx
}
