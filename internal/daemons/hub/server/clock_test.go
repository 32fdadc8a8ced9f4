package server

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/daemons/hub"
	"brine/internal/ha/federation"
	"brine/internal/net/crypt"
	"brine/internal/net/sealed"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
)

const limit = 2 * time.Minute

// above is the master above. It stores returns in memory.
type above struct {
	mu   sync.Mutex
	rets map[string]*value.Dict
}

func (a *above) Store(jid, id string, ret *value.Dict, done func(error)) {
	a.mu.Lock()
	a.rets[jid+" "+id] = ret
	a.mu.Unlock()
	done(nil)
}
func (a *above) Announce(string, []string)         {}
func (a *above) Restore(*wire.SiteCommand) error   { return nil }
func (a *above) Returned(string) ([]string, error) { return nil, nil }
func (a *above) OwnMinion(string) bool             { return false }
func (a *above) Fire(string, *value.Dict)          {}
func (a *above) returned(jid, id string) *value.Dict {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rets[jid+" "+id]
}

// master is the master of a site with one minion, m1, which answers at once. It records until when each
// command may begin.
type master struct {
	site *federation.Site

	mu    sync.Mutex
	until map[string]time.Time
	rets  map[string]*value.Dict // of m1, by job
}

func (m *master) Publish(c *wire.SiteCommand) (minions, missing []string, err error) {
	m.mu.Lock()
	m.until[c.JID] = time.UnixMilli(c.Expires)
	m.mu.Unlock()
	return []string{"m1"}, nil, nil
}
func (m *master) Job(string) ([]string, bool, error) { return nil, false, nil }
func (m *master) Returns(jid string) (map[string]*value.Dict, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return map[string]*value.Dict{"m1": m.rets[jid]}, nil
}
func (m *master) returns(jid string) {
	ret := value.DictOf("return", true, "retcode", int64(0), "success", true)
	m.mu.Lock()
	m.rets[jid] = ret
	m.mu.Unlock()
	m.site.Returned(jid, "m1", ret)
}
func (m *master) Leads() bool                                 { return true }
func (m *master) Shared() bool                                { return false }
func (m *master) Claim(context.Context, string) (bool, error) { return true, nil }
func (m *master) Presence() (accepted, connected int)         { return 1, 1 }
func (m *master) expires(jid string) (t time.Time, published bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, published = m.until[jid]
	return
}

// TestListFromTheFuture: a list of sites that was taken while clocks were days ahead does not outrank later
// ones, so that a removed site would stay. An older list does not count otherwise.
func TestListFromTheFuture(t *testing.T) {
	o := hub.Options{ID: "bus", Listen: "127.0.0.1:24519", DataDir: t.TempDir(), Masters: []string{"ab"}, MaxData: 1 << 30}
	bus, err := New(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	apply := func(at time.Time, want int, names ...string) {
		t.Helper()
		sites := value.NewDict(0)
		for _, n := range names {
			sites.Set(n, "key of "+n)
		}
		data := wire.Encode(wire.SiteList{Sites: sites})
		if err := bus.apply(&sealed.Message{Kind: federation.KindSites, At: at, Data: data}); err != nil || len(bus.sites) != want {
			t.Errorf("%v: %d sites, want %d", err, len(bus.sites), want)
		}
	}
	now := time.Now()
	apply(now.Add(72*time.Hour), 2, "us", "eu")
	apply(now, 1, "us")
	apply(now.Add(-time.Minute), 1, "us", "eu")
	apply(now.Add(time.Minute), 2, "us", "eu")
}

// TestMadeCertificate: a certificate that was made while the clock was wrong is valid when it is right.
func TestMadeCertificate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, CertFile)
	if err := makeCertificate(path, filepath.Join(dir, "hub.key"), "bus", nil); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(b)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !c.NotBefore.Equal(longAgo) || !c.NotAfter.Equal(farOff) {
		t.Errorf("it is valid from %v until %v, which depends on the clock", c.NotBefore, c.NotAfter)
	}
}

