package link

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/daemons/minion/address"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/daemons/minion/roles"
	"brine/internal/daemons/minion/status"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/net/transport/zeromq"
	"brine/internal/py/value"
)

var testKey = sync.OnceValues(func() (*crypt.PrivateKey, error) { return crypt.GenerateKey(2048) })

// unused handles no jobs.
type unused struct{}

func (unused) Accept(*Link, *value.Dict) {}
func (unused) RunningFor(*Link) []string { return nil }

// newLinks creates links to masters that do not exist.
func newLinks(t *testing.T, change func(*Config), names ...string) (*Config, *[]roles.Event) {
	t.Helper()
	key, err := testKey()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	met := &[]roles.Event{}
	cfg := &Config{
		ID: "w1", Transport: zeromq.New(log), Resolver: net.DefaultResolver, Opts: value.NewDict(0),
		Grains:      func() *value.Dict { return value.DictOf("os", "x", "master", "a") },
		NamesMaster: func() bool { return true }, ExtraPillarData: func() *value.Dict { return value.NewDict(0) }, Links: &Set{ID: "w1", RejectedRetry: true},
		Jobs:   unused{},
		Notify: func(e roles.Event) { *met = append(*met, e) }, Ready: func(*Link) {}, PillarChanged: func() {}, Report: func(string, *value.Dict) {},
		Log: log,
	}
	if err := field.Defaults(&cfg.Options); err != nil {
		t.Fatal(err)
	}
	var (
		o    outbox.Options
		sign handshake.MinionOptions
	)
	for _, options := range []any{&o, &sign} {
		if err := field.Defaults(options); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Outbox = outbox.New(outbox.Config{Options: o, ID: "w1", Dir: t.TempDir(), Log: log, Fire: cfg.Links.Fire})
	if change != nil {
		change(cfg)
	}
	for _, name := range names {
		addr, err := address.Parse(name, 4506, false)
		if err != nil {
			t.Fatal(err)
		}
		c, err := New(cfg, addr, &handshake.Minion{ID: "w1", Key: key, Options: sign, Trust: channel.NewFileTrust(filepath.Join(t.TempDir(), "master.pub"))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Client.Close)
		cfg.Links.Add(c)
	}
	return cfg, met
}

func namesOf(links []*Link) string {
	var out []string
	for _, c := range links {
		out = append(out, c.Addr.Text)
	}
	return strings.Join(out, " ")
}

func TestReceivers(t *testing.T) {
	hot, _ := newLinks(t, nil, "a", "b")
	if got := namesOf(hot.Links.Receivers()); got != "a b" {
		t.Errorf("all at once: %s", got)
	}
	one, _ := newLinks(t, func(c *Config) { c.Links.OneAtATime = true }, "a", "b")
	one.Links.Use(1)
	if got := namesOf(one.Links.Receivers()); got != "b" {
		t.Errorf("one at a time: %s", got)
	}
	if got := (&Set{OneAtATime: true}).Receivers(); got != nil {
		t.Errorf("of no links: %v", got)
	}
	b := one.Links.All()[1]
	if one.Links.Pillar() != nil {
		t.Error("a pillar that no master has sent")
	}
	b.pillar.Store(value.DictOf("x", true))
	if one.Links.WithPillar() != b || !one.Links.Pillar().Bool("x") {
		t.Error("the pillar of the active master is not found")
	}
}

func TestGreeting(t *testing.T) {
	hot, _ := newLinks(t, nil, "a", "b")
	a, b := hot.Links.All()[0], hot.Links.All()[1]
	hot.Links.markGreeted(a)
	if hot.Links.toGreet(a) || !hot.Links.toGreet(b) {
		t.Error("hot masters are not greeted once each")
	}
	one, _ := newLinks(t, func(c *Config) { c.Links.OneAtATime = true }, "a", "b")
	s := one.Links
	a, b = s.All()[0], s.All()[1]
	if !s.toGreet(a) || s.Greeted(0) {
		t.Error("the first master is not to be greeted")
	}
	s.markGreeted(a)
	s.markGreeted(b)
	if !s.toGreet(a) || s.toGreet(b) || !s.Greeted(1) {
		t.Error("after another master was used, the first one is not greeted again")
	}
}

// TestRefusals: the minion ends once every master has permanently refused it.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name  string
		retry bool
		errs  []error
		code  int
	}{
		{"one of two", false, []error{handshake.ErrRejected}, 0},
		{"both", false, []error{handshake.ErrRejected, handshake.ErrRejected}, ExitRejected},
		{"rejected_retry", true, []error{handshake.ErrRejected, handshake.ErrRejected}, 0},
		{"fingerprint", true, []error{handshake.ErrFinger, handshake.ErrFinger}, ExitFinger},
		{"one is only away", false, []error{handshake.ErrRejected, io.EOF}, 0},
	} {
		var end error
		cfg, _ := newLinks(t, func(cfg *Config) {
			cfg.Links.RejectedRetry = c.retry
			cfg.Links.Stop = func(err error) { end = err }
		}, "a", "b")
		for i, err := range c.errs {
			cfg.Links.All()[0].SetRole(roles.Active)
			cfg.Links.All()[1].SetRole(roles.Active)
			cfg.Links.refusedBy(cfg.Links.All()[i], err)
		}
		var u *Unwanted
		if errors.As(end, &u) != (c.code != 0) || u != nil && (u.ExitCode() != c.code || !errors.Is(u, c.errs[0])) {
			t.Errorf("%s: %v", c.name, end)
		}
	}
}

