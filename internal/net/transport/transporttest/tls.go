package transporttest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	mathbig "math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"brine/internal/net/transport"
)

// Authority is a certificate authority for tests. Its files are in a temporary directory.
type Authority struct {
	File string // its own certificate, PEM
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

// NewAuthority makes an authority with a key of its own.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{dir: t.TempDir(), next: 1}
	a.key = newKey(t)
	a.cert = a.template("test authority")
	a.cert.IsCA, a.cert.KeyUsage = true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.File = a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

// Issue creates a certificate for 127.0.0.1, ::1 and localhost, valid for both sides, and returns
// the files of it and its key.
func (a *Authority) Issue(t testing.TB, name string) (certFile, keyFile string) {
	t.Helper()
	key := newKey(t)
	c := a.template(name)
	c.DNSNames = []string{"localhost", name}
	c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return a.write(t, name+".pem", "CERTIFICATE", der), a.write(t, name+".key", "EC PRIVATE KEY", keyDER)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *Authority) template(name string) *x509.Certificate {
	a.next++
	return &x509.Certificate{
		SerialNumber:          mathbig.NewInt(a.next),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true,
	}
}

func (a *Authority) write(t testing.TB, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// RunTLS is the part of the suite for transports with TLS. It uses configurations in the form of
// the option ssl.
func RunTLS(t *testing.T, newTransport func() transport.Transport) {
	ca, stranger := NewAuthority(t), NewAuthority(t)
	cert, key := ca.Issue(t, "master")
	minionCert, minionKey := ca.Issue(t, "minion")
	strangerCert, strangerKey := stranger.Issue(t, "other")

	plain := transport.TLSOptions{CertFile: cert, KeyFile: key, CertReqs: "CERT_NONE"}
	mutual := transport.TLSOptions{CertFile: cert, KeyFile: key, CACerts: ca.File}
	anonymous := transport.TLSOptions{CACerts: ca.File}
	named := transport.TLSOptions{CACerts: ca.File, CertFile: minionCert, KeyFile: minionKey}
	cases := []struct {
		name           string
		server, client transport.TLSOptions
		ok             bool
	}{
		{"server's certificate only", plain, anonymous, true},
		{"mutual", mutual, named, true},
		{"client without certificate refused", mutual, anonymous, false},
		{"client of another authority refused", mutual, transport.TLSOptions{CACerts: ca.File, CertFile: strangerCert, KeyFile: strangerKey}, false},
		{"server of another authority refused", plain, transport.TLSOptions{CACerts: stranger.File}, false},
		{"server of another authority accepted unverified", plain, transport.TLSOptions{CertReqs: "CERT_NONE"}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			noLeaks(t)
			server, err := transport.ServerTLS(c.server)
			if err != nil {
				t.Fatal(err)
			}
			client, err := transport.ClientTLS(c.client)
			if err != nil {
				t.Fatal(err)
			}
			testTLS(t, newTransport(), server, client, c.ok)
		})
	}
	t.Run("without TLS refused", func(t *testing.T) {
		noLeaks(t)
		server, err := transport.ServerTLS(plain)
		if err != nil {
			t.Fatal(err)
		}
		testTLS(t, newTransport(), server, nil, false)
	})
}

func testTLS(t *testing.T, tr transport.Transport, server, client *tls.Config, ok bool) {
	o := transport.ListenOptions{TLS: server, HandshakeTimeout: 500 * time.Millisecond}
	s := serveRequests(t, tr, "127.0.0.1:0", o, echo)
	p, ps := servePublisher(t, tr, o)
	d := transport.DialOptions{TLS: client}
	if ok {
		r := requester(t, tr, s.addr, d)
		mustEcho(t, r, Text("secret"))
		mustEcho(t, r, big(1<<20))
		sub := subscribe(t, tr, ps.addr, d)
		joined(t, p, sub)
		for _, b := range [][]byte{Text("one"), big(300_000), Text("three")} {
			p.Publish(transport.Publication{Payload: b})
			sub.mustReceive(t, b)
		}
		mustClose(t, dialRaw(t, ps.addr), "the publish port with TLS")
		return
	}
	if _, err := ask(requester(t, tr, s.addr, d), Text("secret")); err == nil {
		t.Error("a request is answered")
	}
	// With TLS 1.3 the client learns of its refusal after its handshake.
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	if sub, err := tr.Subscribe(ctx, ps.addr, d); err == nil {
		t.Cleanup(func() { sub.Close() })
		subscriber{sub}.mustFail(t)
	}
}
