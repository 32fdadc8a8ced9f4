package ipset

import (
	"net/netip"
	"strings"
)

// entry is an entry of a set: a part for each dimension of the set's type, and
// options.
type entry struct {
	parts   []part
	options map[string]string
}

// part is an address, a network, a range, or another word.
type part struct {
	word  string
	addr  netip.Addr
	net   netip.Prefix
	first netip.Addr // of a range
	last  netip.Addr
}

// parse reads an entry of a set of this type.
func parse(setType, text string) entry {
	_, dimensions, _ := strings.Cut(setType, ":")
	first, options, _ := strings.Cut(text, " ")
	words := strings.Split(first, ",")
	e := entry{options: optionsOf(options)}
	for i, kind := range strings.Split(dimensions, ",") {
		if i < len(words) {
			e.parts = append(e.parts, partOf(kind, words[i]))
		}
	}
	return e
}

// optionsOf reads the options of an entry. ipset prints comments in quotes.
func optionsOf(text string) map[string]string {
	all := map[string]string{}
	for text = strings.TrimLeft(text, " "); text != ""; text = strings.TrimLeft(text, " ") {
		name, rest, _ := strings.Cut(text, " ")
		text = strings.TrimLeft(rest, " ")
		v := ""
		if quoted, ok := strings.CutPrefix(text, `"`); ok {
			v, text, _ = strings.Cut(quoted, `"`)
		} else if name != "nomatch" {
			v, text, _ = strings.Cut(text, " ")
		}
		all[name] = v
	}
	return all
}

func partOf(kind, word string) part {
	p := part{word: word}
	switch kind {
	case "port":
		// ipset means TCP without a protocol. It prints numbers if /etc/protocols is missing.
		p.word = strings.TrimPrefix(strings.TrimPrefix(word, "tcp:"), "6:")
	case "ip", "net":
		from, to, isRange := strings.Cut(word, "-")
		switch {
		case strings.Contains(word, "/"):
			if n, err := netip.ParsePrefix(word); err == nil {
				p.net = n.Masked()
			}
		case isRange:
			a, err := netip.ParseAddr(from)
			b, wrong := netip.ParseAddr(to)
			if err == nil && wrong == nil && a.BitLen() == b.BitLen() && !b.Less(a) {
				p.first, p.last = a, b
			}
		default:
			p.addr, _ = netip.ParseAddr(word)
		}
	}
	return p
}

// contains reports whether an entry of a set stands for another one: it has
// the options of that and possibly more.
func (e entry) contains(o entry) bool {
	if len(e.parts) < len(o.parts) {
		return false
	}
	for i := range o.parts {
		if !e.parts[i].matches(o.parts[i]) {
			return false
		}
	}
	for name, v := range o.options {
		if has, ok := e.options[name]; !ok || has != v {
			return false
		}
	}
	return true
}

// matches compares the part of an entry of a set with a wanted one. As in
// Salt, an address matches each network that it is in, and a network each
// address in it.
func (p part) matches(want part) bool {
	switch {
	case p.word == want.word, p.addr.IsValid() && p.addr == want.addr, p.net.IsValid() && p.net == want.net:
		return true
	case want.first.IsValid():
		for _, n := range summary(want.first, want.last) {
			if !p.matches(part{word: n.String(), net: n}) {
				return false
			}
		}
		return true
	case p.addr.IsValid() && want.net.IsValid():
		return want.net.Contains(p.addr)
	case p.net.IsValid() && want.addr.IsValid():
		return p.net.Contains(want.addr)
	}
	return false
}

// summary returns the networks that a range consists of, at most two since
// more are compared alike.
func summary(first, last netip.Addr) (nets []netip.Prefix) {
	for a := first; len(nets) < 2 && a.IsValid() && !last.Less(a); {
		bits := a.BitLen()
		for bits > 0 {
			n := netip.PrefixFrom(a, bits-1)
			if n.Masked().Addr() != a || last.Less(end(n)) {
				break
			}
			bits--
		}
		n := netip.PrefixFrom(a, bits)
		nets = append(nets, n)
		a = end(n).Next()
	}
	return nets
}

// end returns the last address of a network.
func end(n netip.Prefix) netip.Addr {
	b := n.Addr().AsSlice()
	for i := n.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