func TestPauses(t *testing.T) {
	cfg, _ := newLinks(t, func(c *Config) {
		c.Options.ReconDefault, c.Options.ReconMax, c.Options.ReconRandomize = 100, 1000, false
		c.Options.AcceptanceWait, c.Options.AcceptanceWaitMax = 10*time.Second, 30*time.Second
		c.Options.RetryDNS, c.Options.RetryDNSCount = 2*time.Second, 3
	}, "a")
	c := cfg.Links.All()[0]
	const ms = time.Millisecond
	for _, x := range []struct {
		last    time.Duration
		err     error
		lookups int
		want    time.Duration
	}{
		{0, io.EOF, 0, 100 * ms}, {100 * ms, io.EOF, 0, 200 * ms}, {800 * ms, io.EOF, 0, time.Second},
		{0, handshake.ErrPending, 0, 10 * time.Second}, {10 * time.Second, handshake.ErrPending, 0, 20 * time.Second},
		{20 * time.Second, handshake.ErrPending, 0, 30 * time.Second},
		{0, handshake.ErrFull, 0, 10 * time.Second}, {0, &handshake.Busy{Wait: 7 * time.Second}, 0, 7 * time.Second},
		{0, io.EOF, 1, 2 * time.Second}, {0, io.EOF, 3, slowLookup},
	} {
		c.locator.failed = x.lookups
		if got := c.nextPause(x.last, x.err); got != x.want {
			t.Errorf("after %v and %v, %d look-ups: %v, want %v", x.last, x.err, x.lookups, got, x.want)
		}
	}
}

func TestIntervals(t *testing.T) {
	for _, c := range []struct{ alive, beat, wantBeat, wantProbe time.Duration }{
		{0, time.Second, time.Second, usualProbe}, {0, 0, 0, usualProbe}, {time.Second, time.Second, time.Second / 2, time.Second},
		{10 * time.Second, time.Second, time.Second, usualProbe}, {10 * time.Second, 0, 5 * time.Second, usualProbe},
	} {
		o := Options{AliveInterval: c.alive, Heartbeat: c.beat}
		if o.heartbeat() != c.wantBeat || o.probeInterval() != c.wantProbe {
			t.Errorf("%v, %v: %v, %v", c.alive, c.beat, o.heartbeat(), o.probeInterval())
		}
	}
}

// TestCauses: errors with the same cause but another text are equal.
func TestCauses(t *testing.T) {
	refused := func(port int) error {
		return &net.OpError{Op: "dial", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: port},
			Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 4506}, Err: syscall.ECONNREFUSED}
	}
	if causeOf(refused(1)) != causeOf(refused(2)) {
		t.Error("another own port is another cause")
	}
	if reason(refused(1)) != reason(refused(2)) || strings.Contains(reason(refused(1)), "10.0.0.9") {
		t.Errorf("the reason is %q", reason(refused(1)))
	}
	kinds := []error{refused(1), io.EOF, context.DeadlineExceeded, handshake.ErrPending, handshake.ErrRejected, &net.DNSError{IsNotFound: true},
		&net.DNSError{IsTimeout: true}, &handshake.Busy{}}
	seen := map[cause]bool{}
	for _, err := range kinds {
		seen[causeOf(err)] = true
	}
	if len(seen) != len(kinds) {
		t.Errorf("%d causes of %d", len(seen), len(kinds))
	}
}

