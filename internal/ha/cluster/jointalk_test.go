package cluster

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/ha/cluster/clustertest"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/memberauth"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/test/fuzztest"
	"brine/test/fuzztest/conversation"
)

// joiner sends the mutated messages of a joining master.
type joiner struct {
	own    *crypt.PrivateKey
	member *crypt.PublicKey
	secret string
	said   wire.Transcript
}

// say sends one message and reports whether the conversation continues. Fields marked Computed
// depend on the secret and previous messages.
func (j *joiner) say(c *clustertest.Caller, msg *value.Dict) bool {
	d := msg.Dict("data")
	if d == nil {
		d = value.NewDict(0)
	}
	tag := map[string]string{"discover": memberauth.TagDiscover, "join": memberauth.TagJoin}[msg.Str("say")]
	switch tag {
	case memberauth.TagDiscover:
		b, err := wire.Encode(tag, d)
		if err != nil {
			return true // cannot be encoded
		}
		if _, err := c.Write(event.Frame(b)); err != nil {
			return false
		}
		reply := c.Next(time.Minute)
		if got, _, err := wire.Decode(reply); err != nil || got != memberauth.TagDiscoverReply {
			return false
		}
		j.said = (&wire.Line{TLS: true}).Transcript()
		j.said.Add(b)
		j.said.Add(wire.Unsigned(reply))
		return true
	case memberauth.TagJoin:
		if box, err := j.member.Encrypt(crypt.OAEPSHA224, []byte(crypt.NewKey())); err == nil && d.Str("key") == clustertest.Computed {
			d.Set("key", box)
		}
		j.said.Add(d.Bytes("key"))
		if d.Str("proof") == clustertest.Computed {
			d.Set("proof", j.said.Proof(j.secret, memberauth.TagJoin))
		}
		j.said.Add(d.Bytes("proof"))
		if sig, err := j.own.Sign(crypt.PKCS1v15SHA224, j.said.Sum(memberauth.TagJoin)); err == nil && d.Str("sig") == clustertest.Computed {
			d.Set("sig", sig)
		}
	}
	return c.Frame(tag, d)
}

// FuzzJoinTalk sends mutated messages of a joining master: once with the secret,
// once without. Without it nothing is written. With it at most one key is
// written, under a valid id that was free, and a member admits an honest master
// afterwards.
func FuzzJoinTalk(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	dir := f.TempDir()
	s := openSecrets(f, dir, "b", 1)
	pairs, err := clustertest.Keys()
	if err != nil {
		f.Fatal(err)
	}
	secret := strings.Repeat("s", keys.MinSecret)
	b := assemble(Config{ID: "b", Own: pairs[1], OwnPub: pairs[1].Public().PEM(), Options: Options{ID: "c", PKIDir: dir, Isolated: true, Secret: secret}},
		s, nil, clustertest.Quiet())
	b.Keyring.ring.Store(keys.NewRing(s.Key, keys.Rotation{}))
	if err := b.trust.files.Ban("b", "banned"); err != nil {
		f.Fatal(err)
	}
	victim := pairs[0].Public().PEM()
	victimPath := s.PeerPath("victim")
	if err := os.WriteFile(victimPath, []byte(victim), 0o600); err != nil {
		f.Fatal(err)
	}
	before := tree(f, dir)

	talk := func(id string, pair int) []*value.Dict {
		return []*value.Dict{
			value.DictOf("say", "discover", "data", value.DictOf("id", id, "cluster", "c", "protocol", wire.Protocol, "nonce", wire.Nonce(), "pub",
				pairs[pair].Public().PEM())),
			value.DictOf("say", "join", "data", value.DictOf("key", clustertest.Computed, "proof", clustertest.Computed, "sig", clustertest.Computed)),
		}
	}
	values := conversation.Values("b", "victim", "banned", "../x", "new", "c", clustertest.Computed, victim, "discover", "join", wire.Protocol)
	for _, p := range conversation.Seeds(len(talk("new", 2)), values) {
		f.Add(p)
	}
	f.Add([]byte{})
	// serve answers one conversation and returns the joined master.
	serve := func(conn net.Conn) (id string) {
		frames := event.NewFrameReader(conn, wire.MaxGreeting)
		body, err := frames.Next()
		if tag, _, ok := event.SplitBody(body); err != nil || !ok || tag != memberauth.TagDiscover {
			return ""
		}
		id, err = b.inbound.letIn(&wire.Line{Conn: conn, Raw: conn, TLS: true}, frames, bytes.Clone(body))
		if err != nil {
			return ""
		}
		return id
	}
	run := func(secret string, messages []*value.Dict, pair int) string {
		joined := make(chan string, 1)
		c, hangUp := clustertest.Call(func(conn net.Conn) { defer conn.Close(); joined <- serve(conn) }, maxWelcome)
		j := &joiner{own: pairs[pair], member: pairs[1].Public(), secret: secret}
		said := 0
		for _, msg := range messages {
			if said++; !j.say(c, msg) {
				break
			}
		}
		// The member answers or closes the connection after the second message at the
		// latest.
		if said > 1 {
			c.Next(time.Minute)
		}
		hangUp()
		return <-joined
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		if id := run("guessed", conversation.Mutate(program, talk("new", 2), values), 2); id != "" || tree(t, dir) != before {
			t.Fatalf("%q has joined without the secret, or a file has changed", id)
		}
		id := run(secret, conversation.Mutate(program, talk("new", 2), values), 2)
		switch {
		case id == "b" || id == "banned":
			t.Fatalf("%q has joined", id)
		case id == "victim":
			if text, err := os.ReadFile(victimPath); err != nil || strings.TrimSpace(string(text)) != strings.TrimSpace(string(victim)) {
				t.Fatalf("the key of a member is replaced: %v", err)
			}
			if err := os.WriteFile(victimPath, []byte(victim), 0o600); err != nil {
				t.Fatal(err)
			}
		case id != "":
			if filepath.Dir(s.PeerPath(id)) != filepath.Dir(s.PeerPath("b")) {
				t.Fatalf("the key of %q is outside of the directory", id)
			}
			if err := os.Remove(s.PeerPath(id)); err != nil {
				t.Fatal(err)
			}
		}
		if tree(t, dir) != before {
			t.Fatalf("other files have changed as %q joined", id)
		}
		if id := run(secret, talk("honest", 2), 2); id != "honest" {
			t.Fatalf("an honest master is not let in, but %q", id)
		}
		if err := os.Remove(s.PeerPath("honest")); err != nil {
			t.Fatal(err)
		}
	})
}
