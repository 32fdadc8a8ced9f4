package call

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"brine/internal/call/client/clienttest"
	"brine/internal/cli/frame"
)

const recordings = "../../../testdata/golden/cli"

// newMinion returns the directory of a new minion configuration.
func newMinion(t *testing.T, more string) string {
	t.Helper()
	dir := t.TempDir()
	text := "root_dir: " + dir + "\nid: alpha\nenable_fqdns_grains: false\nmaster: 127.0.0.1\nmaster_port: 1\ngrains: {role: web}\n" + more
	if err := os.WriteFile(filepath.Join(dir, "minion"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestFilesOfItsOwn: a masterless minion needs no master on the command line.
func TestFilesOfItsOwn(t *testing.T) {
	dir := newMinion(t, "file_client: local\n")
	if got := runCall(t.Context(), dir, "", "test.ping"); got != (result{0, "local:\n    True\n", ""}) {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "etc")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory for keys was made: %v", err)
	}
	more := "file_client: local\nuse_master_when_local: true\nauth_timeout: 1\nauth_tries: 1\nmaster_tries: 1\n"
	if got := runCall(t.Context(), newMinion(t, more), "", "test.ping"); got.code != 1 || !strings.Contains(got.stderr, "Unable to sign_in to master") {
		t.Errorf("%+v", got)
	}
}

type result struct {
	code           int
	stdout, stderr string
}

func runCall(ctx context.Context, dir, stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	env := &frame.Env{
		Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr, IsTerminal: func(any) bool { return false },
		Getenv: func(name string) string { return map[string]string{"SALT_CONFIG_DIR": dir}[name] },
	}
	code := run(ctx, env, args)
	return result{code, stdout.String(), stderr.String()}
}

// docs matches the documentation of a function, which has Brine's own text.
var docs = regexp.MustCompile(`(?s)^\n    .*\n    \n$`)

var (
	jidPattern = regexp.MustCompile(`20\d{18}`)
	logLine    = regexp.MustCompile(`(?m)^\[[A-Z]+ *\] .*\n`)
)

// TestRecordings compares the program with recordings of Salt's. Recordings that were made with a
// master are run without one; its pillar would be the only visible difference.
func TestRecordings(t *testing.T) {
	for _, c := range []struct {
		name string
		logs bool // log lines are not compared: their messages are Brine's own
	}{
		{"call_bad_args", false}, {"call_cmd", false}, {"call_cmd_exec_err", false}, {"call_color", false}, {"call_id", false},
		{"call_local", false}, {"call_metadata", false}, {"call_nvo", false}, {"call_progress_log", true}, {"call_retcode", true},
		{"call_test_ping", false}, {"call_unknown", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := clienttest.Read(t, recordings, c.name)
			if c.name == "call_cmd" { // the only recording with double quotes
				rec.Args = []string{"cmd.run", `printf 'a\nb\n'`}
			}
			got := runCall(t.Context(), newMinion(t, ""), rec.Stdin, append([]string{"--local"}, rec.Args...)...)
			mask := func(s string) string { return docs.ReplaceAllString(jidPattern.ReplaceAllString(s, "JID"), "DOC") }
			if c.logs {
				got.stderr, rec.Stderr = logLine.ReplaceAllString(got.stderr, ""), logLine.ReplaceAllString(rec.Stderr, "")
			}
			want := result{rec.Exit, mask(rec.Stdout), rec.Stderr}
			got.stdout = mask(got.stdout)
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// TestKeywordsOfTheCall: a function that accepts any keyword gets the same ones as in Salt.
func TestKeywordsOfTheCall(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{"", `{"local": {"args": ["a"], "kwargs": {"b": 1, "__pub_fun": "test.arg", "__pub_pid": N, "__pub_jid": "JID", "__pub_tgt": "salt-call"}}}`},
		{"--module-executors=direct_call",
			`{"local": {"args": ["a"], "kwargs": {"b": 1, "__pub_fun": "test.arg", "__pub_pid": N, "__pub_jid": "JID", "__pub_tgt": "salt-call"}}}`},
	} {
		args := []string{"--local", "--out=json", "--out-indent=-1", "test.arg", "a", "b=1"}
		if c.words != "" {
			args = append([]string{c.words}, args...)
		}
		got := runCall(t.Context(), newMinion(t, ""), "", args...)
		text := jidPattern.ReplaceAllString(strings.TrimSpace(got.stdout), "JID")
		text = regexp.MustCompile(`"__pub_pid": \d+`).ReplaceAllString(text, `"__pub_pid": N`)
		if got.code != 0 || text != c.want {
			t.Errorf("%q: %+v", c.words, got)
		}
	}
}

// TestException: for an exception in a function Salt prints a message and a traceback, Brine the
// last line of it.
func TestException(t *testing.T) {
	rec := clienttest.Read(t, recordings, "call_exception")
	got := runCall(t.Context(), newMinion(t, ""), "", append([]string{"--local"}, rec.Args...)...)
	if want := (result{rec.Exit, rec.Stdout, "The minion function caused an exception: Exception: Test Exception\n"}); got != want {
		t.Errorf("got %+v", got)
	}
}

func TestMasterDown(t *testing.T) {
	rec := clienttest.Read(t, recordings, "call_master_down")
	// Without -t it would take an hour.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	got := runCall(ctx, newMinion(t, "auth_timeout: 3600\n"), "", append([]string{"-t", "1"}, rec.Args...)...)
	first, rest, _ := strings.Cut(got.stderr, "\n")
	if got.code != rec.Exit || got.stdout != rec.Stdout || first+"\n" != rec.Stderr || !strings.Contains(rest, "127.0.0.9") {
		t.Errorf("got %+v", got)
	}
}

func TestNoArguments(t *testing.T) {
	rec := clienttest.Read(t, recordings, "call_no_args")
	got := runCall(t.Context(), newMinion(t, ""), "")
	first, _, _ := strings.Cut(rec.Stdout, "\n")
	if got.code != rec.Exit || got.stderr != rec.Stderr || !strings.HasPrefix(got.stdout, first+"\n") {
		t.Errorf("got %+v", got)
	}
}

func TestGrains(t *testing.T) {
	rec := clienttest.Read(t, recordings, "call_grains")
	got := runCall(t.Context(), newMinion(t, ""), "", append([]string{"--local"}, rec.Args...)...)
	if got.code != rec.Exit || got.stderr != "" {
		t.Fatalf("got %+v", got)
	}
	keys := func(text string) map[string]any {
		var all struct{ Local map[string]any }
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
		return all.Local
	}
	ours := keys(got.stdout)
	for _, name := range []string{"id", "os", "os_family", "kernel", "osarch", "num_cpus", "mem_total", "ipv4", "saltversion", "server_id"} {
		if _, ok := keys(rec.Stdout)[name]; !ok {
			t.Errorf("the recording has no grain %s", name)
		}
		if _, ok := ours[name]; !ok {
			t.Errorf("we have no grain %s", name)
		}
	}
}

// TestOptions: every option has an effect, or is refused.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		args   string
		code   int
		stdout string // pattern
		stderr string
	}{
		{"--local -d test.ping", 0, `^test.ping:\n\n    Say .*`, `^$`},
		{"--local -d test.ping test.echo", 64, `^$`, `error: You can only get documentation for one method at one time\n$`},
		{"--local -g test.ping --out=quiet", 0, `^$`, `^WARNING: --grains shows the grains; 'test.ping' is not run\n$`},
		{"--local test", 1, `(?s)^local:\n    ----------\n    test:\n        'test' is not available.\n    test.arg:\n.*test.version:`, `^$`},
		{"--local test.pin", 1, `(?s)^local:\n    ----------\n    test.pin:\n        'test.pin' is not available.\n    test.ping:\n`, `^$`},
		{"--local test.raise_exception salt.exceptions.CommandNotFoundError broken", 1, `^$`,
			`^Command required for 'test.raise_exception' not found: broken\n$`},
		{"--local test.raise_exception salt.exceptions.CheckError broken", 1, `^$`, `^Error running 'test.raise_exception': broken\n$`},
		{"--local test.raise_exception salt.exceptions.SaltInvocationError broken", 1, `^$`, `^ERROR executing 'test.raise_exception': broken\n$`},
		{"--local test.raise_exception salt.exceptions.SaltClientTimeout broken", 1, `^$`,
			`^The minion function caused an exception: salt.exceptions.SaltClientTimeout: broken\n$`},
		{"--local test.raise_exception ZeroDivisionError broken", 1, `^$`, `^The minion function caused an exception: ZeroDivisionError: broken\n$`},
		{"--local test.raise_exception CommandNotFoundError broken", 0, `False`, `No such exception: CommandNotFoundError`},
		{"--local -d test", 0, `test.arg:\n(.*\n)*test.version:`, `^$`},
		{"-g --out=json --id=other", 0, `"id": "other"`, `^$`},
		{"--local grains.get role --out=txt", 0, `^local: web\n$`, `^$`},
		{"--local --retcode-passthrough test.retcode 42", 42, `True`, ``},
		{"--local test.retcode 42", 1, `True`, ``},
		{"--local test.false", 0, `False`, `^$`},
		{"--local --strict-exit test.false", 1, `False`, `^$`},
		{"--local --strict-exit --retcode-passthrough test.false", 1, `False`, `^$`},
		{"--local --strict-exit test.ping", 0, `True`, `^$`},
		{"--local --no-parse=a test.kwarg a=1 b=1 --out=json --out-indent=-1", 0, `"a": "1".*"b": 1[,}]`, `^$`},
		{"--local --args-stdin", 0, `^local:\n    from stdin\n$`, `^$`},
		{"--local --out-file=OUT/o test.ping", 0, `^$`, `^$`},
		{"--local --no-return-event --skip-grains --refresh-grains-cache test.ping", 0, `True`, `^$`},
		{"--local --cachedir=OUT/c config.get cachedir", 0, `/c\n$`, `^$`},
		{"--local --file-root=/f config.get file_roots --out=json --out-indent=-1", 0, `\{"base": \["/f"\]\}`, `^$`},
		{"--local --pillar-root=/p config.get pillar_roots --out=json --out-indent=-1", 0, `\{"base": \["/p"\]\}`, `^$`},
		{"--local --set-metadata={a:1} --output-diff test.ping", 0, `True`, `^$`},
		{"--local --master=m1 config.get master", 0, `^local:\n    m1\n$|- m1`, `^$`},
		{"--local -l debug grains.get role", 0, `web`, `\[DEBUG   \]`},
		{"--local --module-executors=direct_call test.ping", 0, `True`, `^$`},
		{"--proxyid=p test.ping", 64, `^$`, `error: the option --proxyid of Salt is not supported: proxy minions are not supported\n$`},
		{"-m /x test.ping", 64, `^$`, `the option --module-dirs of Salt is not supported`},
		{"--local --module-executors=sudo test.ping", 1, `^$`, `Executor 'sudo' is not available`},
		{"--states-dir=/x test.ping", 64, `^$`, `the option --states-dir of Salt is not supported`},
		{"--local --return=nosuch,local test.ping", 0, `True`,
			`^cannot send the result to the returner nosuch: there is no returner "nosuch": etcd, .*, redis are known\n$`},
		{"--enable-profiling test.ping", 64, `^$`, `the option --enable-profiling of Salt`},
		{"--profiling-path=/x test.ping", 64, `^$`, `the option --profiling-path of Salt`},
		{"--out=nosuch --local test.ping", 0, `True`, `Invalid outputter nosuch`},
		{"--id=a/b --local test.ping", 1, `^$`, `id`},
	} {
		t.Run(c.args, func(t *testing.T) {
			dir := newMinion(t, "")
			args := strings.Fields(strings.ReplaceAll(c.args, "OUT", dir))
			got := runCall(t.Context(), dir, "test.echo\nfrom stdin\n", args...)
			if got.code != c.code || !regexp.MustCompile(c.stdout).MatchString(got.stdout) || !regexp.MustCompile(c.stderr).MatchString(got.stderr) {
				t.Errorf("got %+v", got)
			}
			if strings.Contains(c.args, "--out-file") {
				if b, err := os.ReadFile(dir + "/o"); string(b) != "local:\n    True\n" {
					t.Errorf("the file holds %q, %v", b, err)
				}
			}
		})
	}
}

// TestLogFile: if a configured log file cannot be opened, a warning is logged, subject to the log
// level.
func TestLogFile(t *testing.T) {
	dir := newMinion(t, "log_file: file:///dev/doesnotexist\n")
	got := runCall(t.Context(), dir, "", "--local", "test.ping")
	if want := `[WARNING ] cannot open the log file; continuing without it err="cannot log to file:///dev/doesnotexist: only paths of files are supported"` +
		"\n"; got.code != 0 || got.stderr != want {
		t.Errorf("got %+v, want %s", got, want)
	}
	if got := runCall(t.Context(), dir, "", "--local", "-l", "quiet", "test.ping"); got.code != 0 || got.stderr != "" {
		t.Errorf("-l quiet: %+v", got)
	}
}

func TestInterrupt(t *testing.T) {
	for args, code := range map[string]int{"test.sleep 60": 0, "--hard-crash test.sleep 60": 1, "--strict-exit test.sleep 60": 130} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		got := runCall(ctx, newMinion(t, ""), "", append([]string{"--local"}, strings.Fields(args)...)...)
		if want := (result{code, "", "\nExiting gracefully on Ctrl-c\n"}); got != want {
			t.Errorf("%s: got %+v", args, got)
		}
	}
}