// TestLostMaster: an unreachable master is reported lost again at each attempt, and the
// link ends with its context.
func TestLostMaster(t *testing.T) {
	lost := make(chan roles.Event, 100)
	cfg, _ := newLinks(t, func(c *Config) {
		c.Notify = func(e roles.Event) { lost <- e }
		c.Options.ReconDefault, c.Options.ReconMax = 10, 10
		c.Options.AuthTimeout = 50 * time.Millisecond
	}, "127.0.0.1:1")
	c := cfg.Links.All()[0]
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	c.SetRole(roles.Active)
	for range 2 {
		if e := <-lost; e.Kind != roles.Lost || e.Why == "" {
			t.Errorf("met %+v", e)
		}
	}
	if st := c.State(); st.State == "" || st.State == status.Connected || st.Name != "127.0.0.1:1" {
		t.Errorf("its state is %+v", st)
	}
	c.SetRole(roles.Off)
	for c.State().State != status.Off {
		time.Sleep(time.Millisecond)
	}
	if c.Role() != roles.Off || c.Is(status.Connected) {
		t.Error("it is not off")
	}
	cancel()
	<-done
}

func TestAddresses(t *testing.T) {
	cfg, _ := newLinks(t, nil, "127.0.0.1:4506")
	c := cfg.Links.All()[0]
	if got, err := c.locator.addresses(t.Context(), c.Addr, c.cfg.Resolver); err != nil || got[0].String() != "127.0.0.1:4506" {
		t.Errorf("%v, %v", got, err)
	}
	c.locator.warm = "10.0.0.7:1"
	if got, err := c.locator.addresses(t.Context(), c.Addr, c.cfg.Resolver); err != nil || got[0].String() != "10.0.0.7:1" {
		t.Errorf("where it was a moment ago: %v, %v", got, err)
	}
	c.locator.warm, c.Addr.Host = "", "_salt._tcp.no.invalid"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := c.locator.addresses(ctx, c.Addr, c.cfg.Resolver); err == nil || got[0].String() != "127.0.0.1:4506" {
		t.Errorf("without a name server: %v, %v", got, err)
	}
	if p := c.publishPort(); p != defaultPublishPort {
		t.Errorf("the publish port is %d", p)
	}
	cfg.Options.PublishPort = 5505
	if p := c.publishPort(); p != 5505 {
		t.Errorf("the publish port of the option is %d", p)
	}
}

func TestView(t *testing.T) {
	cfg, _ := newLinks(t, func(c *Config) { c.Opts = value.DictOf("master", value.ListOf("a", "b:1")) }, "a", "b:1")
	b := cfg.Links.All()[1]
	if got := b.Opts().At("master"); got != "b" {
		t.Errorf("the option master is %v", got)
	}
	if first := b.Opts(); first != b.Opts() {
		t.Error("the options are copied each time")
	}
	if got := b.Grains().At("master"); got != "b" {
		t.Errorf("the grain master is %v", got)
	}
	if got := cfg.Links.All()[0].Grains().At("master"); got != "a" {
		t.Errorf("the grain of the first master is %v", got)
	}
}

func TestTopics(t *testing.T) {
	// The sha1 of "w1".
	if got := (&Config{ID: "w1"}).topics(); len(got) != 2 || got[0] != "broadcast" || len(got[1]) != 40 {
		t.Errorf("%v", got)
	}
	if got := (&Config{ID: "w1", Syndic: true}).topics(); !slices.Equal(got, []string{"broadcast", "syndic"}) {
		t.Errorf("a syndic: %v", got)
	}
	cfg, _ := newLinks(t, func(c *Config) { c.Options.AutosignGrains = []string{"os", "none"} })
	if got := cfg.autosignGrains(); !value.Equal(got, value.DictOf("os", "x")) {
		t.Errorf("%s", value.Repr(got))
	}
}

func TestOthersHearOfARefusal(t *testing.T) {
	cfg, _ := newLinks(t, nil, "a", "b")
	for _, c := range cfg.Links.All() {
		c.SetRole(roles.Active)
	}
	cfg.Links.tellRefused(cfg.Links.All()[0], handshake.ErrRejected)
	var sent [2][]string
	for i, c := range cfg.Links.All() {
		other := cfg.Outbox.NewQueue("spy", func(_ context.Context, load *value.Dict) (any, error) {
			sent[i] = append(sent[i], load.Str("tag"))
			return nil, nil
		}, func() bool { return false }, cfg.Log)
		c.Out.HandOver(other)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		other.Run(ctx)
		cancel()
	}
	if len(sent[0]) != 0 || !slices.Equal(sent[1], []string{"salt/minion/w1/master_refused"}) {
		t.Errorf("sent %v", sent)
	}
}
