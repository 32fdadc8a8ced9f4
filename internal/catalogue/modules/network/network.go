// Package network holds the execution module network. It uses host/netif and
// host/names.
package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
	"brine/internal/host"
	"brine/internal/host/names"
	"brine/internal/host/netif"
	"brine/internal/py/value"
)

// Sources are the sources of facts.
type Sources struct {
	Machine *host.Machine
	// Interfaces lists the interfaces, such as netif.Interfaces for this
	// machine.
	Interfaces func() ([]netif.Interface, error)
	// DNS resolves names; it may be nil.
	DNS names.Resolver
}

// none is the argument type of functions without arguments.
type none struct{}

type network struct{ Sources }

// units holds the modules, which the files of this package register.
var units = modules.Family()

// Modules returns the modules of this family, with other sources than the machine.
func Modules(s Sources) []fn.Module {
	all := units.Modules(s.Machine)
	for i := range all {
		if all[i].Name == "network" {
			all[i] = networkModule(s)
		}
	}
	return all
}

func init() {
	units.Register("network", func(m *host.Machine) fn.Module {
		return networkModule(Sources{Machine: m, Interfaces: netif.Interfaces, DNS: &net.Resolver{PreferGo: true}})
	})
}

func networkModule(s Sources) fn.Module {
	n := network{s}
	return fn.Module{Name: "network", Doc: `How the machine is connected.`, Funcs: []fn.Func{
		fn.Of("interfaces", n.interfaces, `Return all interfaces with their addresses.`, fn.Example("salt '*' network.interfaces")),
		fn.Of("interface", n.inet, `Return the IPv4 addresses of an interface.`, fn.Example("salt '*' network.interface eth0")),
		fn.Of("interface_ip", n.interfaceIP, `Return the first IPv4 address of an interface.`, fn.Example("salt '*' network.interface_ip eth0")),
		fn.Of("hw_addr", n.hwAddr, `Return the hardware address of an interface.`, fn.Example("salt '*' network.hw_addr eth0")),
		fn.Of("hwaddr", n.hwAddr, `Same as network.hw_addr.`, fn.Example("salt '*' network.hwaddr eth0")),
		fn.Of("ip_addrs", n.ipAddrs, `Return the IPv4 addresses.`, fn.Example("salt '*' network.ip_addrs cidr=10.0.0.0/8")),
		fn.Of("ipaddrs", n.ipAddrs, `Same as network.ip_addrs.`, fn.Example("salt '*' network.ipaddrs")),
		fn.Of("ip_addrs6", n.ipAddrs6, `Return the IPv6 addresses.`, fn.Example("salt '*' network.ip_addrs6")),
		fn.Of("ipaddrs6", n.ipAddrs6, `Same as network.ip_addrs6.`, fn.Example("salt '*' network.ipaddrs6")),
		fn.Of("subnets", n.subnets, `Return the IPv4 networks that the machine is in.`, fn.Example("salt '*' network.subnets eth1")),
		fn.Of("subnets6", n.subnets6, `Return the IPv6 networks that the machine is in.`, fn.Example("salt '*' network.subnets6")),
		fn.Of("ip_networks", n.networks(true), `Return the IPv4 networks that the machine is in, with details if asked.`,
			fn.Example("salt '*' network.ip_networks verbose=true")),
		fn.Of("ip_networks6", n.networks(false), `Return the IPv6 networks that the machine is in, with details if asked.`,
			fn.Example("salt '*' network.ip_networks6")),
		fn.Of("in_subnet", n.inSubnet, `Say whether the machine has an address in a network.`, fn.Example("salt '*' network.in_subnet 10.0.0.0/16")),
		fn.Of("ip_in_subnet", n.ipInSubnet, `Say whether an address is in a network.`, fn.Example("salt '*' network.ip_in_subnet 172.17.0.4 172.16.0.0/12")),
		fn.Of("ifacestartswith", n.startsWith, `Return the interfaces with an IPv4 address that begins like this.`,
			fn.Example("salt '*' network.ifacestartswith 10.0")),
		fn.Of("calc_net", n.calcNet, `Return the network of an address.`, fn.Example("salt '*' network.calc_net 172.17.0.5 255.255.255.240")),
		fn.Of("convert_cidr", n.convertCIDR, `Return the network, mask and broadcast address of a network.`,
			fn.Example("salt '*' network.convert_cidr 172.31.0.0/16")),
		fn.Of("is_private", n.isPrivate, `Say whether an address is of a private network.`, fn.Example("salt '*' network.is_private 10.0.0.3")),
		fn.Of("is_loopback", n.isLoopback, `Say whether an address is that of the machine for itself.`, fn.Example("salt '*' network.is_loopback 127.0.0.1")),
		fn.Of("reverse_ip", n.reverseIP, `Return the name of an address in the reversed tree of DNS.`, fn.Example("salt '*' network.reverse_ip 172.17.0.4")),
		fn.Of("iphexval", n.hex, `Return an IPv4 address in hexadecimal digits.`, fn.Example("salt '*' network.iphexval 10.0.0.1")),
		fn.Of("get_hostname", n.getHostname, `Return the host name.`, fn.Example("salt '*' network.get_hostname")),
		fn.Of("get_fqdn", n.getFQDN, `Return the host name with its domain.`, fn.Example("salt '*' network.get_fqdn")),
		fn.Of("fqdns", n.fqdns, `Return all names that DNS knows for the machine's addresses.`, fn.Example("salt '*' network.fqdns")),
		fn.Of("active_tcp", n.activeTCP, `Return the established TCP connections.`, fn.Example("salt '*' network.active_tcp")),
		fn.Of("routes", n.routes, `Return the routing table.`, fn.Example("salt '*' network.routes")),
		fn.Of("default_route", n.defaultRoute, `Return the default routes.`, fn.Example("salt '*' network.default_route")),
		fn.Of("get_route", n.getRoute, `Return how an address is reached.`, fn.Example("salt '*' network.get_route 10.10.10.10")),
		fn.Of("ping", n.ping, `Ping a host four times, and return what ping(8) prints.`,
			fn.Example("salt '*' network.ping archlinux.org return_boolean=true")),
		fn.Of("connect", n.connect, `Say whether a host takes connections on a port.
			The keywords are proto (tcp or udp), timeout in seconds and family (ipv4 or ipv6).`,
			fn.Example("salt '*' network.connect google-public-dns-a.google.com 53")),
		fn.Of("netstat", n.netstat, `Return the open sockets of TCP and UDP, and the programs that have them.`, fn.Example("salt '*' network.netstat")),
		fn.Of("arp", n.arp, `Return the IPv4 addresses of the neighbours by hardware address, as arp(8) shows them.`, fn.Example("salt '*' network.arp")),
		fn.Of("ip_neighs", n.neighbours(true), `Return the IPv4 addresses of the neighbours by hardware address.`, fn.Example("salt '*' network.ip_neighs")),
		fn.Of("ipneighs", n.neighbours(true), `Same as network.ip_neighs.`, fn.Example("salt '*' network.ipneighs")),
		fn.Of("ip_neighs6", n.neighbours(false), `Return the IPv6 addresses of the neighbours by hardware address.`,
			fn.Example("salt '*' network.ip_neighs6")),
		fn.Of("ipneighs6", n.neighbours(false), `Same as network.ip_neighs6.`, fn.Example("salt '*' network.ipneighs6")),
		fn.Of("dig", n.dig, `Return what dig(1) prints of a host.`, fn.Example("salt '*' network.dig archlinux.org")),
		fn.Of("traceroute", n.traceroute, `Return the machines on the way to a host, as traceroute(8) finds them.`,
			fn.Example("salt '*' network.traceroute archlinux.org")),
		fn.Of("wol", n.wake, `Wake a machine up by its hardware address.`, fn.Example("salt '*' network.wol 08:00:27:13:69:77 255.255.255.255 7")),
		fn.Of("get_bufsize", n.bufsize, `Return the sizes of an interface's ring buffers, as ethtool(8) shows them.`,
			fn.Example("salt '*' network.get_bufsize eth0")),
		fn.Of("mod_bufsize", n.setBufsize, `Set the sizes of an interface's ring buffers.
			The keywords are rx, tx, rx-mini and rx-jumbo.`, fn.Example("salt '*' network.mod_bufsize eth0 rx=512 tx=512")),
		fn.Of("mod_hostname", n.setHostname, `Set the host name, also in the files that hold it.`,
			fn.Example("salt '*' network.mod_hostname master.saltstack.com")),
	}}
}

