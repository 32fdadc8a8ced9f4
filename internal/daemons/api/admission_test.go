package api

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"brine/internal/py/value"
	"brine/test/eventually"
)

// from returns a client with another address of the loopback network.
func (r *running) from(addr string) *running {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	other := *r
	other.client = &http.Client{Transport: &http.Transport{
		DialContext: d.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	return &other
}

// silent opens connections that send nothing, and reads from them until they
// end.
func (r *running) silent(addr string, n int) {
	r.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	for range n {
		c, err := d.Dial("tcp", r.Addr().String())
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { c.Close() })
	}
}

// follow opens /events and returns its lines. end closes the stream, and so does the end of
// the test.
func (r *running) follow(id string, headers ...string) (lines *bufio.Scanner, end func(), err error) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", r.url+"/events", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("X-Auth-Token", id)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	end = func() { cancel(); resp.Body.Close() }
	r.t.Cleanup(end)
	if resp.StatusCode != http.StatusOK {
		return nil, nil, &failure{resp.StatusCode, resp.Header.Get("Retry-After")}
	}
	return bufio.NewScanner(resp.Body), end, nil
}

// open waits until from least to most connections are open.
func (r *running) open(what string, least, most int) {
	r.t.Helper()
	eventually.Nil(r.t, time.Minute, what, func() error {
		if n := r.admitted.count(); n < least || n > most {
			return fmt.Errorf("%d connections are open, want %d to %d", n, least, most)
		}
		return nil
	})
}

// remotePeers makes every address except 127.0.0.1 count as remote.
func remotePeers(s *Settings) {
	s.local = func(remote, _ netip.Addr) bool { return remote == netip.AddrFrom4([4]byte{127, 0, 0, 1}) }
}

// TestSilentConnectionsAreBounded: connections that send nothing are limited, in total and
// per address. They block neither health checks nor users nor open streams.
func TestSilentConnectionsAreBounded(t *testing.T) {
	const total, each = 20, 8
	cert, key := pair(t)
	for _, plain := range []bool{true, false} {
		s := settings(t, fmt.Sprintf("max_connections: %d, max_connections_per_address: %d, ssl_crt: %s, ssl_key: %s", total, each, cert, key))
		s.Plain = plain
		remotePeers(&s)
		r := serve(t, s)
		id := r.login()
		crowded := r.from("127.0.0.2")
		lines, _, err := crowded.follow(id)
		if err != nil {
			t.Fatal(err)
		}
		r.silent("127.0.0.2", 3*each)
		r.open("the bound of one address", each, each)
		for i := range 2 * total {
			r.silent(fmt.Sprintf("127.0.1.%d", i+1), 1)
		}
		r.open("the bound of all", total, total)
		if n := r.admitted.evicted.Load(); n == 0 {
			t.Error("no connection was displaced")
		}
		for what, c := range map[string]*running{"local": r, "of an unauthenticated peer": r.from("127.0.0.3"), "of a crowded address": crowded} {
			if resp, b := c.do("GET", "/health", ""); resp.StatusCode != http.StatusOK {
				t.Errorf("health check %s: %d %s", what, resp.StatusCode, b)
			}
			c.login()
		}
		// The stream was opened before all others, from the address with the most
		// connections.
		r.events.Fire("after/the/flood", value.NewDict(0))
		for lines.Scan() && lines.Text() != "tag: after/the/flood" {
		}
		if lines.Text() != "tag: after/the/flood" {
			t.Errorf("the stream has ended: %v", lines.Err())
		}
	}
}

