package certs

import (
	"bytes"
	"crypto"
	"crypto/cipher"
	"crypto/des"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"hash"
	"math/big"
	"unicode/utf16"

	"brine/internal/call/fn"
	"brine/internal/net/crypt"
)

// store is the content of a PKCS#12 file (RFC 7292).
type store struct {
	key         crypto.Signer
	certificate *Certificate
	chain       []*Certificate
	name        *string // friendly name of the certificate
}

// maxRounds bounds the key derivation rounds that a file may require.
const maxRounds = 1_000_000

var (
	oidEncryptedData = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 6}
	oidKeyBag        = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 10, 1, 1}
	oidShroudedBag   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 10, 1, 2}
	oidCertBag       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 10, 1, 3}
	oidX509Bag       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 22, 1}
	oidFriendlyName  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 20}
	oidLocalKey      = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 21}
	oidTripleDES     = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 1, 3}
)

// macData is the MAC of a file.
type macData struct {
	Digest struct {
		Algorithm pkix.AlgorithmIdentifier
		Sum       []byte
	}
	Salt   []byte
	Rounds int `asn1:"optional,default:1"`
}

type pfx struct {
	Version int
	Safe    contentInfo
	MAC     macData `asn1:"optional"`
}

type bag struct {
	ID         asn1.ObjectIdentifier
	Value      asn1.RawValue // the tagged content; its Bytes are the content itself
	Attributes []struct {
		ID     asn1.ObjectIdentifier
		Values []asn1.RawValue `asn1:"set"`
	} `asn1:"set,optional"`
}

// secret encodes a passphrase as PKCS#12 hashes it: UTF-16 with a final zero.
func secret(passphrase *string) []byte {
	if passphrase == nil {
		return nil
	}
	var out []byte
	for _, u := range utf16.Encode([]rune(*passphrase)) {
		out = append(out, byte(u>>8), byte(u))
	}
	return append(out, 0, 0)
}

// derive derives a key (purpose 1), an initialization vector (2) or a MAC key (3), as in
// appendix B of RFC 7292.
func derive(newHash func() hash.Hash, password, salt []byte, rounds int, purpose byte, size int) []byte {
	h := newHash()
	v, u := h.BlockSize(), h.Size()
	fill := func(b []byte) []byte {
		if len(b) == 0 {
			return nil
		}
		out := bytes.Repeat(b, (v*((len(b)+v-1)/v)+len(b)-1)/len(b))
		return out[:v*((len(b)+v-1)/v)]
	}
	d := bytes.Repeat([]byte{purpose}, v)
	in := append(fill(salt), fill(password)...)
	var out []byte
	for {
		h.Reset()
		h.Write(d)
		h.Write(in)
		a := h.Sum(nil)
		for range rounds - 1 {
			h.Reset()
			h.Write(a)
			a = h.Sum(a[:0])
		}
		if out = append(out, a...); len(out) >= size {
			return out[:size]
		}
		b := new(big.Int).SetBytes(bytes.Repeat(a, (v+u-1)/u)[:v])
		b.Add(b, big.NewInt(1))
		mod := new(big.Int).Lsh(big.NewInt(1), uint(8*v))
		for i := 0; i < len(in); i += v {
			n := new(big.Int).SetBytes(in[i : i+v])
			n.Add(n, b).Mod(n, mod).FillBytes(in[i : i+v])
		}
	}
}

// macHash returns the hash of the MAC, nil for an unknown one.
func macHash(id asn1.ObjectIdentifier) func() hash.Hash {
	switch id.String() {
	case "1.3.14.3.2.26":
		return sha1.New
	case "2.16.840.1.101.3.4.2.1":
		return sha256.New
	case "2.16.840.1.101.3.4.2.2":
		return sha512.New384
	case "2.16.840.1.101.3.4.2.3":
		return sha512.New
	}
	return nil
}

var errStore = errors.New("no PKCS#12 file, or of an unknown form")

// parseStore parses a file. The error is ErrPassphrase if the passphrase is wrong or missing.
func parseStore(der []byte, passphrase *string) (store, error) {
	var s store
	var file pfx
	if unmarshal(der, &file) != nil || file.Version != 3 || !file.Safe.Type.Equal(oidData) {
		return s, errStore
	}
	var safe []byte
	if unmarshal(file.Safe.Content.Bytes, &safe) != nil {
		return s, errStore
	}
	password := secret(passphrase)
	if mac := file.MAC; mac.Salt != nil {
		newHash := macHash(mac.Digest.Algorithm.Algorithm)
		if newHash == nil || mac.Rounds < 1 || mac.Rounds > maxRounds {
			return s, errStore
		}
		fits := func(password []byte) bool {
			h := hmac.New(newHash, derive(newHash, password, mac.Salt, mac.Rounds, 3, newHash().Size()))
			h.Write(safe)
			return hmac.Equal(h.Sum(nil), mac.Digest.Sum)
		}
		if empty := ""; !fits(password) && (passphrase != nil || !fits(secret(&empty))) {
			return s, ErrPassphrase
		}
	}
	var parts []contentInfo
	if unmarshal(safe, &parts) != nil {
		return s, errStore
	}
	for _, p := range parts {
		content, err := openSafe(p, passphrase)
		if err != nil {
			return s, err
		}
		var bags []bag
		if unmarshal(content, &bags) != nil {
			return s, errStore
		}
		for _, b := range bags {
			if err := s.take(b, passphrase); err != nil {
				return s, err
			}
		}
	}
	s.matchKey()
	return s, nil
}

// openSafe returns the bags of one part of the file, decrypted if necessary.
func openSafe(p contentInfo, passphrase *string) ([]byte, error) {
	if p.Type.Equal(oidData) {
		var content []byte
		if unmarshal(p.Content.Bytes, &content) != nil {
			return nil, errStore
		}
		return content, nil
	}
	var data struct {
		Version int
		Info    struct {
			Type      asn1.ObjectIdentifier
			Algorithm pkix.AlgorithmIdentifier
			Content   []byte `asn1:"tag:0"`
		}
	}
	if !p.Type.Equal(oidEncryptedData) || unmarshal(p.Content.Bytes, &data) != nil {
		return nil, errStore
	}
	return decrypt(data.Info.Algorithm, data.Info.Content, passphrase)
}

// decrypt decrypts a part or a key.
func decrypt(id pkix.AlgorithmIdentifier, data []byte, passphrase *string) ([]byte, error) {
	if passphrase == nil {
		return nil, ErrPassphrase
	}
	if id.Algorithm.Equal(oidTripleDES) {
		var p struct {
			Salt   []byte
			Rounds int
		}
		if unmarshal(id.Parameters.FullBytes, &p) != nil || p.Rounds < 1 || p.Rounds > maxRounds || len(data)%des.BlockSize != 0 || len(data) == 0 {
			return nil, errStore
		}
		mode, err := tripleDES(*passphrase, p.Salt, p.Rounds, cipher.NewCBCDecrypter)
		if err != nil {
			return nil, err
		}
		out := make([]byte, len(data))
		mode.CryptBlocks(out, data)
		pad := int(out[len(out)-1])
		if pad == 0 || pad > des.BlockSize {
			return nil, ErrPassphrase
		}
		return out[:len(out)-pad], nil
	}
	out, err := crypt.DecryptPBES2(id, data, *passphrase)
	if errors.Is(err, crypt.ErrPassphrase) {
		return nil, ErrPassphrase
	}
	return out, err
}

func tripleDES(passphrase string, salt []byte, rounds int, make func(cipher.Block, []byte) cipher.BlockMode) (cipher.BlockMode, error) {
	password := secret(&passphrase)
	block, err := des.NewTripleDESCipher(derive(sha1.New, password, salt, rounds, 1, 24))
	if err != nil {
		return nil, err
	}
	return make(block, derive(sha1.New, password, salt, rounds, 2, des.BlockSize)), nil
}

// take adds the content of a bag to the store.
func (s *store) take(b bag, passphrase *string) error {
	switch {
	case b.ID.Equal(oidKeyBag):
		k, err := plainKey(b.Value.Bytes)
		if err != nil {
			return errStore
		}
		s.key = k
	case b.ID.Equal(oidShroudedBag):
		var outer struct {
			Algorithm pkix.AlgorithmIdentifier
			Data      []byte
		}
		if unmarshal(b.Value.Bytes, &outer) != nil {
			return errStore
		}
		der, err := decrypt(outer.Algorithm, outer.Data, passphrase)
		if err != nil {
			return err
		}
		if s.key, err = plainKey(der); err != nil {
			return errStore
		}
	case b.ID.Equal(oidCertBag):
		var inner struct {
			ID    asn1.ObjectIdentifier
			Value []byte `asn1:"explicit,tag:0"`
		}
		if unmarshal(b.Value.Bytes, &inner) != nil || !inner.ID.Equal(oidX509Bag) {
			return errStore
		}
		c, err := parseCertificate(inner.Value)
		if err != nil {
			return errStore
		}
		if s.chain = append(s.chain, c); len(s.chain) == 1 {
			s.name = friendlyName(b)
		}
	}
	return nil
}

func friendlyName(b bag) *string {
	for _, a := range b.Attributes {
		if a.ID.Equal(oidFriendlyName) && len(a.Values) == 1 {
			name := stringOf(a.Values[0])
			return &name
		}
	}
	return nil
}

// matchKey chooses the certificate that belongs to the key.
func (s *store) matchKey() {
	if len(s.chain) == 0 {
		return
	}
	at := 0
	if s.key != nil {
		if spki, err := publicDER(s.key.Public()); err == nil {
			for i, c := range s.chain {
				if SamePublic(spki, c.PublicKey) {
					at = i
					break
				}
			}
		}
	}
	s.certificate = s.chain[at]
	s.chain = append(append([]*Certificate{}, s.chain[:at]...), s.chain[at+1:]...)
}

// EncodeStore encodes a certificate with its key and further certificates.
func EncodeStore(c *Certificate, chain []*Certificate, k crypto.Signer, passphrase, name *string, compat bool) ([]byte, error) {
	return encodeStore(store{key: k, certificate: c, chain: chain, name: name}, passphrase, compat)
}

func encodeStore(s store, passphrase *string, compat bool) ([]byte, error) {
	var safes []byte
	var attributes []byte
	if s.certificate != nil {
		spki, err := publicDER(s.key.Public())
		if err != nil {
			return nil, err
		}
		if !SamePublic(spki, s.certificate.PublicKey) {
			return nil, fn.Invalidf("the private key does not belong to the certificate")
		}
		if s.name != nil {
			text := secret(s.name)
			attributes = append(attributes, attribute(oidFriendlyName, asn1.RawValue{Tag: asn1.TagBMPString, Bytes: text[:len(text)-2]})...)
		}
		thumb := sha1.Sum(s.certificate.DER)
		attributes = append(attributes, attribute(oidLocalKey, asn1.RawValue{Tag: asn1.TagOctetString, Bytes: thumb[:]})...)
		bags := certBag(s.certificate, attributes)
		for _, c := range s.chain {
			bags = append(bags, certBag(c, nil)...)
		}
		part, err := sealSafe(sequence(bags), passphrase, compat)
		if err != nil {
			return nil, err
		}
		safes = append(safes, part...)
	}
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	id := oidKeyBag
	if passphrase != nil {
		id = oidShroudedBag
		algorithm, data, err := encrypt(der, *passphrase, compat)
		if err != nil {
			return nil, err
		}
		der = sequence(append(must(algorithm, ""), must(data, "")...))
	}
	keys := sequence(makeBag(id, der, attributes))
	safes = append(safes, dataPart(keys)...)
	return finish(sequence(safes), passphrase, compat)
}

// finish adds the MAC.
func finish(safe []byte, passphrase *string, compat bool) ([]byte, error) {
	newHash, id, rounds := sha256.New, "2.16.840.1.101.3.4.2.1", 20_000
	if compat {
		newHash, id, rounds = sha1.New, "1.3.14.3.2.26", 50_000
	}
	var mac macData
	mac.Salt, mac.Rounds = make([]byte, 8), rounds
	rand.Read(mac.Salt) // never fails
	h := hmac.New(newHash, derive(newHash, secret(passphrase), mac.Salt, rounds, 3, newHash().Size()))
	h.Write(safe)
	mac.Digest.Algorithm = pkix.AlgorithmIdentifier{Algorithm: oid(id), Parameters: asn1.NullRawValue}
	mac.Digest.Sum = h.Sum(nil)
	body := must(3, "")
	body = append(body, dataPart(safe)...)
	body = append(body, must(mac, "")...)
	return sequence(body), nil
}

func dataPart(content []byte) []byte {
	return sequence(append(must(oidData, ""), must(tagged(0, true, must(content, "")), "")...))
}

// sealSafe encodes bags as a part of the file, encrypted if there is a passphrase.
func sealSafe(bags []byte, passphrase *string, compat bool) ([]byte, error) {
	if passphrase == nil {
		return dataPart(bags), nil
	}
	algorithm, data, err := encrypt(bags, *passphrase, compat)
	if err != nil {
		return nil, err
	}
	info := must(oidData, "")
	info = append(info, must(algorithm, "")...)
	info = append(info, must(tagged(0, false, data), "")...)
	inner := sequence(append(must(0, ""), sequence(info)...))
	return sequence(append(must(oidEncryptedData, ""), must(tagged(0, true, inner), "")...)), nil
}

func encrypt(plain []byte, passphrase string, compat bool) (pkix.AlgorithmIdentifier, []byte, error) {
	if !compat {
		return crypt.EncryptPBES2(plain, passphrase)
	}
	const rounds = 50_000
	salt := make([]byte, 8)
	rand.Read(salt) // never fails
	mode, err := tripleDES(passphrase, salt, rounds, cipher.NewCBCEncrypter)
	if err != nil {
		return pkix.AlgorithmIdentifier{}, nil, fn.Errorf("%w", err)
	}
	pad := des.BlockSize - len(plain)%des.BlockSize
	data := append(bytes.Clone(plain), bytes.Repeat([]byte{byte(pad)}, pad)...)
	mode.CryptBlocks(data, data)
	params := sequence(append(must(salt, ""), must(rounds, "")...))
	return pkix.AlgorithmIdentifier{Algorithm: oidTripleDES, Parameters: asn1.RawValue{FullBytes: params}}, data, nil
}

func attribute(id asn1.ObjectIdentifier, v asn1.RawValue) []byte {
	return sequence(append(must(id, ""), must(asn1.RawValue{Tag: asn1.TagSet, IsCompound: true, Bytes: must(v, "")}, "")...))
}

func makeBag(id asn1.ObjectIdentifier, content, attributes []byte) []byte {
	body := append(must(id, ""), must(tagged(0, true, content), "")...)
	if attributes != nil {
		body = append(body, must(asn1.RawValue{Tag: asn1.TagSet, IsCompound: true, Bytes: attributes}, "")...)
	}
	return sequence(body)
}

func certBag(c *Certificate, attributes []byte) []byte {
	inner := sequence(append(must(oidX509Bag, ""), must(tagged(0, true, must(c.DER, "")), "")...))
	return makeBag(oidCertBag, inner, attributes)
}
