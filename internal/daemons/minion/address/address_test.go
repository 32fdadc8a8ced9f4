package address

import (
	"strings"
	"testing"
)

func TestParseMaster(t *testing.T) {
	for _, c := range []struct {
		text string
		host string
		port int
		bad  string
	}{
		{"salt", "salt", 4506, ""},
		{"salt.example.com:5506", "salt.example.com", 5506, ""},
		{"10.0.0.1:99", "10.0.0.1", 99, ""},
		{"[2001:db8::1]:5506", "2001:db8::1", 5506, ""},
		{"[2001:db8::1]", "2001:db8::1", 4506, ""},
		{"2001:db8::1", "2001:db8::1", 4506, ""},
		{"salt:0", "", 0, "not a port"},
		{"salt:x", "", 0, "not a port"},
		{"[::1", "", 0, "no ]"},
		{"[::1]x", "", 0, "expected [address]:port"},
		{"a b", "", 0, "not a host name"},
		{"https://salt.example.com/", "", 0, "is a URL: write the host alone, or host:port, without https://: salt.example.com"},
		{"a.example.com, b", "", 0, "write several masters as a list: [a.example.com, b]"},
		{":4506", "", 0, "not a host name"},
		{"salt:4506:", "", 0, "write host, host:port, or [address]:port for IPv6"},
		{"10.0.0.1:4506:4505", "", 0, "write host, host:port"},
		{"2001:db8::x", "", 0, "write host, host:port"},
		{"fe80::1%eth0", "fe80::1%eth0", 4506, ""},
	} {
		m, err := Parse(c.text, 4506, false)
		if c.bad != "" {
			if err == nil || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%q: error %v, want %q", c.text, err, c.bad)
			}
			continue
		}
		if err != nil || m.Host != c.host || m.Port != c.port {
			t.Errorf("%q: %+v, %v", c.text, m, err)
		}
	}
	if _, err := Parse("name", 1, true); err == nil {
		t.Error("ip_only takes a name")
	}
}
