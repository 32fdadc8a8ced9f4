package servertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/tools"
)

// Certificates are the files of a server with TLS: the authority that has signed all certificates,
// and the certificates and keys of the server, for its address, and of a client. Other is an
// authority that has signed nothing.
type Certificates struct {
	CA, Other, ServerCert, ServerKey, Cert, Key string
}

// SecureRedis is Redis that requires TLS, with a client certificate and a password.
func SecureRedis(t testing.TB) *Server { t.Helper(); return runRedis(t, true) }

// SecureEtcd is Etcd that requires TLS with a client certificate.
func SecureEtcd(t testing.TB) *Server { t.Helper(); return runEtcd(t, true) }

// SecureMySQL is MySQL whose user salt must use TLS with a client certificate.
func SecureMySQL(t testing.TB) *Server { t.Helper(); return runMySQL(t, true) }

// SecurePostgres is Postgres that requires TLS with a client certificate.
func SecurePostgres(t testing.TB) *Server { t.Helper(); return runPostgres(t, true) }

// RedisCluster starts three redis servers that form a cluster.
func RedisCluster(t testing.TB) []*Server {
	t.Helper()
	bin, cli := tools.Need(t, "redis-server", "redis-server"), tools.Need(t, "redis-tools", "redis-cli")
	who := credential(t, "redis")
	var all []*Server
	join := []string{"--cluster", "create"}
	for range 3 {
		s := &Server{Name: "redis-server", Host: address(), Port: 6379, Dir: directory(t, who)}
		s.start = func() *exec.Cmd {
			return as(exec.Command(bin, "--bind", s.Host, "--port", strconv.Itoa(s.Port), "--dir", s.Dir, "--save", "", "--cluster-enabled", "yes",
				"--cluster-node-timeout", "60000", "--cluster-announce-ip", s.Host), who, s.Dir)
		}
		s.ready = func() error { return s.speaks("PING\r\n", "+PONG") }
		s.run(t)
		t.Cleanup(s.Remove)
		all, join = append(all, s), append(join, s.Addr())
	}
	ctx, cancel := context.WithTimeout(context.Background(), giveUp)
	defer cancel()
	if out, err := as(exec.CommandContext(ctx, cli, append(join, "--cluster-yes")...), nil, all[0].Dir).CombinedOutput(); err != nil {
		t.Fatalf("redis-cli: %v\n%s", err, out)
	}
	for end := time.Now().Add(giveUp); ; time.Sleep(20 * time.Millisecond) {
		sound := 0
		for _, s := range all {
			out, _ := exec.CommandContext(ctx, cli, "-h", s.Host, "cluster", "info").Output()
			if strings.Contains(string(out), "cluster_state:ok") {
				sound++
			}
		}
		if sound == len(all) {
			return all
		}
		if time.Now().After(end) {
			t.Fatal("the servers of redis do not become a cluster")
		}
	}
}

// dial connects, as a client with a certificate if the server requires one.
func (s *Server) dial() (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	if s.Files.CA == "" {
		return d.Dial("tcp", s.Addr())
	}
	pair, err := tls.LoadX509KeyPair(s.Files.Cert, s.Files.Key)
	if err != nil {
		return nil, err
	}
	return tls.DialWithDialer(&d, "tcp", s.Addr(), &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true})
}

// certify creates the files of a server in a directory beside its data.
func (s *Server) certify(t testing.TB, owner *syscall.Credential) {
	t.Helper()
	dir := filepath.Join(s.Dir, "tls")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	s.Files = Certificates{CA: file("ca.pem"), Other: file("other.pem"), ServerCert: file("server.pem"), ServerKey: file("server.key"),
		Cert: file("client.pem"), Key: file("client.key")}
	ca, caKey := certificate(t, "the authority", nil, nil, nil, s.Files.CA, "")
	certificate(t, "another authority", nil, nil, nil, s.Files.Other, "")
	certificate(t, "server", net.ParseIP(s.Host), ca, caKey, s.Files.ServerCert, s.Files.ServerKey)
	certificate(t, "salt", nil, ca, caKey, s.Files.Cert, s.Files.Key)
	if owner != nil {
		if err := os.Chown(s.Files.ServerKey, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}
}

// certificate creates a certificate, that of an authority if ca is nil.
func certificate(t testing.TB, name string, at net.IP, ca *x509.Certificate, caKey *ecdsa.PrivateKey, certFile, keyFile string) (*x509.Certificate,
	*ecdsa.PrivateKey) {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	check(err)
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if at != nil {
		c.IPAddresses = []net.IP{at}
	}
	signer := key
	if ca == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
		ca = c
	} else {
		signer = caKey
	}
	der, err := x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, signer)
	check(err)
	check(os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	if keyFile != "" {
		b, err := x509.MarshalPKCS8PrivateKey(key)
		check(err)
		check(os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}), 0o600))
	}
	c, err = x509.ParseCertificate(der)
	check(err)
	return c, key
}
