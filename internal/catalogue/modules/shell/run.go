package shell

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"brine/internal/base/log"
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

// maxOutput bounds the output of a command, in bytes. A master could not
// accept more in one return anyway.
const maxOutput = 256 << 20

// result is the outcome of a command.
type result struct {
	pid            int
	code           any // number, or nil if the command was not waited for
	stdout, stderr string
	failed         bool
}

// execute runs the command and sets the exit status of the job.
func (a *args) execute(ctx context.Context, c *fn.Call) (result, error) {
	a.adoptKeywords()
	if a.Bg {
		a.IgnoreRetcode = true
	}
	good, err := a.successes()
	if err != nil {
		return result{}, err
	}
	p, command, err := a.prepare(ctx, c)
	if err != nil {
		return result{}, err
	}
	level, silent := logLevel(a.OutputLoglevel)
	if !silent {
		c.Log.Info("executing command", "command", first(a.Cmd), "runas", a.Runas, "group", a.Group, "cwd", p.Dir)
	}
	if a.Bg {
		pid, err := proc.Start(p)
		if err != nil {
			return result{}, a.startFailed(err, command, p)
		}
		c.SetRetcode(0)
		return result{pid: pid}, nil
	}
	out, err := proc.Run(ctx, p)
	switch {
	case errors.Is(err, proc.ErrOutput):
		return result{}, fn.Errorf("the command wrote more than %d MiB and was killed; write that to a file instead", maxOutput>>20)
	case err != nil:
		return result{}, a.startFailed(err, command, p)
	case out.TimedOut:
		// As in Salt, this does not change the exit status of the job.
		text := fmt.Sprintf("%s : Timed out after %s seconds", command, value.Str(a.Timeout))
		return result{pid: out.PID, code: 1, stdout: text, failed: !a.IgnoreRetcode}, nil
	}
	r := result{pid: out.PID, stdout: a.text(out.Stdout), stderr: a.text(out.Stderr)}
	code := good.apply(out.Code, r)
	r.code, r.failed = code, code != 0 && !a.IgnoreRetcode
	if a.IgnoreRetcode {
		c.SetRetcode(0)
	} else {
		c.SetRetcode(code)
	}
	if !silent {
		logResult(ctx, c.Log, level, first(a.Cmd), r)
	}
	return r, nil
}

// adoptKeywords reads keywords that a function does not declare, but passes on
// to the code that runs commands.
func (a *args) adoptKeywords() {
	if v, ok := a.Kwargs.Get("bg"); ok {
		a.Bg = value.Truth(v)
	}
	if v, ok := a.Kwargs.Get("rstrip"); ok {
		a.Rstrip = value.Truth(v)
	}
	if v, ok := a.Kwargs.At("prepend_path").(string); ok {
		a.PrependPath = v
	}
}

// prepare validates everything and builds the process. command is the command
// line as messages show it.
func (a *args) prepare(ctx context.Context, c *fn.Call) (p proc.Cmd, command string, err error) {
	shell := a.Shell
	if shell == "" {
		shell = defaultShell()
	}
	if !isProgram(shell) {
		return p, "", fn.Errorf("The shell %s is not available", shell)
	}
	if value.Truth(a.Template) {
		if err := a.render(ctx, c); err != nil {
			return p, "", err
		}
	}
	// A word such as false arrives as a YAML value, and is run by its name, as
	// in Salt.
	if l, isList := a.Cmd.(*value.List); a.Cmd == nil || a.Cmd == "" || isList && l.Len() == 0 {
		return p, "", fn.Invalidf("there is no command to run")
	}
	if a.Kwargs.Has("__pub_jid") && !allowed(c, a.Cmd) {
		return p, "", fn.Errorf(`The shell command "%s" is not permitted`, value.Str(a.Cmd))
	}
	if a.Runas == "" {
		a.Runas = c.RunAs
	}
	if p.As, err = a.user(ctx); err != nil {
		return p, "", err
	}
	if p.Env, err = a.environment(ctx, c, p.As, shell); err != nil {
		return p, "", err
	}
	if p.Umask, err = a.mask(); err != nil {
		return p, "", err
	}
	if p.Dir, err = a.dir(p.As); err != nil {
		return p, "", err
	}
	if p.Timeout, err = a.timeout(); err != nil {
		return p, "", err
	}
	if a.Stdin != nil {
		text := value.Str(a.Stdin)
		if !a.Kwargs.Bool("stdin_raw_newlines") {
			text = strings.ReplaceAll(text, `\n`, "\n")
		}
		p.Stdin = []byte(text)
	}
	p.Combined = a.combined || a.RedirectStderr && !a.separate
	p.MaxOutput = maxOutput
	p.Args, command, err = a.argv(c, shell)
	return p, command, err
}

