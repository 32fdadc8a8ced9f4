// Package selinux implements the execution module and the states selinux: the
// mode, booleans, modules, contexts of files and types of ports.
package selinux

import (
	"context"
	"regexp"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// Policy is the SELinux policy of a machine.
type Policy struct{ M *host.Machine }

// programs are what the module needs.
var programs = []string{"semanage", "setsebool", "semodule"}

// Usable reports whether the machine has what the module needs, or else why
// not.
func (p Policy) Usable(fn.Reader) (string, bool) {
	for _, name := range programs {
		if p.M.Which(name) == "" {
			return name + " is not in the path", false
		}
	}
	return "", true
}

// run runs a program and returns its output with error messages.
func (p Policy) run(ctx context.Context, words ...string) (string, int, error) {
	out, err := p.M.Command(ctx, host.Cmd{Program: words[0], Args: words[1:], Joined: true})
	if err != nil {
		return "", 0, fn.Errorf("cannot run %s: %w", words[0], err)
	}
	return out.Stdout, out.Exit, nil
}

// succeeds runs a program and reports whether it succeeded.
func (p Policy) succeeds(ctx context.Context, words ...string) (bool, error) {
	_, exit, err := p.run(ctx, words...)
	return exit == 0, err
}

// runAll runs a program by cmd.run_all.
func runAll(ctx context.Context, c *fn.Call, words ...string) (*value.Dict, error) {
	v, err := c.Funcs.Call(ctx, c, "cmd.run_all", []any{value.Strings(words)}, value.DictOf("python_shell", false))
	if err != nil {
		return nil, err
	}
	d, _ := v.(*value.Dict)
	return d, nil
}

// Path implements selinux.selinux_fs_path: "" is none.
func (p Policy) Path() string {
	for _, dir := range []string{"/sys/fs/selinux", "/selinux"} {
		if p.M.IsDir(dir) && p.M.IsFile(dir+"/enforce") {
			return dir
		}
	}
	return ""
}

// Mode implements selinux.getenforce.
func (p Policy) Mode() string {
	dir := p.Path()
	if dir == "" {
		return "Disabled"
	}
	b, err := p.M.ReadFile(dir + "/enforce")
	first, _, _ := strings.Cut(string(b), "\n")
	switch {
	case err != nil:
		return "Disabled"
	case strings.TrimSpace(first) == "0":
		return "Permissive"
	}
	return "Enforcing"
}

const configFile = "/etc/selinux/config"

// Configured implements selinux.getconfig: the mode from the next boot on, nil
// if it is not configured.
func (p Policy) Configured() any {
	for _, line := range p.M.Lines(configFile) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "SELINUX="); ok {
			v, _, _ = strings.Cut(v, "=")
			return strings.TrimSpace(capital(v))
		}
	}
	return nil
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + strings.ToLower(s[1:])
}

// configLine matches the line of the mode, in the lines after the first.
var configLine = regexp.MustCompile(`\nSELINUX=.*\n`)

// SetMode implements selinux.setenforce.
func (p Policy) SetMode(mode any) (string, error) {
	var flag, word string
	switch m := mode.(type) {
	case string:
		switch word = strings.ToLower(m); word {
		case "enforcing":
			flag = "1"
		case "permissive", "disabled":
			flag = "0"
		default:
			return "Invalid mode " + m, nil
		}
	case int64, bool:
		// Salt fails to write the configuration file for numbers
		flag, word = "0", "permissive"
		if value.Truth(m) {
			flag, word = "1", "enforcing"
		}
	default:
		return "Invalid mode " + value.Str(mode), nil
	}
	if p.Mode() != "Disabled" {
		if err := p.write(p.Path()+"/enforce", flag); err != nil {
			return "", fn.Errorf("Could not write SELinux enforce file: %w", err)
		}
	}
	b, err := p.M.ReadFile(configFile)
	if err != nil {
		return "", fn.Errorf("Could not read SELinux config file: %w", err)
	}
	if err := p.M.WriteFile(configFile, configLine.ReplaceAll(b, []byte("\nSELINUX="+word+"\n"))); err != nil {
		return "", fn.Errorf("Could not write SELinux config file: %w", err)
	}
	return p.Mode(), nil
}

