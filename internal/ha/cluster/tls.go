package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"syscall"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/net/crypt"
)

// Masters without a shared directory use TLS 1.3 on the same port. Each shows a certificate of a key that exists only in its process,
// signed by the cluster's key for its id. Inside is the handshake of link.go. Its signatures, by the keys that define membership, also
// cover this connection: this stops an impostor that has the cluster's key, such as a removed master.
//
// Certificates have a wide validity, so that only clocks matter that are wrong enough to matter anyway (maxSkew). They begin a year before
// and end a year after their creation. A new one is created after a month, and when the clock was set back.
const (
	certificateTime  = 365 * 24 * time.Hour
	certificateRenew = 30 * 24 * time.Hour
)

// bindLabel names the exported keying material that binds the inner handshakes to the connection, and recordHandshake is the first byte of
// TLS: no frame begins like this.
const (
	bindLabel       = "EXPORTER-brine-cluster"
	recordHandshake = 0x16
)

// tlsIdentity is the certificate and key of a master or a witness for TLS.
type tlsIdentity struct {
	id, cluster string
	key         *ecdsa.PrivateKey
	now         func() time.Time

	mu   sync.Mutex
	sign *crypt.PrivateKey // the cluster's key; nil: the certificate is fixed
	// chain has the endorsements of the cluster's key.
	chain []endorsement
	cert  *tls.Certificate
	made  time.Time
}

func newTLSIdentity(id, cluster string, sign *crypt.PrivateKey) (*tlsIdentity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	b := &tlsIdentity{id: id, cluster: cluster, key: key, sign: sign, now: time.Now}
	_, err = b.certificate()
	return b, err
}

// resign makes another key of the cluster sign the next certificate.
func (b *tlsIdentity) resign(sign *crypt.PrivateKey, chain []endorsement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sign, b.chain, b.cert = sign, chain, nil
}

// issue creates a certificate signed by the cluster's key.
func issue(sign *crypt.PrivateKey, chain []endorsement, cluster, id string, pub any, now time.Time) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{cluster}, CommonName: id},
		NotBefore: now.Add(-certificateTime), NotAfter: now.Add(certificateTime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true, SignatureAlgorithm: x509.SHA256WithRSA,
	}
	if len(chain) > 0 {
		b, err := json.Marshal(chain)
		if err != nil {
			return nil, err
		}
		c.ExtraExtensions = []pkix.Extension{{Id: chainID, Value: b}}
	}
	by := &x509.Certificate{Subject: pkix.Name{Organization: []string{cluster}, CommonName: "cluster"}}
	return x509.CreateCertificate(rand.Reader, c, by, pub, sign.Signer())
}

// certificate returns the current certificate.
func (b *tlsIdentity) certificate() (*tls.Certificate, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if age := now.Sub(b.made); b.cert != nil && (b.sign == nil || age >= -time.Hour && age < certificateRenew) {
		return b.cert, nil
	}
	der, err := issue(b.sign, b.chain, b.cluster, b.id, b.key.Public(), now)
	if err != nil {
		return nil, salt.Errorf(salt.Internal, "cannot create a certificate of the cluster: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	b.cert, b.made = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: b.key, Leaf: leaf}, now
	return b.cert, nil
}

// ends returns the expiry of the current certificate.
func (b *tlsIdentity) ends() time.Time {
	c, err := b.certificate()
	if err != nil {
		return time.Time{}
	}
	return c.Leaf.NotAfter
}

// config returns the configuration of both ends. Sessions are never resumed: the removal of a member in between would go unnoticed. A nil
// identity has no certificate.
func (b *tlsIdentity) config() *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
		// checkCertificate verifies the other end: ids are not host names, and the cluster's key is the only authority.
		InsecureSkipVerify: true, ClientAuth: tls.RequestClientCert,
	}
	if b != nil {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return b.certificate() }
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return b.certificate() }
	}
	return c
}

