package cluster

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/ha/lease"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/fuzztest"
	"brine/test/fuzztest/conversation"
)

// computed marks fields of a conversation that depend on what was said before.
const computed = "computed"

// caller is the client's end of a connection in memory. What comes is read at
// once, so that neither end waits for the other to read.
type caller struct {
	net.Conn
	frames chan []byte
}

func call(serve func(net.Conn), limit int) (c *caller, hangUp func()) {
	ours, theirs := net.Pipe()
	served, read := make(chan struct{}), make(chan struct{})
	go func() { defer close(served); serve(theirs) }()
	c = &caller{Conn: ours, frames: make(chan []byte, 1000)}
	go func() {
		defer close(read)
		defer close(c.frames)
		frames := event.NewFrameReader(ours, limit)
		for {
			b, err := frames.Next()
			if err != nil {
				return
			}
			select {
			case c.frames <- bytes.Clone(b):
			default: // more than anybody reads
			}
		}
	}()
	ours.SetWriteDeadline(time.Now().Add(time.Minute))
	return c, func() { ours.Close(); <-served; <-read }
}

// next returns the next frame, nil if the other end has closed or says nothing.
func (c *caller) next(patience time.Duration) []byte {
	select {
	case b := <-c.frames:
		return b
	case <-time.After(patience):
		return nil
	}
}

// member talks as a master does, changed.
type member struct {
	*Cluster // never run
	to       *Cluster
	said     transcript
	nonce    string // of the other end
	out      *sealed
	patience time.Duration // with an answer
}

// say sends one message of a conversation and reports whether the connection
// goes on.
func (m *member) say(c *caller, msg *value.Dict) bool {
	d := msg.Dict("data")
	if d == nil {
		d = value.NewDict(0)
	}
	tag := map[string]string{"hello": tagHello, "key": tagKey, "discover": tagDiscover}[msg.Str("say")]
	if tag == "" && m.out == nil {
		tag = msg.Str("say")
	}
	switch {
	case tag == tagKey && m.nonce != "":
		key := crypt.NewKey()
		box, err := m.to.cfg.Own.Public().Encrypt(crypt.OAEPSHA224, []byte(key))
		if err != nil {
			return false
		}
		for k, v := range map[string]any{"key": box, "proof": proofOf(m.token, m.nonce), "inc": m.inc} {
			if d.Str(k) == computed {
				d.Set(k, v)
			}
		}
		said := slices.Clone(m.said)
		said.add(d.Bytes("key"), []byte(d.Str("proof")), []byte(d.Str("inc")))
		if d.Str("sig") == computed {
			sig, err := m.cfg.Own.Sign(crypt.PKCS1v15SHA224, said.sum(tagKey))
			if err != nil {
				return false
			}
			d.Set("sig", sig)
		}
		if !c.frame(tag, d) {
			return false
		}
		ready, _, err := hear(c.next(m.patience))
		cipher, err2 := crypt.NewCrypticle(key)
		if err != nil || err2 != nil || ready != tagReady {
			return false
		}
		m.out = &sealed{c: m.Cluster, conn: &line{Conn: c, raw: c}, cipher: cipher, out: "d", in: "a"}
		return true
	case tag == tagHello:
		b, err := say(tag, d)
		if err != nil {
			return true // cannot be said
		}
		if _, err := c.Write(event.Frame(b)); err != nil {
			return false
		}
		reply, r, err := hear(c.next(m.patience))
		if err != nil || reply != tagReply {
			return m.out != nil
		}
		m.nonce = r.Str("nonce")
		m.said = transcript{}
		m.said.add(b, []byte(m.nonce), rawFacts(r))
		return true
	case m.out == nil:
		return c.frame(tag, d)
	}
	// Items are messages of their own.
	items := d.List("items")
	for i, it := range items {
		if one, ok := it.(*value.Dict); ok {
			if b, err := msgpack.Marshal(one, msgpack.NewSpec); err == nil {
				items[i] = b
			}
		}
	}
	var pairs []any
	for k, v := range d.All() {
		if value.Hashable(k) {
			pairs = append(pairs, k, v)
		}
	}
	return m.out.send(pairs...) == nil
}

func (c *caller) frame(tag string, d *value.Dict) bool {
	b, err := say(tag, d)
	if err != nil {
		return true
	}
	_, err = c.Write(event.Frame(b))
	return err == nil
}

// tree is the content of all files below a directory.
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

