package network

import (
	"context"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// dig queries name servers with the program dig.
type dig struct{ m *host.Machine }

func init() { units.Register("dig", digModule) }

func digModule(m *host.Machine) fn.Module {
	d := dig{m}
	mod := fn.Module{Name: "dig", When: d.when, Doc: `What name servers say, by dig(1). What cannot be found out is an empty list.`, Funcs: []fn.Func{
		fn.Of("check_ip", d.checkIP, `Say whether a text is an address, or a network.`, fn.Example("salt '*' dig.check_ip 127.0.0.1")),
	}}
	for _, f := range []struct {
		name string
		do   func(context.Context, *fn.Call, digArgs) (any, error)
		doc  string
	}{
		{"A", d.addresses("A"), `Return the IPv4 addresses of a host.`},
		{"AAAA", d.addresses("AAAA"), `Return the IPv6 addresses of a host.`},
		{"PTR", d.lines("-x"), `Return the names of an address.`},
		{"TXT", d.lines("TXT"), `Return the texts of a host.`},
		{"CNAME", d.cname, `Return the name that a host is another for.`},
	} {
		mod.Funcs = append(mod.Funcs, fn.Of(f.name, f.do, f.doc, fn.Example("salt '*' dig."+f.name+" www.example.com")))
		if f.name != "TXT" {
			mod.Funcs = append(mod.Funcs, fn.Of(strings.ToLower(f.name), f.do, `Same as dig.`+f.name+`.`,
				fn.Example("salt '*' dig."+strings.ToLower(f.name)+" www.example.com")))
		}
	}
	for _, name := range []string{"NS", "ns"} {
		mod.Funcs = append(mod.Funcs, fn.Of(name, d.ns, `Return the addresses of a domain's name servers, or without resolve their names.`,
			fn.Example("salt '*' dig."+name+" example.com")))
	}
	for _, name := range []string{"MX", "mx"} {
		mod.Funcs = append(mod.Funcs,
			fn.Of(name, d.mx, `Return the priorities and names of a domain's mail servers, or with resolve the first address of each.`,
				fn.Example("salt '*' dig."+name+" example.com")))
	}
	for _, name := range []string{"SPF", "spf"} {
		mod.Funcs = append(mod.Funcs, fn.Of(name, d.spf, `Return the addresses that may send mail for a domain.`,
			fn.Example("salt '*' dig."+name+" example.com")))
	}
	return mod
}

func (d dig) when(fn.Reader) (string, bool) {
	if d.m.Which("dig") == "" {
		return "dig was not found", false
	}
	return "", true
}

type digArgs struct {
	Host   string `salt:"host" doc:"name or address"`
	Server string `salt:"nameserver" doc:"whom to ask; the machine's servers without" default:"null"`
}

type nsArgs struct {
	Domain  string `salt:"domain" doc:"name of the domain"`
	Resolve bool   `salt:"resolve" doc:"find the addresses of the names" default:"true"`
	Server  string `salt:"nameserver" doc:"whom to ask; the machine's servers without" default:"null"`
}

type mxArgs struct {
	Domain  string `salt:"domain" doc:"name of the domain"`
	Resolve bool   `salt:"resolve" doc:"find the addresses of the names" default:"false"`
	Server  string `salt:"nameserver" doc:"whom to ask; the machine's servers without" default:"null"`
}

// ask returns the lines of an answer, none if there is no answer.
func (d dig) ask(ctx context.Context, c *fn.Call, server string, words ...string) ([]string, bool, error) {
	for _, w := range append(words, server) {
		if w != "-x" && strings.HasPrefix(w, "-") || strings.HasPrefix(w, "@") || strings.HasPrefix(w, "+") {
			return nil, false, fn.Invalidf("%q is no name of a host", w) // dig would take it for an option
		}
	}
	words = append([]string{"+short"}, words...)
	if server != "" {
		words = append(words, "@"+server)
	}
	out, err := d.m.Do(ctx, "dig", words...)
	if err != nil {
		return nil, false, fn.Errorf("cannot run dig: %w", err)
	}
	if out.Exit != 0 {
		c.Log.Warn("dig returned no answer", "exit", out.Exit, "said", out.Stderr)
		return nil, false, nil
	}
	return strings.Split(out.Stdout, "\n"), true, nil
}

func (d dig) addresses(kind string) func(context.Context, *fn.Call, digArgs) (any, error) {
	return func(ctx context.Context, c *fn.Call, a digArgs) (any, error) {
		return d.addressesOf(ctx, c, a.Host, kind, a.Server)
	}
}

func (d dig) addressesOf(ctx context.Context, c *fn.Call, name, kind, server string) ([]string, error) {
	lines, _, err := d.ask(ctx, c, server, name, kind)
	found := []string{}
	for _, l := range lines {
		if isAddress(l) { // the answer starts with the aliases (CNAME)
			found = append(found, l)
		}
	}
	return found, err
}

func (d dig) lines(kind string) func(context.Context, *fn.Call, digArgs) (any, error) {
	return func(ctx context.Context, c *fn.Call, a digArgs) (any, error) {
		words := []string{a.Host, kind}
		if kind == "-x" {
			words = []string{kind, a.Host}
		}
		lines, _, err := d.ask(ctx, c, a.Server, words...)
		return append([]string{}, lines...), err
	}
}

func (d dig) cname(ctx context.Context, c *fn.Call, a digArgs) (any, error) {
	lines, ok, err := d.ask(ctx, c, a.Server, a.Host, "CNAME")
	if !ok {
		return []string{}, err
	}
	return strings.Join(lines, "\n"), nil
}

func (d dig) ns(ctx context.Context, c *fn.Call, a nsArgs) ([]string, error) {
	lines, ok, err := d.ask(ctx, c, a.Server, a.Domain, "NS")
	if !a.Resolve || !ok {
		return append([]string{}, lines...), err
	}
	found := []string{}
	for _, name := range lines {
		if name == "" {
			continue
		}
		all, err := d.addressesOf(ctx, c, name, "A", a.Server)
		if err != nil {
			return nil, err
		}
		found = append(found, all...)
	}
	return found, nil
}

func (d dig) mx(ctx context.Context, c *fn.Call, a mxArgs) (*value.List, error) {
	lines, _, err := d.ask(ctx, c, a.Server, a.Domain, "MX")
	found := value.ListOf()
	for _, l := range lines {
		f := strings.Fields(l)
		if len(f) == 2 && a.Resolve {
			all, err := d.addressesOf(ctx, c, f[1], "A", a.Server)
			if err != nil {
				return nil, err
			}
			if len(all) == 0 {
				continue
			}
			f[1] = all[0]
		}
		found.Append(value.Strings(f))
	}
	return found, err
}

type spfArgs struct {
	Domain string `salt:"domain" doc:"name of the domain"`
	Record string `salt:"record" doc:"kind of record to look into first" default:"SPF"`
	Server string `salt:"nameserver" doc:"whom to ask; the machine's servers without" default:"null"`
}

var mechanism = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:\+|~)?(ip[46]|include):(.+)`) })

// mostSPF bounds how many SPF records are followed: RFC 7208 allows ten
// look-ups, and records can name each other.
const mostSPF = 10

func (d dig) spf(ctx context.Context, c *fn.Call, a spfArgs) ([]string, error) {
	left := mostSPF
	return d.senders(ctx, c, a, &left)
}

func (d dig) senders(ctx context.Context, c *fn.Call, a spfArgs, left *int) ([]string, error) {
	found := []string{}
	if *left--; *left < 0 {
		return found, nil
	}
	lines, ok, err := d.ask(ctx, c, a.Server, a.Domain, a.Record)
	text := strings.Join(lines, "\n")
	switch {
	case !ok:
		return found, err
	case text == "" && a.Record == "SPF":
		return d.senders(ctx, c, spfArgs{a.Domain, "TXT", a.Server}, left)
	}
	parts := strings.Fields(strings.ReplaceAll(text, `"`, ""))
	if len(parts) < 2 || parts[0] != "v=spf1" {
		return found, nil
	}
	if to, ok := strings.CutPrefix(parts[1], "redirect="); ok {
		return d.senders(ctx, c, spfArgs{to, "SPF", a.Server}, left)
	}
	for _, part := range parts[1:] {
		m := mechanism().FindStringSubmatch(part)
		switch {
		case m == nil:
		case m[1] == "include":
			more, err := d.senders(ctx, c, spfArgs{m[2], "SPF", a.Server}, left)
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
		case isAddress(m[2]):
			found = append(found, m[2])
		}
	}
	return found, nil
}

type checkIPArgs struct {
	Addr any `salt:"addr" doc:"the text"`
}

func (d dig) checkIP(_ context.Context, _ *fn.Call, a checkIPArgs) (bool, error) {
	text, ok := a.Addr.(string)
	return ok && isAddress(text), nil
}

// isAddress reports whether a string is an IP address, with or without the
// length of a network: 1 to 32, or 8 to 128.
func isAddress(text string) bool {
	at := strings.LastIndexByte(text, '/')
	length := -1
	if at >= 0 {
		n, err := strconv.Atoi(text[at+1:])
		if err != nil {
			return false
		}
		text, length = text[:at], n
	}
	ip := net.ParseIP(text)
	switch {
	case ip == nil:
		return false
	case length < 0 && at < 0:
		return true
	case strings.Contains(text, ":"):
		return length >= 8 && length <= 128
	}
	return length >= 1 && length <= 32
}
