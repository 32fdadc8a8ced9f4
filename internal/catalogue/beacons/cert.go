package beacons

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"brine/internal/py/value"
)

// notifyDays is the default number of days before expiry at which a certificate
// is reported.
const notifyDays = 45

// maxCertificate bounds a file with a certificate, in bytes.
const maxCertificate = 1 << 20

// watchedCert is one entry of files. It is reported when at most days are left,
// always if days is negative.
type watchedCert struct {
	path string
	days float64
}

func certFiles(c Config) (out []watchedCert, err error) {
	list, ok := c.Get("files").(*value.List)
	if !ok {
		return nil, errors.New("it requires files, a list of paths")
	}
	days := func(v any, otherwise float64) (float64, error) {
		switch x := v.(type) {
		case nil:
			return otherwise, nil
		case int64:
			return float64(x), nil
		case float64:
			return x, nil
		}
		return 0, fmt.Errorf("notify_days: expected a number, got %s", value.Repr(v))
	}
	all, err := days(c.Get("notify_days"), notifyDays)
	if err != nil {
		return nil, err
	}
	for _, it := range list.Items {
		w := watchedCert{days: all}
		switch x := it.(type) {
		case string:
			w.path = x
		case *value.Dict:
			for k, v := range x.All() {
				set, _ := v.(*value.Dict)
				w.path = value.Str(k)
				if w.days, err = days(set.At("notify_days"), all); err != nil {
					return nil, fmt.Errorf("files: %s: %w", w.path, err)
				}
				break
			}
		}
		if w.path == "" {
			return nil, fmt.Errorf("files: expected paths, got %s", value.Repr(it))
		}
		out = append(out, w)
	}
	return out, nil
}

func validCert(c Config) error {
	_, err := certFiles(c)
	return err
}

func init() {
	kinds.Register("cert_info", func(b machine) Beacon {
		return Beacon{
			Settings: "files notify_days",
			Doc:      "Report certificates in PEM files that expire within notify_days (45); a negative number reports each always.",
			Example:  "- files:\n  - /etc/ssl/certs/web.pem:\n      notify_days: 30\n- notify_days: 45\n",
			Validate: validCert, Look: b.certificates,
		}
	})
}

// certificates reports, in one event, the certificates that expire soon.
// Unreadable files are an error after the others were reported.
func (b machine) certificates(_ context.Context, l Look) ([]*value.Dict, error) {
	files, err := certFiles(l.Config)
	if err != nil {
		return nil, err
	}
	var due []any
	var failed []error
	for _, f := range files {
		cert, err := readCert(b.m.Path(f.path))
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", f.path, err))
			continue
		}
		left := cert.NotAfter.Sub(l.Now)
		days := left / (24 * time.Hour)
		if left < 0 && left%(24*time.Hour) != 0 {
			days-- // whole days, rounded down
		}
		if f.days < 0 || float64(days) <= f.days {
			due = append(due, describeCert(f.path, cert, l.Now))
		}
	}
	if len(due) == 0 {
		return nil, errors.Join(failed...)
	}
	return []*value.Dict{value.DictOf("certificates", &value.List{Items: due})}, errors.Join(failed...)
}

func readCert(path string) (*x509.Certificate, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rest, err := io.ReadAll(io.LimitReader(f, maxCertificate))
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("it contains no certificate in PEM form")
		}
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
	}
}

// describeCert returns the fields of Salt's event, with OpenSSL's names and
// strings.
func describeCert(path string, c *x509.Certificate, now time.Time) *value.Dict {
	const raw, plain = "20060102150405Z", "2006-01-02 15:04:05Z"
	issuer, issuerDict := distinguished(c.RawIssuer)
	subject, subjectDict := distinguished(c.RawSubject)
	extensions := &value.List{}
	for _, e := range c.Extensions {
		extensions.Append(value.DictOf("ext_name", extensionName(e.Id), "ext_data", extensionText(c, e)))
	}
	return value.DictOf("cert_path", path, "issuer", issuer, "issuer_dict", issuerDict,
		"notAfter_raw", c.NotAfter.UTC().Format(raw), "notAfter", c.NotAfter.UTC().Format(plain),
		"notBefore_raw", c.NotBefore.UTC().Format(raw), "notBefore", c.NotBefore.UTC().Format(plain),
		"serial_number", value.Big(c.SerialNumber), "signature_algorithm", signatureName(c),
		"subject", subject, "subject_dict", subjectDict, "version", int64(c.Version-1), "extensions", extensions,
		"has_expired", now.After(c.NotAfter))
}

