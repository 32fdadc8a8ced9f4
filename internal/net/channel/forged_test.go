package channel

import (
	"testing"

	"brine/internal/net/crypt"
	"brine/internal/net/transport"
	"brine/internal/net/transport/zeromq"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// TestForgedPublications: the key for publications, which every minion knows,
// is not enough to command another minion with default options.
func TestForgedPublications(t *testing.T) {
	tr := zeromq.New(quiet)
	m := newPlace(t, tr).start(t)
	c := m.minion(t, tr)
	c.cfg.VerifyPublications = false // the default of a minion
	if err := c.SignIn(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := m.subscribe(t, c)
	forge := func(more ...any) {
		t.Helper()
		c, err := crypt.NewCrypticle(m.AES())
		if err != nil {
			t.Fatal(err)
		}
		plain, err := msgpack.Marshal(value.DictOf("n", 666), msgpack.Wire)
		if err != nil {
			t.Fatal(err)
		}
		load := c.Seal(plain, "")
		d := value.DictOf("enc", "aes", "load", load)
		if len(more) > 0 {
			sig, err := private(t, "minion_other").Sign(crypt.PKCS1v15SHA1, load)
			if err != nil {
				t.Fatal(err)
			}
			d.Update(value.DictOf("sig_algo", crypt.PKCS1v15SHA1, "sig", sig))
		}
		b, err := msgpack.Marshal(d, msgpack.Wire)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range m.publishers {
			p.Publish(transport.Publication{Payload: b, Minions: []string{"one"}})
		}
	}
	forge()
	forge("with the signature of another minion")
	m.publish(t, 1)
	if got := e.hear(t).Int("n"); got != 1 {
		t.Fatalf("the minion took the publication %d, which no master made", got)
	}
}
