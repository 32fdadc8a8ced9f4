package federation

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// foreign is a cluster of three NATS servers that are no brine-hub. An operator signs accounts, and an
// account signs users.
type foreign struct {
	t       *testing.T
	hosts   []string
	keys    map[string]nkeys.KeyPair
	servers []*natsserver.Server
}

const natsPort, natsRoutes = 24517, 24518

func newForeign(t *testing.T) *foreign {
	t.Helper()
	x := &foreign{t: t, keys: map[string]nkeys.KeyPair{}}
	for range 3 {
		x.hosts = append(x.hosts, daemontest.Host())
	}
	for name, make := range map[string]func() (nkeys.KeyPair, error){
		"operator": nkeys.CreateOperator, "system": nkeys.CreateAccount, "account": nkeys.CreateAccount,
	} {
		k, err := make()
		if err != nil {
			t.Fatal(err)
		}
		x.keys[name] = k
	}
	t.Cleanup(x.stop)
	return x
}

func (x *foreign) public(k nkeys.KeyPair) string {
	x.t.Helper()
	text, err := k.PublicKey()
	if err != nil {
		x.t.Fatal(err)
	}
	return text
}

// user writes the credentials of a user who may not use these subjects.
func (x *foreign) user(name string, denied ...string) (path string) {
	x.t.Helper()
	k, err := nkeys.CreateUser()
	if err != nil {
		x.t.Fatal(err)
	}
	claims := jwt.NewUserClaims(x.public(k))
	claims.Name = name
	for _, d := range denied {
		claims.Pub.Deny.Add(d)
		claims.Sub.Deny.Add(d)
	}
	text, err := claims.Encode(x.keys["account"])
	if err != nil {
		x.t.Fatal(err)
	}
	seed, err := k.Seed()
	if err != nil {
		x.t.Fatal(err)
	}
	b, err := jwt.FormatUserConfig(text, seed)
	if err != nil {
		x.t.Fatal(err)
	}
	path = daemontest.ShortDir(x.t) + "/" + name + ".creds"
	if err := os.WriteFile(path, b, 0o600); err != nil {
		x.t.Fatal(err)
	}
	return path
}

// start starts the servers. disk is what the account may store by JetStream, 0 for none.
func (x *foreign) start(disk int64, payload int32) {
	x.t.Helper()
	operator, err := jwtOf(jwt.NewOperatorClaims(x.public(x.keys["operator"])), x.keys["operator"])
	if err != nil {
		x.t.Fatal(err)
	}
	resolver := &natsserver.MemAccResolver{}
	for name, bytes := range map[string]int64{"system": 0, "account": disk} {
		c := jwt.NewAccountClaims(x.public(x.keys[name]))
		c.Name = name
		c.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: bytes, Streams: 10, Consumer: 100}
		if bytes == 0 {
			c.Limits.JetStreamLimits = jwt.JetStreamLimits{}
		}
		text, err := c.Encode(x.keys["operator"])
		if err == nil {
			err = resolver.Store(x.public(x.keys[name]), text)
		}
		if err != nil {
			x.t.Fatal(err)
		}
	}
	claims, err := jwt.DecodeOperatorClaims(operator)
	if err != nil {
		x.t.Fatal(err)
	}
	var routes []*url.URL
	for _, h := range x.hosts {
		routes = append(routes, &url.URL{Scheme: "nats-route", Host: fmt.Sprintf("%s:%d", h, natsRoutes)})
	}
	for i, h := range x.hosts {
		s, err := natsserver.NewServer(&natsserver.Options{
			ServerName: fmt.Sprint("nats", i), Host: h, Port: natsPort, NoSigs: true, NoLog: true, MaxPayload: payload, MaxPending: 64 << 20,
			TrustedOperators: []*jwt.OperatorClaims{claims}, SystemAccount: x.public(x.keys["system"]), AccountResolver: resolver,
			JetStream: disk > 0, StoreDir: daemontest.ShortDir(x.t), JetStreamMaxStore: 4 << 30, JetStreamMaxMemory: 16 << 20,
			Cluster: natsserver.ClusterOpts{Name: "foreign", Host: h, Port: natsRoutes}, Routes: routes,
		})
		if err != nil {
			x.t.Fatal(err)
		}
		go s.Start()
		x.servers = append(x.servers, s)
	}
}

func jwtOf(c *jwt.OperatorClaims, k nkeys.KeyPair) (string, error) { return c.Encode(k) }

func (x *foreign) stop() {
	for _, s := range x.servers {
		s.Shutdown()
		s.WaitForShutdown()
	}
	x.servers = nil
}

func (x *foreign) urls() string {
	var out []string
	for _, h := range x.hosts {
		out = append(out, fmt.Sprintf("'nats://%s:%d'", h, natsPort))
	}
	return strings.Join(out, ", ")
}

