package render

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/base/naclbox"
	"brine/internal/py/value"
)

func TestNaCl(t *testing.T) {
	dir := t.TempDir()
	pair, err := naclbox.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "key")
	if err := os.WriteFile(file, pair.Secret, 0o600); err != nil {
		t.Fatal(err)
	}
	option := value.DictOf("sk_file", file, "pk", pair.Public)
	enc, err := naclbox.New(option, nil, dir).Encrypt([]byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	text := "NACL[" + string(enc) + "]"
	opts := value.DictOf("nacl.config", option, "pki_dir", dir)
	render := func(source string) (any, error) {
		return New(Options{}).Render(t.Context(), Request{Source: []byte(source), Path: "/f.sls", Opts: opts})
	}
	got, err := render("#!jinja|yaml|nacl\na: '" + text + "'\nb: [{c: '" + text + "'}, 5, 'x " + text + "']\nd: plain\n")
	secret := []byte("secret")
	want := value.DictOf("a", secret, "b", value.ListOf(value.DictOf("c", secret), 5, "x "+text), "d", "plain")
	if err != nil || !value.Equal(got, want) {
		t.Errorf("got %s, want %s, %v", value.Repr(got), value.Repr(want), err)
	}
	if _, err = render("#!yaml|nacl\na: 'NACL[" + strings.Repeat("A", 80) + "]'\n"); !strings.Contains(err.Error(), "cannot be decrypted") {
		t.Errorf("damaged: %v", err)
	}
	if e := (*Error)(nil); !errors.As(err, &e) || e.Name != "/f.sls" {
		t.Errorf("the error does not name the file: %v", err)
	}
}