// checkCertificate returns why a certificate is not valid for an id of a cluster with the key by; nil if it is.
func checkCertificate(cert *x509.Certificate, by *crypt.PublicKey, cluster, id string, now time.Time) *refusal.Error {
	switch {
	case cert == nil:
		return refusal.New(refusal.Certificate, "%.100q shows no certificate of the cluster: only its members may speak here; if it is to be one, have it join (brine cluster join)", id)
	case by.Signed(cert) != nil:
		return refusal.New(refusal.Certificate, "the certificate that %.100q shows is not of this cluster: its cluster.pem did not sign it. If that master is to be a member, stop it, remove its cluster_pki_dir and cachedir, and let it join", id)
	case len(cert.Subject.Organization) != 1 || cert.Subject.Organization[0] != cluster:
		return refusal.New(refusal.Certificate, "the certificate that %.100q shows is of the cluster %.100q, and this is %q: correct cluster_id there", id, cert.Subject.Organization, cluster)
	case cert.Subject.CommonName != id:
		return refusal.New(refusal.Certificate, "%.100q shows the certificate of %.100q: cluster_peers names a member by another id, or something between the masters leads to another one", id, cert.Subject.CommonName)
	case now.After(cert.NotAfter):
		return refusal.New(refusal.Certificate, "the certificate that %.100q shows ended at %s, and here it is %s: correct the clock that is wrong; a master makes a new certificate when it starts and each month", id, stampText(cert.NotAfter), stampText(now))
	case now.Before(cert.NotBefore):
		return refusal.New(refusal.Certificate, "the certificate that %.100q shows begins at %s, and here it is %s: correct the clock that is wrong; a master makes a new certificate when it starts and each month", id, stampText(cert.NotBefore), stampText(now))
	}
	return nil
}

func stampText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// line is a connection between masters: by TLS or, in a cluster with a shared
// folder and to masters of versions that have none, without.
type line struct {
	net.Conn
	raw  net.Conn
	tls  bool
	bind []byte            // of this connection by TLS alone
	cert *x509.Certificate // that the other end has shown, nil for none
}

// Close ends it at once: what TLS says at an end may wait for a peer that does
// not read.
func (l *line) Close() error { return l.raw.Close() }

// shake does the handshake of TLS.
func shake(ctx context.Context, raw net.Conn, c *tls.Conn) (*line, error) {
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	state := c.ConnectionState()
	bind, err := state.ExportKeyingMaterial(bindLabel, nil, 32)
	if err != nil {
		return nil, err
	}
	l := &line{Conn: c, raw: raw, tls: true, bind: bind}
	if len(state.PeerCertificates) > 0 {
		l.cert = state.PeerCertificates[0]
	}
	return l, nil
}

// begun is the transcript of a handshake on this connection.
func (l *line) begun() (t transcript) {
	if l.tls {
		t.add(l.bind)
	}
	return t
}

// unread is a connection of which some bytes were read that are to be read again.
type unread struct {
	net.Conn
	first []byte
}

func (u *unread) Read(b []byte) (int, error) {
	if len(u.first) > 0 {
		n := copy(b, u.first)
		u.first = u.first[n:]
		return n, nil
	}
	return u.Conn.Read(b)
}

// answer takes a connection that somebody has made, by TLS or without, as he
// wants it.
func (b *tlsIdentity) answer(ctx context.Context, conn net.Conn) (*line, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		return nil, err
	}
	again := &unread{conn, first}
	if first[0] != recordHandshake {
		return &line{Conn: again, raw: conn}, nil
	}
	return shake(ctx, conn, tls.Server(again, b.config()))
}

