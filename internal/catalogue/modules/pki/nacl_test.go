package pki

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

func TestNaCl(t *testing.T) {
	dir := t.TempDir()
	r, err := fn.NewRegistry(nil, naclModule(&host.Machine{}))
	if err != nil {
		t.Fatal(err)
	}
	sk := filepath.Join(dir, "nacl")
	c := (&fn.Call{Config: fn.Tree{Dict: value.DictOf("pki_dir", dir, "nacl.config", value.DictOf("sk_file", sk, "pk_file", sk+".pub"))}}).Prepare()
	call := func(fun string, pairs ...any) (any, error) {
		f, _ := r.Lookup("nacl." + fun)
		return f.Call(t.Context(), c, nil, value.DictOf(pairs...))
	}
	must := func(want any, fun string, pairs ...any) any {
		t.Helper()
		got, err := call(fun, pairs...)
		if err != nil || want != nil && !value.Equal(got, want) {
			t.Errorf("nacl.%s %q: %s, %v; want %s", fun, pairs, value.Repr(got), err, value.Repr(want))
		}
		return got
	}
	refused := func(want, fun string, pairs ...any) {
		t.Helper()
		if got, err := call(fun, pairs...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nacl.%s %q: %s, %v; want an error with %q", fun, pairs, value.Repr(got), err, want)
		}
	}

	pair, _ := must(nil, "keygen").(*value.Dict)
	if len(pair.Str("sk")) != 44 || len(pair.Str("pk")) != 44 {
		t.Errorf("keygen: %s", value.Repr(pair))
	}
	must("saved sk_file:"+sk+"  pk_file: "+sk+".pub", "keygen", "sk_file", sk)
	if info, err := os.Stat(sk); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of the secret key is %v, %v", info.Mode(), err)
	}
	public, _ := os.ReadFile(sk + ".pub")
	refused("already exist.", "keygen", "sk_file", sk)
	if err := os.Remove(sk + ".pub"); err != nil {
		t.Fatal(err)
	}
	must("saved pk_file: "+sk+".pub", "keygen", "sk_file", sk)
	if again, _ := os.ReadFile(sk + ".pub"); string(again) != string(public) {
		t.Error("the public key is another one")
	}
	refused("exists without its secret key", "keygen", "sk_file", filepath.Join(dir, "none"), "pk_file", sk+".pub")

	enc := must(nil, "enc", "data", "word")
	must([]byte("word"), "dec", "data", enc)
	must([]byte("word"), "sealedbox_decrypt", "data", enc)
	refused("cannot be decrypted", "secretbox_decrypt", "data", enc)
	must([]byte("word"), "secretbox_decrypt", "data", must(nil, "enc", "data", "word", "box_type", "secretbox"))
	refused("must be a text", "enc", "data", 5)
	must(nil, "sealedbox_decrypt", "data", nil)

	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, []byte("of a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	must("Wrote: "+out, "enc_file", "name", in, "out", out)
	must([]byte("of a file\n"), "dec_file", "name", out)
	refused("already exist.", "dec_file", "name", out, "out", in)
	refused("cannot read /", "enc_file", "name", filepath.Join(dir, "missing"))
}
