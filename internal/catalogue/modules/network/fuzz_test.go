package network

import (
	"testing"

	"brine/internal/catalogue/actions/iptables"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

func FuzzFiles(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add("$ORIGIN example.com.\n$TTL 3600\n@ IN SOA ns1 admin (\n 2026010101 ; serial\n 3h 1h 1w 1d )\n IN NS ns1\nns1 IN A 192.0.2.1\n")
	f.Add("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -m comment --comment \"a b\" -j ACCEPT\n! -s 10.0.0.0/8\nCOMMIT\n")
	f.Add("-A\n:\n*\n-A X ! \"\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, read := range []func(string) (*value.Dict, error){parseZone, iptables.ReadRules} {
			d, err := read(text)
			if err == nil && len(value.Repr(d)) > 4096+64*len(text)*len(text) {
				t.Errorf("%d bytes become %d", len(text), len(value.Repr(d)))
			}
		}
	})
}
