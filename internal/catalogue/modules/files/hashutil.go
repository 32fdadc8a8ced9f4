package files

import (
	"context"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type hashutil struct{}

func init() { units.Declare("hashutil", hashutilModule) }

func hashutilModule() fn.Module {
	h := hashutil{}
	return fn.Module{Name: "hashutil", Doc: `Hashes and encodings of texts and files.`, Funcs: []fn.Func{
		fn.Of("digest", h.digest, `Return the hash of a text.`, fn.Example("salt '*' hashutil.digest 'get salted'")),
		fn.Of("digest_file", h.digestFile, `Return the hash of a file.`, fn.Example("salt '*' hashutil.digest_file /path/to/file sha256")),
		fn.Of("md5_digest", digest("md5"), `Return the MD5 hash of a text.`, fn.Example("salt '*' hashutil.md5_digest 'get salted'")),
		fn.Of("sha256_digest", digest("sha256"), `Return the SHA-256 hash of a text.`, fn.Example("salt '*' hashutil.sha256_digest 'get salted'")),
		fn.Of("sha512_digest", digest("sha512"), `Return the SHA-512 hash of a text.`, fn.Example("salt '*' hashutil.sha512_digest 'get salted'")),
		fn.Of("base64_b64encode", h.encode, `Return a text in base64, in one line.`, fn.Example("salt '*' hashutil.base64_b64encode 'get salted'")),
		fn.Of("base64_b64decode", h.decode, `Return a text that is given in base64.`, fn.Example("salt '*' hashutil.base64_b64decode 'Z2V0IHNhbHRlZA=='")),
		fn.Of("base64_encodestring", h.encodeLines, `Return a text in base64, in lines.`, fn.Example("salt '*' hashutil.base64_encodestring 'get salted'")),
		fn.Of("base64_decodestring", h.decode, `Return a text that is given in base64.`,
			fn.Example("salt '*' hashutil.base64_decodestring 'Z2V0IHNhbHRlZA=='")),
		fn.Of("base64_encodefile", h.encodeFile, `Return a file in base64, in lines.`,
			fn.Example("salt '*' hashutil.base64_encodefile /path/to/binary_file")),
		fn.Of("base64_decodefile", h.decodeFile, `Write what is given in base64 to a file.`,
			fn.Example("salt '*' hashutil.base64_decodefile instr='Z2V0IHNhbHRlZAo=' outfile=/path/to/binary_file")),
		fn.Of("hmac_compute", h.hmacCompute, `Return the HMAC of a text by SHA-256.`,
			fn.Example("salt '*' hashutil.hmac_compute 'get salted' 'shared secret'")),
		fn.Of("hmac_signature", h.hmacSignature, `Say whether an HMAC, by SHA-256 and in base64, is that of a text.`,
			fn.Example("salt '*' hashutil.hmac_signature 'get salted' 'shared secret' 'eBWf9bstXg+NiP5AOwppB5HMvZiYMPzEM9W5YMm/AmQ='")),
		fn.Of("github_signature", h.githubSignature, `Say whether the signature of a GitHub webhook is that of a text.`,
			fn.Example("salt '*' hashutil.github_signature '{\"ref\": 1}' 'shared secret' challenge_hmac='sha1=bc6550fc290acf5b42283fa8deaf55cea0f8c206'")),
	}}
}

var hashes = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New,
}

// raw returns the bytes of a string; other types are an error.
func raw(v any) ([]byte, error) {
	if b, ok := content(v); ok {
		return b, nil
	}
	return nil, fn.Invalidf("a text is needed, not a %s; put a number in quotes", value.TypeName(v))
}

// shown returns bytes as a string if they are valid UTF-8.
func shown(b []byte) any {
	if utf8.Valid(b) {
		return string(b)
	}
	return b
}

type instrArgs struct {
	Instr any `salt:"instr" doc:"the text"`
}

func digest(name string) func(context.Context, *fn.Call, instrArgs) (string, error) {
	return func(_ context.Context, _ *fn.Call, a instrArgs) (string, error) {
		b, err := raw(a.Instr)
		h := hashes[name]()
		h.Write(b)
		return hex.EncodeToString(h.Sum(nil)), err
	}
}

type digestArgs struct {
	Instr    any    `salt:"instr" doc:"the text"`
	Checksum string `salt:"checksum" doc:"md5, sha256 or sha512" default:"md5"`
}

func known(name string) error {
	if name != "md5" && name != "sha256" && name != "sha512" {
		return fn.Errorf("Hash func '%s' is not supported.", name)
	}
	return nil
}

func (hashutil) digest(ctx context.Context, c *fn.Call, a digestArgs) (string, error) {
	if err := known(a.Checksum); err != nil {
		return "", err
	}
	return digest(a.Checksum)(ctx, c, instrArgs{a.Instr})
}

type digestFileArgs struct {
	Infile   string `salt:"infile" doc:"path of the file"`
	Checksum string `salt:"checksum" doc:"md5, sha256 or sha512" default:"md5"`
}

