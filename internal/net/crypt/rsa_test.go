package crypt

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"path/filepath"
	"strings"
	"testing"

	"brine/test/fuzztest"
)

type signature struct {
	Key       string `json:"key"`
	Algo      string `json:"algo"`
	Message   string `json:"message"`
	Signature []byte `json:"signature_b64"`
}

type rsaVectors struct {
	X931  []signature `json:"x931_private_encrypt"`
	PKCS1 []signature `json:"pkcs1v15"`
}

func readRSA(t testing.TB) (v rsaVectors) {
	t.Helper()
	readJSON(t, &v, vectors, "rsa.json")
	if len(v.X931) == 0 || len(v.PKCS1) == 0 {
		t.Fatal("no vectors")
	}
	return v
}

func TestX931Vectors(t *testing.T) {
	for _, v := range readRSA(t).X931 {
		for range 3 { // blinding must not show
			got, err := private(t, v.Key).SignX931([]byte(v.Message))
			if err != nil || !bytes.Equal(got, v.Signature) {
				t.Errorf("%q: %x, %v; want %x", v.Message, got, err, v.Signature)
			}
		}
		msg, err := public(t, v.Key).RecoverX931(v.Signature)
		if err != nil || string(msg) != v.Message {
			t.Errorf("recovered %q, %v; want %q", msg, err, v.Message)
		}
	}
}

func TestPKCS1Vectors(t *testing.T) {
	for _, v := range readRSA(t).PKCS1 {
		got, err := private(t, v.Key).Sign(v.Algo, []byte(v.Message))
		if err != nil || !bytes.Equal(got, v.Signature) {
			t.Errorf("%s: %x, %v; want %x", v.Algo, got, err, v.Signature)
		}
		k := public(t, v.Key)
		if err := k.Verify(v.Algo, []byte(v.Message), v.Signature); err != nil {
			t.Errorf("%s: %v", v.Algo, err)
		}
		if err := k.Verify(v.Algo, []byte(v.Message+"!"), v.Signature); !errors.Is(err, ErrSignature) {
			t.Errorf("%s, other message: %v", v.Algo, err)
		}
		if err := public(t, "minion").Verify(v.Algo, []byte(v.Message), v.Signature); !errors.Is(err, ErrSignature) {
			t.Errorf("%s, other key: %v", v.Algo, err)
		}
	}
}

// blob is text, or bytes in the notation of the vectors.
type blob []byte

func (b *blob) UnmarshalJSON(in []byte) error {
	var s string
	if json.Unmarshal(in, &s) == nil {
		*b = []byte(s)
		return nil
	}
	var o struct {
		B64 []byte `json:"__b64__"`
	}
	err := json.Unmarshal(in, &o)
	*b = o.B64
	return err
}

type authVector struct {
	Request struct {
		Load struct {
			Pub     string `json:"pub"`
			Token   blob   `json:"token"`
			EncAlgo string `json:"enc_algo"`
		} `json:"load"`
	} `json:"request"`
	Reply struct {
		Load json.RawMessage `json:"load"`
		Sig  blob            `json:"sig"`
	} `json:"reply"`
	Load struct {
		PubKey  string `json:"pub_key"`
		PubSig  string `json:"pub_sig"`
		Token   blob   `json:"token"`
		AES     blob   `json:"aes"`
		Session blob   `json:"session"`
		Sig     blob   `json:"sig"`
	} `json:"reply_load_decoded"`
	ReplySig struct {
		Key  string `json:"key"`
		Algo string `json:"algo"`
	} `json:"reply_sig"`
	Decrypted struct {
		AES     string `json:"aes"`
		Session string `json:"session"`
		Token   string `json:"token"`
		Inner   string `json:"inner_sig_recovered"`
		EncAlgo string `json:"enc_algo"`
	} `json:"decrypted"`
}

