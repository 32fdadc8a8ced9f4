// Package remote connects to servers that caches and returners use: redis, MySQL and PostgreSQL here, etcd
// and consul in packages below. It reads their options, which have Salt's names, and opens clients with
// timeouts for all requests. Opening never connects: an unreachable server is reported at the first use.
package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/httpclient"
	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// Source returns the value of an option by its full name, nil if it is not set.
type Source func(name string) any

// Options is the Source of a dict of options. The option a.b may also be the key b of a map named a.
func Options(d *value.Dict) Source {
	return func(name string) any {
		if v, ok := d.Get(name); ok {
			return v
		}
		head, tail, ok := strings.Cut(name, ".")
		for ok {
			if v, ok := d.Dict(head).Get(tail); ok {
				return v
			}
			var more string
			if more, tail, ok = strings.Cut(tail, "."); ok {
				head += "." + more
			}
		}
		return nil
	}
}

// Or returns a Source that uses further sources for options missing in s.
func (s Source) Or(more ...Source) Source {
	return func(name string) any {
		v := s(name)
		for _, m := range more {
			if v != nil {
				break
			}
			v = m(name)
		}
		return v
	}
}

// Settings returns one setting of a server by its short name, such as host;
// nil if it is not set.
type Settings func(name string) any

// Under returns the settings whose option names begin with a prefix, such as cache.redis.
func (s Source) Under(prefix string) Settings {
	return func(name string) any { return s(prefix + "." + name) }
}

// ForReturn returns the settings of a returner for one job, in Salt's order: the job's keywords, the options
// of the job's alternative configuration, the general ones.
func (s Source) ForReturn(prefix, config string, keywords *value.Dict) Settings {
	usual := s.Under(prefix)
	return func(name string) any {
		if v, ok := keywords.Get(name); ok {
			return v
		}
		if config != "" {
			if v := s(config + "." + prefix + "." + name); value.Truth(v) {
				return v
			}
		}
		return usual(name)
	}
}

// Text returns a string; usual replaces an empty value and the word None.
func (s Settings) Text(name, usual string) string {
	v := s(name)
	if t, ok := v.(string); ok && strings.EqualFold(t, "none") || v == nil {
		return usual
	}
	return value.Str(v)
}

// Int returns a number.
func (s Settings) Int(name string, usual int) (int, error) {
	t := s.Text(name, "")
	if t == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(t)
	if err != nil {
		return 0, salt.Errorf(salt.Invalid, "the option %s is %q, not a number", name, t)
	}
	return n, nil
}

// maxPort is the highest number of a port.
const maxPort = 1<<16 - 1

// Port returns the setting port.
func (s Settings) Port(usual int) (int, error) {
	n, err := s.Int("port", usual)
	if err == nil && (n < 1 || n > maxPort) {
		return 0, salt.Errorf(salt.Invalid, "the option port is %d, not a port from 1 to %d", n, maxPort)
	}
	return n, err
}

// Bool returns whether a setting is true.
func (s Settings) Bool(name string, usual bool) bool {
	v := s(name)
	if v == nil {
		return usual
	}
	if t, ok := v.(string); ok {
		return !strings.EqualFold(t, "false") && !strings.EqualFold(t, "none") && t != ""
	}
	return value.Truth(v)
}

// Address returns host:port.
func (s Settings) Address(host string, port int) (string, error) {
	n, err := s.Port(port)
	return net.JoinHostPort(s.Text("host", host), strconv.Itoa(n)), err
}

// TLS returns a configuration from files: the trusted certificates, and this side's certificate and key, each
// "" for none. If verify is false, any server is accepted.
func TLS(ca, cert, key, host string, verify bool) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, InsecureSkipVerify: !verify, MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, salt.Errorf(salt.Invalid, "cannot read the certificates to trust: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, salt.Errorf(salt.Invalid, "%s holds no certificate", ca)
		}
	}
	if cert != "" {
		if key == "" {
			key = cert
		}
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, salt.Errorf(salt.Invalid, "cannot read the certificate for the server: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// maxIdle bounds idle connections.
const maxIdle = 4

// HTTP returns a client for a server's HTTP API, without proxies.
func HTTP(t *tls.Config, timeout time.Duration) *http.Client {
	return httpclient.New(httpclient.Options{TLS: t, DialTimeout: timeout, Timeout: timeout, MaxIdle: maxIdle, IdleTimeout: time.Minute})
}

// Failed adds the kind Unavailable to an error of a server, unless it has a kind.
func Failed(what string, err error) error {
	var e *salt.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return salt.Errorf(salt.Unavailable, "%s does not answer", what)
	}
	return salt.Errorf(salt.Unavailable, "%s: %w", what, err)
}
