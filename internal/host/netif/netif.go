// Package netif reads the network configuration of a machine: interfaces and
// addresses, default gateways, and the resolver. Interfaces and routes come
// from the kernel by netlink, so they are always those of the live machine.
package netif

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// Interface is a network interface.
type Interface struct {
	Index    int
	Name     string
	Up       bool
	Hardware string // "02:fc:00:00:00:01"; an address for tunnels; "" if it has none
	Parent   string // underlying interface, "if7" if in another namespace; "" if none
	Addrs    []Addr // in the kernel's order
}

// Addr is an address of an interface.
type Addr struct {
	Prefix    netip.Prefix // the address itself and the length of its prefix
	Broadcast netip.Addr   // invalid without one
	Label     string       // of an IPv4 address, often the interface's name
	Scope     string       // "global", "link", "host", "site" or a number
	Secondary bool         // not the first IPv4 address of the interface in its network
}

// Interfaces returns the interfaces of the live machine, in the kernel's order.
func Interfaces() ([]Interface, error) {
	links, err := dump(syscall.RTM_GETLINK, syscall.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	addrs, err := dump(syscall.RTM_GETADDR, syscall.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	return interfaces(links, addrs), nil
}

func interfaces(links, addrs []syscall.NetlinkMessage) []Interface {
	var out []Interface
	place, parents := map[int]int{}, map[int]int{}
	for i := range links {
		if f, parent, ok := link(&links[i]); ok {
			place[f.Index], parents[f.Index] = len(out), parent
			out = append(out, f)
		}
	}
	for i := range out {
		switch parent := parents[out[i].Index]; {
		case parent > 0 && parent != out[i].Index:
			out[i].Parent = fmt.Sprintf("if%d", parent)
			if at, ok := place[parent]; ok {
				out[i].Parent = out[at].Name
			}
		case parent < 0:
			out[i].Parent = fmt.Sprintf("if%d", -parent)
		}
	}
	for i := range addrs {
		index, a, ok := address(&addrs[i])
		if at, known := place[index]; ok && known {
			out[at].Addrs = append(out[at].Addrs, a)
		}
	}
	return out
}

// Types of hardware whose address is an IP address.
const (
	hardwareTunnel  = 768
	hardwareTunnel6 = 769
	hardwareSit     = 776
	hardwareGRE     = 778
	hardwareGRE6    = 823
)

const attrOtherSpace = 37 // the parent is in another network namespace

// link parses an interface. parent is the index of the underlying interface, 0
// if there is none and negative if it is in another namespace.
func link(m *syscall.NetlinkMessage) (_ Interface, parent int, _ bool) {
	if m.Header.Type != syscall.RTM_NEWLINK || len(m.Data) < syscall.SizeofIfInfomsg {
		return Interface{}, 0, false
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return Interface{}, 0, false
	}
	other := false
	kind := binary.NativeEndian.Uint16(m.Data[2:])
	f := Interface{
		Index: int(int32(binary.NativeEndian.Uint32(m.Data[4:]))),
		Up:    binary.NativeEndian.Uint32(m.Data[8:])&syscall.IFF_UP != 0,
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case syscall.IFLA_IFNAME:
			f.Name = text(a.Value)
		case syscall.IFLA_ADDRESS:
			f.Hardware = hardware(kind, a.Value)
		case syscall.IFLA_LINK:
			if len(a.Value) >= 4 {
				parent = int(int32(binary.NativeEndian.Uint32(a.Value)))
			}
		case attrOtherSpace:
			other = true
		}
	}
	if other {
		parent = -parent
	}
	return f, parent, f.Name != ""
}

func hardware(kind uint16, b []byte) string {
	switch kind {
	case hardwareTunnel, hardwareSit, hardwareGRE, hardwareTunnel6, hardwareGRE6:
		if a, ok := netip.AddrFromSlice(b); ok {
			return a.String()
		}
	}
	parts := make([]string, len(b))
	for i, c := range b {
		parts[i] = fmt.Sprintf("%02x", c)
	}
	return strings.Join(parts, ":")
}

func address(m *syscall.NetlinkMessage) (index int, addr Addr, ok bool) {
	if m.Header.Type != syscall.RTM_NEWADDR || len(m.Data) < syscall.SizeofIfAddrmsg {
		return 0, Addr{}, false
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return 0, Addr{}, false
	}
	family, bits, flags := m.Data[0], int(m.Data[1]), m.Data[2]
	addr.Scope = scopeName(m.Data[3])
	var local, remote netip.Addr
	for _, a := range attrs {
		switch a.Attr.Type {
		case syscall.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(a.Value)
		case syscall.IFA_ADDRESS: // on a point-to-point link, the peer's address
			remote, _ = netip.AddrFromSlice(a.Value)
		case syscall.IFA_BROADCAST:
			addr.Broadcast, _ = netip.AddrFromSlice(a.Value)
		case syscall.IFA_LABEL:
			addr.Label = text(a.Value)
		}
	}
	if !local.IsValid() {
		local = remote
	}
	// In IPv6, the same flag means a temporary address.
	addr.Secondary = family == syscall.AF_INET && flags&syscall.IFA_F_SECONDARY != 0
	addr.Prefix = netip.PrefixFrom(local, bits)
	return int(binary.NativeEndian.Uint32(m.Data[4:])), addr, addr.Prefix.IsValid()
}

func scopeName(s byte) string {
	switch s {
	case syscall.RT_SCOPE_UNIVERSE:
		return "global"
	case syscall.RT_SCOPE_SITE:
		return "site"
	case syscall.RT_SCOPE_LINK:
		return "link"
	case syscall.RT_SCOPE_HOST:
		return "host"
	case syscall.RT_SCOPE_NOWHERE:
		return "nowhere"
	}
	return fmt.Sprint(s)
}

// Gateway is a default route.
type Gateway struct {
	// Via is the address of the next hop; invalid if the route leads directly
	// to an interface, or to several routers.
	Via netip.Addr
	// Other means that Via is of the other IP version.
	Other bool
}

// DefaultGateway returns the first default route of the main table, of IPv4
// or else of IPv6. ok is false if there is none.
func DefaultGateway(v4 bool) (g Gateway, ok bool, err error) {
	family := syscall.AF_INET6
	if v4 {
		family = syscall.AF_INET
	}
	routes, err := dump(syscall.RTM_GETROUTE, family)
	if err != nil {
		return Gateway{}, false, err
	}
	for i := range routes {
		if g, ok := defaultRoute(&routes[i], byte(family)); ok {
			return g, true, nil
		}
	}
	return Gateway{}, false, nil
}

const attrVia = 18 // a next hop of the other IP version

func defaultRoute(m *syscall.NetlinkMessage, family byte) (Gateway, bool) {
	if m.Header.Type != syscall.RTM_NEWROUTE || len(m.Data) < syscall.SizeofRtMsg {
		return Gateway{}, false
	}
	bits, source, table, kind := m.Data[1], m.Data[2], m.Data[4], m.Data[7]
	cloned := binary.NativeEndian.Uint32(m.Data[8:])&syscall.RTM_F_CLONED != 0
	if m.Data[0] != family || bits != 0 || source != 0 || table != syscall.RT_TABLE_MAIN || kind != syscall.RTN_UNICAST || cloned {
		return Gateway{}, false
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return Gateway{}, false
	}
	var g Gateway
	for _, a := range attrs {
		switch a.Attr.Type {
		case syscall.RTA_GATEWAY:
			g.Via, _ = netip.AddrFromSlice(a.Value)
		case attrVia:
			if len(a.Value) > 2 {
				g.Via, _ = netip.AddrFromSlice(a.Value[2:])
				g.Other = g.Via.IsValid()
			}
		}
	}
	return g, true
}

func text(b []byte) string {
	return strings.ToValidUTF8(strings.TrimRight(string(b), "\x00"), "\ufffd")
}

// dump requests a whole table from the kernel. The buffer holds the largest
// message that the kernel sends, which interfaces with many virtual functions
// need.
func dump(request, family int) ([]syscall.NetlinkMessage, error) {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("cannot query the kernel's network configuration: %w", err)
	}
	defer syscall.Close(fd)
	msg := make([]byte, syscall.SizeofNlMsghdr+syscall.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(msg, uint32(len(msg)))
	binary.NativeEndian.PutUint16(msg[4:], uint16(request))
	binary.NativeEndian.PutUint16(msg[6:], syscall.NLM_F_DUMP|syscall.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(msg[8:], 1)
	msg[syscall.SizeofNlMsghdr] = byte(family)
	if err := syscall.Sendto(fd, msg, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("cannot query the kernel's network configuration: %w", err)
	}
	return receive(fd)
}

func receive(fd int) ([]syscall.NetlinkMessage, error) {
	var out []syscall.NetlinkMessage
	buf := make([]byte, 64<<10)
	for {
		n, _, err := syscall.Recvfrom(fd, buf, 0)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the kernel's answer: %w", err)
		}
		msgs, err := syscall.ParseNetlinkMessage(bytes.Clone(buf[:n])) // the messages point into the buffer
		if err != nil {
			return nil, fmt.Errorf("cannot read the kernel's answer: %w", err)
		}
		for _, m := range msgs {
			switch m.Header.Type {
			case syscall.NLMSG_DONE:
				return out, nil
			case syscall.NLMSG_ERROR:
				return nil, kernelError(m.Data)
			}
			out = append(out, m)
		}
	}
}

func kernelError(b []byte) error {
	if len(b) < 4 {
		return fmt.Errorf("cannot read the kernel's answer: short error")
	}
	return fmt.Errorf("the kernel refused the query of its network configuration: %w", syscall.Errno(-int32(binary.NativeEndian.Uint32(b))))
}
