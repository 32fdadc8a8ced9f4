// Package address parses the option master and looks up the current addresses of
// masters. It does not connect.
package address

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Master is a parsed entry of the option master.
type Master struct {
	Text string // as written
	Host string
	Port int // request port
	// Search, if set, searches the network for masters before the name is looked up.
	Search func(context.Context) []Endpoint
}

// Endpoint returns the host and request port as written.
func (m Master) Endpoint() Endpoint { return Endpoint{m.Host, m.Port} }

// Is reports whether a name is that of this master: its host, or the whole entry as
// configured.
func (m Master) Is(name string) bool { return name == m.Host || name == m.Text }

// Parse reads name, name:port, [v6]:port or a bare IPv6 address.
func Parse(text string, defaultPort int, ipOnly bool) (Master, error) {
	m := Master{Text: text, Host: text, Port: defaultPort}
	if ipOnly {
		if net.ParseIP(text) == nil {
			return m, fmt.Errorf("master %q is not an address, which master_uri_format: ip_only demands", text)
		}
		return m, nil
	}
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		return m, fmt.Errorf("master %q is a URL: write the host alone, or host:port, without %s://: %s", text, scheme, host)
	}
	switch {
	case strings.HasPrefix(text, "["):
		end := strings.IndexByte(text, ']')
		if end < 0 {
			return m, fmt.Errorf("master %q: no ] after [", text)
		}
		m.Host = text[1:end]
		if rest := text[end+1:]; rest != "" {
			p, err := parsePort(strings.TrimPrefix(rest, ":"))
			if err != nil || rest[0] != ':' {
				return m, fmt.Errorf("master %q: expected [address]:port", text)
			}
			m.Port = p
		}
	case strings.Count(text, ":") == 1:
		h, p, _ := strings.Cut(text, ":")
		port, err := parsePort(p)
		if err != nil {
			return m, fmt.Errorf("master %q: %w", text, err)
		}
		m.Host, m.Port = h, port
	default:
		if address, _, _ := strings.Cut(text, "%"); strings.Contains(text, ":") && net.ParseIP(address) == nil {
			return m, fmt.Errorf("master %q is not a host name or address; write host, host:port, or [address]:port for IPv6", text)
		}
	}
	if strings.Contains(text, ",") {
		return m, fmt.Errorf("master %q is not a host name or address; write several masters as a list: [%s]", text, text)
	}
	if m.Host == "" || strings.ContainsAny(m.Host, " \t/") {
		return m, fmt.Errorf("master %q is not a host name or address", text)
	}
	return m, nil
}

func parsePort(s string) (int, error) {
	p, err := strconv.Atoi(s)
	if err != nil || p < 1 || p > 65535 {
		return 0, fmt.Errorf("%q is not a port (1 to 65535)", s)
	}
	return p, nil
}

// Resolve looks up the current addresses of a master. It caches nothing, so that a master
// may move.
func (a Master) Resolve(ctx context.Context, r *net.Resolver) ([]Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if a.Search != nil {
		if found := a.Search(ctx); len(found) > 0 {
			return found, nil
		}
	}
	if !IsService(a.Host) {
		return lookUpHost(ctx, r, a.Host, a.Port)
	}
	hosts, err := LookUpService(ctx, r, a.Host)
	if err != nil {
		return nil, err
	}
	var out []Endpoint
	for _, h := range hosts {
		found, failed := lookUpHost(ctx, r, h.Host, h.Port)
		if failed != nil {
			err = failed
		}
		out = append(out, found...)
	}
	if len(out) > 0 {
		return out, nil
	}
	return nil, err
}

func lookUpHost(ctx context.Context, r *net.Resolver, host string, port int) ([]Endpoint, error) {
	if net.ParseIP(host) != nil {
		return []Endpoint{{host, port}}, nil
	}
	ips, err := r.LookupHost(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("cannot resolve the master's name %q: %w", host, err)
	}
	out := make([]Endpoint, 0, len(ips))
	for _, ip := range ips {
		out = append(out, Endpoint{ip, port})
	}
	return out, nil
}

// IsService reports whether a name is that of a DNS service. Such names begin with an
// underscore; host names do not.
func IsService(name string) bool {
	return strings.HasPrefix(name, "_") && strings.Contains(name, "._tcp.")
}

// LookUpService returns the hosts of a DNS service by priority, in random order by weight
// (RFC 2782).
func LookUpService(ctx context.Context, r *net.Resolver, name string) ([]Endpoint, error) {
	_, found, err := r.LookupSRV(ctx, "", "", name)
	if err != nil {
		return nil, fmt.Errorf("cannot look up the masters of %q: %w", name, err)
	}
	var out []Endpoint
	for _, s := range found {
		if host := strings.TrimSuffix(s.Target, "."); host != "" && s.Port > 0 {
			out = append(out, Endpoint{host, int(s.Port)})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the DNS service %q names no host", name)
	}
	return out, nil
}

// Endpoint is an address to connect to.
type Endpoint struct {
	Host string
	Port int
}

// String returns host:port, or [v6]:port.
func (e Endpoint) String() string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }
