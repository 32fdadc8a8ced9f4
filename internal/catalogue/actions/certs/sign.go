package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha1"
	_ "crypto/sha256"
	_ "crypto/sha3"
	_ "crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"strings"

	"brine/internal/call/fn"
)

// Digests returns the names of the hashes for signatures.
func Digests() []string {
	return []string{"sha1", "sha224", "sha256", "sha384", "sha512", "sha512_224", "sha512_256", "sha3_224", "sha3_256", "sha3_384", "sha3_512"}
}

// signature is a signature algorithm.
type signature struct {
	oid, name, digest, key string
	hash                   crypto.Hash
}

func signatures() []signature {
	return []signature{
		{"1.2.840.113549.1.1.4", "md5WithRSAEncryption", "md5", "rsa", crypto.MD5},
		{"1.2.840.113549.1.1.5", "sha1WithRSAEncryption", "sha1", "rsa", crypto.SHA1},
		{"1.2.840.113549.1.1.14", "sha224WithRSAEncryption", "sha224", "rsa", crypto.SHA224},
		{"1.2.840.113549.1.1.11", "sha256WithRSAEncryption", "sha256", "rsa", crypto.SHA256},
		{"1.2.840.113549.1.1.12", "sha384WithRSAEncryption", "sha384", "rsa", crypto.SHA384},
		{"1.2.840.113549.1.1.13", "sha512WithRSAEncryption", "sha512", "rsa", crypto.SHA512},
		{"2.16.840.1.101.3.4.3.13", "RSASSA-PKCS1-v1_5-with-SHA3-224", "sha3_224", "rsa", crypto.SHA3_224},
		{"2.16.840.1.101.3.4.3.14", "RSASSA-PKCS1-v1_5-with-SHA3-256", "sha3_256", "rsa", crypto.SHA3_256},
		{"2.16.840.1.101.3.4.3.15", "RSASSA-PKCS1-v1_5-with-SHA3-384", "sha3_384", "rsa", crypto.SHA3_384},
		{"2.16.840.1.101.3.4.3.16", "RSASSA-PKCS1-v1_5-with-SHA3-512", "sha3_512", "rsa", crypto.SHA3_512},
		{"1.2.840.10045.4.1", "ecdsa-with-SHA1", "sha1", "ec", crypto.SHA1},
		{"1.2.840.10045.4.3.1", "ecdsa-with-SHA224", "sha224", "ec", crypto.SHA224},
		{"1.2.840.10045.4.3.2", "ecdsa-with-SHA256", "sha256", "ec", crypto.SHA256},
		{"1.2.840.10045.4.3.3", "ecdsa-with-SHA384", "sha384", "ec", crypto.SHA384},
		{"1.2.840.10045.4.3.4", "ecdsa-with-SHA512", "sha512", "ec", crypto.SHA512},
		{"2.16.840.1.101.3.4.3.9", "ecdsa-with-SHA3-224", "sha3_224", "ec", crypto.SHA3_224},
		{"2.16.840.1.101.3.4.3.10", "ecdsa-with-SHA3-256", "sha3_256", "ec", crypto.SHA3_256},
		{"2.16.840.1.101.3.4.3.11", "ecdsa-with-SHA3-384", "sha3_384", "ec", crypto.SHA3_384},
		{"2.16.840.1.101.3.4.3.12", "ecdsa-with-SHA3-512", "sha3_512", "ec", crypto.SHA3_512},
		{"1.3.101.112", "ed25519", "", "ed25519", 0},
		{"1.3.101.113", "ed448", "", "ed448", 0},
		{oidPSS, "RSASSA-PSS", "", "rsa", 0},
	}
}

const oidPSS = "1.2.840.113549.1.1.10"

// algorithm looks up a signature algorithm; the result is empty for an unknown one.
func algorithm(id asn1.ObjectIdentifier) signature {
	for _, s := range signatures() {
		if s.oid == id.String() {
			return s
		}
	}
	return signature{oid: id.String(), name: id.String()}
}

