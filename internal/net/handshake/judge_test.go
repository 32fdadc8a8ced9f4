package handshake

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"brine/internal/net/crypt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

const (
	nonce   = "00112233445566778899aabbccddeeff"
	aesKey  = "kGTsV6Z5xObfWbhAYTYuyuys7b9WQzxb6LHPv3rQfyMiHLr0mtD7RuFEWSGuZ1CguQR/s3nOUSk="
	sessKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc="
)

// answer is the answer of the master id to the attempt; spoil may change the
// inner map before it is signed.
func answer(t testing.TB, id *Identity, a *Attempt, spoil func(in *value.Dict)) *value.Dict {
	t.Helper()
	req, err := ParseRequest(a.Load, 3)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := id.Acceptance(req, a.m.Key.Public(), Secrets{AES: aesKey, Session: sessKey, PublishPort: 4505})
	if err != nil {
		t.Fatal(err)
	}
	if spoil == nil {
		return reply
	}
	in := decode(t, reply.Bytes("load"))
	spoil(in)
	if reply, err = id.Signed(in, req.SigAlgo); err != nil {
		t.Fatal(err)
	}
	return reply
}

// refuses checks that the answer is refused with this text and that nothing
// was stored.
func refuses(t *testing.T, a *Attempt, reply any, text string) error {
	t.Helper()
	before, _ := a.m.Trust.Known()
	c, err := a.Finish(reply)
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Fatalf("credentials %v, error %v; want an error with %q", c, err, text)
	}
	if after, _ := a.m.Trust.Known(); after != before {
		t.Error("the key on file has changed")
	}
	return err
}

// TestTamperedBytesAreRefused changes every part of an acceptance, a few bytes
// in each, for a minion that knows its master and for one that does not. Either
// the signature is invalid or the answer cannot be decoded.
func TestTamperedBytesAreRefused(t *testing.T) {
	for _, known := range []string{"", publicPEM(t, "master")} {
		m := vecMinion(t, known)
		m.Token = "a token"
		a := attempt(t, m, nonce)
		good := answer(t, vecIdentity(t, false), a, nil)
		load, sig := good.Bytes("load"), good.Bytes("sig")
		for i := 0; i < len(load); i += 7 {
			for _, bit := range []byte{1, 0x80} {
				bad := slices.Clone(load)
				bad[i] ^= bit
				if _, err := a.Finish(value.DictOf("enc", "clear", "load", bad, "sig", sig)); err == nil {
					t.Fatalf("known %t: byte %d of load may be changed", known != "", i)
				}
			}
		}
		for i := 0; i < len(sig); i += 31 {
			bad := slices.Clone(sig)
			bad[i] ^= 1
			refuses(t, a, value.DictOf("enc", "clear", "load", load, "sig", bad), "not signed by the key it carries")
		}
		refuses(t, a, value.DictOf("enc", "clear", "load", load), "not signed")
		if now, _ := m.Trust.Known(); now != known {
			t.Fatal("the key on file has changed")
		}
		if _, err := a.Finish(good); err != nil {
			t.Fatalf("the answer that was not changed: %v", err)
		}
	}
}

