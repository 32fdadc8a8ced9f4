package auth

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// FuzzTokenFile reads mutated token files: an invalid or expired token is
// rejected and removed.
func FuzzTokenFile(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	now := time.Unix(1_800_000_000, 0)
	name := strings.Repeat("0a", 32)
	for _, d := range []*value.Dict{
		value.DictOf("start", 1.7e9, "expire", 1.9e9, "name", "ann", "eauth", "sharedsecret", "auth_list", value.ListOf("test.ping"), "token", name),
		value.DictOf("expire", int64(1_900_000_000), "name", "ann", "eauth", "sharedsecret", "groups", value.ListOf("g")),
		value.DictOf("expire", 1.0, "name", "ann", "eauth", "sharedsecret"), value.DictOf("name", "ann"),
	} {
		b, err := msgpack.Marshal(d, msgpack.NewSpec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	tokens, err := OpenTokens(filepath.Join(f.TempDir(), "tokens"))
	if err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(tokens.dir, name)
	s, errs := New(Options{SharedSecret: "x", External: value.DictOf("sharedsecret", value.DictOf("ann", value.ListOf("test.*")))}, nil, tokens,
		slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		f.Fatal(errs)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := tokens.Get(name, now)
		if d != nil {
			expire, isFloat := d.At("expire").(float64)
			if n, isInt := d.At("expire").(int64); isInt {
				expire, isFloat = float64(n), true
			}
			if !isFloat || !(expire >= float64(now.Unix())) {
				t.Fatalf("a token without a valid end: %s", value.Repr(d))
			}
		} else if _, statErr := os.Stat(path); err == nil && statErr == nil {
			t.Fatal("a bad token is still there")
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if u, err := s.ByToken(name); err == nil {
			s.Rights(u)
		}
	})
}
