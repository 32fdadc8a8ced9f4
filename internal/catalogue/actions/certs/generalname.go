package certs

import (
	"encoding/asn1"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Tags of a GeneralName (RFC 5280).
const (
	gnOther = iota
	gnMail
	gnDNS
	gnX400
	gnDirectory
	gnEDI
	gnURI
	gnIP
	gnID
)

// pair is a type and a value, such as DNS:example.com.
type pair struct {
	kind  string
	value any
}

func splitPair(s string) (pair, error) {
	k, v, ok := strings.Cut(s, ":")
	if !ok {
		return pair{}, fn.Errorf("GeneralName type %s is invalid", s)
	}
	return pair{strings.TrimSpace(k), strings.TrimSpace(v)}, nil
}

// generalName encodes one name. Domains in constraints may begin with a dot.
func generalName(p pair) (asn1.RawValue, error) {
	text := textOf(p.value)
	switch strings.ToLower(p.kind) {
	case "email":
		user, domain, ok := cutLast(text, "@")
		if !ok {
			domain, err := toASCII(text, true, false)
			return tagged(gnMail, false, []byte(domain)), err
		}
		domain, err := toASCII(domain, false, false)
		return tagged(gnMail, false, []byte(user+"@"+domain)), err
	case "uri":
		u, err := url.Parse(text)
		if err != nil {
			return asn1.RawValue{}, fn.Errorf("%s is no URI", text)
		}
		if u.Host != "" {
			host, err := toASCII(u.Hostname(), false, false)
			if err != nil {
				return asn1.RawValue{}, err
			}
			text = strings.Replace(text, u.Hostname(), host, 1)
		}
		if !ascii(text) {
			return asn1.RawValue{}, fn.Errorf("URI values should be passed as an A-label string. This means unicode characters should be " +
				"encoded via a library like idna.")
		}
		return tagged(gnURI, false, []byte(text)), nil
	case "dns":
		domain, err := toASCII(text, true, true)
		return tagged(gnDNS, false, []byte(domain)), err
	case "rid":
		id, err := parseOID(text)
		if err != nil {
			return asn1.RawValue{}, err
		}
		var raw asn1.RawValue
		if err := unmarshal(must(id, ""), &raw); err != nil {
			return raw, err
		}
		return tagged(gnID, false, raw.Bytes), nil
	case "ip":
		b, err := addressBytes(text)
		return tagged(gnIP, false, b), err
	case "dirname":
		n, err := ParseName(p.value)
		return tagged(gnDirectory, true, n.encode()), err
	case "othername":
		return asn1.RawValue{}, fn.Invalidf("otherName is currently not implemented")
	}
	return asn1.RawValue{}, fn.Errorf("GeneralName type %s is invalid", strings.ToLower(p.kind))
}

// addressBytes encodes an IP address, or a network with its mask.
func addressBytes(s string) ([]byte, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return a.AsSlice(), nil
	}
	wrong := fn.Errorf("Provided value %s does not seem to be an IP address or network range.", s)
	if p, err := netip.ParsePrefix(s); err == nil {
		if p.Masked() != p {
			return nil, wrong
		}
		bits := 8 * len(p.Addr().AsSlice())
		return append(p.Addr().AsSlice(), net.CIDRMask(p.Bits(), bits)...), nil
	}
	addr, mask, _ := strings.Cut(s, "/")
	a, err := netip.ParseAddr(addr)
	m, err2 := netip.ParseAddr(mask)
	if err != nil || err2 != nil || !a.Is4() || !m.Is4() {
		return nil, wrong
	}
	ones, _ := net.IPMask(m.AsSlice()).Size()
	if p := netip.PrefixFrom(a, ones); ones == 0 && m != netip.IPv4Unspecified() || p.Masked() != p {
		return nil, wrong
	}
	return append(a.AsSlice(), m.AsSlice()...), nil
}

