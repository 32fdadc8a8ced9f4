// Package fleet tests masters and minions together: the real daemons in one
// process, with real sockets on loopback and real directories.
package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/base/salt"
	"brine/internal/daemons/master"
	"brine/internal/daemons/minion"
	"brine/internal/host/freeport"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/net/transport/tcp"
	"brine/internal/net/transport/ws"
	"brine/internal/net/transport/zeromq"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
	"brine/test/eventually"
)

// logBuffer is a log that tests can search for promised messages.
type logBuffer struct {
	off atomic.Bool // drops what is written
	mu  sync.Mutex
	b   bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	if l.off.Load() {
		return len(p), nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newLog(t testing.TB, name string) (*slog.Logger, *logBuffer) {
	buf := &logBuffer{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("--- %s\n%s", name, buf)
		}
	})
	return slog.New(slog.NewTextHandler(buf, &slog.HandlerOptions{Level: slog.LevelDebug})), buf
}

func transportOf(t testing.TB, name string, log *slog.Logger) transport.Transport {
	t.Helper()
	switch name {
	case "zeromq":
		return zeromq.New(log)
	case "tcp":
		return tcp.New(log)
	case "ws":
		return ws.New(log)
	}
	t.Fatalf("no transport %q", name)
	return nil
}

// theMaster is a running master.
type theMaster struct {
	*master.Master
	t        testing.TB
	cfg      master.Config
	dir      string
	keys     *keystore.Store
	log      *logBuffer
	pub, req string
	stop     func()
}

// defaults fills Options structs from their tags.
func defaults(t testing.TB, ptrs ...any) {
	t.Helper()
	for _, p := range ptrs {
		if err := field.Defaults(p); err != nil {
			t.Fatal(err)
		}
	}
}

func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "brf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// masterConfig is that of a master in dir on free ports.
func masterConfig(t testing.TB, dir, name, tr string) (master.Config, *logBuffer, *slog.Logger) {
	t.Helper()
	log, buf := newLog(t, name)
	cfg := master.Config{ID: name, PKIDir: filepath.Join(dir, "pki"), CacheDir: filepath.Join(dir, "cache"), User: "root", Opts: value.NewDict(0)}
	defaults(t, &cfg.Options, &cfg.Channel, &cfg.Publish, &cfg.Keys, &cfg.Cache, &cfg.Jobs, &cfg.Events)
	cfg.Events.SockDir = filepath.Join(dir, "sock")
	ports, err := freeport.TCP(2)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listen = []master.Listen{{Transport: transportOf(t, tr, log), Publish: fmt.Sprintf("127.0.0.1:%d", ports[0]),
		Request: fmt.Sprintf("127.0.0.1:%d", ports[1]),
		Options: transport.ListenOptions{Filter: tr == "tcp"}}}
	return cfg, buf, log
}

func startMaster(t testing.TB, name, tr string, change func(*master.Config)) *theMaster {
	t.Helper()
	dir := shortDir(t)
	cfg, buf, log := masterConfig(t, dir, name, tr)
	if change != nil {
		change(&cfg)
	}
	m := &theMaster{t: t, cfg: cfg, dir: dir, log: buf}
	m.start(log)
	return m
}

// start runs the master with its configuration; again after stop.
func (m *theMaster) start(log *slog.Logger) {
	m.t.Helper()
	d, err := master.New(m.cfg, log)
	if err != nil {
		m.t.Fatal(err)
	}
	m.Master = d
	pub, req := d.Addrs()
	m.pub, m.req = pub[0].String(), req[0].String()
	m.cfg.Listen[0].Publish, m.cfg.Listen[0].Request = m.pub, m.req
	if m.keys, err = keystore.Open(m.cfg.PKIDir, log); err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	var once sync.Once
	m.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				m.t.Errorf("master %s: %v", m.cfg.ID, err)
			}
		})
	}
	m.t.Cleanup(m.stop)
}

func (m *theMaster) restart() {
	m.t.Helper()
	m.stop()
	log := slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	m.start(log)
}

// accept waits for a key to be pending and accepts it.
func (m *theMaster) accept(ids ...string) {
	m.t.Helper()
	for _, id := range ids {
		eventually.Nil(m.t, eventually.Limit, "the key of "+id+" is pending", func() error {
			st, _, err := m.keys.Lookup(id)
			if err == nil && st == keystore.Pending {
				return m.keys.Move(id, keystore.Pending, keystore.Accepted)
			}
			return fmt.Errorf("%v %v", st, err)
		})
	}
}

