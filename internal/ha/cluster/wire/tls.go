package wire

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
	"io"
	"math/big"
	"net"
	"sync"
	"syscall"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/net/crypt"
)

// Masters without a shared directory use TLS 1.3 on the same port. Each master presents a certificate for its id, signed by the cluster's
// key. The certificate's own key exists only in that process. The handshake of package memberauth follows inside TLS. Its signatures, made
// with the keys that define membership, also cover the TLS connection. This stops an impostor that has the cluster's key, such as a
// removed master.
//
// Certificates are valid from a year before until a year after their creation, so that a clock difference that maxSkew permits does not
// invalidate them. A new one is created after a month, and when the clock was set back.
const (
	certificateTime  = 365 * 24 * time.Hour
	certificateRenew = 30 * 24 * time.Hour
)

// bindLabel names the exported keying material that binds the inner handshakes to the connection. recordHandshake is the first byte of
// TLS; no frame begins with it.
const (
	bindLabel       = "EXPORTER-brine-cluster"
	RecordHandshake = 0x16
)

// Identity is the certificate and key of a master or a witness for TLS.
type Identity struct {
	Id, cluster string
	Key         *ecdsa.PrivateKey
	Now         func() time.Time

	mu   sync.Mutex
	sign *crypt.PrivateKey // the cluster's key; nil: the certificate is fixed
	// chain has the endorsements of the cluster's key.
	chain []keys.Endorsement
	Cert  *tls.Certificate
	made  time.Time
}

// NewIdentity creates a key and a certificate for it, signed by the key of the cluster.
func NewIdentity(id, cluster string, sign *crypt.PrivateKey) (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	b := &Identity{Id: id, cluster: cluster, Key: key, sign: sign, Now: time.Now}
	_, err = b.certificate()
	return b, err
}

// Resign replaces the key of the cluster that signs the next certificate.
func (b *Identity) Resign(sign *crypt.PrivateKey, chain []keys.Endorsement) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sign, b.chain, b.Cert = sign, chain, nil
}

// issue creates a certificate signed by the cluster's key.
func issue(sign *crypt.PrivateKey, chain []keys.Endorsement, cluster, id string, pub any, now time.Time) ([]byte, error) {
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
		c.ExtraExtensions = []pkix.Extension{{Id: keys.ChainID, Value: b}}
	}
	by := &x509.Certificate{Subject: pkix.Name{Organization: []string{cluster}, CommonName: "cluster"}}
	return x509.CreateCertificate(rand.Reader, c, by, pub, sign.Signer())
}

// certificate returns the current certificate.
func (b *Identity) certificate() (*tls.Certificate, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.Now().Round(0) // by the clock, not by the time that passes: the clock may have been set meanwhile
	if age := now.Sub(b.made); b.Cert != nil && (b.sign == nil || age >= -time.Hour && age < certificateRenew) {
		return b.Cert, nil
	}
	der, err := issue(b.sign, b.chain, b.cluster, b.Id, b.Key.Public(), now)
	if err != nil {
		return nil, salt.Errorf(salt.Internal, "cannot create a certificate of the cluster: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	b.Cert, b.made = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: b.Key, Leaf: leaf}, now
	return b.Cert, nil
}

// Expires returns the expiry of the current certificate.
func (b *Identity) Expires() time.Time {
	c, err := b.certificate()
	if err != nil {
		return time.Time{}
	}
	return c.Leaf.NotAfter
}

// config returns the configuration of both ends. Sessions are never resumed, because a resumption would not notice that a member was
// removed meanwhile. A nil identity has no certificate.
func (b *Identity) config() *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
		// checkCertificate verifies the other end instead: ids are not host names, and the cluster's key is the only authority.
		InsecureSkipVerify: true, ClientAuth: tls.RequestClientCert,
	}
	if b != nil {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return b.certificate() }
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return b.certificate() }
	}
	return c
}

