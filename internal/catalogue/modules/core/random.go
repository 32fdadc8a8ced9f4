package core

import (
	"context"
	crand "crypto/rand"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"math/big"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/net/crypt/shadow"
	"brine/internal/py/mersenne"
	"brine/internal/py/value"
)

type random struct{}

func init() {
	units.Declare("random", func() fn.Module {
		return fn.Module{Name: "random", Doc: `Random texts and numbers, and hashes.`, Funcs: []fn.Func{
			fn.Of("hash", random{}.hash, `Return the hash of a text.`, fn.Example("salt '*' random.hash 'I am a string' md5")),
			fn.Of("str_encode", random{}.strEncode, `Return a text in base64.`, fn.Example("salt '*' random.str_encode 'I am a new string'")),
			fn.Of("get_str", random{}.getStr, `Return a random text, fit for a password.`, fn.Example("salt '*' random.get_str 128 chars='abc123.!()'")),
			fn.Of("shadow_hash", random{}.shadowHash, `Return a password hashed for /etc/shadow.`,
				fn.Example("salt '*' random.shadow_hash 'My5alT' 'MyP@asswd' sha512")),
			fn.Of("rand_int", random{}.randInt, `Return a random whole number between two, both included.`, fn.Example("salt '*' random.rand_int 1 10")),
			fn.Of("seed", random{}.seed, `Return a number below another that is always the same for one minion.`, fn.Example("salt '*' random.seed 10")),
			fn.Of("sample", random{}.sample, `Return some items of a list in random order.`, fn.Example(`salt '*' random.sample '[one, two]' 1 seed=something`)),
			fn.Of("shuffle", random{}.shuffle, `Return a list in random order.`, fn.Example(`salt '*' random.shuffle '[one, two]' seed=something`)),
		}}
	})
}

// newHash returns the hash with a name of Python's hashlib, or nil.
func newHash(name string) hash.Hash {
	if make, ok := hashes[name]; ok {
		return make()
	}
	switch strings.ReplaceAll(name, "-", "_") {
	case "sha512_224":
		return sha512.New512_224()
	case "sha512_256":
		return sha512.New512_256()
	case "sha3_224":
		return sha3.New224()
	case "sha3_256":
		return sha3.New256()
	case "sha3_384":
		return sha3.New384()
	case "sha3_512":
		return sha3.New512()
	}
	return nil
}

type randomHashArgs struct {
	Value     any    `salt:"value" doc:"text to hash"`
	Algorithm string `salt:"algorithm" doc:"md5, sha1, sha256, sha512, sha3_256 and so on" default:"sha512"`
}

func (random) hash(_ context.Context, _ *fn.Call, a randomHashArgs) (string, error) {
	h := newHash(a.Algorithm)
	if h == nil {
		return "", errors.New("you must specify a valid algorithm")
	}
	b, ok := textBytes(a.Value)
	if !ok {
		return "", fn.Invalidf("only a text can be hashed, not a %s", value.TypeName(a.Value))
	}
	h.Write(b)
	return hex.EncodeToString(h.Sum(nil)), nil
}

func textBytes(v any) ([]byte, bool) {
	switch x := v.(type) {
	case string:
		return []byte(x), true
	case []byte:
		return x, true
	}
	return nil, false
}

type encodeArgs struct {
	Value   any    `salt:"value" doc:"text to encode"`
	Encoder string `salt:"encoder" doc:"base64" default:"base64"`
}

func (random) strEncode(_ context.Context, _ *fn.Call, a encodeArgs) (string, error) {
	b, ok := textBytes(a.Value)
	if !ok || a.Encoder != "base64" {
		return "", fn.Invalidf("Value must be an encode-able string")
	}
	return base64.StdEncoding.EncodeToString(b), nil
}

// Character classes of random strings.
const (
	lowercase   = "abcdefghijklmnopqrstuvwxyz"
	uppercase   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	decimals    = "0123456789"
	punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
	whitespace  = " \t\n\r\v\f"
)

type getStrArgs struct {
	Length      int    `salt:"length" doc:"number of characters" default:"20"`
	Chars       string `salt:"chars" doc:"characters to choose from, in place of all that follows" default:"null"`
	Lowercase   bool   `salt:"lowercase" doc:"use small letters" default:"true"`
	Uppercase   bool   `salt:"uppercase" doc:"use capital letters" default:"true"`
	Digits      bool   `salt:"digits" doc:"use digits" default:"true"`
	Punctuation bool   `salt:"punctuation" doc:"use punctuation" default:"true"`
	Whitespace  bool   `salt:"whitespace" doc:"use white space" default:"false"`
	Printable   bool   `salt:"printable" doc:"use all of these" default:"false"`
}

// maxText bounds the length of a random string.
const maxText = 1 << 20

