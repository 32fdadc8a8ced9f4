// Package etcd is a client for an etcd server. It uses version 2 of the API, which Salt's drivers
// use unless etcd.require_v2 is false, or the JSON gateway of version 3. Both have the same
// interface: slash-separated paths with string values.
package etcd

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
	"brine/internal/py/value"
)

// Client talks to one of several servers of a cluster: the first that answers.
type Client struct {
	v3         bool
	srv        string // domain whose DNS names the servers, or ""
	scheme     string
	user, pass string
	http       *http.Client

	mu    sync.Mutex
	bases []string // the server that answered last is first
	token string   // of version 3
}

// New reads the settings host (one, or a list of servers, each with or without a port), port,
// protocol, srv_domain, username, password, require_v2, allow_redirect, and the file names ca_cert,
// cert (a file or a list of certificate and key) as in Salt's cache, or ca, client_cert, client_key
// as in its returner.
func New(s remote.Settings, timeout time.Duration) (*Client, error) {
	addrs, err := addresses(s)
	if err != nil {
		return nil, err
	}
	c := &Client{v3: !s.Bool("require_v2", true), srv: s.Text("srv_domain", ""), scheme: s.Text("protocol", "http"), user: s.Text("username", ""),
		pass: s.Text("password", "")}
	ca, cert, key := s.Text("ca_cert", s.Text("ca", "")), s.Text("cert", s.Text("client_cert", "")), s.Text("client_key", "")
	if pair, ok := s("cert").(*value.List); ok {
		if pair.Len() != 2 {
			return nil, salt.Errorf(salt.Invalid, "etcd.cert is a file, or a list of two: certificate and key")
		}
		cert, key = value.Str(pair.Items[0]), value.Str(pair.Items[1])
	}
	if ca != "" {
		c.scheme = "https"
	}
	if c.scheme != "http" && c.scheme != "https" {
		return nil, salt.Errorf(salt.Invalid, "etcd.protocol is %q, not http or https", c.scheme)
	}
	t, err := remote.TLS(ca, cert, key, "", true)
	if err != nil {
		return nil, err
	}
	c.http = remote.HTTP(t, timeout)
	if !s.Bool("allow_redirect", false) {
		c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	if c.srv == "" {
		for _, a := range addrs {
			c.bases = append(c.bases, c.scheme+"://"+a)
		}
	}
	return c, nil
}

// addresses are host:port of the servers.
func addresses(s remote.Settings) ([]string, error) {
	port, err := s.Port(2379)
	if err != nil {
		return nil, err
	}
	hosts := []string{s.Text("host", "127.0.0.1")}
	if l, ok := s("host").(*value.List); ok {
		hosts = nil
		for _, it := range l.Items {
			h, ok := it.(string)
			if !ok || h == "" {
				return nil, salt.Errorf(salt.Invalid, "etcd.host has %v, which is not host or host:port", it)
			}
			hosts = append(hosts, h)
		}
		if len(hosts) == 0 {
			return nil, salt.Errorf(salt.Invalid, "etcd.host is an empty list")
		}
	}
	for i, h := range hosts {
		if _, _, err := net.SplitHostPort(h); err != nil {
			hosts[i] = net.JoinHostPort(strings.Trim(h, "[]"), strconv.Itoa(port))
		}
	}
	return hosts, nil
}

// V3 reports whether the client uses version 3.
func (c *Client) V3() bool { return c.v3 }

// Close closes idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

func (c *Client) servers(ctx context.Context) ([]string, error) {
	c.mu.Lock()
	bases := c.bases
	c.mu.Unlock()
	if len(bases) > 0 {
		return bases, nil
	}
	_, found, err := net.DefaultResolver.LookupSRV(ctx, "etcd-client", "tcp", c.srv)
	if err != nil || len(found) == 0 {
		_, found, err = net.DefaultResolver.LookupSRV(ctx, "etcd", "tcp", c.srv)
	}
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot find the etcd servers of %s: %w", c.srv, err)
	}
	for _, f := range found {
		bases = append(bases, fmt.Sprintf("%s://%s", c.scheme, net.JoinHostPort(strings.TrimSuffix(f.Target, "."), strconv.Itoa(int(f.Port)))))
	}
	c.prefer(bases)
	return bases, nil
}

func (c *Client) prefer(bases []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bases = bases
}

// maxAnswer bounds an answer in bytes.
const maxAnswer = 512 << 20

// send tries the servers in order until one answers.
func (c *Client) send(ctx context.Context, method, path, typ string, body []byte, auth func(*http.Request)) (int, []byte, error) {
	bases, err := c.servers(ctx)
	if err != nil {
		return 0, nil, err
	}
	for i, base := range bases {
		var r *http.Request
		if r, err = http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body)); err != nil {
			return 0, nil, salt.Errorf(salt.Invalid, "etcd: %w", err)
		}
		if len(body) > 0 {
			r.Header.Set("Content-Type", typ)
		}
		if auth != nil {
			auth(r)
		}
		var resp *http.Response
		if resp, err = c.http.Do(r); err != nil {
			continue
		}
		var b []byte
		b, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		resp.Body.Close()
		if err != nil {
			continue
		}
		if i > 0 {
			c.prefer(append(append([]string{base}, bases[:i]...), bases[i+1:]...))
		}
		return resp.StatusCode, b, nil
	}
	// The first may accept connections and not answer.
	c.prefer(append(slices.Clone(bases[1:]), bases[0]))
	return 0, nil, remote.Failed("etcd", err)
}

