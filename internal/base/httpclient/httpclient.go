// Package httpclient makes HTTP clients. What a client has to decide (proxies,
// redirects, times) is an option of one function, and off unless it is set.
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

// Options are those of a client.
type Options struct {
	TLS *tls.Config
	// Proxies uses the proxies that the environment names, as curl does; ByProxy those
	// of the caller.
	Proxies bool
	ByProxy Proxy
	// DialTimeout bounds the connection and the TLS handshake each, HeaderTimeout the wait for the head of an
	// answer, and Timeout the whole request. 0 does not bound.
	DialTimeout, HeaderTimeout, Timeout time.Duration
	// Dial connects in place of net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// StayHere returns redirects as answers: credentials are for one server only.
	StayHere bool
	// HTTP2 tries HTTP/2 over TLS.
	HTTP2 bool
	// Once closes a connection after one request. Else MaxIdle connections to a server,
	// 2 if it is 0, are kept for IdleTimeout, which 0 does not bound.
	Once        bool
	MaxIdle     int
	IdleTimeout time.Duration
	// MaxHeader bounds the head of an answer in bytes; 0 is the standard library's bound.
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
