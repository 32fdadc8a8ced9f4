package api

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"brine/internal/base/metrics"
	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// Options are the API's options in the master's configuration.
type Options struct {
	REST    *value.Dict   `salt:"rest_cherrypy" default:"null" doc:"settings of salt-api: port, host, ssl_crt, ssl_key, disable_ssl and more" change:"restart"`
	Enable  any           `salt:"netapi_enable_clients" default:"[]" doc:"clients that salt-api may use: local, local_async, local_batch, local_subset, runner, runner_async, wheel, wheel_async" change:"restart"`
	Timeout time.Duration `salt:"rest_timeout" default:"300" doc:"seconds that salt-api waits for a function" change:"restart"`
	LogFile string        `salt:"api_logfile" default:"/var/log/salt/api" doc:"log file of salt-api" change:"restart"`
	Metrics string        `salt:"api_metrics_address" default:"" doc:"address and port where salt-api serves /metrics for Prometheus, /livez and /readyz, as metrics_address does for other daemons; empty: off (Brine only)" change:"restart"`
	PIDFile string        `salt:"api_pidfile" default:"/var/run/salt-api.pid" doc:"file for the number of salt-api's process" change:"restart"`
}

// Settings are the parsed section rest_cherrypy.
type Settings struct {
	Host               string
	Port               int
	Cert, Key, Chain   string
	Plain              bool // disable_ssl
	MaxBody            int64
	Webhook            string
	WebhookOpen        bool
	Stats, StatsOpen   bool
	Static, StaticPath string
	App, AppPath       string
	Favicon, Prefix    string
	Sessions           bool
	// Console serves the web console at /console. ConsoleMasters are the origins of the
	// salt-api of other masters, to which its pages switch if this one is lost.
	Console        bool
	ConsoleMasters []string
	// ConsoleIdle is the time without input of the user after which a session of the console
	// ends; 0: it does not.
	ConsoleIdle time.Duration
	// ApprovalAbove is the master's option approval_above, for the pages of the console.
	ApprovalAbove int
	// CodeFlow starts sign-ins at an OpenID provider; nil if none is configured for browsers.
	CodeFlow CodeFlow
	// Door lets browsers in without a password; nil: there is none.
	Door *Door
	// EAuth are the authentication systems that the console offers.
	EAuth         []string
	ACL           *value.Dict // api_acl; nil: all users may log in
	AuthorizedIPs []string
	// OwnEvents decides whether streams show a user only the events of its own
	// jobs; nil: only users without permission for the event bus.
	OwnEvents *bool
	// Origins are the other sites whose pages may use the session cookie; "*" means
	// all.
	Origins []string
	// Proxies are the addresses whose X-Forwarded-For is trusted.
	Proxies []netip.Prefix
	// LoginLimit is the number of wrong logins per minute, user and address; 0: no
	// limit.
	LoginLimit int
	// MaxConnections limits the open connections, MaxPerAddress those of one
	// address; 0: no limit.
	MaxConnections, MaxPerAddress int
	// HSTS is the number of seconds for which browsers use only TLS for this host; 0 means
	// that the header is not sent.
	HSTS        int
	Clients     []string
	SessionsDir string
	Timeout     time.Duration
	hasACL      bool
	// bodyTime, writeTime and checkTime are the constants of these names, except in
	// tests.
	bodyTime, writeTime, checkTime time.Duration
	// local is localPeer, except in tests.
	local func(remote, local netip.Addr) bool
}

// CodeFlow is the start of an OpenID sign-in by a browser.
type CodeFlow interface {
	// URL returns the provider's page to which the browser goes.
	URL(ctx context.Context, state, challenge, nonce string) (string, error)
}