// Booleans implements selinux.list_sebool.
func (p Policy) Booleans(ctx context.Context) (*value.Dict, error) {
	said, _, err := p.run(ctx, "semanage", "boolean", "-l")
	if err != nil {
		return nil, err
	}
	all := value.NewDict(64)
	for i, line := range strings.Split(said, "\n") {
		// NAME (off , off) DESCRIPTION
		if f := strings.Fields(line); i > 0 && len(f) > 3 {
			all.Set(f[0], value.DictOf("State", strings.TrimPrefix(f[1], "("), "Default", strings.TrimSuffix(f[3], ")"),
				"Description", strings.Join(f[4:], " ")))
		}
	}
	return all, nil
}

// SetBoolean implements selinux.setsebool.
func (p Policy) SetBoolean(ctx context.Context, name, v string, persist bool) (bool, error) {
	return p.setBooleans(ctx, persist, name, v)
}

func (p Policy) setBooleans(ctx context.Context, persist bool, words ...string) (bool, error) {
	words = host.Operands(words...)
	if persist {
		words = append([]string{"-P"}, words...)
	}
	return p.succeeds(ctx, append([]string{"setsebool"}, words...)...)
}

// SetBooleans implements selinux.setsebools.
func (p Policy) SetBooleans(ctx context.Context, pairs *value.Dict, persist bool) (bool, error) {
	var words []string
	for k, v := range pairs.All() {
		words = append(words, value.Str(k)+"="+value.Str(v))
	}
	return p.setBooleans(ctx, persist, words...)
}

// Modules implements selinux.list_semod.
func (p Policy) Modules(ctx context.Context) (*value.Dict, error) {
	help, _, err := p.run(ctx, "semodule", "-h")
	if err != nil {
		return nil, err
	}
	full := false
	for line := range strings.SplitSeq(help, "\n") {
		full = full || strings.HasPrefix(strings.TrimSpace(line), "full")
	}
	words, name, disabled := []string{"semodule", "-l"}, 0, 3
	if full { // PRIORITY NAME LANGUAGE [disabled] instead of NAME VERSION [Disabled]
		words, name, disabled = []string{"semodule", "-lfull"}, 1, 4
	}
	said, _, err := p.run(ctx, words...)
	if err != nil {
		return nil, err
	}
	all := value.NewDict(64)
	for line := range strings.SplitSeq(said, "\n") {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		var version any
		if !full {
			version = f[1]
		}
		all.Set(f[name], value.DictOf("Enabled", len(f) != disabled, "Version", version))
	}
	return all, nil
}

// SetModule implements selinux.setsemod.
func (p Policy) SetModule(ctx context.Context, name, want string) (bool, error) {
	switch strings.ToLower(want) {
	case "enabled":
		return p.succeeds(ctx, "semodule", "-e", name)
	case "disabled":
		return p.succeeds(ctx, "semodule", "-d", name)
	}
	return false, fn.Errorf("the state of a module is Enabled or Disabled, not %s", want)
}

// Install implements selinux.install_semod.
func (p Policy) Install(ctx context.Context, c *fn.Call, path string) (bool, error) {
	if strings.HasPrefix(path, "salt://") {
		v, err := c.Funcs.Call(ctx, c, "cp.cache_file", []any{path}, nil)
		if err != nil {
			return false, err
		}
		if path, _ = v.(string); path == "" {
			return false, nil
		}
	}
	return p.succeeds(ctx, "semodule", "-i", path)
}

// Remove implements selinux.remove_semod.
func (p Policy) Remove(ctx context.Context, name string) (bool, error) {
	return p.succeeds(ctx, "semodule", "-r", name)
}
