package fleet

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/daemons/master"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/net/transport/zeromq"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
	"brine/test/fuzztest"
	"brine/test/fuzztest/conversation"
)

// recordedLoads returns the requests of an unmodified minion, and one for each command that Salt's
// minions send, with another id.
func recordedLoads(t testing.TB, id string) (loads []*value.Dict) {
	t.Helper()
	files, err := filepath.Glob("../../testdata/vectors/requests/*.json")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	type request struct {
		Load string `json:"request_load_msgpack_b64"`
	}
	var all []request
	for _, name := range append([]string{"../../testdata/vectors/real_minion_requests.json"}, files...) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var x struct {
			request
			Requests []request
		}
		if err := json.Unmarshal(b, &x); err != nil {
			t.Fatal(name, err)
		}
		all = append(append(all, x.Requests...), x.request)
	}
	seen := map[string]bool{}
	for _, r := range all {
		b, err := base64.StdEncoding.DecodeString(r.Load)
		if err != nil {
			t.Fatal(err)
		}
		v, _ := msgpack.Unmarshal(b)
		load, ok := v.(*value.Dict)
		if !ok || seen[load.Str("cmd")+load.Str("tag")+load.Str("fun")] {
			continue
		}
		seen[load.Str("cmd")+load.Str("tag")+load.Str("fun")] = true
		if load.Has("id") {
			load.Set("id", id)
		}
		loads = append(loads, load)
	}
	if len(loads) < 15 {
		t.Fatalf("only %d different requests", len(loads))
	}
	return loads
}

// Placeholders for fields that differ in each message.
const (
	freshNonce = "fresh nonce"
	freshToken = "fresh token"
	freshTime  = int64(-77)
)

// hostile is an accepted minion that sends arbitrary messages.
type hostile struct {
	id     string
	signer *handshake.Minion
	r      transport.Requester
	creds  *handshake.Credentials
	tok    []byte
	n      int
}

func newHostile(t testing.TB, m *theMaster, id string) *hostile {
	t.Helper()
	k, err := crypt.LoadPrivate("../../testdata/vectors/keys/minion_other.pem", "")
	if err != nil {
		t.Fatal(err)
	}
	var o handshake.MinionOptions
	defaults(t, &o)
	h := &hostile{id: id, r: zeromq.New(slog.New(slog.DiscardHandler)).NewRequester(m.req, transport.DialOptions{}),
		signer: &handshake.Minion{ID: id, Key: k, Options: o, Token: "t", Trust: channel.NewFileTrust(filepath.Join(t.TempDir(), "minion_master.pub"))}}
	t.Cleanup(func() { h.r.Close() })
	if h.tok, err = k.SignX931([]byte("salt")); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *hostile) nonce() string { h.n++; return fmt.Sprintf("%032x", h.n) }