// argv returns the program with its arguments, and the command line for
// messages.
func (a *args) argv(c *fn.Call, shell string) (argv []string, command string, err error) {
	var words []string
	list, isList := a.Cmd.(*value.List)
	if isList {
		for _, w := range list.Items {
			words = append(words, value.Str(w))
		}
	}
	if a.throughShell(c) {
		if !isList {
			words = []string{value.Str(a.Cmd)}
		}
		return append([]string{shell, "-c"}, words...), value.Str(a.Cmd), nil
	}
	if !isList {
		if words, err = proc.Split(value.Str(a.Cmd)); err != nil {
			return nil, "", err
		}
	}
	if len(words) == 0 {
		return nil, "", fn.Invalidf("there is no command to run")
	}
	return words, value.Repr(value.Strings(words)), nil
}

// throughShell reports whether a shell runs the command: always if the caller
// requests it, and by default for commands that users type, unless cmd_safe
// allows states to omit python_shell.
func (a *args) throughShell(c *fn.Call) bool {
	if a.PythonShell != nil {
		return *a.PythonShell
	}
	return value.Truth(a.Kwargs.At("__pub_jid")) || c.Config.Get("cmd_safe") == false
}

func defaultShell() string {
	if s := os.Getenv("SHELL"); s != "" {
		return s
	}
	return "/bin/sh"
}

// allowed applies the options cmd_blacklist_glob and cmd_whitelist_glob.
func allowed(c *fn.Call, command any) bool {
	text := value.Str(command)
	if l, ok := command.(*value.List); ok {
		words := make([]string, len(l.Items))
		for i, w := range l.Items {
			words[i] = value.Str(w)
		}
		text = strings.Join(words, " ")
	}
	matches := func(globs any) bool {
		l, _ := globs.(*value.List)
		return l != nil && slices.ContainsFunc(l.Items, func(g any) bool { return target.ParseGlob(value.Str(g)).Match(text) })
	}
	if matches(setting(c, "cmd_blacklist_glob")) {
		return false
	}
	white := setting(c, "cmd_whitelist_glob")
	return !value.Truth(white) || matches(white)
}

// setting returns an option, which grains and pillar can also set.
func setting(c *fn.Call, key string) any {
	for _, r := range []fn.Reader{c.Config, c.Grains, c.Pillar} {
		if v, ok := r.All().Get(key); ok {
			return v
		}
	}
	return nil
}

// mask reads the umask. 22 and "022" are the same octal number.
func (a *args) mask() (*uint32, error) {
	if a.Umask == nil {
		return nil, nil
	}
	text := value.Str(a.Umask)
	digits := strings.TrimLeft(text, "0")
	if digits == "" {
		return nil, fn.Errorf("Zero umask is not allowed.")
	}
	n, err := strconv.ParseUint(digits, 8, 12)
	if err != nil {
		return nil, fn.Errorf("Invalid umask: '%s'", text)
	}
	mask := uint32(n)
	return &mask, nil
}

// dir returns the working directory.
func (a *args) dir(as *proc.User) (string, error) {
	dir := value.Str(a.Cwd)
	if !value.Truth(a.Cwd) {
		if as != nil && as.Home != "" {
			dir = as.Home
		} else {
			dir, _ = os.UserHomeDir()
		}
		if f, err := os.Open(dir); err != nil {
			dir = "/"
		} else {
			f.Close()
		}
	}
	if info, err := os.Stat(dir); !filepath.IsAbs(dir) || err != nil || !info.IsDir() {
		return "", fn.Errorf("Specified cwd '%s' either not absolute or does not exist", dir)
	}
	return dir, nil
}

