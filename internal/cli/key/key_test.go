package key

import (
	"bytes"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"brine/internal/cli/frame"
	"brine/internal/net/crypt"
	"brine/internal/store/keystore"
)

// recorded is one recording of Salt's salt-key.
type recorded struct {
	args                  []string
	stdin, stdout, stderr string
	exit                  string
}

func recording(t *testing.T, name string) recorded {
	t.Helper()
	ar, err := txtar.ParseFile(filepath.Join("../../../testdata/golden/cli", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	for _, f := range ar.Files {
		text := string(f.Data)
		switch f.Name {
		case "cmd":
			r.args = shellWords(strings.TrimSpace(text))[1:]
		case "stdin":
			r.stdin = text
		case "stdout":
			r.stdout = text
		case "stderr":
			r.stderr = text
		case "exit":
			r.exit = strings.TrimSpace(text)
		}
	}
	if strings.Contains(string(ar.Comment), "stdout: no newline at the end") {
		r.stdout = strings.TrimSuffix(r.stdout, "\n")
	}
	return r
}

// shellWords splits at blanks outside of single quotes.
func shellWords(s string) []string {
	var out []string
	for i, part := range strings.Split(s, "'") {
		if i%2 == 1 {
			out[len(out)-1] += part
			continue
		}
		words := strings.Fields(part)
		if strings.HasSuffix(part, " ") {
			words = append(words, "")
		}
		if i > 0 && !strings.HasPrefix(part, " ") && len(words) > 0 {
			out[len(out)-1] += words[0]
			words = words[1:]
		}
		out = append(out, words...)
	}
	return out
}

// alphaKey returns the key in the recordings, whose fingerprint they also contain.
func alphaKey(t *testing.T) string {
	t.Helper()
	_, pem, _ := strings.Cut(recording(t, "key_print_one").stdout, "alpha:  ")
	return pem
}

// master is the temporary directories of a master.
type master struct {
	t     *testing.T
	dir   string
	store *keystore.Store
	tty   bool
}

func newMaster(t *testing.T, options string) *master {
	t.Helper()
	m := &master{t: t, dir: t.TempDir()}
	m.write("master", "root_dir: "+m.dir+"\npki_dir: /pki\ncachedir: /cache\nsock_dir: /sock\nid: lab_master\n"+options)
	store, err := keystore.Open(filepath.Join(m.dir, "pki"), nil)
	if err != nil {
		t.Fatal(err)
	}
	m.store = store
	return m
}

func (m *master) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

var short = map[string]keystore.State{"acc": keystore.Accepted, "pre": keystore.Pending, "rej": keystore.Rejected, "den": keystore.Denied}

// put stores keys: "acc:gamma pre:alpha,beta".
func (m *master) put(have string) {
	m.t.Helper()
	for part := range strings.FieldsSeq(have) {
		st, names, _ := strings.Cut(part, ":")
		for id := range strings.SplitSeq(names, ",") {
			if err := m.store.Put(short[st], id, alphaKey(m.t)); err != nil {
				m.t.Fatal(err)
			}
		}
	}
}

// has returns the stored keys in the notation of put.
func (m *master) has() string {
	m.t.Helper()
	keys, err := m.store.List()
	if err != nil {
		m.t.Fatal(err)
	}
	var out []string
	for _, st := range []string{"acc", "pre", "rej", "den"} {
		if ids := keys[short[st]]; len(ids) > 0 {
			out = append(out, st+":"+strings.Join(ids, ","))
		}
	}
	return strings.Join(out, " ")
}

// run runs salt-key.
func (m *master) run(stdin io.Reader, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	env := &frame.Env{
		Stdin: stdin, Stdout: &out, Stderr: &errs,
		Getenv:     func(k string) string { return map[string]string{"SALT_CONFIG_DIR": m.dir, "HOME": m.dir}[k] },
		IsTerminal: func(any) bool { return m.tty },
	}
	code = Applet().Run(m.t.Context(), env, args)
	return code, out.String(), errs.String()
}

// fourStates are the keys in the recordings of lists.
const fourStates = "acc:gamma pre:alpha,beta,delta,eta,theta rej:epsilon den:zeta"

// TestRecordings runs every recorded command on the recorded keys, and compares its output and the
// resulting keys.
func TestRecordings(t *testing.T) {
	for _, tc := range []struct{ name, before, after string }{
		{"key_list_empty", "", ""},
		{"key_list_two_pending", "pre:alpha,beta", "pre:alpha,beta"},
		{"key_list_all_states", fourStates, fourStates},
		{"key_default_no_args", fourStates, fourStates},
		{"key_list_acc", fourStates, fourStates},
		{"key_list_un", fourStates, fourStates},
		{"key_list_json", fourStates, fourStates},
		{"key_list_yaml", fourStates, fourStates},
		{"key_list_force_color", fourStates, fourStates},
		{"key_list_bad_arg", "", ""},
		{"key_unknown_option", "", ""},
		{"key_finger_one", fourStates, fourStates},
		{"key_print_one", fourStates, fourStates},
		{"key_accept_no_match", fourStates, fourStates},
		{"key_accept_prompt_no", "pre:alpha,beta", "pre:alpha,beta"},
		{"key_accept_prompt_default", "pre:alpha,beta", "acc:alpha pre:beta"},
		{"key_accept_already", "acc:alpha pre:beta", "acc:alpha pre:beta"},
		{"key_accept_yes", "acc:alpha pre:beta", "acc:alpha,beta"},
		{"key_accept_all_yes", "acc:alpha pre:beta", "acc:alpha,beta"},
		{"key_accept_all_none", "acc:alpha rej:epsilon", "acc:alpha rej:epsilon"},
		{"key_accept_rejected_only", "rej:epsilon den:zeta", "rej:epsilon den:zeta"},
		{"key_accept_include_rejected", "rej:epsilon den:zeta", "acc:epsilon den:zeta"},
		{"key_accept_include_denied", "acc:epsilon den:zeta", "acc:epsilon,zeta"},
		{"key_accept_glob_prompt", "acc:gamma pre:delta", "acc:delta,gamma"},
		{"key_accept_all_prompt", "acc:gamma pre:delta,eta,theta", "acc:delta,eta,gamma,theta"},
		{"key_accept_json", "acc:delta,eta,theta", "acc:delta,eta,theta"},
		{"key_reject_no_match", "acc:delta pre:eta", "acc:delta pre:eta"},
		{"key_reject_prompt", "acc:delta pre:eta", "acc:delta rej:eta"},
		{"key_reject_accepted", "acc:delta rej:eta", "acc:delta rej:eta"},
		{"key_reject_include_accepted", "acc:delta rej:eta", "rej:delta,eta"},
		{"key_reject_all", "acc:alpha pre:delta,eta", "acc:alpha rej:delta,eta"},
		{"key_delete_prompt", "acc:epsilon,gamma", "acc:gamma"},
		{"key_delete_prompt_no", "acc:gamma", "acc:gamma"},
		{"key_delete_all_prompt_no", "acc:alpha,gamma pre:delta,eta rej:theta", "acc:alpha,gamma pre:delta,eta rej:theta"},
		{"key_delete_glob", "acc:alpha,beta,zeta pre:theta", "acc:alpha"},
		{"key_delete_glob_two_states", "acc:alpha rej:delta,eta", "acc:alpha"},
		{"key_delete_json", "acc:alpha,delta", "acc:alpha"},
		{"key_delete_last", "acc:theta", ""},
		{"key_delete_no_match", "acc:alpha", "acc:alpha"},
		{"key_quiet", "acc:alpha,eta", "acc:alpha"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := recording(t, tc.name)
			m := newMaster(t, "")
			m.put(tc.before)
			code, stdout, stderr := m.run(strings.NewReader(r.stdin), r.args...)
			if code != map[string]int{"0": 0, "64": 64}[r.exit] {
				t.Errorf("exit code %d, want %s", code, r.exit)
			}
			if stdout != r.stdout {
				t.Errorf("stdout:\n%s\nwant:\n%s", stdout, r.stdout)
			}
			if stderr != r.stderr {
				t.Errorf("stderr:\n%s\nwant:\n%s", stderr, r.stderr)
			}
			if got := m.has(); got != tc.after {
				t.Errorf("keys are now %q, want %q", got, tc.after)
			}
		})
	}
}

// TestAllRecordingsAreUsed fails for a recording that has no test.
func TestAllRecordingsAreUsed(t *testing.T) {
	text, err := os.ReadFile("key_test.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../../testdata/golden/cli/*key_*.txt")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".txt"); !bytes.Contains(text, []byte(`"`+name+`"`)) {
			t.Errorf("no test uses %s", name)
		}
	}
}