// events reads a master's bus until the test ends.
func (m *theMaster) events(prefixes ...string) <-chan *event.Event {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := event.Dial(ctx, m.cfg.Events.Sockets())
	if err != nil {
		cancel()
		m.t.Fatal(err)
	}
	c := make(chan *event.Event, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range r.Events(prefixes...) {
			if err != nil {
				return
			}
			c <- e
		}
	}()
	m.t.Cleanup(func() { cancel(); <-done })
	return c
}

// command publishes a job and returns what n minions answer, by id.
func (m *theMaster) command(tgtType, tgt, fun string, n int, args ...any) map[string]*value.Dict {
	m.t.Helper()
	return m.await(m.events("salt/job/"), m.publish(tgtType, tgt, fun, "", args...), n)
}

func (m *theMaster) publish(tgtType, tgt, fun, jid string, args ...any) string {
	m.t.Helper()
	rep := m.Publish(value.DictOf("cmd", "publish", "fun", fun, "arg", value.ListOf(args...), "tgt", tgt, "tgt_type", tgtType, "ret", "", "jid", jid, "user",
		"root", "kwargs", value.NewDict(0)))
	got := rep.Dict("load").Str("jid")
	if got == "" {
		m.t.Fatalf("not published: %v", value.Repr(rep))
	}
	return got
}

func (m *theMaster) await(events <-chan *event.Event, jid string, n int) map[string]*value.Dict {
	m.t.Helper()
	rets := map[string]*value.Dict{}
	timeout := time.After(time.Minute)
	for len(rets) < n {
		select {
		case e := <-events:
			if strings.HasPrefix(e.Tag, "salt/job/"+jid+"/ret/") {
				rets[e.Data.Str("id")] = e.Data
			}
		case <-timeout:
			m.t.Fatalf("job %s: %d of %d returned", jid, len(rets), n)
		}
	}
	return rets
}

// theMinion is a running minion.
type theMinion struct {
	*minion.Minion
	cfg  minion.Config
	log  *logBuffer
	stop func()
}

func startMinion(t *testing.T, id, tr string, masters []*theMaster, change func(*minion.Config)) *theMinion {
	t.Helper()
	log, buf := newLog(t, id)
	dir := shortDir(t)
	cfg := minion.Config{ID: id, PKIDir: filepath.Join(dir, "pki"), CacheDir: filepath.Join(dir, "cache"), Transport: transportOf(t, tr, log), Keysize: 2048,
		Opts:          value.NewDict(0),
		CollectGrains: func(context.Context) *value.Dict { return value.DictOf("role", "web", "id", id) }}
	defaults(t, &cfg.Options, &cfg.Handshake, &cfg.Events)
	cfg.Events.SockDir = filepath.Join(dir, "sock")
	cfg.Options.Master = nil
	for _, m := range masters {
		cfg.Options.Master = append(cfg.Options.Master, m.req)
	}
	cfg.Options.AcceptanceWait = time.Second
	cfg.Options.RandomReauthDelay = 0
	if change != nil {
		change(&cfg)
	}
	d, err := minion.New(context.Background(), cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.Run(ctx); err != nil {
			t.Errorf("minion %s: %v", id, err)
		}
	}()
	var once sync.Once
	m := &theMinion{Minion: d, cfg: cfg, log: buf, stop: func() { once.Do(func() { cancel(); <-done }) }}
	t.Cleanup(m.stop)
	return m
}

// sameKey gives a second master the key pair of the first, as operators do.
func sameKey(first *theMaster) func(*master.Config) {
	return func(cfg *master.Config) {
		k, err := crypt.LoadPrivate(filepath.Join(first.cfg.PKIDir, "master.pem"), "")
		if err == nil {
			err = os.MkdirAll(cfg.PKIDir, 0o700)
		}
		if err == nil {
			err = crypt.WriteKeyPair(cfg.PKIDir, "master", k, "")
		}
		if err != nil {
			first.t.Fatal(err)
		}
	}
}

