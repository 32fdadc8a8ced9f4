package handshake

import (
	"errors"
	"testing"

	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

func endorse(t testing.TB, by, pub string) Endorsement {
	t.Helper()
	e, err := Endorse(private(t, by), private(t, pub).Public())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestOldKeyVouchesForItsSuccessor: minions that know the old key accept a
// master with a new key, also over several steps; others do not.
func TestOldKeyVouchesForItsSuccessor(t *testing.T) {
	for _, c := range []struct {
		name   string
		known  string
		es     []Endorsement
		spoil  func(*value.Dict)
		refuse bool
	}{
		{name: "no endorsement", known: "minion_other", refuse: true},
		{name: "by the known key", known: "minion_other", es: []Endorsement{endorse(t, "minion_other", "master")}},
		{name: "by another key", known: "minion_other", es: []Endorsement{endorse(t, "cluster", "master")}, refuse: true},
		{name: "by itself", known: "minion_other", es: []Endorsement{endorse(t, "master", "master")}, refuse: true},
		{name: "of another key", known: "minion_other", es: []Endorsement{endorse(t, "minion_other", "cluster")}, refuse: true},
		{name: "two steps, in the wrong order", known: "minion_other",
			es: []Endorsement{endorse(t, "cluster", "master"), endorse(t, "minion_other", "cluster")}},
		{name: "a broken signature", known: "minion_other", es: []Endorsement{endorse(t, "minion_other", "master")}, refuse: true,
			spoil: func(in *value.Dict) {
				in.List("brine_endorsed")[0].(*value.Dict).Set("sig", []byte("no"))
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vecMinion(t, publicPEM(t, c.known))
			a := attempt(t, m, nonce)
			id := vecIdentity(t, false)
			id.SetEndorsements(c.es, false)
			reply := answer(t, id, a, c.spoil)
			if c.refuse {
				var mismatch *KeyMismatch
				if err := refuses(t, a, reply, "fingerprint"); !errors.As(err, &mismatch) {
					t.Errorf("error %v", err)
				}
				return
			}
			if _, err := a.Finish(reply); err != nil {
				t.Fatal(err)
			}
			if now, _ := m.Trust.Known(); now != publicPEM(t, "master") {
				t.Error("the new key was not stored")
			}
		})
	}
}

// TestSigningKeyIsReplaced: any of several signers may sign, and an old one
// endorses its successor.
func TestSigningKeyIsReplaced(t *testing.T) {
	sk := private(t, "cluster")
	id := NewIdentity(private(t, "master"), func(pub []byte, algo string) ([]byte, error) { return sk.Sign(algo, pub) })
	m := vecMinion(t, "")
	verifying(t, m)
	a := attempt(t, m, nonce)
	refuses(t, a, answer(t, id, a, nil), "not signed by master_sign.pub")
	id.SetEndorsements([]Endorsement{endorse(t, "master", "cluster")}, false)
	refuses(t, a, answer(t, id, a, nil), "not signed by master_sign.pub")
	id.SetEndorsements([]Endorsement{endorse(t, "master_sign", "cluster")}, false)
	if _, err := a.Finish(answer(t, id, a, nil)); err != nil {
		t.Error(err)
	}
	m = vecMinion(t, "")
	verifying(t, m)
	m.Signers = signers(private(t, "minion_other").Public(), sk.Public())
	a = attempt(t, m, nonce)
	id.SetEndorsements(nil, false)
	if _, err := a.Finish(answer(t, id, a, nil)); err != nil {
		t.Error(err)
	}
	// Where a signer is required, the known key cannot endorse another one.
	m = vecMinion(t, publicPEM(t, "minion_other"))
	verifying(t, m)
	a = attempt(t, m, nonce)
	id.SetEndorsements([]Endorsement{endorse(t, "minion_other", "master"), endorse(t, "minion_other", "cluster")}, false)
	refuses(t, a, answer(t, id, a, nil), "not signed by master_sign.pub")
}

func TestSeveralFingersLetMastersDiffer(t *testing.T) {
	finger := func(key string) string { return crypt.Fingerprint([]byte(publicPEM(t, key)), "sha256") }
	m := vecMinion(t, publicPEM(t, "minion_other"))
	m.Options.MasterFinger = Names{finger("minion_other"), finger("cluster")}
	a := attempt(t, m, nonce)
	refuses(t, a, answer(t, vecIdentity(t, false), a, nil), "fingerprint")
	m.Options.MasterFinger = Names{finger("minion_other"), finger("master")}
	if _, err := a.Finish(answer(t, vecIdentity(t, false), a, nil)); err != nil {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		in   any
		want string
	}{{"a", "'a'"}, {"", "''"}, {nil, "''"}, {value.ListOf("a", "b"), "['a', 'b']"}, {value.ListOf(), "''"}} {
		var n Names
		if err := n.SetValue(c.in); err != nil || value.Repr(n.Value()) != c.want {
			t.Errorf("%v is %s, %v", c.in, value.Repr(n.Value()), err)
		}
	}
	var n Names
	if n.SetValue(int64(5)) == nil || n.SetValue(value.ListOf(int64(5))) == nil {
		t.Error("a number is taken")
	}
}
