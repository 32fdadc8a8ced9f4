package render

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"brine/internal/call/fn"
	"brine/internal/py/jinja"
	"brine/internal/py/value"
)

func networkFilters() []*jinja.Func {
	is := func(name string, version int) *jinja.Func {
		return filter(name+"(ip_addr, options=None)", func(c *jinja.Call) (any, error) {
			s, ok := jinja.Text(c.Bound[0])
			if !ok {
				mustBeDefined(c.Bound[0])
				return false, nil
			}
			_, ok = address(s, version, options(c.Bound[1]))
			return ok, nil
		})
	}
	pick := func(name string, version int) *jinja.Func {
		return filter(name+"(value, options=None)", func(c *jinja.Call) (any, error) {
			return pickAddresses(c.Bound[0], version, options(c.Bound[1])), nil
		})
	}
	return []*jinja.Func{
		is("is_ip", 0), is("is_ipv4", 4), is("is_ipv6", 6),
		pick("ipaddr", 0), pick("ipv4", 4), pick("ipv6", 6),
		perAddress("ip_host", func(s string) (any, error) {
			p, err := prefix(s)
			return p.String(), err
		}),
		perAddress("network_hosts", networkHosts),
		perAddress("network_size", func(s string) (any, error) {
			p, err := prefix(s)
			if err != nil {
				return nil, err
			}
			return value.Big(new(big.Int).Lsh(big.NewInt(1), uint(p.Addr().BitLen()-p.Bits()))), nil
		}),
		filter("filter_by_networks(values, networks)", filterByNetworks),
		filter("ipwrap(data)", ipwrap),
		filter("gen_mac(prefix='AC:DE:48')", func(c *jinja.Call) (any, error) {
			return fmt.Sprintf("%s:%02X:%02X:%02X", c.Str(0), rand.IntN(256), rand.IntN(256), rand.IntN(256)), nil
		}),
		filter("mac_str_to_bytes(mac_str)", func(c *jinja.Call) (any, error) {
			s := c.Str(0)
			if len(s) == 17 {
				s = strings.ReplaceAll(s, s[2:3], "")
			}
			b, err := hex.DecodeString(s)
			if err != nil || len(b) != 6 {
				return nil, invalid("Invalid MAC address")
			}
			return b, nil
		}),
		machineFilter("dns_check(addr, port, safe=False, ipv6=None)", dnsCheck),
		machineFilter("http_query(url, *args, **kwargs)", httpQuery),
	}
}

func options(v any) []string {
	s, _ := jinja.Text(v)
	return value.Words(s)
}

// address returns the string of an address, or of an interface such as
// 10.0.0.1/8, if it has the version and the properties that the options require.
func address(s string, version int, opts []string) (string, bool) {
	a, err := netip.ParseAddr(s)
	text := a.String()
	if err != nil {
		p, err := prefix(s)
		if err != nil {
			return "", false
		}
		a, text = p.Addr(), p.String()
	}
	if version != 0 && a.Is4() != (version == 4) {
		return "", false
	}
	for _, o := range opts {
		if ok, known := hasProperty(a, o); known && !ok {
			return "", false
		}
	}
	return text, true
}

// prefix parses an address with a length or mask; without one it is a single
// host.
func prefix(s string) (netip.Prefix, error) {
	host, bits, ok := strings.Cut(s, "/")
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}, invalid("%s does not appear to be an IPv4 or IPv6 network", jinja.Repr(s))
	}
	if !ok {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	n, err := strconv.Atoi(bits)
	if err != nil && a.Is4() {
		n, err = maskBits(bits)
	}
	if err != nil || n < 0 || n > a.BitLen() {
		return netip.Prefix{}, invalid("%s does not appear to be an IPv4 or IPv6 network", jinja.Repr(s))
	}
	return netip.PrefixFrom(a, n), nil
}

func maskBits(mask string) (int, error) {
	m, err := netip.ParseAddr(mask)
	if err != nil || !m.Is4() {
		return 0, fmt.Errorf("not a mask: %q", mask)
	}
	b := m.As4()
	n, size := net.IPMask(b[:]).Size()
	if size == 0 { // 0.0.0.255, a host mask
		for i := range b {
			b[i] = ^b[i]
		}
		if n, size = net.IPMask(b[:]).Size(); size == 0 {
			return 0, fmt.Errorf("not a mask: %q", mask)
		}
	}
	return n, nil
}