// TestConnectionsOfUsersAreBounded: if all connections have presented a valid session,
// further ones are closed at once, before TLS, except those from this machine.
func TestConnectionsOfUsersAreBounded(t *testing.T) {
	const total, each = 6, 4
	cert, key := pair(t)
	s := settings(t, fmt.Sprintf("max_connections: %d, max_connections_per_address: %d, ssl_crt: %s, ssl_key: %s", total, each, cert, key))
	s.Plain = false
	remotePeers(&s)
	r := serve(t, s)
	id := r.login()
	r.open("the login is over", 0, 0)
	var ends []func()
	for i := range total {
		c := r.from("127.0.0.2")
		if i >= each {
			c = r.from("127.0.0.3")
		}
		_, end, err := c.follow(id)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
		if i == each-1 { // the address has reached its limit
			if _, _, err := c.follow(id); err == nil {
				t.Error("one more stream of an address is admitted")
			}
			if resp, _ := r.from("127.0.0.3").do("GET", "/health", ""); resp.StatusCode != http.StatusOK {
				t.Errorf("a health check of another address: %d", resp.StatusCode)
			}
			r.open("the health check is over", each, each)
		}
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 4)}}
	c, err := d.Dial("tcp", r.Addr().String())
	if err == nil { // otherwise the connection was refused before the dial returned
		defer c.Close()
		c.SetReadDeadline(time.Now().Add(time.Minute))
		var n int
		if n, err = c.Read(make([]byte, 1)); n != 0 {
			t.Error("a connection beyond the bound is answered")
		}
	}
	if err == nil || isTimeout(err) {
		t.Errorf("a connection beyond the bound: %v", err)
	}
	var silent []net.Conn
	for range reserved {
		c, err := net.Dial("tcp", r.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	r.open("the reserve of this machine", total+reserved, total+reserved)
	if resp, _ := r.do("GET", "/health", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("a local health check: %d", resp.StatusCode)
	}
	_, b := r.do("GET", "/metrics", "", "X-Auth-Token", id)
	for _, want := range []string{`brine_api_connections \d\d\n`, `brine_api_connections_refused_total [2-9]\n`, `brine_api_connections_displaced_total [1-9]\n`} {
		if !regexp.MustCompile(want).MatchString(b) {
			t.Errorf("/metrics have no %q: %s", want, b)
		}
	}
	for _, end := range ends {
		end()
	}
	for _, c := range silent {
		c.Close()
	}
	r.open("all connections are over", 0, 0)
	r.from("127.0.0.4").login()
}

func isTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}

// TestConnectionsAreForgotten: no connection is counted twice or forever, however it ends.
func TestConnectionsAreForgotten(t *testing.T) {
	s := settings(t, "max_connections: 50, max_connections_per_address: 3")
	remotePeers(&s)
	r := serve(t, s)
	id := r.login()
	for i := range 60 {
		c := r.from(fmt.Sprintf("127.0.2.%d", i%20))
		c.do("GET", []string{"/health", "/jobs", "/ws", "/events?token=00"}[i%4], "", "X-Auth-Token", []string{id, ""}[i%2])
	}
	r.open("all connections are over", 0, 0)
	a := r.admitted
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.perHost) != 0 || a.unproven[0].Len() != 0 || a.unproven[1].Len() != 0 || len(a.requests) != 0 {
		t.Errorf("%d addresses, %d and %d connections, %d clients are remembered", len(a.perHost), a.unproven[0].Len(), a.unproven[1].Len(), len(a.requests))
	}
}

// TestClientsBehindAProxyAreBounded: behind a trusted proxy the limit counts the requests
// of each client, because the connections are the proxy's.
func TestClientsBehindAProxyAreBounded(t *testing.T) {
	const each = 3
	s := settings(t, fmt.Sprintf("max_connections: 100, max_connections_per_address: %d, trusted_proxies: [127.0.0.2]", each))
	remotePeers(&s)
	r := serve(t, s)
	id := r.login()
	proxy := r.from("127.0.0.2")
	var ends []func()
	for range each {
		_, end, err := proxy.follow(id, "X-Forwarded-For", "203.0.113.1, 192.0.2.7")
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	for client, want := range map[string]int{
		"192.0.2.7": http.StatusTooManyRequests, "192.0.2.8, 192.0.2.7": http.StatusTooManyRequests, "192.0.2.8": http.StatusOK,
		"192.0.2.7, 192.0.2.8": http.StatusOK, "203.0.113.1": http.StatusOK, "": http.StatusOK,
	} {
		resp, b := proxy.do("GET", "/health", "", "X-Forwarded-For", client)
		if resp.StatusCode != want {
			t.Errorf("%q: %d %s", client, resp.StatusCode, b)
		}
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); want == http.StatusTooManyRequests && (err != nil || n < 1) {
			t.Errorf("%q: Retry-After %q", client, resp.Header.Get("Retry-After"))
		}
	}
	for _, end := range ends {
		end()
	}
	eventually.Nil(t, time.Minute, "the client is served again", func() error {
		if resp, _ := proxy.do("GET", "/health", "", "X-Forwarded-For", "192.0.2.7"); resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	})
}

