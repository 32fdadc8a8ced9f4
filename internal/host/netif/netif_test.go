package netif

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"
	"testing"
)

func attr(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func message(kind uint16, fixed []byte, attrs ...[]byte) syscall.NetlinkMessage {
	for _, a := range attrs {
		fixed = append(fixed, a...)
	}
	return syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: fixed}
}

func linkMessage(kind uint16, index, flags uint32, name string, hw []byte) syscall.NetlinkMessage {
	b := []byte{0, 0}
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint32(b, index)
	b = binary.NativeEndian.AppendUint32(b, flags)
	b = binary.NativeEndian.AppendUint32(b, 0)
	return message(syscall.RTM_NEWLINK, b, attr(syscall.IFLA_IFNAME, []byte(name+"\x00")...), attr(syscall.IFLA_ADDRESS, hw...))
}

func child(index uint32, name string, attrs ...[]byte) syscall.NetlinkMessage {
	m := linkMessage(1, index, 0, name, nil)
	for _, a := range attrs {
		m.Data = append(m.Data, a...)
	}
	return m
}

func addrMessage(family, bits, flags, scope byte, index uint32, attrs ...[]byte) syscall.NetlinkMessage {
	return message(syscall.RTM_NEWADDR, binary.NativeEndian.AppendUint32([]byte{family, bits, flags, scope}, index), attrs...)
}

func TestInterfaces(t *testing.T) {
	six := netip.MustParseAddr("2001:db8::5").As16()
	got := interfaces(
		[]syscall.NetlinkMessage{
			linkMessage(772, 1, syscall.IFF_UP, "lo", make([]byte, 6)),
			linkMessage(1, 7, syscall.IFF_UP, "eth0", []byte{2, 0xfc, 0, 0, 0, 1}),
			linkMessage(776, 9, 0, "sit0", make([]byte, 4)),
			linkMessage(823, 10, 0, "gre6", six[:]),
			linkMessage(65534, 11, 0, "tun0", nil),
			child(12, "vlan5", attr(syscall.IFLA_LINK, 7, 0, 0, 0)),
			child(13, "veth0", attr(syscall.IFLA_LINK, 7, 0, 0, 0), attr(attrOtherSpace, 0, 0, 0, 0)),
			{Header: syscall.NlMsghdr{Type: syscall.RTM_NEWLINK}, Data: []byte{1}},
		},
		[]syscall.NetlinkMessage{
			addrMessage(syscall.AF_INET, 24, 0, 0, 7, attr(syscall.IFA_ADDRESS, 192, 0, 2, 2), attr(syscall.IFA_LOCAL, 192, 0, 2, 2),
				attr(syscall.IFA_BROADCAST, 192, 0, 2, 255), attr(syscall.IFA_LABEL, []byte("eth0:1\x00")...)),
			addrMessage(syscall.AF_INET, 24, syscall.IFA_F_SECONDARY, 0, 7, attr(syscall.IFA_LOCAL, 192, 0, 2, 3)),
			addrMessage(syscall.AF_INET6, 64, syscall.IFA_F_SECONDARY, 253, 7, attr(syscall.IFA_ADDRESS, six[:]...)),
			addrMessage(syscall.AF_INET, 32, 0, 0, 11, attr(syscall.IFA_ADDRESS, 10, 0, 0, 1), attr(syscall.IFA_LOCAL, 10, 0, 0, 2)),
			addrMessage(syscall.AF_INET, 99, 0, 0, 7, attr(syscall.IFA_LOCAL, 1, 2, 3, 4)), // invalid prefix length
			addrMessage(syscall.AF_INET, 8, 0, 0, 99, attr(syscall.IFA_LOCAL, 1, 2, 3, 4)), // unknown interface
			{Header: syscall.NlMsghdr{Type: syscall.RTM_NEWADDR}, Data: []byte{1}},
		})
	if len(got) != 7 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []string{"00:00:00:00:00:00", "02:fc:00:00:00:01", "0.0.0.0", "2001:db8::5", ""} {
		if got[i].Hardware != want {
			t.Errorf("%s has hardware address %q, want %q", got[i].Name, got[i].Hardware, want)
		}
	}
	if got[1].Parent != "" || got[5].Parent != "eth0" || got[6].Parent != "if7" {
		t.Errorf("%+v", got)
	}
	if !got[0].Up || got[2].Up || got[1].Index != 7 {
		t.Errorf("%+v", got)
	}
	eth := got[1].Addrs
	if len(eth) != 3 || eth[0].Prefix.String() != "192.0.2.2/24" || eth[0].Broadcast.String() != "192.0.2.255" || eth[0].Label != "eth0:1" ||
		eth[0].Scope != "global" || eth[0].Secondary {
		t.Errorf("eth0 has %+v", eth)
	}
	if !eth[1].Secondary || eth[2].Secondary || eth[2].Scope != "link" {
		t.Errorf("eth0 has %+v", eth)
	}
	if tun := got[4].Addrs; len(tun) != 1 || tun[0].Prefix.Addr().String() != "10.0.0.2" {
		t.Errorf("tun0 has %+v", tun)
	}
}