func (n network) interfaces(context.Context, *fn.Call, none) (*value.Dict, error) {
	list, err := n.Interfaces()
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	d := value.NewDict(len(list))
	for _, f := range list {
		d.Set(f.Name, describe(f))
	}
	return d, nil
}

func describe(f netif.Interface) *value.Dict {
	d := value.DictOf("up", f.Up)
	if f.Parent != "" {
		d.Set("parent", f.Parent)
	}
	if f.Hardware != "" {
		d.Set("hwaddr", f.Hardware)
	}
	add := func(key string, addr *value.Dict) {
		l, ok := d.At(key).(*value.List)
		if !ok {
			l = &value.List{}
			d.Set(key, l)
		}
		l.Append(addr)
	}
	for _, a := range f.Addrs {
		address := a.Prefix.Addr().String()
		if !a.Prefix.Addr().Is4() {
			add("inet6", value.DictOf("address", address, "prefixlen", strconv.Itoa(a.Prefix.Bits()), "scope", a.Scope))
			continue
		}
		var broadcast any
		if a.Broadcast.IsValid() {
			broadcast = a.Broadcast.String()
		}
		facts := []any{"address", address, "netmask", netif.Mask(a.Prefix).String(), "broadcast", broadcast, "label", a.Label}
		if a.Secondary {
			add("secondary", value.DictOf(append([]any{"type", "inet"}, facts...)...))
		} else {
			add("inet", value.DictOf(facts...))
		}
	}
	return d
}

