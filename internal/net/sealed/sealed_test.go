package sealed

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

var keys = sync.OnceValue(func() (out [2]*crypt.PrivateKey) {
	for i := range out {
		k, err := crypt.GenerateKey(2048)
		if err != nil {
			panic(err)
		}
		out[i] = k
	}
	return out
})

func sealer(name, role string, i int) *Sealer {
	k := keys()[i]
	return NewSealer(name, role, func() *crypt.PrivateKey { return k })
}

func only(s *Sealer) func(*Identity) error {
	return func(id *Identity) error {
		if id.Name != s.name || id.Role != s.role || id.Pub != s.Pub() {
			return salt.Errorf(salt.Denied, "not trusted")
		}
		return nil
	}
}

func TestSealed(t *testing.T) {
	s := sealer("eu", Site, 0)
	b, err := s.Seal("summary", "", wire.SiteSummary{JID: "20260101000000000000", Version: 3, Targeted: 5})
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewOpener(only(s)).Open(b)
	if err != nil {
		t.Fatal(err)
	}
	var in wire.SiteSummary
	if err := m.Read(&in); err != nil || m.Kind != "summary" || m.From.Name != "eu" || in.Version != 3 || in.Targeted != 5 {
		t.Errorf("%+v %+v %v", m, in, err)
	}
	if m.From.Fingerprint != Fingerprint(s.Pub()) || len(m.From.Fingerprint) < 60 {
		t.Errorf("fingerprint %q", m.From.Fingerprint)
	}

	// Another key, another name, and another role are not this site.
	for what, other := range map[string]*Sealer{"key": sealer("eu", Site, 1), "name": sealer("us", Site, 0), "role": sealer("eu", Hub, 0)} {
		b, err := other.Seal("summary", "", wire.SiteSummary{JID: "20260101000000000000", Version: 3})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewOpener(only(s)).Open(b); salt.KindOf(err) != salt.Denied {
			t.Errorf("another %s: %v", what, err)
		}
	}
	// No changed byte leaves a message valid.
	o := NewOpener(only(s))
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if m, err := o.Open(bad); err == nil && (m.Data == nil || m.From.Name != "eu") {
			t.Errorf("byte %d: %+v", i, m)
		} else if err == nil {
			t.Errorf("byte %d may change", i)
		}
	}
}

func TestCertificateExpires(t *testing.T) {
	s := sealer("eu", Site, 0)
	at := time.Now()
	s.now = func() time.Time { return at }
	first, err := s.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Seal("ask", "", wire.SiteAsk{JID: "20260101000000000000"})
	if err != nil {
		t.Fatal(err)
	}
	o := NewOpener(only(s))
	o.now = func() time.Time { return at.Add(25 * time.Hour) }
	if _, err := o.Open(b); salt.KindOf(err) != salt.Invalid {
		t.Errorf("an old certificate: %v", err)
	}
	at = at.Add(13 * time.Hour)
	if second, err := s.Certificate(); err != nil || bytes.Equal(first, second) {
		t.Errorf("the certificate is not renewed: %v", err)
	}
}

func TestConnects(t *testing.T) {
	s := sealer("eu", Site, 0)
	cert, err := s.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	sig, err := s.Nonce([]byte("nonce"))
	if err != nil {
		t.Fatal(err)
	}
	if id, current, err := Connects(cert, []byte("nonce"), sig); err != nil || id.Name != "eu" || !current {
		t.Errorf("%+v %v %v", id, current, err)
	}
	for _, nonce := range []string{"", "other"} {
		if _, _, err := Connects(cert, []byte(nonce), sig); err == nil {
			t.Errorf("the signature is valid for the nonce %q", nonce)
		}
	}
}

// TestClock: the time counts only in answer to the nonce, under the long-lived key, and opens messages
// whose certificates are not valid by the clock of the receiver.
func TestClock(t *testing.T) {
	s, o := sealer("hub", Hub, 0), NewOpener(func(*Identity) error { return nil })
	o.Follow(func() time.Time { return time.Now().Add(-72 * time.Hour) })
	c, err := s.Clock([]byte("nonce"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(by *Sealer, c wire.SiteClock, nonce string) (time.Time, error) {
		b, err := by.Seal("clock", "eu", c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.Open(b); err == nil {
			t.Error("a message of another time is opened")
		}
		m, err := o.OpenAnyTime(b)
		if err != nil {
			t.Fatal(err)
		}
		return m.Clock([]byte(nonce))
	}
	if at, err := read(s, c, "nonce"); err != nil || time.Since(at).Abs() > time.Minute {
		t.Errorf("%s %v", at, err)
	}
	if _, err := read(s, c, "other"); err == nil {
		t.Error("it answers another question")
	}
	if _, err := read(sealer("hub", Hub, 1), c, "nonce"); err == nil {
		t.Error("another key signs the same time")
	}
	c.At++
	if _, err := read(s, c, "nonce"); err == nil {
		t.Error("the time may be changed")
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"eu-1", "a", "B_2"} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "a.b", "*", ">", "a b", "-x", "../x", string(bytes.Repeat([]byte("a"), 64))} {
		if CheckName(name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

// FuzzOpen: no input is opened but what the trusted key has signed.
func FuzzOpen(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	s := sealer("eu", Site, 0)
	good, err := s.Seal("event", "", wire.SiteEvent{Tag: "a/b", Data: value.DictOf("x", int64(1))})
	if err != nil {
		f.Fatal(err)
	}
	cert, err := s.Certificate()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(cert)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := NewOpener(only(s)).Open(b)
		if err == nil && (m.From.Name != "eu" || m.Kind != "event") {
			t.Errorf("opened %+v", m)
		}
		if err != nil && salt.KindOf(err) != salt.Invalid && salt.KindOf(err) != salt.Denied {
			t.Errorf("%v has no kind", err)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	s := sealer("eu", Site, 0)
	m, err := s.Seal("event", "", wire.SiteEvent{Tag: "a/b", Data: value.DictOf("x", int64(1))})
	if err != nil {
		b.Fatal(err)
	}
	o := NewOpener(only(s))
	for b.Loop() {
		if _, err := o.Open(m); err != nil {
			b.Fatal(err)
		}
	}
}