// TestAcceptanceParts changes one part each in a validly signed answer, as an
// impostor would on first contact.
func TestAcceptanceParts(t *testing.T) {
	other := private(t, "minion_other")
	master := private(t, "master")
	sealed := func(k *crypt.PrivateKey, text string) []byte {
		b, err := k.Public().Encrypt(crypt.OAEPSHA1, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		name, known string
		spoil       func(in *value.Dict)
		text        string
	}{
		{"another nonce", "", func(in *value.Dict) { in.Set("nonce", strings.Repeat("0", 32)) }, "wrong nonce"},
		{"no nonce", "", func(in *value.Dict) { in.Delete("nonce") }, "wrong nonce"},
		{"aes for another minion", "", func(in *value.Dict) { in.Set("aes", sealed(other, aesKey)) }, "cannot decrypt the master's AES key"},
		{"another aes", "", func(in *value.Dict) { in.Set("aes", sealed(private(t, "minion"), sessKey)) }, "it is for another key"},
		{"no aes", "", func(in *value.Dict) { in.Delete("aes") }, "cannot decrypt"},
		{"no sig", "", func(in *value.Dict) { in.Delete("sig") }, "signature of the AES key is wrong"},
		{"sig by another", "", func(in *value.Dict) {
			s, err := other.SignX931([]byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			in.Set("sig", s)
		}, "signature of the AES key is wrong"},
		{"no session", "", func(in *value.Dict) { in.Delete("session") }, "must be upgraded"},
		{"session for another", "", func(in *value.Dict) { in.Set("session", sealed(other, sessKey)) }, "cannot decrypt the session key"},
		{"no token", "master", func(in *value.Dict) { in.Delete("token") }, "did not return our token"},
		{"another token", "master", func(in *value.Dict) { in.Set("token", sealed(private(t, "minion"), "mine")) }, "did not return our token"},
		{"junk token", "master", func(in *value.Dict) { in.Set("token", []byte("junk")) }, "did not return our token"},
		{"junk key", "", func(in *value.Dict) { in.Set("pub_key", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----") }, "unreadable public key"},
		{"key of another", "", func(in *value.Dict) { in.Set("pub_key", publicPEM(t, "minion_other")) }, "not signed by the key it carries"},
		{"key is a list", "", func(in *value.Dict) { in.Set("pub_key", &value.List{}) }, "the key pub_key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			known := ""
			if c.known != "" {
				known = publicPEM(t, c.known)
			}
			m := vecMinion(t, known)
			m.Token = "a token"
			a := attempt(t, m, nonce)
			refuses(t, a, answer(t, NewIdentity(master, nil), a, c.spoil), c.text)
		})
	}
}

func TestPublishPortOutOfRangeIsNone(t *testing.T) {
	for _, port := range []any{-1, 0, 1 << 16, 1 << 40, "4505", nil} {
		a := attempt(t, vecMinion(t, ""), nonce)
		c, err := a.Finish(answer(t, vecIdentity(t, false), a, func(in *value.Dict) { in.Set("publish_port", value.From(port)) }))
		if err != nil || c.PublishPort != 0 {
			t.Errorf("%v gave %v, %v", port, c, err)
		}
	}
}

func TestUnsignedAnswersNeverCount(t *testing.T) {
	m := vecMinion(t, "")
	for _, reply := range []any{
		nil, true, int64(1), "bad load", []byte{0xff, 0}, &value.List{}, value.DictOf(), value.DictOf("ret", true),
		value.DictOf("enc", "clear", "load", value.DictOf("ret", true)),
		value.DictOf("enc", "clear", "load", value.DictOf("ret", false)),
		value.DictOf("enc", "clear", "load", value.DictOf("ret", "full")),
		value.DictOf("enc", "clear", "load", value.DictOf("ret", strings.Repeat("x", 1<<20))),
		value.DictOf("load", nil), value.DictOf("load", "junk"), value.DictOf("load", strings.Repeat("\x91", 100)),
		value.DictOf("load", []byte{0x90}),
	} {
		c, err := attempt(t, m, nonce).Finish(reply)
		if c != nil || err == nil || errors.Is(err, ErrPending) || errors.Is(err, ErrRejected) || errors.Is(err, ErrFull) {
			t.Errorf("%.60s: %v, %v", value.Repr(reply), c, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("an unauthenticated peer causes an error of %d bytes", len(err.Error()))
		}
	}
}

// TestRefusalOfAnotherMinion: a peer on the network path signs in with a minion's
// nonce under a rejected id, and forwards the genuine refusal to the minion.
func TestRefusalOfAnotherMinion(t *testing.T) {
	master := vecIdentity(t, false)
	for _, known := range []string{"", publicPEM(t, "master")} {
		m := vecMinion(t, known)
		a := attempt(t, m, nonce)
		refusal := func(id string) any {
			reply, err := master.Refusal(Request{Version: 3, ID: id, Nonce: nonce, SigAlgo: crypt.PKCS1v15SHA1}, Refuse)
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		if err := refuses(t, a, refusal("evil"), "another minion"); errors.Is(err, ErrRejected) {
			t.Error("the refusal of another minion counts")
		}
		if err := refuses(t, a, refusal(m.ID), "has rejected"); !errors.Is(err, ErrRejected) {
			t.Errorf("its own refusal: %v", err)
		}
	}
}

// TestForgedRefusals: a minion that knows its master accepts no refusal of
// another peer, nor an old one.
func TestForgedRefusals(t *testing.T) {
	m := vecMinion(t, publicPEM(t, "master"))
	for _, ans := range []Answer{Wait, Refuse, Full} {
		a := attempt(t, m, nonce)
		req, err := ParseRequest(a.Load, 3)
		if err != nil {
			t.Fatal(err)
		}
		forged, err := NewIdentity(private(t, "minion_other"), nil).Refusal(req, ans)
		if err != nil {
			t.Fatal(err)
		}
		refuses(t, a, forged, "not signed by the key in minion_master.pub")
		req.Nonce = strings.Repeat("f", 32)
		old, err := vecIdentity(t, false).Refusal(req, ans)
		if err != nil {
			t.Fatal(err)
		}
		refuses(t, a, old, "wrong nonce")
	}
	a := attempt(t, m, nonce)
	odd, err := vecIdentity(t, false).Signed(value.DictOf("ret", "perhaps", "nonce", nonce), crypt.PKCS1v15SHA1)
	if err != nil {
		t.Fatal(err)
	}
	refuses(t, a, odd, "unknown answer")
}

func TestKeyMismatchTellsBothKeys(t *testing.T) {
	master, other := publicPEM(t, "master"), publicPEM(t, "minion_other")
	m := vecMinion(t, other)
	a := attempt(t, m, nonce)
	err := refuses(t, a, answer(t, vecIdentity(t, false), a, nil), "minion_master.pub")
	var mismatch *KeyMismatch
	if !errors.As(err, &mismatch) {
		t.Fatalf("%T: %v", err, err)
	}
	want := KeyMismatch{Expected: crypt.Fingerprint([]byte(other), "sha256"), Got: crypt.Fingerprint([]byte(master), "sha256"), File: "minion_master.pub"}
	if *mismatch != want || want.Got == want.Expected || want.Got == "" {
		t.Errorf("got %+v, want %+v", *mismatch, want)
	}
	for _, part := range []string{want.Expected, want.Got, want.File} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the text lacks %s", part)
		}
	}
}

func TestOpenModeTakesAnyMaster(t *testing.T) {
	m := vecMinion(t, publicPEM(t, "minion_other"))
	m.Options.OpenMode = true
	a := attempt(t, m, nonce)
	if _, err := a.Finish(answer(t, vecIdentity(t, false), a, nil)); err != nil {
		t.Fatal(err)
	}
	if now, _ := m.Trust.Known(); now != publicPEM(t, "master") {
		t.Error("the new key was not stored")
	}
}

func TestMasterFinger(t *testing.T) {
	m := vecMinion(t, "")
	m.Options.MasterFinger = Names{crypt.Fingerprint([]byte(publicPEM(t, "minion_other")), "sha256")}
	a := attempt(t, m, nonce)
	if err := refuses(t, a, answer(t, vecIdentity(t, false), a, nil), "option master_finger demands"); !errors.Is(err, ErrFinger) || !Refused(err) {
		t.Errorf("the error is not ErrFinger: %v", err)
	}
	m.Options.MasterFinger = append(m.Options.MasterFinger, crypt.Fingerprint([]byte(publicPEM(t, "master")), "sha256"))
	if _, err := a.Finish(answer(t, vecIdentity(t, false), a, nil)); err != nil {
		t.Fatal(err)
	}
}

// TestSigningKeyVouchesForANewMasterKey: with verify_master_pubkey_sign the
// master's key may change if the separate signing key signs it.
func TestSigningKeyVouchesForANewMasterKey(t *testing.T) {
	master, old := publicPEM(t, "master"), publicPEM(t, "minion_other")
	sign := func(key string, signer string) *Identity {
		sk := private(t, signer)
		return NewIdentity(private(t, key), func(pub []byte, algo string) ([]byte, error) { return sk.Sign(algo, pub) })
	}
	m := vecMinion(t, old)
	verifying(t, m)
	a := attempt(t, m, nonce)
	refuses(t, a, answer(t, sign("master", "cluster"), a, nil), "not signed by master_sign.pub")
	good := answer(t, sign("master", "master_sign"), a, nil)
	refuses(t, a, answer(t, sign("master", "master_sign"), a, func(in *value.Dict) { in.Set("pub_sig", "%%%") }), "not base64")
	refuses(t, a, answer(t, sign("master", "master_sign"), a, func(in *value.Dict) { in.Delete("pub_sig") }), "set master_sign_pubkey there")
	keys := m.Signers
	m.Signers = nil
	refuses(t, a, good, "copy master_sign.pub")
	m.Signers = keys
	if _, err := a.Finish(good); err != nil {
		t.Fatal(err)
	}
	if now, _ := m.Trust.Known(); now != master {
		t.Fatal("the new key was not stored")
	}

	// The stored key needs no signature again, unless that is configured.
	a = attempt(t, m, nonce)
	wrong := answer(t, sign("master", "cluster"), a, nil)
	if _, err := a.Finish(wrong); err != nil {
		t.Errorf("the known key: %v", err)
	}
	m.Options.AlwaysVerifySignature = true
	refuses(t, a, wrong, "not signed by master_sign.pub")
	if _, err := a.Finish(answer(t, sign("master", "master_sign"), a, nil)); err != nil {
		t.Error(err)
	}
}

func TestUnreadableKeyOnFile(t *testing.T) {
	m := vecMinion(t, "not a key")
	if _, err := m.Begin(nonce, nil, false); err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("error %v", err)
	}
}

// TestKeyStoredWhileAsking: another connection has stored another master's key
// first.
func TestKeyStoredWhileAsking(t *testing.T) {
	m := vecMinion(t, "")
	a := attempt(t, m, nonce)
	reply := answer(t, vecIdentity(t, false), a, nil)
	trust := &lateTrust{memory: memory{}, late: publicPEM(t, "minion_other")}
	m.Trust = trust
	var mismatch *KeyMismatch
	if _, err := a.Finish(reply); !errors.As(err, &mismatch) {
		t.Fatalf("error %v, want a mismatch", err)
	}
	if mismatch.Expected != crypt.Fingerprint([]byte(trust.late), "sha256") {
		t.Errorf("%+v", mismatch)
	}
}

// lateTrust has no key until the first attempt to store one.
type lateTrust struct {
	memory
	late string
}

func (l *lateTrust) Adopt(string, bool) (string, error) { return l.memory.Adopt(l.late, false) }

func TestParseRequest(t *testing.T) {
	good := func(pairs ...any) *value.Dict {
		d := value.DictOf("cmd", "_auth", "id", "one", "nonce", nonce, "pub", "key")
		for i := 0; i < len(pairs); i += 2 {
			d.Set(pairs[i], pairs[i+1])
		}
		return d
	}
	r, err := ParseRequest(good(), 3)
	if err != nil || r.EncAlgo != crypt.OAEPSHA1 || r.SigAlgo != crypt.PKCS1v15SHA1 || r.ID != "one" || r.Version != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	huge := strings.Repeat("x", 1<<20)
	for _, bad := range []*value.Dict{
		{}, good("id", nil), good("id", int64(5)), good("pub", nil), good("pub", ""), good("pub", huge),
		good("nonce", huge), good("token", []byte(huge)), good("id", huge, "pub", ""), good("pub", &value.List{}),
	} {
		_, err := ParseRequest(bad, 3)
		if err == nil {
			t.Errorf("%.80s is taken", value.Repr(bad))
		} else if len(err.Error()) > 300 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func TestIdentityKeepsItsSignatures(t *testing.T) {
	calls := 0
	sk := private(t, "master_sign")
	id := NewIdentity(private(t, "master"), func(pub []byte, algo string) ([]byte, error) { calls++; return sk.Sign(algo, pub) })
	for range 3 {
		if _, err := id.now.Load().publicSignature(crypt.PKCS1v15SHA1); err != nil {
			t.Fatal(err)
		}
	}
	if calls != 1 {
		t.Errorf("%d signatures made", calls)
	}
	first, err := id.now.Load().aesSignature(aesKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{sessKey, aesKey} {
		s, err := id.now.Load().aesSignature(k)
		if err != nil || bytes.Equal(s, first) != (k == aesKey) {
			t.Errorf("signature of %.4s: %v", k, err)
		}
	}
	if len(id.now.Load().aesSig) != 1 {
		t.Errorf("%d signatures are kept", len(id.now.Load().aesSig))
	}
	bad := NewIdentity(private(t, "master"), func([]byte, string) ([]byte, error) { return nil, fmt.Errorf("no key") })
	if _, err := bad.Acceptance(Request{Version: 3, EncAlgo: crypt.OAEPSHA1, SigAlgo: crypt.PKCS1v15SHA1}, sk.Public(), Secrets{}); err == nil {
		t.Error("accepts without the signature that minions demand")
	}
}

// FuzzSignIn decodes arbitrary sign-ins on the master's side.
func FuzzSignIn(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, name := range []string{"accepted_first", "accepted_with_token", "pending_autosign_grains", "bad_enc_algo", "invalid_id"} {
		b, err := msgpack.Marshal(record(f, name).load(f), msgpack.Wire)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, 3, uint8(0))
	}
	id := vecIdentity(f, true)
	minion := private(f, "minion").Public()
	f.Fuzz(func(t *testing.T, b []byte, version int, bits uint8) {
		load, err := msgpack.Unmarshal(b)
		if err != nil {
			return
		}
		d, ok := load.(*value.Dict)
		if !ok {
			return
		}
		req, err := ParseRequest(d, version)
		if err != nil {
			return
		}
		v := Decide(Known(bits%5), bits&8 != 0, Policy{AutoSign: bits&16 != 0, AutoReject: bits&32 != 0, Open: bits&64 != 0})
		if v.Answer == Accept {
			_, err = id.Acceptance(req, minion, Secrets{AES: aesKey, Session: sessKey})
		} else {
			_, err = id.Refusal(req, v.Answer)
		}
		if err == nil && req.Version >= 2 && !crypt.ValidSigning(req.SigAlgo) {
			t.Errorf("signed with %q", req.SigAlgo)
		}
	})
}

// FuzzFinish decodes arbitrary answers on the minion's side. None may be
// accepted: that requires the master's private key.
func FuzzFinish(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, name := range []string{"accepted_first", "accepted_with_token", "accepted_pub_sig", "pending", "rejected", "bad_enc_algo", "full"} {
		f.Add(record(f, name).Reply, true)
		f.Add(record(f, name).Reply, false)
	}
	master := publicPEM(f, "master")
	key := private(f, "minion")
	f.Fuzz(func(t *testing.T, b []byte, known bool) {
		reply, err := msgpack.Unmarshal(b)
		if err != nil {
			return
		}
		m := vecMinion(t, "")
		m.Key = key
		if known {
			m.Trust = &memory{pem: master}
		}
		c, err := attempt(t, m, nonce).Finish(reply)
		if c != nil || err == nil {
			t.Fatalf("believed: %v", c)
		}
		if known && (errors.Is(err, ErrPending) || errors.Is(err, ErrRejected) || errors.Is(err, ErrFull)) {
			t.Fatalf("believed: %v", err)
		}
		if now, _ := m.Trust.Known(); known != (now == master) || !known && now != "" {
			t.Fatal("the key on file has changed")
		}
	})
}

// TestForeignToken: a master learns which minions know another master's key.
func TestForeignToken(t *testing.T) {
	for known, want := range map[string]string{"": "", publicPEM(t, "master"): "", publicPEM(t, "minion_other"): "vecminion"} {
		id, told := vecIdentity(t, false), ""
		id.Foreign = func(id string) { told = id }
		answer(t, id, attempt(t, vecMinion(t, known), nonce), nil)
		if told != want {
			t.Errorf("the minion knows %.40q: told of %q, want %q", known, told, want)
		}
	}
}
