package certs

import (
	"bytes"
	"encoding/asn1"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Name is a distinguished name in the order of its encoding.
type Name []RDN

// RDN is a relative distinguished name: usually one attribute.
type RDN []Attribute

// Attribute is an attribute of a name.
type Attribute struct {
	ID    asn1.ObjectIdentifier
	Value string
	// tag is the ASN.1 string type, 0 for the usual one.
	tag int
}

// nameAttribute is a type of attribute. long holds its names in Salt's earlier module.
type nameAttribute struct {
	name, id string
	long     []string
}

// nameAttributes lists the types in the order in which the attributes of a map are encoded.
var nameAttributes = [...]nameAttribute{
	{"C", "2.5.4.6", nil},
	{"ST", "2.5.4.8", []string{"stateOrProvinceName"}},
	{"L", "2.5.4.7", []string{"localityName"}},
	{"STREET", "2.5.4.9", nil},
	{"O", "2.5.4.10", []string{"organizationName"}},
	{"OU", "2.5.4.11", []string{"organizationUnitName"}},
	{"CN", "2.5.4.3", []string{"commonName"}},
	{"MAIL", "1.2.840.113549.1.9.1", []string{"Email", "emailAddress"}},
	{"SN", "2.5.4.4", []string{"surname"}},
	{"GN", "2.5.4.42", []string{"givenName"}},
	{"UID", "0.9.2342.19200300.100.1.1", nil},
	{"SERIALNUMBER", "2.5.4.5", []string{"serialNumber"}},
}

// rfc4514 maps object identifiers to the attribute names in RFC 4514 strings.
var rfc4514 = [...][2]string{{"2.5.4.3", "CN"}, {"2.5.4.7", "L"}, {"2.5.4.8", "ST"}, {"2.5.4.10", "O"}, {"2.5.4.11", "OU"}, {"2.5.4.6", "C"},
	{"2.5.4.9", "STREET"}, {"0.9.2342.19200300.100.1.25", "DC"}, {"0.9.2342.19200300.100.1.1", "UID"}}

// usualTag returns the ASN.1 string type in which an attribute is encoded.
func usualTag(id string) int {
	switch id {
	case "2.5.4.6", "2.5.4.5", "2.5.4.46", "1.3.6.1.4.1.311.60.2.1.3":
		return asn1.TagPrintableString
	case "1.2.840.113549.1.9.1", "0.9.2342.19200300.100.1.25":
		return asn1.TagIA5String
	}
	return asn1.TagUTF8String
}

func newAttribute(id asn1.ObjectIdentifier, v string) (Attribute, error) {
	switch {
	case v == "":
		return Attribute{}, fn.Errorf("Value cannot be an empty string")
	case (id.String() == "2.5.4.6" || id.String() == "1.3.6.1.4.1.311.60.2.1.3") && len(v) != 2:
		return Attribute{}, fn.Errorf("Country name must be a 2 character country code")
	case !utf8.ValidString(v):
		return Attribute{}, fn.Errorf("the attribute %s is not text", id)
	}
	return Attribute{ID: id, Value: v}, nil
}

// ParseName reads a distinguished name: a string in the syntax of RFC 4514, a list of relative
// names in the order of their encoding, or a map of attributes.
func ParseName(v any) (Name, error) {
	switch x := v.(type) {
	case string:
		n, err := parseRFC4514(x)
		if err != nil {
			return nil, fn.Errorf("Failed parsing rfc4514 dirName string")
		}
		return n, nil
	case *value.List:
		var n Name
		for _, it := range x.Items {
			r, err := parseRDN(it)
			if err != nil {
				return nil, err
			}
			n = append(n, r)
		}
		return n, nil
	case *value.Dict:
		var n Name
		for _, a := range nameAttributes {
			if !x.Has(a.name) {
				continue
			}
			at, err := newAttribute(oid(a.id), textOf(x.At(a.name)))
			if err != nil {
				return nil, err
			}
			n = append(n, RDN{at})
		}
		return n, nil
	}
	return nil, fn.Invalidf("Need string, list or dict to parse distinguished names")
}

func textOf(v any) string {
	if v == nil {
		return ""
	}
	return value.Str(v)
}

func parseRDN(v any) (RDN, error) {
	s, ok := v.(string)
	n, err := parseRFC4514(s)
	if err != nil || !ok {
		return nil, fn.Errorf("Failed parsing rdn string: %s", value.Str(v))
	}
	if len(n) != 1 {
		return nil, fn.Invalidf("Specified string is not a Relative Distinguished Name, but a Distinguished Name.")
	}
	return n[0], nil
}

// parseRFC4514 parses a string, whose first relative name is encoded last.
func parseRFC4514(s string) (Name, error) {
	var n Name
	if s == "" {
		return n, nil
	}
	rdn := RDN{}
	for {
		i := strings.IndexByte(s, '=')
		if i < 0 {
			return nil, fn.Errorf("no = in %q", s)
		}
		id, err := attributeID(s[:i])
		if err != nil {
			return nil, err
		}
		v, rest, err := attributeValue(s[i+1:])
		if err != nil {
			return nil, err
		}
		a, err := newAttribute(id, v)
		if err != nil {
			return nil, err
		}
		if rdn = append(rdn, a); rest == "" || rest[0] == ',' {
			n = append(n, rdn)
			rdn = RDN{}
		}
		if rest == "" {
			slices.Reverse(n)
			return n, nil
		}
		s = rest[1:]
	}
}

func attributeID(s string) (asn1.ObjectIdentifier, error) {
	for _, n := range rfc4514 {
		if n[1] == s {
			return oid(n[0]), nil
		}
	}
	return parseOID(s)
}

// attributeValue parses a value up to a comma or plus sign.
func attributeValue(s string) (v, rest string, err error) {
	if hexed, ok := strings.CutPrefix(s, "#"); ok {
		end := strings.IndexAny(hexed, ",+")
		if end < 0 {
			end = len(hexed)
		}
		b, err := hex.DecodeString(hexed[:end])
		if err != nil || !utf8.Valid(b) {
			return "", "", fn.Errorf("no hexadecimal value: %s", s)
		}
		return string(b), hexed[end:], nil
	}
	var out []byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == ',' || c == '+':
			return string(out), s[i:], nil
		case c == '\\':
			if i+1 < len(s) && strings.IndexByte(`\ #="+,;<>`, s[i+1]) >= 0 {
				out = append(out, s[i+1])
				i++
				continue
			}
			if i+2 >= len(s) {
				return "", "", fn.Errorf("an escape without a character")
			}
			b, err := hex.DecodeString(s[i+1 : i+3])
			if err != nil {
				return "", "", fn.Errorf("an unknown escape")
			}
			out = append(out, b[0])
			i += 2
		case strings.IndexByte("\";<>\x00", c) >= 0:
			return "", "", fn.Errorf("%q must be escaped", c)
		case c == ' ' && (i == 0 || i == len(s)-1 || s[i+1] == ',' || s[i+1] == '+'):
			return "", "", fn.Errorf("spaces at the ends must be escaped")
		default:
			out = append(out, c)
		}
	}
	return string(out), "", nil
}