// CheckCertificate returns why a certificate is not valid for an id; nil if it is. by is the key of the cluster.
func CheckCertificate(cert *x509.Certificate, by *crypt.PublicKey, cluster, id string, now time.Time) *refusal.Error {
	switch {
	case cert == nil:
		return refusal.New(refusal.Certificate,
			"%.100q shows no certificate of the cluster: only its members may speak here; if it is to be one, have it join (brine cluster join)", id)
	case by.Signed(cert) != nil:
		return refusal.New(refusal.Certificate,
			"the certificate that %.100q shows is not of this cluster: its cluster.pem did not sign it. If that master is to be a member, stop it, "+
				"remove its cluster_pki_dir and cachedir, and let it join", id)
	case len(cert.Subject.Organization) != 1 || cert.Subject.Organization[0] != cluster:
		return refusal.New(refusal.Certificate, "the certificate that %.100q shows is of the cluster %.100q, and this is %q: correct cluster_id there", id,
			cert.Subject.Organization, cluster)
	case cert.Subject.CommonName != id:
		return refusal.New(refusal.Certificate,
			"%.100q shows the certificate of %.100q: cluster_peers names a member by another id, or something between the masters leads to another one", id,
			cert.Subject.CommonName)
	case now.After(cert.NotAfter): // its maker renews it, so one of the two clocks is wrong
		return refusal.New(refusal.Clock,
			"the certificate that %.100q shows ended at %s, and here it is %s: correct the clock that is wrong; a master makes a new certificate "+
				"when it starts and each month", id, Stamp(cert.NotAfter), now.UTC().Format(time.DateOnly))
	case now.Before(cert.NotBefore):
		return refusal.New(refusal.Clock,
			"the certificate that %.100q shows begins at %s, and here it is %s: correct the clock that is wrong; a master makes a new certificate "+
				"when it starts and each month", id, Stamp(cert.NotBefore), now.UTC().Format(time.DateOnly))
	}
	return nil
}

// Stamp formats a time for messages.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Line is a connection between masters. It uses TLS unless the cluster has a shared directory, or the other master's version lacks TLS.
type Line struct {
	net.Conn
	Raw  net.Conn
	TLS  bool
	bind []byte            // keying material that binds the handshake to this connection; only with TLS
	Cert *x509.Certificate // certificate of the other end, nil for none
}

// Close closes the connection at once: closing TLS may block on a peer that does not read.
func (l *Line) Close() error { return l.Raw.Close() }

// shake does the TLS handshake.
func shake(ctx context.Context, raw net.Conn, c *tls.Conn) (*Line, error) {
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	state := c.ConnectionState()
	bind, err := state.ExportKeyingMaterial(bindLabel, nil, 32)
	if err != nil {
		return nil, err
	}
	l := &Line{Conn: c, Raw: raw, TLS: true, bind: bind}
	if len(state.PeerCertificates) > 0 {
		l.Cert = state.PeerCertificates[0]
	}
	return l, nil
}

// Transcript returns the initial transcript of a handshake on this connection.
func (l *Line) Transcript() (t Transcript) {
	if l.TLS {
		t.Add(l.bind)
	}
	return t
}

// Unread is a connection with bytes that were read and will be read again.
type Unread struct {
	net.Conn
	First []byte
}

func (u *Unread) Read(b []byte) (int, error) {
	if len(u.First) > 0 {
		n := copy(b, u.First)
		u.First = u.First[n:]
		return n, nil
	}
	return u.Conn.Read(b)
}

// Server accepts a connection, with or without TLS, depending on how the other end begins.
func (b *Identity) Server(ctx context.Context, conn net.Conn) (*Line, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		return nil, err
	}
	again := &Unread{conn, first}
	if first[0] != RecordHandshake {
		return &Line{Conn: again, Raw: conn}, nil
	}
	return shake(ctx, conn, tls.Server(again, b.config()))
}

// Client starts TLS on an outgoing connection. check returns the reason to refuse
// the other end's certificate, nil if there is none.
func (b *Identity) Client(ctx context.Context, conn net.Conn, check func(*x509.Certificate) *refusal.Error) (*Line, error) {
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

// HasNoTLS reports whether an error shows that the other master's version lacks TLS: it closed the
// connection.
func HasNoTLS(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
