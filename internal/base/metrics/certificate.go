package metrics

import (
	"crypto/tls"
	"crypto/x509"
	"time"
)

var certificate = Family{Name: "brine_certificate_expiry_timestamp_seconds",
	Help: "End of a certificate, in seconds since 1970.", Labels: []string{"certificate"}}

// CertificateFamily returns the family that Certificate and TLS write.
func CertificateFamily() *Family { return &certificate }

// Certificate writes when a certificate expires. A zero time is omitted.
func (p *Page) Certificate(name string, ends time.Time) { p.Time(&certificate, ends, name) }

// TLS writes when the certificate of a TLS configuration expires, if it has one.
func (p *Page) TLS(name string, c *tls.Config) {
	if c == nil || len(c.Certificates) == 0 || len(c.Certificates[0].Certificate) == 0 {
		return
	}
	if cert, err := x509.ParseCertificate(c.Certificates[0].Certificate[0]); err == nil {
		p.Certificate(name, cert.NotAfter)
	}
}