// String returns the name in the syntax of RFC 4514.
func (n Name) String() string {
	out := make([]string, 0, len(n))
	for _, r := range slices.Backward(n) {
		out = append(out, r.String())
	}
	return strings.Join(out, ",")
}

func (r RDN) String() string {
	out := make([]string, len(r))
	for i, a := range r {
		name := a.ID.String()
		for _, n := range rfc4514 {
			if n[0] == name {
				name = n[1]
				break
			}
		}
		out[i] = name + "=" + escape(a.Value)
	}
	return strings.Join(out, "+")
}

func escape(s string) string {
	if s == "" {
		return ""
	}
	s = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "+", `\+`, ",", `\,`, ";", `\;`, "<", `\<`, ">", `\>`, "\x00", `\00`).Replace(s)
	if s[0] == '#' || s[0] == ' ' {
		s = `\` + s
	}
	if s[len(s)-1] == ' ' {
		s = s[:len(s)-1] + `\ `
	}
	return s
}

// Dict returns the first attribute of each known type.
func (n Name) Dict() *value.Dict {
	d := value.NewDict(len(n))
	for _, a := range nameAttributes {
		if v, ok := n.first(a.id); ok {
			d.Set(a.name, v)
		}
	}
	return d
}

// CommonName returns the first common name.
func (n Name) CommonName() (string, bool) { return n.first("2.5.4.3") }

func (n Name) first(id string) (string, bool) {
	for _, r := range n {
		for _, a := range r {
			if a.ID.String() == id {
				return a.Value, true
			}
		}
	}
	return "", false
}

// Equal reports whether names have the same attributes, in any encoding.
func (n Name) Equal(o Name) bool {
	return slices.EqualFunc(n, o, func(a, b RDN) bool {
		if len(a) != len(b) {
			return false
		}
		for _, x := range a {
			if !slices.ContainsFunc(b, func(y Attribute) bool { return x.ID.Equal(y.ID) && x.Value == y.Value }) {
				return false
			}
		}
		return true
	})
}

// encode returns the DER.
func (n Name) encode() []byte {
	var all []byte
	for _, r := range n {
		parts := make([][]byte, len(r))
		for i, a := range r {
			tag := a.tag
			if tag == 0 {
				tag = usualTag(a.ID.String())
			}
			parts[i] = must(struct {
				ID    asn1.ObjectIdentifier
				Value asn1.RawValue
			}{a.ID, asn1.RawValue{Tag: tag, Bytes: []byte(a.Value)}}, "")
		}
		slices.SortFunc(parts, bytes.Compare)
		all = append(all, must(asn1.RawValue{Tag: asn1.TagSet, IsCompound: true, Bytes: bytes.Join(parts, nil)}, "")...)
	}
	return sequence(all)
}

// decodeName parses DER.
func decodeName(der []byte) (Name, error) {
	var rdns []asn1.RawValue
	if err := unmarshal(der, &rdns); err != nil {
		return nil, err
	}
	var n Name
	for _, raw := range rdns {
		var attrs []struct {
			ID    asn1.ObjectIdentifier
			Value asn1.RawValue
		}
		if raw.Tag != asn1.TagSet || raw.Class != asn1.ClassUniversal {
			return nil, asn1.StructuralError{Msg: "a relative name is no set"}
		}
		if _, err := asn1.UnmarshalWithParams(raw.FullBytes, &attrs, "set"); err != nil {
			return nil, err
		}
		var r RDN
		for _, a := range attrs {
			r = append(r, Attribute{a.ID, stringOf(a.Value), a.Value.Tag})
		}
		n = append(n, r)
	}
	return n, nil
}

// stringOf returns the text of an ASN.1 value of any string type.
func stringOf(v asn1.RawValue) string {
	if v.Class == asn1.ClassUniversal {
		switch v.Tag {
		case asn1.TagBMPString, asn1.TagT61String, asn1.TagGeneralString, 28:
			var s string
			if _, err := asn1.Unmarshal(v.FullBytes, &s); err == nil {
				return s
			}
			out := ""
			for _, b := range v.Bytes {
				out += string(rune(b))
			}
			return out
		}
	}
	if utf8.Valid(v.Bytes) {
		return string(v.Bytes)
	}
	return strconv.QuoteToASCII(string(v.Bytes))
}