// TestAuthVectors checks every RSA operation of the recorded sign-ins.
func TestAuthVectors(t *testing.T) {
	files, err := filepath.Glob(vectors + "/auth/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no vectors", err)
	}
	signed, accepted, tokens := 0, 0, 0
	for _, file := range files {
		var v authVector
		readJSON(t, &v, file)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			if v.ReplySig.Key != "" {
				signed++
				var load blob
				if err := json.Unmarshal(v.Reply.Load, &load); err != nil {
					t.Fatal(err)
				}
				if err := public(t, v.ReplySig.Key).Verify(v.ReplySig.Algo, load, v.Reply.Sig); err != nil {
					t.Errorf("reply: %v", err)
				}
			}
			if v.Request.Load.Pub != "" {
				if _, err := ParsePublic([]byte(v.Request.Load.Pub)); err != nil {
					t.Errorf("key of the request: %v", err)
				}
			}
			if v.Decrypted.AES == "" {
				return
			}
			accepted++
			checkAccepted(t, &v)
			if v.Decrypted.Token != "" {
				tokens++
				decrypts(t, "minion", v.Decrypted.EncAlgo, v.Load.Token, v.Decrypted.Token)
				decrypts(t, "master", v.Request.Load.EncAlgo, v.Request.Load.Token, v.Decrypted.Token)
			}
		})
	}
	if signed == 0 || accepted == 0 || tokens == 0 {
		t.Errorf("%d signed replies, %d acceptances, %d tokens", signed, accepted, tokens)
	}
}

func checkAccepted(t *testing.T, v *authVector) {
	t.Helper()
	decrypts(t, "minion", v.Decrypted.EncAlgo, v.Load.AES, v.Decrypted.AES)
	decrypts(t, "minion", v.Decrypted.EncAlgo, v.Load.Session, v.Decrypted.Session)
	for _, key := range []string{v.Decrypted.AES, v.Decrypted.Session} {
		if _, err := NewCrypticle(key); err != nil {
			t.Error(err)
		}
	}
	master, err := ParsePublic([]byte(v.Load.PubKey))
	if err != nil {
		t.Fatal(err)
	}
	if !master.Equal(public(t, "master")) {
		t.Error("not the key of the master")
	}
	inner, err := master.RecoverX931(v.Load.Sig)
	if err != nil || string(inner) != v.Decrypted.Inner {
		t.Errorf("inner signature: %q, %v; want %q", inner, err, v.Decrypted.Inner)
	}
	if sum := sha256.Sum256([]byte(v.Decrypted.AES)); hex.EncodeToString(sum[:]) != string(inner) {
		t.Error("the inner signature is not over the AES key")
	}
	if v.Load.PubSig != "" {
		sig, err := base64.StdEncoding.DecodeString(v.Load.PubSig)
		if err != nil {
			t.Fatal(err)
		}
		if err := public(t, "master_sign").Verify(v.ReplySig.Algo, []byte(v.Load.PubKey), sig); err != nil {
			t.Errorf("pub_sig: %v", err)
		}
	}
}

func decrypts(t *testing.T, key, alg string, msg []byte, want string) {
	t.Helper()
	got, err := private(t, key).Decrypt(alg, msg)
	if err != nil || string(got) != want {
		t.Errorf("%s with the key of %s: %q, %v; want %q", alg, key, got, err, want)
	}
}

func TestEncrypt(t *testing.T) {
	k, other := private(t, "minion"), private(t, "minion_other")
	msg := []byte(NewKey())
	for _, alg := range []string{OAEPSHA1, OAEPSHA224} {
		c, err := k.Public().Encrypt(alg, msg)
		if err != nil {
			t.Fatal(err)
		}
		decrypts(t, "minion", alg, c, string(msg))
		if _, err := other.Decrypt(alg, c); !errors.Is(err, ErrDecrypt) {
			t.Errorf("%s, other key: %v", alg, err)
		}
		if _, err := k.Decrypt(alg, c[1:]); !errors.Is(err, ErrDecrypt) {
			t.Errorf("%s, cut off: %v", alg, err)
		}
		if _, err := k.Decrypt(alg, append([]byte{0}, c...)); !errors.Is(err, ErrDecrypt) {
			t.Errorf("%s, too long: %v", alg, err)
		}
	}
	if _, err := k.Public().Encrypt(OAEPSHA1, make([]byte, 256-42+1)); !errors.Is(err, ErrTooLong) {
		t.Errorf("long message: %v", err)
	}
}

