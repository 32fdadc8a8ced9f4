package netif

import (
	"testing"

	"brine/test/fuzztest"
)

func FuzzResolv(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"nameserver 10.0.0.1\nnameserver fe80::1%eth0\nsearch a.example b.example\noptions ndots:2 rotate\nsortlist " +
		"10.0.0.0/255.0.0.0\n", "domain x # y\n; z", "10.0.0.0/8", "::/129", "10.0.0.1/255.255.0.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if ParseResolv(text) == nil {
			t.Error("nothing")
		}
		if p, err := ParseNetwork(text); err == nil && (!p.IsValid() || p.Bits() < 0) {
			t.Errorf("%q: %v", text, p)
		}
	})
}