func hasProperty(a netip.Addr, option string) (has, known bool) {
	switch option {
	case "global", "public":
		return !private(a), true
	case "link-local", "linklocal", "ll", "link_local":
		return a.IsLinkLocalUnicast(), true
	case "loopback", "lo":
		return a.IsLoopback(), true
	case "multicast":
		return a.IsMulticast(), true
	case "private":
		return private(a), true
	case "reserved":
		return reserved(a), true
	case "site-local", "sl", "site_local":
		return a.Is6() && inAny(a, "fec0::/10"), true
	case "unspecified":
		return a.IsUnspecified(), true
	}
	return false, false
}

func inAny(a netip.Addr, nets ...string) bool {
	for _, n := range nets {
		if netip.MustParsePrefix(n).Contains(a) {
			return true
		}
	}
	return false
}

// private are the private address ranges, as in Python.
func private(a netip.Addr) bool {
	if a.Is4() {
		return inAny(a, "0.0.0.0/8", "10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/29", "192.0.0.170/31",
			"192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "255.255.255.255/32")
	}
	return inAny(a, "::1/128", "::/128", "::ffff:0:0/96", "100::/64", "2001::/23", "2001:2::/48", "2001:db8::/32", "2001:10::/28",
		"fc00::/7", "fe80::/10")
}

func reserved(a netip.Addr) bool {
	if a.Is4() {
		return inAny(a, "240.0.0.0/4")
	}
	return inAny(a, "::/8", "100::/8", "200::/7", "400::/6", "800::/5", "1000::/4", "4000::/3", "6000::/3", "8000::/3", "a000::/3",
		"c000::/3", "e000::/4", "f000::/5", "f800::/6", "fe00::/9")
}

// sequence returns the items of a list, tuple or iterator.
func sequence(v any) ([]any, bool) {
	switch v.(type) {
	case *value.List, value.Tuple, *jinja.Iterator:
		return jinja.Items(v), true
	}
	return nil, false
}

func pickAddresses(v any, version int, opts []string) any {
	if s, ok := asText2(v); ok {
		if a, ok := address(s, version, opts); ok {
			return a
		}
		return nil
	}
	items, ok := sequence(v)
	if !ok {
		return nil
	}
	out := &value.List{}
	versions := []int{version}
	if version == 0 {
		versions = []int{4, 6}
	}
	for _, ver := range versions {
		for _, it := range items {
			if s, ok := asText2(it); ok {
				if a, ok := address(s, ver, opts); ok {
					out.Append(a)
				}
			}
		}
	}
	return out
}

func asText2(v any) (string, bool) {
	if b, ok := v.([]byte); ok {
		return string(b), true
	}
	return jinja.Text(v)
}

// perAddress builds a filter that maps one address, or each of several.
func perAddress(name string, do func(s string) (any, error)) *jinja.Func {
	return filter(name+"(value, options=None, version=None)", func(c *jinja.Call) (any, error) {
		version := 0
		if c.Bound[2] != nil {
			version = c.Int(2)
		}
		_, many := sequence(c.Bound[0])
		found := pickAddresses(c.Bound[0], version, options(c.Bound[1]))
		if !jinja.Truth(found) {
			return nil, nil
		}
		if s, ok := found.(string); ok {
			return do(s)
		}
		out := &value.List{}
		for _, s := range jinja.Items(found) {
			v, err := do(s.(string))
			if err != nil {
				return nil, err
			}
			c.Spend(64)
			out.Append(v)
		}
		if !many {
			return out.Items[0], nil
		}
		return out, nil
	})
}

// maxHosts bounds the listed hosts of a network.
const maxHosts = 1 << 20

// networkHosts lists the host addresses of a network.
func networkHosts(s string) (any, error) {
	p, err := prefix(s)
	if err != nil {
		return nil, err
	}
	p = p.Masked()
	free := p.Addr().BitLen() - p.Bits()
	if free > 20 {
		return nil, invalid("the network %s has more than %d hosts", p, maxHosts)
	}
	out := &value.List{}
	a := p.Addr()
	for i := range 1 << free {
		first, last := i == 0, i == 1<<free-1
		if free <= 1 || !(first || last && a.Is4()) {
			out.Append(a.String())
		}
		a = a.Next()
	}
	return out, nil
}

func filterByNetworks(c *jinja.Call) (any, error) {
	if c.Bound[1] == nil {
		return c.Bound[0], nil
	}
	var nets []netip.Prefix
	for _, n := range jinja.Items(c.Bound[1]) {
		p, err := prefix(jinja.Str(n))
		if err != nil {
			return nil, err
		}
		if p.Masked() != p {
			return nil, invalid("%s has host bits set", p)
		}
		nets = append(nets, p)
	}
	within := func(v any) (*value.List, error) {
		out := &value.List{}
		for _, it := range jinja.Items(v) {
			a, err := netip.ParseAddr(jinja.Str(it))
			if err != nil {
				return nil, invalid("%s does not appear to be an IPv4 or IPv6 address", jinja.Repr(it))
			}
			for _, n := range nets {
				if n.Contains(a) {
					out.Append(it)
				}
			}
		}
		return out, nil
	}
	switch x := c.Bound[0].(type) {
	case *value.Dict:
		d := value.NewDict(x.Len())
		for k, v := range x.All() {
			l, err := within(v)
			if err != nil {
				return nil, err
			}
			d.Set(k, l)
		}
		return d, nil
	case *value.List, value.Tuple:
		return within(x)
	}
	return nil, invalid("Do not know how to filter a <class '%s'>", jinja.TypeName(c.Bound[0]))
}

func ipwrap(c *jinja.Call) (any, error) {
	wrap := func(v any) any {
		if s, ok := asText2(v); ok {
			if _, ok := address(s, 6, nil); ok {
				return "[" + strings.Trim(s, "[]") + "]"
			}
		}
		return v
	}
	switch c.Bound[0].(type) {
	case *value.List, value.Tuple:
		out := &value.List{}
		for _, it := range jinja.Items(c.Bound[0]) {
			out.Append(wrap(it))
		}
		return out, nil
	}
	return wrap(c.Bound[0]), nil
}

// dnsCheck returns the first address of a name whose port answers.
func dnsCheck(c *jinja.Call) (any, error) {
	ctx, cancel := context.WithTimeout(c.Ctx, 30*time.Second)
	defer cancel()
	kind := "ip"
	if c.Bound[3] != nil {
		kind = map[bool]string{true: "ip6", false: "ip4"}[c.Bool(3)]
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, kind, c.Str(0))
	if err != nil && kind == "ip6" {
		ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip4", c.Str(0))
	}
	port := jinja.Str(c.Bound[1])
	if err == nil {
		for _, ip := range ips {
			ip = ip.Unmap()
			conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", net.JoinHostPort(ip.String(), port))
			if err != nil {
				continue
			}
			conn.Close()
			if ip.Is6() {
				return "[" + ip.String() + "]", nil
			}
			return ip.String(), nil
		}
	}
	return nil, fn.Errorf("DNS lookup or connection check of '%s' failed.", c.Str(0))
}

// queryArguments are the arguments of http_query after the URL, in the order of
// Salt's function.
var queryArguments = []string{"method", "params", "data", "data_file", "header_dict", "header_list", "header_file", "username", "password", "auth",
	"decode", "decode_type", "status", "headers", "text"}

// httpQuery calls the function http.query.
func httpQuery(c *jinja.Call) (any, error) {
	s, _ := c.Context().Get("salt").(*saltObject)
	if s == nil || s.funcs == nil || !s.funcs.Has("http.query") {
		return nil, fn.Errorf("http_query needs the function http.query, which is not available here")
	}
	kw := value.NewDict(4)
	for i, v := range c.Bound[1].(value.Tuple) {
		if i >= len(queryArguments) {
			return nil, fn.Errorf("http_query takes at most %d arguments by their places", len(queryArguments)+1)
		}
		kw.Set(queryArguments[i], v)
	}
	kw.Update(c.Bound[2].(*value.Dict))
	return s.funcs.Call(c.Ctx, "http.query", []any{c.Bound[0]}, kw)
}