// TestLoginLimitBehindProxies: login_limit counts the client that a trusted proxy names,
// and ignores X-Forwarded-For from other peers.
func TestLoginLimitBehindProxies(t *testing.T) {
	const most = 3
	s := settings(t, fmt.Sprintf("login_limit: %d, trusted_proxies: [127.0.0.2, 127.0.0.3]", most))
	r := serve(t, s)
	wrong := func(via, forwarded string) int {
		resp, _ := r.from(via).do("POST", "/login", "username=ann&password=x&eauth=x", "Content-Type", form, "X-Forwarded-For", forwarded)
		return resp.StatusCode
	}
	for _, c := range []struct{ via, forwarded, next string }{
		{"127.0.0.2", "192.0.2.7", "192.0.2.7"},
		{"127.0.0.2", "192.0.2.%d, 192.0.2.8", "192.0.2.99, 192.0.2.8"},                      // forged by the client
		{"127.0.0.2", "192.0.2.%d, 127.0.0.3, 192.0.2.9", "127.0.0.2, 127.0.0.3, 192.0.2.9"}, // forged with the addresses of proxies
		{"127.0.0.3", "192.0.2.%d, 192.0.2.10, 127.0.0.2", "192.0.2.10, 127.0.0.2"},          // two proxies
		{"127.0.0.2", "2001:db8::%d", "2001:db8::ffff"},                                      // one network
		{"127.0.0.4", "192.0.2.%d", "192.0.2.98"},                                            // not a proxy
		{"127.0.0.5", "127.0.0.2, 192.0.2.%d", ""},                                           // not a proxy either
		{"127.0.0.2", "::ffff:192.0.2.11", "192.0.2.11"},                                     // one address
		{"127.0.0.2", "192.0.2.12:80%d", "192.0.2.12"},                                       // with a port
	} {
		for i := range most {
			if got := wrong(c.via, strings.ReplaceAll(c.forwarded, "%d", fmt.Sprint(20+i))); got != http.StatusUnauthorized {
				t.Errorf("%+v: attempt %d: %d", c, i, got)
			}
		}
		if got := wrong(c.via, c.next); got != http.StatusTooManyRequests {
			t.Errorf("%+v: one more: %d", c, got)
		}
	}
	if got := wrong("127.0.0.2", "198.51.100.1"); got != http.StatusUnauthorized {
		t.Errorf("another client of the proxy: %d", got)
	}
}

// TestStatisticsNeedALivingToken: a session whose token the master has deleted gets no
// statistics.
func TestStatisticsNeedALivingToken(t *testing.T) {
	for _, path := range []string{"/stats", "/metrics", "/hook/a"} {
		method := map[bool]string{true: "POST", false: "GET"}[strings.HasPrefix(path, "/hook")]
		r := serve(t, settings(t, "collect_stats: true"))
		id := r.login()
		if resp, b := r.do(method, path, "", "X-Auth-Token", id); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", path, resp.StatusCode, b)
		}
		r.master.mu.Lock()
		clear(r.master.tokens)
		r.master.mu.Unlock()
		if resp, b := r.do(method, path, "", "X-Auth-Token", id); resp.StatusCode != http.StatusUnauthorized || strings.Contains(b, "brine") {
			t.Errorf("%s after the token's end: %d %s", path, resp.StatusCode, b)
		}
	}
	r := serve(t, settings(t, "collect_stats: true, stats_disable_auth: true"))
	for _, path := range []string{"/stats", "/metrics"} {
		if resp, _ := r.do("GET", path, "", "X-Auth-Token", strings.Repeat("0", 40)); resp.StatusCode != http.StatusOK {
			t.Errorf("%s without authentication: %d", path, resp.StatusCode)
		}
	}
}
