package shell

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"brine/internal/call/fn"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

func (cmd) script(ctx context.Context, c *fn.Call, a args) (*value.Dict, error) {
	if a.Bg || a.Kwargs.Bool("bg") {
		return nil, fn.Errorf("cmd.script cannot run in the background: the script is removed when it has ended; use cmd.run_bg")
	}
	env := "base"
	if a.Saltenv != nil {
		env = value.Str(a.Saltenv)
	}
	source, err := c.Files.CacheFile(ctx, a.Source, env)
	var text []byte
	if err == nil {
		text, err = os.ReadFile(source)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return value.DictOf("pid", 0, "retcode", 1, "stdout", "", "stderr", "", "cache_error", true), nil
	} else if err != nil {
		return nil, fn.Errorf("cannot fetch the script: %w", err)
	}
	if value.Truth(a.Template) {
		if text, err = a.fill(ctx, c, text, source, env); err != nil {
			return nil, err
		}
		a.Template = nil // the script is the template, not the command
	}
	words, err := argWords(a.Args)
	if err != nil {
		return nil, err
	}
	if len(words) > 0 {
		no := false
		a.PythonShell = &no
	}
	a.separate = true
	return a.runText(ctx, c, nil, text, filepath.Ext(source), words)
}

// render renders the command and its working directory as templates.
func (a *args) render(ctx context.Context, c *fn.Call) error {
	env := "base"
	if a.Saltenv != nil {
		env = value.Str(a.Saltenv)
	}
	for _, v := range []*any{&a.Cmd, &a.Cwd} {
		text, ok := (*v).(string)
		if !ok {
			continue
		}
		out, err := a.fill(ctx, c, []byte(text), "", env)
		if err != nil {
			return err
		}
		*v = string(out)
	}
	return nil
}

// fill renders text as a template.
func (a *args) fill(ctx context.Context, c *fn.Call, text []byte, path, env string) ([]byte, error) {
	if c.Templates == nil {
		return nil, fn.Errorf("Attempted to render file paths with unavailable engine %s", value.Str(a.Template))
	}
	vars, _ := a.Kwargs.Get("context")
	d, _ := vars.(*value.Dict)
	out, err := c.Templates.Text(ctx, c, fn.Template{Engine: value.Str(a.Template), Source: text, Path: path, Saltenv: env, Context: d})
	return []byte(out), err
}

func (cmd) scriptRetcode(ctx context.Context, c *fn.Call, a args) (any, error) {
	d, err := cmd{}.script(ctx, c, a)
	return d.At("retcode"), err
}

// argWords splits the arguments of a script.
func argWords(v any) ([]string, error) {
	switch x := v.(type) {
	case nil:
		return nil, nil
	case *value.List:
		return value.Split(x), nil
	}
	return proc.Split(value.Str(v))
}

// runText writes a script to a file that only the user can read, runs it, with
// an interpreter if one is given, and removes it.
func (a *args) runText(ctx context.Context, c *fn.Call, interpreter []string, text []byte, ext string, words []string) (*value.Dict, error) {
	as, err := a.user(ctx)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp("", "brine-*"+ext)
	if err != nil {
		return nil, fn.Errorf("cannot write the program: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err == nil && as != nil {
		err = f.Chown(int(as.UID), -1)
	}
	if err = errors.Join(err, f.Chmod(0o500), f.Close()); err != nil {
		return nil, fn.Errorf("cannot write the program: %w", err)
	}
	a.Cmd = value.Strings(append(append(interpreter, f.Name()), words...))
	r, err := a.execute(ctx, c)
	if err != nil {
		return nil, err
	}
	return value.DictOf("pid", r.pid, "retcode", r.code, "stdout", a.shown(r.stdout), "stderr", a.shown(r.stderr)), nil
}

type codeArgs struct {
	Lang   string    `salt:"lang" doc:"interpreter, such as python3 or perl"`
	Code   string    `salt:"code" doc:"program text"`
	Cwd    any       `salt:"cwd" doc:"absolute path of the working directory; the home of the user if null" default:"null"`
	Args   any       `salt:"args" doc:"arguments of the program, as a text or list" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (cmd) execCode(ctx context.Context, c *fn.Call, a codeArgs) (any, error) {
	d, err := cmd{}.execCodeAll(ctx, c, a)
	return d.At("stdout"), err
}

func (cmd) execCodeAll(ctx context.Context, c *fn.Call, a codeArgs) (*value.Dict, error) {
	runAll, err := c.Funcs.Lookup("cmd.run_all")
	if err != nil {
		return nil, err
	}
	// The keywords of the job are passed as for cmd.run_all, since they decide
	// whether a command may run at all.
	bound, err := runAll.Bind([]any{"", a.Cwd}, a.Kwargs.Dict)
	if err != nil {
		return nil, err
	}
	full := *bound.Args().(*args)
	no := false
	full.PythonShell, full.separate = &no, true
	var words []string
	switch x := a.Args.(type) {
	case string:
		words = []string{x}
	case *value.List:
		words = value.Split(x)
	}
	return full.runText(ctx, c, []string{a.Lang}, []byte(a.Code), "", words)
}
