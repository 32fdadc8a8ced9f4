package cluster

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/ha/cluster/clustertest"
	"brine/internal/ha/cluster/memberauth"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/fuzztest"
	"brine/test/fuzztest/conversation"
)

// member sends the mutated messages of a master.
type member struct {
	*Cluster  // never run
	to        *Cluster
	said      wire.Transcript
	nonce     string // nonce of the other end
	out       *wire.Session
	waitLimit time.Duration // how long to wait for an answer
}

// say sends one message of a conversation and reports whether the connection
// stays open.
func (m *member) say(c *clustertest.Caller, msg *value.Dict) bool {
	d := msg.Dict("data")
	if d == nil {
		d = value.NewDict(0)
	}
	tag := map[string]string{"hello": memberauth.TagHello, "key": memberauth.TagKey, "discover": memberauth.TagDiscover}[msg.Str("say")]
	if tag == "" && m.out == nil {
		tag = msg.Str("say")
	}
	switch {
	case tag == memberauth.TagKey && m.nonce != "":
		key := crypt.NewKey()
		box, err := m.to.cfg.Own.Public().Encrypt(crypt.OAEPSHA224, []byte(key))
		if err != nil {
			return false
		}
		for k, v := range map[string]any{"key": box, "proof": memberauth.ProofOf(m.inbound.token, m.nonce), "inc": m.inbound.inc} {
			if d.Str(k) == clustertest.Computed {
				d.Set(k, v)
			}
		}
		said := slices.Clone(m.said)
		said.Add(d.Bytes("key"), []byte(d.Str("proof")), []byte(d.Str("inc")))
		if d.Str("sig") == clustertest.Computed {
			sig, err := m.cfg.Own.Sign(crypt.PKCS1v15SHA224, said.Sum(memberauth.TagKey))
			if err != nil {
				return false
			}
			d.Set("sig", sig)
		}
		if !c.Frame(tag, d) {
			return false
		}
		ready, _, err := wire.Decode(c.Next(m.waitLimit))
		cipher, err2 := crypt.NewCrypticle(key)
		if err != nil || err2 != nil || ready != memberauth.TagReady {
			return false
		}
		m.out = &wire.Session{Count: &m.inbound.Sent, Conn: &wire.Line{Conn: c, Raw: c}, Cipher: cipher, Out: "d", In: "a"}
		return true
	case tag == memberauth.TagHello:
		b, err := wire.Encode(tag, d)
		if err != nil {
			return true // cannot be encoded
		}
		if _, err := c.Write(event.Frame(b)); err != nil {
			return false
		}
		reply, r, err := wire.Decode(c.Next(m.waitLimit))
		if err != nil || reply != memberauth.TagReply {
			return m.out != nil
		}
		m.nonce = r.Str("nonce")
		m.said = wire.Transcript{}
		m.said.Add(b, []byte(m.nonce), memberauth.RawFacts(r.Dict("facts")))
		return true
	case m.out == nil:
		return c.Frame(tag, d)
	}
	// Items are messages that are encoded separately.
	items := d.List("items")
	for i, it := range items {
		if one, ok := it.(*value.Dict); ok {
			if b, err := msgpack.Marshal(one, msgpack.NewSpec); err == nil {
				items[i] = b
			}
		}
	}
	frame := value.NewDict(d.Len() + 2)
	for k, v := range d.All() {
		if value.Hashable(k) {
			frame.Set(k, v)
		}
	}
	return m.out.SendDict(frame) == nil
}

