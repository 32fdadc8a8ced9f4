// Package supervisord implements the execution module and the state supervisord.
package supervisord

import (
	"context"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// Control runs supervisorctl, which controls the daemon supervisord of a machine.
type Control struct{ M *host.Machine }

// Args are the arguments of Reread.
type Args struct {
	Name   string `salt:"name" doc:"program or group" default:"all"`
	User   string `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config string `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv string `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
}

// group removes the asterisk from the name of a group.
func group(name string) string {
	if g, ok := strings.CutSuffix(name, ":*"); ok {
		return g + ":"
	}
	return name
}

// bare removes the asterisk and the colon from the name of a group.
func bare(name string) string { return strings.TrimSuffix(group(name), ":") }

func (s Control) program(binEnv string) (string, error) {
	const name = "supervisorctl"
	path := binEnv
	switch {
	case binEnv == "":
		path = s.M.Which(name)
	case s.M.IsDir(binEnv):
		path = filepath.Join(binEnv, "bin", name)
		if !s.M.IsFile(path) {
			path = ""
		}
	}
	if path == "" {
		return "", &fn.ProgramError{Reason: "Could not find a `" + name + "` binary"}
	}
	return path, nil
}

// run runs supervisorctl through the cmd module and returns its output. If it
// fails, the output contains ERROR.
func (s Control) run(ctx context.Context, c *fn.Call, a Args, words ...string) (string, error) {
	program, err := s.program(a.BinEnv)
	if err != nil {
		return "", err
	}
	line := []string{program}
	if a.Config != "" {
		line = append(line, "-c", a.Config)
	}
	kw := value.DictOf("python_shell", false)
	if a.User != "" {
		kw.Set("runas", a.User)
	}
	v, err := c.Funcs.Call(ctx, c, "cmd.run_all", []any{value.Strings(append(line, words...))}, kw)
	if err != nil {
		return "", err
	}
	d, _ := v.(*value.Dict)
	said := d.Str("stdout")
	if d.Int("retcode") != 0 && !strings.Contains(said, "ERROR") {
		said = "ERROR: " + said
	}
	return said, nil
}

// Do returns the function for a verb: start, restart or stop.
func (s Control) Do(verb string) func(context.Context, *fn.Call, Args) (string, error) {
	return func(ctx context.Context, c *fn.Call, a Args) (string, error) {
		return s.run(ctx, c, a, verb, group(a.Name))
	}
}

// KnownArgs are the arguments of Known.
type KnownArgs struct {
	Name   string `salt:"name" doc:"program or group"`
	User   string `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config string `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv string `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
}

func (s Control) Known(verb string) func(context.Context, *fn.Call, KnownArgs) (string, error) {
	return func(ctx context.Context, c *fn.Call, a KnownArgs) (string, error) {
		return s.run(ctx, c, Args(a), verb, bare(a.Name))
	}
}

// Reread implements supervisord.reread.
func (s Control) Reread(ctx context.Context, c *fn.Call, a Args) (string, error) {
	return s.run(ctx, c, a, "reread")
}

// UpdateArgs are the arguments of Update.
type UpdateArgs struct {
	User   string `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config string `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv string `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
	Name   string `salt:"name" doc:"group; all without" default:"null"`
}

// Update implements supervisord.update.
func (s Control) Update(ctx context.Context, c *fn.Call, a UpdateArgs) (string, error) {
	words := []string{"update"}
	if a.Name != "" {
		words = append(words, bare(a.Name))
	}
	return s.run(ctx, c, Args{User: a.User, Config: a.Config, BinEnv: a.BinEnv}, words...)
}

// StatusArgs are the arguments of Status, StatusRaw.
type StatusArgs struct {
	Name   string `salt:"name" doc:"program or group; all without" default:"null"`
	User   string `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config string `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv string `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
}

// StatusRaw implements supervisord.status_raw.
func (s Control) StatusRaw(ctx context.Context, c *fn.Call, a StatusArgs) (string, error) {
	words := []string{"status"}
	if a.Name != "" {
		words = append(words, a.Name)
	}
	return s.run(ctx, c, Args(a), words...)
}

var statusLine = regexp.MustCompile(`^\s*(\S+)\s+(\S+)\s*(.*)$`)

// Status implements supervisord.status.
func (s Control) Status(ctx context.Context, c *fn.Call, a StatusArgs) (*value.Dict, error) {
	text, err := s.StatusRaw(ctx, c, a)
	all := value.NewDict(16)
	for line := range strings.SplitSeq(text, "\n") {
		if m := statusLine.FindStringSubmatch(line); m != nil {
			all.Set(m[1], value.DictOf("state", m[2], "reason", strings.TrimRight(m[3], " ")))
		}
	}
	return all, err
}

// BoolArgs are the arguments of StatusBool.
type BoolArgs struct {
	Name     string `salt:"name" doc:"program"`
	Expected string `salt:"expected_state" doc:"state that is expected; RUNNING without" default:"null"`
	User     string `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config   string `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv   string `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
}

// StatusBool implements supervisord.status_bool.
func (s Control) StatusBool(ctx context.Context, c *fn.Call, a BoolArgs) (bool, error) {
	all, err := s.Status(ctx, c, StatusArgs{a.Name, a.User, a.Config, a.BinEnv})
	if a.Expected == "" {
		a.Expected = "RUNNING"
	}
	return all.Dict(a.Name).Str("state") == a.Expected, err
}

// CustomArgs are the arguments of Custom.
type CustomArgs struct {
	Command string `salt:"command" doc:"what to do"`
	User    string `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config  string `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv  string `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
}

// Custom implements supervisord.custom.
func (s Control) Custom(ctx context.Context, c *fn.Call, a CustomArgs) (string, error) {
	return s.run(ctx, c, Args{User: a.User, Config: a.Config, BinEnv: a.BinEnv}, a.Command)
}

// OptionsArgs are the arguments of Options.
type OptionsArgs struct {
	Name   string `salt:"name" doc:"program"`
	Config string `salt:"conf_file" doc:"path of the configuration" default:"null"`
}

// Options implements supervisord.options.
func (s Control) Options(_ context.Context, _ *fn.Call, a OptionsArgs) (*value.Dict, error) {
	for _, path := range []string{"/etc/supervisor/supervisord.conf", "/etc/supervisord.conf"} {
		if a.Config == "" && s.M.IsFile(path) {
			a.Config = path
		}
	}
	if a.Config == "" {
		return nil, fn.Errorf("No suitable config file found")
	}
	text, err := s.M.ReadFile(a.Config)
	if err != nil {
		return nil, fn.Errorf("Unable to read from %s: %w", a.Config, err)
	}
	var found *value.Dict
	section := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || trimmed[0] == ';' || trimmed[0] == '#':
		case trimmed[0] == '[' && strings.HasSuffix(trimmed, "]"):
			if section = trimmed[1 : len(trimmed)-1]; section == "program:"+a.Name {
				found = value.NewDict(8)
			}
		case section == "program:"+a.Name:
			key, v, _ := strings.Cut(trimmed, "=")
			v, _, _ = strings.Cut(v, ";")
			found.Set(strings.ToLower(strings.TrimSpace(key)), plainValue(strings.TrimSpace(v)))
		}
	}
	if found == nil {
		return nil, fn.Errorf("Process '%s' not found", a.Name)
	}
	return found, nil
}

// plainValue converts numbers and the words true and false.
func plainValue(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return f
	}
	switch strings.ToLower(text) {
	case "true":
		return true
	case "false":
		return false
	}
	return text
}
