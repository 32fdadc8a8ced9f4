// Package webutil implements the execution module and the state webutil: user files of web
// servers.
package webutil

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// Htpasswd runs htpasswd(1) on a machine.
type Htpasswd struct{ M *host.Machine }

// run runs htpasswd through the cmd module.
func (w Htpasswd) run(ctx context.Context, c *fn.Call, runas any, words ...string) (*value.Dict, error) {
	kw := value.DictOf("python_shell", false, "output_loglevel", "quiet")
	if value.Truth(runas) {
		kw.Set("runas", runas)
	}
	v, err := c.Funcs.Call(ctx, c, "cmd.run_all", []any{value.Strings(append([]string{"htpasswd"}, words...))}, kw)
	d, _ := v.(*value.Dict)
	return d, err
}

// Args are the arguments of Add, Verify.
type Args struct {
	File     string `salt:"pwfile" doc:"path of the file"`
	User     string `salt:"user" doc:"user"`
	Password string `salt:"password" doc:"password"`
	Opts     string `salt:"opts" doc:"options of htpasswd, as letters" default:""`
	RunAs    any    `salt:"runas" doc:"user to run htpasswd as" default:"null"`
}

// Add implements webutil.useradd.
func (w Htpasswd) Add(ctx context.Context, c *fn.Call, a Args) (*value.Dict, error) {
	if !w.M.Exists(a.File) {
		a.Opts += "c"
	}
	return w.run(ctx, c, a.RunAs, append([]string{"-b" + a.Opts}, host.Operands(a.File, a.User, a.Password)...)...)
}

// RemoveArgs are the arguments of Remove.
type RemoveArgs struct {
	File  string `salt:"pwfile" doc:"path of the file"`
	User  string `salt:"user" doc:"user"`
	RunAs any    `salt:"runas" doc:"user to run htpasswd as" default:"null"`
	All   bool   `salt:"all_results" doc:"return a map with the exit status, too" default:"false"`
}

// Remove implements webutil.userdel.
func (w Htpasswd) Remove(ctx context.Context, c *fn.Call, a RemoveArgs) (any, error) {
	if !w.M.Exists(a.File) {
		return "Error: The specified htpasswd file does not exist", nil
	}
	d, err := w.run(ctx, c, a.RunAs, append([]string{"-D"}, host.Operands(a.File, a.User)...)...)
	if err != nil || a.All {
		return d, err
	}
	lines := &value.List{}
	for line := range strings.Lines(d.Str("stdout") + d.Str("stderr")) {
		lines.Append(strings.TrimRight(line, "\n"))
	}
	return lines, nil
}

// Verify implements webutil.verify.
func (w Htpasswd) Verify(ctx context.Context, c *fn.Call, a Args) (bool, error) {
	if !w.M.Exists(a.File) {
		return false, nil
	}
	d, err := w.run(ctx, c, a.RunAs, append([]string{"-bv" + a.Opts}, host.Operands(a.File, a.User, a.Password)...)...)
	return err == nil && d.Int("retcode") == 0, err
}
