package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/net/crypt"
	"brine/internal/net/transport"
	"brine/internal/net/transport/zeromq"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// loot is the data that a member can copy and use after its removal.
type loot struct {
	t       *testing.T
	aes     []string // keys of publications
	secrets [][]byte // from which session keys may be computed
	id      string
	pub     string // key of the minion id
	tok     []byte // sent by the minion with each request
	tokens  []string
}

// steal copies the secrets that a member knows, for a minion that signs in there. The masters must
// have publish_session: 0, so that session keys do not change with time.
func steal(t *testing.T, from, minion *node) *loot {
	t.Helper()
	l := &loot{t: t, id: minion.Name}
	l.add(from)
	l.pub = strings.TrimSpace(strings.ReplaceAll(from.Read("cluster/minions/"+minion.Name), "\r", ""))
	key, err := crypt.LoadPrivate(minion.Path("etc/salt/pki/minion/minion.pem"), "")
	must(t, err)
	l.tok, err = key.SignX931([]byte("salt")) // it is in each request that the member has served
	must(t, err)
	return l
}

func (l *loot) add(from *node) {
	l.t.Helper()
	key, err := crypt.LoadPrivate(from.Path("cluster/cluster.pem"), "")
	must(l.t, err)
	old, err := key.Sign(crypt.PKCS1v15SHA224, []byte("session keys of Brine's masters"))
	must(l.t, err)
	l.secrets = append(l.secrets, old)
	if b, err := os.ReadFile(from.Path("cluster/.sessions")); err == nil {
		l.secrets = append(l.secrets, bytes.TrimSpace(b))
	}
	l.aes = append(l.aes, strings.TrimSpace(from.Read("cluster/.aes")))
	entries, _ := os.ReadDir(from.Path("var/cache/salt/master/tokens"))
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			l.tokens = append(l.tokens, e.Name())
		}
	}
}

// request sends a request as the minion, with each session key that can be computed, and returns
// the readable answers that are not refusals.
func (l *loot) request(at *node, cmd string, pairs ...any) (good []any) {
	l.t.Helper()
	r := zeromq.New(slog.New(slog.DiscardHandler)).NewRequester(at.Requests(), transport.DialOptions{})
	defer r.Close()
	keys := l.aes
	for _, s := range l.secrets {
		keys = append(keys, crypt.DeriveKey(s, fmt.Sprintf("%s\x00%d\x00%s", l.id, 1, l.pub)))
	}
	for _, k := range keys {
		c, err := crypt.NewCrypticle(k)
		must(l.t, err)
		var nonce [16]byte
		rand.Read(nonce[:])
		load := value.DictOf(pairs...)
		load.Set("cmd", cmd)
		load.Set("id", l.id)
		load.Set("nonce", hex.EncodeToString(nonce[:]))
		load.Set("ts", time.Now().Unix())
		load.Set("tok", l.tok)
		plain, err := msgpack.Marshal(load, msgpack.Wire)
		must(l.t, err)
		body, err := msgpack.Marshal(value.DictOf("enc", "aes", "load", c.Seal(plain, ""), "version", 3, "id", l.id), msgpack.NewSpec)
		must(l.t, err)
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
		raw, err := r.Request(ctx, body)
		cancel()
		must(l.t, err)
		if sealed, ok := msgpack.Text(raw); ok && string(sealed) != "bad load" {
			if plain, err := c.OpenNonce(sealed, hex.EncodeToString(nonce[:])); err == nil {
				v, _ := msgpack.Unmarshal(plain)
				good = append(good, v)
				continue
			}
		}
		v, _ := msgpack.Unmarshal(raw)
		if v != "bad load" {
			good = append(good, v)
		}
	}
	return good
}

