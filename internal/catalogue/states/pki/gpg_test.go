package pki

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	pkifuncs "brine/internal/catalogue/modules/pki"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/test/tools"
)

// TestGPG applies states to a keyring of the real program.
func TestGPG(t *testing.T) {
	program := tools.Need(t, "gpg", "gpg")
	home, err := os.MkdirTemp("", "gpg") // the sockets of gpg-agent need short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run()
		os.RemoveAll(home)
	})
	ring := filepath.Join(home, "ring.gpg")
	gpg := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(program, append([]string{"--homedir", home, "--batch", "--passphrase", ""}, args...)...).Output()
		if err != nil {
			t.Fatalf("gpg %q: %v", args, err)
		}
		return string(out)
	}
	gpg("--quick-generate-key", "eve@example.org", "rsa2048", "sign")
	text := gpg("--armor", "--export")
	if err := os.WriteFile(filepath.Join(home, "key.asc"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	gpg("--no-default-keyring", "--keyring", ring, "--import", filepath.Join(home, "key.asc"))
	id := ""
	for line := range strings.Lines(gpg("--with-colons", "--list-keys")) {
		if f := strings.Split(line, ":"); f[0] == "pub" {
			id = f[4]
		}
	}

	funcs, err := fn.NewRegistry(nil, pkifuncs.Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := state.NewRegistry(fn.Tree{Dict: value.NewDict(0)}, gpgModule())
	if err != nil {
		t.Fatal(err)
	}
	call := (&fn.Call{Config: fn.Tree{Dict: value.NewDict(0)}}).Prepare()
	call.Funcs = funcs
	// plan returns the plan of a state for the keyring, and what its steps predict.
	plan := func(fun string, pairs ...any) (state.Plan, string, error) {
		t.Helper()
		f, err := r.Lookup("gpg." + fun)
		if err != nil {
			t.Fatal(err)
		}
		kwargs := value.DictOf(append([]any{"name", id, "gnupghome", home, "keyring", ring}, pairs...)...)
		p, err := f.Plan(t.Context(), &state.Env{Call: call, Low: value.NewDict(0), Run: state.NewRun(nil)}, kwargs)
		would := p.Comment
		for _, s := range p.Steps {
			would += s.Change.Comment + " " + value.Repr(s.Change.Diff)
		}
		return p, would, err
	}
	run := func(p state.Plan) (comment string) {
		t.Helper()
		for _, s := range p.Steps {
			c, err := s.Do(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			comment += c.Comment + " " + value.Repr(c.Diff)
		}
		return comment
	}
	expect := func(got, want string) {
		t.Helper()
		if want = strings.ReplaceAll(want, "ID", id); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}

	p, would, err := plan("present")
	if err != nil || len(p.Steps) != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	expect(would, "GPG Public Key ID already in keychain")
	p, would, err = plan("present", "trust", "marginally")
	if err != nil {
		t.Fatal(err)
	}
	expect(would, "Would have set trust level for ID to marginally {'ID': {'trust': 'marginally'}}")
	expect(run(p), "Set trust level for ID to marginally\nGPG Public Key ID already in keychain {'ID': {'trust': 'marginally'}}")
	p, would, err = plan("present", "trust", "marginally")
	if err != nil || len(p.Steps) != 0 {
		t.Errorf("the second run changes something: %+v, %v", p, err)
	}
	expect(would, "GPG Public Key ID already in correct trust state\nGPG Public Key ID already in keychain")
	if _, _, err := plan("present", "trust", "much"); err == nil {
		t.Error("an unknown level of trust is accepted")
	}
	p, would, err = plan("present", "keys", value.ListOf("0123456789ABCDEF"), "keyserver", "hkp://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	expect(would, "Would have added 0123456789ABCDEF to GPG keychain {'0123456789ABCDEF': {'added': True}}")
	if _, err := p.Steps[0].Do(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "GPG reported failure: ") {
		t.Errorf("a key server that does not run: %v", err)
	}

	p, would, err = plan("absent", "keys", value.ListOf(id, "0123456789ABCDEF"))
	if err != nil {
		t.Fatal(err)
	}
	expect(would, "0123456789ABCDEF not found in GPG keychainWould have deleted ID from GPG keychain {'deleted': ['ID']}")
	// The secret key is in the same directory, so that gpg.delete_key refuses.
	if _, err := p.Steps[0].Do(t.Context()); err == nil || !strings.Contains(err.Error(), "Secret key exists") {
		t.Errorf("a key with a secret key: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(home, "private-keys-v1.d")); err != nil {
		t.Fatal(err)
	}
	p, _, err = plan("absent", "keyring_absent_if_empty", true)
	if err != nil {
		t.Fatal(err)
	}
	expect(run(p), "Deleted ID from GPG keychain {'deleted': ['ID']}Removed empty keyring file "+ring+" {'removed': '"+ring+"'}")
	p, would, err = plan("absent")
	if err != nil || len(p.Steps) != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	expect(would, "ID not found in GPG keychain")
}
