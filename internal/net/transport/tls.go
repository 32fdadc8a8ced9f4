package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"brine/internal/base/field"
	"brine/internal/py/value"
)

// TLSOptions is the option ssl, for the transports tcp and ws. Its values are those of Python's ssl
// module, as in Salt.
//
// cert_reqs says whether the other side needs a certificate. By default a server requires one of
// its clients, as Salt 3008 does (3007's servers did not); a client always requires the server's,
// unless CERT_NONE. A server that verifies needs ca_certs or verify_locations; a client uses the
// system's authorities otherwise. A client that verifies also requires the dialled address in the
// certificate.
type TLSOptions struct {
	CertFile        string   `salt:"certfile"         default:""     doc:"certificate of this side, PEM, followed by intermediate ones"`
	KeyFile         string   `salt:"keyfile"          default:""     doc:"private key, PEM; default: in certfile"`
	CACerts         string   `salt:"ca_certs"         default:""     doc:"certificate authorities for the other side, PEM"`
	CertReqs        string   `salt:"cert_reqs"        default:""     doc:"CERT_NONE, CERT_OPTIONAL or CERT_REQUIRED"`
	Version         string   `salt:"ssl_version"      default:""     doc:"PROTOCOL_TLS and the like: 1.2 and newer; PROTOCOL_TLSv1_2: only 1.2"`
	Ciphers         string   `salt:"ciphers"          default:""     doc:"cipher suites of TLS 1.2, by OpenSSL's or IANA's names"`
	VerifyLocations any      `salt:"verify_locations" default:"null" doc:"list of further authorities: files, or mappings of cafile, capath, cadata"`
	VerifyFlags     []string `salt:"verify_flags"     default:"[]"   doc:"Python's VERIFY_ flags"`
}

// ParseTLS reads the value of the option ssl. It returns nil if TLS is off: null or false. True
// means a mapping without entries.
func ParseTLS(v any) (*TLSOptions, error) {
	o := &TLSOptions{}
	switch x := v.(type) {
	case nil:
		return nil, nil
	case bool:
		if !x {
			return nil, nil
		}
		return o, nil
	case *value.Dict:
		if err := field.Set(reflect.ValueOf(o).Elem(), x); err != nil {
			return nil, fmt.Errorf("option ssl: %w", err)
		}
		return o, nil
	}
	return nil, fmt.Errorf("option ssl: expected a mapping, got %s", field.Describe(v))
}