// Node is a value, or a directory.
type Node struct {
	// Path is the full path.
	Path string
	// Value is empty for a directory.
	Value string
	Dir   bool
	// Version changes with each write.
	Version uint64
}

// Get returns the value at a path; ok is false if there is none.
func (c *Client) Get(ctx context.Context, path string) (n Node, ok bool, err error) {
	if c.v3 {
		kvs, err := c.rangeV3(ctx, map[string]any{"key": b64(path)})
		if err != nil || len(kvs) == 0 {
			return Node{}, false, err
		}
		return kvs[0], true, nil
	}
	n, _, err = c.readV2(ctx, path, false)
	if isNotFound(err) {
		return Node{}, false, nil
	}
	return n, err == nil && !n.Dir, err
}

// Put writes a value, which expires after ttl unless that is 0.
func (c *Client) Put(ctx context.Context, path, v string, ttl time.Duration) error {
	if c.v3 {
		req := map[string]any{"key": b64(path), "value": b64(v)}
		if ttl > 0 {
			var lease struct {
				ID string `json:"ID"`
			}
			if err := c.callV3(ctx, "/v3/lease/grant", map[string]any{"TTL": strconv.Itoa(int(ttl.Seconds()))}, &lease); err != nil {
				return err
			}
			req["lease"] = lease.ID
		}
		return c.callV3(ctx, "/v3/kv/put", req, nil)
	}
	form := url.Values{"value": {v}}
	if ttl > 0 {
		form.Set("ttl", strconv.Itoa(int(ttl.Seconds())))
	}
	_, err := c.callV2(ctx, http.MethodPut, path, "", form)
	return err
}

// Delete removes the value at a path and, with all, everything below it.
func (c *Client) Delete(ctx context.Context, path string, all bool) error {
	if c.v3 {
		if err := c.callV3(ctx, "/v3/kv/deleterange", map[string]any{"key": b64(path)}, nil); err != nil || !all {
			return err
		}
		return c.callV3(ctx, "/v3/kv/deleterange", map[string]any{"key": b64(path + "/"), "range_end": b64(path + "0")}, nil)
	}
	query := ""
	if all {
		query = "?recursive=true"
	}
	_, err := c.callV2(ctx, http.MethodDelete, path, query, nil)
	if isNotFound(err) {
		return nil
	}
	return err
}

// Children returns the direct children of a path: words and contents of values, words of
// directories.
func (c *Client) Children(ctx context.Context, path string) ([]Node, error) {
	if !c.v3 {
		_, below, err := c.readV2(ctx, path, false)
		if isNotFound(err) {
			return nil, nil
		}
		return below, err
	}
	all, err := c.Tree(ctx, path, false)
	var out []Node
	seen := map[string]bool{}
	for _, n := range all {
		word, _, dir := strings.Cut(strings.TrimPrefix(n.Path, path+"/"), "/")
		if !seen[word] {
			seen[word] = true
			n.Path, n.Dir = path+"/"+word, dir
			out = append(out, n)
		}
	}
	return out, err
}

// Tree returns all values below a path; without values, version 3 leaves them
// out.
func (c *Client) Tree(ctx context.Context, path string, values bool) ([]Node, error) {
	if c.v3 {
		return c.rangeV3(ctx, map[string]any{"key": b64(path + "/"), "range_end": b64(path + "0"), "keys_only": !values})
	}
	top, err := c.treeV2(ctx, path)
	if err != nil {
		return nil, err
	}
	var out []Node
	var walk func(n nodeV2)
	walk = func(n nodeV2) {
		if !n.Dir {
			out = append(out, n.node())
		}
		for _, m := range n.Nodes {
			walk(m)
		}
	}
	walk(top)
	return out, nil
}

type nodeV2 struct {
	Key   string   `json:"key"`
	Value string   `json:"value"`
	Dir   bool     `json:"dir"`
	Nodes []nodeV2 `json:"nodes"`
	Index uint64   `json:"modifiedIndex"`
}

func (n nodeV2) node() Node { return Node{n.Key, n.Value, n.Dir, n.Index} }

// notFound is the code of version 2 for a path without anything.
const notFound = 100

type errorV2 struct {
	Code    int    `json:"errorCode"`
	Message string `json:"message"`
	Cause   string `json:"cause"`
}

func (e *errorV2) Error() string { return fmt.Sprintf("etcd: %s (%s)", e.Message, e.Cause) }

func isNotFound(err error) bool {
	e, ok := errors.AsType[*errorV2](err)
	return ok && e.Code == notFound
}

