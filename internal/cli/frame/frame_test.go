package frame

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/base/log"
	"brine/internal/call/output"
	"brine/internal/py/value"
)

type options struct {
	Config
	Saltfile
	ArgsStdin
	Logging `group:"Logging Options" doc:"What is logged."`
	Output  `group:"Output Options"`

	List    string   `flag:"-l --list" arg:"ARG" doc:"List. Default: %default."`
	Static  bool     `flag:"-s --static" doc:"All at once."`
	Timeout int      `flag:"-t --timeout" default:"5" doc:"Seconds."`
	Wait    float64  `flag:"--batch-wait" doc:"Seconds."`
	Dirs    []string `flag:"-m --module-dirs" doc:"Directories."`
}

var command = Command{Name: "salt-test", Usage: "[options] THING", Doc: "Tries things."}

func testEnv(vars map[string]string, stdin string) (*Env, *bytes.Buffer, *bytes.Buffer) {
	var stdout, stderr bytes.Buffer
	return &Env{
		Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr,
		Getenv: func(k string) string { return vars[k] }, IsTerminal: func(any) bool { return false },
	}, &stdout, &stderr
}

func TestParse(t *testing.T) {
	t.Chdir(t.TempDir())
	env, _, stderr := testEnv(map[string]string{"SALT_CONFIG_DIR": "/from/env"}, "")
	var o options
	inv, code, ok := command.Parse(env, &o, []string{
		"web*", "-sl", "acc", "--output=json", "test.ping", "-t7", "--stati", "--batch-w", "1.5",
		"-m", "a", "--module-dirs=b", "--state-verbose=False", "--out-indent", "-1", "--", "-x"})
	if !ok {
		t.Fatalf("code %d: %s", code, stderr)
	}
	if o.List != "acc" || !o.Static || o.Out != "json" || o.Timeout != 7 || o.Wait != 1.5 || strings.Join(o.Dirs, " ") != "a b" ||
		o.StateVerbose == nil || *o.StateVerbose || *o.OutIndent != -1 || o.ConfigDir != "/from/env" || o.LogLevel != "" {
		t.Errorf("got %+v", o)
	}
	if got := strings.Join(inv.Args, " "); got != "web* test.ping -x" {
		t.Errorf("arguments %q", got)
	}
	want := value.DictOf("list", "acc", "static", true, "output", "json", "timeout", 7, "batch_wait", 1.5,
		"module_dirs", value.ListOf("a", "b"), "state_verbose", false, "output_indent", -1)
	if got := inv.Overrides(); !value.Equal(got, want) {
		t.Errorf("overrides %s, want %s", value.Repr(got), value.Repr(want))
	}
	if inv.Given("config_dir") || !inv.Given("timeout") {
		t.Error("Given confuses defaults with what was given")
	}
}

func TestUsageErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	for args, want := range map[string]string{
		"--nope":               "no such option: --nope",
		"--nope=3":             "no such option: --nope",
		"-x":                   "no such option: -x",
		"-sx":                  "no such option: -x",
		"--timeuot 3":          "no such option: --timeuot (did you mean --timeout?)",
		"--out-file-":          "",
		"--mod":                "--mod option requires 1 argument",
		"-t":                   "-t option requires 1 argument",
		"--list":               "--list option requires 1 argument",
		"-t x":                 "option -t: invalid integer value: 'x'",
		"-st x":                "option -t: invalid integer value: 'x'",
		"-tx":                  "option -t: invalid integer value: 'x'",
		"-t 5 --timeout x":     "option --timeout: invalid integer value: 'x'",
		"--timeout=9999999999": "option --timeout: invalid integer value: '9999999999'",
		"--batch-wait=x":       "option --batch-wait: invalid floating-point value: 'x'",
		"--static=yes":         "--static option does not take a value",
		"--log-level=loud": "option --log-level: invalid choice: 'loud' (choose from 'all', 'garbage', 'trace', 'debug', 'profile', " +
			"'info', 'warning', 'error', 'critical', 'quiet')",
		"--sta":                      "ambiguous option: --sta (--state-output, --state-verbose, --static?)",
		"--state-verbose=maybe":      "option --state-verbose: invalid boolean value: 'maybe' (choose from 'True', 'False')",
		"--saltfile=/nonexistent/sf": "'/nonexistent/sf' file does not exist",
	} {
		env, stdout, stderr := testEnv(nil, "")
		var o options
		_, code, ok := command.Parse(env, &o, strings.Fields(args))
		if want == "" {
			if !ok || !o.OutFileAppend {
				t.Errorf("%s: %s", args, stderr)
			}
			continue
		}
		text := "Usage: salt-test [options] THING\n\nsalt-test: error: " + want + "\n"
		if ok || code != ExitUsage || stderr.String() != text || stdout.Len() != 0 {
			t.Errorf("%s: code %d, ok %v, got %q, want %q", args, code, ok, stderr, text)
		}
	}
}

