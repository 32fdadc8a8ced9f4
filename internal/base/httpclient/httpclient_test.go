package httpclient

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// TestNew checks that by default, a client follows redirects, uses no proxy and
// keeps connections.
func TestNew(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/there", http.StatusFound)
		}
	}))
	defer s.Close()
	for _, c := range []struct {
		name string
		o    Options
		want int
		path string
	}{
		{"followed", Options{}, http.StatusOK, "/there"},
		{"stays here", Options{StayHere: true}, http.StatusFound, "/"},
		{"own connection", Options{Once: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
		}}, http.StatusOK, "/there"},
	} {
		client := New(c.o)
		resp, err := client.Get(s.URL + "/")
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.want || resp.Request.URL.Path != c.path {
			t.Errorf("%s: %d of %s, want %d of %s", c.name, resp.StatusCode, resp.Request.URL.Path, c.want, c.path)
		}
		client.CloseIdleConnections()
	}
}

func TestProxies(t *testing.T) {
	of := func(o Options) Proxy { return New(o).Transport.(*http.Transport).Proxy }
	if of(Options{}) != nil {
		t.Error("a proxy without being asked for")
	}
	if of(Options{Proxies: true}) == nil {
		t.Error("the proxies of the environment are not used")
	}
	own := &url.URL{Host: "proxy"}
	p := of(Options{ByProxy: func(*http.Request) (*url.URL, error) { return own, nil }})
	if got, err := p(nil); got != own || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}
