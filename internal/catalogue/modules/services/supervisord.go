package services

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

// supervisord asks supervisorctl, which commands the daemon supervisord.
type supervisord struct{ m *host.Machine }

func init() { units.Register("supervisord", supervisordModule) }

func supervisordModule(m *host.Machine) fn.Module {
	s := supervisord{m}
	place := []string{"user", "conf_file", "bin_env"}
	named := append([]string{"name"}, place...)
	return fn.Module{Name: "supervisord",
		Doc: `Programs that the daemon supervisord runs, by way of supervisorctl. A name that ends with a colon is that of a group.`, Funcs: []fn.Func{
			fn.Of("start", s.do("start"), `Start a program or a group.`, fn.Params(named...), fn.Example("salt '*' supervisord.start <group>:")),
			fn.Of("restart", s.do("restart"), `Stop a program or a group and start it again.`, fn.Params(named...),
				fn.Example("salt '*' supervisord.restart <service>")),
			fn.Of("stop", s.do("stop"), `Stop a program or a group.`, fn.Params(named...), fn.Example("salt '*' supervisord.stop <service>")),
			fn.Of("add", s.known("add"), `Have the daemon run what its configuration says of a program or a group.`,
				fn.Example("salt '*' supervisord.add <name>")),
			fn.Of("remove", s.known("remove"), `Have the daemon forget a program or a group.`, fn.Example("salt '*' supervisord.remove <name>")),
			fn.Of("reread", s.reread, `Have the daemon read its configuration, and change nothing yet.`, fn.Params(place...),
				fn.Example("salt '*' supervisord.reread")),
			fn.Of("update", s.update, `Have the daemon read its configuration and follow it, for all groups or for one.`,
				fn.Example("salt '*' supervisord.update")),
			fn.Of("status", s.status, `Return the states of programs by their names, and the reasons.`, fn.Example("salt '*' supervisord.status")),
			fn.Of("status_raw", s.statusRaw, `Return what supervisorctl prints of states.`, fn.Example("salt '*' supervisord.status_raw")),
			fn.Of("status_bool", s.statusBool, `Say whether a program is in the state that is expected, or running if none is named.`,
				fn.Example("salt '*' supervisord.status_bool nginx expected_state='RUNNING'")),
			fn.Of("custom", s.custom, `Have supervisorctl do something else.`, fn.Example(`salt '*' supervisord.custom "mstop '*gunicorn*'"`)),
			fn.Of("options", s.options, `Return what the configuration says of a program.`, fn.Example("salt '*' supervisord.options foo")),
		}}
}

type supervisordArgs struct {
	Name   string `salt:"name" doc:"program or group" default:"all"`
	User   string `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config string `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv string `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
}

// group names a group without the asterisk.
func group(name string) string {
	if g, ok := strings.CutSuffix(name, ":*"); ok {
		return g + ":"
	}
	return name
}

// bare names a group without the colon.
func bare(name string) string { return strings.TrimSuffix(group(name), ":") }

func (s supervisord) program(binEnv string) (string, error) {
	const name = "supervisorctl"
	path := binEnv
	switch {
	case binEnv == "":
		path = s.m.Which(name)
	case s.m.IsDir(binEnv):
		path = filepath.Join(binEnv, "bin", name)
		if !s.m.IsFile(path) {
			path = ""
		}
	}
	if path == "" {
		return "", &fn.ProgramError{Reason: "Could not find a `" + name + "` binary"}
	}
	return path, nil
}

// run has supervisorctl do something, by way of the module cmd, and returns
// what it prints, with ERROR before it if it fails without that word.
func (s supervisord) run(ctx context.Context, c *fn.Call, a supervisordArgs, words ...string) (string, error) {
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

func (s supervisord) do(verb string) func(context.Context, *fn.Call, supervisordArgs) (string, error) {
	return func(ctx context.Context, c *fn.Call, a supervisordArgs) (string, error) {
		return s.run(ctx, c, a, verb, group(a.Name))
	}
}

type supervisordKnownArgs struct {
	Name   string `salt:"name" doc:"program or group"`
	User   string `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config string `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv string `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
}