type ifaceArgs struct {
	Iface string `salt:"iface" doc:"name of the interface"`
}

// one returns an interface, or the message that Salt returns if there is none.
func (n network) one(name string) (*netif.Interface, string, error) {
	list, err := n.Interfaces()
	if err != nil {
		return nil, "", fn.Errorf("%w", err)
	}
	all := make([]string, len(list))
	for i := range list {
		if list[i].Name == name {
			return &list[i], "", nil
		}
		all[i] = list[i].Name
	}
	return nil, fmt.Sprintf(`Interface "%s" not in available interfaces: "%s"`, name, strings.Join(all, `", "`)), nil
}

func (n network) inet(_ context.Context, c *fn.Call, a ifaceArgs) (any, error) {
	f, missing, err := n.one(a.Iface)
	if f == nil {
		return missing, err
	}
	if l, ok := describe(*f).Get("inet"); ok {
		return l, nil
	}
	return "", nil
}

func (n network) interfaceIP(_ context.Context, _ *fn.Call, a ifaceArgs) (string, error) {
	f, missing, err := n.one(a.Iface)
	if f == nil {
		return missing, err
	}
	for _, addr := range f.Addrs {
		if addr.Prefix.Addr().Is4() && !addr.Secondary {
			return addr.Prefix.Addr().String(), nil
		}
	}
	return "", nil
}

func (n network) hwAddr(_ context.Context, _ *fn.Call, a ifaceArgs) (string, error) {
	f, missing, err := n.one(a.Iface)
	if f == nil {
		return missing, err
	}
	return f.Hardware, nil
}

// prefixes returns the addresses of one IP version, sorted and without
// duplicates, of the interfaces whose names match the patterns; nil means all.
func (n network) prefixes(patterns any, v4 bool) ([]netip.Prefix, error) {
	list, err := n.Interfaces()
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	var globs []target.Glob
	switch x := patterns.(type) {
	case nil:
		globs = []target.Glob{target.ParseGlob("*")}
	case *value.List:
		for _, it := range x.Items {
			globs = append(globs, target.ParseGlob(value.Str(it)))
		}
	default:
		for p := range strings.SplitSeq(value.Str(x), ",") {
			globs = append(globs, target.ParseGlob(strings.TrimSpace(p)))
		}
	}
	var out []netip.Prefix
	for _, f := range list {
		if !slices.ContainsFunc(globs, func(g target.Glob) bool { return g.Match(f.Name) }) {
			continue
		}
		for _, a := range f.Addrs {
			if a.Prefix.Addr().Is4() == v4 {
				out = append(out, a.Prefix)
			}
		}
	}
	slices.SortFunc(out, comparePrefix)
	return slices.Compact(out), nil
}

func comparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

