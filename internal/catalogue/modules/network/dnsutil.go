package network

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// dnsutil reads zone files and the hosts file, keeps serial numbers of zones,
// and queries name servers with dig(1) if it is installed.
type dnsutil struct{ m *host.Machine }

const needsDig = "This function requires dig, which is not currently available"

func init() { units.Register("dnsutil", dnsutilModule) }

func dnsutilModule(m *host.Machine) fn.Module {
	d := dnsutil{m}
	return fn.Module{Name: "dnsutil", Doc: `Zone files, serial numbers of zones, the hosts file and what name servers say.`, Funcs: []fn.Func{
		fn.Of("parse_hosts", d.parseHosts, `Return the names of each address in a hosts file, or in the text hosts.`,
			fn.Example("salt '*' dnsutil.parse_hosts")),
		fn.Of("hosts_append", d.hostsAppend, `Add a line to a hosts file with those names, separated by commas, that the address has not got yet.`,
			fn.Example("salt '*' dnsutil.hosts_append /etc/hosts 127.0.0.1 ad1.yuk.co,ad2.yuk.co")),
		fn.Of("hosts_remove", d.hostsRemove, `Remove names, separated by commas, from a hosts file, and lines that have no name left.`,
			fn.Example("salt '*' dnsutil.hosts_remove /etc/hosts ad1.yuk.co")),
		fn.Of("parse_zone", d.parseZone, `Return what a zone file says, or the text zone.`,
			fn.Example("salt ns1 dnsutil.parse_zone /var/lib/named/example.com.zone")),
		fn.Of("serial", d.serial, `Return the serial number of a zone: the one that is kept in the grain dnsserial_ZONE, or that of today.
			With update a new one is made, kept and returned.`, fn.Example("salt ns1 dnsutil.serial example.com")),
		fn.Of("check_ip", d.checkIP, `Say whether a text is an address, or a network.`, fn.Example("salt ns1 dnsutil.check_ip 127.0.0.1")),
		fn.Of("A", d.addresses("ip4", "dig.A"), `Return the IPv4 addresses of a host.`, fn.Example("salt ns1 dnsutil.A www.google.com")),
		fn.Of("AAAA", d.addresses("ip6", "dig.AAAA"), `Return the IPv6 addresses of a host.`, fn.Example("salt ns1 dnsutil.AAAA www.google.com")),
		fn.Of("NS", d.ns, `Return the addresses of a domain's name servers, or without resolve their names.`, fn.Example("salt ns1 dnsutil.NS google.com")),
		fn.Of("MX", d.mx, `Return the priorities and names of a domain's mail servers, or with resolve the first address of each.`,
			fn.Example("salt ns1 dnsutil.MX google.com")),
		fn.Of("SPF", d.spf, `Return the addresses that may send mail for a domain.`, fn.Example("salt ns1 dnsutil.SPF google.com")),
	}}
}

type parseHostsArgs struct {
	File  string `salt:"hostsfile" doc:"the file" default:"/etc/hosts"`
	Hosts string `salt:"hosts" doc:"its text in place of the file" default:"null"`
}

func (d dnsutil) parseHosts(_ context.Context, _ *fn.Call, a parseHostsArgs) (any, error) {
	text := a.Hosts
	if text == "" {
		b, err := d.m.ReadFile(a.File)
		if err != nil {
			return "Error: hosts data was not found", nil //nolint:nilerr // as in Salt, the error is the result
		}
		text = string(b)
	}
	return hostNames(text), nil
}

// hostNames returns the names of each address, in their order.
func hostNames(text string) *value.Dict {
	names := value.NewDict(8)
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		l, _ := names.At(words[0]).(*value.List)
		if l == nil {
			l = value.ListOf()
			names.Set(words[0], l)
		}
		for _, w := range words[1:] {
			l.Append(w)
		}
	}
	return names
}

type hostsAppendArgs struct {
	File    string `salt:"hostsfile" doc:"the file" default:"/etc/hosts"`
	Address string `salt:"ip_addr" doc:"the address" default:"null"`
	Entries string `salt:"entries" doc:"names, separated by commas" default:"null"`
}

func (d dnsutil) hostsAppend(_ context.Context, _ *fn.Call, a hostsAppendArgs) (string, error) {
	if a.Address == "" || a.Entries == "" || strings.ContainsAny(a.Address+a.Entries, " \t\r\n") {
		return "", fn.Invalidf("an address and names, separated by commas, are needed")
	}
	old, err := d.m.ReadFile(a.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fn.Errorf("cannot read the file: %w", err)
	}
	var add []string
	known := hostNames(string(old)).List(a.Address)
	for _, name := range strings.Split(a.Entries, ",") {
		if !slices.Contains(known, any(name)) {
			add = append(add, name)
		}
	}
	if len(add) == 0 {
		return "No additional hosts were added to " + a.File, nil
	}
	line := "\n" + a.Address + " " + strings.Join(add, " ")
	if err := d.m.WriteFile(a.File, append(old, line...)); err != nil {
		return "", fn.Errorf("cannot write the file: %w", err)
	}
	return "The following line was added to " + a.File + ":" + line, nil
}