func (random) getStr(_ context.Context, _ *fn.Call, a getStrArgs) (string, error) {
	chars := a.Chars
	if a.Printable {
		chars = decimals + lowercase + uppercase + punctuation + whitespace
	}
	if chars == "" {
		for _, class := range []struct {
			use   bool
			chars string
		}{{a.Lowercase, lowercase}, {a.Uppercase, uppercase}, {a.Digits, decimals}, {a.Punctuation, punctuation}, {a.Whitespace, whitespace}} {
			if class.use {
				chars += class.chars
			}
		}
	}
	return randomText(chars, a.Length)
}

func randomText(chars string, length int) (string, error) {
	from := []rune(chars)
	if len(from) == 0 {
		return "", fn.Invalidf("there are no characters to choose from")
	}
	if length > maxText {
		return "", fn.Invalidf("a random text has at most %d characters", maxText)
	}
	var b strings.Builder
	count := big.NewInt(int64(len(from)))
	for range max(0, length) {
		i, err := crand.Int(crand.Reader, count)
		if err != nil {
			return "", err
		}
		b.WriteRune(from[i.Int64()])
	}
	return b.String(), nil
}

type shadowArgs struct {
	Salt      any    `salt:"crypt_salt" doc:"salt of the hash; a random one if null" default:"null"`
	Password  any    `salt:"password" doc:"the password; a random one if null" default:"null"`
	Algorithm string `salt:"algorithm" doc:"sha512, sha256 or md5" default:"sha512"`
}

func (random) shadowHash(_ context.Context, _ *fn.Call, a shadowArgs) (string, error) {
	text := func(v any, chars string, length int) (string, error) {
		if v != nil {
			return value.Str(v), nil
		}
		return randomText(chars, length)
	}
	password, err := text(a.Password, lowercase+uppercase+decimals+punctuation, 20)
	if err != nil {
		return "", err
	}
	crypt, err := text(a.Salt, "./"+decimals+uppercase+lowercase, 16)
	if err != nil {
		return "", err
	}
	h, err := shadow.Hash(a.Algorithm, password, crypt)
	if err != nil {
		return "", fn.Invalidf("%w", err)
	}
	return h, nil
}

type randIntArgs struct {
	Start int64 `salt:"start" doc:"smallest number" default:"1"`
	End   int64 `salt:"end" doc:"largest number" default:"10"`
	Seed  any   `salt:"seed" doc:"what makes the number always the same" default:"null"`
}

// source returns a generator for a seed; without a seed it is unpredictable.
func source(seed any) (*mersenne.Source, error) {
	if seed == nil {
		b := make([]byte, 32)
		if _, err := crand.Read(b); err != nil {
			return nil, err
		}
		seed = b
	}
	s, err := mersenne.New(seed)
	if err != nil {
		return nil, fn.Invalidf("%w", err)
	}
	return s, nil
}

func (random) randInt(_ context.Context, _ *fn.Call, a randIntArgs) (int64, error) {
	s, err := source(a.Seed)
	if err != nil {
		return 0, err
	}
	width := uint64(a.End) - uint64(a.Start) + 1
	if a.End < a.Start || width == 0 {
		return 0, fn.Invalidf("there is no whole number from %d to %d", a.Start, a.End)
	}
	return a.Start + int64(s.Below(width)), nil
}

type seedArgs struct {
	Range int64 `salt:"range" doc:"the number is below this" default:"10"`
	Hash  any   `salt:"hash" doc:"what the number comes from; the minion's id if null" default:"null"`
}

func (random) seed(_ context.Context, c *fn.Call, a seedArgs) (int64, error) {
	if a.Hash == nil {
		a.Hash = c.ID
	}
	s, err := source(a.Hash)
	if err != nil {
		return 0, err
	}
	if a.Range < 1 {
		return 0, fn.Invalidf("the range must be at least 1, not %d", a.Range)
	}
	return int64(s.Below(uint64(a.Range))), nil
}

type shuffleArgs struct {
	Value *value.List `salt:"value" doc:"the list"`
	Seed  any         `salt:"seed" doc:"what makes the order always the same" default:"null"`
}

func (random) shuffle(ctx context.Context, c *fn.Call, a shuffleArgs) (*value.List, error) {
	return random{}.sample(ctx, c, sampleArgs{a.Value, a.Value.Len(), a.Seed})
}

type sampleArgs struct {
	Value *value.List `salt:"value" doc:"the list"`
	Size  int         `salt:"size" doc:"how many items"`
	Seed  any         `salt:"seed" doc:"what makes the choice always the same" default:"null"`
}

func (random) sample(ctx context.Context, c *fn.Call, a sampleArgs) (*value.List, error) {
	if a.Size < 0 || a.Size > a.Value.Len() {
		return nil, fn.Invalidf("a list of %d items has no sample of %d", a.Value.Len(), a.Size)
	}
	if a.Seed != nil { // Salt uses the hash of the seed
		sum, err := random{}.hash(ctx, c, randomHashArgs{a.Seed, "sha512"})
		if err != nil {
			return nil, err
		}
		a.Seed = sum
	}
	s, err := source(a.Seed)
	if err != nil {
		return nil, err
	}
	out := &value.List{}
	for _, i := range s.Sample(a.Value.Len(), a.Size) {
		out.Append(a.Value.Items[i])
	}
	return out, nil
}