type ipAddrsArgs struct {
	Interface any  `salt:"interface" doc:"names or patterns of interfaces, as a list or with commas" default:"null"`
	Loopback  bool `salt:"include_loopback" doc:"return those of the machine for itself too" default:"false"`
	CIDR      any  `salt:"cidr" doc:"only those of a network" default:"null"`
	Type      any  `salt:"type" doc:"public or private: only those" default:"null"`
}

func (n network) ipAddrs(_ context.Context, _ *fn.Call, a ipAddrsArgs) (*value.List, error) {
	return n.addresses(a, true)
}

type ipAddrs6Args struct {
	Interface any  `salt:"interface" doc:"names or patterns of interfaces, as a list or with commas" default:"null"`
	Loopback  bool `salt:"include_loopback" doc:"return those of the machine for itself too" default:"false"`
	CIDR      any  `salt:"cidr" doc:"only those of a network" default:"null"`
}

func (n network) ipAddrs6(_ context.Context, _ *fn.Call, a ipAddrs6Args) (*value.List, error) {
	return n.addresses(ipAddrsArgs{a.Interface, a.Loopback, a.CIDR, nil}, false)
}

func (n network) addresses(a ipAddrsArgs, v4 bool) (*value.List, error) {
	list, err := n.prefixes(a.Interface, v4)
	if err != nil {
		return nil, err
	}
	var within netip.Prefix
	if value.Truth(a.CIDR) {
		p, err := netif.ParseNetwork(value.Str(a.CIDR))
		if err != nil || p != p.Masked() {
			return &value.List{}, nil // as in Salt, an invalid network has no addresses
		}
		within = p
	}
	var out []string
	for _, p := range list {
		addr := p.Addr()
		switch {
		case addr.IsLoopback() && !a.Loopback:
		case within.IsValid() && !within.Contains(addr):
		case !within.IsValid() && a.Type == "public" && private(addr):
		case !within.IsValid() && a.Type == "private" && !private(addr):
		default:
			if text := addr.String(); !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return value.Strings(out), nil
}

type subnetsArgs struct {
	Interfaces any `salt:"interfaces" doc:"name of an interface, or list of names" default:"null"`
}

func (n network) subnets(_ context.Context, _ *fn.Call, a subnetsArgs) (*value.List, error) {
	return n.netsOf(a.Interfaces, true)
}

func (n network) subnets6(context.Context, *fn.Call, none) (*value.List, error) {
	return n.netsOf(nil, false)
}

// netsOf takes interface names literally, unlike the other functions.
func (n network) netsOf(names any, v4 bool) (*value.List, error) {
	list, err := n.Interfaces()
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	wanted := func(name string) bool { return value.Equal(names, name) }
	switch x := names.(type) {
	case nil:
		wanted = func(string) bool { return true }
	case *value.List:
		wanted = func(name string) bool {
			return slices.ContainsFunc(x.Items, func(it any) bool { return value.Equal(it, name) })
		}
	}
	var nets []netip.Prefix
	for _, f := range list {
		for _, a := range f.Addrs {
			if wanted(f.Name) && a.Prefix.Addr().Is4() == v4 && !a.Prefix.Addr().IsLoopback() {
				nets = append(nets, a.Prefix.Masked())
			}
		}
	}
	return sorted(nets), nil
}

func sorted(nets []netip.Prefix) *value.List {
	slices.SortFunc(nets, comparePrefix)
	out := &value.List{}
	for _, p := range slices.Compact(nets) {
		out.Append(p.String())
	}
	return out
}

type networksArgs struct {
	Interface any  `salt:"interface" doc:"names or patterns of interfaces, as a list or with commas" default:"null"`
	Loopback  bool `salt:"include_loopback" doc:"return those of the machine for itself too" default:"false"`
	Verbose   bool `salt:"verbose" doc:"return a map with mask and size of each" default:"false"`
}

func (n network) networks(v4 bool) func(context.Context, *fn.Call, networksArgs) (any, error) {
	return func(_ context.Context, _ *fn.Call, a networksArgs) (any, error) {
		list, err := n.prefixes(a.Interface, v4)
		if err != nil {
			return nil, err
		}
		var nets []netip.Prefix
		for _, p := range list {
			if net := p.Masked(); !(net.Addr().IsLoopback() && netif.Last(net).IsLoopback()) || a.Loopback {
				nets = append(nets, net)
			}
		}
		if !a.Verbose {
			return sorted(nets), nil
		}
		d := value.NewDict(len(nets))
		for _, p := range nets {
			d.Set(p.String(), value.DictOf("address", p.Addr().String(), "netmask", netif.Mask(p).String(), "num_addresses", value.Big(count(p)), "prefixlen",
				p.Bits()))
		}
		return d, nil
	}
}

type cidrArgs struct {
	CIDR any `salt:"cidr" doc:"the network"`
}

func (n network) inSubnet(_ context.Context, c *fn.Call, a cidrArgs) (bool, error) {
	p, ok := within(c, a.CIDR)
	if !ok {
		return false, nil
	}
	for _, v4 := range []bool{true, false} {
		list, err := n.prefixes(nil, v4)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(list, func(mine netip.Prefix) bool { return !mine.Addr().IsLoopback() && p.Contains(mine.Addr()) }) {
			return true, nil
		}
	}
	return false, nil
}

// within parses a network, which must have no bits set after its mask.
func within(c *fn.Call, cidr any) (netip.Prefix, bool) {
	p, err := netif.ParseNetwork(value.Str(cidr))
	if err != nil || p != p.Masked() {
		c.Log.Error("not a network address: it has host bits set", "cidr", value.Str(cidr))
		return p, false
	}
	return p, true
}

type ipInArgs struct {
	IP   any `salt:"ip_addr" doc:"the address, or a list of addresses of which one must be"`
	CIDR any `salt:"cidr" doc:"the network"`
}

func (n network) ipInSubnet(_ context.Context, c *fn.Call, a ipInArgs) (bool, error) {
	p, ok := within(c, a.CIDR)
	if !ok {
		return false, nil
	}
	items := []any{a.IP}
	if l, ok := a.IP.(*value.List); ok {
		items = l.Items
	}
	for _, it := range items {
		addr, err := parse(it)
		if err != nil {
			return false, err
		}
		if p.Contains(addr) {
			return true, nil
		}
	}
	return false, nil
}

// parse parses an IP address.
func parse(v any) (netip.Addr, error) {
	a, err := netip.ParseAddr(value.Str(v))
	if err != nil {
		return a, fn.Invalidf("%s does not appear to be an IPv4 or IPv6 address", value.Repr(v))
	}
	return a, nil
}

func (n network) startsWith(_ context.Context, _ *fn.Call, a cidrArgs) (*value.List, error) {
	list, err := n.Interfaces()
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	out := &value.List{}
	for _, f := range list {
		for _, addr := range f.Addrs {
			if ip := addr.Prefix.Addr(); ip.Is4() && !addr.Secondary && strings.HasPrefix(ip.String(), value.Str(a.CIDR)) {
				out.Append(addr.Label)
			}
		}
	}
	return out, nil
}

type calcArgs struct {
	IP      any `salt:"ip_addr" doc:"the address, possibly with its mask"`
	Netmask any `salt:"netmask" doc:"the mask, or the length of the prefix" default:"null"`
}

func (network) calcNet(_ context.Context, _ *fn.Call, a calcArgs) (string, error) {
	text := value.Str(a.IP)
	if a.Netmask != nil {
		text += "/" + value.Str(a.Netmask)
	}
	p, err := netif.ParseNetwork(text)
	if err != nil {
		return "", fn.Invalidf("%w", err)
	}
	return p.Masked().String(), nil
}

func (network) convertCIDR(_ context.Context, _ *fn.Call, a cidrArgs) (*value.Dict, error) {
	p, err := netif.ParseNetwork(value.Str(a.CIDR))
	if err != nil {
		return nil, fn.Invalidf("%w", err)
	}
	return value.DictOf("network", p.Masked().Addr().String(), "netmask", netif.Mask(p).String(), "broadcast", netif.Last(p).String()), nil
}

type ipArgs struct {
	IP any `salt:"ip_addr" doc:"the address"`
}

func (network) isPrivate(_ context.Context, _ *fn.Call, a ipArgs) (bool, error) {
	addr, err := parse(a.IP)
	return err == nil && private(addr), err
}

func (network) isLoopback(_ context.Context, _ *fn.Call, a ipArgs) (bool, error) {
	addr, err := parse(a.IP)
	return err == nil && addr.IsLoopback(), err
}

func (network) reverseIP(_ context.Context, _ *fn.Call, a ipArgs) (string, error) {
	addr, err := parse(a.IP)
	if err != nil {
		return "", err
	}
	b := addr.WithZone("").AsSlice()
	slices.Reverse(b)
	var parts []string
	if addr.Is4() {
		for _, x := range b {
			parts = append(parts, strconv.Itoa(int(x)))
		}
		return strings.Join(parts, ".") + ".in-addr.arpa", nil
	}
	for _, x := range b {
		parts = append(parts, fmt.Sprintf("%x.%x", x&15, x>>4))
	}
	return strings.Join(parts, ".") + ".ip6.arpa", nil
}

type hexArgs struct {
	IP any `salt:"ip" doc:"the address"`
}

func (network) hex(_ context.Context, _ *fn.Call, a hexArgs) (string, error) {
	addr, err := parse(a.IP)
	if err == nil && !addr.Is4() {
		err = fn.Invalidf("%s is no IPv4 address", addr)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%X", addr.AsSlice())[:8], nil
}

func (n network) getHostname(context.Context, *fn.Call, none) (string, error) {
	return n.Machine.Uname().Node, nil
}

func (n network) getFQDN(ctx context.Context, _ *fn.Call, _ none) (string, error) {
	return names.New(n.Machine, n.DNS).Full(ctx, n.Machine.Uname().Node), nil
}

func (n network) fqdns(ctx context.Context, _ *fn.Call, _ none) (*value.Dict, error) {
	var addrs []netip.Addr
	for _, v4 := range []bool{true, false} {
		list, err := n.prefixes(nil, v4)
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			if !p.Addr().IsLoopback() {
				addrs = append(addrs, p.Addr())
			}
		}
	}
	return value.DictOf("fqdns", value.Strings(names.New(n.Machine, n.DNS).Reverse(ctx, addrs))), nil
}

func (n network) activeTCP(context.Context, *fn.Call, none) (*value.Dict, error) {
	d := value.NewDict(8)
	for i, c := range netif.Established(n.Machine) {
		d.Set(int64(i), value.DictOf("local_addr", c.Local.Addr().String(), "local_port", int(c.Local.Port()),
			"remote_addr", c.Remote.Addr().String(), "remote_port", int(c.Remote.Port())))
	}
	return d, nil
}

type familyArgs struct {
	Family any `salt:"family" doc:"inet or inet6; both if null" default:"null"`
}

func (n network) routes(ctx context.Context, _ *fn.Call, a familyArgs) (*value.List, error) {
	return n.table(ctx, a.Family, false)
}

func (n network) defaultRoute(ctx context.Context, _ *fn.Call, a familyArgs) (*value.List, error) {
	return n.table(ctx, a.Family, true)
}

func (n network) table(ctx context.Context, family any, defaults bool) (*value.List, error) {
	if family != nil && family != "inet" && family != "inet6" {
		return nil, fn.Errorf("Invalid address family %s", value.Str(family))
	}
	routes, err := netif.Routes(ctx, n.Machine)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	out := &value.List{}
	for _, r := range routes {
		d := describeRoute(r)
		if (family == nil || d.At("addr_family") == family) && (!defaults || r.To.Bits() == 0) {
			out.Append(d)
		}
	}
	return out, nil
}

func describeRoute(r netif.Route) *value.Dict {
	family, destination, gateway, mask, flags := "inet6", r.To.String(), "::", "", "U"
	if r.To.Addr().Is4() {
		family, destination, gateway, mask = "inet", r.To.Masked().Addr().String(), "0.0.0.0", netif.Mask(r.To).String()
	}
	switch {
	case r.Flags != "":
		if flags = r.Flags; r.Via.IsValid() {
			gateway = r.Via.String()
		}
	case r.Via.IsValid() && r.To.Bits() == 0:
		gateway, flags = r.Via.String(), "UG"
	}
	return value.DictOf("addr_family", family, "destination", destination, "gateway", gateway, "netmask", mask, "flags", flags, "interface", r.Interface)
}

func (n network) getRoute(ctx context.Context, _ *fn.Call, a hexArgs) (*value.Dict, error) {
	to, err := parse(a.IP)
	if err != nil {
		return nil, err
	}
	r, source, err := netif.RouteTo(ctx, n.Machine, to)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	text := func(a netip.Addr) any {
		if a.IsValid() {
			return a.String()
		}
		return nil
	}
	return value.DictOf("destination", to.String(), "gateway", text(r.Via), "interface", r.Interface, "source", text(source)), nil
}

// sanitize keeps the characters that are valid in a host name, as Salt does,
// and removes leading dashes so that it is not taken for an option.
func sanitize(host string) string {
	return strings.TrimLeft(strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r == '_' || r == ':' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, host[:min(len(host), 255)]), "-")
}

type pingArgs struct {
	Host    string `salt:"host" doc:"name or address"`
	Timeout any    `salt:"timeout" doc:"seconds to wait for each answer" default:"false"`
	Boolean bool   `salt:"return_boolean" doc:"say whether all answered instead" default:"false"`
}

func (n network) ping(ctx context.Context, _ *fn.Call, a pingArgs) (any, error) {
	host, args := sanitize(a.Host), []string{"-c", "4"}
	if host == "" {
		return nil, fn.Invalidf("%q is no name of a host", a.Host)
	}
	if value.Truth(a.Timeout) {
		seconds, err := strconv.ParseFloat(value.Str(a.Timeout), 64)
		if err != nil || seconds <= 0 {
			return nil, fn.Invalidf("timeout is a number of seconds, not %s", value.Repr(a.Timeout))
		}
		args = append([]string{"-W", value.Str(a.Timeout)}, args...)
	}
	out, err := n.Machine.Do(ctx, "ping", append(args, host)...)
	if err != nil {
		return nil, fn.Errorf("cannot run ping: %w", err)
	}
	if a.Boolean {
		return out.Exit == 0, nil
	}
	if out.Stdout == "" {
		return out.Stderr, nil
	}
	return out.Stdout, nil
}

type connectArgs struct {
	Host   string    `salt:"host" doc:"name or address"`
	Port   any       `salt:"port" doc:"number or name of the port" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// datagram is sent to UDP services. Only an answer shows that there is one.
const datagram = "brine"

func (n network) connect(ctx context.Context, _ *fn.Call, a connectArgs) (*value.Dict, error) {
	said := func(ok bool, format string, args ...any) (*value.Dict, error) {
		return value.DictOf("result", ok, "comment", fmt.Sprintf(format, args...)), nil
	}
	switch {
	case a.Host == "":
		return said(false, "Required argument, host, is missing.")
	case !value.Truth(a.Port):
		return said(false, "Required argument, port, is missing.")
	}
	proto, port, suffix := "tcp", value.Str(a.Port), ""
	if a.Kwargs.Str("proto") == "udp" {
		proto = "udp"
	}
	if f := a.Kwargs.Str("family"); f == "ipv4" || f == "ipv6" {
		suffix = f[3:]
	}
	seconds := 5.0
	if v, ok := a.Kwargs.Get("timeout"); ok {
		var err error
		if seconds, err = strconv.ParseFloat(value.Str(v), 64); err != nil {
			return nil, fn.Invalidf("timeout is a number of seconds, not %s", value.Repr(v))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, proto+suffix, net.JoinHostPort(sanitize(a.Host), port))
	var unknown *net.DNSError
	var address *net.AddrError
	if errors.As(err, &unknown) || errors.As(err, &address) {
		return said(false, "Unable to resolve host %s on %s port %s", a.Host, proto, port)
	}
	remote := a.Host
	if err == nil {
		defer conn.Close()
		remote, _, _ = net.SplitHostPort(conn.RemoteAddr().String())
		err = answer(ctx, conn, proto)
	}
	if err != nil {
		return said(false, "Unable to connect to %s (%s) on %s port %s", a.Host, dialed(err, remote), proto, port)
	}
	return said(true, "Successfully connected to %s (%s) on %s port %s", a.Host, remote, proto, port)
}

// dialed returns the address that a connection attempt used.
func dialed(err error, host string) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Addr != nil {
		if h, _, e := net.SplitHostPort(op.Addr.String()); e == nil {
			return h
		}
	}
	return host
}

// answer waits for the answer of a UDP service.
func answer(ctx context.Context, conn net.Conn, proto string) error {
	if proto != "udp" {
		return nil
	}
	if t, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(t)
	}
	if _, err := io.WriteString(conn, datagram); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 255))
	return err
}
