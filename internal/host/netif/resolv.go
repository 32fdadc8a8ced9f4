package netif

import (
	"errors"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"brine/internal/host"
)

// Resolv is the configuration of the machine's resolver.
type Resolv struct {
	Servers  []netip.Addr // each once
	Domain   string
	Search   []string
	SortList []netip.Prefix
	Options  []string // the first word of each options line
	// Faults are invalid entries, for a log.
	Faults []string
}

// ReadResolv reads the configuration that systemd-resolved keeps, or else
// /etc/resolv.conf. It is nil if there is none.
func ReadResolv(m *host.Machine) *Resolv {
	path := "/run/systemd/resolve/resolv.conf"
	if !m.Exists(path) {
		path = "/etc/resolv.conf"
	}
	b, err := m.ReadFile(path)
	if err != nil {
		return nil
	}
	return ParseResolv(strings.ToValidUTF8(string(b), "\ufffd"))
}

// ParseResolv parses a resolv.conf.
func ParseResolv(text string) *Resolv {
	r := &Resolv{}
	for line := range strings.SplitSeq(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		args := words[1:]
		if i := slices.IndexFunc(args, func(w string) bool { return w[0] == '#' || w[0] == ';' }); i >= 0 {
			args = args[:i]
		}
		r.directive(strings.ToLower(words[0]), args)
	}
	return r
}

func (r *Resolv) directive(name string, args []string) {
	if name == "search" {
		r.Search = args
		return
	}
	if len(args) == 0 {
		return
	}
	switch name {
	case "nameserver":
		a, err := netip.ParseAddr(args[0])
		if err != nil {
			r.Faults = append(r.Faults, "nameserver "+args[0])
		} else if !slices.Contains(r.Servers, a) {
			r.Servers = append(r.Servers, a)
		}
	case "domain":
		r.Domain = args[0]
	case "options":
		if !slices.Contains(r.Options, args[0]) {
			r.Options = append(r.Options, args[0])
		}
	case "sortlist":
		for _, a := range args {
			p, ok := sortEntry(a)
			if !ok {
				r.Faults = append(r.Faults, "sortlist "+a)
			} else if !slices.Contains(r.SortList, p) {
				r.SortList = append(r.SortList, p)
			}
		}
	}
}

// sortEntry parses "10.0.0.0/255.0.0.0", "10.0.0.0/8" or "10.0.0.0", which has
// the mask of its class.
func sortEntry(s string) (netip.Prefix, bool) {
	addr, mask, hasMask := strings.Cut(s, "/")
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, false
	}
	bits := a.BitLen()
	if !hasMask && a.Is4() {
		switch first := a.As4()[0]; {
		case first >= 192:
			bits = 24
		case first >= 128:
			bits = 16
		default:
			bits = 8
		}
		return netip.PrefixFrom(a, bits).Masked(), true
	}
	if hasMask {
		if p, err := netip.ParsePrefix(addr + "/" + mask); err == nil {
			bits = p.Bits()
		} else if m, err := netip.ParseAddr(mask); err != nil || !m.Is4() || !a.Is4() {
			return netip.Prefix{}, false
		} else if bits, err = maskBits(m.As4()); err != nil {
			return netip.Prefix{}, false
		}
	}
	p := netip.PrefixFrom(a, bits)
	return p, p == p.Masked() // host bits must not be set in a network
}

// Mask returns the mask of a prefix in the form of an address.
func Mask(p netip.Prefix) netip.Addr {
	b := make([]byte, p.Addr().BitLen()/8)
	for i := range p.Bits() {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func maskBits(m [4]byte) (int, error) {
	u := uint32(m[0])<<24 | uint32(m[1])<<16 | uint32(m[2])<<8 | uint32(m[3])
	ones := bits.LeadingZeros32(^u)
	if u<<ones != 0 {
		return 0, errMask
	}
	return ones, nil
}

var errMask = errors.New("the mask has holes")
