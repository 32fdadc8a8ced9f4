package network

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"brine/internal/base/httpclient"
	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

type web struct{}

func init() { units.Declare("http", httpModule) }

func httpModule() fn.Module {
	w := web{}
	return fn.Module{Name: "http", Doc: `Requests to web servers.`, Funcs: []fn.Func{
		fn.Of("query", w.query, `Ask a web server and return a map with body, and with status, headers, text or dict if these keywords are true or decode is.
			Keywords: method, params, data, data_file, header_dict, header_list, username, password, decode, decode_type (auto, json, yaml, xml, plain),
			status, headers, text, text_out, verify_ssl, ca_bundle, cert, agent, raise_error, timeout, test, test_url.`,
			fn.Example("salt '*' http.query http://example.com/ status=True"),
			fn.Example("salt '*' http.query http://example.com/ method=POST params='{\"key1\": \"val1\"}' decode=True")),
		fn.Of("wait_for_successful_query", w.wait, `Ask a web server again and again until it answers without an error.
			The keyword request_interval is the pause in seconds, status the status to wait for.`,
			fn.Example("salt '*' http.wait_for_successful_query http://example.com/ wait_for=160 request_interval=1")),
	}}
}

// maxBody bounds a response in bytes: it is held in memory, and sent to the
// master.
const maxBody = 64 << 20

// known lists the keywords of http.query. Those with false have no effect
// here.
var known = map[string]bool{
	"method": true, "params": true, "data": true, "data_file": true, "header_dict": true, "header_list": true, "username": true, "password": true,
	"decode": true, "decode_type": true, "status": true, "headers": true, "text": true, "text_out": true, "verify_ssl": true, "ca_bundle": true,
	"cert": true, "agent": true, "raise_error": true, "timeout": true, "test": true, "test_url": true, "opts": true, "request_interval": true,
	"backend": false, "hide_fields": false, "node": false, "decode_body": false, "requests_lib": false, "port": false,
}

