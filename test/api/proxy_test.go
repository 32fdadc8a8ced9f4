package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// TestHAProxy: with the configuration of docs/rest-api.md clients are distinguished by their
// addresses, browsers get the cookie, events arrive at once, and a dead master gets no requests.
func TestHAProxy(t *testing.T) {
	program := tools.Need(t, "haproxy", "haproxy")
	page, err := os.ReadFile("../../docs/rest-api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(page), "\n    frontend salt\n")
	block, _, ok2 := strings.Cut(block, "\n\nnginx")
	if !ok || !ok2 {
		t.Fatal("docs/rest-api.md has no configuration of HAProxy")
	}
	front := daemontest.Host()
	cert, key := certificate(t, front)
	s := startWith(t, daemontest.Host(), func(conf string) string { return conf + "  trusted_proxies: [127.0.0.1]\n  login_limit: 3\n" })
	dir := daemontest.ShortDir(t)
	var pem []byte
	for _, f := range []string{cert, key} {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		pem = append(append(pem, b...), '\n')
	}
	both := filepath.Join(dir, "salt.pem")
	conf := "global\ndefaults\n    timeout connect 10s\n    timeout client 10m\n    timeout check 5s\n    default-server inter 200ms fall 1 rise 1\n" +
		"frontend salt\n" +
		regexp.MustCompile(`(?m)^    `).ReplaceAllString(block, "") + "\n"
	address := strings.TrimPrefix(s.url, "http://")
	conf = strings.NewReplacer("bind :443", "bind "+front+":8443", "/etc/haproxy/salt.pem", both, "10.0.0.1:8000", address,
		"        server m2 10.0.0.2:8000 check\n", "", "    server m2 10.0.0.2:8000 check\n", "").Replace(conf)
	file := filepath.Join(dir, "haproxy.cfg")
	for name, b := range map[string][]byte{both: pem, file: []byte(conf)} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	proxy := exec.Command(program, "-db", "-f", file)
	proxy.Stdout, proxy.Stderr = &out, &out
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		proxy.Process.Kill()
		proxy.Wait()
		if t.Failed() {
			t.Logf("%s\n%s", conf, &out)
		}
	})
	// client returns a client with a separate address.
	client := func(from string) *http.Client {
		d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		return &http.Client{Transport: &http.Transport{DialContext: d.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			DisableKeepAlives: true}}
	}
	send := func(c *http.Client, method, path, body string, headers ...string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "https://"+front+":8443"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", asJSON)
		for i := 0; i+1 < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := c.Do(r)
		if err != nil {
			return &http.Response{}, err.Error()
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp, string(b)
	}
	one, two := client(daemontest.Host()), client(daemontest.Host())
	eventually.Nil(t, time.Minute, "the proxy serves", func() error {
		if resp, body := send(one, "GET", "/health", ""); resp.StatusCode != 200 {
			return fmt.Errorf("%d %s", resp.StatusCode, body)
		}
		return nil
	})
	const login = `{"username":"admin","password":%q,"eauth":"sharedsecret"}`
	// The first address has used its three wrong logins, whatever its headers claim.
	for i, want := range []int{401, 401, 401, 429} {
		if resp, body := send(one, "POST", "/login", fmt.Sprintf(login, "bad"), "X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i)); resp.StatusCode != want {
			t.Errorf("wrong login %d: %d %s", i, resp.StatusCode, body)
		}
	}
	resp, body := send(two, "POST", "/login", fmt.Sprintf(login, "s3cret"), "Origin", "https://"+front+":8443")
	if resp.StatusCode != 200 || len(resp.Cookies()) != 1 || !resp.Cookies()[0].Secure || resp.Cookies()[0].Value == "" {
		t.Fatalf("login from another address: %d %s %v", resp.StatusCode, body, resp.Cookies())
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, err := http.NewRequestWithContext(ctx, "GET", "https://"+front+":8443/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: "session_id", Value: resp.Cookies()[0].Value})
	stream, err := two.Do(r)
	if err != nil || stream.StatusCode != 200 {
		t.Fatal(err, stream)
	}
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	lines.Buffer(nil, 1<<20)
	lines.Scan() // retry
	if resp, body := send(two, "POST", "/hook/seen", `{"a":1}`); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	for lines.Scan() && lines.Text() != "tag: salt/netapi/hook/seen" {
	}
	if lines.Text() != "tag: salt/netapi/hook/seen" {
		t.Errorf("the event did not come: %v", lines.Err())
	}
	stop()
	s.master.Kill()
	eventually.Nil(t, time.Minute, "the salt-api of a dead master is taken out", func() error {
		if resp, body := send(one, "GET", "/", "", "Accept", asJSON); resp.StatusCode != 503 || strings.Contains(body, `"return"`) {
			return fmt.Errorf("%d %s", resp.StatusCode, body)
		}
		return nil
	})
	if a := s.do("GET", "/health", ""); a.status != 503 {
		t.Errorf("/health with a dead master: %d %s", a.status, a.body)
	}
}