func TestHelpAndVersions(t *testing.T) {
	env, stdout, stderr := testEnv(nil, "")
	if _, code, ok := command.Parse(env, &options{}, []string{"--list", "x", "--help", "--nope"}); ok || code != 0 || stderr.Len() != 0 {
		t.Fatalf("code %d, stderr %q", code, stderr)
	}
	help := stdout.String()
	for _, want := range []string{
		"Usage: salt-test [options] THING\n\nTries things.\n\nOptions:\n  --version             Show the version",
		"  -l ARG, --list=ARG    List. Default: .\n",
		"  --log-level=LEVEL     Least level",
		"\nOutput Options:\n  --out=NAME, --output=NAME\n",
		"\nLogging Options:\n  What is logged.\n\n",
		"-t TIMEOUT, --timeout=TIMEOUT\n                        Seconds.\n",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("help lacks %q:\n%s", want, help)
		}
	}
	for line := range strings.Lines(help) {
		if len(line) > 81 {
			t.Errorf("line of %d columns: %q", len(line), line)
		}
	}
	env, stdout, _ = testEnv(nil, "")
	if _, code, ok := command.Parse(env, &options{}, []string{"-V"}); ok || code != 0 || !strings.HasPrefix(stdout.String(), "Salt Version:\n") {
		t.Errorf("-V: code %d, %q", code, stdout)
	}
	if !strings.HasPrefix(VersionLine("salt"), "salt 3007.10 (") {
		t.Errorf("version line %q", VersionLine("salt"))
	}
}

func TestArgsFromStdin(t *testing.T) {
	t.Chdir(t.TempDir())
	env, _, stderr := testEnv(nil, "--static\nbeta gamma\r\n-t\n9\n")
	var o options
	inv, _, ok := command.Parse(env, &o, []string{"--out=json", "--args-stdin", "alpha"})
	if !ok {
		t.Fatal(stderr)
	}
	if strings.Join(inv.Args, "|") != "alpha|beta gamma" || !o.Static || o.Timeout != 9 || o.Out != "json" {
		t.Errorf("arguments %q, options %+v", inv.Args, o)
	}
}