// call begins TLS on a connection that was made. check says what is against the
// certificate of the other end.
func (b *tlsIdentity) call(ctx context.Context, conn net.Conn, check func(*x509.Certificate) *refusal.Error) (*line, error) {
	c := b.config()
	c.VerifyConnection = func(s tls.ConnectionState) error {
		var cert *x509.Certificate
		if len(s.PeerCertificates) > 0 {
			cert = s.PeerCertificates[0]
		}
		if why := check(cert); why != nil {
			return why
		}
		return nil
	}
	return shake(ctx, conn, tls.Client(conn, c))
}

// isOld reports whether a master ended a connection as those do that know no TLS.
func isOld(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// needsTLS reports whether a member has spoken TLS, so that nothing else is
// believed to come from it.
func (c *Cluster) needsTLS(id string) bool {
	if p := c.all()[id]; p != nil {
		p.mu.Lock()
		spoke := p.tls
		p.mu.Unlock()
		if spoke {
			return true
		}
	}
	s, err := c.readStation(id)
	return err == nil && s.TLS
}

// allTLS reports whether all members speak TLS.
func (c *Cluster) allTLS() bool {
	for id, p := range c.all() {
		if !p.isGone() && !c.needsTLS(id) {
			return false
		}
	}
	return true
}

// admitsOld says why a master that speaks no TLS is not answered; "" if it may be
// a member of a version without.
func (c *Cluster) admitsOld(id string) *refusal.Error {
	if c.allTLS() {
		return refusal.New(refusal.TLS, "the members of this cluster speak TLS: install the version there that they have")
	}
	if _, err := c.secrets.PeerKey(id); err != nil {
		return refusal.New(refusal.NotMember, "%.100q %s of this master", id, refusal.TextNotMember)
	}
	return nil
}

// vouch says what is against the certificate of a connection from a master that
// says who it is; "" if nothing is.
func (c *Cluster) vouch(l *line, id string) *refusal.Error {
	switch {
	case !c.cfg.Options.Isolated:
		return nil
	case salt.CheckID(id) != nil:
		return refusal.New(refusal.ID, "%.100q is the id of no master", id)
	case l.tls:
		return c.checkMember(l.cert, id)
	case c.needsTLS(id):
		return refusal.New(refusal.TLS, "%.100q has spoken TLS and does not any more: somebody else may be at its address, or an older version was installed there; install the one that the others have", id)
	}
	return nil
}

// dialLine makes a connection to the peer, by TLS if it is not of a version
// without.
func (p *peer) dialLine(ctx context.Context) (*line, error) {
	c := p.c
	conn, err := p.dial(ctx)
	if err != nil || !c.cfg.Options.Isolated {
		return &line{Conn: conn, raw: conn}, err
	}
	conn.SetDeadline(time.Now().Add(handshakeTime))
	l, err := c.tlsIdentity.call(ctx, conn, func(cert *x509.Certificate) *refusal.Error {
		return c.checkMember(cert, p.id)
	})
	if err == nil {
		return l, nil
	}
	c.conns.remove(conn)
	conn.Close()
	if !isOld(err) || c.needsTLS(p.id) || ctx.Err() != nil {
		return nil, fmt.Errorf("TLS with %s: %w", p.id, err)
	}
	if conn, err = p.dial(ctx); err != nil {
		return nil, err
	}
	return &line{Conn: conn, raw: conn}, nil
}

// noTLS says why a connection that somebody has made came to nothing.
func (c *Cluster) noTLS(ctx context.Context, conn net.Conn, err error) {
	var alert tls.AlertError
	var remote *net.OpError
	switch {
	case ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || isTimeout(err):
	case errors.As(err, &alert), errors.As(err, &remote) && remote.Op == "remote error":
		c.rateLimitedLog.warn("alert", "a master does not take the certificate of this one: its log says why; if it is of another cluster, take this master out of its cluster_peers", "from", conn.RemoteAddr(), "err", err)
	default:
		c.rateLimitedLog.warn("tls", "somebody who speaks no TLS 1.3 was refused at the port for masters", "from", conn.RemoteAddr(), "err", err)
	}
}