// known is what changes which programs the daemon knows.
func (s supervisord) known(verb string) func(context.Context, *fn.Call, supervisordKnownArgs) (string, error) {
	return func(ctx context.Context, c *fn.Call, a supervisordKnownArgs) (string, error) {
		return s.run(ctx, c, supervisordArgs(a), verb, bare(a.Name))
	}
}

func (s supervisord) reread(ctx context.Context, c *fn.Call, a supervisordArgs) (string, error) {
	return s.run(ctx, c, a, "reread")
}

type supervisordUpdateArgs struct {
	User   string `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config string `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv string `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
	Name   string `salt:"name" doc:"group; all without" default:"null"`
}

func (s supervisord) update(ctx context.Context, c *fn.Call, a supervisordUpdateArgs) (string, error) {
	words := []string{"update"}
	if a.Name != "" {
		words = append(words, bare(a.Name))
	}
	return s.run(ctx, c, supervisordArgs{User: a.User, Config: a.Config, BinEnv: a.BinEnv}, words...)
}

type supervisordStatusArgs struct {
	Name   string `salt:"name" doc:"program or group; all without" default:"null"`
	User   string `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config string `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv string `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
}

func (s supervisord) statusRaw(ctx context.Context, c *fn.Call, a supervisordStatusArgs) (string, error) {
	words := []string{"status"}
	if a.Name != "" {
		words = append(words, a.Name)
	}
	return s.run(ctx, c, supervisordArgs(a), words...)
}

var statusLine = regexp.MustCompile(`^\s*(\S+)\s+(\S+)\s*(.*)$`)

func (s supervisord) status(ctx context.Context, c *fn.Call, a supervisordStatusArgs) (*value.Dict, error) {
	text, err := s.statusRaw(ctx, c, a)
	all := value.NewDict(16)
	for line := range strings.SplitSeq(text, "\n") {
		if m := statusLine.FindStringSubmatch(line); m != nil {
			all.Set(m[1], value.DictOf("state", m[2], "reason", strings.TrimRight(m[3], " ")))
		}
	}
	return all, err
}

type supervisordBoolArgs struct {
	Name     string `salt:"name" doc:"program"`
	Expected string `salt:"expected_state" doc:"state that is expected; RUNNING without" default:"null"`
	User     string `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config   string `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv   string `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
}

func (s supervisord) statusBool(ctx context.Context, c *fn.Call, a supervisordBoolArgs) (bool, error) {
	all, err := s.status(ctx, c, supervisordStatusArgs{a.Name, a.User, a.Config, a.BinEnv})
	if a.Expected == "" {
		a.Expected = "RUNNING"
	}
	return all.Dict(a.Name).Str("state") == a.Expected, err
}

type supervisordCustomArgs struct {
	Command string `salt:"command" doc:"what to do"`
	User    string `salt:"user" doc:"user to run supervisorctl as" default:"null"`
	Config  string `salt:"conf_file" doc:"path of the configuration" default:"null"`
	BinEnv  string `salt:"bin_env" doc:"path of supervisorctl, or of a virtual environment with it" default:"null"`
}

func (s supervisord) custom(ctx context.Context, c *fn.Call, a supervisordCustomArgs) (string, error) {
	return s.run(ctx, c, supervisordArgs{User: a.User, Config: a.Config, BinEnv: a.BinEnv}, a.Command)
}

type supervisordOptionsArgs struct {
	Name   string `salt:"name" doc:"program"`
	Config string `salt:"conf_file" doc:"path of the configuration" default:"null"`
}

func (s supervisord) options(_ context.Context, _ *fn.Call, a supervisordOptionsArgs) (*value.Dict, error) {
	for _, path := range []string{"/etc/supervisor/supervisord.conf", "/etc/supervisord.conf"} {
		if a.Config == "" && s.m.IsFile(path) {
			a.Config = path
		}
	}
	if a.Config == "" {
		return nil, fn.Errorf("No suitable config file found")
	}
	text, err := s.m.ReadFile(a.Config)
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

// plainValue reads numbers and the words true and false.
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