func (h *hostile) signIn(t testing.TB) {
	t.Helper()
	a, err := h.signer.Begin(h.nonce(), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	v, err := msgpack.Unmarshal(h.say(t, value.DictOf("enc", "clear", "load", a.Load, "version", 3)))
	if err == nil {
		h.creds, err = a.Finish(v)
	}
	if err != nil {
		t.Fatalf("an honest sign-in fails: %v", err)
	}
}

// say sends an envelope, whose load is sealed unless it is a clear one, and returns the answer,
// which must exist.
func (h *hostile) say(t testing.TB, env *value.Dict) []byte {
	t.Helper()
	env = value.DeepCopy(env).(*value.Dict)
	if load := env.Dict("load"); load != nil {
		for k, fresh := range map[string]any{"nonce": freshNonce, "tok": freshToken, "ts": freshTime} {
			if !value.Equal(load.At(k), fresh) {
				continue
			}
			switch k {
			case "nonce":
				load.Set(k, h.nonce())
			case "tok":
				load.Set(k, h.tok)
			case "ts":
				load.Set(k, time.Now().Unix())
			}
		}
	}
	if env.Str("enc") == "aes" {
		plain, err := msgpack.Marshal(env.At("load"), msgpack.Wire)
		if err != nil {
			return nil // no peer can send it
		}
		c, err := crypt.NewCrypticle(h.creds.Session)
		if err != nil {
			t.Fatal(err)
		}
		env.Set("load", c.Seal(plain, ""))
	}
	body, err := msgpack.Marshal(env, msgpack.NewSpec)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	raw, err := h.r.Request(ctx, body)
	if err != nil {
		t.Fatalf("no answer to %.500s: %v", value.Repr(env), err)
	}
	return raw
}

// readable returns an answer as the minion reads it.
func (h *hostile) readable(raw []byte) string {
	text, ok := msgpack.Text(raw)
	if !ok {
		return string(raw)
	}
	c, err := crypt.NewCrypticle(h.creds.Session)
	if err != nil {
		return string(raw)
	}
	plain, err := c.Open([]byte(text))
	if err != nil {
		return string(raw)
	}
	return string(plain)
}

// FuzzMinionTalk sends modified messages of an accepted minion to a master. It learns nothing about
// another minion and changes nothing of it, and both are served afterwards.
func FuzzMinionTalk(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	dir := shortDir(f)
	const secret = "only for the victim"
	write(f, filepath.Join(dir, "top.sls"), "base: {victim: [hidden]}\n")
	write(f, filepath.Join(dir, "hidden.sls"), "word: "+secret+"\n")
	m := startMaster(f, "one", "zeromq", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		cfg.Options.MaxMinions = 2
		cfg.Options.FileRecv = true
		cfg.Options.PillarVersion = 1
		defaults(f, &cfg.Pillar, &cfg.Top, &cfg.Files)
		cfg.Pillar.Roots = value.DictOf("base", value.ListOf(dir))
	})
	m.log.off.Store(true) // millions of refusals
	victim := signedIn(f, m, "victim")
	evil := newHostile(f, m, "evil")
	evil.signIn(f)
	ask := func(t testing.TB, load ...any) any {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		v, err := victim.Request(ctx, value.DictOf(load...))
		if err != nil {
			t.Fatalf("the honest minion is not served: %v", err)
		}
		return v
	}
	ask(f, "cmd", "_mine", "data", value.DictOf("hidden", value.DictOf("__saltmine_acl__", 1, "__data__", secret, "allow_tgt", "victim", "allow_tgt_type",
		"glob")))
	ask(f, "cmd", "_file_recv", "path", value.ListOf("pushed"), "loc", 0, "size", 4, "data", "mine")
	jid := m.publish("glob", "victim", "test.echo", "", secret)
	ask(f, "cmd", "_return", "jid", jid, "return", secret, "fun", "test.echo", "fun_args", value.ListOf(secret), "retcode", 0, "success", true)

	a, err := evil.signer.Begin(evil.nonce(), nil, false)
	if err != nil {
		f.Fatal(err)
	}
	a.Load.Set("nonce", freshNonce)
	talk := []*value.Dict{value.DictOf("enc", "clear", "load", a.Load, "version", 3)}
	for _, load := range recordedLoads(f, "evil") {
		load.Update(value.DictOf("nonce", freshNonce, "tok", freshToken, "ts", freshTime, "id", "evil"))
		talk = append(talk, value.DictOf("enc", "aes", "load", load, "version", 3, "id", "evil", "enc_algo", crypt.OAEPSHA1, "sig_algo", crypt.PKCS1v15SHA1))
	}
	values := conversation.Values("victim", "evil", "*", jid, "aes", "clear", "salt/job/"+jid+"/ret/victim", "../../victim/files/pushed",
		"_return", "_mine", "_mine_get", "_pillar", "_file_recv", "_syndic_return", "_minion_event", "minion_pub", "minion_publish", "minion_runner",
		"revoke_auth",
		"pub_ret", "_mine_delete", "_mine_flush", "publish", "runner", "wheel", "mk_token", "get_token", "hidden", "pillar", "compound", "{{ 7*7 }}")
	for _, s := range conversation.Seeds(len(talk), values) {
		f.Add(s)
	}
	f.Add([]byte{})

	own := filepath.Join(m.cfg.CacheDir, "minions", "victim")
	pki := []string{filepath.Join(m.cfg.PKIDir, "minions", "victim"), filepath.Join(m.cfg.PKIDir, "master.pem"), filepath.Join(m.cfg.PKIDir, "master.pub")}
	before := folderSum(f, append(pki, own)...)
	f.Fuzz(func(t *testing.T, program []byte) {
		for i, env := range conversation.Mutate(program, talk, values) {
			raw := evil.say(t, env)
			// A peer that repeats the argument of a job that all can read learns nothing new.
			if text := evil.readable(raw); strings.Contains(text, secret) && !strings.Contains(value.Repr(env), secret) {
				t.Errorf("message %d, %.500s, gave another's data: %.300q", i, value.Repr(env), text)
			}
		}
		if got := value.Repr(ask(t, "cmd", "_mine_get", "tgt", "*", "fun", "hidden")); !strings.Contains(got, secret) {
			t.Errorf("the honest minion's mine: %s", got)
		}
		if folderSum(t, append(pki, own)...) != before {
			t.Error("what the master keeps of the honest minion has changed")
		}
		if err := m.returned(jid, "victim", secret); err != nil {
			t.Errorf("the honest minion's return: %v", err)
		}
		if st, _, err := m.keys.Lookup("evil"); st != keystore.Accepted || err != nil {
			evil.signIn(t) // its key was revoked, which it may request
		}
	})
}
