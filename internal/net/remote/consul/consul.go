// Package consul is a client for consul's key-value store, using its HTTP API.
package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
)

// Client talks to one agent.
type Client struct {
	base  string
	query url.Values
	token string
	http  *http.Client
}

// New reads the settings host, port, scheme, token, consistency, dc and
// verify.
func New(s remote.Settings, timeout time.Duration) (*Client, error) {
	addr, err := s.Address("127.0.0.1", 8500)
	if err != nil {
		return nil, err
	}
	scheme := s.Text("scheme", "http")
	if scheme != "http" && scheme != "https" {
		return nil, salt.Errorf(salt.Invalid, "consul.scheme is %q, not http or https", scheme)
	}
	ca := ""
	verify := s.Bool("verify", true)
	if v, ok := s("verify").(string); ok && strings.Contains(v, "/") {
		ca = v // python-consul passes the file to requests in verify
	}
	t, err := remote.TLS(ca, "", "", "", verify)
	if err != nil {
		return nil, err
	}
	c := &Client{base: scheme + "://" + addr + "/v1/kv/", query: url.Values{}, token: s.Text("token", ""), http: remote.HTTP(t, timeout)}
	if dc := s.Text("dc", ""); dc != "" {
		c.query.Set("dc", dc)
	}
	switch v := s.Text("consistency", "default"); v {
	case "default":
	case "consistent", "stale":
		c.query.Set(v, "1")
	default:
		return nil, salt.Errorf(salt.Invalid, "consul.consistency is %q, not default, consistent or stale", v)
	}
	return c, nil
}

// Close closes idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// maxAnswer bounds an answer in bytes.
const maxAnswer = 512 << 20

// call returns the answer, nil if there is nothing under the key.
func (c *Client) call(ctx context.Context, method, key string, query url.Values, body []byte) ([]byte, error) {
	q := url.Values{}
	for _, from := range []url.Values{c.query, query} {
		for k, v := range from {
			if method == http.MethodGet || k == "dc" || k == "recurse" {
				q[k] = v
			}
		}
	}
	words := strings.Split(key, "/")
	for i, w := range words {
		words[i] = url.PathEscape(w)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+strings.Join(words, "/")+"?"+q.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "consul: %w", err)
	}
	if c.token != "" {
		r.Header.Set("X-Consul-Token", c.token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, remote.Failed("consul", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, remote.Failed("consul", err)
	case resp.StatusCode == http.StatusNotFound && method == http.MethodGet:
		return nil, nil
	case resp.StatusCode == http.StatusRequestEntityTooLarge || resp.StatusCode == http.StatusBadRequest:
		return nil, salt.Errorf(salt.Invalid, "consul refused the request (status %d): %.200s", resp.StatusCode, b)
	case resp.StatusCode != http.StatusOK:
		return nil, salt.Errorf(salt.Unavailable, "consul answered with status %d: %.200s", resp.StatusCode, b)
	}
	return b, nil
}

// Entry is a value with its key.
type Entry struct {
	Key     string `json:"Key"`
	Value   []byte `json:"Value"`
	Version uint64 `json:"ModifyIndex"`
}

// Get returns the value of a key; ok is false if there is none. With all it returns the values of
// all keys with this prefix.
func (c *Client) Get(ctx context.Context, key string, all bool) ([]Entry, error) {
	q := url.Values{}
	if all {
		q.Set("recurse", "1")
	}
	b, err := c.call(ctx, http.MethodGet, key, q, nil)
	if b == nil || err != nil {
		return nil, err
	}
	var out []Entry
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, salt.Errorf(salt.Unavailable, "invalid answer of consul: %w", err)
	}
	return out, nil
}

// Keys returns the keys with a prefix, up to the next separator after it if that is not empty.
func (c *Client) Keys(ctx context.Context, prefix, separator string) ([]string, error) {
	q := url.Values{"keys": {"1"}}
	if separator != "" {
		q.Set("separator", separator)
	}
	b, err := c.call(ctx, http.MethodGet, prefix, q, nil)
	if b == nil || err != nil {
		return nil, err
	}
	var out []string
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, salt.Errorf(salt.Unavailable, "invalid answer of consul: %w", err)
	}
	return out, nil
}

// Put writes a value.
func (c *Client) Put(ctx context.Context, key string, v []byte) error {
	b, err := c.call(ctx, http.MethodPut, key, nil, v)
	if err == nil && strings.TrimSpace(string(b)) != "true" {
		err = salt.Errorf(salt.Unavailable, "consul did not write: %s", fmt.Sprintf("%.100s", b))
	}
	return err
}

// Delete removes a key, or with all every key with this prefix.
func (c *Client) Delete(ctx context.Context, key string, all bool) error {
	q := url.Values{}
	if all {
		q.Set("recurse", "1")
	}
	_, err := c.call(ctx, http.MethodDelete, key, q, nil)
	return err
}