func (m *theMaster) awaitStart(events <-chan *event.Event, id string) {
	m.t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case e := <-events:
			if e.Tag == "salt/minion/"+id+"/start" {
				return
			}
		case <-timeout:
			m.t.Fatalf("no start event of %s on %s", id, m.cfg.ID)
		}
	}
}

func TestCommandsOverEachTransport(t *testing.T) {
	for _, tr := range []string{"zeromq", "tcp", "ws"} {
		t.Run(tr, func(t *testing.T) {
			m := startMaster(t, "one", tr, nil)
			starts := m.events("salt/minion/")
			startMinion(t, "w1", tr, []*theMaster{m}, nil)
			m.accept("w1")
			m.awaitStart(starts, "w1")
			ret := m.command("glob", "*", "test.ping", 1)["w1"]
			if ret.At("return") != true || ret.Int("retcode") != 0 || !ret.Bool("success") {
				t.Errorf("return: %v", value.Repr(ret))
			}
			ret = m.command("grain", "role:web", "cmd.run", 1, "echo $((40+2))")["w1"]
			if ret.Str("return") != "42" {
				t.Errorf("return: %v", value.Repr(ret))
			}
			m.RotateAES()
			if ret := m.command("list", "w1", "test.echo", 1, "after rotation")["w1"]; ret.Str("return") != "after rotation" {
				t.Errorf("return: %v", value.Repr(ret))
			}
		})
	}
}

func TestHotPairRunsAJobOnceAndReturnsToBoth(t *testing.T) {
	one := startMaster(t, "one", "zeromq", nil)
	two := startMaster(t, "two", "zeromq", sameKey(one))
	s1, s2 := one.events("salt/minion/"), two.events("salt/minion/")
	counter := filepath.Join(t.TempDir(), "runs")
	startMinion(t, "w1", "zeromq", []*theMaster{one, two}, nil)
	one.accept("w1")
	one.awaitStart(s1, "w1")
	// Each master has its own keys: the second knows nothing of the acceptance.
	if st, _, _ := two.keys.Lookup("w1"); st != keystore.Pending {
		t.Errorf("state on the second master: %v, want pending", st)
	}
	two.accept("w1")
	two.awaitStart(s2, "w1")

	e1, e2 := one.events("salt/job/"), two.events("salt/job/")
	jid := salt.NewJID(time.Now())
	one.publish("glob", "*", "cmd.run", jid, "echo x >> "+counter+"; sleep 0.3")
	two.publish("glob", "*", "cmd.run", jid, "echo x >> "+counter+"; sleep 0.3")
	one.await(e1, jid, 1)
	two.await(e2, jid, 1)
	if b, _ := os.ReadFile(counter); string(b) != "x\n" {
		t.Errorf("the job ran %d times", bytes.Count(b, []byte("x")))
	}
}

func TestOneMasterDiesAndComesBack(t *testing.T) {
	one := startMaster(t, "one", "zeromq", nil)
	two := startMaster(t, "two", "zeromq", sameKey(one))
	s1, s2 := one.events("salt/minion/"), two.events("salt/minion/")
	startMinion(t, "w1", "zeromq", []*theMaster{one, two}, nil)
	one.accept("w1")
	two.accept("w1")
	one.awaitStart(s1, "w1")
	two.awaitStart(s2, "w1")

	// A job is running when its master stops: the return is kept until it is back.
	slow := one.publish("glob", "*", "cmd.run", "", "sleep 1; echo survived")
	time.Sleep(200 * time.Millisecond) // let it begin
	one.stop()
	for i := range 10 {
		if ret := two.command("glob", "*", "test.echo", 1, i)["w1"]; ret.Int("return") != int64(i) {
			t.Errorf("ping %d through the living master: %v", i, value.Repr(ret))
		}
	}
	time.Sleep(time.Second) // the job ends without its master
	one.restart()
	eventually.Nil(t, eventually.Limit, "the return reaches the master that asked for it", func() error {
		return one.returned(slow, "w1", "survived")
	})
	// A publication before the minion is connected again is not received, as with Salt: so repeat
	// it until the minion answers.
	events := one.events("salt/job/")
	eventually.Nil(t, eventually.Limit, "the master that came back commands the minion", func() error {
		one.publish("glob", "*", "test.ping", "")
		select {
		case e := <-events:
			if strings.HasSuffix(e.Tag, "/ret/w1") {
				return nil
			}
			return errors.New(e.Tag)
		case <-time.After(200 * time.Millisecond):
			return errors.New("no answer")
		}
	})
}