type queryArgs struct {
	URL    string    `salt:"url" doc:"address"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (w web) query(ctx context.Context, c *fn.Call, a queryArgs) (*value.Dict, error) {
	kw := a.Kwargs.Clean()
	for k := range kw.All() {
		if _, ok := known[value.Str(k)]; !ok {
			return nil, fn.Invalidf("http.query does not know the keyword %s", value.Str(k))
		}
	}
	address := a.URL
	if kw.At("test") == true {
		if address = kw.Str("test_url"); address == "" {
			return value.NewDict(0), nil
		}
	}
	req, err := request(ctx, address, kw)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	client, err := newClient(c, kw)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return unanswered(kw, err), nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err == nil && len(b) > maxBody {
		err = fmt.Errorf("the answer is larger than %d bytes", maxBody)
	}
	if err != nil {
		return unanswered(kw, err), nil
	}
	return replied(kw, resp, b)
}

func unanswered(kw *value.Dict, err error) *value.Dict {
	d := value.NewDict(2)
	if kw.At("status") == true {
		d.Set("status", int64(0))
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // the URL may contain a password
	}
	d.Set("error", systemText(err))
	return d
}

// systemText returns Python's message for an error of the system or of a look-up of a name, which
// Salt has in the result.
func systemText(err error) string {
	var (
		errno syscall.Errno
		dns   *net.DNSError
	)
	switch {
	case errors.As(err, &errno):
		text := errno.Error()
		return fmt.Sprintf("[Errno %d] %s", int(errno), strings.ToUpper(text[:1])+text[1:])
	case errors.As(err, &dns) && dns.IsNotFound:
		return "[Errno -2] Name or service not known"
	case errors.As(err, &dns) && dns.IsTemporary && !dns.IsTimeout:
		return "[Errno -3] Temporary failure in name resolution"
	}
	return err.Error()
}

// request builds a request from keywords.
func request(ctx context.Context, address string, kw *value.Dict) (*http.Request, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the address must begin with http:// or https:// and name a host")
	}
	if p := kw.Dict("params"); p.Len() > 0 {
		q := u.Query()
		for k, v := range p.All() {
			q.Set(value.Str(k), value.Str(v))
		}
		u.RawQuery = q.Encode()
	}
	method := "GET"
	if m := kw.Str("method"); m != "" {
		method = strings.ToUpper(m)
	}
	body, err := data(kw)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "Salt/3007.10 http.query()")
	if agent := kw.Str("agent"); agent != "" {
		req.Header.Set("User-Agent", agent)
	}
	if _, isMap := kw.At("data").(*value.Dict); isMap {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for k, v := range kw.Dict("header_dict").All() {
		req.Header.Set(value.Str(k), value.Str(v))
	}
	for _, line := range kw.List("header_list") {
		if k, v, ok := strings.Cut(value.Str(line), ":"); ok {
			req.Header.Set(strings.TrimSpace(k), strings.TrimSpace(v))
		}
	}
	if user, password := kw.At("username"), kw.At("password"); user != nil && password != nil {
		req.SetBasicAuth(value.Str(user), value.Str(password))
	}
	return req, nil
}

// data returns the body: a string, a map encoded as a form, or a file.
func data(kw *value.Dict) (string, error) {
	if file := kw.Str("data_file"); file != "" {
		b, err := os.ReadFile(file)
		return string(b), err
	}
	switch x := kw.At("data").(type) {
	case nil:
		return "", nil
	case *value.Dict:
		form := url.Values{}
		for k, v := range x.All() {
			form.Set(value.Str(k), value.Str(v))
		}
		return form.Encode(), nil
	default:
		return value.Str(x), nil
	}
}

// seconds reads an option in seconds.
func seconds(c *fn.Call, name string, otherwise time.Duration) time.Duration {
	switch x := c.Config.Get(name).(type) {
	case int64:
		return time.Duration(x) * time.Second
	case float64:
		return time.Duration(x * float64(time.Second))
	}
	return otherwise
}

func newClient(c *fn.Call, kw *value.Dict) (*http.Client, error) {
	t := &tls.Config{}
	verify := kw.At("verify_ssl")
	if verify == nil {
		verify = c.Config.Get("verify_ssl")
	}
	t.InsecureSkipVerify = verify != nil && !value.Truth(verify)
	bundle := kw.Str("ca_bundle")
	if bundle == "" {
		bundle, _ = c.Config.Get("ca_bundle").(string)
	}
	if bundle != "" {
		pem, err := os.ReadFile(bundle)
		if err != nil {
			return nil, fmt.Errorf("cannot read the certificates to trust: %w", err)
		}
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificates", bundle)
		}
	}
	if cert := kw.At("cert"); cert != nil {
		files := []string{value.Str(cert), value.Str(cert)}
		if l, ok := cert.(*value.List); ok && l.Len() == 2 {
			files = []string{value.Str(l.Items[0]), value.Str(l.Items[1])}
		}
		pair, err := tls.LoadX509KeyPair(files[0], files[1])
		if err != nil {
			return nil, fmt.Errorf("cannot use the certificate: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	whole := seconds(c, "http_request_timeout", time.Hour)
	if n := kw.Int("timeout"); n > 0 {
		whole = time.Duration(n) * time.Second
	}
	return httpclient.New(httpclient.Options{
		TLS: t, ByProxy: proxy(c), DialTimeout: seconds(c, "http_connect_timeout", 20*time.Second), Timeout: whole, HTTP2: true,
	}), nil
}

// proxy returns the proxy set by proxy_host and related options, or else by
// the environment.
func proxy(c *fn.Call) func(*http.Request) (*url.URL, error) {
	host, _ := c.Config.Get("proxy_host").(string)
	port := c.Config.Get("proxy_port")
	if host == "" || !value.Truth(port) {
		return http.ProxyFromEnvironment
	}
	p := &url.URL{Scheme: "http", Host: net.JoinHostPort(host, value.Str(port))}
	user, _ := c.Config.Get("proxy_username").(string)
	password, _ := c.Config.Get("proxy_password").(string)
	if user != "" && password != "" {
		p.User = url.UserPassword(user, password)
	}
	var direct []any
	if l, ok := c.Config.Get("no_proxy").(*value.List); ok {
		direct = l.Items
	}
	return func(r *http.Request) (*url.URL, error) {
		if slices.Contains(direct, any(r.URL.Hostname())) {
			return nil, nil
		}
		return p, nil
	}
}

func replied(kw *value.Dict, resp *http.Response, b []byte) (*value.Dict, error) {
	var body any = b
	if utf8.Valid(b) {
		body = string(b)
	}
	if resp.StatusCode >= 400 && kw.At("raise_error") != false {
		return value.DictOf("status", resp.StatusCode, "error", fmt.Sprintf("HTTP %d: %s", resp.StatusCode, http.StatusText(resp.StatusCode)), "body", body), nil
	}
	d := value.DictOf("body", body)
	if file := kw.Str("text_out"); file != "" {
		if err := os.WriteFile(file, b, 0o644); err != nil {
			return nil, fn.Errorf("%w", err)
		}
	}
	if kw.At("status") == true {
		d.Set("status", int64(resp.StatusCode))
	}
	if kw.At("headers") == true {
		h := value.NewDict(len(resp.Header))
		for _, k := range slices.Sorted(maps.Keys(resp.Header)) {
			h.Set(k, strings.Join(resp.Header[k], ","))
		}
		d.Set("headers", h)
	}
	text := kw.At("text") == true
	if kw.At("decode") == true {
		plain, err := decode(d, kw.Str("decode_type"), resp.Header.Get("Content-Type"), b)
		if err != nil {
			return nil, fn.Errorf("%w", err)
		}
		text = text || plain
	}
	if text {
		d.Set("text", body)
	}
	return d, nil
}

// decode sets dict to the decoded body. plain says that the body is shown as a
// string.
func decode(d *value.Dict, how, content string, b []byte) (plain bool, err error) {
	if how == "" || how == "auto" {
		switch {
		case strings.Contains(content, "xml"):
			how = "xml"
		case strings.Contains(content, "json"), content == "":
			how = "json"
		case strings.Contains(content, "yaml"):
			how = "yaml"
		default:
			how = "plain"
		}
	}
	var v any
	switch how {
	case "json":
		v, err = json.Load(string(b))
	case "yaml":
		v, err = yaml.Load(b, "the answer")
	case "xml":
		v, err = elements(b)
	case "plain":
		return true, nil
	default:
		d.Set("error", "Invalid decode_type specified. Valid decode types are: ('json', 'xml', 'yaml', 'plain')")
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot decode the answer as %s: %w", how, err)
	}
	d.Set("dict", v)
	return false, nil
}

// node is an element of XML.
type node struct {
	XMLName  xml.Name
	Text     string `xml:",chardata"`
	Children []node `xml:",any"`
}

// elements returns the children of the root, each as a map from its name to
// its text or its own children.
func elements(b []byte) (*value.List, error) {
	var root node
	if err := xml.Unmarshal(b, &root); err != nil {
		return nil, err
	}
	l := &value.List{}
	for _, c := range root.Children {
		l.Append(value.DictOf(c.XMLName.Local, c.content()))
	}
	return l, nil
}

func (n node) content() any {
	if len(n.Children) == 0 {
		if n.Text == "" {
			return nil
		}
		return n.Text
	}
	d := value.NewDict(len(n.Children))
	for _, c := range n.Children {
		v := c.content()
		if old, ok := d.Get(c.XMLName.Local); ok {
			if l, many := old.(*value.List); many {
				l.Append(v)
				continue
			}
			v = value.ListOf(old, v)
		}
		d.Set(c.XMLName.Local, v)
	}
	return d
}

type waitQueryArgs struct {
	URL    string    `salt:"url" doc:"address"`
	Wait   float64   `salt:"wait_for" doc:"seconds after which to give up" default:"300"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (w web) wait(ctx context.Context, c *fn.Call, a waitQueryArgs) (*value.Dict, error) {
	end := time.Now().Add(time.Duration(a.Wait * float64(time.Second)))
	pause := time.Second
	if n := a.Kwargs.Int("request_interval"); n > 0 {
		pause = time.Duration(n) * time.Second
	}
	for {
		d, err := w.query(ctx, c, queryArgs{a.URL, a.Kwargs})
		if err != nil || !d.Has("error") || time.Now().After(end) {
			return d, err
		}
		if !wait.Sleep(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
}
