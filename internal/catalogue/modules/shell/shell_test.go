package shell

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/py/value"
)

const table = "testdata/jobs.json"

func registry(t *testing.T) *fn.Registry {
	t.Helper()
	r, err := fn.NewRegistry(nil, Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCatalogue(t *testing.T) { fntest.Catalogue(t, Modules()) }

// fixedEnvironment sets the environment of the recording. Jobs must not depend
// on other variables.
func fixedEnvironment(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("the recording was made by root, who can run commands as another user")
	}
	for name, v := range map[string]string{"HOME": "/", "SHELL": "/bin/bash", "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"} {
		t.Setenv(name, v)
	}
}

func TestLikeSalt(t *testing.T) {
	fixedEnvironment(t)
	r, opts := registry(t), fn.Tree{Dict: stocktest.Options(t, table)}
	stocktest.Compare(t, table, r, func() *fn.Call { return &fn.Call{Config: opts} })
}

func TestRecordingIsTrue(t *testing.T) {
	fixedEnvironment(t)
	// Salt creates a regular file for a missing terminal, which TestLikeSalt
	// would then find.
	t.Cleanup(func() {
		const terminal = "/dev/tty47110815"
		if st, err := os.Stat(terminal); err == nil && st.Mode().IsRegular() {
			os.Remove(terminal)
		}
	})
	stocktest.Verify(t, table)
}

func run(t *testing.T, c *fn.Call, fun string, arg ...any) fn.Outcome {
	t.Helper()
	pub := value.DictOf("jid", "1")
	return registry(t).Run(t.Context(), c, fn.Job{Fun: fun, Arg: arg, Pub: pub})
}

func TestScript(t *testing.T) {
	path := filepath.Join(t.TempDir(), "check.sh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho \"$# $2\"; echo e >&2; exit 6\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := run(t, &fn.Call{}, "cmd.script", path, "args=a 'b c'")
	d, ok := o.Return.(*value.Dict)
	if !ok || d.Str("stdout") != "2 b c" || d.Str("stderr") != "e" || d.Int("retcode") != 6 || o.Retcode != 6 {
		t.Errorf("got %+v", o)
	}
	// cmd.script_retcode renders the script as a template unless template is null.
	if o := run(t, &fn.Call{}, "cmd.script_retcode", "file://"+path, "template=null"); o.Return != int64(6) {
		t.Errorf("got %+v", o)
	}
	filled := &fn.Call{Templates: fntest.Templates{OfText: func(_ context.Context, tpl fn.Template) (string, error) {
		return strings.Replace(string(tpl.Source), "exit 6", "exit 7", 1), nil
	}}}
	if o := run(t, filled, "cmd.script_retcode", path); o.Return != int64(7) {
		t.Errorf("got %+v", o)
	}
	for _, arg := range [][]any{{"salt://x.sh"}, {path, "template=jinja"}, {path, "bg=true"}} {
		if o := run(t, &fn.Call{}, "cmd.script", arg...); !strings.HasPrefix(value.Str(o.Return), "ERROR: ") {
			t.Errorf("%v: got %+v", arg, o)
		}
	}
	if left, _ := filepath.Glob(os.TempDir() + "/brine-*.sh"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestSignatures checks that the documented shell is the one that is used, and
// that a script takes the keywords of a command.
func TestSignatures(t *testing.T) {
	t.Setenv("SHELL", "/bin/zsh")
	r := registry(t)
	for fun, want := range map[string]string{
		"cmd.shell_info": "{'args': ['shell', 'list_modules'], 'defaults': (False,), 'varargs': None, 'kwargs': None}",
		"cmd.run_chroot": "{'args': ['root', 'cmd', 'cwd', 'stdin', 'runas', 'group', 'shell', 'python_shell', 'binds', 'env', 'clean_env', " +
			"'template', 'rstrip', 'umask', 'output_encoding', 'output_loglevel', " +
			"'log_callback', 'hide_output', 'timeout', 'reset_system_locale', 'ignore_retcode', 'saltenv', 'use_vt', 'bg', 'success_retcodes', " +
			"'success_stdout', 'success_stderr'], " +
			"'defaults': (None, None, None, None, '/bin/zsh', True, None, None, False, None, True, None, None, 'quiet', None, False, None, True, " +
			"False, None, False, False, None, None, None), 'varargs': None, 'kwargs': True}",
		"cmd.exec_code": "{'args': ['lang', 'code', 'cwd', 'args'], 'defaults': (None, None), 'varargs': None, 'kwargs': True}",
		"cmd.run_bg": "{'args': ['cmd', 'cwd', 'runas', 'group', 'shell', 'python_shell', 'env', 'clean_env', 'template', 'umask', 'timeout', " +
			"'output_encoding', 'output_loglevel', " +
			"'log_callback', 'reset_system_locale', 'ignore_retcode', 'saltenv', 'password', 'prepend_path', 'success_retcodes', 'success_stdout', " +
			"'success_stderr'], " +
			"'defaults': (None, None, None, '/bin/zsh', None, None, False, None, None, None, None, 'debug', None, True, False, None, None, None, " +
			"None, None, None), 'varargs': None, 'kwargs': True}",
	} {
		f, err := r.Lookup(fun)
		if err != nil {
			t.Fatal(err)
		}
		if got := value.Repr(f.ArgSpec()); got != want {
			t.Errorf("%s: got  %s\nwant %s", fun, got, want)
		}
	}
	t.Setenv("SHELL", "/bin/sh") // used by the jobs below
	if o := run(t, &fn.Call{}, "cmd.exec_code_all", "sh", "echo $A; pwd; exit 3", "/", "env={A: b}",
		"success_retcodes=[3]"); value.Repr(o.Return.(*value.Dict).At("stdout")) != `'b\n/'` || o.Retcode != 0 {
		t.Errorf("%+v", value.Repr(o.Return))
	}
	if o := run(t, &fn.Call{}, "cmd.exec_code", "sh", "true", "no_such=1", "runas=no-such-user"); o.Return != "ERROR: User 'no-such-user' is not available" {
		t.Errorf("%+v", o)
	}
}

// TestShellByDefault checks that a shell runs the command if a user types it,
// and if cmd_safe is off.
func TestShellByDefault(t *testing.T) {
	r := registry(t)
	for _, tt := range []struct {
		opts, pub *value.Dict
		want      string
	}{
		{nil, value.DictOf("jid", "1"), "3"},
		{nil, nil, "$((1+2))"},
		{value.DictOf("cmd_safe", false), nil, "3"},
	} {
		o := r.Run(t.Context(), &fn.Call{Config: fn.Tree{Dict: tt.opts}}, fn.Job{Fun: "cmd.run", Arg: []any{"echo $((1+2))"}, Pub: tt.pub})
		if o.Return != tt.want {
			t.Errorf("%v %v: got %v, want %s", tt.opts, tt.pub, o.Return, tt.want)
		}
	}
}

func TestPermitted(t *testing.T) {
	lists := func(key string, globs ...any) *fn.Call {
		return &fn.Call{Config: fn.Tree{Dict: value.DictOf(key, value.ListOf(globs...))}}
	}
	for _, tt := range []struct {
		c  *fn.Call
		ok bool
	}{
		{lists("cmd_whitelist_glob", "echo *"), true},
		{lists("cmd_whitelist_glob", "ls *"), false},
		{lists("cmd_blacklist_glob", "ls *"), true},
		{lists("cmd_blacklist_glob", "*"), false},
		{lists("other"), true},
	} {
		for _, command := range []any{"echo x", value.ListOf("echo", "x")} {
			if o := run(t, tt.c, "cmd.run", command, "python_shell=false"); (o.Err == nil) != tt.ok {
				t.Errorf("%v %v: got %+v", tt.c.Config.All(), command, o)
			}
		}
	}
}

func TestEndsWithTheJob(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "ready")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("ended by the user")
	go func() {
		_, err := os.ReadFile(fifo) // blocks until the command has written
		cancel(errors.Join(why, err))
	}()
	o := registry(t).Run(ctx, &fn.Call{}, fn.Job{Fun: "cmd.run", Arg: []any{"echo > " + fifo + "; sleep 1000"}, Pub: value.DictOf("jid", "1")})
	if !errors.Is(o.Err, why) {
		t.Errorf("got %+v", o)
	}
}

func TestEmptyCommand(t *testing.T) {
	for _, command := range []any{"", nil, value.ListOf(), "  "} {
		if o := run(t, &fn.Call{}, "cmd.run", command, "python_shell=false"); o.Return != "ERROR executing 'cmd.run': there is no command to run" {
			t.Errorf("%q: got %+v", command, o)
		}
	}
}

func TestBadEnvironment(t *testing.T) {
	for _, env := range []*value.Dict{value.DictOf("A=B", 1), value.DictOf("A", "x\x00y"), value.DictOf("", 1)} {
		o := run(t, &fn.Call{}, "cmd.run", "true", value.DictOf("__kwarg__", true, "env", env))
		if !strings.HasPrefix(value.Str(o.Return), "ERROR: ") {
			t.Errorf("%v: got %+v", env, o)
		}
	}
}
