package pillar

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/internal/sls/render"
	"brine/test/tools"
)

// keyring is a directory of GnuPG with a key.
type keyring struct {
	t    *testing.T
	home string
}

func newKeyring(t *testing.T) keyring {
	t.Helper()
	tools.Need(t, "gnupg", "gpg")
	home, err := os.MkdirTemp("", "gpg") // short, because it contains the agent's socket
	if err != nil {
		t.Fatal(err)
	}
	k := keyring{t, home}
	t.Cleanup(func() {
		if out, err := exec.Command("gpgconf", "--homedir", home, "--kill", "all").CombinedOutput(); err != nil {
			t.Logf("gpgconf: %v %s", err, out)
		}
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	k.run("", "--quick-gen-key", "somebody@example.com", "future-default", "default", "never")
	return k
}

func (k keyring) run(in string, words ...string) string {
	k.t.Helper()
	cmd := exec.Command("gpg", append([]string{"--homedir", k.home, "--batch", "--pinentry-mode", "loopback", "--passphrase", ""}, words...)...)
	cmd.Stdin = strings.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		k.t.Fatalf("gpg %q: %v\n%s", words, err, &stderr)
	}
	return string(out)
}

// message encrypts a text for the key.
func (k keyring) message(text string) string {
	return k.run(text, "--trust-model", "always", "-ea", "-r", "somebody@example.com")
}

// block returns a string as a YAML block below a key.
func block(text string, depth int) string {
	pad := strings.Repeat(" ", depth)
	return "|\n" + pad + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+pad) + "\n"
}