type hostsRemoveArgs struct {
	File    string `salt:"hostsfile" doc:"the file" default:"/etc/hosts"`
	Entries string `salt:"entries" doc:"names, separated by commas" default:"null"`
}

func (d dnsutil) hostsRemove(_ context.Context, _ *fn.Call, a hostsRemoveArgs) (any, error) {
	if a.Entries == "" {
		return nil, fn.Invalidf("names, separated by commas, are needed")
	}
	old, err := d.m.ReadFile(a.File)
	if err != nil {
		return nil, fn.Errorf("cannot read the file: %w", err)
	}
	gone := strings.Split(a.Entries, ",")
	var b strings.Builder
	for line := range strings.Lines(string(old)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || strings.HasPrefix(strings.TrimSpace(line), "#") {
			b.WriteString(line + "\n")
			continue
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		kept := slices.DeleteFunc(words[1:], func(w string) bool { return slices.Contains(gone, w) })
		if len(kept) > 0 {
			b.WriteString(words[0] + " " + strings.Join(kept, " ") + "\n")
		}
	}
	if err := d.m.WriteFile(a.File, []byte(b.String())); err != nil {
		return nil, fn.Errorf("cannot write the file: %w", err)
	}
	return nil, nil
}

type parseZoneArgs struct {
	File string `salt:"zonefile" doc:"the file" default:"null"`
	Zone string `salt:"zone" doc:"its text, if there is no file" default:"null"`
}

func (d dnsutil) parseZone(_ context.Context, _ *fn.Call, a parseZoneArgs) (any, error) {
	text := a.Zone
	if a.File != "" {
		if b, err := d.m.ReadFile(a.File); err == nil {
			text = string(b)
		}
	}
	if text == "" {
		return "Error: Zone data was not found", nil
	}
	return parseZone(text)
}

// zoneFile is the state of parsing a zone file.
type zoneFile struct {
	*value.Dict
}

func parseZone(text string) (*value.Dict, error) {
	z := zoneFile{value.NewDict(12)}
	several := "" // collected lines of a record with brackets
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, ";")
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if strings.HasPrefix(line, "$") {
			if len(words) < 2 {
				return nil, fn.Errorf("line %d of the zone: %s has no value", n, words[0])
			}
			z.Set(strings.ReplaceAll(words[0], "$", ""), words[1])
			continue
		}
		if several != "" || strings.Contains(line, "(") && !strings.Contains(line, ")") {
			several += " " + line
			if !strings.Contains(line, ")") {
				continue
			}
			line, several = strings.NewReplacer("(", "", ")", "").Replace(several), ""
		}
		if err := z.record(line); err != nil {
			return nil, fn.Errorf("line %d of the zone: %w", n, err)
		}
	}
	return z.Dict, nil
}

var errShort = errors.New("a word is missing")

// record adds one record.
func (z zoneFile) record(line string) error {
	origin := z.Str("ORIGIN")
	if z.Has("ORIGIN") {
		line = strings.ReplaceAll(line, "@", origin)
	}
	w := strings.Fields(line)
	if strings.Contains(line, "SOA") {
		if len(w) > 1 && w[1] != "IN" {
			w = slices.Delete(w, 1, 2)
		}
		if len(w) < 10 {
			return errShort
		}
		z.Update(value.DictOf("ORIGIN", w[0], "NETWORK", w[1], "SOURCE", w[3], "CONTACT", strings.Replace(w[4], ".", "@", 1), "SERIAL", w[5],
			"REFRESH", zoneSeconds(w[6]), "RETRY", zoneSeconds(w[7]), "EXPIRE", zoneSeconds(w[8]), "MINTTL", zoneSeconds(w[9])))
		return nil
	}
	if !z.Has("ORIGIN") {
		return errors.New("there is no origin yet")
	}
	if len(w) > 0 && w[0] == "IN" {
		w = slices.Insert(w, 0, origin)
	}
	if len(w) < 4 {
		return errShort
	}
	if !strings.HasSuffix(w[0], ".") && !strings.Contains(line, "NS") {
		w[0] += "." + origin
	}
	kind, entry := w[2], any(w[3])
	switch {
	case kind == "NS":
		z.list(kind, w[3])
		return nil
	case kind == "MX":
		if len(w) < 5 {
			return errShort
		}
		if !z.Has(kind) {
			z.list(kind, value.DictOf("priority", w[3], "host", w[4]))
		}
		return nil
	case w[3] == "A" || w[3] == "AAAA":
		if len(w) < 5 {
			return errShort
		}
		kind, entry = w[3], value.DictOf("TARGET", w[4], "TTL", w[1])
	}
	if !z.Has(kind) {
		z.Set(kind, value.NewDict(1))
	}
	d := z.Dict.Dict(kind)
	if d == nil {
		return errors.New("there is no kind of record " + kind)
	}
	d.Set(w[0], entry)
	return nil
}

