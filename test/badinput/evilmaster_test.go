package badinput

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/net/transport/zeromq"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// rawMaster calls do for every connection to either port.
func rawMaster(t *testing.T, do func(net.Conn)) (host string, met *atomic.Int64) {
	t.Helper()
	host, met = daemontest.Host(), &atomic.Int64{}
	var wg sync.WaitGroup
	var all []net.Listener
	for _, port := range []int{daemontest.PublishPort, daemontest.RetPort} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		must(t, err)
		all = append(all, l)
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				met.Add(1)
				wg.Go(func() {
					defer c.Close()
					stop := context.AfterFunc(t.Context(), func() { c.Close() })
					defer stop()
					do(c)
				})
			}
		})
	}
	t.Cleanup(func() {
		for _, l := range all {
			l.Close()
		}
		wg.Wait()
	})
	return host, met
}

// liar is a master with its own or a stolen key that sends arbitrary answers.
type liar struct {
	t        *testing.T
	host     string
	identity *handshake.Identity
	pub      transport.Publisher
	server   *channel.PublishServer
	met      atomic.Int64
	// answer returns the answer to a sign-in; good is the answer of an honest master.
	answer func(n int64, good *value.Dict) any
}

func newLiar(t *testing.T, key *crypt.PrivateKey, answer func(n int64, good *value.Dict) any) *liar {
	t.Helper()
	l := &liar{t: t, host: daemontest.Host(), identity: handshake.NewIdentity(key, nil), answer: answer}
	tr := zeromq.New(quiet)
	req, err := tr.ListenRequests(fmt.Sprintf("%s:%d", l.host, daemontest.RetPort), transport.ListenOptions{})
	must(t, err)
	l.pub, err = tr.ListenPublish(fmt.Sprintf("%s:%d", l.host, daemontest.PublishPort), transport.ListenOptions{HighWater: 100_000})
	must(t, err)
	l.server, err = channel.NewPublishServer(channel.PublishOptions{}, l.identity, []transport.Publisher{l.pub})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { req.Serve(ctx, l.handle) })
	wg.Go(func() { l.pub.Serve(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return l
}

func (l *liar) handle(r *transport.Request) {
	n := l.met.Add(1)
	var reply any = "bad load"
	v, _ := msgpack.Unmarshal(r.Body)
	if env, ok := v.(*value.Dict); ok && env.Str("enc") == "clear" {
		reply = l.answer(n, l.honest(env.Dict("load")))
	}
	if raw, ok := reply.([]byte); ok { // bytes instead of msgpack
		r.Reply(raw)
		return
	}
	b, err := msgpack.Marshal(reply, msgpack.Wire)
	if err != nil {
		b = []byte{0xc0}
	}
	r.Reply(b)
}

// honest returns the inner map of an honest acceptance, before it is signed.
func (l *liar) honest(load *value.Dict) *value.Dict {
	req, err := handshake.ParseRequest(load, 3)
	if err != nil {
		return value.NewDict(0)
	}
	pub, err := crypt.ParsePublic([]byte(req.Pub))
	if err != nil {
		return value.NewDict(0)
	}
	signed, err := l.identity.Acceptance(req, pub, handshake.Secrets{AES: l.server.AES(), Session: crypt.NewKey(), PublishPort: daemontest.PublishPort})
	if err != nil {
		return value.NewDict(0)
	}
	inner, _ := msgpack.Unmarshal(signed.Bytes("load"))
	d, _ := inner.(*value.Dict)
	return d
}

func (l *liar) signed(inner *value.Dict) any {
	d, err := l.identity.Signed(inner, crypt.PKCS1v15SHA1)
	if err != nil {
		return nil
	}
	return d
}

// lies are answers to a sign-in that a minion must reject.
func lies(l func() *liar) []func(good *value.Dict) any {
	with := func(k string, v any) func(*value.Dict) any {
		return func(good *value.Dict) any {
			d := good.Clone()
			d.Set(k, v)
			return l().signed(d)
		}
	}
	junk := make([]byte, 256)
	rand.Read(junk)
	return []func(*value.Dict) any{
		with("nonce", strings.Repeat("0", 32)), with("token", junk), with("aes", junk), with("session", junk), with("sig", junk),
		with("pub_key", "no key"), with("pub_key", strings.Repeat("k", 1<<20)), with("aes", nil),
		func(good *value.Dict) any { d := good.Clone(); d.Delete("token"); return l().signed(d) },
		func(good *value.Dict) any { d := good.Clone(); d.Delete("session"); return l().signed(d) },
		func(good *value.Dict) any { return value.DictOf("enc", "clear", "load", good) },
		func(good *value.Dict) any { return value.DictOf("enc", "clear", "load", []byte("x"), "sig", junk) },
		func(*value.Dict) any { return value.DictOf("enc", "clear", "load", value.DictOf("ret", false)) },
		func(*value.Dict) any { return value.DictOf("enc", "clear", "load", value.DictOf("ret", true)) },
		func(*value.Dict) any { return "bad load" },
		func(*value.Dict) any { return nil },
		func(*value.Dict) any { return 7 },
		func(*value.Dict) any { return nested(1_000_000) },
		func(*value.Dict) any { return many(1_000_000) },
		func(*value.Dict) any { return []byte{0xdf, 0xff, 0xff, 0xff, 0xff} },
		func(*value.Dict) any { return bytes.Repeat([]byte{0xc1}, 20<<20) },
	}
}

// TestMinionAmongEvilMasters: a minion with one honest master and many hostile ones always answers
// the honest one.
func TestMinionAmongEvilMasters(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	key, err := crypt.LoadPrivate(m.Path(masterPKI+"/master.pem"), "")
	must(t, err)

	met := map[string]*atomic.Int64{}
	hosts := []string{}
	raw := func(name string, do func(net.Conn)) {
		h, n := rawMaster(t, do)
		hosts, met[name] = append(hosts, h), n
	}
	raw("closes at once", func(net.Conn) {})
	raw("says nothing", func(c net.Conn) { c.Read(make([]byte, 1)); <-t.Context().Done() })
	junk := make([]byte, 1<<20)
	rand.Read(junk)
	raw("says garbage", func(c net.Conn) {
		for range 20 {
			if _, err := c.Write(junk); err != nil {
				return
			}
		}
	})
	raw("greets for ever", func(c net.Conn) {
		c.Write(zmtpHello("ROUTER"))
		for {
			if _, err := c.Write([]byte{4, 6, 4, 'P', 'I', 'N', 'G', 0}); err != nil {
				return
			}
		}
	})
	raw("announces much", func(c net.Conn) {
		c.Write(append(zmtpHello("ROUTER"), 1, 0, 2, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff))
		c.Read(make([]byte, 1<<20))
		<-t.Context().Done()
	})
	other := daemontest.NewMaster(t, brine, "other", daemontest.Host(), "auto_accept: True\n").Start()
	hosts = append(hosts, other.Host)
	var stolen *liar
	all := lies(func() *liar { return stolen })
	stolen = newLiar(t, key, func(n int64, good *value.Dict) any { return all[int(n)%len(all)](good) })
	hosts = append(hosts, stolen.host)
	var flooder *liar
	flooder = newLiar(t, key, func(_ int64, good *value.Dict) any { return flooder.signed(good) })
	hosts = append(hosts, flooder.host)

	w := daemontest.NewMinion(t, brine, "w", append([]string{m.Host}, hosts...), "")
	put(t, w.Path(minionPKI+"/minion_master.pub"), key.Public().PEM(), 0o644)
	w.Level = "info"
	w.Start()
	answers(t, m, "w")
	h := examine(t, w)
	during(t, m, []string{"w"}, func() {
		flood(t, flooder, w.Path("evil"))
		eventually.Nil(t, waitLimit, "every lie was told", func() error {
			if n := stolen.met.Load(); n < int64(len(all)) {
				return fmt.Errorf("%d of %d", n, len(all))
			}
			return nil
		})
	})
	for name, n := range met {
		eventually.Nil(t, waitLimit, "the master that "+name+" is not given up", func() error {
			if n.Load() < 2 {
				return fmt.Errorf("met %d times", n.Load())
			}
			return nil
		})
	}
	if _, err := os.Stat(w.Path("evil")); err == nil {
		t.Error("a forged job was run")
	}
	// Only the first of several equal lies is logged.
	w.Logged("the master's public key has fingerprint", other.Host, stolen.host+` err=`)
	if n := len(w.Log()); n > 10<<20 {
		t.Errorf("the log has %d bytes", n)
	}
	if !w.Alive() {
		t.Error("the minion has ended")
	}
	h.bounded(250)
	h.recovers(100)
	if b, err := os.ReadFile(w.Path(minionPKI + "/minion_master.pub")); err != nil || crypt.CleanKey(string(b)) != crypt.CleanKey(string(key.Public().PEM())) {
		t.Errorf("the key of the master was changed: %v", err)
	}
}

// flood publishes unreadable, forged and oversized messages, and many valid jobs.
func flood(t *testing.T, l *liar, file string) {
	t.Helper()
	eventually.Nil(t, waitLimit, "the minion listens to the flooder", func() error {
		if len(l.pub.Peers()) == 0 {
			return fmt.Errorf("it does not")
		}
		return nil
	})
	forged := crypt.NewKey()
	c, err := crypt.NewCrypticle(forged)
	must(t, err)
	job := value.DictOf("fun", "cmd.run", "arg", value.ListOf("touch "+file), "tgt", "*", "jid", newJID(), "ret", "", "tgt_type", "glob")
	plain, err := msgpack.Marshal(job, msgpack.Wire)
	must(t, err)
	sealed, err := msgpack.Marshal(value.DictOf("enc", "aes", "load", c.Seal(plain, "")), msgpack.Wire)
	must(t, err)
	clearJob, err := msgpack.Marshal(value.DictOf("enc", "clear", "load", job), msgpack.Wire)
	must(t, err)
	for i := range 20 {
		for _, b := range [][]byte{sealed, clearJob, {0xc1}, nested(100_000), many(100_000), bytes.Repeat([]byte("x"), 1<<20), {0xdf, 0xff, 0xff, 0xff, 0xff}} {
			l.pub.Publish(transport.Publication{Payload: b})
		}
		for range 100 {
			must(t, l.server.Publish(value.DictOf("fun", "test.echo", "arg", value.ListOf(i), "tgt", "*", "jid", newJID(), "ret", "", "tgt_type", "glob"), nil))
		}
		for _, bad := range []*value.Dict{
			value.NewDict(0), value.DictOf("fun", 1, "arg", 2, "tgt", 3, "jid", 4), value.DictOf("fun", "cmd.run", "arg", "x", "tgt", "*", "jid", "../../x"),
			value.DictOf("fun", "test.ping", "arg", value.ListOf(), "tgt", strings.Repeat("(", 10_000), "tgt_type", "compound", "jid", newJID()),
			value.DictOf("fun", "test.ping", "arg", value.ListOf(), "tgt", strings.Repeat("(a*)*", 1000)+"b", "tgt_type", "pcre", "jid", newJID()),
			value.DictOf("fun", value.ListOf(value.ListOf(1)), "arg", value.NewDict(0), "tgt", "*", "jid", newJID()),
		} {
			must(t, l.server.Publish(bad, nil))
		}
		time.Sleep(20 * time.Millisecond)
	}
}
