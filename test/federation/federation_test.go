// Package federation tests masters of several sites, a master that commands them, and brine-hub, as
// processes on loopback.
package federation

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/sealed"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

func TestMain(m *testing.M) { daemontest.Main(m) }

const (
	brine = daemontest.Brine
	limit = 2 * time.Minute
)

// keyPair writes the key pair of a master before it starts, and returns the fingerprint.
func keyPair(t *testing.T, n *daemontest.Node) string {
	t.Helper()
	dir := n.Path("etc/salt/pki/master")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	k, err := crypt.GenerateKey(2048)
	if err == nil {
		err = crypt.WriteKeyPair(dir, "master", k, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	return sealed.Fingerprint(string(k.Public().PEM()))
}

// fleet is a bus, the master that commands sites, and sites with minions.
type fleet struct {
	t       *testing.T
	buses   []*daemontest.Node
	above   *daemontest.Node
	finger  string
	sites   map[string]*daemontest.Node
	minions map[string]*daemontest.Node
	conf    string // what connects a master to a bus that is not of buses
}

// options returns what connects a master to the buses.
func (f *fleet) options() string {
	if f.conf != "" {
		return f.conf
	}
	var urls []string
	for _, b := range f.buses {
		urls = append(urls, "tls://"+b.Host+fmt.Sprintf(":%d", daemontest.HubPort))
	}
	return fmt.Sprintf("federation_urls: ['%s']\nfederation_ca: %s\n", strings.Join(urls, "', '"), f.buses[0].Path("data/hub.crt"))
}

// newFleet starts one bus, the master above, and sites with a minion each, whose ids are the names of
// the sites with m before them.
func newFleet(t *testing.T, names ...string) *fleet { return newFleetWith(t, "", names...) }

// newFleetWith is newFleet with more options of brine-hub.
func newFleetWith(t *testing.T, conf string, names ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, sites: map[string]*daemontest.Node{}, minions: map[string]*daemontest.Node{}}
	f.above = daemontest.NewMaster(t, brine, "above", daemontest.Host(), "")
	f.finger = keyPair(t, f.above)
	host := daemontest.Host()
	bus := daemontest.NewHub(t, "bus", host, "metrics_address: "+host+":9180\n"+conf, f.finger)
	f.buses = append(f.buses, bus.Launch())
	bus.Host = host
	eventually.Nil(t, limit, "the bus has a certificate", func() error { _, err := os.Stat(bus.Path("data/hub.crt")); return err })
	f.above.Write("master", f.above.Read("master")+f.options()+"federation_hub: true\nmetrics_address: "+f.above.Host+":9175\n")
	f.above.Start()
	for _, name := range names {
		f.addSite(name, "m"+name)
	}
	return f
}

// addSite starts a site and accepts its key.
func (f *fleet) addSite(name string, ids ...string) {
	f.t.Helper()
	host := daemontest.Host()
	m := daemontest.NewMaster(f.t, brine, name, host, "auto_accept: true\n"+f.options()+fmt.Sprintf("federation_finger: ['%s']\n", f.finger)).Start()
	f.sites[name] = m
	for _, id := range ids {
		f.minions[id] = daemontest.NewMinion(f.t, brine, id, []string{host}, "").Start()
	}
	eventually.Nil(f.t, limit, "the key of the site arrives", func() error {
		out, errs, code := f.above.Run(brine, "salt-run", "federation.accept", name)
		if code != 0 || !strings.Contains(out, "True") {
			return fmt.Errorf("%s %s", out, errs)
		}
		return nil
	})
	eventually.Nil(f.t, limit, "the minions answer their master", func() error { return m.PingAll(brine, ids...) })
	eventually.Nil(f.t, limit, "the site is connected", func() error {
		out, errs, _ := f.above.Run(brine, "salt-run", "--out=json", "federation.sites")
		var all map[string]struct{ Connected bool }
		if err := json.Unmarshal([]byte(out), &all); err != nil || !all[name].Connected {
			return fmt.Errorf("%s %s %w", out, errs, err)
		}
		return nil
	})
}

// ran reads how often a minion of a site ran each command, by the words that the commands appended.
func (f *fleet) ran(dir, id string) map[string]int {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, id))
	if err != nil {
		f.t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(b)) {
		count[strings.TrimSpace(line)]++
	}
	return count
}

