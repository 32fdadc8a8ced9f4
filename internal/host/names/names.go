// Package names finds the names of a machine: in /etc/hosts first, then by DNS,
// as the C library does on nearly every Linux. Other sources of nsswitch.conf
// are not used. DNS queries end with the context.
package names

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"brine/internal/host"
)

// Resolver queries DNS. *net.Resolver implements it.
type Resolver interface {
	LookupCNAME(ctx context.Context, host string) (string, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupAddr(ctx context.Context, addr string) ([]string, error)
}

var _ Resolver = (*net.Resolver)(nil)

// Finder finds names of one machine. If DNS is nil, only the hosts file is
// used.
type Finder struct {
	DNS   Resolver
	hosts []entry
}

type entry struct {
	addr  netip.Addr
	names []string // the first is the canonical one
}

// New reads the machine's /etc/hosts and returns a Finder. dns may be nil.
func New(m *host.Machine, dns Resolver) *Finder {
	f := &Finder{DNS: dns}
	for _, line := range m.Lines("/etc/hosts") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		if a, err := netip.ParseAddr(words[0]); err == nil {
			f.hosts = append(f.hosts, entry{a.WithZone(""), words[1:]})
		}
	}
	return f
}

func (e entry) has(name string) bool {
	return slices.ContainsFunc(e.names, func(n string) bool { return strings.EqualFold(n, name) })
}

// Canonical returns the canonical name of a host, or name itself if unknown.
func (f *Finder) Canonical(ctx context.Context, name string) string {
	if name == "" {
		return name
	}
	for _, e := range f.hosts {
		if e.has(name) {
			return e.names[0]
		}
	}
	if f.DNS == nil {
		return name
	}
	if c, err := f.DNS.LookupCNAME(ctx, name); err == nil {
		if c = strings.TrimSuffix(c, "."); c != "" {
			return c
		}
	}
	return name
}

// Full returns the name with a domain of the host's address, or the first name
// of that address; name itself if unknown. It may differ from the canonical
// name.
func (f *Finder) Full(ctx context.Context, name string) string {
	for _, v4 := range []bool{true, false} {
		if addrs := f.Addresses(ctx, name, v4); len(addrs) > 0 {
			if names := f.namesOf(ctx, addrs[0]); len(names) > 0 {
				return full(names)
			}
			break
		}
	}
	return name
}

// Addresses returns the addresses of a host, of IPv4 or else of IPv6, each
// once.
func (f *Finder) Addresses(ctx context.Context, name string, v4 bool) []netip.Addr {
	var out []netip.Addr
	for _, e := range f.hosts {
		if !e.has(name) {
			continue
		}
		a := e.addr
		if v4 && a == netip.IPv6Loopback() {
			a = netip.AddrFrom4([4]byte{127, 0, 0, 1}) // as in the C library
		}
		if v4 {
			a = a.Unmap()
		}
		if a.Is4() == v4 && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	if len(out) > 0 || f.DNS == nil || name == "" {
		return out
	}
	network := "ip6"
	if v4 {
		network = "ip4"
	}
	found, err := f.DNS.LookupNetIP(ctx, network, name)
	if err != nil {
		return nil
	}
	for _, a := range found {
		if a = a.Unmap(); a.Is4() == v4 && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// lookups bounds concurrent lookups.
const lookups = 16

// Reverse returns the sorted full names that belong to addresses: of each the
// first name with a dot, or the first name. Lookups unfinished when ctx ends
// are omitted.
func (f *Finder) Reverse(ctx context.Context, addrs []netip.Addr) []string {
	found := make(chan string, len(addrs)) // capacity for all, so that no goroutine blocks
	var wg sync.WaitGroup
	slots := make(chan struct{}, lookups)
	for _, a := range addrs {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if names := f.namesOf(ctx, a); len(names) > 0 {
				found <- full(names)
			}
		})
	}
	wg.Wait()
	close(found)
	var out []string
	for n := range found {
		out = append(out, n)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (f *Finder) namesOf(ctx context.Context, a netip.Addr) []string {
	for _, e := range f.hosts {
		if e.addr == a.WithZone("") {
			return e.names
		}
	}
	if f.DNS == nil || ctx.Err() != nil {
		return nil
	}
	names, err := f.DNS.LookupAddr(ctx, a.String())
	if err != nil {
		return nil
	}
	return names
}

func full(names []string) string {
	for _, n := range names {
		if n = strings.TrimSuffix(n, "."); strings.Contains(n, ".") {
			return n
		}
	}
	return strings.TrimSuffix(names[0], ".")
}