func TestSaltfile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	text := "salt-test:\n  timeout: 30\n  config_dir: here\n  output: yaml\n  static: true\n  module_dirs: [x, y]\n  extra_key: [1]\nsalt:\n  timeout: 1\n"
	if err := os.WriteFile(filepath.Join(dir, "Saltfile"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env, _, stderr := testEnv(nil, "")
	var o options
	inv, _, ok := command.Parse(env, &o, []string{"--out=json"})
	if !ok {
		t.Fatal(stderr)
	}
	if o.Timeout != 30 || o.ConfigDir != "here" || o.Out != "json" || !o.Static || len(o.Dirs) != 2 {
		t.Errorf("got %+v", o)
	}
	if !value.Equal(inv.Overrides().At("extra_key"), value.ListOf(1)) || !inv.Given("timeout") {
		t.Errorf("overrides %s", value.Repr(inv.Overrides()))
	}
	other := filepath.Join(dir, "bad")
	if err := os.WriteFile(other, []byte("salt-test: {timeout: soon}"), 0o600); err != nil {
		t.Fatal(err)
	}
	env, _, stderr = testEnv(map[string]string{"SALT_SALTFILE": other}, "")
	if _, code, ok := command.Parse(env, &options{}, nil); ok || code != ExitUsage ||
		!strings.Contains(stderr.String(), "timeout: invalid integer value: 'soon'") {
		t.Errorf("bad Saltfile: code %d, %q", code, stderr)
	}
}

func TestConfigDir(t *testing.T) {
	env, _, stderr := testEnv(map[string]string{"HOME": t.TempDir()}, "")
	c := Config{ConfigDir: "/nonexistent"}
	if got := c.Resolve(env); got != "/nonexistent" || stderr.String() != "WARNING: CONFIG '/nonexistent' directory does not exist.\n" {
		t.Errorf("got %q, %q", got, stderr)
	}
	stderr.Reset()
	c = Config{ConfigDir: "~"}
	if got := c.Resolve(env); got != env.Getenv("HOME") || stderr.Len() != 0 {
		t.Errorf("got %q, %q", got, stderr)
	}
}

func TestDisplay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	theme := filepath.Join(t.TempDir(), "theme")
	if err := os.WriteFile(theme, []byte("CYAN: '1;30'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	data := value.DictOf("a", true)
	const colored = "\x1b[0;36ma\x1b[0;0m:\n    \x1b[0;1;33mTrue\x1b[0;0m\n"
	for name, tc := range map[string]struct {
		o      Output
		config func(*output.Options)
		vars   map[string]string
		tty    bool
		want   string
	}{
		"pipe":           {want: "a:\n    True\n"},
		"terminal":       {tty: true, want: colored},
		"NO_COLOR":       {tty: true, vars: map[string]string{"NO_COLOR": "1"}, want: "a:\n    True\n"},
		"forced":         {o: Output{ForceColor: true}, vars: map[string]string{"NO_COLOR": "1"}, want: colored},
		"refused":        {o: Output{NoColor: true}, tty: true, want: "a:\n    True\n"},
		"configured on":  {config: func(o *output.Options) { o.Color = new(true) }, want: colored},
		"configured off": {config: func(o *output.Options) { o.Color = new(false) }, tty: true, want: "a:\n    True\n"},
		"theme": {o: Output{ForceColor: true}, config: func(o *output.Options) { o.ColorTheme = theme },
			want: strings.Replace(colored, "0;36", "1;30", 1)},
		"json":            {o: Output{Out: "json", OutIndent: new(-1)}, want: "{\"a\": true}\n"},
		"configured form": {config: func(o *output.Options) { o.Outputter = "raw" }, want: "{'a': True}\n"},
		"file":            {o: Output{OutFile: file}, tty: true, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			env, stdout, _ := testEnv(tc.vars, "")
			env.IsTerminal = func(any) bool { return tc.tty }
			var opts output.Options
			if err := field.Defaults(&opts); err != nil {
				t.Fatal(err)
			}
			if tc.config != nil {
				tc.config(&opts)
			}
			d, err := tc.o.Open(env, opts, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Show(data, "", output.Call{}); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if stdout.String() != tc.want {
				t.Errorf("got %q, want %q", stdout, tc.want)
			}
		})
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "a:\n    True\n" {
		t.Errorf("file holds %q, %v", text, err)
	}
	missing := filepath.Join(t.TempDir(), "no", "x")
	if _, err := (&Output{OutFile: missing}).Open(&Env{}, output.Options{}, nil); err == nil || !strings.HasPrefix(err.Error(), missing+": Access denied: ") {
		t.Errorf("got %v", err)
	}
}

func TestLogging(t *testing.T) {
	env, _, stderr := testEnv(nil, "")
	dir := t.TempDir() // a directory cannot be a log file
	l, err := (&Logging{LogLevel: "info"}).Open(env, log.Options{Level: "error", File: dir}, &Output{Out: "yaml"})
	if err != nil {
		t.Fatal(err)
	}
	l.Info("hello")
	if stderr.String() != "# [INFO    ] hello\n" {
		t.Errorf("got %q", stderr)
	}
	stderr.Reset()
	if _, err := (&Logging{LogFile: dir}).Open(env, log.Options{}, nil); err != nil ||
		!strings.HasPrefix(stderr.String(), "[WARNING ] cannot open the log file; continuing without it") {
		t.Errorf("%v, %q", err, stderr)
	}
	if _, err := (&Logging{}).Open(env, log.Options{Level: "loud"}, nil); err == nil {
		t.Error("level loud was taken")
	}
}

func TestReopenOnHangup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := log.Open(log.Options{File: path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ReopenOnHangup(t.Context(), l)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the log file was not opened again")
		}
	}
}

func TestDeclarations(t *testing.T) {
	for name, bad := range map[string]any{
		"twice": struct{ A, B string }{},
		"no long": struct {
			A string `flag:"-a"`
		}{},
		"no dash": struct {
			A string `flag:"a"`
		}{},
		"twice -a": struct {
			A string `flag:"-a --aa"`
			B string `flag:"-a --bb"`
		}{},
		"same": struct {
			A string `flag:"--aa"`
			B string `flag:"--bb --aa"`
		}{},
	} {
		func() {
			defer func() {
				if r := recover(); (r == nil) != (name == "twice") {
					t.Errorf("%s: recovered %v", name, r)
				}
			}()
			Options(bad)
		}()
	}
}

func TestStrict(t *testing.T) {
	if got := (StrictExit{}).Strict(ExitNoPerm); got != ExitOK {
		t.Errorf("not strict: %d", got)
	}
	if got := (StrictExit{StrictExit: true}).Strict(ExitNoPerm); got != ExitNoPerm {
		t.Errorf("strict: %d", got)
	}
}

// TestSubcommandHelp: the help of a program lists its subcommands. The help of a subcommand has its
// arguments, an example, and its options, but not those of other subcommands.
func TestSubcommandHelp(t *testing.T) {
	c := Command{Name: "brine x", Usage: "SUBCOMMAND", Doc: "Does things.", Subs: []Sub{
		{Name: "one", Args: "THING", Doc: "Does one thing. It is harmless.", Example: "brine x one a", Options: []string{"only-one"}},
		{Name: "two", Doc: "Does two things.", Options: []string{"only-two"}},
	}}
	type subOptions struct {
		One string `flag:"--only-one" arg:"A" doc:"For one."`
		Two string `flag:"--only-two" arg:"A" doc:"For two."`
		All string `flag:"--for-all" arg:"A" doc:"For all."`
	}
	for _, test := range []struct{ args, with, without []string }{
		{[]string{"--help"}, []string{"Usage: brine x SUBCOMMAND\n", "  one THING             Does one thing.\n",
			"  two                   Does two things.\n", "--only-one=A", "--only-two=A"},
			[]string{"harmless"}},
		{[]string{"one", "--help"}, []string{"Usage: brine x one THING [options]\n", "harmless", "Example:\n    brine x one a\n", "--only-one=A", "--for-all=A"},
			[]string{"--only-two"}},
		{[]string{"-h", "two"}, []string{"Usage: brine x two [options]\n", "--only-two=A", "--for-all=A"}, []string{"--only-one", "Example"}},
	} {
		env, stdout, _ := testEnv(nil, "")
		if _, code, ok := c.Parse(env, &subOptions{}, test.args); ok || code != ExitOK {
			t.Errorf("%v: %d", test.args, code)
		}
		for _, w := range test.with {
			if !strings.Contains(stdout.String(), w) {
				t.Errorf("%v: no %q in\n%s", test.args, w, stdout)
			}
		}
		for _, w := range test.without {
			if strings.Contains(stdout.String(), w) {
				t.Errorf("%v: %q in\n%s", test.args, w, stdout)
			}
		}
	}
}