// reads reports whether one of the keys decrypts what a master publishes during do.
func (l *loot) reads(at *node, do func()) bool {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 60*time.Second)
	defer cancel()
	sub, err := zeromq.New(slog.New(slog.DiscardHandler)).Subscribe(ctx, at.Publications(), transport.DialOptions{})
	must(l.t, err)
	defer sub.Close()
	time.Sleep(200 * time.Millisecond) // until the master knows of it
	do()
	b, err := sub.Receive()
	must(l.t, err)
	v, err := msgpack.Unmarshal(b)
	must(l.t, err)
	d, _ := v.(*value.Dict)
	for _, k := range l.aes {
		c, err := crypt.NewCrypticle(k)
		must(l.t, err)
		if _, err := c.Open(d.Bytes("load")); err == nil {
			return true
		}
	}
	return false
}

// TestRemovedMemberIsAStranger: a removed member with copies of all its secrets cannot read a
// pillar or a job, or forge a message of a minion, and its tokens are invalid, at any member. The
// same holds after rotate-secret. Jobs that run meanwhile are not lost.
func TestRemovedMemberIsAStranger(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "auto_accept: true\npublish_session: 0\nsharedsecret: s3cret\nexternal_auth: {sharedsecret: {alice: [test.ping]}}\ntimeout: 20\n")
	for _, m := range a.masters {
		must(t, os.MkdirAll(m.Path("pillar"), 0o755))
		m.Write("pillar/top.sls", "base: {'*': [p]}\n")
		m.Write("pillar/p.sls", "topsecret: PILLAR-OF-V\n")
		m.Write("master", m.Read("master")+"pillar_roots: {base: ["+m.Path("pillar")+"]}\n")
	}
	a.start()
	one, two, three := a.masters[0], a.masters[1], a.masters[2]
	v := a.minion("v", one, two)
	for _, m := range a.masters[:2] {
		eventually.Nil(t, soon, "it answers to "+m.Name, func() error { return m.PingAll(brine, "v") })
	}
	token := filepath.Join(t.TempDir(), "token")
	one.Write("master", one.Read("master")+"token_file: "+token+"\n")
	if out, errs, code := one.Run(brine, "salt", "-a", "sharedsecret", "--username=alice", "--password=s3cret", "-T", "v", "test.ping"); code != 0 {
		t.Fatal(out, errs)
	}
	a.equal(three, 3, map[string]int{"key": 1, "token": 1})
	l := steal(t, three, v)
	if len(l.tokens) != 1 {
		t.Fatalf("tokens of the member: %q", l.tokens)
	}
	if len(l.request(two, "_mine_get", "tgt", "*", "fun", "x")) == 0 {
		t.Fatal("the keys that a member has are not those of the minion: this test tests nothing")
	}
	// Even a present member cannot read a pillar in the old format with session keys alone.
	for _, got := range l.request(two, "_pillar", "ver", "1", "grains", value.NewDict(0), "saltenv", "base") {
		if strings.Contains(value.Str(got), "PILLAR-OF-V") {
			t.Errorf("a pillar is answered in the form of before 2015: %s", value.Str(got))
		}
	}
	slow := make(chan string, 1)
	go func() {
		out, errs, _ := two.Run(brine, "salt", "v", "test.sleep", "4")
		slow <- out + errs
	}()
	time.Sleep(time.Second)
	expel := func(what string, do ...string) {
		from := time.Now()
		if out, errs, code := one.Run(brine, do[0], do[1:]...); code != 0 {
			t.Fatalf("%s: %s%s", what, out, errs)
		}
		t.Logf("%s took %v", what, time.Since(from).Round(time.Millisecond))
		for i := range 5 {
			for _, m := range a.masters[:2] {
				if out, errs, _ := m.Run(brine, "salt", "v", "test.echo", fmt.Sprint(i)); !strings.Contains(out, fmt.Sprint(i)) {
					t.Errorf("after %s a job at %s is lost: %s%s", what, m.Name, out, errs)
				}
			}
		}
		for _, m := range a.masters[:2] {
			l.isStranger(m, what, func() {
				if out, errs, _ := m.Run(brine, "salt", "v", "test.echo", "secret-argument"); !strings.Contains(out, "secret-argument") {
					t.Errorf("after %s: %s%s", what, out, errs)
				}
			})
		}
	}
	expel("remove", "cluster", "remove", three.Name)
	if out := <-slow; !strings.Contains(out, "True") {
		t.Errorf("a job that ran meanwhile: %s", out)
	}
	for _, m := range a.masters[:2] {
		for _, tok := range l.tokens {
			must(t, os.WriteFile(token, []byte(tok), 0o600))
			if out, errs, _ := m.Run(brine, "salt", "-a", "sharedsecret", "v", "test.ping"); strings.Contains(out, "True") {
				t.Errorf("a token that the member knew is good at %s: %s%s", m.Name, out, errs)
			}
		}
	}
	for _, f := range []string{"cluster/.aes", "cluster/.sessions", "cluster/.secret"} {
		mine, err := os.ReadFile(three.Path(f))
		if now := one.Read(f); err == nil && string(mine) == now || now != two.Read(f) {
			t.Errorf("the member that was removed has the present %s, or the others have not the same", f)
		}
	}
	l.add(one)
	expel("rotate-secret", "cluster", "rotate-secret")
}