func (hashutil) digestFile(_ context.Context, _ *fn.Call, a digestFileArgs) (string, error) {
	if st, err := os.Stat(a.Infile); err != nil || !st.Mode().IsRegular() {
		return "", fn.Errorf("File path '%s' not found.", a.Infile)
	}
	if err := known(a.Checksum); err != nil {
		return "", err
	}
	f, err := os.Open(a.Infile)
	if err != nil {
		return "", fn.Errorf("cannot read the file: %w", err)
	}
	defer f.Close()
	h := hashes[a.Checksum]()
	if _, err := io.Copy(h, f); err != nil {
		return "", fn.Errorf("cannot read the file: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (hashutil) encode(_ context.Context, _ *fn.Call, a instrArgs) (string, error) {
	b, err := raw(a.Instr)
	return base64.StdEncoding.EncodeToString(b), err
}

// decodeBase64 ignores characters outside of base64's alphabet, as Python
// does.
func decodeBase64(v any) ([]byte, error) {
	b, err := raw(v)
	if err != nil {
		return nil, err
	}
	text := strings.Map(func(r rune) rune {
		if r == '+' || r == '/' || r == '=' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, string(b))
	out, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fn.Errorf("this is no base64: %w", err)
	}
	return out, nil
}

func (hashutil) decode(_ context.Context, _ *fn.Call, a instrArgs) (any, error) {
	b, err := decodeBase64(a.Instr)
	return shown(b), err
}

// lineBytes is the number of bytes that fill a line of 76 characters.
const lineBytes = 57

func lines(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		n := min(len(b), lineBytes)
		out.WriteString(base64.StdEncoding.EncodeToString(b[:n]))
		out.WriteByte('\n')
		b = b[n:]
	}
	return out.String()
}

func (hashutil) encodeLines(_ context.Context, _ *fn.Call, a instrArgs) (string, error) {
	b, err := raw(a.Instr)
	return lines(b), err
}

// maxEncoded bounds the size of a file that is returned encoded, in bytes.
const maxEncoded = 64 << 20

type fnameArgs struct {
	Fname string `salt:"fname" doc:"path of the file"`
}

func (hashutil) encodeFile(_ context.Context, _ *fn.Call, a fnameArgs) (string, error) {
	f, err := os.Open(a.Fname)
	if err != nil {
		return "", fn.Errorf("cannot read the file: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEncoded+1))
	if err == nil && len(b) > maxEncoded {
		err = errors.New("it is larger than 64 MiB")
	}
	if err != nil {
		return "", fn.Errorf("cannot read the file: %w", err)
	}
	return lines(b), nil
}

type decodeFileArgs struct {
	Instr   any    `salt:"instr" doc:"the content in base64"`
	Outfile string `salt:"outfile" doc:"path of the file"`
}

func (hashutil) decodeFile(_ context.Context, _ *fn.Call, a decodeFileArgs) (bool, error) {
	b, err := decodeBase64(a.Instr)
	if err != nil {
		return false, err
	}
	mode := fs.FileMode(0o644)
	if st, err := os.Stat(a.Outfile); err == nil {
		mode = st.Mode().Perm()
	}
	if err := atomicfile.Write(a.Outfile, b, mode, false); err != nil {
		return false, fn.Errorf("cannot write the file: %w", err)
	}
	return true, nil
}

type hmacArgs struct {
	Text      any    `salt:"string" doc:"the text"`
	Secret    any    `salt:"shared_secret" doc:"the secret that both sides know"`
	Challenge string `salt:"challenge_hmac" doc:"the HMAC to test"`
}

func (a hmacArgs) sum(newHash func() hash.Hash) ([]byte, error) {
	text, err := raw(a.Text)
	if err != nil {
		return nil, err
	}
	secret, err := raw(a.Secret)
	if err != nil {
		return nil, err
	}
	h := hmac.New(newHash, secret)
	h.Write(text)
	return h.Sum(nil), nil
}

type hmacComputeArgs struct {
	Text   any `salt:"string" doc:"the text"`
	Secret any `salt:"shared_secret" doc:"the secret that both sides know"`
}

func (hashutil) hmacCompute(_ context.Context, _ *fn.Call, a hmacComputeArgs) (string, error) {
	sum, err := hmacArgs{Text: a.Text, Secret: a.Secret}.sum(sha256.New)
	return hex.EncodeToString(sum), err
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func (hashutil) hmacSignature(_ context.Context, _ *fn.Call, a hmacArgs) (bool, error) {
	sum, err := a.sum(sha256.New)
	return err == nil && equal(base64.StdEncoding.EncodeToString(sum), a.Challenge), err
}

func (hashutil) githubSignature(_ context.Context, _ *fn.Call, a hmacArgs) (bool, error) {
	name, challenge, _ := strings.Cut(a.Challenge, "=")
	newHash, ok := hashes[name]
	if !ok {
		return false, fn.Invalidf("the signature must begin with sha1= or sha256=, not %q", name+"=")
	}
	sum, err := a.sum(newHash)
	return err == nil && equal(hex.EncodeToString(sum), challenge), err
}