// ServerTLS returns the configuration of a listener.
func ServerTLS(o TLSOptions) (*tls.Config, error) {
	if o.CertFile == "" {
		return nil, errors.New("option ssl: certfile is missing: a listener needs a certificate")
	}
	c, roots, err := commonTLS(o)
	if err != nil {
		return nil, err
	}
	switch reqs := strings.ToUpper(o.CertReqs); reqs {
	case "CERT_NONE":
		return c, nil
	case "", "CERT_REQUIRED":
		c.ClientAuth = tls.RequireAndVerifyClientCert
	case "CERT_OPTIONAL":
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if roots == nil {
		return nil, errors.New("option ssl: ca_certs is missing: the listener asks its clients for certificates and needs " +
			"the authority they come from (set cert_reqs to CERT_NONE to ask for none)")
	}
	c.ClientCAs = roots
	return c, nil
}

// ClientTLS returns the configuration of a connection. Dialling adds the server's name.
func ClientTLS(o TLSOptions) (*tls.Config, error) {
	c, roots, err := commonTLS(o)
	if err != nil {
		return nil, err
	}
	c.RootCAs = roots
	c.InsecureSkipVerify = strings.EqualFold(o.CertReqs, "CERT_NONE")
	return c, nil
}

// commonTLS returns the common configuration of both sides; roots is nil if none are configured.
func commonTLS(o TLSOptions) (c *tls.Config, roots *x509.CertPool, err error) {
	c = &tls.Config{MinVersion: tls.VersionTLS12}
	switch strings.ToUpper(o.CertReqs) {
	case "", "CERT_NONE", "CERT_OPTIONAL", "CERT_REQUIRED":
	default:
		return nil, nil, fmt.Errorf("option ssl: cert_reqs: expected CERT_NONE, CERT_OPTIONAL or CERT_REQUIRED, got %q", o.CertReqs)
	}
	if err := setVersion(c, o.Version); err != nil {
		return nil, nil, err
	}
	if c.CipherSuites, err = parseCiphers(o.Ciphers); err != nil {
		return nil, nil, err
	}
	if err := checkFlags(o.VerifyFlags); err != nil {
		return nil, nil, err
	}
	if o.CertFile != "" {
		cert, err := loadCertificate(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, nil, err
		}
		c.Certificates = []tls.Certificate{cert}
	} else if o.KeyFile != "" {
		return nil, nil, errors.New("option ssl: keyfile is set but certfile is not")
	}
	roots, err = loadRoots(o)
	return c, roots, err
}

func setVersion(c *tls.Config, name string) error {
	switch strings.TrimPrefix(strings.ToUpper(name), "PROTOCOL_") {
	case "", "TLS", "TLS_SERVER", "TLS_CLIENT", "SSLV23":
	case "TLSV1_2":
		c.MaxVersion = tls.VersionTLS12
	case "TLSV1_1":
		c.MinVersion, c.MaxVersion = tls.VersionTLS11, tls.VersionTLS11
	case "TLSV1":
		c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS10
	default:
		return fmt.Errorf("option ssl: ssl_version: %q is unknown or no longer safe; omit it, or set PROTOCOL_TLS", name)
	}
	return nil
}

func loadCertificate(certFile, keyFile string) (tls.Certificate, error) {
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("option ssl: cannot read certfile: %w", err)
	}
	keyPEM := certPEM
	if keyFile == "" {
		keyFile = certFile
	} else if keyPEM, err = os.ReadFile(keyFile); err != nil {
		return tls.Certificate{}, fmt.Errorf("option ssl: cannot read keyfile: %w", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return cert, fmt.Errorf("option ssl: certfile %s with keyfile %s: %w", certFile, keyFile, err)
	}
	return cert, nil
}

// loadRoots reads the authorities, or returns nil if none are configured.
func loadRoots(o TLSOptions) (*x509.CertPool, error) {
	pool, given := x509.NewCertPool(), false
	file := func(option, path string) error {
		given = true
		pem, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("option ssl: cannot read %s: %w", option, err)
		}
		if !pool.AppendCertsFromPEM(pem) {
			return fmt.Errorf("option ssl: %s: no certificate in %s", option, path)
		}
		return nil
	}
	if o.CACerts != "" {
		if err := file("ca_certs", o.CACerts); err != nil {
			return nil, err
		}
	}
	for _, loc := range asList(o.VerifyLocations) {
		d, ok := loc.(*value.Dict)
		if !ok {
			if err := file("verify_locations", value.Str(loc)); err != nil {
				return nil, err
			}
			continue
		}
		for k, v := range d.All() {
			given = true
			if err := addLocation(pool, file, value.Str(k), value.Str(v)); err != nil {
				return nil, err
			}
		}
	}
	if !given {
		return nil, nil
	}
	return pool, nil
}

func asList(v any) []any {
	switch x := v.(type) {
	case nil:
		return nil
	case *value.List:
		return x.Items
	}
	return []any{v}
}

func addLocation(pool *x509.CertPool, file func(option, path string) error, kind, v string) error {
	const option = "verify_locations"
	switch strings.ToLower(kind) {
	case "cafile":
		return file(option, v)
	case "cadata":
		if !pool.AppendCertsFromPEM([]byte(v)) {
			return fmt.Errorf("option ssl: %s: no certificate in cadata", option)
		}
		return nil
	case "capath":
		entries, err := os.ReadDir(v)
		if err != nil {
			return fmt.Errorf("option ssl: cannot read %s: %w", option, err)
		}
		found := false
		for _, e := range entries {
			pem, err := os.ReadFile(filepath.Join(v, e.Name()))
			found = err == nil && pool.AppendCertsFromPEM(pem) || found
		}
		if !found {
			return fmt.Errorf("option ssl: %s: no certificate in directory %s", option, v)
		}
		return nil
	}
	return fmt.Errorf("option ssl: %s: expected cafile, capath or cadata, got %q", option, kind)
}