func (l *loot) isStranger(at *node, after string, job func()) {
	l.t.Helper()
	heard := at.Events()
	for _, c := range []struct {
		cmd  string
		load []any
	}{
		{"_pillar", []any{"ver", "1", "grains", value.NewDict(0), "saltenv", "base"}},
		{"_pillar", []any{"grains", value.NewDict(0), "saltenv", "base"}},
		{"_mine", []any{"data", value.DictOf("forged", "FORGED")}},
		{"_mine_get", []any{"tgt", "*", "fun", "forged"}},
		{"_return", []any{"jid", "20260101000000000000", "fun", "test.ping", "return", "FORGED", "retcode", 0, "success", true}},
		{"_minion_event", []any{"tag", "forged/event", "data", value.DictOf("x", 1)}},
		{"_master_opts", nil},
	} {
		if got := l.request(at, c.cmd, c.load...); len(got) > 0 {
			l.t.Errorf("after %s, %s at %s is answered with %s", after, c.cmd, at.Name, value.Str(got[0]))
		}
	}
	if l.reads(at, job) {
		l.t.Errorf("after %s, who was removed reads the jobs of %s", after, at.Name)
	}
	if strings.Contains(heard(), "forged/event") {
		l.t.Errorf("after %s, an event was forged at %s", after, at.Name)
	}
}

