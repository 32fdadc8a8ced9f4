package target

import (
	"net/netip"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

type never struct{}

func (never) eval(Subject) verdict { return no }

// globNode matches the id.
type globNode struct {
	glob    Glob
	literal string
	isText  bool
}

func newGlobNode(pattern string) node {
	g := ParseGlob(pattern)
	text, ok := g.Literal()
	return globNode{g, text, ok}
}

func (n globNode) eval(s Subject) verdict {
	if n.isText {
		return verdictOf(s.ID() == n.literal)
	}
	return verdictOf(n.glob.Match(s.ID()))
}

type regexpNode struct{ re pattern }

func (n regexpNode) eval(s Subject) verdict { return n.re.match(s.ID()) }

type listNode struct {
	order []string
	set   map[string]bool
}

func newListNode(ids []string) listNode {
	l := listNode{set: make(map[string]bool, len(ids))}
	for _, id := range ids {
		if id != "" && !l.set[id] {
			l.set[id] = true
			l.order = append(l.order, id)
		}
	}
	return l
}

func (n listNode) eval(s Subject) verdict { return verdictOf(n.set[s.ID()]) }

type grainNode struct{ *dataExpr }

func (n grainNode) eval(s Subject) verdict { return n.on(s.Grains()) }

type pillarNode struct{ *dataExpr }

func (n pillarNode) eval(s Subject) verdict { return n.on(s.Pillar()) }

func (d *dataExpr) on(data *value.Dict) verdict {
	if data == nil {
		return unknown
	}
	return d.match(data)
}

// cidrNode matches the addresses in the grains ipv4 or ipv6.
type cidrNode struct {
	addr netip.Addr   // valid for a single address
	net  netip.Prefix // if addr is not valid
}

func parseCIDR(text string) (node, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return cidrNode{addr: a}, nil
	}
	p, ok := parseNetwork(text)
	if !ok {
		return nil, salt.Errorf(salt.Invalid, "target %q is neither an address nor a network; a network has no bits set outside of its mask", text)
	}
	return cidrNode{net: p}, nil
}

// parseNetwork parses address/bits and, for IPv4, address/mask and
// address/hostmask.
func parseNetwork(text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		addr, mask, _ := strings.Cut(text, "/")
		a, errA := netip.ParseAddr(addr)
		m, errM := netip.ParseAddr(mask)
		if errA != nil || errM != nil || !a.Is4() || !m.Is4() {
			return p, false
		}
		bits, ok := maskBits(m.As4())
		if !ok {
			return p, false
		}
		p = netip.PrefixFrom(a, bits)
	}
	return p, p == p.Masked()
}

func maskBits(m [4]byte) (int, bool) {
	v := uint32(m[0])<<24 | uint32(m[1])<<16 | uint32(m[2])<<8 | uint32(m[3])
	for bits := range 33 {
		mask := ^uint32(0) << (32 - bits)
		if v == mask && bits > 0 || v == ^mask {
			return bits, true
		}
	}
	return 0, false
}

func (n cidrNode) eval(s Subject) verdict {
	grains := s.Grains()
	if grains == nil {
		return unknown
	}
	key := "ipv4"
	if n.addr.Is6() || n.net.Addr().Is6() {
		key = "ipv6"
	}
	if text, ok := grains.At(key).(string); ok {
		return verdictOf(n.has(text))
	}
	for _, it := range grains.List(key) {
		if text, ok := it.(string); ok && n.has(text) {
			return yes
		}
	}
	return no
}

func (n cidrNode) has(text string) bool {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return false
	}
	if n.addr.IsValid() {
		return a == n.addr
	}
	return n.net.Contains(a.WithZone(""))
}

type (
	andNode []node
	orNode  []node
	notNode struct{ node }
)

func (n andNode) eval(s Subject) verdict {
	result := yes
	for _, c := range n {
		result = min(result, c.eval(s))
		if result == no {
			break
		}
	}
	return result
}

func (n orNode) eval(s Subject) verdict {
	result := no
	for _, c := range n {
		result = max(result, c.eval(s))
		if result == yes {
			break
		}
	}
	return result
}

func (n notNode) eval(s Subject) verdict { return yes - n.node.eval(s) }