func (a *args) timeout() (time.Duration, error) {
	if !value.Truth(a.Timeout) {
		return 0, nil
	}
	var seconds float64
	switch x := a.Timeout.(type) {
	case int64:
		seconds = float64(x)
	case float64:
		seconds = x
	case bool:
		seconds = 1 // True is 1 in Python
	default:
		//lint:ignore ST1005 it is the text of Salt
		return 0, fmt.Errorf("Error: timeout %s must be a number", value.Str(a.Timeout))
	}
	const most = 1 << 33 // maximum seconds of a Duration
	if seconds > most {
		return 0, nil
	}
	return max(time.Duration(seconds*float64(time.Second)), 1), nil
}

// good lists outcomes other than exit status 0 that count as success.
type good struct {
	codes          []int
	stdout, stderr []string
}

func (a *args) successes() (good, error) {
	g := good{stdout: value.Split(a.SuccessStdout), stderr: value.Split(a.SuccessStderr)}
	for _, s := range value.Split(a.SuccessRetcodes) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return g, fn.Invalidf("success_retcodes must be a list of integers")
		}
		g.codes = append(g.codes, n)
	}
	return g, nil
}

func (g good) apply(code int, r result) int {
	has := func(out string) func(string) bool {
		return func(part string) bool { return strings.Contains(out, part) }
	}
	if slices.Contains(g.codes, code) || slices.ContainsFunc(g.stdout, has(r.stdout)) || slices.ContainsFunc(g.stderr, has(r.stderr)) {
		return 0
	}
	return code
}

// text decodes output to a string.
func (a *args) text(out []byte) string {
	var s string
	switch strings.ToLower(strings.NewReplacer("_", "-", " ", "").Replace(a.OutputEncoding)) {
	case "latin-1", "latin1", "iso-8859-1", "iso8859-1":
		r := make([]rune, len(out))
		for i, b := range out {
			r[i] = rune(b)
		}
		s = string(r)
	default:
		s = decode(out)
	}
	if a.Rstrip {
		s = strings.TrimRightFunc(s, unicode.IsSpace)
	}
	return s
}

// decode decodes UTF-8 and replaces invalid bytes by the replacement
// character.
func decode(out []byte) string {
	if utf8.Valid(out) {
		return string(out)
	}
	return string([]rune(string(out)))
}

// startFailed formats the error of starting a program as Salt does, but
// without the environment, which may hold secrets.
func (a *args) startFailed(err error, command string, p proc.Cmd) error {
	var start *proc.StartError
	if !errors.As(err, &start) {
		return err
	}
	if quiet(a.OutputLoglevel) {
		command = "REDACTED"
	}
	return fn.Errorf("Unable to run command '%s' with the context '%s', reason: %s", command, value.Repr(value.DictOf("cwd", p.Dir, "runas", orNil(a.Runas))),
		startReason(err))
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// startReason returns Python's message for a system error.
func startReason(err error) string {
	var start *proc.StartError
	var errno syscall.Errno
	if !errors.As(err, &start) || !errors.As(err, &errno) {
		return err.Error()
	}
	text := errno.Error()
	return fmt.Sprintf("[Errno %d] %s: '%s'", int(errno), strings.ToUpper(text[:1])+text[1:], start.Name)
}

// logLevel parses output_loglevel; silent is true for quiet.
func logLevel(name string) (level slog.Level, silent bool) {
	if quiet(name) {
		return 0, true
	}
	level, err := log.ParseLevel(name)
	if err != nil {
		level = slog.LevelInfo
	}
	return level, false
}

func quiet(name string) bool { return strings.EqualFold(name, "quiet") }

func logResult(ctx context.Context, l *slog.Logger, level slog.Level, command string, r result) {
	if r.failed {
		l.ErrorContext(ctx, "command failed", "command", command, "retcode", r.code)
		level = max(level, slog.LevelError)
	}
	if r.stdout != "" {
		l.Log(ctx, level, "stdout: "+r.stdout)
	}
	if r.stderr != "" {
		l.Log(ctx, level, "stderr: "+r.stderr)
	}
}

// first returns the program of a command. No other part of it is logged.
func first(command any) string {
	if l, ok := command.(*value.List); ok && len(l.Items) > 0 {
		command = l.Items[0]
	}
	if f := strings.Fields(value.Str(command)); len(f) > 0 {
		return f[0]
	}
	return ""
}
