// Package shell holds the state module cmd: commands and scripts that a run
// executes.
//
// Whether a command is needed is decided by unless, onlyif and creates, or by
// its own output if it is stateful. A test does not run it.
package shell

import (
	"context"
	"errors"
	"os"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/states"
	"brine/internal/host/proc"
	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// units holds the modules, which the files of this package register.
var units = states.Family()

// Modules returns the modules of this family.
func Modules() []state.Module { return units.Modules(nil) }

func init() { units.Declare("cmd", cmdModule) }

func cmdModule() state.Module {
	return state.Module{Name: "cmd", Doc: `Run commands and scripts.`, Funcs: []state.Func{
		state.Of("run", run, `Run a command by way of the shell.`),
		state.Of("wait", wait, `Run a command when something that the state watches has changed.`),
		state.Of("watch", wait, `Same as cmd.wait.`),
		state.Of("script", script, `Run a script that is fetched from the file server or elsewhere.`),
		state.Of("wait_script", waitScript, `Run a script when something that the state watches has changed.`),
		state.Of("mod_watch", watch, `Run the command or script of a state that watches.`),
	}}
}

// common are the common arguments of commands and scripts.
type common struct {
	Cwd             string    `salt:"cwd" doc:"working directory" default:"null"`
	Runas           string    `salt:"runas" doc:"user to run as" default:"null"`
	Password        any       `salt:"password" doc:"as in cmd.run_all" default:"null"`
	Shell           string    `salt:"shell" doc:"path of the shell; by default the minion's" default:"null"`
	Env             any       `salt:"env" doc:"environment variables: a map, or a list of maps" default:"null"`
	PrependPath     string    `salt:"prepend_path" doc:"directories to put before PATH" default:"null"`
	Stateful        any       `salt:"stateful" doc:"take the result from the output: a line of name=value pairs, or a JSON object" default:"false"`
	Loglevel        string    `salt:"output_loglevel" doc:"level to log the output with, or quiet" default:"debug"`
	HideOutput      bool      `salt:"hide_output" doc:"return no output" default:"false"`
	Timeout         any       `salt:"timeout" doc:"seconds after which the command is killed" default:"null"`
	IgnoreTimeout   bool      `salt:"ignore_timeout" doc:"do not fail for that" default:"false"`
	UseVT           bool      `salt:"use_vt" doc:"as in cmd.run_all" default:"false"`
	SuccessRetcodes any       `salt:"success_retcodes" doc:"further exit statuses that count as 0" default:"null"`
	SuccessStdout   any       `salt:"success_stdout" doc:"texts in standard output that make the exit status 0" default:"null"`
	SuccessStderr   any       `salt:"success_stderr" doc:"texts in standard error that make the exit status 0" default:"null"`
	Kwargs          fn.Kwargs `salt:"kwargs"`
}

type runArgs struct {
	Name string `salt:"name" doc:"the command"`
	Root string `salt:"root" doc:"directory to change the root to" default:"null"`
	common
}

type scriptArgs struct {
	Name     string `salt:"name" doc:"the script, with arguments behind it"`
	Source   string `salt:"source" doc:"where it is fetched from, if not by its name" default:"null"`
	Template string `salt:"template" doc:"template engine to render it with" default:"null"`
	Defaults any    `salt:"defaults" doc:"variables of the template that context can override" default:"null"`
	Context  any    `salt:"context" doc:"variables of the template" default:"null"`
	common
}

type watchArgs struct {
	Name   string    `salt:"name" doc:"the command or script"`
	Sfun   string    `salt:"sfun" doc:"function of the state that watches" default:"null"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func wait(context.Context, *state.Env, runArgs) (state.Plan, error) { return state.Plan{}, nil }

func waitScript(context.Context, *state.Env, scriptArgs) (state.Plan, error) {
	return state.Plan{}, nil
}

// check rejects invalid arguments.
func (a *common) check() error {
	switch a.Env.(type) {
	case nil, *value.List, *value.Dict:
	default:
		return fn.Errorf("Invalidly-formatted 'env' parameter. See documentation.")
	}
	return nil
}

func (a *common) isStateful() bool {
	if l, ok := a.Stateful.(*value.List); ok {
		return l.Len() > 0
	}
	return a.Stateful == true
}

// testName returns the command that a test runs instead of the state's
// (test_name). It reports what would change, without changing it.
func (a *common) testName(e *state.Env) string {
	l, _ := a.Stateful.(*value.List)
	if l.Len() == 0 || !value.Truth(e.Config.Get("test")) {
		return ""
	}
	d, _ := l.Items[0].(*value.Dict)
	return d.Str("test_name")
}

// forecast returns the result of a test from the output of that command.
func forecast(change state.Change, err error) state.Plan {
	r := &state.Result{Verdict: state.Undecided, Comment: change.Comment, Changes: change.Diff}
	switch {
	case err != nil:
		r.Verdict, r.Comment = state.Failed, err.Error()
	case change.Diff.Len() == 0:
		r.Verdict = state.Succeeded
	}
	return state.Plan{Forecast: r, Steps: []state.Step{{Do: func(context.Context) (state.Change, error) { return change, err }}}}
}

// keywords returns the keywords for the execution function.
func (a *common) keywords(e *state.Env) *value.Dict {
	shell := a.Shell
	if shell == "" {
		shell, _ = e.Grains.Get("shell").(string)
	}
	kw := value.NewDict(16)
	for k, v := range a.Kwargs.All() {
		kw.Set(k, v)
	}
	for _, p := range []struct {
		key string
		val any
	}{
		{"cwd", orNone(a.Cwd)}, {"runas", orNone(a.Runas)}, {"password", a.Password}, {"shell", orNone(shell)}, {"env", a.Env},
		{"prepend_path", orNone(a.PrependPath)},
		{"output_loglevel", a.Loglevel}, {"hide_output", a.HideOutput}, {"timeout", a.Timeout}, {"use_vt", a.UseVT}, {"success_retcodes", a.SuccessRetcodes},
		{"success_stdout", a.SuccessStdout}, {"success_stderr", a.SuccessStderr}, {"python_shell", true},
	} {
		kw.Set(p.key, p.val)
	}
	return kw
}

func orNone(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// do calls an execution function and converts its return to the state's
// result. Commands are run by cmd.run_all and cmd.script only, which handle
// all their options.
func (a *common) do(ctx context.Context, e *state.Env, fun string, args []any, kw *value.Dict, done string) (state.Change, error) {
	if a.Cwd != "" {
		if st, err := os.Stat(a.Cwd); err != nil || !st.IsDir() {
			return state.Change{}, fn.Errorf(`Desired working directory "%s" is not available`, a.Cwd)
		}
	}
	v, err := e.Funcs.Call(ctx, e.Call, fun, args, kw)
	if err != nil {
		return state.Change{}, err
	}
	all, ok := v.(*value.Dict)
	if !ok {
		return state.Change{}, fn.Errorf("%s returned %s", fun, value.Repr(v))
	}
	failed := value.Truth(all.At("retcode"))
	if a.IgnoreTimeout && failed && strings.Contains(value.Str(all.At("stdout")), "Timed out after") {
		all, failed = all.Clone(), false
		all.Set("retcode", 0)
	}
	if value.Truth(all.At("cache_error")) {
		return state.Change{Diff: all}, fn.Errorf("Unable to cache script %s from saltenv '%s'", value.Str(args[0]), e.Saltenv)
	}
	change := state.Change{Diff: all, Comment: done}
	if a.isStateful() {
		if change, err = reinterpret(all); err != nil {
			return change, err
		}
	}
	if failed {
		err = fn.Errorf("%s", change.Comment)
		change.Comment = ""
	}
	return change, err
}

// reinterpret converts the output of a stateful command to a change.
func reinterpret(all *value.Dict) (state.Change, error) {
	out, _ := all.At("stdout").(string)
	if out == "" {
		return state.Change{Comment: value.Str(or(all.At("stderr"), ""))}, nil
	}
	data, rest, err := parse(out)
	switch {
	case errors.Is(err, errNoObject):
		return state.Change{}, err
	case err != nil:
		return state.Change{Diff: all}, err
	}
	comment := ""
	if v, ok := data.Get("comment"); ok {
		comment = value.Str(v)
		data.Delete("comment")
	}
	said := any("no")
	if v, ok := data.Get("changed"); ok {
		said = v
	}
	changed, err := truth(said)
	if err != nil || !changed {
		return state.Change{Comment: comment}, err
	}
	for k, v := range all.All() {
		if !data.Has(k) {
			data.Set(k, v)
		}
	}
	data.Set("stdout", rest)
	return state.Change{Diff: data, Comment: comment}, nil
}

func or(v, otherwise any) any {
	if v == nil {
		return otherwise
	}
	return v
}

var errNoObject = errors.New("script JSON output must be a JSON object (e.g., {})!") //lint:ignore ST1005 it is the text of Salt

// parse parses the output of a stateful command: a JSON object, or name=value
// pairs in the last line. rest is the output before it.
func parse(out string) (data *value.Dict, rest string, err error) {
	if v, err := json.Load(out); err == nil {
		d, ok := v.(*value.Dict)
		if !ok {
			return nil, "", errNoObject
		}
		return d, "", nil
	}
	line := out
	if i := strings.LastIndexByte(strings.TrimRight(out, " \t\r\n"), '\n'); i >= 0 {
		rest, line = out[:i], out[i+1:]
	}
	data = value.NewDict(4)
	words, err := proc.Split(line)
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok || strings.Contains(v, "=") {
			err = fn.Errorf("no pair")
			break
		}
		data.Set(k, v)
	}
	if err != nil {
		return nil, "", fn.Errorf("Failed parsing script output! Stdout must be JSON or a line of name=value pairs.")
	}
	return data, rest, nil
}

func truth(v any) (bool, error) {
	switch s := strings.ToLower(value.Str(v)); s {
	case "true", "yes", "1":
		return true, nil
	case "false", "no", "0":
		return false, nil
	}
	return false, fn.Errorf("Failed parsing boolean value: %s", value.Str(v))
}

func run(ctx context.Context, e *state.Env, a runArgs) (state.Plan, error) {
	if err := a.check(); err != nil {
		return state.Plan{}, err
	}
	call, args := "cmd.run_all", []any{a.Name}
	if a.Root != "" {
		if call, args = "cmd.run_chroot", []any{a.Root, a.Name}; !e.Can(call) {
			return state.Plan{}, fn.Errorf("the argument root of cmd.run needs the function %s, which is not there: run chroot(8) in the command", call)
		}
	}
	if name := a.testName(e); name != "" {
		args[len(args)-1] = name
		return forecast(a.do(ctx, e, call, args, a.keywords(e), `Command "`+name+`" run`)), nil
	}
	predicted := state.Change{Diff: value.DictOf("cmd", a.Name), Comment: `Command "` + a.Name + `" would have been executed`}
	if a.isStateful() {
		predicted = state.Change{}
	}
	return state.Plan{Steps: []state.Step{{Change: predicted, Do: func(ctx context.Context) (state.Change, error) {
		return a.do(ctx, e, call, args, a.keywords(e), `Command "`+a.Name+`" run`)
	}}}}, nil
}

func script(ctx context.Context, e *state.Env, a scriptArgs) (state.Plan, error) {
	if err := a.check(); err != nil {
		return state.Plan{}, err
	}
	vars := value.NewDict(4)
	for _, given := range []struct {
		name string
		v    any
	}{{"defaults", a.Defaults}, {"context", a.Context}} {
		if _, ok := given.v.(*value.Dict); value.Truth(given.v) && !ok {
			return state.Plan{}, fn.Errorf("Invalidly-formatted '%s' parameter. Must be formed as a dict.", given.name)
		}
	}
	for _, v := range []any{a.Defaults, a.Context} {
		if d, ok := v.(*value.Dict); ok {
			vars.Update(d)
		}
	}
	name := a.Name
	testing := a.testName(e)
	if testing != "" {
		name = testing
	}
	source, rest, _ := strings.Cut(name, " ")
	if a.Source != "" {
		source = a.Source
	}
	kw := a.keywords(e)
	if given, ok := kw.Get("args"); rest != "" && (!ok || !value.Truth(given)) {
		kw.Set("args", rest)
	}
	kw.Delete("prepend_path")
	kw.Set("template", orNone(a.Template))
	kw.Set("context", vars)
	kw.Set("saltenv", e.Saltenv)
	if testing != "" {
		return forecast(a.do(ctx, e, "cmd.script", []any{source}, kw, "Command '"+name+"' run")), nil
	}
	predicted := state.Change{Comment: "Command '" + a.Name + "' would have been executed"}
	if a.isStateful() {
		predicted = state.Change{}
	}
	return state.Plan{Steps: []state.Step{{Change: predicted, Do: func(ctx context.Context) (state.Change, error) {
		return a.do(ctx, e, "cmd.script", []any{source}, kw, "Command '"+a.Name+"' run")
	}}}}, nil
}

// watch runs the command of a state because a watched state changed.
func watch(ctx context.Context, e *state.Env, a watchArgs) (state.Plan, error) {
	name, ok := map[string]string{"wait": "run", "run": "run", "watch": "run", "wait_script": "script", "script": "script"}[a.Sfun]
	if !ok {
		return state.Plan{}, fn.Errorf("cmd.%s does not work with the watch requisite, please use cmd.wait or cmd.wait_script", a.Sfun)
	}
	kw := a.Kwargs.Clone()
	kw.Set("name", a.Name)
	for _, f := range cmdModule().Funcs {
		if f.Name() == name {
			return f.Plan(ctx, e, kw)
		}
	}
	return state.Plan{}, nil
}