// TestRestartedMasterSendsByID: over tcp a master sends a job that names minions
// to registered ones only. After its restart a minion registers again.
func TestRestartedMasterSendsByID(t *testing.T) {
	m := startMaster(t, "one", "tcp", nil)
	starts := m.events("salt/minion/")
	w := startMinion(t, "w1", "tcp", []*theMaster{m}, nil)
	m.accept("w1")
	m.awaitStart(starts, "w1")
	m.restart()
	eventually.Nil(t, eventually.Limit, "the minion is connected again", func() error {
		if n := strings.Count(w.log.String(), "connected to the master"); n < 2 {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	})
	time.Sleep(time.Second) // the minion now asks for earlier jobs kept for it
	for i := range 3 {
		if ret := m.command("list", "w1,other", "test.echo", 1, i)["w1"]; ret.Int("return") != int64(i) {
			t.Errorf("%v", value.Repr(ret))
		}
	}
}

// returned checks the job store of a master.
func (m *theMaster) returned(jid, id, want string) error {
	rets, err := m.JobReturns(jid)
	if err != nil {
		return err
	}
	if r := rets[id]; r == nil || r.Str("return") != want {
		return fmt.Errorf("stored: %v", value.Repr(r))
	}
	return nil
}

func TestMasterWithAnotherKeyIsNamedAndTheOtherGoesOn(t *testing.T) {
	good := startMaster(t, "good", "zeromq", nil)
	starts := good.events("salt/minion/")
	w := startMinion(t, "w1", "zeromq", []*theMaster{good}, nil)
	good.accept("w1")
	good.awaitStart(starts, "w1")
	w.stop()

	other := startMaster(t, "other", "zeromq", func(cfg *master.Config) { cfg.Keys.AutoAccept = true })
	starts = good.events("salt/minion/")
	cfg := w.cfg
	w2 := startMinion(t, "w1", "zeromq", []*theMaster{other, good}, func(c *minion.Config) {
		c.PKIDir, c.CacheDir = cfg.PKIDir, cfg.CacheDir
	})
	good.awaitStart(starts, "w1")
	fp := func(m *theMaster) string {
		b, err := os.ReadFile(filepath.Join(m.cfg.PKIDir, "master.pub"))
		if err != nil {
			t.Fatal(err)
		}
		return crypt.Fingerprint(b, "sha256")
	}
	eventually.Nil(t, eventually.Limit, "the mismatch is told", func() error {
		for _, want := range []string{other.req, "fingerprint " + fp(other), fp(good), filepath.Join(cfg.PKIDir, "minion_master.pub")} {
			if !strings.Contains(w2.log.String(), want) {
				return fmt.Errorf("the log does not name %q", want)
			}
		}
		return nil
	})
	if ret := good.command("glob", "*", "test.ping", 1)["w1"]; ret.At("return") != true {
		t.Error("the master with the right key does not command the minion")
	}
}

func TestUnresolvableMasterDelaysNoOther(t *testing.T) {
	m := startMaster(t, "one", "zeromq", func(cfg *master.Config) { cfg.Keys.AutoAccept = true })
	starts := m.events("salt/minion/")
	startMinion(t, "w1", "zeromq", []*theMaster{m}, func(c *minion.Config) {
		c.Options.Master = append(minion.Masters{"no-such-host.invalid"}, c.Options.Master...)
	})
	m.awaitStart(starts, "w1")
}

func TestPortInUse(t *testing.T) {
	m := startMaster(t, "one", "zeromq", nil)
	for _, c := range []struct {
		option string
		change func(*master.Config)
	}{
		{"publish_port", func(cfg *master.Config) { cfg.Listen[0].Publish = m.pub }},
		{"ret_port", func(cfg *master.Config) { cfg.Listen[0].Request = m.req }},
	} {
		cfg, _, log := masterConfig(t, shortDir(t), "two", "zeromq")
		c.change(&cfg)
		_, err := master.New(cfg, log)
		if err == nil || !strings.Contains(err.Error(), c.option) || !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s in use: %v", c.option, err)
		}
	}
}