// TestDecrypt decrypts messages of a real gpg, by the renderer and by the
// option decrypt_pillar. The expected results are those of Salt 3007.
func TestDecrypt(t *testing.T) {
	k, stranger := newKeyring(t), newKeyring(t)
	one, lines, foreign, none := k.message("secret one"), k.message("two\nlines\n"), stranger.message("x"), k.message("")
	nl := strings.ReplaceAll(strings.TrimSpace(one), "\n", `\n`)
	trim := func(m string) string { return strings.TrimSpace(m) + "\n" }
	src := "plain: hello\nn: 5\ns: " + block(one, 2) + "two: " + block(lines, 2) + "nl: '" + nl + "'\n" +
		"nest:\n  a:\n    b: " + block(one, 6) + "    l:\n      - " + block(lines, 8) + "      - 5\n      - k: " + block(one, 10) +
		"several: " + block("before\n"+strings.TrimSpace(one)+"\nbetween\n"+strings.TrimSpace(lines)+"\nafter", 2)
	l := value.ListOf("two\nlines", 5, value.DictOf("k", "secret one"))
	plain := value.DictOf("plain", "hello", "n", 5, "s", "secret one", "two", "two\nlines", "nl", "secret one",
		"nest", value.DictOf("a", value.DictOf("b", "secret one", "l", l)),
		"several", "before\nsecret one\nbetween\ntwo\nlines\n\nafter")
	enc := value.DictOf("s", trim(one))
	const must, may = "must", "may" // gpg_decrypt_must_succeed: not set, and False
	for _, c := range []struct {
		name, sls, must string
		decrypt         any
		change          func(*Options)
		want            *value.Dict
		fault           string // part of the only entry of _errors
	}{
		{"renderer", "#!yaml|gpg\n" + src, must, nil, nil, plain, ""},
		{"renderer of text", "#!gpg|yaml\n" + k.message("a: [1, 2]"), must, nil, nil, value.DictOf("a", value.ListOf(1, 2)), ""},
		{"jinja before", "#!jinja|yaml|gpg\na: {{ 1 + 1 }}\ns: " + block(one, 2), must, nil, nil, value.DictOf("a", 2, "s", "secret one"), ""},
		{"no key for it", "#!yaml|gpg\ns: " + block(foreign, 2), must, nil, nil, value.DictOf(), "Rendering SLS 'p' failed"},
		{"no key for one of two", "#!yaml|gpg\ns: " + block(foreign, 2) + "a: " + block(one, 2), may, nil, nil,
			value.DictOf("s", trim(foreign)[:len(trim(foreign))-1], "a", "secret one"), ""},
		{"nothing in it", "#!yaml|gpg\ns: " + block(none, 2), must, nil, nil, value.DictOf(), "Rendering SLS 'p' failed"},
		{"damaged", "#!yaml|gpg\ns: " + block(strings.Replace(one, "\n\n", "\n\nAAAA", 1), 2), must, nil, nil, value.DictOf(), "Rendering SLS 'p' failed"},
		{"option, all", src, must, value.ListOf("s", "two", "nl", "nest", "several", "plain", "n", "missing", "nest:a:l:0", "s:x"), nil, plain, ""},
		{"option, one", "s: " + block(one, 2) + "t: " + block(one, 2), must, value.ListOf("t"), nil, value.DictOf("s", trim(one), "t", "secret one"), ""},
		{"option, renderer named", "a:\n  s: " + block(one, 4), must, value.DictOf("a:s", "gpg"), nil, value.DictOf("a", value.DictOf("s", "secret one")),
			""},
		{"option, delimiter", "a:\n  s: " + block(one, 4), must, value.ListOf("a|s"), func(o *Options) { o.DecryptDelimiter = "|" },
			value.DictOf("a", value.DictOf("s", "secret one")), ""},
		{"option, may not", "s: " + block(one, 2), must, value.ListOf(value.DictOf("s", "nacl")), nil, enc,
			"Failed to decrypt pillar key 's': 'nacl' is not a valid decryption renderer. Valid choices are: gpg"},
		{"option, default may not", "s: " + block(one, 2), must, value.ListOf("s"), func(o *Options) { o.DecryptDefault = "yaml" }, enc,
			"'yaml' is not a valid decryption renderer"},
		{"option, all may", "s: " + block(one, 2), must, value.ListOf("s"), func(o *Options) { o.DecryptRenderers = nil }, value.DictOf("s", "secret one"),
			""},
		{"option, another renderer", "s: '{q: [1]}'", must, value.ListOf("s"),
			func(o *Options) { o.DecryptDefault, o.DecryptRenderers = "yaml", []string{"yaml"} },
			value.DictOf("s", value.DictOf("q", value.ListOf(1))), ""},
		{"option, no such renderer", "s: " + block(one, 2), must, value.ListOf("s"),
			func(o *Options) { o.DecryptDefault, o.DecryptRenderers = "nosuch", nil }, enc, "Decryption renderer 'nosuch' is not available"},
		{"option, no key", "s: " + block(foreign, 2), must, value.ListOf("s"), nil, value.DictOf("s", trim(foreign)),
			"Failed to decrypt pillar key 's': Could not decrypt cipher b'-----BEGIN"},
		{"option, malformed list", "s: " + block(one, 2), must, value.ListOf(value.ListOf("s")), nil, enc, "decrypt_pillar config option is malformed"},
		{"option, a text", "s: " + block(one, 2), must, "s", nil, enc, "decrypt_pillar config option is malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := writeTree(t, map[string]string{"base/top.sls": "base: {'*': [p]}\n", "base/p.sls": c.sls})
			got, err := compiler(dir, func(cfg *Config) {
				cfg.Options.Decrypt = c.decrypt
				cfg.Opts.Set("gpg_keydir", k.home)
				if c.must == may {
					cfg.Opts.Set("gpg_decrypt_must_succeed", false)
				}
				if c.change != nil {
					c.change(&cfg.Options)
				}
			}).Compile(t.Context(), Request{ID: "m"})
			if err != nil {
				t.Fatal(err)
			}
			faults := got.List("_errors")
			if c.fault == "" && len(faults) > 0 || c.fault != "" && (len(faults) != 1 || !strings.Contains(value.Str(faults[0]), c.fault)) {
				t.Errorf("faults %q, want %q", faults, c.fault)
			}
			got = got.Clone()
			got.Delete("_errors")
			if !value.Equal(got, c.want) {
				t.Errorf("got  %s\nwant %s", value.Repr(got), value.Repr(c.want))
			}
		})
	}
}

// TestDecryptKeys checks that without gpg_keydir the keys are in gpgkeys,
// beside the configuration.
func TestDecryptKeys(t *testing.T) {
	k := newKeyring(t)
	conf := t.TempDir()
	if err := os.Symlink(k.home, filepath.Join(conf, "gpgkeys")); err != nil {
		t.Fatal(err)
	}
	r := render.New(render.Options{})
	for _, opts := range []*value.Dict{value.DictOf("config_dir", conf), value.DictOf("conf_file", conf+"/master")} {
		got, err := r.Decrypt(t.Context(), "gpg", k.message("x"), render.Request{Opts: opts})
		if err != nil || got != "x" {
			t.Errorf("%s: %v, %v", value.Repr(opts), got, err)
		}
	}
}