// toASCII checks a domain name, which must be in ASCII form.
func toASCII(domain string, dot, wildcard bool) (string, error) {
	prefix := ""
	if rest, ok := strings.CutPrefix(domain, "."); ok && dot {
		prefix, domain = ".", rest
	}
	if rest, ok := strings.CutPrefix(domain, "*."); ok && wildcard {
		prefix, domain = prefix+"*.", rest
	}
	if domain == "" {
		return "", fn.Errorf("Empty domain")
	}
	if !ascii(domain) {
		return "", fn.Errorf("Cannot encode non-ASCII strings to internationalized domain name format, missing library: idna. "+
			"Write %s in its ASCII form (xn--...)", domain)
	}
	if strings.Contains("."+strings.TrimSuffix(domain, ".")+".", "..") {
		return "", fn.Errorf("Empty Label")
	}
	for label := range strings.SplitSeq(domain, ".") {
		for i, c := range label {
			if c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
				return "", fn.Errorf("Codepoint U+%04X at position %d of '%s' not allowed", c, i+1, label)
			}
		}
	}
	return prefix + domain, nil
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+len(sep):], true
}

// generalNames encodes names.
func generalNames(all []pair) ([]asn1.RawValue, error) {
	out := make([]asn1.RawValue, 0, len(all))
	for _, p := range all {
		g, err := generalName(p)
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

// pairsOf reads the names in a list of strings such as DNS:x, or of maps.
func pairsOf(items []any) ([]pair, error) {
	var out []pair
	for _, it := range items {
		switch x := it.(type) {
		case string:
			if x == "critical" {
				continue
			}
			p, err := splitPair(x)
			if err != nil {
				return nil, err
			}
			out = append(out, p)
		case *value.Dict:
			for k, v := range x.All() {
				out = append(out, pair{textOf(k), v})
			}
		case *value.List:
			if x.Len() != 2 {
				return nil, fn.Errorf("%s is no name", value.Repr(it))
			}
			out = append(out, pair{textOf(x.Items[0]), x.Items[1]})
		default:
			return nil, fn.Errorf("%s is no name", value.Repr(it))
		}
	}
	return out, nil
}

// showGeneralName returns the string form of a name.
func showGeneralName(g asn1.RawValue) string {
	if g.Class != asn1.ClassContextSpecific {
		return "?"
	}
	switch g.Tag {
	case gnMail:
		return "mail:" + string(g.Bytes)
	case gnDNS:
		return "DNS:" + string(g.Bytes)
	case gnURI:
		return "URI:" + string(g.Bytes)
	case gnDirectory:
		if n, err := decodeName(g.Bytes); err == nil {
			return "dirName:" + n.String()
		}
	case gnID:
		var id asn1.ObjectIdentifier
		if unmarshal(must(asn1.RawValue{Tag: asn1.TagOID, Bytes: g.Bytes}, ""), &id) == nil {
			return "RID:" + id.String()
		}
	case gnIP:
		return "IP:" + showAddress(g.Bytes)
	case gnOther:
		var id asn1.ObjectIdentifier
		var v asn1.RawValue
		if rest, err := asn1.Unmarshal(g.Bytes, &id); err == nil {
			if _, err := asn1.UnmarshalWithParams(rest, &v, "explicit,tag:0"); err == nil {
				return fmt.Sprintf("otherName:%s:%x", id, v.FullBytes)
			}
		}
	}
	return fmt.Sprintf("%d:%x", g.Tag, g.Bytes)
}

// showAddress formats an IP address without abbreviation, or a network.
func showAddress(b []byte) string {
	switch len(b) {
	case 4, 16:
		a, _ := netip.AddrFromSlice(b)
		return a.StringExpanded()
	case 8, 32:
		half := len(b) / 2
		a, _ := netip.AddrFromSlice(b[:half])
		if ones, bits := net.IPMask(b[half:]).Size(); bits > 0 {
			return fmt.Sprintf("%s/%d", a.StringExpanded(), ones)
		}
	}
	return fmt.Sprintf("%x", b)
}

func showGeneralNames(all []asn1.RawValue) []any {
	out := make([]any, 0, len(all))
	for _, g := range all {
		out = append(out, showGeneralName(g))
	}
	return out
}