func (c *Client) callV2(ctx context.Context, method, path, query string, form url.Values) (nodeV2, error) {
	words := strings.Split(path, "/")
	for i, w := range words {
		words[i] = url.PathEscape(w)
	}
	status, b, err := c.send(ctx, method, "/v2/keys"+strings.Join(words, "/")+query, "application/x-www-form-urlencoded", []byte(form.Encode()),
		func(r *http.Request) {
			if c.user != "" {
				r.SetBasicAuth(c.user, c.pass)
			}
		})
	if err != nil {
		return nodeV2{}, err
	}
	var answer struct {
		errorV2
		Node nodeV2 `json:"node"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		hint := ""
		if status == http.StatusNotFound {
			hint = ": its version 2 interface is off (etcd --enable-v2), or gone (3.6); set etcd.require_v2: False for version 3"
		}
		return nodeV2{}, salt.Errorf(salt.Unavailable, "etcd answered with status %d%s", status, hint)
	}
	switch {
	case answer.Code == notFound:
		return nodeV2{}, &answer.errorV2
	case answer.Code >= 300 && answer.Code < 600 || status >= 500: // the cluster itself, such as an election
		return nodeV2{}, salt.Errorf(salt.Unavailable, "%w", &answer.errorV2)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return nodeV2{}, salt.Errorf(salt.Unavailable, "etcd denied access: %s", answer.Message)
	case answer.Code != 0 || status >= 300:
		return nodeV2{}, salt.Errorf(salt.Invalid, "%w", &answer.errorV2)
	}
	return answer.Node, nil
}

func (c *Client) treeV2(ctx context.Context, path string) (nodeV2, error) {
	n, err := c.callV2(ctx, http.MethodGet, path, "?recursive=true", nil)
	if isNotFound(err) {
		return nodeV2{Dir: true}, nil
	}
	return n, err
}

func (c *Client) readV2(ctx context.Context, path string, _ bool) (Node, []Node, error) {
	n, err := c.callV2(ctx, http.MethodGet, path, "", nil)
	var below []Node
	for _, m := range n.Nodes {
		below = append(below, m.node())
	}
	return n.node(), below, err
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

type rangeAnswer struct {
	Kvs []struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
		Rev   string `json:"mod_revision"`
	} `json:"kvs"`
}

func (c *Client) rangeV3(ctx context.Context, req map[string]any) ([]Node, error) {
	var a rangeAnswer
	if err := c.callV3(ctx, "/v3/kv/range", req, &a); err != nil {
		return nil, err
	}
	out := make([]Node, len(a.Kvs))
	for i, kv := range a.Kvs {
		rev, _ := strconv.ParseUint(kv.Rev, 10, 64)
		out[i] = Node{Path: string(kv.Key), Value: string(kv.Value), Version: rev}
	}
	return out, nil
}

// callV3 calls the gateway, and authenticates if required.
func (c *Client) callV3(ctx context.Context, path string, req map[string]any, answer any) error {
	for try := 0; ; try++ {
		c.mu.Lock()
		token := c.token
		c.mu.Unlock()
		if token == "" && c.user != "" {
			if err := c.signIn(ctx); err != nil {
				return err
			}
			continue
		}
		status, b, err := c.postV3(ctx, path, req, token)
		if err != nil {
			return err
		}
		if status == http.StatusUnauthorized && c.user != "" && try < 2 {
			c.mu.Lock()
			c.token = ""
			c.mu.Unlock()
			continue
		}
		return answerV3(status, b, answer)
	}
}

func (c *Client) postV3(ctx context.Context, path string, req map[string]any, token string) (int, []byte, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return 0, nil, err
	}
	return c.send(ctx, http.MethodPost, path, "application/json", body, func(r *http.Request) {
		if token != "" {
			r.Header.Set("Authorization", token)
		}
	})
}

func answerV3(status int, b []byte, answer any) error {
	if status == http.StatusOK {
		if answer == nil {
			return nil
		}
		if err := json.Unmarshal(b, answer); err != nil {
			return salt.Errorf(salt.Unavailable, "invalid answer of etcd: %w", err)
		}
		return nil
	}
	var e struct {
		Message string `json:"message"`
		Error   string `json:"error"`
		Code    int    `json:"code"`
	}
	json.Unmarshal(b, &e)
	if e.Message == "" {
		e.Message = e.Error
	}
	kind := salt.Unavailable
	// Invalid argument (also too large) or out of range. A missing user name has the same code, but
	// does not mean that the value is refused.
	if e.Code == 3 && !strings.Contains(e.Message, "user name is empty") || e.Code == 11 {
		kind = salt.Invalid
	}
	return salt.Errorf(kind, "etcd answered with status %d: %.200s", status, e.Message)
}

func (c *Client) signIn(ctx context.Context) error {
	status, b, err := c.postV3(ctx, "/v3/auth/authenticate", map[string]any{"name": c.user, "password": c.pass}, "")
	if err != nil {
		return err
	}
	var a struct {
		Token string `json:"token"`
	}
	if err := answerV3(status, b, &a); err != nil {
		// The password may be corrected, so queued data must not be dropped.
		return salt.Errorf(salt.Unavailable, "etcd denied access: %s", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = a.Token
	return nil
}
