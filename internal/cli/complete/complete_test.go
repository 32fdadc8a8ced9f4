package complete_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/cli"
	"brine/internal/cli/frame"
)

// programEnv makes the test binary run as the program brine.
const programEnv = "BRINE_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		os.Exit(cli.Main(context.Background(), frame.OSEnv(), cli.Applets(), os.Args))
	}
	os.Exit(m.Run())
}

// newMaster returns a configuration with keys: alpha and beta accepted, gamma
// pending, delta denied, epsilon rejected.
func newMaster(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("master", "pki_dir: "+dir+"/pki\ncachedir: "+dir+"/cache\nnodegroups: {web: 'L@alpha', data: 'L@beta'}\n")
	for _, key := range []string{"minions/alpha", "minions/beta.x-y", "minions/.brine-tmp-1", "minions/bad\nid", "minions_pre/gamma", "minions_denied/delta",
		"minions_rejected/epsilon"} {
		write("pki/"+key, "key")
	}
	return dir
}

func answers(t *testing.T, dir, shell string, words ...string) []string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := &frame.Env{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, IsTerminal: func(any) bool { return false },
		Getenv: func(k string) string { return map[string]string{"SALT_CONFIG_DIR": dir}[k] }}
	if code := cli.Main(t.Context(), env, cli.Applets(), append([]string{"brine", "__complete", shell}, words...)); code != 0 || stderr.Len() > 0 {
		t.Fatalf("%q: code %d, %s", words, code, &stderr)
	}
	var out []string
	for l := range strings.Lines(stdout.String()) {
		w, _, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "\t")
		out = append(out, w)
	}
	return out
}

func TestCandidates(t *testing.T) {
	dir := newMaster(t)
	for _, c := range []struct {
		words string // with | between
		want  string // all candidates, or some of them with "..." at the end
	}{
		{"salt|", "alpha beta.x-y"},
		{"salt|al", "alpha"},
		{"salt|-v|--static|-t|5|al", "alpha"},
		{"salt|-vst5|al", "alpha"},
		{"salt|-c|" + dir + "|al", "alpha"},
		{"salt|-c|/nonexistent|al", ""},
		{"salt|--config-dir=/nonexistent|al", ""},
		{"salt|-L|alpha,", "alpha,beta.x-y"},
		{"salt|--list|b", "beta.x-y"},
		{"salt|-N|", "data web"},
		{"salt|-C|G@os:Debian and ", "G@os:Debian and N@data G@os:Debian and N@web G@os:Debian and alpha G@os:Debian and beta.x-y ..."},
		{"salt|-C|not N@w", "not N@web"},
		{"salt|-G|os", ""},
		{"salt|-E|al", ""},
		{"salt|*|test.pi", "test.ping"},
		{"salt|*|test.ping,test.ech", "test.ping,test.echo"},
		{"salt|*|cmd.run|cw", "cwd="},
		{"salt|*|cmd.run|env=", ""},
		{"salt|*|cmd.run|hide_output=", "hide_output=False hide_output=True ..."},
		{"salt|*|cmd.run|/e", ":files"},
		{"salt|*|no.such|x", ":files"},
		{"salt|--out|js", "json"},
		{"salt|--out=js", "--out=json"},
		{"salt|--output=js", "--output=json"},
		{"salt|--log-level=war", "--log-level=warning"},
		{"salt|-l|war", "warning"},
		{"salt|--state-output=mix", "--state-output=mixed --state-output=mixed_id"},
		{"salt|--state-verbose|", "False True ..."},
		{"salt|--log-file|x", ":files"},
		{"salt|-c|x", ":dirs"},
		{"salt|--prev", "--preview-target"},
		{"salt|--no-colou", "--no-colour"},
		{"salt|--nosuch|al", "alpha"},
		{"salt|--|-x", ""},
		{"salt|--|al", "alpha"},
		{"salt-key|-a|", "delta epsilon gamma"},
		{"salt-key|-d|g", "gamma"},
		{"salt-key|--delete=g", "--delete=gamma"},
		{"salt-key|-f|alpha,g", "alpha,gamma"},
		{"salt-key|-r|", "alpha beta.x-y gamma"},
		{"salt-key|-l|un", "un unaccepted"},
		{"salt-key|x", ""},
		{"salt-call|test.ver", "test.version test.versions test.versions_information test.versions_report"},
		{"salt-call|--local|test.echo|t", "text="},
		{"salt-run|manage.u", "manage.up"},
		{"salt-run|jobs.lookup_jid|j", "jid="},
		{"salt-cp|al", "alpha"},
		{"salt-cp|-C|al", "alpha"},
		{"salt-cp|alpha|x", ":files"},
		{"salt-cp|--chu", "--chunked"},
		{"salt-master|--pid-f", "--pid-file"},
		{"salt-master|--disable", "--disable-keepalive"},
		{"brine|salt-k", "salt-key"},
		{"brine|key|-l|d", "den denied"},
		{"brine|completion|", "bash fish zsh ..."},
		{"brine|man|salt-k", "salt-key"},
		{"brine|__c", ""},
		{"brine|nosuch|x", ""},
		{"/usr/bin/salt|al", "alpha"},
		{"ls|al", ""},
		{"salt", ""},
	} {
		got := answers(t, dir, "zsh", strings.Split(c.words, "|")...)
		want := c.want
		if rest, ok := strings.CutSuffix(want, " ..."); ok { // any order
			want = rest
			slices.Sort(got)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", c.words, got, want)
		}
	}
}