// TestDecryptNeedsAllBytes removes a zero first byte of a message, so that the
// rest is the same number.
func TestDecryptNeedsAllBytes(t *testing.T) {
	k := private(t, "minion")
	for {
		c, err := k.Public().Encrypt(OAEPSHA1, []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if c[0] != 0 {
			continue
		}
		if _, err := k.Decrypt(OAEPSHA1, c[1:]); !errors.Is(err, ErrDecrypt) {
			t.Errorf("without the leading zero: %v", err)
		}
		return
	}
}

func TestUnsupportedAlgorithm(t *testing.T) {
	k := private(t, "minion")
	for _, alg := range []string{"", "OAEP-SHA256", "oaep-sha1", PKCS1v15SHA1} {
		_, err1 := k.Public().Encrypt(alg, nil)
		_, err2 := k.Decrypt(alg, nil)
		if !errors.Is(err1, ErrUnsupportedAlgorithm) || !errors.Is(err2, ErrUnsupportedAlgorithm) {
			t.Errorf("%q: %v, %v", alg, err1, err2)
		}
	}
	for _, alg := range []string{"", "PKCS1v15-SHA256", OAEPSHA1} {
		_, err1 := k.Sign(alg, nil)
		err2 := k.Public().Verify(alg, nil, nil)
		if !errors.Is(err1, ErrUnsupportedAlgorithm) || !errors.Is(err2, ErrUnsupportedAlgorithm) {
			t.Errorf("%q: %v, %v", alg, err1, err2)
		}
	}
}

func TestX931Sizes(t *testing.T) {
	k := private(t, "minion")
	for _, n := range []int{0, 1, 64, 251, 252, 254} { // 256 - 4 is the longest with padding
		msg := bytes.Repeat([]byte{0xbb}, n) // looks like padding
		sig, err := k.SignX931(msg)
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if got, err := k.Public().RecoverX931(sig); err != nil || !bytes.Equal(got, msg) {
			t.Errorf("%d bytes: %x, %v", n, got, err)
		}
	}
	for _, n := range []int{253, 255, 300} {
		if _, err := k.SignX931(make([]byte, n)); !errors.Is(err, ErrTooLong) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestRecoverX931Refuses(t *testing.T) {
	k := private(t, "minion")
	sig, err := k.SignX931([]byte("salt"))
	if err != nil {
		t.Fatal(err)
	}
	n := k.key.N
	plusN := new(big.Int).Add(n, new(big.Int).SetBytes(sig))
	changed := bytes.Clone(sig)
	changed[100] ^= 1
	for name, bad := range map[string][]byte{
		"empty":         nil,
		"short":         sig[1:],
		"long":          append([]byte{0}, sig...),
		"changed":       changed,
		"zero":          make([]byte, 256),
		"modulus":       n.Bytes(),
		"above modulus": plusN.FillBytes(make([]byte, 257)),
		"PKCS1":         mustSign(t, k),
	} {
		if msg, err := k.Public().RecoverX931(bad); !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %q, %v", name, msg, err)
		}
	}
	if _, err := public(t, "minion_other").RecoverX931(sig); !errors.Is(err, ErrSignature) {
		t.Errorf("other key: %v", err)
	}
	// The greater of the two roots is equally valid.
	other := new(big.Int).Sub(n, new(big.Int).SetBytes(sig)).FillBytes(make([]byte, 256))
	if msg, err := k.Public().RecoverX931(other); err != nil || string(msg) != "salt" {
		t.Errorf("n - s: %q, %v", msg, err)
	}
}

func mustSign(t *testing.T, k *PrivateKey) []byte {
	t.Helper()
	sig, err := k.Sign(PKCS1v15SHA1, []byte("salt"))
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

func TestUnpadX931(t *testing.T) {
	for in, want := range map[string]string{ // "-" means refused
		"6b bb ba 01 cc": "01",
		"6b bb bb ba cc": "",
		"6a 01 02 03 cc": "010203",
		"6b ba 01 02 cc": "-", // no padding
		"6b bb bb bb cc": "-", // nothing but padding
		"6b bb 00 ba cc": "-",
		"6b bb ba 01 cd": "-",
		"00 bb ba 01 cc": "-",
	} {
		block, err := hex.DecodeString(strings.ReplaceAll(in, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		got := "-"
		if msg, err := unpadX931(block); err == nil {
			got = hex.EncodeToString(msg)
		} else if !errors.Is(err, ErrSignature) {
			t.Error(err)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestKeyTexts(t *testing.T) {
	for _, name := range []string{"master", "minion", "cluster"} {
		if got, want := private(t, name).PEM(), read(t, vectors, "keys", name+".pem"); !bytes.Equal(got, want) {
			t.Errorf("%s.pem became %s", name, got)
		}
		if got, want := public(t, name).PEM(), read(t, vectors, "keys", name+".pub"); !bytes.Equal(got, want) {
			t.Errorf("%s.pub became %s", name, got)
		}
		if !private(t, name).Public().Equal(public(t, name)) || public(t, name).Equal(nil) {
			t.Errorf("%s: wrong public half", name)
		}
	}
	if public(t, "minion").Equal(public(t, "master")) || public(t, "minion").Bits() != 2048 {
		t.Error("keys mixed up")
	}
}

func TestParsePrivate(t *testing.T) {
	want := private(t, "minion").PEM()
	for _, c := range []struct {
		file, pass string
		err        error
	}{
		{"pkcs8.pem", "", nil},
		{"pkcs8.pem", "not needed", nil},
		{"encrypted.pem", "sesame", nil},
		{"encrypted-des3.pem", "sesame", nil},
		{"encrypted.pem", "", ErrPassphrase},
		{"encrypted.pem", "wrong", ErrPassphrase},
		{"encrypted-pkcs8.pem", "sesame", nil},
		{"encrypted-pkcs8-des3.pem", "sesame", nil},
		{"encrypted-pkcs8-aes128.pem", "sesame", nil},
		{"encrypted-pkcs8.pem", "", ErrPassphrase},
		{"encrypted-pkcs8.pem", "wrong", ErrPassphrase},
		{"encrypted-pkcs8-scrypt.pem", "sesame", ErrKey},
		{"ec.pem", "", ErrKey},
		{"ec.pub", "", ErrKey},
		{"short.pem", "", ErrKey},
		{"three-primes.pem", "", ErrKey},
	} {
		k, err := ParsePrivate(read(t, "testdata", c.file), c.pass)
		if !errors.Is(err, c.err) {
			t.Errorf("%s with %q: %v, want %v", c.file, c.pass, err, c.err)
		}
		if err == nil && !bytes.Equal(k.PEM(), want) {
			t.Errorf("%s: another key", c.file)
		}
	}
	for _, bad := range []string{"", "no key", strings.Repeat("x", maxPEM+1), "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"} {
		if _, err := ParsePrivate([]byte(bad), ""); !errors.Is(err, ErrKey) {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
}

func TestParsePublic(t *testing.T) {
	want := public(t, "minion")
	text := string(read(t, vectors, "keys", "minion.pub"))
	for name, good := range map[string]string{
		"PKCS#1":   string(read(t, "testdata", "pkcs1.pub")),
		"misnamed": strings.ReplaceAll(text, "PUBLIC", "RSA PUBLIC"),
		"clean":    CleanKey(text),
		"DOS":      "\r\n" + strings.ReplaceAll(text, "\n", "\r\n") + "  ",
	} {
		if k, err := ParsePublic([]byte(good)); err != nil || !k.Equal(want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, bad := range map[string]string{
		"empty":         "",
		"private":       string(read(t, vectors, "keys", "minion.pem")),
		"EC":            string(read(t, "testdata", "ec.pub")),
		"short":         string(read(t, "testdata", "short.pub")),
		"text before":   "\x1b[31m" + text,
		"text after":    text + "more",
		"two keys":      text + text,
		"broken before": "-----BEGIN PUBLIC KEY-----\n\x1b\n-----END PUBLIC KEY-----\n" + text,
		"headers":       strings.Replace(text, "\n", "\nKey: value\n\n", 1),
		"cut off":       text[:200],
		"huge":          strings.Repeat(" ", maxPEM) + text,
	} {
		if _, err := ParsePublic([]byte(bad)); !errors.Is(err, ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHostilePublic checks that keys chosen to waste CPU time are refused.
func TestHostilePublic(t *testing.T) {
	odd := func(bits uint) *big.Int {
		n := new(big.Int).Lsh(big.NewInt(1), bits-1)
		return n.Add(n, big.NewInt(1))
	}
	for name, c := range map[string]struct {
		n *big.Int
		e int64
	}{
		"16385 bits":      {odd(16385), 65537},
		"1023 bits":       {odd(1023), 65537},
		"even modulus":    {new(big.Int).Lsh(big.NewInt(1), 2047), 65537},
		"large exponent":  {odd(2048), 1<<31 + 1},
		"even exponent":   {odd(2048), 65536},
		"exponent of one": {odd(2048), 1},
	} {
		k := *public(t, "minion").key
		k.N, k.E = c.n, int(c.e)
		pem := (&PublicKey{&k}).PEM()
		if _, err := ParsePublic(pem); !errors.Is(err, ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	k := *public(t, "minion").key
	k.N = odd(16384)
	if _, err := ParsePublic((&PublicKey{&k}).PEM()); err != nil {
		t.Errorf("16384 bits: %v", err)
	}
}

// TestOddSize uses a key of 1029 bits, of which the X9.31 block has more.
func TestOddSize(t *testing.T) {
	k, err := ParsePrivate(read(t, "testdata", "odd.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.SignX931([]byte("salt")); !errors.Is(err, ErrKey) {
		t.Errorf("SignX931: %v", err)
	}
	sig, err := k.Sign(PKCS1v15SHA1, []byte("salt"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Public().RecoverX931(sig); !errors.Is(err, ErrSignature) {
		t.Errorf("RecoverX931: %v", err)
	}
}

func TestGenerateKey(t *testing.T) {
	for _, bits := range []int{-1, 0, 1024, 2047, 16385} {
		if _, err := GenerateKey(bits); !errors.Is(err, ErrKey) {
			t.Errorf("%d bits: %v", bits, err)
		}
	}
	k, err := GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	if k.Public().Bits() != 2048 || k.key.E != 65537 {
		t.Errorf("%d bits, exponent %d", k.Public().Bits(), k.key.E)
	}
	sig, err := k.SignX931([]byte("salt"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParsePublic(k.Public().PEM())
	if err != nil {
		t.Fatal(err)
	}
	if msg, err := again.RecoverX931(sig); err != nil || string(msg) != "salt" {
		t.Errorf("%q, %v", msg, err)
	}
}

func TestCleanKey(t *testing.T) {
	for in, want := range map[string]string{
		"\r\n a\r\nb\rc\n\n": "a\nb\nc",
		"a\nb":               "a\nb",
		"":                   "",
	} {
		if got := CleanKey(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestFingerprint compares with what Salt prints for the key of the minion.
func TestFingerprint(t *testing.T) {
	text := read(t, vectors, "keys", "minion.pub")
	dos := append([]byte("\r\n"), bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))...)
	for name, want := range map[string]string{
		"md5":    "1f:8f:dd:ff:53:9b:2d:ae:f1:70:67:62:dc:a0:33:a5",
		"sha1":   "42:24:1d:e3:6c:1c:aa:85:47:01:59:8e:1b:da:e1:7b:a2:81:7e:c9",
		"sha224": "cd:48:30:ee:83:aa:58:8b:35:c9:5a:8e:3f:37:a0:41:1e:8e:f9:5f:18:ad:16:4d:3c:6e:b4:e9",
		"sha256": "a9:b9:0f:b1:b8:3f:44:f2:2b:66:ff:31:3e:95:6c:08:c2:b4:75:d3:93:34:51:2e:b6:02:4e:be:7e:37:46:f2",
		"sha384": "1d:85:24:d1:c4:90:3b:ce:e5:89:a3:6b:73:8d:a6:60:f6:f6:f8:4c:01:8f:68:0b:6d:13:17:29:a7:e8:8d:8e:4e:27:bc:1b:aa:32:01:63:22:3e:1c:" +
			"c5:ce:6e:ee:e8",
		"sha512": "54:52:21:a0:ed:2f:cc:97:0b:4e:50:85:4d:38:f2:0d:66:0e:6c:5a:96:ee:ff:c1:d8:48:c1:32:53:d4:cb:ab:8d:80:6c:49:a4:6f:2f:91:8a:a6:12:" +
			"55:c0:43:52:76:cb:49:9c:d7:c5:eb:91:a4:67:01:6e:18:c4:f8:fe:25",
		"crc32": "",
	} {
		if got := Fingerprint(text, name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if got := Fingerprint(dos, name); got != want {
			t.Errorf("%s with DOS line ends: %s, want %s", name, got, want)
		}
	}
	if got, want := Fingerprint(nil, "md5"), "d4:1d:8c:d9:8f:00:b2:04:e9:80:09:98:ec:f8:42:7e"; got != want {
		t.Errorf("of nothing: %s, want %s", got, want)
	}
}

func FuzzParsePublic(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add(read(f, vectors, "keys", "minion.pub"))
	f.Add(read(f, "testdata", "pkcs1.pub"))
	f.Add(read(f, "testdata", "ec.pub"))
	f.Add(read(f, "testdata", "short.pub"))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := ParsePublic(text)
		if err != nil {
			if !errors.Is(err, ErrKey) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		again, err := ParsePublic(k.PEM())
		if err != nil || !again.Equal(k) {
			t.Fatalf("does not survive being written: %v", err)
		}
		_, _ = k.RecoverX931(make([]byte, k.key.Size()))
		_ = k.Verify(PKCS1v15SHA1, text, make([]byte, k.key.Size()))
		if _, err := k.Encrypt(OAEPSHA1, []byte("salt")); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzParsePrivate(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add(read(f, vectors, "keys", "minion.pem"), "")
	f.Add(read(f, "testdata", "pkcs8.pem"), "")
	f.Add(read(f, "testdata", "encrypted.pem"), "sesame")
	f.Add(read(f, "testdata", "encrypted-pkcs8.pem"), "sesame")
	f.Fuzz(func(t *testing.T, text []byte, pass string) {
		if _, err := ParsePrivate(text, pass); err != nil && !errors.Is(err, ErrKey) && !errors.Is(err, ErrPassphrase) {
			t.Fatalf("an error of no kind: %v", err)
		}
	})
}

func FuzzRecoverX931(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, v := range readRSA(f).X931 {
		f.Add(v.Signature)
	}
	f.Add(make([]byte, 256))
	k := public(f, "minion")
	f.Fuzz(func(t *testing.T, sig []byte) {
		if msg, err := k.RecoverX931(sig); err != nil && !errors.Is(err, ErrSignature) {
			t.Fatalf("an error of no kind: %v", err)
		} else if len(msg) > 254 {
			t.Fatalf("a message of %d bytes", len(msg))
		}
		if len(sig) > 0 {
			_, _ = unpadX931(sig)
		}
	})
}

func BenchmarkRSA(b *testing.B) {
	k := private(b, "minion")
	msg := []byte("salt")
	x, err := k.SignX931(msg)
	if err != nil {
		b.Fatal(err)
	}
	c, err := k.Public().Encrypt(OAEPSHA1, msg)
	if err != nil {
		b.Fatal(err)
	}
	for name, op := range map[string]func() error{
		"SignX931":    func() error { _, err := k.SignX931(msg); return err },
		"RecoverX931": func() error { _, err := k.Public().RecoverX931(x); return err },
		"Sign":        func() error { _, err := k.Sign(PKCS1v15SHA1, msg); return err },
		"Decrypt":     func() error { _, err := k.Decrypt(OAEPSHA1, c); return err },
		"Encrypt":     func() error { _, err := k.Public().Encrypt(OAEPSHA1, msg); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := op(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func ExampleCleanKey() {
	fmt.Printf("%q\n", CleanKey("-----BEGIN PUBLIC KEY-----\r\n...\r\n"))
	// Output: "-----BEGIN PUBLIC KEY-----\n..."
}

// TestBrokenPKCS8: a truncated or changed encrypted key causes an error, and no
// file makes the program compute for minutes.
func TestBrokenPKCS8(t *testing.T) {
	block, _ := pem.Decode(read(t, "testdata", "encrypted-pkcs8.pem"))
	good := block.Bytes
	for n := range len(good) {
		if n > 120 && n < len(good)-20 {
			continue
		}
		if _, err := decryptPKCS8(good[:n], "sesame"); err == nil {
			t.Errorf("cut after %d bytes", n)
		}
	}
	for i := range 110 {
		bad := bytes.Clone(good)
		bad[i] ^= 0x55
		if _, err := decryptPKCS8(bad, "sesame"); err != nil && !errors.Is(err, ErrKey) && !errors.Is(err, ErrPassphrase) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
	// 2,048 iterations, which become as many as fit.
	many := bytes.Replace(good, []byte{2, 2, 8, 0}, []byte{2, 2, 0x7f, 0xff}, 1)
	if _, err := decryptPKCS8(many, "sesame"); !errors.Is(err, ErrPassphrase) {
		t.Errorf("another number of iterations: %v", err)
	}
	_, err := decryptPKCS8(read(t, "testdata", "encrypted-pkcs8-scrypt.pem"), "sesame")
	if !errors.Is(err, ErrKey) {
		t.Error(err)
	}
	huge, err := asn1.Marshal(struct {
		Salt       []byte
		Iterations int
	}{make([]byte, 8), maxIterations + 1})
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := asn1.Marshal(struct{ KDF, Cipher pkix.AlgorithmIdentifier }{
		pkix.AlgorithmIdentifier{Algorithm: oidPBKDF2, Parameters: asn1.RawValue{FullBytes: huge}},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 42},
			Parameters: asn1.RawValue{Tag: asn1.TagOctetString, Bytes: make([]byte, 16)}}})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := asn1.Marshal(struct {
		Algorithm pkix.AlgorithmIdentifier
		Data      []byte
	}{pkix.AlgorithmIdentifier{Algorithm: oidPBES2, Parameters: asn1.RawValue{FullBytes: scheme}}, make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decryptPKCS8(whole, "sesame"); !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), "iterations") {
		t.Error(err)
	}
}
