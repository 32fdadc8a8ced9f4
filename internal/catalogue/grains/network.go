package grains

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"brine/internal/host"
	"brine/internal/host/names"
	"brine/internal/host/netif"
	"brine/internal/py/value"
)

type interfacesResult struct {
	list []netif.Interface
	err  error
}

func (c *collection) findInterfaces() interfacesResult {
	ask := c.Options.interfaces
	switch {
	case ask != nil:
	case c.Live():
		ask = netif.Interfaces
	default:
		return interfacesResult{}
	}
	list, err := ask()
	return interfacesResult{list, err}
}

// dnsOf returns the resolver for name lookups, nil if DNS is disabled.
func dnsOf(o Options, m *host.Machine) names.Resolver {
	switch {
	case o.NoDNS || o.DNSTimeout <= 0:
		return nil
	case o.DNS != nil:
		return o.DNS
	case m.Live():
		return &net.Resolver{PreferGo: true}
	}
	return nil
}

func init() { collectors.Register("hwaddr_interfaces", hardwareAddresses) }

func hardwareAddresses(_ context.Context, c *collection) (*value.Dict, error) {
	found := c.interfaces()
	d := value.NewDict(len(found.list))
	for _, f := range found.list {
		if f.Hardware != "" {
			d.Set(f.Name, f.Hardware)
		}
	}
	return value.DictOf("hwaddr_interfaces", d), found.err
}

func init() { collectors.Register("ip_interfaces", interfaceAddresses) }

// interfaceAddresses returns ip_interfaces, ipv4, fqdn_ip4 and similar grains.
func interfaceAddresses(_ context.Context, c *collection) (*value.Dict, error) {
	list := c.interfaces().list
	d := value.NewDict(7)
	d.Set("ip4_interfaces", perInterface(list, true, false))
	d.Set("ip6_interfaces", perInterface(list, false, true))
	v4, v6 := addresses(list, true, true), addresses(list, false, true)
	d.Set("ipv4", addressList(v4))
	d.Set("ipv6", addressList(v6))
	var fqdn4, fqdn6 []netip.Addr
	var wg sync.WaitGroup
	fqdn := c.fqdn()
	if len(v4) > 0 {
		wg.Go(func() { fqdn4 = c.names.Addresses(c.lookups, fqdn, true) })
	}
	if len(v6) > 0 {
		wg.Go(func() { fqdn6 = c.names.Addresses(c.lookups, fqdn, false) })
	}
	wg.Wait()
	slices.SortFunc(fqdn4, netip.Addr.Compare)
	slices.SortFunc(fqdn6, netip.Addr.Compare)
	d.Set("fqdn_ip4", addressList(fqdn4))
	d.Set("fqdn_ip6", addressList(fqdn6))
	d.Set("ip_interfaces", perInterface(list, true, true))
	return d, nil
}

// perInterface lists first IPv4, then IPv6, then secondary addresses.
func perInterface(list []netif.Interface, v4, v6 bool) *value.Dict {
	d := value.NewDict(len(list))
	for _, f := range list {
		var first, second, last []netip.Addr
		for _, a := range f.Addrs {
			switch ip := a.Prefix.Addr(); {
			case ip.Is4() && !v4, !ip.Is4() && !v6:
			case a.Secondary:
				last = append(last, ip)
			case ip.Is4():
				first = append(first, ip)
			default:
				second = append(second, ip)
			}
		}
		d.Set(f.Name, addressList(slices.Concat(first, second, last)))
	}
	return d
}

// addresses returns the addresses of all interfaces, sorted, each once.
func addresses(list []netif.Interface, v4, loopback bool) []netip.Addr {
	var out []netip.Addr
	for _, f := range list {
		for _, a := range f.Addrs {
			if ip := a.Prefix.Addr(); ip.Is4() == v4 && (loopback || !ip.IsLoopback()) {
				out = append(out, ip)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

func addressList(addrs []netip.Addr) *value.List {
	l := &value.List{Items: make([]any, len(addrs))}
	for i, a := range addrs {
		l.Items[i] = addressText(a)
	}
	return l
}

// addressText writes an address as Python does.
func addressText(a netip.Addr) string {
	if a.Is4In6() {
		b := a.As16()
		return fmt.Sprintf("::ffff:%x:%x", int(b[12])<<8|int(b[13]), int(b[14])<<8|int(b[15]))
	}
	return a.String()
}

func init() { collectors.Register("hostname", hostname) }

func hostname(_ context.Context, c *collection) (*value.Dict, error) {
	fqdn := c.fqdn()
	if fqdn == "" {
		fqdn = "localhost.localdomain"
	}
	name, domain, _ := strings.Cut(fqdn, ".")
	return value.DictOf("localhost", c.uname().Node, "fqdn", fqdn, "host", name, "domain", domain), nil
}

func init() { collectors.Register("fqdns", fqdns) }

// fqdns returns the names of all addresses that DNS answered in time.
func fqdns(_ context.Context, c *collection) (*value.Dict, error) {
	if !c.FQDNs {
		return value.DictOf("fqdns", value.ListOf()), nil
	}
	list := c.interfaces().list
	all := slices.Concat(addresses(list, true, false), addresses(list, false, false))
	return value.DictOf("fqdns", c.names.Reverse(c.lookups, all)), nil
}

func init() { collectors.Register("default_gateway", defaultGateway) }

// defaultGateway returns the address of the router, or true for a default route
// without one.
func defaultGateway(_ context.Context, c *collection) (*value.Dict, error) {
	if !c.Live() {
		return nil, nil
	}
	d := value.DictOf("ip_gw", false, "ip4_gw", false, "ip6_gw", false)
	for _, v4 := range []bool{true, false} {
		g, ok, err := netif.DefaultGateway(v4)
		if err != nil {
			c.log.Debug("cannot read routes", "err", err)
		}
		if !ok {
			continue
		}
		key := "ip6_gw"
		if v4 {
			key = "ip4_gw"
		}
		d.Set("ip_gw", true)
		d.Set(key, gateway(g))
	}
	return d, nil
}

func gateway(g netif.Gateway) any {
	switch {
	case g.Other && g.Via.Is4():
		return "inet" // the word before the address in the output of ip
	case g.Other:
		return "inet6"
	case g.Via.IsValid():
		return g.Via.String()
	}
	return true
}

func init() { collectors.Register("dns", resolver) }

// resolver returns the grain dns.
func resolver(_ context.Context, c *collection) (*value.Dict, error) {
	r := netif.ReadResolv(c.Machine)
	if r == nil {
		return nil, nil
	}
	if len(r.Faults) > 0 {
		c.log.Warn("resolver configuration has invalid entries; ignoring them", "entries", r.Faults)
	}
	is4 := func(a netip.Addr) bool { return a.Is4() }
	is6 := func(a netip.Addr) bool { return a.Is6() }
	sorts := value.ListOf()
	for _, p := range r.SortList {
		sorts.Append(addressText(p.Addr()) + "/" + netif.Mask(p).String())
	}
	return value.DictOf("dns", value.DictOf(
		"nameservers", addressList(r.Servers),
		"ip4_nameservers", addressList(slices.DeleteFunc(slices.Clone(r.Servers), is6)),
		"ip6_nameservers", addressList(slices.DeleteFunc(slices.Clone(r.Servers), is4)),
		"sortlist", sorts,
		"domain", r.Domain,
		"search", r.Search,
		"options", r.Options,
	)), nil
}