func TestFingerAll(t *testing.T) {
	r := recording(t, "key_finger_all")
	m := newMaster(t, "")
	m.put(fourStates)
	m.write("pki/master.pem", alphaKey(t))
	m.write("pki/master.pub", alphaKey(t))
	_, stdout, _ := m.run(nil, r.args...)
	mask := regexp.MustCompile(`  ([0-9a-f]{2}:){31}[0-9a-f]{2}`)
	if got, want := mask.ReplaceAllString(stdout, "  FP"), mask.ReplaceAllString(r.stdout, "  FP"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestTerminal(t *testing.T) {
	r := recording(t, "tty_key_accept")
	m := newMaster(t, "")
	m.tty = true
	m.put("pre:lambda")
	_, stdout, stderr := m.run(strings.NewReader(r.stdin), r.args...)
	// The recording contains the typed answer, which a terminal echoes, but our input does not.
	if want := strings.Replace(r.stdout, "[n/Y] y\n", "[n/Y] ", 1); stdout+stderr != want {
		t.Errorf("got:\n%q\nwant:\n%q", stdout+stderr, want)
	}
}

func TestVersion(t *testing.T) {
	r := recording(t, "key_preserve")
	_, stdout, _ := newMaster(t, "").run(nil, r.args...)
	want, _, _ := strings.Cut(r.stdout, "+") // without the recorded build
	if !strings.HasPrefix(stdout, want+" (") {
		t.Errorf("got %q, want %q at the start", stdout, want)
	}
}

func TestGenKeys(t *testing.T) {
	r := recording(t, "key_gen_keys")
	m := newMaster(t, "")
	dir := filepath.Join(m.dir, "new", "keys")
	for i, a := range r.args {
		r.args[i] = strings.Replace(a, "/tmp/gk", dir, 1)
	}
	_, stdout, stderr := m.run(nil, r.args...)
	pub, err := os.ReadFile(filepath.Join(dir, "newbox.pub"))
	if err != nil {
		t.Fatal(err, stderr)
	}
	if want := "return:\n    " + crypt.Fingerprint(pub, "sha256") + "\n"; stdout != want {
		t.Errorf("got %q, want %q", stdout, want)
	}
	priv := filepath.Join(dir, "newbox.pem")
	if st, err := os.Stat(priv); err != nil || st.Mode().Perm() != 0o400 {
		t.Errorf("private key: %v, %v", st.Mode(), err)
	}
	k, err := crypt.LoadPrivate(priv, "")
	if err != nil || k.Public().Bits() != 2048 {
		t.Errorf("private key: %v", err)
	}
	if _, again, _ := m.run(nil, r.args...); again != stdout {
		t.Errorf("a key that exists was replaced: %q, then %q", stdout, again)
	}
	for size, want := range map[string]string{
		"1024":  "salt-key: error: The minimum value for keysize is 2048\n",
		"65536": "salt-key: error: The maximum value for keysize is 32768\n",
	} {
		if code, _, stderr := m.run(nil, "--gen-keys=x", "--keysize="+size); code != 64 || !strings.HasSuffix(stderr, want) {
			t.Errorf("keysize %s: code %d, %q", size, code, stderr)
		}
	}
}

func TestGenSignature(t *testing.T) {
	r := recording(t, "key_gen_signature")
	m := newMaster(t, "master_sign_key_name: master_sign\n")
	for _, step := range []struct{ args, want string }{
		{"--gen-signature", "No usable private-key found"},
		{"--gen-signature --priv=/nonexistent/k", "Private-key /nonexistent/k does not exist"},
		{"--gen-signature --pub=/nonexistent/k", "Public-key /nonexistent/k does not exist"},
		{"--gen-signature --auto-create", "No usable public-key found"},
	} {
		if _, stdout, _ := m.run(nil, strings.Fields(step.args)...); stdout != "return:\n    "+step.want+"\n" {
			t.Errorf("%s: %q", step.args, stdout)
		}
	}
	m.write("pki/master.pub", alphaKey(t))
	if _, stdout, stderr := m.run(nil, r.args...); stdout != r.stdout {
		t.Errorf("got %q, %q", stdout, stderr)
	}
	text, err := os.ReadFile(filepath.Join(m.dir, "pki/master_pubkey_signature"))
	if err != nil {
		t.Fatal(err)
	}
	sig, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(string(text), "\n"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := crypt.LoadPublic(filepath.Join(m.dir, "pki/master_sign.pub"))
	if err != nil {
		t.Fatal(err)
	}
	// Masters send the key without a newline at its end, and minions verify that string.
	if err := signer.Verify(crypt.PKCS1v15SHA1, []byte(crypt.CleanKey(alphaKey(t))), sig); err != nil {
		t.Errorf("minions refuse the signature: %v", err)
	}
	if _, stdout, _ := m.run(nil, r.args...); stdout != "return:\n    False\n" {
		t.Errorf("over a signature that exists: %q", stdout)
	}
}

func TestRotation(t *testing.T) {
	for name, tc := range map[string]struct {
		args, options string
		asks          bool
	}{
		"delete accepted":  {"-y -d one", "", true},
		"reject accepted":  {"-y --include-accepted -r one", "", true},
		"delete pending":   {"-y -d two", "", false},
		"accept":           {"-y -a two", "", false},
		"refused":          {"-y --rotate-aes-key=False -d one", "", false},
		"configured":       {"-y -d one", "rotate_aes_key: False\n", false},
		"against a config": {"-y --rotate-aes-key=true -d one", "rotate_aes_key: False\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMaster(t, tc.options)
			m.put("acc:one pre:two")
			if code, _, stderr := m.run(nil, strings.Fields(tc.args)...); code != 0 || stderr != "" {
				t.Fatalf("code %d, %s", code, stderr)
			}
			drop := filepath.Join(m.dir, "cache", ".dfn")
			text, err := os.ReadFile(drop)
			if (err == nil) != tc.asks {
				t.Fatalf("drop file: %q, %v", text, err)
			}
			if !tc.asks {
				return
			}
			st, err := os.Stat(drop)
			if err != nil || st.Mode() != 0o400 || string(text) != "lab_master" {
				t.Errorf("drop file holds %q with mode %v, %v", text, st.Mode(), err)
			}
		})
	}
}

func TestCachedDataOfDeletedMinions(t *testing.T) {
	for name, tc := range map[string]struct {
		args, options string
		left          []string
	}{
		"deleted":    {"-y -d one,both", "", []string{"both", "other"}},
		"preserved":  {"-y --preserve-minions=True -d one", "", []string{"both", "one", "other"}},
		"configured": {"-y -d one", "preserve_minion_cache: True\n", []string{"both", "one", "other"}},
		"rejected":   {"-y --include-accepted -r one", "", []string{"both", "one", "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMaster(t, tc.options)
			m.put("acc:one,both,other den:both")
			for _, id := range []string{"one", "both", "other"} {
				m.write("cache/minions/"+id+"/data.p", "x")
			}
			if name == "deleted" { // the denied key of "both" stays
				m.run(nil, "-y", "--include-denied", "-d", "one")
				if err := m.store.Delete(keystore.Accepted, "both"); err != nil {
					t.Fatal(err)
				}
			} else {
				m.run(nil, strings.Fields(tc.args)...)
			}
			entries, err := os.ReadDir(filepath.Join(m.dir, "cache/minions"))
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, e := range entries {
				left = append(left, e.Name())
			}
			if !slices.Equal(left, tc.left) {
				t.Errorf("left are %v, want %v", left, tc.left)
			}
		})
	}
}

func TestInvalidKeyIsNotAccepted(t *testing.T) {
	m := newMaster(t, "")
	m.put("pre:good")
	if err := m.store.Put(keystore.Pending, "bad", "no key\n"); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := m.run(nil, "-y", "-A")
	if code != 0 || !strings.Contains(stderr, "Unable to accept invalid key for bad.\n") || strings.Contains(stdout, "bad accepted") {
		t.Errorf("code %d, %q, %q", code, stdout, stderr)
	}
	if got := m.has(); got != "acc:good pre:bad" {
		t.Errorf("keys are now %q", got)
	}
}

func TestNoAnswer(t *testing.T) {
	m := newMaster(t, "")
	m.put("pre:one")
	code, _, stderr := m.run(strings.NewReader(""), "-A")
	if code != 1 || !strings.Contains(stderr, "use -y") || m.has() != "pre:one" {
		t.Errorf("code %d, %q, keys %q", code, stderr, m.has())
	}
	r, w := io.Pipe() // a reader that never returns an answer
	defer w.Close()
	var out, errs bytes.Buffer
	ctx, cancel := cancelWhenAsked(t, &out)
	env := &frame.Env{Stdin: r, Stdout: cancel, Stderr: &errs, IsTerminal: func(any) bool { return false },
		Getenv: func(k string) string { return map[string]string{"SALT_CONFIG_DIR": m.dir}[k] }}
	if code := Applet().Run(ctx, env, []string{"-A"}); code != 1 || errs.String() != "\nExiting on CTRL-c\n" || m.has() != "pre:one" {
		t.Errorf("code %d, %q, keys %q", code, errs.String(), m.has())
	}
}

func TestManyStatesInMessage(t *testing.T) {
	m := newMaster(t, "")
	_, stdout, _ := m.run(nil, "-y", "-a", "x", "--include-rejected", "--include-denied")
	if want := "The key glob 'x' does not match any unaccepted, rejected or denied keys.\n"; stdout != want {
		t.Errorf("got %q, want %q", stdout, want)
	}
}

func TestStrayArgument(t *testing.T) {
	m := newMaster(t, "")
	m.put("acc:zero pre:one,two")
	for args, want := range map[string]string{
		"-y -a one two": `unexpected argument "two": separate several keys by commas (a,b) and quote globs`,
		"-D -y two":     "Delete all takes no arguments. Use -d to delete specified keys",
		"-A -D -y":      "cannot accept and delete keys in one command",
	} {
		code, _, stderr := m.run(nil, strings.Fields(args)...)
		if code != frame.ExitUsage || !strings.HasSuffix(stderr, "salt-key: error: "+want+"\n") || m.has() != "acc:zero pre:one,two" {
			t.Errorf("%s: code %d, %q, keys %q", args, code, stderr, m.has())
		}
	}
}

func TestConfiguration(t *testing.T) {
	m := newMaster(t, "")
	m.write("master.d/hash.conf", "hash_type: md5\n")
	m.put("pre:alpha")
	if _, stdout, _ := m.run(nil, "-f", "alpha"); !regexp.MustCompile(`alpha:  ([0-9a-f]{2}:){15}[0-9a-f]{2}\n`).MatchString(stdout) {
		t.Errorf("hash_type of an included file is not used: %q", stdout)
	}
	m.write("master", "a: [")
	if code, _, stderr := m.run(nil, "-L"); code != 1 || !strings.Contains(stderr, "master") {
		t.Errorf("broken configuration: code %d, %q", code, stderr)
	}
}