// logs waits until a daemon logs a text after a point of its log.
func logs(t *testing.T, n *daemontest.Node, from int, texts ...string) {
	t.Helper()
	eventually.Nil(t, limit, fmt.Sprintf("%s logs %q", n.Name, texts), func() error {
		log := n.Log()[from:]
		for _, text := range texts {
			if !strings.Contains(log, text) {
				return fmt.Errorf("%q is missing in: %s", text, log[max(0, len(log)-3000):])
			}
		}
		return nil
	})
}

// TestForeign: a federation by NATS servers of another operator, with and without JetStream, with small
// limits, and with users who may too little.
func TestForeign(t *testing.T) {
	tools.Slow(t)
	x := newForeign(t)
	x.start(2<<30, 1<<20)
	f := &fleet{t: t, sites: map[string]*daemontest.Node{}, minions: map[string]*daemontest.Node{}}
	f.above = daemontest.NewMaster(t, brine, "above", daemontest.Host(), "")
	f.finger = keyPair(t, f.above)
	f.conf = fmt.Sprintf("federation_urls: [%s]\nfederation_credentials: %s\n", x.urls(), x.user("above"))
	f.above.Write("master", f.above.Read("master")+f.conf+"federation_hub: true\nfederation_replicas: 3\n")
	f.above.Start()
	f.conf = fmt.Sprintf("federation_urls: [%s]\nfederation_credentials: %s\n", x.urls(), x.user("eu", "brine.cmd.us"))
	f.addSite("eu", "meu")
	ping := func(when string) {
		t.Helper()
		eventually.Nil(t, limit, "the minion answers "+when, func() error { return f.above.PingOnly(brine, "meu") })
	}
	ping("by a NATS cluster with JetStream")

	// Another one, while a server ends.
	x.servers[0].Shutdown()
	ping("by two of three servers")

	// JetStream has less room than the streams need.
	from := len(f.above.Log())
	x.stop()
	x.start(1<<20, 64<<10)
	logs(t, f.above, from, "the bus keeps nothing for sites that are unreachable", "cannot make the stream BRINE_", "federation_replicas", "insufficient storage")
	ping("without room for streams")

	// A command and a return that are larger than a message may be.
	jid := salt.NewJID(time.Now())
	c := commander(t, f.above)
	large := client.Job{Target: "meu", Type: "glob", Fun: "test.echo", Arg: value.ListOf(strings.Repeat("x", 100_000)), JID: jid}
	if _, err := c.Publish(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	eventually.Nil(t, limit, "the large command is refused", func() error {
		all, err := f.job(jid)
		if err == nil && (all["eu"].State != "refused" || !strings.Contains(all["eu"].Reason, "larger than a message of the bus")) {
			err = fmt.Errorf("%+v", all)
		}
		return err
	})
	jid = f.give("meu", "cmd.run", "head -c 100000 /dev/zero | tr '\\0' x")
	f.isComplete(jid, "eu")
	eventually.Nil(t, limit, "the large return is named above", func() error {
		rets, err := f.returns(jid)
		if err == nil && !strings.Contains(fmt.Sprint(rets["meu"]), "more than a message of the bus may have") {
			err = fmt.Errorf("%.300v", rets)
		}
		return err
	})

	// No JetStream at all.
	from = len(f.above.Log())
	x.stop()
	x.start(0, 1<<20)
	logs(t, f.above, from, "the bus keeps nothing for sites that are unreachable")
	ping("without JetStream")

	// A user who may not publish what a site must, and a file without credentials.
	m := f.sites["eu"]
	before := m.Read("master")
	m.Kill()
	from = len(m.Log())
	m.Write("master", strings.Replace(before, "eu.creds", "poor.creds", 1))
	poor, err := os.ReadFile(x.user("poor", "brine.up.eu", "brine.cmd.eu"))
	if err != nil {
		t.Fatal(err)
	}
	path := credentialsOf(before)
	if err := os.WriteFile(strings.Replace(path, "eu.creds", "poor.creds", 1), poor, 0o600); err != nil {
		t.Fatal(err)
	}
	m.Start()
	logs(t, m, from, "the hub reported an error",
		`Permissions Violation for Subscription to \"brine.cmd.eu\"`, `Permissions Violation for Publish to \"brine.up.eu\"`)
	m.Kill()
	from = len(m.Log())
	m.Write("master", strings.Replace(before, "eu.creds", "none.creds", 1))
	m.Launch()
	logs(t, m, from, "federation_credentials: ", "none.creds: no such file")
	m.Kill()
	m.Write("master", before)
	m.Start()
	ping("with its credentials again")
}

// credentialsOf returns the path in a configuration.
func credentialsOf(conf string) string {
	_, rest, _ := strings.Cut(conf, "federation_credentials: ")
	path, _, _ := strings.Cut(rest, "\n")
	return path
}