// give gives a command without waiting for its returns, and returns its job id.
func (f *fleet) give(args ...string) string {
	f.t.Helper()
	out, errs, _ := f.above.Run(brine, "salt", append([]string{"--async"}, args...)...)
	words := strings.Fields(out)
	if len(words) == 0 || !salt.ValidJID(words[len(words)-1]) {
		f.t.Fatalf("salt %v: %s %s", args, out, errs)
	}
	return words[len(words)-1]
}

// siteJob is what federation.job shows of a site.
type siteJob struct {
	State, Reason        string
	Final                bool
	Targeted, OK, Failed int
	Changed              int
}

func (f *fleet) job(jid string) (map[string]siteJob, error) {
	out, errs, _ := f.above.Run(brine, "salt-run", "--out=json", "federation.job", jid)
	var all map[string]siteJob
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("%s %s %w", out, errs, err)
	}
	return all, nil
}

// TestFederation gives commands to two sites, kills each part in turn, loses the streams, and tries
// what a hostile site can do.
func TestFederation(t *testing.T) {
	tools.Slow(t)
	f := newFleet(t, "eu", "us")
	if err := f.above.PingOnly(brine, "meu", "mus"); err != nil {
		t.Fatal(err)
	}
	// Targets can name sites.
	for tgt, want := range map[string]string{"site:eu": "meu", "not site:e*": "mus", "site:* and m*us": "mus"} {
		rets, err := f.above.SaltJSON(brine, "-C", tgt, "test.ping")
		if err != nil || len(rets) != 1 || rets[want] != true {
			t.Errorf("%s: %v %v", tgt, rets, err)
		}
	}
	t.Run("hostile", f.hostile)
	t.Run("refused", f.refused)

	dir := daemontest.ShortDir(t)
	parts := []func(){
		func() { f.buses[0].Kill(); f.buses[0].Launch() },
		func() { f.sites["eu"].Kill(); f.sites["eu"].Start() },
		func() { f.above.Kill(); f.above.Start() },
		func() {
			f.buses[0].Kill()
			if err := os.RemoveAll(f.buses[0].Path("data/jetstream")); err != nil {
				t.Fatal(err)
			}
			f.buses[0].Launch()
		},
	}
	jobs := map[string]string{}
	for i := range 20 {
		if i%5 == 2 {
			parts[i/5]()
		}
		word := fmt.Sprint("job", i)
		jid := f.give("--expire", "10m", "*", "cmd.run", "echo "+word+" >>"+dir+"/{{ grains.id }}", "template=jinja")
		jobs[jid] = word
	}
	for jid, word := range jobs {
		eventually.Nil(t, limit, "the summaries of "+word+" are complete", func() error {
			all, err := f.job(jid)
			for _, name := range []string{"eu", "us"} {
				if s := all[name]; err == nil && (s.State != "stored" || !s.Final || s.OK != 1 || s.Failed != 0 || s.Targeted != 1) {
					err = fmt.Errorf("%s: %+v", name, s)
				}
			}
			return err
		})
		eventually.Nil(t, limit, "the returns of "+word+" are above", func() error {
			out, errs, _ := f.above.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
			var rets map[string]any
			if err := json.Unmarshal([]byte(out), &rets); err != nil || len(rets) != 2 {
				return fmt.Errorf("%s %s %w", out, errs, err)
			}
			return nil
		})
	}
	for _, id := range []string{"meu", "mus"} {
		count := f.ran(dir, id)
		for _, word := range jobs {
			if count[word] != 1 {
				t.Errorf("%s ran %s %d times", id, word, count[word])
			}
		}
	}
}

// refused: a site's own rules apply.
func (f *fleet) refused(t *testing.T) {
	host := f.sites["us"]
	before := host.Read("master")
	host.Kill()
	host.Write("master", before+"federation_allow: ['test.*']\n")
	host.Start()
	eventually.Nil(t, limit, "the site refuses a function", func() error {
		jid := f.give("-C", "site:us", "cmd.run", "true")
		all, err := f.job(jid)
		if err == nil && (all["us"].State != "refused" || !strings.Contains(all["us"].Reason, "federation_allow")) {
			err = fmt.Errorf("%+v", all)
		}
		return err
	})
	eventually.Nil(t, limit, "the site allows another one", func() error { return f.above.PingOnly(brine, "meu", "mus") })
	host.Kill()
	host.Write("master", before)
	host.Start()
	eventually.Nil(t, limit, "the site answers again", func() error { return f.above.PingOnly(brine, "meu", "mus") })
}