// attributeNames maps object identifiers to OpenSSL's short names of attributes.
var attributeNames = map[string]string{
	"2.5.4.3": "CN", "2.5.4.4": "SN", "2.5.4.5": "serialNumber", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "street",
	"2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.12": "title", "2.5.4.13": "description", "2.5.4.15": "businessCategory", "2.5.4.17": "postalCode",
	"2.5.4.42": "GN", "2.5.4.43": "initials", "2.5.4.46": "dnQualifier", "2.5.4.97": "organizationIdentifier",
	"1.2.840.113549.1.9.1": "emailAddress", "0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
	"1.3.6.1.4.1.311.60.2.1.1": "jurisdictionL", "1.3.6.1.4.1.311.60.2.1.2": "jurisdictionST", "1.3.6.1.4.1.311.60.2.1.3": "jurisdictionC",
}

// distinguished returns a name as a string and as a map.
func distinguished(der []byte) (string, *value.Dict) {
	d := value.NewDict(4)
	var parts []string
	var name pkix.RDNSequence
	if _, err := asn1.Unmarshal(der, &name); err != nil {
		return "", d
	}
	for _, set := range name {
		for _, a := range set {
			key, ok := attributeNames[a.Type.String()]
			if !ok {
				key = "UNDEF"
			}
			text := fmt.Sprint(a.Value)
			parts = append(parts, fmt.Sprintf("%s=%q", key, text))
			d.Set(key, text)
		}
	}
	return strings.Join(parts, ","), d
}

func signatureName(c *x509.Certificate) string {
	switch c.SignatureAlgorithm {
	case x509.MD5WithRSA:
		return "md5WithRSAEncryption"
	case x509.SHA1WithRSA:
		return "sha1WithRSAEncryption"
	case x509.SHA256WithRSA:
		return "sha256WithRSAEncryption"
	case x509.SHA384WithRSA:
		return "sha384WithRSAEncryption"
	case x509.SHA512WithRSA:
		return "sha512WithRSAEncryption"
	case x509.SHA256WithRSAPSS, x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS:
		return "rsassaPss"
	case x509.ECDSAWithSHA1:
		return "ecdsa-with-SHA1"
	case x509.ECDSAWithSHA256:
		return "ecdsa-with-SHA256"
	case x509.ECDSAWithSHA384:
		return "ecdsa-with-SHA384"
	case x509.ECDSAWithSHA512:
		return "ecdsa-with-SHA512"
	case x509.PureEd25519:
		return "ED25519"
	}
	return "UNDEF"
}

var extensionNames = map[string]string{
	"2.5.29.14": "subjectKeyIdentifier", "2.5.29.15": "keyUsage", "2.5.29.17": "subjectAltName", "2.5.29.18": "issuerAltName",
	"2.5.29.19": "basicConstraints",
	"2.5.29.30": "nameConstraints", "2.5.29.31": "crlDistributionPoints", "2.5.29.32": "certificatePolicies", "2.5.29.35": "authorityKeyIdentifier",
	"2.5.29.37": "extendedKeyUsage", "1.3.6.1.5.5.7.1.1": "authorityInfoAccess", "1.3.6.1.5.5.7.1.24": "tlsfeature",
	"1.3.6.1.4.1.11129.2.4.2": "ct_precert_scts", "1.3.6.1.4.1.11129.2.4.3": "ct_precert_poison",
}

func extensionName(id asn1.ObjectIdentifier) string {
	if name, ok := extensionNames[id.String()]; ok {
		return name
	}
	return "UNDEF"
}

