package certs

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/test/fuzztest"
	"brine/test/tools"
)

// issued returns a certificate with many extensions, and its key.
func issued(t testing.TB) (*Certificate, *Issue) {
	t.Helper()
	k, err := Generate("ed25519", 0)
	if err != nil {
		t.Fatal(err)
	}
	text, err := EncodeKey(k, "pem", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	c, i, err := SignHere(value.DictOf("signing_private_key", string(text), "CN", "näme", "C", "DE", "serial_number", int64(77),
		"not_before", "2026-01-01 00:00:00", "not_after", "2056-01-01 00:00:00",
		"basicConstraints", "critical, CA:TRUE, pathlen:1", "keyUsage", "critical, cRLSign, keyCertSign", "extendedKeyUsage", "serverAuth, 1.2.3.4",
		"subjectKeyIdentifier", "hash", "authorityKeyIdentifier", "keyid:always,issuer", "subjectAltName", "DNS:a.example.com,email:a@b.c,IP:::1,RID:1.2.3",
		"issuerAltName", "dirName:CN=x", "authorityInfoAccess", "OCSP;URI:http://o/", "crlDistributionPoints", "URI:http://c/, URI:http://d/",
		"certificatePolicies", value.DictOf("1.2.3", value.ListOf("http://x",
			value.DictOf("organization", "o", "noticeNumbers", value.ListOf(int64(1)), "text", "t"))),
		"policyConstraints", "requireExplicitPolicy:3", "inhibitAnyPolicy", int64(2), "nameConstraints", "permitted;IP:10.0.0.0/255.0.0.0,excluded;email:.com",
		"noCheck", true, "tlsfeature", "status_request"))
	if err != nil {
		t.Fatal(err)
	}
	i.Key = k
	return c, i
}

// TestStores checks that OpenSSL reads our PKCS#12 files and that we read OpenSSL's.
func TestStores(t *testing.T) {
	t.Parallel()
	openssl := tools.Need(t, "openssl", "openssl")
	c, i := issued(t)
	other, _ := issued(t)
	name, pass, wrong, empty := "a näme", "sécret", "wrong", ""
	dir := t.TempDir()
	run := func(args ...string) string {
		cmd := exec.Command(openssl, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	for what, p := range map[string]struct {
		passphrase *string
		compat     bool
	}{"plain": {nil, false}, "new": {&pass, false}, "old": {&pass, true}} {
		b, err := EncodeStore(c, []*Certificate{other}, i.Key, p.passphrase, &name, p.compat)
		if err != nil {
			t.Fatal(err)
		}
		check := func(from string, b []byte) {
			s, err := parseStore(b, p.passphrase)
			if err != nil || s.certificate == nil || !bytes.Equal(s.certificate.DER, c.DER) || len(s.chain) != 1 || !bytes.Equal(s.chain[0].DER, other.DER) ||
				s.key == nil || s.name == nil || *s.name != name {
				t.Errorf("%s, %s: %+v %v", what, from, s, err)
			}
			if _, err := parseStore(b, &wrong); !errors.Is(err, ErrPassphrase) {
				t.Errorf("%s, %s: with a wrong passphrase: %v", what, from, err)
			}
		}
		check("ours", b)
		if err := os.WriteFile(filepath.Join(dir, "s.p12"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		given := empty
		if p.passphrase != nil {
			given = *p.passphrase
		}
		run("pkcs12", "-in", "s.p12", "-passin", "pass:"+given, "-nodes", "-legacy", "-out", "s.pem")
		args := []string{"pkcs12", "-export", "-in", "s.pem", "-passout", "pass:" + given, "-name", name, "-out", "t.p12"}
		if p.compat {
			args = append(args, "-certpbe", "PBE-SHA1-3DES", "-keypbe", "PBE-SHA1-3DES", "-macalg", "sha1")
		}
		if p.passphrase == nil {
			continue // OpenSSL encrypts with an empty passphrase
		}
		run(args...)
		theirs, err := os.ReadFile(filepath.Join(dir, "t.p12"))
		if err != nil {
			t.Fatal(err)
		}
		check("OpenSSL", theirs)
	}
}

// TestEncryptedKeys lets OpenSSL read encrypted keys.
func TestEncryptedKeys(t *testing.T) {
	t.Parallel()
	openssl := tools.Need(t, "openssl", "openssl")
	pass := "sécret"
	for _, algo := range []string{"rsa", "ec", "ed25519"} {
		k, err := Generate(algo, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, encoding := range []string{"pem", "der", "pkcs12"} {
			b, err := EncodeKey(k, encoding, &pass, false)
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseKey(b, &pass)
			if err != nil || got.Encoding != encoding {
				t.Errorf("%s, %s: %+v %v", algo, encoding, got, err)
			}
			for _, p := range []*string{nil, new(string)} {
				if _, err := parseKey(b, p); !errors.Is(err, ErrEncrypted) && !errors.Is(err, ErrPassphrase) {
					t.Errorf("%s, %s: without the passphrase: %v", algo, encoding, err)
				}
			}
			if encoding == "pkcs12" {
				continue
			}
			cmd := exec.Command(openssl, "pkey", "-inform", encoding, "-passin", "pass:"+pass, "-noout")
			cmd.Stdin = bytes.NewReader(b)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s, %s: %v\n%s", algo, encoding, err, out)
			}
		}
	}
	if _, err := Generate("ed448", 0); err == nil {
		t.Error("there is no ed448")
	}
}

// TestMerge checks that a policy overrides a request.
func TestMerge(t *testing.T) {
	t.Parallel()
	l := value.ListOf
	for _, c := range []struct {
		policy, request *value.Dict
		want            string
	}{
		{value.NewDict(0), value.DictOf("commonName", "x"), "{'CN': 'x'}"},
		{value.DictOf("X509v3 Key Usage", "a"), value.DictOf("keyUsage", "b", "CN", "x"), "{'keyUsage': 'a', 'CN': 'x'}"},
		{value.DictOf("CN", "a"), value.DictOf("subject", "CN=b"), "{'CN': 'a'}"},
		{value.DictOf("subject", value.DictOf("CN", "a")), value.DictOf("subject", value.DictOf("CN", "b", "O", "o")), "{'subject': {'CN': 'a', 'O': 'o'}}"},
		{value.DictOf("subject", l("CN=a")), value.DictOf("subject", l("O=o")), "{'subject': ['CN=a', 'O=o']}"},
		{value.DictOf("subject", "CN=a"), value.DictOf("subject", l("O=o")), "{'subject': 'CN=a'}"},
		{value.DictOf("keyUsage", nil), value.DictOf("keyUsage", "b"), "{'keyUsage': None}"},
	} {
		if got := value.Repr(Merge(c.policy, c.request)); got != c.want {
			t.Errorf("%s over %s: %s, want %s", value.Repr(c.policy), value.Repr(c.request), got, c.want)
		}
	}
}

// FuzzParse parses arbitrary input as each kind of object. What parses must be describable, and equal
// after another round of encoding and parsing.
func FuzzParse(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	c, i := issued(f)
	request, err := i.SignRequest()
	if err != nil {
		f.Fatal(err)
	}
	key, err := EncodeKey(i.Key, "pem", nil, false)
	if err != nil {
		f.Fatal(err)
	}
	r, err := PrepareList(Revocations{Key: string(key), Certificate: string(c.PEM()), Days: 1, Digest: "sha256",
		Revoked: value.ListOf(value.DictOf("serial_number", int64(5), "extensions",
			value.DictOf("CRLReason", "superseded", "invalidityDate", "2026-01-01 00:00:00"))),
		Extensions: value.DictOf("cRLNumber", int64(3), "deltaCRLIndicator", int64(2), "authorityKeyIdentifier", "keyid",
			"issuingDistributionPoint", value.DictOf("fullname", "URI:http://x", "onlyCA", true))}, nil)
	if err != nil {
		f.Fatal(err)
	}
	list, err := r.Sign()
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{c.DER, c.PEM(), request.DER, request.Encode("pem"), list.DER, key, encodePKCS7([]*Certificate{c})} {
		f.Add(b)
	}
	if s, err := EncodeStore(c, nil, i.Key, nil, nil, false); err == nil {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := parseCertificates(b, nil); err == nil {
			c.Read()
			again, err := parseCertificates(c.PEM(), nil)
			if err != nil || !again.Subject.Equal(c.Subject) || len(again.Extensions) != len(c.Extensions) {
				t.Fatalf("%x: %v", b, err)
			}
			c.SignedBy(c.PublicKey)
		}
		if r, err := parseRequest(b); err == nil {
			r.Read()
			if _, err := parseRequest(r.Encode("pem")); err != nil {
				t.Fatalf("%x: %v", b, err)
			}
		}
		if l, err := parseList(b); err == nil {
			l.Read()
			if _, err := parseList(l.Encode("pem")); err != nil {
				t.Fatalf("%x: %v", b, err)
			}
		}
		if k, err := parseKey(b, nil); err == nil {
			if _, err := EncodeKey(k.Signer, "pem", nil, false); err != nil {
				t.Fatalf("%x: %v", b, err)
			}
		}
		parsePublic(b)
		Entry(string(b))
	})
}

// FuzzName checks that parsed names are the same after they are written and parsed again.
func FuzzName(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"CN=a,O=b", `CN=a\,b+OU=\23x\ `, "2.5.4.12=x", "CN=#4142", "C=DE", "=", "CN=\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseRFC4514(s)
		if err != nil {
			return
		}
		d, err := decodeName(n.encode())
		if err != nil || !d.Equal(n) {
			t.Fatalf("%q: %s, then %s, %v", s, n, d, err)
		}
		if again, err := parseRFC4514(n.String()); err != nil || !again.Equal(n) {
			t.Fatalf("%q: %s cannot be read: %v", s, n, err)
		}
	})
}
