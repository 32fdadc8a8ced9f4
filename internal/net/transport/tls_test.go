package transport_test

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/net/transport"
	"brine/internal/net/transport/transporttest"
	"brine/internal/py/value"
)

func TestParseTLS(t *testing.T) {
	for _, off := range []any{nil, false} {
		if o, err := transport.ParseTLS(off); o != nil || err != nil {
			t.Errorf("ssl: %v gives %v, %v", off, o, err)
		}
	}
	if o, err := transport.ParseTLS(true); o == nil || err != nil {
		t.Errorf("ssl: true gives %v, %v", o, err)
	}
	o, err := transport.ParseTLS(value.DictOf("certfile", "/c", "keyfile", "/k", "cert_reqs", "CERT_NONE"))
	if err != nil || o.CertFile != "/c" || o.KeyFile != "/k" || o.CertReqs != "CERT_NONE" {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, bad := range []any{"yes please", value.DictOf("certfiel", "/c")} {
		if _, err := transport.ParseTLS(bad); err == nil || !strings.Contains(err.Error(), "option ssl") {
			t.Errorf("ssl: %v gives %v", bad, err)
		}
	}
}

func TestTLSErrorsNameOptionAndFile(t *testing.T) {
	ca := transporttest.NewAuthority(t)
	cert, key := ca.Issue(t, "a")
	_, otherKey := ca.Issue(t, "b")
	none := filepath.Join(t.TempDir(), "none.pem")
	text := filepath.Join(t.TempDir(), "text.pem")
	if err := os.WriteFile(text, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := transport.TLSOptions{CertFile: cert, KeyFile: key, CACerts: ca.File}
	for _, c := range []struct {
		change func(*transport.TLSOptions)
		want   []string
	}{
		{func(o *transport.TLSOptions) { o.CertFile = "" }, []string{"certfile"}},
		{func(o *transport.TLSOptions) { o.CertFile = none }, []string{"certfile", none}},
		{func(o *transport.TLSOptions) { o.KeyFile = none }, []string{"keyfile", none}},
		{func(o *transport.TLSOptions) { o.KeyFile = otherKey }, []string{"keyfile", otherKey}},
		{func(o *transport.TLSOptions) { o.KeyFile = "" }, []string{"keyfile", cert}},
		{func(o *transport.TLSOptions) { o.CACerts = none }, []string{"ca_certs", none}},
		{func(o *transport.TLSOptions) { o.CACerts = text }, []string{"ca_certs", text}},
		{func(o *transport.TLSOptions) { o.CACerts = "" }, []string{"ca_certs", "CERT_NONE"}},
		{func(o *transport.TLSOptions) { o.CertReqs = "MAYBE" }, []string{"cert_reqs", "MAYBE"}},
		{func(o *transport.TLSOptions) { o.Version = "PROTOCOL_SSLv3" }, []string{"ssl_version", "PROTOCOL_SSLv3"}},
		{func(o *transport.TLSOptions) { o.Ciphers = "NOSUCH" }, []string{"ciphers", "NOSUCH"}},
		{func(o *transport.TLSOptions) { o.Ciphers = "HIGH:!AES" }, []string{"ciphers", "!AES"}},
		{func(o *transport.TLSOptions) { o.VerifyFlags = []string{"VERIFY_CRL_CHECK_LEAF"} }, []string{"verify_flags", "CRL"}},
		{func(o *transport.TLSOptions) { o.VerifyLocations = value.DictOf("cafiel", ca.File) }, []string{"verify_locations", "cafiel"}},
	} {
		o := good
		c.change(&o)
		_, err := transport.ServerTLS(o)
		if err == nil {
			t.Errorf("no error, want one about %v", c.want)
			continue
		}
		for _, w := range append(c.want, "option ssl") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q lacks %q", err, w)
			}
		}
	}
}

func TestServerTLSAsksForClients(t *testing.T) {
	ca := transporttest.NewAuthority(t)
	cert, key := ca.Issue(t, "a")
	for reqs, want := range map[string]tls.ClientAuthType{
		"":              tls.RequireAndVerifyClientCert,
		"CERT_REQUIRED": tls.RequireAndVerifyClientCert,
		"CERT_OPTIONAL": tls.VerifyClientCertIfGiven,
		"CERT_NONE":     tls.NoClientCert,
	} {
		c, err := transport.ServerTLS(transport.TLSOptions{CertFile: cert, KeyFile: key, CACerts: ca.File, CertReqs: reqs})
		if err != nil || c.ClientAuth != want {
			t.Errorf("cert_reqs %q: %v, %v", reqs, c.ClientAuth, err)
		}
	}
}