var keyUsages = []struct {
	bit  x509.KeyUsage
	text string
}{
	{x509.KeyUsageDigitalSignature, "Digital Signature"}, {x509.KeyUsageContentCommitment, "Non Repudiation"},
	{x509.KeyUsageKeyEncipherment, "Key Encipherment"}, {x509.KeyUsageDataEncipherment, "Data Encipherment"},
	{x509.KeyUsageKeyAgreement, "Key Agreement"}, {x509.KeyUsageCertSign, "Certificate Sign"}, {x509.KeyUsageCRLSign, "CRL Sign"},
	{x509.KeyUsageEncipherOnly, "Encipher Only"}, {x509.KeyUsageDecipherOnly, "Decipher Only"},
}

var extendedUsages = map[x509.ExtKeyUsage]string{
	x509.ExtKeyUsageAny: "Any Extended Key Usage", x509.ExtKeyUsageServerAuth: "TLS Web Server Authentication",
	x509.ExtKeyUsageClientAuth:  "TLS Web Client Authentication",
	x509.ExtKeyUsageCodeSigning: "Code Signing", x509.ExtKeyUsageEmailProtection: "E-mail Protection", x509.ExtKeyUsageIPSECEndSystem: "IPSec End System",
	x509.ExtKeyUsageIPSECTunnel: "IPSec Tunnel", x509.ExtKeyUsageIPSECUser: "IPSec User", x509.ExtKeyUsageTimeStamping: "Time Stamping",
	x509.ExtKeyUsageOCSPSigning: "OCSP Signing",
}

// extensionText formats an extension as OpenSSL does, if servers' or CAs'
// certificates use it; otherwise it prints the bytes.
func extensionText(c *x509.Certificate, e pkix.Extension) string {
	var words []string
	switch extensionName(e.Id) {
	case "subjectKeyIdentifier":
		return hexPairs(c.SubjectKeyId)
	case "authorityKeyIdentifier":
		if len(c.AuthorityKeyId) > 0 {
			return hexPairs(c.AuthorityKeyId)
		}
	case "basicConstraints":
		text := "CA:FALSE"
		if c.IsCA {
			text = "CA:TRUE"
		}
		if c.MaxPathLen > 0 || c.MaxPathLenZero {
			text += fmt.Sprintf(", pathlen:%d", c.MaxPathLen)
		}
		return text
	case "keyUsage":
		for _, u := range keyUsages {
			if c.KeyUsage&u.bit != 0 {
				words = append(words, u.text)
			}
		}
	case "extendedKeyUsage":
		for _, u := range c.ExtKeyUsage {
			words = append(words, extendedUsages[u])
		}
		for _, id := range c.UnknownExtKeyUsage {
			words = append(words, id.String())
		}
	case "subjectAltName":
		words = alternativeNames(e.Value)
	}
	if len(words) > 0 {
		return strings.Join(words, ", ")
	}
	return hexPairs(e.Value)
}

// alternativeNames lists names in their order in the certificate; nil if one is
// not a DNS name, an IP address, an email address or a URI.
func alternativeNames(der []byte) (words []string) {
	var all []asn1.RawValue
	if _, err := asn1.Unmarshal(der, &all); err != nil {
		return nil
	}
	for _, v := range all {
		switch v.Tag {
		case 1:
			words = append(words, "email:"+string(v.Bytes))
		case 2:
			words = append(words, "DNS:"+string(v.Bytes))
		case 6:
			words = append(words, "URI:"+string(v.Bytes))
		case 7:
			words = append(words, "IP Address:"+opensslAddress(v.Bytes))
		default:
			return nil
		}
	}
	return words
}

// opensslAddress prints an address as OpenSSL does: IPv6 without omitted zeros.
func opensslAddress(b []byte) string {
	switch len(b) {
	case 4:
		return fmt.Sprintf("%d.%d.%d.%d", b[0], b[1], b[2], b[3])
	case 16:
		var groups []string
		for i := 0; i < 16; i += 2 {
			groups = append(groups, fmt.Sprintf("%X", int(b[i])<<8|int(b[i+1])))
		}
		return strings.Join(groups, ":")
	}
	return "<invalid>"
}

func hexPairs(b []byte) string {
	words := make([]string, len(b))
	for i, x := range b {
		words[i] = fmt.Sprintf("%02X", x)
	}
	return strings.Join(words, ":")
}
