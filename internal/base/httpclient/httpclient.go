// Package httpclient creates HTTP clients. All decisions of a client (proxies, redirects, timeouts) are
// options of one function, and off by default.
package httpclient

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Proxy returns the proxy for a request, nil for none.
type Proxy func(*http.Request) (*url.URL, error)

// Options are the options of a client.
type Options struct {
	TLS *tls.Config
	// Proxies uses the proxies set in the environment, as curl does. ByProxy uses those of the caller.
	Proxies bool
	ByProxy Proxy
	// DialTimeout bounds the connection and the TLS handshake, each. HeaderTimeout bounds the wait for the
	// response header, and Timeout the whole request. 0 means no limit.
	DialTimeout, HeaderTimeout, Timeout time.Duration
	// Dial replaces net.Dialer for connections.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// StayHere returns redirects as responses, so that credentials are sent to one server only.
	StayHere bool
	// HTTP2 enables HTTP/2 over TLS.
	HTTP2 bool
	// Once closes a connection after one request. Otherwise, MaxIdle connections per server (2 if it is 0) are
	// kept for IdleTimeout (without a limit if it is 0).
	Once        bool
	MaxIdle     int
	IdleTimeout time.Duration
	// MaxHeader bounds the size of the response header, in bytes; 0 means the standard library's limit.
	MaxHeader int64
}

// New returns a client.
func New(o Options) *http.Client {
	t := &http.Transport{
		TLSClientConfig: o.TLS, Proxy: o.ByProxy, DialContext: o.Dial, ResponseHeaderTimeout: o.HeaderTimeout, ForceAttemptHTTP2: o.HTTP2,
		TLSHandshakeTimeout: o.DialTimeout,
		DisableKeepAlives:   o.Once, MaxIdleConnsPerHost: o.MaxIdle, IdleConnTimeout: o.IdleTimeout, MaxResponseHeaderBytes: o.MaxHeader,
	}
	if o.Proxies {
		t.Proxy = http.ProxyFromEnvironment
	}
	if o.Dial == nil {
		t.DialContext = (&net.Dialer{Timeout: o.DialTimeout}).DialContext
	}
	c := &http.Client{Transport: t, Timeout: o.Timeout}
	if o.StayHere {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return c
}
