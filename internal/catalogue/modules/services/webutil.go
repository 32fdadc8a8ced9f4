package services

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// webutil asks htpasswd(1).
type webutil struct{ m *host.Machine }

func init() { units.Register("webutil", webutilModule) }

func webutilModule(m *host.Machine) fn.Module {
	w := webutil{m}
	when := func(fn.Reader) (string, bool) {
		return "The htpasswd execution mdule cannot be loaded: htpasswd binary not in path.", m.Which("htpasswd") != ""
	}
	return fn.Module{Name: "webutil", When: when, Doc: `Files of users and passwords for web servers, by htpasswd.`, Funcs: []fn.Func{
		fn.Of("useradd", w.add, `Add a user, or change the password of one. The file is made if need be.`,
			fn.Example("salt '*' webutil.useradd /etc/httpd/htpasswd larry badpassword opts=ns")),
		fn.Of("userdel", w.remove, `Remove a user.`, fn.Example("salt '*' webutil.userdel /etc/httpd/htpasswd larry")),
		fn.Of("verify", w.verify, `Say whether a password is that of a user.`,
			fn.Example("salt '*' webutil.verify /etc/httpd/htpasswd larry maybepassword opts=ns")),
	}}
}

// run runs htpasswd by way of the module cmd.
func (w webutil) run(ctx context.Context, c *fn.Call, runas any, words ...string) (*value.Dict, error) {
	kw := value.DictOf("python_shell", false, "output_loglevel", "quiet")
	if value.Truth(runas) {
		kw.Set("runas", runas)
	}
	v, err := c.Funcs.Call(ctx, c, "cmd.run_all", []any{value.Strings(append([]string{"htpasswd"}, words...))}, kw)
	d, _ := v.(*value.Dict)
	return d, err
}

type webutilArgs struct {
	File     string `salt:"pwfile" doc:"path of the file"`
	User     string `salt:"user" doc:"user"`
	Password string `salt:"password" doc:"password"`
	Opts     string `salt:"opts" doc:"options of htpasswd, as letters" default:""`
	RunAs    any    `salt:"runas" doc:"user to run htpasswd as" default:"null"`
}

func (w webutil) add(ctx context.Context, c *fn.Call, a webutilArgs) (*value.Dict, error) {
	if !w.m.Exists(a.File) {
		a.Opts += "c"
	}
	return w.run(ctx, c, a.RunAs, "-b"+a.Opts, a.File, a.User, a.Password)
}

type webutilRemoveArgs struct {
	File  string `salt:"pwfile" doc:"path of the file"`
	User  string `salt:"user" doc:"user"`
	RunAs any    `salt:"runas" doc:"user to run htpasswd as" default:"null"`
	All   bool   `salt:"all_results" doc:"return a map with the exit status, too" default:"false"`
}

func (w webutil) remove(ctx context.Context, c *fn.Call, a webutilRemoveArgs) (any, error) {
	if !w.m.Exists(a.File) {
		return "Error: The specified htpasswd file does not exist", nil
	}
	d, err := w.run(ctx, c, a.RunAs, "-D", a.File, a.User)
	if err != nil || a.All {
		return d, err
	}
	lines := &value.List{}
	for line := range strings.Lines(d.Str("stdout") + d.Str("stderr")) {
		lines.Append(strings.TrimRight(line, "\n"))
	}
	return lines, nil
}

func (w webutil) verify(ctx context.Context, c *fn.Call, a webutilArgs) (bool, error) {
	if !w.m.Exists(a.File) {
		return false, nil
	}
	d, err := w.run(ctx, c, a.RunAs, "-bv"+a.Opts, a.File, a.User, a.Password)
	return err == nil && d.Int("retcode") == 0, err
}
