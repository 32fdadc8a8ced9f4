package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/host"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/test/tools"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func external(t *testing.T, text string) *value.Dict {
	t.Helper()
	v, err := yaml.Load([]byte(text), "master")
	if err != nil {
		t.Fatal(err)
	}
	return v.(*value.Dict)
}

// service returns a Service that refuses without delay.
func service(t *testing.T, o Options) (*Service, []error) {
	t.Helper()
	tokens, err := OpenTokens(filepath.Join(t.TempDir(), "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	if o.TokenExpire == 0 {
		o.TokenExpire = time.Hour
	}
	s, errs := New(o, nil, tokens, quiet())
	s.slowest = 0
	return s, errs
}

func must(t *testing.T, o Options) *Service {
	t.Helper()
	s, errs := service(t, o)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return s
}

func TestSharedSecretAndAuto(t *testing.T) {
	s := must(t, Options{SharedSecret: "s3cret", External: external(t, "{sharedsecret: {ann: [a.b]}, auto: {'*': [test.ping]}}")})
	for _, c := range []struct {
		c      Credentials
		rights string // "" is refused
	}{
		{Credentials{"sharedsecret", "ann", "s3cret", nil}, "['a.b']"},
		{Credentials{"sharedsecret", "eve", "s3cret", nil}, "[]"},
		{Credentials{"sharedsecret", "*", "s3cret", nil}, "[]"},
		{Credentials{"sharedsecret", "ann", "s3cre", nil}, ""},
		{Credentials{"sharedsecret", "ann", "", nil}, ""},
		{Credentials{"sharedsecret", "", "s3cret", nil}, ""},
		{Credentials{"sharedsecret", "ann", strings.Repeat("x", maxField+1), nil}, ""},
		{Credentials{"auto", "x", "", nil}, "['test.ping']"},
		{Credentials{"pam", "ann", "s3cret", nil}, ""},
		{Credentials{"", "ann", "s3cret", nil}, ""},
	} {
		u, err := s.Authenticate(t.Context(), c.c)
		if c.rights == "" {
			if !errors.Is(err, ErrRefused) || salt.KindOf(err) != salt.Denied {
				t.Errorf("%.60v: %v", c.c, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", c.c, err)
		} else if got := value.Repr(&value.List{Items: s.Rights(u)}); got != c.rights {
			t.Errorf("%v: %s", c.c, got)
		}
	}
}

// A system that cannot be used accepts no users; the other systems work.
func TestBadConfiguration(t *testing.T) {
	s, errs := service(t, Options{External: external(t, "{sharedsecret: {'*': ['.*']}, nosuch: {}, file: {}, rest: {^url: 'ftp://x'}, pki: {a: []}, "+
		"auto: [x]}")})
	if len(errs) != 6 {
		t.Errorf("%d errors: %v", len(errs), errs)
	}
	for _, sys := range []string{"sharedsecret", "nosuch", "file", "rest", "pki", "auto"} {
		if _, err := s.Authenticate(t.Context(), Credentials{sys, "ann", "", nil}); err == nil {
			t.Errorf("%s accepts a user", sys)
		}
	}
}

func TestNoSecretIsLogged(t *testing.T) {
	var log bytes.Buffer
	tokens, err := OpenTokens(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, _ := New(Options{SharedSecret: "right-secret", External: external(t, "{sharedsecret: {}}")}, nil, tokens,
		slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	s.slowest = 0
	s.Authenticate(t.Context(), Credentials{"sharedsecret", "ann", "wrong-secret", nil})
	s.ByToken(strings.Repeat("ab", 32))
	if log.Len() == 0 || strings.Contains(log.String(), "-secret") || strings.Contains(log.String(), "abab") {
		t.Errorf("logged: %s", &log)
	}
}

func TestRefusalTakesItsTime(t *testing.T) {
	s := must(t, Options{SharedSecret: "x", External: external(t, "{sharedsecret: {}}")})
	s.slowest = 200 * time.Millisecond
	began := time.Now()
	s.Authenticate(t.Context(), Credentials{"nosuch", "ann", "y", nil})
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("a refusal took %v", took)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	s.slowest = time.Hour
	if _, err := s.Authenticate(gone, Credentials{"nosuch", "ann", "y", nil}); err == nil {
		t.Error("let in")
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// The expected hashes come from openssl passwd -apr1, -5 and -6, crypt(3) and md5sum.
	plain := write("plain", "dean:goneFishing\ngene:OceanMan\ngene:second\nbroken\nlate:x\n")
	legacy := write("legacy", "46|trey|16a0034f90b06bf3c5982ed8ac41aab4\n555|mike|"+digest("pw", "md5")+"\n")
	ht := write("ht", "# users\nann:$apr1$12345678$9pHAGSBYtlmFtid2xxNog0\nbob:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n"+
		"long:$apr1$saltsalt$77s4NCph3AZFUDE3E6.QK/\nold:$2y$05$abc\nbea:$2y$04$B6evPwfzx2P8304/Qx0FLu22H0N3gaBwEIDKnSnyyY.faa.70gik.\n"+
		"slow:$2y$31$B6evPwfzx2P8304/Qx0FLu22H0N3gaBwEIDKnSnyyY.faa.70gik.\n"+
		"two:$5$abcdefgh$ijtOJ//yvc/9bq1g0llFn9dB688BwBDRD90DlKKSKE1\n"+
		"five:$6$abcdefgh$KQeXafAQAaOoKTevphVU215RvJdgzyfASRasIOuh12hO8u0r1bGW92ZnTmC9IjsiQ8VPiTXBiZF49dFL1U4wX/\n"+
		"rounds:$6$rounds=1000$abcdefgh$XqwJcW6OI747PCzoKGoK/1tWSlKoh2vkjEp0I.CpQYUGXuxtpSzAi0rXpF1oWR/3/HfvxKLb7xwD0vymBsSv8/\n"+
		"forever:$6$rounds=999999999$abcdefgh$x\nempty:$6$\n")
	digests := write("digest", "ann:lab:"+digest("ann:lab:pw", "md5")+"\nann:other:x\n")
	for _, c := range []struct {
		conf, name, password string
		want                 bool
	}{
		{plain, "dean", "goneFishing", true},
		{plain, "dean", "gonefishing", false},
		{plain, "gene", "OceanMan", true},
		{plain, "gene", "second", false},
		{plain, "late", "x", false}, // after a malformed line
		{plain, "nobody", "", false},
		{legacy + "\n^hashtype: md5\n^username_field: 2\n^password_field: 3\n^field_separator: '|'", "mike", "pw", true},
		{legacy + "\n^hashtype: md5\n^username_field: 2\n^password_field: 3\n^field_separator: '|'", "mike", digest("pw", "md5"), false},
		{ht + "\n^filetype: htpasswd", "ann", "password", true},
		{ht + "\n^filetype: htpasswd", "ann", "Password", false},
		{ht + "\n^filetype: htpasswd", "bob", "password", true},
		{ht + "\n^filetype: htpasswd", "bob", "password1", false},
		{ht + "\n^filetype: htpasswd", "long", "ThisIsALongerPasswordThan16Bytes", true},
		{ht + "\n^filetype: htpasswd", "old", "abc", false},
		{ht + "\n^filetype: htpasswd", "bea", "bpw", true}, // htpasswd -nbB -C 4
		{ht + "\n^filetype: htpasswd", "bea", "bpv", false},
		{ht + "\n^filetype: htpasswd", "slow", "bpw", false},
		{ht + "\n^filetype: htpasswd", "two", "pw", true},
		{ht + "\n^filetype: htpasswd", "two", "pv", false},
		{ht + "\n^filetype: htpasswd", "five", "pw", true},
		{ht + "\n^filetype: htpasswd", "five", "", false},
		{ht + "\n^filetype: htpasswd", "rounds", "pw", true},
		{ht + "\n^filetype: htpasswd", "forever", "pw", false},
		{ht + "\n^filetype: htpasswd", "empty", "", false},
		{digests + "\n^filetype: htdigest\n^realm: lab", "ann", "pw", true},
		{digests + "\n^filetype: htdigest\n^realm: other", "ann", "pw", false},
	} {
		s := must(t, Options{External: value.DictOf("file", external(t, "^filename: "+c.conf+"\n'*': [test.ping]"))})
		_, err := s.Authenticate(t.Context(), Credentials{"file", c.name, c.password, nil})
		if (err == nil) != c.want {
			t.Errorf("%s, %s: %v", c.conf, c.name, err)
		}
	}
	for _, conf := range []string{"{}", "{^filename: x, ^filetype: y}", "{^filename: x, ^hashtype: y}", "{^filename: x, ^filetype: htdigest}",
		"{^filename: x, ^username_field: 0}", "{^filename: x, ^password_field: a}", "{^filename: x, ^field_separator: ''}"} {
		if _, err := newFile(external(t, conf), nil); salt.KindOf(err) != salt.Invalid {
			t.Errorf("%s: %v", conf, err)
		}
	}

	// A file that is missing is reported, and used as soon as it is there.
	late := filepath.Join(dir, "late")
	s, errs := service(t, Options{External: value.DictOf("file", external(t, "^filename: "+late+"\n'*': [test.ping]"))})
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "cannot read the file of users") {
		t.Errorf("a file that is missing: %v", errs)
	}
	if err := os.WriteFile(late, []byte("ann:pw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Authenticate(t.Context(), Credentials{"file", "ann", "pw", nil}); err != nil {
		t.Errorf("a file that came later: %v", err)
	}
	conf := "^filename: " + late + "\n^filtype: htpasswd\n'*': [test.ping]"
	_, errs = service(t, Options{External: value.DictOf("file", external(t, conf))})
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "^filtype has no effect") {
		t.Errorf("a misspelt setting: %v", errs)
	}
}

func TestREST(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		r.ParseForm()
		switch {
		case r.Method != http.MethodPost || r.PostForm.Get("password") != "p&w":
			w.WriteHeader(http.StatusForbidden)
		case r.PostForm.Get("username") == "ann":
			io.WriteString(w, `["test.ping", {"web*": ["pkg.*"]}]`)
		case r.PostForm.Get("username") == "bad":
			io.WriteString(w, `{"a": 1}`)
		case r.PostForm.Get("username") == "moved":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}
	}))
	defer server.Close()
	s := must(t, Options{External: external(t, "rest: {^url: '"+server.URL+"', ann: ['@jobs'], '*': [any.any]}")})
	for _, c := range []struct{ name, password, rights string }{
		{"ann", "p&w", "['@jobs', 'test.ping', {'web*': ['pkg.*']}]"},
		{"bob", "p&w", "['any.any']"},
		{"ann", "x", ""}, {"bad", "p&w", ""}, {"moved", "p&w", ""},
	} {
		u, err := s.Authenticate(t.Context(), Credentials{"rest", c.name, c.password, nil})
		if err != nil {
			if c.rights != "" {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if got := value.Repr(&value.List{Items: s.Rights(u)}); got != c.rights {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	// A token stores the permissions, because a request to the server needs the password.
	tok, err := s.NewToken(t.Context(), Credentials{"rest", "ann", "p&w", nil}, 0)
	if err != nil {
		t.Fatal(err)
	}
	before := asked
	u, err := s.ByToken(tok.Str("token"))
	if err != nil || value.Repr(&value.List{Items: s.Rights(u)}) != "['@jobs', 'test.ping', {'web*': ['pkg.*']}]" || asked != before {
		t.Errorf("%v, %v, asked %d times", u, err, asked-before)
	}
}

func TestPKI(t *testing.T) {
	type pair struct {
		cert *x509.Certificate
		key  *ecdsa.PrivateKey
		pem  string
	}
	issue := func(name string, by *pair, until time.Time) *pair {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour * 48), NotAfter: until,
			IsCA: by == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
		if by == nil {
			by = &pair{cert: c, key: key}
		}
		der, err := x509.CreateCertificate(rand.Reader, c, by.cert, &key.PublicKey, by.key)
		if err != nil {
			t.Fatal(err)
		}
		parsed, _ := x509.ParseCertificate(der)
		return &pair{parsed, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
	}
	later := time.Now().Add(48 * time.Hour)
	ca, foreign := issue("ca", nil, later), issue("ca", nil, later)
	path := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(path, []byte(ca.pem), 0o600); err != nil {
		t.Fatal(err)
	}
	s := must(t, Options{External: external(t, "pki: {ca_file: "+path+", ann: [test.ping]}")})
	ann := issue("ann", ca, later).pem
	for what, c := range map[string]struct {
		name, cert string
		want       bool
	}{
		"right":             {"ann", ann, true},
		"of another":        {"bob", ann, false},
		"foreign authority": {"ann", issue("ann", foreign, later).pem, false},
		"over":              {"ann", issue("ann", ca, time.Now().Add(-time.Hour)).pem, false},
		"no certificate":    {"ann", "x", false},
		"a broken one":      {"ann", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", false},
		"the authority's":   {"ca_file", ca.pem, false},
	} {
		if _, err := s.Authenticate(t.Context(), Credentials{"pki", c.name, c.cert, nil}); (err == nil) != c.want {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// helper writes a substitute for brine-pam.
func helper(t *testing.T, script string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "helper")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPAM(t *testing.T) {
	path := helper(t, `[ "$(tr '\000' '|')" = 'svc|root|rightword|' ]`, 0o755)
	etc := filepath.Join(t.TempDir(), "etc")
	if err := os.Mkdir(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"passwd": "root:x:0:0::/root:/bin/sh\n", "group": "root:x:0:\nops:x:7:daemon,root\n"} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := must(t, Options{PAMService: "svc", PAMHelper: path, External: external(t, "pam: {root: [a.b], ops%: [c.d], other%: [e.f]}")})
	s.used["pam"].(*pam).machine = &host.Machine{Root: filepath.Dir(etc)}
	u, err := s.Authenticate(t.Context(), Credentials{"pam", "root", "rightword", nil})
	if err != nil {
		t.Fatal(err)
	}
	if got := value.Repr(&value.List{Items: s.Rights(u)}); got != "['a.b', 'c.d']" {
		t.Errorf("%s, groups %v", got, u.Groups)
	}
	for _, c := range []Credentials{{"pam", "root", "wrong", nil}, {"pam", "daemon", "rightword", nil}, {"pam", "root", "rightword\x00", nil},
		{"pam", "root\x00rightword", "", nil}} {
		if _, err := s.Authenticate(t.Context(), c); err == nil {
			t.Errorf("%q was accepted", c.Name)
		}
	}
	for what, o := range map[string]Options{
		"no program":          {PAMService: "svc", PAMHelper: "/none"},
		"open to others":      {PAMService: "svc", PAMHelper: helper(t, "exit 0", 0o777)},
		"a path as a service": {PAMService: "../x", PAMHelper: path},
	} {
		o.External = external(t, "pam: {root: [a.b]}")
		s, errs := service(t, o)
		if _, err := s.Authenticate(t.Context(), Credentials{"pam", "root", "rightword", nil}); err == nil || len(errs) != 1 {
			t.Errorf("%s: %v, %v", what, errs, err)
		}
	}
	broken := must(t, Options{PAMService: "svc", PAMHelper: helper(t, "exit 2", 0o755), External: external(t, "pam: {root: [a.b]}")})
	if _, err := broken.Authenticate(t.Context(), Credentials{"pam", "root", "x", nil}); err == nil {
		t.Error("a failing helper accepts a user")
	}
}

// TestPAMHelperOfPackage checks that the helper of the package is found if none is beside the program.
func TestPAMHelperOfPackage(t *testing.T) {
	usr := t.TempDir()
	bin, beside, packaged := filepath.Join(usr, "bin"), filepath.Join(usr, "bin", pamHelper), filepath.Join(usr, "lib", "brine", pamHelper)
	for _, c := range []struct{ put, want string }{{"", beside}, {packaged, packaged}, {beside, beside}} {
		if c.put != "" {
			if err := os.MkdirAll(filepath.Dir(c.put), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(c.put, nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if got := installedHelper(bin); got != c.want {
			t.Errorf("after %q: %s instead of %s", c.put, got, c.want)
		}
	}
}

// pamProgram builds the real program.
func pamProgram(t *testing.T) (path string) {
	t.Helper()
	tools.Slow(t) // cgo compiles half of the standard library a second time
	tools.Need(t, "gcc", "gcc")
	if libs, _ := filepath.Glob("/lib/*/libpam.so.0"); len(libs) == 0 {
		tools.Missing(t, "libpam0g")
	}
	path = filepath.Join(t.TempDir(), pamHelper)
	build := exec.Command("go", "build", "-tags", "pam", "-o", path, "brine/cmd/brine-pam")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// pamStub replaces libpam. Like pam_unix with the option nullok, it accepts any
// password for an account with an empty one, unless the flag forbids it, and
// reports the account "expired" as expired.
const pamStub = `
#include <string.h>
static const char *user;
int pam_start(const char *service, const char *name, const void *conv, void **h) { user = name; *h = &user; return 0; }
int pam_authenticate(void *h, int flags) { return !strcmp(user, "empty") && flags & 1 ? 7 : 0; }
int pam_acct_mgmt(void *h, int flags) { return !strcmp(user, "expired") ? 13 : 0; }
int pam_end(void *h, int status) { return 0; }
`

// TestPAMFlags checks that the real program makes PAM reject empty passwords, and that it checks
// the validity of the account.
func TestPAMFlags(t *testing.T) {
	path := pamProgram(t)
	lib := filepath.Join(t.TempDir(), "stub.so")
	compile := exec.Command("gcc", "-shared", "-fPIC", "-o", lib, "-x", "c", "-")
	compile.Stdin = strings.NewReader(pamStub)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, want := range map[string]int{"good": 0, "empty": 1, "expired": 1} {
		cmd := exec.Command(path)
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib)
		cmd.Stdin = strings.NewReader("login\x00" + name + "\x00x\x00")
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want || len(out) > 0 {
			t.Errorf("%s: %d %s", name, code, out)
		}
	}
}

// The real program rejects a wrong password and reports malformed requests.
func TestPAMProgram(t *testing.T) {
	path := pamProgram(t)
	for in, want := range map[string]int{"login\x00no such user\x00x\x00": 1, "": 2, "login\x00root\x00x": 2, "../x\x00root\x00x\x00": 2,
		"a\x00b\x00c\x00d\x00": 2} {
		cmd := exec.Command(path)
		cmd.Stdin = strings.NewReader(in)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want || len(out) > 0 {
			t.Errorf("%q: %d %s", in, code, out)
		}
	}
}

func TestTokens(t *testing.T) {
	s := must(t, Options{SharedSecret: "x", KeepACL: true, External: external(t, "{sharedsecret: {ann: [a.b]}}"),
		ExpireOverride: external(t, "{sharedsecret: [ann]}")})
	d, err := s.NewToken(t.Context(), Credentials{"sharedsecret", "ann", "x", nil}, 0)
	if err != nil {
		t.Fatal(err)
	}
	token := d.Str("token")
	if keys := fmt.Sprint(d.Keys()); keys != "[start expire name eauth auth_list token]" || !ValidToken(token) || len(token) != tokenLen {
		t.Errorf("%s %d", keys, len(token))
	}
	if good := d.At("expire").(float64) - d.At("start").(float64); good != 3600 {
		t.Errorf("valid for %v s", good)
	}
	path := filepath.Join(s.tokens.dir, token)
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	if fi, err := os.Stat(s.tokens.dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	if got := s.Token(token); !value.Equal(got, d) {
		t.Errorf("%s, stored %s", value.Repr(got), value.Repr(d))
	}
	u, err := s.ByToken(token)
	if err != nil || u.Name != "ann" || u.System != "sharedsecret" {
		t.Errorf("%v, %v", u, err)
	}
	for expire, want := range map[float64]float64{60: 60, -5: 3600} {
		d, err := s.NewToken(t.Context(), Credentials{"sharedsecret", "ann", "x", nil}, expire)
		if err != nil || d.At("expire").(float64)-d.At("start").(float64) != want {
			t.Errorf("expire %v: %s, %v", expire, value.Repr(d), err)
		}
	}
	// Other users may not choose the expiry.
	if d, _ := s.NewToken(t.Context(), Credentials{"sharedsecret", "bob", "x", nil}, 1e9); d.At("expire").(float64)-d.At("start").(float64) != 3600 {
		t.Error(value.Repr(d))
	}
	if err := s.tokens.Remove(token); err != nil || s.Token(token) != nil {
		t.Errorf("removed: %v", err)
	}
}

// TestTokensOutliveClock: a clock that is days ahead for a moment refuses tokens, but removes none.
func TestTokensOutliveClock(t *testing.T) {
	s := must(t, Options{SharedSecret: "x", TokenExpire: time.Hour, External: external(t, "{sharedsecret: {ann: [a.b]}}")})
	d, err := s.NewToken(t.Context(), Credentials{"sharedsecret", "ann", "x", nil}, 0)
	if err != nil {
		t.Fatal(err)
	}
	ahead := time.Now().Add(72 * time.Hour)
	if got, err := s.tokens.Get(d.Str("token"), ahead); got != nil || err != nil {
		t.Errorf("with a clock that is ahead: %v, %v", got, err)
	}
	if err := s.tokens.Sweep(ahead); err != nil {
		t.Error(err)
	}
	if s.Token(d.Str("token")) == nil {
		t.Error("the token is not valid any more with the right clock")
	}
	s.tokens.early = func() time.Time { return ahead } // believed after an hour
	if err := s.tokens.Sweep(ahead); err != nil || s.Token(d.Str("token")) != nil {
		t.Errorf("an expired token is not removed: %v", err)
	}
}

func TestBadTokens(t *testing.T) {
	s := must(t, Options{SharedSecret: "x", External: external(t, "{sharedsecret: {ann: [a.b]}}")})
	put := func(name string, d *value.Dict) string {
		b, err := msgpack.Marshal(d, msgpack.Wire)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.tokens.dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	hex := func(c string) string { return strings.Repeat(c, 64) }
	soon := float64(time.Now().Add(time.Hour).Unix())
	if _, err := s.ByToken(put(hex("0"), value.DictOf("name", "ann", "eauth", "sharedsecret", "expire", soon))); err != nil {
		t.Fatal(err) // a valid token, so that the others fail for their own reason
	}
	for what, token := range map[string]string{
		"over":                put(hex("1"), value.DictOf("name", "ann", "eauth", "sharedsecret", "expire", float64(time.Now().Unix()-1))),
		"says nothing of it":  put(hex("2"), value.DictOf("name", "ann", "eauth", "sharedsecret")),
		"a text for the time": put(hex("3"), value.DictOf("name", "ann", "eauth", "sharedsecret", "expire", "never")),
		"of a former system":  put(hex("4"), value.DictOf("name", "ann", "eauth", "pam", "expire", soon)),
		"unknown":             hex("5"),
		"not hexadecimal":     put("../tokens/"+hex("0"), value.DictOf("name", "ann", "eauth", "sharedsecret", "expire", soon)),
		"upper case":          put(hex("A"), value.DictOf("name", "ann", "eauth", "sharedsecret", "expire", soon)),
		"empty":               "",
		"short":               put("abcd", value.DictOf("name", "ann", "eauth", "sharedsecret", "expire", soon)),
	} {
		if u, err := s.ByToken(token); err == nil {
			t.Errorf("%s: %v", what, u)
		}
	}
	for _, c := range []string{"1", "2", "3"} {
		if _, err := os.Stat(filepath.Join(s.tokens.dir, hex(c))); err == nil {
			t.Errorf("the token %s... is not removed", c)
		}
	}
	os.WriteFile(filepath.Join(s.tokens.dir, hex("6")), []byte{0xc1}, 0o600)
	if err := s.tokens.Sweep(time.Now()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(s.tokens.dir, hex("6"))); err == nil {
		t.Error("a malformed token is not removed")
	}
	if _, err := s.ByToken(hex("0")); err != nil {
		t.Error("a valid token was removed too")
	}
}

func TestTokenDirectoryIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tokens")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o755)
	if _, err := OpenTokens(dir); err != nil {
		t.Fatal(err)
	}
	if fi, _ := os.Stat(dir); fi.Mode().Perm() != 0o700 {
		t.Errorf("mode %v", fi.Mode())
	}
}

// TestUnusableSystem checks that the log states why a configured system refuses.
func TestUnusableSystem(t *testing.T) {
	var said strings.Builder
	o := Options{External: value.DictOf("pam", value.DictOf("ann", value.ListOf("test.*"))), PAMHelper: filepath.Join(t.TempDir(), "none"),
		PAMService: "login"}
	s, faults := New(o, nil, nil, slog.New(slog.NewTextHandler(&said, nil)))
	if len(faults) != 1 || !strings.Contains(faults[0].Error(), "install the package brine-pam") {
		t.Fatal(faults)
	}
	if _, err := s.Authenticate(t.Context(), Credentials{System: "pam", Name: "ann", Password: "p"}); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	if !strings.Contains(said.String(), "the system is configured but unusable: the PAM helper is missing") {
		t.Errorf("log: %s", &said)
	}
}

// fewSlots is a system of a user's module with few concurrent checks.
type fewSlots struct{ asked, answer chan string }

func (fewSlots) Has(name string) bool   { return name == "own" }
func (f fewSlots) System(string) System { return f }
func (fewSlots) Slots() int             { return 4 }

func (f fewSlots) Authenticate(_ context.Context, c Credentials) (Vouched, error) {
	f.asked <- c.Name
	<-f.answer
	return Vouched{Entries: []any{"test.ping"}, Only: true}, nil
}

// TestSlotsOfModules checks that one name gets half of the slots of a module's system, and that
// checks waiting for them do not delay other systems. Permissions granted by the module are stored
// in the token.
func TestSlotsOfModules(t *testing.T) {
	f := fewSlots{make(chan string, 100), make(chan string)}
	tokens, err := OpenTokens(filepath.Join(t.TempDir(), "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	s, errs := New(Options{SharedSecret: "x", TokenExpire: time.Hour, External: external(t, "{own: {ann: [.*]}, sharedsecret: {bob: [.*]}}")}, f, tokens, quiet())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	const many = 100 // more than all systems together may check
	got := make(chan *User, many+1)
	login := func(name string) {
		u, err := s.Authenticate(context.Background(), Credentials{System: "own", Name: name, Password: "p"})
		if err != nil {
			t.Error(err)
		}
		got <- u
	}
	for range many {
		go login("ann")
	}
	for range 2 {
		if name := <-f.asked; name != "ann" {
			t.Fatal(name)
		}
	}
	go login("eve")
	if name := <-f.asked; name != "eve" {
		t.Fatalf("the third check is one of %s", name)
	}
	if _, err := s.Authenticate(t.Context(), Credentials{System: "sharedsecret", Name: "bob", Password: "x"}); err != nil {
		t.Errorf("another system: %v", err)
	}
	close(f.answer)
	for range many + 1 {
		if u := <-got; value.Repr(&value.List{Items: s.Rights(u)}) != "['test.ping']" {
			t.Errorf("%s may %v", u.Name, s.Rights(u))
		}
	}
	tok, err := s.NewToken(t.Context(), Credentials{System: "own", Name: "ann", Password: "p"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := s.ByToken(tok.Str("token")); err != nil || len(s.Rights(u)) != 1 {
		t.Errorf("by a token: %v, %v", u, err)
	}
}