// choose returns the algorithm for a key and a digest.
func choose(pub crypto.PublicKey, digest string) (signature, pkix.AlgorithmIdentifier, error) {
	kind, _ := KeyType(pub)
	if kind == "ed25519" {
		digest = ""
	}
	for _, s := range signatures() {
		if s.key == kind && s.digest == digest && s.oid != oidPSS {
			id := pkix.AlgorithmIdentifier{Algorithm: oid(s.oid)}
			if kind == "rsa" {
				id.Parameters = asn1.NullRawValue
			}
			return s, id, nil
		}
	}
	return signature{}, pkix.AlgorithmIdentifier{}, fn.Errorf("the digest %s is not supported for signatures with this type of key (%s)", digest, kind)
}

// sign returns DER of a signed object. body returns the part that is signed, given the
// algorithm.
func sign(k crypto.Signer, digest string, body func(pkix.AlgorithmIdentifier) ([]byte, error)) ([]byte, error) {
	s, id, err := choose(k.Public(), strings.ToLower(digest))
	if err != nil {
		return nil, err
	}
	tbs, err := body(id)
	if err != nil {
		return nil, err
	}
	sum := tbs
	if s.hash != 0 {
		h := s.hash.New()
		h.Write(tbs)
		sum = h.Sum(nil)
	}
	sig, err := k.Sign(rand.Reader, sum, s.hash)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	out, err := asn1.Marshal(struct {
		Body      asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{asn1.RawValue{FullBytes: tbs}, id, asn1.BitString{Bytes: sig, BitLength: 8 * len(sig)}})
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return out, nil
}

// verify reports whether the signature was made with the private key of spki.
func verify(spki []byte, id pkix.AlgorithmIdentifier, body, sig []byte) (bool, error) {
	pub, err := x509.ParsePKIXPublicKey(spki)
	kind, _ := KeyType(pub)
	if err != nil || kind == "" {
		return false, fn.Invalidf("Invalid public key type, can only process rsa, ec, ed25519, ed448")
	}
	s := algorithm(id.Algorithm)
	hash := s.hash
	if s.oid == oidPSS {
		hash = pssHash(id.Parameters.FullBytes)
	}
	if s.key != kind {
		return false, nil
	}
	sum := body
	if kind != "ed25519" {
		if hash == 0 || !hash.Available() {
			return false, fn.Errorf("the signature algorithm %s is not supported", s.name)
		}
		h := hash.New()
		h.Write(body)
		sum = h.Sum(nil)
	}
	switch k := pub.(type) {
	case *rsa.PublicKey:
		if s.oid == oidPSS {
			return rsa.VerifyPSS(k, hash, sum, sig, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthAuto}) == nil, nil
		}
		return rsa.VerifyPKCS1v15(k, hash, sum, sig) == nil, nil
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(k, sum, sig), nil
	case ed25519.PublicKey:
		return ed25519.Verify(k, body, sig), nil
	}
	return false, nil
}

// pssHash returns the hash in the parameters of RSASSA-PSS.
func pssHash(der []byte) crypto.Hash {
	var p struct {
		Hash pkix.AlgorithmIdentifier `asn1:"optional,explicit,tag:0"`
		MGF  asn1.RawValue            `asn1:"optional,explicit,tag:1"`
		Salt int                      `asn1:"optional,explicit,tag:2,default:20"`
		End  int                      `asn1:"optional,explicit,tag:3,default:1"`
	}
	if unmarshal(der, &p) != nil {
		return 0
	}
	if p.Hash.Algorithm == nil {
		return crypto.SHA1
	}
	return map[string]crypto.Hash{"1.3.14.3.2.26": crypto.SHA1, "2.16.840.1.101.3.4.2.4": crypto.SHA224, "2.16.840.1.101.3.4.2.1": crypto.SHA256,
		"2.16.840.1.101.3.4.2.2": crypto.SHA384, "2.16.840.1.101.3.4.2.3": crypto.SHA512}[p.Hash.Algorithm.String()]
}