// hostile: a client with the key of a site can neither command another site nor return for it, and
// one with an unknown key gets nothing.
func (f *fleet) hostile(t *testing.T) {
	key, err := crypt.LoadPrivate(f.sites["us"].Path("etc/salt/pki/master/master.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	own := func() *crypt.PrivateKey { return key }
	c := f.client(t, "us", sealed.NewSealer("us", sealed.Site, own))
	denied := make(chan string, 100)
	c.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err.Error() })
	for _, subject := range []string{"brine.cmd.eu", "brine.down.eu", "brine.all", "brine.up.eu", "brine.sum.eu", "brine.admin.sites",
		"$JS.API.STREAM.DELETE.BRINE_COMMANDS"} {
		if err := c.Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
		awaitDenial(t, denied, subject)
	}
	for _, subject := range []string{"brine.cmd.eu", "brine.up.*", ">", "brine.hello.*"} {
		if _, err := c.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		awaitDenial(t, denied, subject)
	}
	// Where it may publish, it is believed for itself only: a job that only eu was given.
	jid := f.give("-C", "site:eu", "test.echo", "word")
	returned := func() (map[string]any, error) {
		out, errs, _ := f.above.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
		var rets map[string]any
		if err := json.Unmarshal([]byte(out), &rets); err != nil {
			return nil, fmt.Errorf("%s %s %w", out, errs, err)
		}
		return rets, nil
	}
	for _, role := range []string{sealed.Site, sealed.Hub} {
		for _, name := range []string{"us", "eu"} {
			b, err := sealed.NewSealer(name, role, own).Seal("returns", "", wire.SiteReturns{JID: jid,
				Returns: value.DictOf("meu", value.DictOf("return", "forged"), "other", value.DictOf("return", "forged"))})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Publish("brine.up.us", b); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	eventually.Nil(t, limit, "the true return arrives", func() error {
		rets, err := returned()
		if err == nil && rets["meu"] != "word" {
			err = fmt.Errorf("%v", rets)
		}
		return err
	})
	// A job that both were given: the id of eu's minion gets the name of the site added.
	both := f.give("*", "test.echo", "word")
	forged := wire.SiteReturns{JID: both, Returns: value.DictOf("meu", value.DictOf("return", "forged"))}
	b, err := sealed.NewSealer("us", sealed.Site, own).Seal("returns", "", forged)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Publish("brine.up.us", b); err != nil {
		t.Fatal(err)
	}
	jid = both
	eventually.Nil(t, limit, "the forged return has another name", func() error {
		rets, err := returned()
		if err == nil && (rets["meu"] != "word" || rets["meu@us"] != "forged") {
			err = fmt.Errorf("%v", rets)
		}
		return err
	})

	unknown, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	none := func() *crypt.PrivateKey { return unknown }
	c = f.client(t, "eu", sealed.NewSealer("eu", sealed.Site, none))
	c.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err.Error() })
	for _, subject := range []string{"brine.up.eu", "brine.cmd.us"} {
		if err := c.Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
		awaitDenial(t, denied, subject)
	}
	if _, err := f.connect("hub", sealed.NewSealer("hub", sealed.Hub, none)); err == nil {
		t.Error("an unknown key may command sites")
	}
}

func awaitDenial(t *testing.T, denied <-chan string, subject string) {
	t.Helper()
	select {
	case text := <-denied:
		if !strings.Contains(strings.ToLower(text), "permissions violation") || !strings.Contains(text, `"`+subject+`"`) {
			t.Errorf("%s: %s", subject, text)
		}
	case <-time.After(limit):
		t.Errorf("%s is allowed", subject)
	}
}

func (f *fleet) client(t *testing.T, name string, s *sealed.Sealer) *nats.Conn {
	t.Helper()
	c, err := f.connect(name, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// connect connects a client with a key to the bus.
func (f *fleet) connect(name string, s *sealed.Sealer) (*nats.Conn, error) {
	cert, err := s.Certificate()
	if err != nil {
		return nil, err
	}
	return nats.Connect(fmt.Sprintf("tls://%s:%d", f.buses[0].Host, daemontest.HubPort), nats.RootCAs(f.buses[0].Path("data/hub.crt")),
		nats.Nkey("brine", s.Nonce), nats.UserInfo(name, base64.StdEncoding.EncodeToString(cert)), nats.Timeout(limit))
}
