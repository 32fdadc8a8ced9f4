package pki

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/test/tools"
)

func TestGPGSignatures(t *testing.T) {
	stocktest.Signatures(t, "testdata/gpg-signatures.json", []fn.Module{gpgModule(&host.Machine{})}, nil)
}

// TestGPG keeps keys in keyrings of the real program.
func TestGPG(t *testing.T) {
	program := tools.Need(t, "gpg", "gpg")
	// The sockets of gpg-agent need short paths.
	first, second := gnupgHome(t), gnupgHome(t)
	cmd := exec.Command(program, "--homedir", first, "--batch", "--passphrase", "", "--quick-generate-key",
		`Eve: of "Salt" <eve@example.org>`, "rsa2048", "sign", "2099-01-02")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r, err := fn.NewRegistry(nil, gpgModule(&host.Machine{}))
	if err != nil {
		t.Fatal(err)
	}
	c := (&fn.Call{Config: fn.Tree{Dict: value.NewDict(0)}}).Prepare()
	call := func(fun, home string, pairs ...any) any {
		t.Helper()
		v, err := r.Call(t.Context(), c, "gpg."+fun, nil, value.DictOf(append(pairs, "gnupghome", home)...))
		if err != nil {
			t.Fatalf("%s: %v", fun, err)
		}
		return v
	}
	check := func(got any, want ...any) {
		t.Helper()
		d, _ := got.(*value.Dict)
		for i := 0; i+1 < len(want); i += 2 {
			if !value.Equal(d.At(want[i]), want[i+1]) {
				t.Errorf("%v is %s, want %s: %s", want[i], value.Repr(d.At(want[i])), value.Repr(want[i+1]), value.Repr(got))
			}
		}
	}
	keys := value.Items(call("list_keys", first))
	if len(keys) != 1 {
		t.Fatalf("keys: %s", value.Repr(keys))
	}
	key := keys[0].(*value.Dict)
	id, fingerprint := key.Str("keyid"), key.Str("fingerprint")
	check(key, "uids", value.ListOf(`Eve: of "Salt" <eve@example.org>`), "keyLength", "2048", "trust", "Ultimately Trusted", "ownerTrust", "Ultimately Trusted")
	if len(id) != 16 || len(fingerprint) != 40 || !strings.HasPrefix(key.Str("expires"), "2099-01-0") || key.Str("created") == "" {
		t.Errorf("key: %s", value.Repr(key))
	}
	if got := value.Items(call("list_secret_keys", first)); len(got) != 1 {
		t.Errorf("secret keys: %s", value.Repr(got))
	}
	check(call("get_key", first, "keyid", id[8:]), "fingerprint", fingerprint)
	check(call("get_secret_key", first, "fingerprint", fingerprint), "keyid", id)
	if got := call("get_key", first, "keyid", "0123456789ABCDEF"); got != false {
		t.Errorf("an unknown key: %s", value.Repr(got))
	}

	text, _ := call("export_key", first, "keyids", id, "bare", true).(string)
	if !strings.HasPrefix(text, "-----BEGIN PGP PUBLIC KEY BLOCK-----") || !strings.HasSuffix(text, "-----END PGP PUBLIC KEY BLOCK-----\n") {
		t.Errorf("export: %s", text)
	}
	file := filepath.Join(t.TempDir(), "key.asc")
	check(call("export_key", first, "keyids", value.ListOf(id), "output", file), "comment", "Exported key data has been written to "+file)
	check(call("export_key", first, "keyids", "none@example.org"), "res", false)

	check(call("import_key", second, "text", "no key"), "res", false, "message", "Unable to import key.")
	check(call("import_key", second, "filename", file), "res", true, "message", "Successfully imported key(s).")
	check(call("import_key", second, "text", text), "res", true, "message", "Key(s) already exist in keychain.")
	check(call("trust_key", second, "keyid", id, "trust_level", "marginally"), "res", true, "message", "Setting ownership trust to Marginally.",
		"fingerprint", fingerprint)
	check(call("get_key", second, "keyid", id), "ownerTrust", "Marginally Trusted")
	check(call("trust_key", second, "keyid", "0123456789ABCDEF", "trust_level", "fully"), "res", false, "message", "Key 0123456789ABCDEF not in GPG keychain")
	if _, err := r.Call(t.Context(), c, "gpg.trust_key", nil, value.DictOf("keyid", id, "trust_level", "much", "gnupghome", second)); err == nil {
		t.Error("an unknown level of trust is accepted")
	}

	check(call("delete_key", first, "keyid", id), "res", false, "message", "Secret key exists, delete first or pass delete_secret=True.")
	check(call("delete_key", first, "keyid", id, "delete_secret", true), "res", true, "message",
		"Secret key for "+fingerprint+" deleted\nPublic key for "+fingerprint+" deleted")
	check(call("delete_key", second, "fingerprint", fingerprint), "res", true, "message", "Public key for "+fingerprint+" deleted")
	check(call("delete_key", second, "fingerprint", fingerprint), "res", false, "message", "Key not available in keychain.")
	if got := value.Items(call("list_keys", second)); len(got) != 0 {
		t.Errorf("keys that are left: %s", value.Repr(got))
	}
}

// gnupgHome returns an empty directory, whose gpg-agent ends with the test.
func gnupgHome(t *testing.T) string {
	dir, err := os.MkdirTemp("", "gpg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The agent ends when its socket is removed; gpgconf ends it at once.
		_ = exec.Command("gpgconf", "--homedir", dir, "--kill", "all").Run()
		os.RemoveAll(dir)
	})
	return dir
}
