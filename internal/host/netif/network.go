package netif

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"brine/internal/host"
)

// ParseNetwork parses an address with a prefix length, a mask or an inverted
// mask: "192.0.2.5/24", "192.0.2.5/255.255.255.0". Without one the prefix is
// the address alone. The address is not masked; Masked returns the network.
func ParseNetwork(text string) (netip.Prefix, error) {
	addr, mask, ok := strings.Cut(text, "/")
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q does not appear to be an IPv4 or IPv6 network", text)
	}
	if !ok {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	if bits, err := strconv.Atoi(mask); err == nil {
		if p := netip.PrefixFrom(a, bits); p.IsValid() {
			return p, nil
		}
	} else if m, err := netip.ParseAddr(mask); err == nil && m.Is4() && a.Is4() {
		four := m.As4()
		if bits, err := maskBits(four); err == nil {
			return netip.PrefixFrom(a, bits), nil
		}
		for i := range four {
			four[i] = ^four[i]
		}
		if bits, err := maskBits(four); err == nil {
			return netip.PrefixFrom(a, bits), nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("%q does not appear to be an IPv4 or IPv6 network", text)
}

// Last returns the last address of a network, in IPv4 its broadcast address.
func Last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Connection is a TCP connection.
type Connection struct{ Local, Remote netip.AddrPort }

// Established returns the established TCP connections of the machine, those
// of IPv4 first.
func Established(m *host.Machine) []Connection {
	const established = "01"
	var out []Connection
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		for _, line := range m.Lines(path) {
			f := strings.Fields(line)
			if len(f) < 4 || f[3] != established {
				continue
			}
			local, ok1 := kernelAddress(f[1])
			remote, ok2 := kernelAddress(f[2])
			if ok1 && ok2 {
				out = append(out, Connection{local, remote})
			}
		}
	}
	return out
}

// kernelAddress parses "0100007F:0016", whose 32-bit words are in little-endian
// order.
func kernelAddress(s string) (netip.AddrPort, bool) {
	addr, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(addr)
	p, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		slices.Reverse(b[i : i+4])
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), ok
}

// Route is an entry of the routing table.
type Route struct {
	To        netip.Prefix
	Via       netip.Addr // invalid without a router
	Interface string
	Local     bool   // to an address of the machine itself
	Flags     string // as shown by route(8); "" if the route is from ip(8)
}

// Routes returns the routes of the main table of IPv4 and of all tables of
// IPv6, as shown by netstat(8) or, on a machine without it, ip(8). It skips
// ip's routes without a destination interface.
func Routes(ctx context.Context, m *host.Machine) ([]Route, error) {
	program, words := "netstat", [][]string{{"-A", "inet", "-rn"}, {"-A", "inet6", "-rn"}}
	if m.Which(program) == "" {
		program, words = "ip", [][]string{{"-4", "route", "show", "table", "main"}, {"-6", "route", "show", "table", "all"}}
	}
	var out []Route
	for i, args := range words {
		text, exit, err := m.Run(ctx, program, args...)
		if err != nil {
			return nil, fmt.Errorf("cannot run %s: %w", program, err)
		}
		if exit != 0 {
			continue // the machine does not have this IP version
		}
		for line := range strings.SplitSeq(text, "\n") {
			var r Route
			var ok bool
			switch f := strings.Fields(line); {
			case program == "ip":
				r, ok = parseRoute(f, i == 0)
			case i == 0:
				r, ok = netstatRoute(f)
			default:
				r, ok = netstatRoute6(f)
			}
			if ok {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// netstatRoute parses a line: destination, router, mask, flags, four more, and
// the interface.
func netstatRoute(f []string) (r Route, ok bool) {
	if len(f) < 8 {
		return r, false
	}
	to, err := ParseNetwork(f[0] + "/" + f[2])
	via, err2 := netip.ParseAddr(f[1])
	if err != nil || err2 != nil {
		return r, false // the headings
	}
	return withVia(Route{To: to, Interface: f[7], Flags: f[3]}, via), true
}

// netstatRoute6 parses a line: destination, router, flags, metric, two more,
// and the interface. The counter may not be separated from the word before it.
func netstatRoute6(f []string) (r Route, ok bool) {
	if len(f) != 6 && len(f) != 7 {
		return r, false
	}
	to, err := ParseNetwork(f[0])
	via, err2 := netip.ParseAddr(f[1])
	if err != nil || err2 != nil {
		return r, false
	}
	return withVia(Route{To: to, Interface: f[len(f)-1], Flags: f[2]}, via), true
}

func withVia(r Route, via netip.Addr) Route {
	if !via.IsUnspecified() {
		r.Via = via
	}
	return r
}

func parseRoute(f []string, v4 bool) (Route, bool) {
	var r Route
	if len(f) > 0 && f[0] == "local" {
		r.Local, f = true, f[1:]
	}
	if len(f) == 0 {
		return r, false
	}
	to := f[0]
	if to == "default" {
		to = "::/0"
		if v4 {
			to = "0.0.0.0/0"
		}
	}
	var err error
	if r.To, err = ParseNetwork(to); err != nil {
		return r, false // unreachable, blackhole and similar routes
	}
	for i := 1; i+1 < len(f); i++ {
		switch f[i] {
		case "via":
			if a, err := netip.ParseAddr(f[i+1]); err == nil {
				r.Via = a
			}
		case "dev":
			r.Interface = f[i+1]
		}
	}
	return r, true
}

// RouteTo asks the kernel for the route and source address to an address.
func RouteTo(ctx context.Context, m *host.Machine, to netip.Addr) (r Route, source netip.Addr, err error) {
	out, err := m.Do(ctx, "ip", "route", "get", to.String())
	if err != nil {
		return Route{}, source, fmt.Errorf("cannot run ip: %w", err)
	}
	line, _, _ := strings.Cut(out.Stdout, "\n")
	f := strings.Fields(strings.TrimPrefix(line, "local "))
	r, ok := parseRoute(f, to.Is4())
	if out.Exit != 0 || !ok {
		return Route{}, source, fmt.Errorf("there is no route to %s: %s", to, out.Stderr)
	}
	if i := slices.Index(f, "src"); i >= 0 && i+1 < len(f) {
		source, _ = netip.ParseAddr(f[i+1])
	}
	return r, source, nil
}