// tree returns the content of all files below a directory.
func tree(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		b.WriteString(path + "\n" + string(text) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// FuzzMemberTalk sends mutated messages of a member, or of a master that knows a member's id: the
// handshake, jobs, events, queries and feeds. Afterwards the server still serves another member,
// only under that member's own name, and the member's key is unchanged.
func FuzzMemberTalk(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	s := newSet(f, 3)
	var masters []*Cluster
	for _, cfg := range s.cfgs {
		c, err := New(cfg, clustertest.Quiet())
		if err != nil {
			f.Fatal(err)
		}
		c.listener.Close() // connections are in memory
		masters = append(masters, c)
	}
	b, evil, good := masters[0], masters[1], masters[2]
	b.Queries.AnswerWith("echo", func(arg *value.Dict) *value.Dict { return arg })
	hello := func(c *Cluster) *value.Dict {
		return value.DictOf("say", "hello", "data", value.DictOf("nonce", wire.Nonce(), "facts", factsOf(c)))
	}
	key := value.DictOf("say", "key", "data", value.DictOf("key", clustertest.Computed, "proof", clustertest.Computed, "inc", clustertest.Computed, "sig",
		clustertest.Computed))
	frame := func(pairs ...any) *value.Dict { return value.DictOf("say", "frame", "data", value.DictOf(pairs...)) }
	talk := []*value.Dict{
		hello(evil), key,
		frame("want", value.ListOf("m1"), "vec", value.NewDict(0), "live", true),
		frame("first", int64(1), "items", value.ListOf(
			value.DictOf("k", "job", "jid", jid(1), "job", value.DictOf("fun", "test.ping", "jid", jid(1)), "minions", value.ListOf("m1"), "until",
				time.Now().Add(time.Hour).UnixMilli(), "from", "a"),
			value.DictOf("k", "event", "tag", "salt/minion/m1/start", "data", value.DictOf("id", "m1")),
			value.DictOf("k", "ret", "data", value.DictOf("jid", jid(1), "id", "m1", "return", true)),
			value.DictOf("k", "note", "note", "up", "id", "m1"))),
		frame("ask", int64(1), "what", askPresent),
		frame("ask", int64(2), "what", "echo", "arg", value.DictOf("x", "y")),
		frame("rep", "records", "origin", "a", "from", int64(0), "to", int64(2), "items", value.ListOf(value.ListOf(int64(1), []byte("x")))),
		frame("rep", "records", "vec", value.DictOf("a", int64(3)), "got", int64(1)),
		frame("vec", value.DictOf("records", value.DictOf("a", int64(3)))),
		frame("first", int64(5), "items", value.ListOf(value.DictOf("k", "event", "tag", tagRotate, "data", value.DictOf("x", "y")))),
	}
	values := conversation.Values(b.cfg.ID, evil.cfg.ID, good.cfg.ID, clustertest.Computed, "hello", "key", "frame", "discover", wire.TagRefused,
		memberauth.TagReady, "event", "job", "ret", "note", jid(2), "honest", "test", "records", value.ListOf(b.cfg.ID, good.cfg.ID))
	for _, p := range conversation.Seeds(len(talk), values) {
		f.Add(p)
	}
	f.Add([]byte{})
	peers := tree(f, b.Paths.PeersDir())
	n := uint64(0)
	f.Fuzz(func(t *testing.T, program []byte) {
		h := &host{}
		b.local.host = h
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		serve := func(conn net.Conn) { b.inbound.serve(ctx, conn) }

		c, hangUp := clustertest.Call(serve, wire.MaxFrame)
		m := &member{Cluster: evil, to: b, waitLimit: 100 * time.Millisecond}
		for _, msg := range conversation.Mutate(program, talk, values) {
			if !m.say(c, msg) {
				break
			}
		}
		hangUp()

		c, hangUp = clustertest.Call(serve, wire.MaxFrame)
		defer hangUp()
		honest := &member{Cluster: good, to: b, waitLimit: time.Minute}
		if !honest.say(c, hello(good)) || !honest.say(c, value.DeepCopy(key).(*value.Dict)) || honest.out == nil {
			t.Fatal("an honest member is refused")
		}
		n++
		if !honest.say(c, frame("first", int64(n), "items", value.ListOf(value.DictOf("k", "event", "tag", "honest", "data", value.DictOf("n", int64(n)))))) {
			t.Fatal("an honest member cannot send")
		}
		clustertest.Eventually(t, "the event of the honest member", h.has(func(h *host) bool { return slices.Contains(h.events, good.cfg.ID+" honest") }))
		for _, e := range h.events {
			if from, tag, _ := strings.Cut(e, " "); from != good.cfg.ID && from != evil.cfg.ID || from == good.cfg.ID && tag != "honest" {
				t.Errorf("an event is relayed as if it came from another member: %.200q", e)
			}
		}
		if tree(t, b.Paths.PeersDir()) != peers {
			t.Error("the keys of the members have changed")
		}
	})
}

// factsOf returns the facts that a member sends in hello.
func factsOf(c *Cluster) *value.Dict {
	f := c.inbound.self().Facts
	f.Proof, f.Now = memberauth.ProofOf(c.inbound.token, ""), time.Now()
	return f.Dict()
}
