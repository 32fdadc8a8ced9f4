package minion

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// masterAddr is one entry of the option master, taken apart.
type masterAddr struct {
	text string // as written
	host string
	port int // request port
	// search, if set, asks the network for the addresses of masters first.
	search func(context.Context) []endpoint
}

func (m masterAddr) endpoint() endpoint { return endpoint{m.host, m.port} }

// is reports whether a name means this master: its host, or the whole as it is
// written in the configuration.
func (m masterAddr) is(name string) bool { return name == m.host || name == m.text }

// parseMaster reads name, name:port, [v6]:port or a bare IPv6 address.
func parseMaster(text string, defaultPort int, ipOnly bool) (masterAddr, error) {
	m := masterAddr{text: text, host: text, port: defaultPort}
	if ipOnly {
		if net.ParseIP(text) == nil {
			return m, fmt.Errorf("master %q is not an address, which master_uri_format: ip_only demands", text)
		}
		return m, nil
	}
	switch {
	case strings.HasPrefix(text, "["):
		end := strings.IndexByte(text, ']')
		if end < 0 {
			return m, fmt.Errorf("master %q: no ] after [", text)
		}
		m.host = text[1:end]
		if rest := text[end+1:]; rest != "" {
			p, err := parsePort(strings.TrimPrefix(rest, ":"))
			if err != nil || rest[0] != ':' {
				return m, fmt.Errorf("master %q: expected [address]:port", text)
			}
			m.port = p
		}
	case strings.Count(text, ":") == 1:
		h, p, _ := strings.Cut(text, ":")
		port, err := parsePort(p)
		if err != nil {
			return m, fmt.Errorf("master %q: %w", text, err)
		}
		m.host, m.port = h, port
	}
	if m.host == "" || strings.ContainsAny(m.host, " \t/") {
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

// resolve returns the addresses of a master now. It asks anew each time, so
// that a master that moves is found.
func (a masterAddr) resolve(ctx context.Context, r *net.Resolver) ([]endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if a.search != nil {
		if found := a.search(ctx); len(found) > 0 {
			return found, nil
		}
	}
	if !isService(a.host) {
		return lookUpHost(ctx, r, a.host, a.port)
	}
	hosts, err := lookUpService(ctx, r, a.host)
	if err != nil {
		return nil, err
	}
	var out []endpoint
	for _, h := range hosts {
		found, failed := lookUpHost(ctx, r, h.host, h.port)
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

func lookUpHost(ctx context.Context, r *net.Resolver, host string, port int) ([]endpoint, error) {
	if net.ParseIP(host) != nil {
		return []endpoint{{host, port}}, nil
	}
	ips, err := r.LookupHost(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("cannot resolve the master's name %q: %w", host, err)
	}
	out := make([]endpoint, 0, len(ips))
	for _, ip := range ips {
		out = append(out, endpoint{ip, port})
	}
	return out, nil
}

func joinPort(host string, port int) string { return endpoint{host, port}.String() }