func TestForgedAndForeignMessages(t *testing.T) {
	m := startMaster(t, "one", "zeromq", func(cfg *master.Config) { cfg.Keys.AutoAccept = true })
	all := m.events()
	c := signedIn(t, m, "evil")
	fired := func(tag string, data any) *value.Dict {
		return value.DictOf("cmd", "_minion_event", "tag", tag, "data", data)
	}
	listed := func(pretag any, tag string, data any) *value.Dict {
		return value.DictOf("cmd", "_minion_event", "pretag", pretag, "events", value.ListOf(value.DictOf("tag", tag, "data", data)))
	}
	other := func() *value.Dict { return value.DictOf("id", "other") }
	loads := []*value.Dict{
		listed("salt/minion", "other/start", other()), // fires the tag without the pretag, too
		value.DictOf("cmd", "_return", "jid", "../../etc/passwd", "return", 1, "fun", "x", "fun_args", value.ListOf()),
		// The client sets the id of the load. The channel's tests use loads with another id.
		value.DictOf("cmd", "_return", "jid", "20260101000000000000", "minion_id", "other", "return", 1, "fun", "x", "fun_args", value.ListOf()),
		value.DictOf("cmd", "no_such"),
	}
	for _, tag := range []string{
		"salt/key", "salt/auth", "salt/run/20260101000000000000/ret", "salt/wheel/20260101000000000000/ret", "salt/presence/change",
		"salt/job/20260101000000000000/ret/other", "salt/job/20260101000000000000/new", "salt/job/20260101000000000000/prog/other/0",
		"salt/minion/other/start", "salt/beacon/other/load/", "minion/refresh/other", "salt/netapi/hook/deploy", "syndic/other/start",
		"20260101000000000000", "own\nsalt/auth",
	} {
		loads = append(loads, fired(tag, other()), listed(nil, tag, other()))
	}
	loads = append(loads, listed(nil, "mine/listed", other()), fired("mine/single", other()))
	for _, load := range loads {
		if _, err := c.Request(t.Context(), load); err != nil {
			t.Errorf("%v: %v", value.Repr(load), err)
		}
	}
	if _, err := c.Request(t.Context(), fired("mine/own", "last")); err != nil {
		t.Fatal(err)
	}
	// Events that it may fire contain its authenticated id.
	own := map[string]bool{"salt/auth": true, "mine/own": true, "mine/listed": true, "mine/single": true, "other/start": true,
		"salt/job/20260101000000000000/ret/evil": true}
	timeout := time.After(time.Minute)
	for last, returned := false, false; !last || !returned; { // a return is stored before its event
		select {
		case e := <-all:
			if !own[e.Tag] || e.Data.Str("id") != "evil" {
				t.Errorf("a minion made the master fire %q: %v", e.Tag, value.Repr(e.Data))
			}
			last = last || e.Tag == "mine/own"
			returned = returned || strings.Contains(e.Tag, "/ret/")
		case <-timeout:
			t.Fatal("the last event did not come")
		}
	}
}

// signedIn returns a bare client with an accepted key.
func signedIn(t testing.TB, m *theMaster, id string) *channel.Client {
	t.Helper()
	k, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	var o handshake.MinionOptions
	defaults(t, &o)
	c, err := channel.NewClient(channel.ClientConfig{
		Signer:    &handshake.Minion{ID: id, Key: k, Options: o, Token: "t", Trust: channel.NewFileTrust(filepath.Join(t.TempDir(), "minion_master.pub"))},
		Transport: zeromq.New(log), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.SetAddress(m.req)
	if err := c.SignIn(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCommandWithoutTheLocalKeyIsRefused(t *testing.T) {
	m := startMaster(t, "one", "zeromq", func(cfg *master.Config) { cfg.Keys.AutoAccept = true })
	all := m.events("salt/job/")
	log := slog.New(slog.DiscardHandler)
	r := zeromq.New(log).NewRequester(m.req, transport.DialOptions{})
	defer r.Close()
	for _, k := range []any{nil, "", "wrong", strings.Repeat("A", 76)} {
		rep := clear(t, r, value.DictOf("cmd", "publish", "fun", "test.ping", "tgt", "*", "arg", value.ListOf(), "key", k, "user", "root"))
		if !strings.Contains(value.Repr(rep), "Authentication error occurred.") {
			t.Errorf("key %v: %v", k, value.Repr(rep))
		}
	}
	select {
	case e := <-all:
		t.Errorf("a job was announced: %v", e.Tag)
	default:
	}
}
