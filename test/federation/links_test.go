package federation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"brine/test/daemontest"
)

// link is the network between one master, or the masters of one site, and the nodes of a hub.
type link struct {
	host string // where the masters of this side connect; the node is the port

	mu    sync.Mutex
	state linkState
	conns map[net.Conn]bool
	free  chan struct{} // closed while bytes pass
}

type linkState int

const (
	linkUp      linkState = iota
	linkCut               // connections are closed, and new ones are refused
	linkStalled           // connections stay, but no byte passes
)

// newLink forwards connections to the nodes at these addresses until the test ends.
func newLink(t *testing.T, host string, nodes ...string) *link {
	t.Helper()
	l := &link{host: host, conns: map[net.Conn]bool{}, free: make(chan struct{})}
	close(l.free)
	for i, to := range nodes {
		at, err := net.Listen("tcp", l.address(i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { at.Close() })
		go func() {
			for {
				c, err := at.Accept()
				if err != nil {
					return
				}
				go l.forward(c, to)
			}
		}()
	}
	t.Cleanup(func() { l.set(linkUp); l.set(linkCut) })
	return l
}

func (l *link) address(node int) string { return fmt.Sprintf("%s:%d", l.host, daemontest.HubPort+node) }

// set changes what the link does to connections.
func (l *link) set(s linkState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s == linkStalled && l.state != linkStalled:
		l.free = make(chan struct{})
	case s != linkStalled && l.state == linkStalled:
		close(l.free)
	}
	l.state = s
	if s == linkCut {
		for c := range l.conns {
			c.Close()
		}
	}
}

// add remembers a connection, and reports whether it may exist.
func (l *link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == linkCut {
		return false
	}
	l.conns[c] = true
	return true
}

func (l *link) forward(c net.Conn, to string) {
	defer c.Close()
	up, err := net.DialTimeout("tcp", to, 5*time.Second)
	if err != nil {
		return
	}
	defer up.Close()
	if !l.add(c) || !l.add(up) {
		return
	}
	defer func() {
		l.mu.Lock()
		delete(l.conns, c)
		delete(l.conns, up)
		l.mu.Unlock()
	}()
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{c, up}, {up, c}} {
		go func() {
			_, _ = io.Copy(pair[1], &stalling{pair[0], l}) // it ends when either end closes
			done <- struct{}{}
		}()
	}
	<-done
}

// stalling reads from a connection while its link passes bytes.
type stalling struct {
	net.Conn
	l *link
}

func (s *stalling) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.l.mu.Lock()
	free := s.l.free
	s.l.mu.Unlock()
	<-free
	return n, err
}

// certificate writes a certificate that is valid for some hosts, and its key.
func certificate(t *testing.T, hosts ...string) (certPath, keyPath string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hub"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(h))
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := daemontest.ShortDir(t)
	certPath, keyPath = dir+"/hub.crt", dir+"/hub.key"
	for path, block := range map[string]*pem.Block{certPath: {Type: "CERTIFICATE", Bytes: cert}, keyPath: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certPath, keyPath
}
