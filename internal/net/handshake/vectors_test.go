package handshake

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"brine/internal/net/crypt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

const vectors = "../../../testdata/vectors"

// recording is a sign-in of a stock minion at a stock master.
type recording struct {
	Request   []byte `json:"request_b64"`
	Reply     []byte `json:"reply_b64"`
	Decrypted struct {
		AES, Session, Token string
	} `json:"decrypted"`
}

func record(t testing.TB, name string) recording {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(vectors, "auth", "auth_"+name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	// The reply_load_decoded of a refusal has a bool where others have a string.
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// load returns the inner map of the request, nil if none was recorded.
func (r recording) load(t testing.TB) *value.Dict {
	t.Helper()
	if r.Request == nil {
		return nil
	}
	return decode(t, r.Request).Dict("load")
}

func decode(t testing.TB, b []byte) *value.Dict {
	t.Helper()
	v, err := msgpack.Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	d, ok := v.(*value.Dict)
	if !ok {
		t.Fatalf("a %s, want a map", value.TypeName(v))
	}
	return d
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := msgpack.Marshal(v, msgpack.Wire)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func private(t testing.TB, name string) *crypt.PrivateKey {
	t.Helper()
	k, err := crypt.LoadPrivate(filepath.Join(vectors, "keys", name+".pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func publicPEM(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(vectors, "keys", name+".pub"))
	if err != nil {
		t.Fatal(err)
	}
	return crypt.CleanKey(string(b))
}

// memory is a Trust without a file.
type memory struct {
	mu  sync.Mutex
	pem string
}

func (m *memory) Known() (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pem, m.pem != ""
}

func (m *memory) Adopt(pem string, replace bool) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pem == "" || replace {
		m.pem = pem
	}
	return m.pem, nil
}

func (m *memory) Succeed(pem string, _ bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pem = pem
	return nil
}

func (*memory) File() string { return "minion_master.pub" }

// vecMinion returns the recorded minion.
func vecMinion(t testing.TB, known string) *Minion {
	return &Minion{ID: "vecminion", Key: private(t, "minion"), Trust: &memory{pem: known}, Options: MinionOptions{
		EncryptionAlgorithm: crypt.OAEPSHA1, SigningAlgorithm: crypt.PKCS1v15SHA1,
		MasterSignKeyName: Names{"master_sign"}, HashType: "sha256",
	}}
}

// attempt repeats the attempt that got the recorded reply.
func attempt(t testing.TB, m *Minion, nonce string) *Attempt {
	t.Helper()
	a, err := m.Begin(nonce, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestMinionJudgesRecordedReplies(t *testing.T) {
	master := publicPEM(t, "master")
	for _, c := range []struct {
		name  string
		known string // the master's key on file
		nonce string // where no request was recorded
		set   func(*testing.T, *Minion)
		err   error
		text  string // part of the error if it is not err
	}{
		{name: "accepted_first"},
		{name: "accepted_with_token", known: master},
		{name: "accepted_sha224", known: master},
		{name: "accepted_pub_sig", set: verifying},
		{name: "accepted_pub_sig", known: master, set: verifying, text: "did not return our token"}, // the request had none
		{name: "pub_sig_unexpected"},                                                                // a stock minion rejects it
		{name: "accepted_first", set: verifying, text: "does not sign its public key"},
		{name: "pending", err: ErrPending},
		{name: "pending", known: master, err: ErrPending},
		{name: "pending_again", err: ErrPending},
		{name: "pending_autosign_grains", err: ErrPending},
		{name: "rejected", err: ErrRejected},
		{name: "rejected", known: master, err: ErrRejected},
		{name: "denied", err: ErrRejected},
		{name: "invalid_id", err: ErrRejected},
		{name: "full", nonce: "0123456789abcdef0123456789abcdef", known: master, err: ErrFull},
		{name: "bad_enc_algo", text: "encryption_algorithm"},
		{name: "bad_sig_algo", text: "signing_algorithm"},
	} {
		name := c.name
		if c.known != "" {
			name += " known"
		}
		t.Run(name, func(t *testing.T) {
			r := record(t, c.name)
			m := vecMinion(t, c.known)
			m.Token = r.Decrypted.Token
			if load := r.load(t); load != nil {
				c.nonce = load.Str("nonce")
				if enc := load.Str("enc_algo"); crypt.ValidEncryption(enc) {
					m.Options.EncryptionAlgorithm = enc
				}
				if sig := load.Str("sig_algo"); crypt.ValidSigning(sig) {
					m.Options.SigningAlgorithm = sig
				}
			}
			if c.set != nil {
				c.set(t, m)
			}
			got, err := attempt(t, m, c.nonce).Finish(decode(t, r.Reply))
			if c.err != nil || c.text != "" {
				if err == nil || c.err != nil && !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
					t.Fatalf("error %v, want %v%s", err, c.err, c.text)
				}
				if command := map[error]string{ErrPending: "salt-key -a ", ErrRejected: "salt-key -d "}[c.err]; command != "" &&
					!strings.HasSuffix(err.Error(), command+m.ID) {
					t.Errorf("error %v does not end with %s%s", err, command, m.ID)
				}
				if now, _ := m.Trust.Known(); now != c.known {
					t.Errorf("the key on file has changed with a refusal")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.AES != r.Decrypted.AES || got.Session != r.Decrypted.Session {
				t.Errorf("keys %q, %q", got.AES, got.Session)
			}
			if want := decode(t, decode(t, r.Reply).Bytes("load")).Int("publish_port"); int64(got.PublishPort) != want {
				t.Errorf("publish port %d, want %d", got.PublishPort, want)
			}
			if now, _ := m.Trust.Known(); now != master || crypt.CleanKey(string(got.Master.PEM())) != master {
				t.Errorf("the master's key is %q", now)
			}
		})
	}
}

func signers(keys ...*crypt.PublicKey) func() ([]*crypt.PublicKey, error) {
	return func() ([]*crypt.PublicKey, error) { return keys, nil }
}

func verifying(t *testing.T, m *Minion) {
	m.Options.VerifyMasterPubkeySign = true
	m.Signers = signers(private(t, "master_sign").Public())
}

// TestMinionAsksAsRecorded compares our request with that of a stock minion.
func TestMinionAsksAsRecorded(t *testing.T) {
	for _, name := range []string{"accepted_first", "pending_autosign_grains"} {
		r := record(t, name)
		load := r.load(t)
		m := vecMinion(t, "")
		m.ID = load.Str("id")
		a, err := m.Begin(load.Str("nonce"), load.Dict("autosign_grains"), false)
		if err != nil {
			t.Fatal(err)
		}
		if got := encode(t, value.DictOf("enc", "clear", "load", a.Load, "version", 3)); !bytes.Equal(got, r.Request) {
			t.Errorf("%s: request\n%q, want\n%q", name, got, r.Request)
		}
	}
	r := record(t, "accepted_with_token")
	m := vecMinion(t, publicPEM(t, "master"))
	m.Token = r.Decrypted.Token
	got := attempt(t, m, r.load(t).Str("nonce")).Load
	tok, err := private(t, "master").Decrypt(crypt.OAEPSHA1, got.Bytes("token"))
	if err != nil || string(tok) != m.Token {
		t.Errorf("token %q, %v", tok, err)
	}
	want := r.load(t)
	want.Set("token", got.At("token")) // random
	if value.Repr(got) != value.Repr(want) {
		t.Errorf("request %s, want %s", value.Repr(got), value.Repr(want))
	}
}

func vecIdentity(t testing.TB, signed bool) *Identity {
	if !signed {
		return NewIdentity(private(t, "master"), nil)
	}
	sk := private(t, "master_sign")
	return NewIdentity(private(t, "master"), func(pub []byte, algo string) ([]byte, error) { return sk.Sign(algo, pub) })
}

func parse(t testing.TB, r recording) Request {
	t.Helper()
	req, err := ParseRequest(r.load(t), 3)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// withID is a recorded refusal with the id that Brine masters append.
func withID(t testing.TB, id *Identity, r recording, to string) []byte {
	t.Helper()
	inner := decode(t, decode(t, r.Reply).Bytes("load"))
	inner.Set("id", to)
	reply, err := id.Signed(inner, crypt.PKCS1v15SHA1)
	if err != nil {
		t.Fatal(err)
	}
	return encode(t, reply)
}

// TestMasterRefusesAsRecorded: refusals are identical to the recorded ones.
func TestMasterRefusesAsRecorded(t *testing.T) {
	id := vecIdentity(t, false)
	for name, answer := range map[string]Answer{"pending": Wait, "pending_again": Wait, "pending_autosign_grains": Wait,
		"rejected": Refuse, "denied": Refuse, "invalid_id": Refuse} {
		r := record(t, name)
		reply, err := id.Refusal(parse(t, r), answer)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := encode(t, reply), withID(t, id, r, parse(t, r).ID); !bytes.Equal(got, want) {
			t.Errorf("%s: reply\n%q, want\n%q", name, got, want)
		}
	}
	reply, err := id.Refusal(Request{Version: 3, ID: "new", Nonce: "0123456789abcdef0123456789abcdef", SigAlgo: crypt.PKCS1v15SHA1}, Full)
	if r := record(t, "full"); err != nil || !bytes.Equal(encode(t, reply), withID(t, id, r, "new")) {
		t.Errorf("full: reply %v, %v", reply, err)
	}
	for name, which := range map[string]string{"bad_enc_algo": "enc", "bad_sig_algo": "sig"} {
		if r := record(t, name); !bytes.Equal(encode(t, BadAlgorithm(which)), r.Reply) {
			t.Errorf("%s differs", name)
		}
	}
	old, err := id.Refusal(Request{Version: 1}, Wait)
	if err != nil || value.Repr(old) != "{'enc': 'clear', 'load': {'ret': True}}" {
		t.Errorf("to version 1: %s, %v", value.Repr(old), err)
	}
}

// TestMasterAcceptsAsRecorded: the deterministic parts of an acceptance are
// identical to the recorded ones, and the others decrypt to the same.
func TestMasterAcceptsAsRecorded(t *testing.T) {
	minion := private(t, "minion")
	for _, c := range []struct {
		name   string
		signed bool
	}{{"accepted_first", false}, {"accepted_with_token", false}, {"accepted_sha224", false}, {"accepted_pub_sig", true}} {
		t.Run(c.name, func(t *testing.T) {
			r := record(t, c.name)
			req := parse(t, r)
			want := decode(t, decode(t, r.Reply).Bytes("load"))
			id := vecIdentity(t, c.signed)
			reply, err := id.Acceptance(req, minion.Public(), Secrets{
				AES: r.Decrypted.AES, Session: r.Decrypted.Session, PublishPort: int(want.Int("publish_port"))})
			if err != nil {
				t.Fatal(err)
			}
			if err := id.Key().Public().Verify(req.SigAlgo, reply.Bytes("load"), reply.Bytes("sig")); err != nil {
				t.Error(err)
			}
			got := decode(t, reply.Bytes("load"))
			for field, plain := range map[string]string{"aes": r.Decrypted.AES, "session": r.Decrypted.Session, "token": r.Decrypted.Token} {
				if !want.Has(field) {
					continue
				}
				b, err := minion.Decrypt(req.EncAlgo, got.Bytes(field))
				if err != nil || string(b) != plain {
					t.Errorf("%s is %q, %v", field, b, err)
				}
				got.Set(field, want.At(field)) // random
			}
			if !got.Bool("brine") {
				t.Error("the acceptance does not say that the master is Brine's")
			}
			if !got.Bool("brine_shares") {
				t.Error("the acceptance does not tell that the master shares")
			}
			got.Delete("brine")
			got.Delete("brine_shares")
			if value.Repr(got) != value.Repr(want) {
				t.Errorf("acceptance\n%s, want\n%s", value.Repr(got), value.Repr(want))
			}
		})
	}
}