// FuzzMemberTalk has a member of a cluster, or one that knows a member's id,
// say changed messages: the handshake, jobs, events, questions and feeds.
// Another member is served afterwards, under its own name alone, and its key
// stays.
func FuzzMemberTalk(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	s := newSet(f, 3)
	var masters []*Cluster
	for _, cfg := range s.cfgs {
		c, err := New(cfg, quiet())
		if err != nil {
			f.Fatal(err)
		}
		c.listener.Close() // connections are in memory
		masters = append(masters, c)
	}
	b, evil, good := masters[0], masters[1], masters[2]
	b.AnswerWith("echo", func(arg *value.Dict) *value.Dict { return arg })
	hello := func(c *Cluster) *value.Dict {
		return value.DictOf("say", "hello", "data", value.DictOf("nonce", nonce(), "facts", c.facts("").dict()))
	}
	key := value.DictOf("say", "key", "data", value.DictOf("key", computed, "proof", computed, "inc", computed, "sig", computed))
	frame := func(pairs ...any) *value.Dict { return value.DictOf("say", "frame", "data", value.DictOf(pairs...)) }
	talk := []*value.Dict{
		hello(evil), key,
		frame("want", value.ListOf("m1"), "vec", value.NewDict(0), "live", true),
		frame("first", int64(1), "items", value.ListOf(
			value.DictOf("k", "job", "jid", jid(1), "job", value.DictOf("fun", "test.ping", "jid", jid(1)), "minions", value.ListOf("m1"), "until", time.Now().Add(time.Hour).UnixMilli(), "from", "a"),
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
	values := conversation.Values(b.cfg.ID, evil.cfg.ID, good.cfg.ID, computed, "hello", "key", "frame", "discover", tagRefused, tagReady, "event", "job", "ret", "note", jid(2), "honest", "test", "records", value.ListOf(b.cfg.ID, good.cfg.ID))
	for _, p := range conversation.Seeds(len(talk), values) {
		f.Add(p)
	}
	f.Add([]byte{})
	peers := tree(f, b.PeersDir())
	n := uint64(0)
	f.Fuzz(func(t *testing.T, program []byte) {
		h := &host{}
		b.host = h
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		serve := func(conn net.Conn) { b.serve(ctx, conn) }

		c, hangUp := call(serve, maxFrame)
		m := &member{Cluster: evil, to: b, patience: 100 * time.Millisecond}
		for _, msg := range conversation.Mutate(program, talk, values) {
			if !m.say(c, msg) {
				break
			}
		}
		hangUp()

		c, hangUp = call(serve, maxFrame)
		defer hangUp()
		honest := &member{Cluster: good, to: b, patience: time.Minute}
		if !honest.say(c, hello(good)) || !honest.say(c, value.DeepCopy(key).(*value.Dict)) || honest.out == nil {
			t.Fatal("an honest member is refused")
		}
		n++
		if !honest.say(c, frame("first", int64(n), "items", value.ListOf(value.DictOf("k", "event", "tag", "honest", "data", value.DictOf("n", int64(n)))))) {
			t.Fatal("an honest member cannot send")
		}
		eventually(t, "the event of the honest member", h.has(func(h *host) bool { return slices.Contains(h.events, good.cfg.ID+" honest") }))
		for _, e := range h.events {
			if from, tag, _ := strings.Cut(e, " "); from != good.cfg.ID && from != evil.cfg.ID || from == good.cfg.ID && tag != "honest" {
				t.Errorf("an event is relayed as if it came from another member: %.200q", e)
			}
		}
		if tree(t, b.PeersDir()) != peers {
			t.Error("the keys of the members have changed")
		}
	})
}

// FuzzWitnessTalk has a peer that knows the secret of the cluster, or does not,
// say changed messages to a witness. A master of the cluster gets its answers
// afterwards.
func FuzzWitnessTalk(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	w, stop := runWitness(f, f.TempDir(), witnessSecret)
	defer stop()
	honest := newTeller(f, w.Addr().String(), "a", "test", witnessSecret, 0)
	recorded := []*value.Dict{
		value.DictOf("cluster", "test", "id", "b", "nonce", nonce()),
		value.DictOf("proof", computed, "sig", []byte("x")),
		value.DictOf("tidings", clusterInfo{secret: "a secret that is told without TLS", members: map[string]string{"b": "x"}}.dict()),
		requestDict(lease.Request{Holder: "b", Voters: lease.Fingerprint([]string{"w", "b", "a"})}),
		requestDict(lease.Request{Holder: "b", Token: 7, Voters: lease.Fingerprint([]string{"w", "b", "a"})}),
	}
	values := conversation.Values("a", "b", "w", "test", computed, witnessPrefix, strings.Repeat("00", 16))
	for _, p := range conversation.Seeds(len(recorded), values) {
		f.Add(p, true)
		f.Add(p, false)
	}
	f.Fuzz(func(t *testing.T, program []byte, knows bool) {
		secret := WitnessSecret(witnessSecret)
		if !knows {
			secret = WitnessSecret("another secret")
		}
		// An older master: without TLS each message is checked here alone.
		w.known.mu.Lock()
		w.known.d.TLS = false
		w.known.mu.Unlock()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		before, _, _ := w.known.terms()
		granted := false
		c, hangUp := call(func(conn net.Conn) {
			defer conn.Close()
			_ = w.serve(ctx, conn)
		}, maxWitnessFrame)
		var said transcript
		var after *talk
		for i, d := range conversation.Mutate(program, recorded, values) {
			conn := &line{Conn: c, raw: c}
			if after != nil {
				if after.say("m", d) != nil {
					break
				}
				continue
			}
			tag := tagWitness
			if i > 0 {
				tag = tagWitnessProof
			}
			if d.Str("proof") == computed {
				d.Set("proof", said.proof(secret, labelMaster))
			}
			if writeSaid(conn, tag, d, &said) != nil {
				break
			}
			reply := c.next(50 * time.Millisecond)
			got, _, err := hear(reply)
			if err != nil || got == tagWitnessRefused {
				break
			}
			if got == tagWitness {
				said.add(reply)
				continue
			}
			if got == tagWitnessProof {
				granted = true
				if after, err = newTalk(conn, nil, secret, said); err != nil {
					t.Fatal(err)
				}
			}
		}
		hangUp()
		if granted && !knows {
			t.Fatal("a peer without the secret is believed")
		}
		if now, _, _ := w.known.terms(); now != before {
			t.Fatal("the secret was replaced without TLS")
		}
		honest.answers(t, "afterwards", "")
	})
}