// TestInterfacesHere compares the interfaces with those of the standard
// library.
func TestInterfacesHere(t *testing.T) {
	want, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d interfaces, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		addrs, err := w.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		if g.Name != w.Name || g.Index != w.Index || g.Up != (w.Flags&net.FlagUp != 0) || len(g.Addrs) != len(addrs) {
			t.Errorf("interface %d is %+v, want %+v with %v", i, g, w, addrs)
			continue
		}
		for j, a := range addrs {
			if g.Addrs[j].Prefix.String() != a.String() {
				t.Errorf("%s has %s, want %s", g.Name, g.Addrs[j].Prefix, a)
			}
		}
	}
}

func routeMessage(family, bits, table, kind byte, flags uint32, attrs ...[]byte) syscall.NetlinkMessage {
	fixed := binary.NativeEndian.AppendUint32([]byte{family, bits, 0, 0, table, 0, 0, kind}, flags)
	return message(syscall.RTM_NEWROUTE, fixed, attrs...)
}

func TestDefaultRoute(t *testing.T) {
	const v4, v6 = syscall.AF_INET, syscall.AF_INET6
	six := netip.MustParseAddr("fe80::1").As16()
	gw := attr(syscall.RTA_GATEWAY, 192, 0, 2, 1)
	for name, c := range map[string]struct {
		m      syscall.NetlinkMessage
		family byte
		want   Gateway
		ok     bool
	}{
		"router":      {routeMessage(v4, 0, 254, 1, 0, gw), v4, Gateway{Via: netip.MustParseAddr("192.0.2.1")}, true},
		"IPv6 router": {routeMessage(v6, 0, 254, 1, 0, attr(syscall.RTA_GATEWAY, six[:]...)), v6, Gateway{Via: netip.MustParseAddr("fe80::1")}, true},
		"other version": {routeMessage(v4, 0, 254, 1, 0, attr(attrVia, append([]byte{10, 0}, six[:]...)...)), v4,
			Gateway{Via: netip.MustParseAddr("fe80::1"), Other: true}, true},
		"no router":    {routeMessage(v4, 0, 254, 1, 0), v4, Gateway{}, true},
		"network":      {routeMessage(v4, 8, 254, 1, 0, gw), v4, Gateway{}, false},
		"other table":  {routeMessage(v4, 0, 255, 1, 0, gw), v4, Gateway{}, false},
		"unreachable":  {routeMessage(v6, 0, 254, syscall.RTN_UNREACHABLE, 0), v6, Gateway{}, false},
		"cached":       {routeMessage(v6, 0, 254, 1, syscall.RTM_F_CLONED), v6, Gateway{}, false},
		"other family": {routeMessage(v6, 0, 254, 1, 0), v4, Gateway{}, false},
		"short":        {message(syscall.RTM_NEWROUTE, []byte{2}), v4, Gateway{}, false},
	} {
		if got, ok := defaultRoute(&c.m, c.family); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
	if _, _, err := DefaultGateway(true); err != nil {
		t.Errorf("here: %v", err)
	}
}

func TestMask(t *testing.T) {
	for prefix, want := range map[string]string{"10.0.0.0/8": "255.0.0.0", "192.0.2.0/27": "255.255.255.224", "0.0.0.0/0": "0.0.0.0",
		"2001:db8::/33": "ffff:ffff:8000::"} {
		if got := Mask(netip.MustParsePrefix(prefix)).String(); got != want {
			t.Errorf("%s has mask %s, want %s", prefix, got, want)
		}
	}
}