// checkFlags refuses unsupported flags. Go does the rest anyway.
func checkFlags(flags []string) error {
	for _, f := range flags {
		switch strings.ToUpper(f) {
		case "VERIFY_DEFAULT", "VERIFY_X509_STRICT", "VERIFY_X509_TRUSTED_FIRST", "VERIFY_X509_PARTIAL_CHAIN":
		default:
			return fmt.Errorf("option ssl: verify_flags: %s is not supported", f)
		}
	}
	return nil
}

// openSSL maps OpenSSL's names to the suites of TLS 1.2 that Go has.
var openSSL = map[string]uint16{
	"ECDHE-ECDSA-AES128-GCM-SHA256": tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	"ECDHE-RSA-AES128-GCM-SHA256":   tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	"ECDHE-ECDSA-AES256-GCM-SHA384": tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	"ECDHE-RSA-AES256-GCM-SHA384":   tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	"ECDHE-ECDSA-CHACHA20-POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	"ECDHE-RSA-CHACHA20-POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	"ECDHE-ECDSA-AES128-SHA256":     tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256,
	"ECDHE-RSA-AES128-SHA256":       tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256,
	"ECDHE-ECDSA-AES128-SHA":        tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA,
	"ECDHE-RSA-AES128-SHA":          tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA,
	"ECDHE-ECDSA-AES256-SHA":        tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,
	"ECDHE-RSA-AES256-SHA":          tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA,
	"AES128-GCM-SHA256":             tls.TLS_RSA_WITH_AES_128_GCM_SHA256,
	"AES256-GCM-SHA384":             tls.TLS_RSA_WITH_AES_256_GCM_SHA384,
	"AES128-SHA256":                 tls.TLS_RSA_WITH_AES_128_CBC_SHA256,
	"AES128-SHA":                    tls.TLS_RSA_WITH_AES_128_CBC_SHA,
	"AES256-SHA":                    tls.TLS_RSA_WITH_AES_256_CBC_SHA,
}

// neverOffered are OpenSSL's names of groups that Go never offers, so that excluding them has no
// effect.
var neverOffered = []string{"ANULL", "ENULL", "NULL", "EXPORT", "EXP", "LOW", "MEDIUM", "DES", "3DES", "RC2", "RC4", "IDEA",
	"SEED", "MD5", "DSS", "ADSS", "ADH", "AECDH", "DH", "KDH", "DHE", "EDH", "KEDH", "KDHE", "KRSA", "PSK", "KPSK", "SRP",
	"CAMELLIA", "ARIA", "GOST", "KRB5", "SSLV2", "SSLV3"}

// parseCiphers reads OpenSSL's list of suites. The names for all secure ones mean Go's defaults.
// Suites that Go lacks are omitted, as OpenSSL does with unknown ones; all suites of TLS 1.3 are
// always offered.
func parseCiphers(list string) ([]uint16, error) {
	if list == "" {
		return nil, nil
	}
	var suites []uint16
	defaults := false
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(":, ;", r) }) {
		switch name := strings.ToUpper(word); {
		case name == "HIGH" || name == "DEFAULT" || name == "ALL" || name == "SECURE128" || name == "SECURE256":
			defaults = true
		case name[0] == '@':
		case name[0] == '!' || name[0] == '-':
			if id, ok := suite(name[1:]); ok {
				suites = slices.DeleteFunc(suites, func(s uint16) bool { return s == id })
			} else if !slices.Contains(neverOffered, name[1:]) {
				return nil, fmt.Errorf("option ssl: ciphers: %q is not supported; name the suites instead", word)
			}
		default:
			if id, ok := suite(name); ok {
				suites = append(suites, id)
			}
		}
	}
	if defaults {
		return nil, nil
	}
	if len(suites) == 0 {
		return nil, fmt.Errorf("option ssl: ciphers: all of %q are unknown", list)
	}
	return suites, nil
}

// suite finds a suite by a name in upper case.
func suite(name string) (uint16, bool) {
	if id, ok := openSSL[name]; ok {
		return id, true
	}
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if s.Name == name {
			return s.ID, true
		}
	}
	return 0, false
}