// known are the keys of rest_cherrypy. Those of Salt's threads and logs are accepted, but
// have no effect.
var known = []string{"port", "host", "ssl_crt", "ssl_key", "ssl_chain", "disable_ssl", "max_request_body_size", "debug", "webhook_url",
	"webhook_disable_auth", "collect_stats", "stats_disable_auth", "static", "static_path", "app", "app_path", "favicon", "root_prefix",
	"enable_sessions", "api_acl", "authorized_ips", "own_events", "cors_origins", "trusted_proxies", "login_limit", "hsts_max_age",
	"max_connections", "max_connections_per_address", "console", "console_masters", "console_idle",
	"thread_pool", "socket_queue_size", "queue_size", "log_access_file", "log_error_file",
	"log.access_file", "log.error_file", "expire_responses", "backlog", "engine"}

// Read checks the options. dir is the directory of the sessions.
func (o *Options) Read(dir string) (*Settings, error) {
	d := o.REST
	var faults []error
	fault := func(key, format string, args ...any) {
		faults = append(faults, fmt.Errorf("rest_cherrypy: %s: %w", key, fmt.Errorf(format, args...)))
	}
	text := func(key, usual string) string {
		v, ok := d.Get(key)
		if !ok || v == nil {
			return usual
		}
		s, ok := v.(string)
		if !ok {
			fault(key, "must be a text, and is %s", value.TypeName(v))
		}
		return s
	}
	number := func(key string, usual, least, most int64) int64 {
		v, ok := d.Get(key)
		if !ok {
			return usual
		}
		n, ok := v.(int64)
		if !ok || n < least || n > most {
			fault(key, "must be a number from %d to %d", least, most)
		}
		return n
	}
	truth := func(key string, usual bool) bool {
		v, ok := d.Get(key)
		if !ok {
			return usual
		}
		if _, isText := v.(string); isText { // also "no" would count as true
			fault(key, "must be True or False, without quotes, and is a text")
		}
		return value.Truth(v)
	}
	s := &Settings{
		Host: text("host", "0.0.0.0"), Port: int(number("port", 0, 0, 65535)),
		Cert: text("ssl_crt", ""), Key: text("ssl_key", ""), Chain: text("ssl_chain", ""), Plain: truth("disable_ssl", false),
		MaxBody: number("max_request_body_size", 1<<20, 1, 1<<30),
		Webhook: "/" + strings.Trim(text("webhook_url", "/hook"), "/"), WebhookOpen: truth("webhook_disable_auth", false),
		Stats: truth("collect_stats", false), StatsOpen: truth("stats_disable_auth", false),
		Static: text("static", ""), StaticPath: "/" + strings.Trim(text("static_path", "/static"), "/"),
		App: text("app", ""), AppPath: "/" + strings.Trim(text("app_path", "/app"), "/"),
		Favicon: text("favicon", ""), Prefix: strings.TrimSuffix("/"+strings.Trim(text("root_prefix", "/"), "/"), "/"),
		Console: truth("console", true), Sessions: truth("enable_sessions", true), Timeout: o.Timeout, SessionsDir: dir,
		ConsoleIdle: time.Duration(number("console_idle", 60, 0, 1<<20)) * time.Minute,
		LoginLimit:  int(number("login_limit", 20, 0, 1<<20)), HSTS: int(number("hsts_max_age", 0, 0, 1<<31-1)),
		MaxConnections: int(number("max_connections", maxConnections, 1, 1<<20)),
		MaxPerAddress:  int(number("max_connections_per_address", maxPerAddress, 0, 1<<20)),
		local:          localPeer, bodyTime: bodyTime, writeTime: writeTime, checkTime: checkTime,
	}
	if !d.Has("port") {
		fault("port", "is missing: set it to the port that salt-api is to listen on")
	}
	if err := metrics.Check("api_metrics_address", o.Metrics); err != nil {
		faults = append(faults, err)
	}
	if acl, ok := d.Get("api_acl"); ok {
		s.hasACL = true
		m, ok := acl.(*value.Dict)
		if !ok && acl != nil {
			fault("api_acl", "must be a map with users, and is %s", value.TypeName(acl))
		}
		s.ACL = m.Dict("users")
	}
	if v, ok := d.Get("own_events"); ok && v != nil {
		own := value.Truth(v)
		s.OwnEvents = &own
	}
	for _, v := range list(d.At("cors_origins")) {
		u, err := url.Parse(value.Str(v))
		if value.Str(v) != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "") {
			fault("cors_origins", "%q is no origin; one is written https://host:port", value.Str(v))
		}
		s.Origins = append(s.Origins, value.Str(v))
	}
	for _, v := range list(d.At("console_masters")) {
		u, err := url.Parse(value.Str(v))
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Path != "" || strings.ContainsAny(u.Host, " ;,'\"") {
			fault("console_masters", "%q is no origin; one is written https://host:port", value.Str(v))
			continue
		}
		s.ConsoleMasters = append(s.ConsoleMasters, value.Str(v))
	}
	for _, v := range list(d.At("authorized_ips")) {
		a, err := netip.ParseAddr(value.Str(v))
		if err != nil {
			fault("authorized_ips", "%q is no address", value.Str(v))
		}
		s.AuthorizedIPs = append(s.AuthorizedIPs, a.Unmap().String())
	}
	for _, v := range list(d.At("trusted_proxies")) {
		p, err := netip.ParsePrefix(value.Str(v))
		if a, bad := netip.ParseAddr(value.Str(v)); bad == nil {
			p, err = a.Prefix(a.BitLen())
		}
		if p, ok := unmapped(p); ok {
			s.Proxies = append(s.Proxies, p)
			continue
		}
		if err != nil || p.Addr().Is4In6() {
			fault("trusted_proxies", "%q is no address or network; write 192.0.2.1 or 192.0.2.0/24", value.Str(v))
		}
		s.Proxies = append(s.Proxies, p)
	}
	for _, v := range list(o.Enable) {
		s.Clients = append(s.Clients, value.Str(v))
	}
	switch {
	case s.Plain:
	case s.Cert == "" || s.Key == "":
		fault("ssl_crt", "and ssl_key are needed, the certificate and its key; or set disable_ssl: True, with which passwords travel in clear")
	default:
		for _, option := range [][2]string{{"ssl_crt", s.Cert}, {"ssl_key", s.Key}, {"ssl_chain", s.Chain}} {
			key, file := option[0], option[1]
			if fi, err := os.Stat(file); file != "" && err != nil {
				fault(key, "%w", err)
			} else if key == "ssl_key" && fi.Mode().Perm()&0o007 != 0 {
				fault(key, "everybody may read or write %s: run chmod 600 on it", file)
			}
		}
	}
	for k := range d.All() {
		if name := value.Str(k); !slices.Contains(known, name) {
			fault(name, "is not known")
		}
	}
	for _, p := range []*string{&s.Webhook, &s.StaticPath, &s.AppPath} {
		*p = path.Clean(*p)
	}
	if len(faults) > 0 {
		return nil, &salt.Error{Kind: salt.Invalid, Err: errors.Join(faults...)}
	}
	return s, nil
}

// unmapped converts a network of IPv4-mapped IPv6 addresses to IPv4, and reports whether
// that is possible.
func unmapped(p netip.Prefix) (netip.Prefix, bool) {
	const mapped = 96 // bits of the common prefix ::ffff:0:0
	if !p.Addr().Is4In6() || p.Bits() < mapped {
		return p, false
	}
	return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped), true
}

// trustsProxy reports whether an address belongs to trusted_proxies.
func (s *Settings) trustsProxy(addr string) bool {
	if len(s.Proxies) == 0 {
		return false
	}
	a, err := netip.ParseAddr(addr)
	return err == nil && s.trusts(a)
}

// trusts is like trustsProxy, for a parsed address.
func (s *Settings) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(s.Proxies, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}

// list returns the items of an option that is a single value or a list.
func list(v any) []any {
	switch x := v.(type) {
	case nil:
		return nil
	case *value.List:
		if x == nil {
			return nil
		}
		return x.Items
	}
	return []any{v}
}