// TestClocks: sites whose clocks are days off, in both directions, take commands, which expire when they
// should, and their results count.
func TestClocks(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	newKey := func() *crypt.PrivateKey {
		k, err := crypt.GenerateKey(2048)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	hubKey := newKey()
	finger := sealed.Fingerprint(string(hubKey.Public().PEM()))
	dir := t.TempDir() // removed after what follows has ended
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	t.Cleanup(func() { stop(); work.Wait() })
	run := func(fn func(context.Context) error) {
		work.Go(func() {
			if err := fn(ctx); err != nil {
				t.Error(err)
			}
		})
	}

	host := daemontest.Host()
	bus, err := New(hub.Options{ID: "bus", Listen: fmt.Sprintf("%s:%d", host, daemontest.HubPort), DataDir: dir, Masters: []string{finger}, MaxData: 1 << 30}, log)
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	run(func(ctx context.Context) error { return bus.Run(ctx, func() { close(started) }) })
	<-started
	o := federation.BusOptions{URLs: []string{fmt.Sprintf("tls://%s:%d", host, daemontest.HubPort)}, CAFile: filepath.Join(dir, CertFile)}
	up := &above{rets: map[string]*value.Dict{}}
	h, err := federation.NewHub(federation.HubConfig{
		Path: filepath.Join(t.TempDir(), "hub.db"), KeyDir: t.TempDir(), Bus: o, Key: sealed.NewSealer("hub", sealed.Hub, func() *crypt.PrivateKey { return hubKey }),
		Replicas: 1, Wait: time.Second, Keep: time.Hour, Host: up, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	run(h.Run)

	sites := map[string]*master{}
	clocks := map[string]time.Duration{"ahead": 72 * time.Hour, "behind": -72 * time.Hour, "hours": 5 * time.Hour, "minutes": -15 * time.Minute, "right": 0}
	for name, off := range clocks {
		m, key := &master{until: map[string]time.Time{}, rets: map[string]*value.Dict{}}, newKey()
		if m.site, err = federation.NewSite(federation.SiteConfig{
			Name: name, Master: name, Path: filepath.Join(t.TempDir(), "site.db"), Bus: o,
			Key:    sealed.NewSealer(name, sealed.Site, func() *crypt.PrivateKey { return key }),
			Trusts: func(f string) bool { return f == finger }, Keep: time.Hour, Host: m, Log: log, Now: func() time.Time { return time.Now().Add(off) },
		}); err != nil {
			t.Fatal(err)
		}
		sites[name] = m
		run(m.site.Run)
		eventually.Nil(t, limit, "the key of "+name+" arrives", func() error { return h.Accept(name, "") })
	}
	for name := range sites {
		eventually.Nil(t, limit, name+" reports", func() error {
			all, err := h.Sites()
			if err == nil {
				if d, ok := all.At(name).(*value.Dict); !ok || d.At("connected") != true {
					err = fmt.Errorf("%v", d)
				}
			}
			return err
		})
	}

	// One command that has a minute, and one that has expired before it is given.
	give := func(left time.Duration) (jid string) {
		jid = salt.NewJID(time.Now())
		c, err := h.Record(wire.SiteCommand{JID: jid, Tgt: "*", TgtType: "glob", Fun: "test.ping", Expires: time.Now().Add(left).UnixMilli()})
		if err == nil {
			_, err = h.Issue(c)
		}
		if err != nil {
			t.Fatal(err)
		}
		return jid
	}
	good, late := give(time.Minute), give(-time.Second)
	for name, m := range sites {
		eventually.Nil(t, limit, name+" publishes a command", func() error {
			if _, ok := m.expires(good); !ok {
				job, err := h.Job(good)
				return fmt.Errorf("%v %w", job, err)
			}
			return nil
		})
		m.returns(good)
		eventually.Nil(t, limit, "its results arrive", func() error {
			job, err := h.Job(good)
			d, _ := job.At(name).(*value.Dict)
			if err == nil && (d.At("state") != federation.StateStored || d.At("final") != true) {
				err = fmt.Errorf("%v", d)
			}
			return err
		})
		eventually.Nil(t, limit, "its return arrives", func() error {
			if up.returned(good, "m1") == nil && up.returned(good, "m1@"+name) == nil {
				return fmt.Errorf("not yet")
			}
			return nil
		})
	}
	for name, off := range clocks {
		at, _ := sites[name].expires(good)
		if d := time.Until(at.Add(-off)); d > time.Minute || d < -limit {
			t.Errorf("the command expires at %s in %s by the clock of the site", name, d)
		}
	}
	for name, m := range sites {
		eventually.Nil(t, limit, name+" refuses what has expired", func() error {
			job, err := h.Job(late)
			d, _ := job.At(name).(*value.Dict)
			if s := d.At("state"); err == nil && s != federation.StateRefused && s != federation.StateExpired {
				err = fmt.Errorf("%v", d)
			}
			return err
		})
		if _, ok := m.expires(late); ok {
			t.Errorf("%s publishes a command that has expired", name)
		}
	}
}