// TestBashParts: bash also splits words at = and :, and completes the last part.
func TestBashParts(t *testing.T) {
	dir := newMaster(t)
	for _, c := range []struct{ line, part, want string }{
		{"salt al", "al", "alpha"},
		{"salt 'al", "'al", "alpha"},
		{`salt "al`, `"al`, "alpha"},
		{"salt --out=js", "js", "json"},
		{"salt --out=", "=", "nested"},
		{"salt --out=", "", "nested"},
		{"salt -C 'not al", "'not al", "not alpha"},
		{"salt -C 'N@web and al", "'N@web and al", "N@web and alpha"},
		{"salt -L alpha,be", "alpha,be", "alpha,beta.x-y"},
		{`salt al\pha te`, "te", "test.ping"},
		{"salt '*' cmd.run hide_output=T", "T", "True"},
	} {
		if got := answers(t, dir, "bash", c.line, c.part); !slices.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.line, got, c.want)
		}
	}
}

// TestEveryOption: Describe returns every option of a program.
func TestEveryOption(t *testing.T) {
	for _, a := range cli.Applets() {
		if a.Hidden {
			continue
		}
		d := a.Describe()
		if d.Name != a.Name || len(d.Groups) == 0 {
			t.Errorf("%s is described as %q", a.Name, d.Name)
		}
		known := answers(t, "", "fish", "brine", a.Name, "--")
		for _, g := range d.Groups {
			for _, o := range g.Options {
				if o.Hidden == slices.Contains(known, "--"+o.Long[0]) {
					t.Errorf("%s --%s: hidden %v, completed to %q", a.Name, o.Long[0], o.Hidden, known)
				}
			}
		}
	}
}

// BenchmarkMinions completes one id among 5,000.
func BenchmarkMinions(b *testing.B) {
	dir := b.TempDir()
	if err := os.MkdirAll(dir+"/pki/minions", 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(dir+"/master", []byte("pki_dir: "+dir+"/pki\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	for i := range 5000 {
		if err := os.WriteFile(fmt.Sprintf("%s/pki/minions/web%04d", dir, i), []byte("key"), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	applets := cli.Applets()
	for b.Loop() {
		var out bytes.Buffer
		env := &frame.Env{Stdout: &out, Stderr: &out, Getenv: func(k string) string { return map[string]string{"SALT_CONFIG_DIR": dir}[k] }}
		cli.Main(b.Context(), env, applets, []string{"brine", "__complete", "bash", "salt web123", "web123"})
		if strings.Count(out.String(), "\n") != 10 {
			b.Fatal(out.String())
		}
	}
}
