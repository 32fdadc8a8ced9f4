package auth

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// pki accepts a certificate as the password. It must be signed by the authority in ca_file and
// valid now, and its common name must be the user's. Like Salt, it does not check possession of the
// key: a copy of the certificate is enough to sign in.
type pki struct{ caFile string }

func init() { systems.Register("pki", newPKI) }

func newPKI(conf *value.Dict, _ *Options) (System, error) {
	path := conf.Str("ca_file")
	if path == "" {
		path = conf.Str("^ca_file")
	}
	if path == "" {
		return nil, salt.Errorf(salt.Invalid, "ca_file is missing: the CA certificate")
	}
	return pki{path}, nil
}

// Check implements checked.
func (p pki) Check() error {
	_, err := p.roots()
	return err
}

// roots reads the CA certificate.
func (p pki) roots() (*x509.CertPool, error) {
	b, err := os.ReadFile(p.caFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read the CA certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(b) {
		return nil, salt.Errorf(salt.Invalid, "%s holds no certificate", p.caFile)
	}
	return roots, nil
}

// Authenticate implements System.
func (p pki) Authenticate(_ context.Context, c Credentials) (Vouched, error) {
	roots, err := p.roots()
	if err != nil {
		return Vouched{}, err
	}
	block, _ := pem.Decode([]byte(c.Password))
	if block == nil || block.Type != "CERTIFICATE" {
		return Vouched{}, ErrRefused
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || cert.Subject.CommonName != c.Name {
		return Vouched{}, ErrRefused
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return Vouched{}, ErrRefused
	}
	return Vouched{}, nil
}