func TestVerifyLocations(t *testing.T) {
	ca := transporttest.NewAuthority(t)
	cert, key := ca.Issue(t, "a")
	pem, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	list := func(v ...any) *value.List { return &value.List{Items: v} }
	for name, loc := range map[string]any{
		"file":   list(ca.File),
		"cafile": list(value.DictOf("cafile", ca.File)),
		"cadata": list(value.DictOf("CAdata", string(pem))),
		"capath": list(value.DictOf("capath", filepath.Dir(ca.File))),
	} {
		c, err := transport.ServerTLS(transport.TLSOptions{CertFile: cert, KeyFile: key, VerifyLocations: loc})
		if err != nil || c.ClientCAs == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCiphersAndVersion(t *testing.T) {
	c, err := transport.ClientTLS(transport.TLSOptions{
		Ciphers: "ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256:TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384:AES128-SHA:!AES128-SHA:!aNULL",
		Version: "PROTOCOL_TLSv1_2",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}
	if !slices.Equal(c.CipherSuites, want) || c.MaxVersion != tls.VersionTLS12 {
		t.Errorf("suites %x, up to version %x", c.CipherSuites, c.MaxVersion)
	}
	if c, err = transport.ClientTLS(transport.TLSOptions{Ciphers: "HIGH:!aNULL:!MD5"}); err != nil || c.CipherSuites != nil {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestOptionsDefaults(t *testing.T) {
	var o transport.Options
	if err := field.Defaults(&o); err != nil {
		t.Fatal(err)
	}
	e, err := o.Endpoints()
	if err != nil || len(e) != 1 || e[0] != (transport.Endpoint{Transport: "zeromq", Publish: "0.0.0.0:4505", Requests: "0.0.0.0:4506"}) {
		t.Errorf("endpoints %v, %v", e, err)
	}
	l, err := o.Listen("zeromq")
	if err != nil || l.Filter || l.HighWater != 1000 || l.Backlog != 1000 || l.TLS != nil {
		t.Errorf("got %+v, %v", l, err)
	}
	if k := l.KeepAlive; k != (net.KeepAliveConfig{Enable: true, Idle: 300 * time.Second, Interval: -1, Count: -1}) {
		t.Errorf("keepalive %+v", k)
	}
	if l, _ = o.Listen("tcp"); !l.Filter {
		t.Error("tcp does not filter by registration")
	}
	o.KeepAlive = false
	if k := o.Config(); k.Enable || k == (net.KeepAliveConfig{}) {
		t.Errorf("keepalive switched off is %+v", k)
	}
	var c transport.ClientOptions
	if err := field.Defaults(&c); err != nil {
		t.Fatal(err)
	}
	if r, p, err := c.Dial(); err != nil || r.LocalAddr != nil || p.LocalAddr != nil || r.TLS != nil {
		t.Errorf("got %+v, %+v, %v", r, p, err)
	}
}

func TestEndpoints(t *testing.T) {
	o := transport.Options{Interface: "0.0.0.0", IPv6: true, PublishPort: 1, RetPort: 2, Transport: "tcp",
		TransportOpts: map[string]transport.Ports{"ws": {PublishPort: 3, RetPort: 4}, "zeromq": {PublishPort: 5, RetPort: 6}}}
	e, err := o.Endpoints()
	want := []transport.Endpoint{{"tcp", "[::]:1", "[::]:2"}, {"ws", "[::]:3", "[::]:4"}, {"zeromq", "[::]:5", "[::]:6"}}
	if err != nil || !slices.Equal(e, want) {
		t.Errorf("got %v, %v", e, err)
	}
	o.TransportOpts["ws"] = transport.Ports{PublishPort: 3}
	if _, err := o.Endpoints(); err == nil || !strings.Contains(err.Error(), "port 2") {
		t.Errorf("two transports on one port: %v", err)
	}
}

func TestSource(t *testing.T) {
	c := transport.ClientOptions{SourceAddress: "127.0.0.1", SourceRetPort: 7, SourcePublishPort: 8}
	r, p, err := c.Dial()
	if err != nil || r.LocalAddr.String() != "127.0.0.1:7" || p.LocalAddr.String() != "127.0.0.1:8" {
		t.Errorf("got %v, %v, %v", r.LocalAddr, p.LocalAddr, err)
	}
	c = transport.ClientOptions{SourceInterface: "nosuch0"}
	if _, _, err = c.Dial(); err == nil || !strings.Contains(err.Error(), "source_interface_name") {
		t.Errorf("got %v", err)
	}
}

// TestInterface: the name of an interface and an address with a port are no addresses.
func TestInterface(t *testing.T) {
	for text, want := range map[string]string{
		"0.0.0.0": "", "::1": "", "[::1]": "", "fe80::1%lo": "", "localhost": "", "127.0.0.1:4505": "is not an address; the ports are",
		"http://a": "is not an address", "lo": "lo is the name of an interface: write its address",
	} {
		_, err := transport.Options{Interface: text, Transport: "zeromq", PublishPort: 4505, RetPort: 4506}.Endpoints()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
