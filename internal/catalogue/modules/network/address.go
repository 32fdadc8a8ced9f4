package network

import (
	"math/big"
	"net/netip"
	"slices"
)

// privateNets lists the networks that IANA's registries call not globally
// reachable. globalNets lists the exceptions within them.
var (
	privateNets = networks(
		"0.0.0.0/8", "10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.0.170/31", "192.0.2.0/24",
		"192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"::1/128", "::/128", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "fc00::/7", "fe80::/10",
	)
	globalNets = networks("192.0.0.9/32", "192.0.0.10/32", "2001:1::1/128", "2001:1::2/128", "2001:3::/32", "2001:4:112::/48", "2001:20::/28", "2001:30::/28")
)

func networks(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}

func private(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	has := func(p netip.Prefix) bool { return p.Contains(a) }
	return slices.ContainsFunc(privateNets, has) && !slices.ContainsFunc(globalNets, has)
}

// count returns the number of addresses of a network.
func count(p netip.Prefix) *big.Int {
	return new(big.Int).Lsh(big.NewInt(1), uint(p.Addr().BitLen()-p.Bits()))
}
