package address

import (
	"net"
	"testing"

	"brine/test/fuzztest"
)

func FuzzMaster(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"salt", "salt.example.com:4507", "10.0.0.1", "[fe80::1%eth0]:4506", "::1", "[::1]x", "a:b:c", ":", "[", "x:0", "x:65536", "x:-1"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, text string, ipOnly bool) {
		m, err := Parse(text, 4506, ipOnly)
		if err != nil {
			return
		}
		if m.Port < 1 || m.Port > 65535 {
			t.Errorf("%q: port %d", text, m.Port)
		}
		if ipOnly && net.ParseIP(m.Host) == nil {
			t.Errorf("%q: %q is no address", text, m.Host)
		}
		if !m.Is(text) {
			t.Errorf("%q is not itself", text)
		}
	})
}