// TestRemovedIDMustBeReadmitted: a removed master cannot return with an empty disk and the old
// secret, or with the new one, until a member readmits its id. With --keep-secret the old secret
// stays valid.
func TestRemovedIDMustBeReadmitted(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "auto_accept: true\n").start()
	one, two, late := a.masters[0], a.masters[1], a.masters[2]
	a.equal(one, 3, map[string]int{"peer": 3})
	expel := func(args ...string) (secret string) {
		t.Helper()
		out, errs, code := one.Run(brine, "cluster", append([]string{"remove", late.Name}, args...)...)
		if code != 0 {
			t.Fatal(out, errs)
		}
		return shownSecret(out)
	}
	again := func(with string) {
		t.Helper()
		for _, dir := range []string{"cluster", "var/cache", "etc/salt/pki"} {
			must(t, os.RemoveAll(late.Path(dir)))
		}
		text := late.Read("master")
		from := strings.Index(text, "cluster_secret: ")
		to := from + strings.Index(text[from:], "\n")
		late.Write("master", text[:from]+"cluster_secret: "+with+text[to:])
		late.Launch()
	}
	refuses := func(what, with, want string) {
		t.Helper()
		again(with)
		if code := late.Wait(60 * time.Second); code == 0 || !strings.Contains(late.Log(), want) {
			t.Errorf("%s: exit code %d, and it does not say %q:\n%s", what, code, want, late.Log())
		}
	}
	now := expel()
	if len(now) != 32 || now == secret {
		t.Fatalf("remove shows no new secret: %q", now)
	}
	late.Kill()
	refuses("with the old secret", secret, "does not know cluster_secret")
	refuses("with the new secret", now, "was removed from this cluster")
	eventually.Nil(t, soon, "the other member knows", func() error {
		_, err := os.Stat(two.Path("cluster/removed/" + late.Name))
		return err
	})
	if out, errs, code := two.Run(brine, "cluster", "readmit", late.Name); code != 0 {
		t.Fatal(out, errs)
	}
	if out, errs, code := two.Run(brine, "cluster", "readmit", late.Name); code == 0 || !strings.Contains(out+errs, "no master "+late.Name+" was removed") {
		t.Errorf("readmitted twice: %d %s%s", code, out, errs)
	}
	eventually.Nil(t, soon, "the first member knows", func() error {
		if _, err := os.Stat(one.Path("cluster/removed/" + late.Name)); err == nil {
			return errors.New("not yet")
		}
		return nil
	})
	again(now)
	late.Await()
	a.equal(one, 3, map[string]int{"peer": 3})

	if shown := expel("--keep-secret"); shown != "" {
		t.Errorf("a secret is shown: %q", shown)
	}
	late.Kill()
	refuses("with the secret that was kept", now, "was removed from this cluster")
	if out, errs, code := one.Run(brine, "cluster", "readmit", late.Name); code != 0 {
		t.Fatal(out, errs)
	}
	eventually.Nil(t, soon, "the members know", func() error {
		if _, err := os.Stat(two.Path("cluster/removed/" + late.Name)); err == nil {
			return errors.New("not yet")
		}
		return nil
	})
	again(now)
	late.Await()
	a.equal(one, 3, map[string]int{"peer": 3})
}

// TestJoinedMasterKeepsNewSecrets: a machine joins, but its master is started, with a copy of the
// old secrets, only after these were replaced. It accepts the new ones and does not undo the
// replacement.
func TestJoinedMasterKeepsNewSecrets(t *testing.T) {
	t.Parallel()
	a := newApart(t, 2, "auto_accept: true\n").start()
	one, two := a.masters[0], a.masters[1]
	late := daemontest.NewMaster(t, brine, daemontest.Host(), "127.0.0.1", "")
	late.Host = late.Name
	late.Write("master", strings.Replace(late.Read("master"), "interface: 127.0.0.1", "interface: "+late.Host, 1)+
		fmt.Sprintf("keysize: 2048\ncluster_pool_port: %d\nauto_accept: true\n", poolPort))
	late.Write("secret", secret+"\n")
	if out, errs, code := late.Run(brine, "cluster", "join", one.Host, "--id", late.Host, "--name", "test", "--secret-file", late.Path("secret")); code != 0 {
		t.Fatal(out, errs)
	}
	const pki = "etc/salt/pki/master/"
	files := []string{".aes", ".sessions"}
	old := map[string]string{}
	for _, f := range files {
		old[f] = late.Read(pki + f)
		if old[f] != one.Read("cluster/"+f) {
			t.Fatalf("it has not got %s at its join", f)
		}
	}
	if out, errs, code := one.Run(brine, "cluster", "rotate-secret"); code != 0 {
		t.Fatal(out, errs)
	}
	want := map[string]string{}
	for _, f := range files {
		want[f] = one.Read("cluster/" + f)
	}
	late.Start()
	a.equal(late, 3, map[string]int{"session": 1})
	for _, f := range files {
		if got := []string{one.Read("cluster/" + f), two.Read("cluster/" + f), late.Read(pki + f)}; got[0] != want[f] || got[1] != want[f] ||
			got[2] != want[f] || want[f] == old[f] {
			t.Errorf("%s is not the one that was made last", f)
		}
	}
}