// list adds an entry to a list.
func (z zoneFile) list(kind string, entry any) {
	l, _ := z.At(kind).(*value.List)
	if l == nil {
		l = value.ListOf()
		z.Set(kind, l)
	}
	l.Append(entry)
}

// zoneSeconds parses a duration and returns seconds, at most a week. It also
// returns a week for an invalid one.
func zoneSeconds(text string) int64 {
	const week = 604800
	text = strings.ToUpper(text)
	unit := int64(1)
	switch {
	case strings.Contains(text, "H"):
		unit, text = 3600, strings.ReplaceAll(text, "H", "")
	case strings.Contains(text, "D"):
		unit, text = 86400, strings.ReplaceAll(text, "D", "")
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return week
	}
	return min(n*unit, week)
}

type serialArgs struct {
	Zone   string `salt:"zone" doc:"name of the zone; the number of all without" default:""`
	Update bool   `salt:"update" doc:"make a new number" default:"false"`
}

func (d dnsutil) serial(ctx context.Context, c *fn.Call, a serialArgs) (any, error) {
	key := "dnsserial"
	if a.Zone != "" {
		key += "_" + a.Zone
	}
	stored, err := c.Funcs.Call(ctx, c, "grains.get", nil, value.DictOf("key", key))
	if err != nil {
		return nil, err
	}
	next := time.Now().Format("20060102") + "01"
	if !a.Update {
		if value.Truth(stored) {
			return stored, nil
		}
		return next, nil
	}
	if old := value.Str(stored); value.Truth(stored) && old >= next {
		n, err := strconv.ParseInt(old, 10, 64)
		if err != nil {
			return nil, fn.Errorf("the grain %s is no number: %s", key, old)
		}
		next = strconv.FormatInt(n+1, 10)
	}
	_, err = c.Funcs.Call(ctx, c, "grains.setval", nil, value.DictOf("key", key, "val", next))
	return next, err
}

// dig calls a function of the module dig, if the program is installed.
func (d dnsutil) dig(ctx context.Context, c *fn.Call, fun string, args ...any) (any, error) {
	if d.m.Which("dig") == "" {
		return needsDig, nil
	}
	return c.Funcs.Call(ctx, c, fun, args, nil)
}

type dnsAddressArgs struct {
	Address string `salt:"ip_addr" doc:"the text"`
}

func (d dnsutil) checkIP(ctx context.Context, c *fn.Call, a dnsAddressArgs) (any, error) {
	return d.dig(ctx, c, "dig.check_ip", a.Address)
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// addresses returns a function that resolves names with dig, or with the
// machine's resolver if dig is not installed and no server is named.
func (d dnsutil) addresses(network, fun string) func(context.Context, *fn.Call, digArgs) (any, error) {
	return func(ctx context.Context, c *fn.Call, a digArgs) (any, error) {
		if d.m.Which("dig") != "" || a.Server != "" {
			return d.dig(ctx, c, fun, a.Host, orNull(a.Server))
		}
		found, err := net.DefaultResolver.LookupIP(ctx, network, a.Host)
		if err != nil {
			return "Unable to resolve " + a.Host, nil //nolint:nilerr // as in Salt, the error is the result
		}
		addresses := []string{}
		for _, ip := range found {
			addresses = append(addresses, ip.String())
		}
		return addresses, nil
	}
}

func (d dnsutil) ns(ctx context.Context, c *fn.Call, a nsArgs) (any, error) {
	return d.dig(ctx, c, "dig.NS", a.Domain, a.Resolve, orNull(a.Server))
}

func (d dnsutil) mx(ctx context.Context, c *fn.Call, a mxArgs) (any, error) {
	return d.dig(ctx, c, "dig.MX", a.Domain, a.Resolve, orNull(a.Server))
}

func (d dnsutil) spf(ctx context.Context, c *fn.Call, a spfArgs) (any, error) {
	return d.dig(ctx, c, "dig.SPF", a.Domain, a.Record, orNull(a.Server))
}
