package services

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/initd"
	"brine/internal/host/systemd"
	"brine/internal/py/value"
)

type service struct{ m *host.Machine }

func init() { units.Register("service", serviceModule) }

func serviceModule(m *host.Machine) fn.Module {
	s := service{m}
	var (
		onlyRoot = fn.Params("root")
		plain    = fn.Params("name", "no_block", "unmask", "unmask_runtime")
	)
	return fn.Module{Name: "service", When: s.when, Doc: `Services: units of systemd, or those of OpenRC or System V init where systemd does not run.`,
		Funcs: []fn.Func{
			fn.Of("get_all", s.or(s.getAll, scripts.all), `Return the names of all services.`, onlyRoot, fn.Example("salt '*' service.get_all")),
			fn.Of("get_enabled", s.or(s.inState("enabled"), scripts.enabledOnes), `Return the names of the services that start at boot.`, onlyRoot,
				fn.Example("salt '*' service.get_enabled")),
			fn.Of("get_disabled", s.or(s.inState("disabled"), scripts.disabledOnes), `Return the names of the services that do not start at boot.`, onlyRoot,
				fn.Example("salt '*' service.get_disabled")),
			fn.Of("get_static", s.inState("static"), `Return the names of the units that others start.`, onlyRoot, fn.Example("salt '*' service.get_static")),
			fn.Of("get_running", s.getRunning, `Return the names of the units that run.`, fn.Example("salt '*' service.get_running")),
			fn.Of("available", s.or(s.available, scripts.available), `Say whether there is a service.`, fn.Params("name"),
				fn.Example("salt '*' service.available sshd")),
			fn.Of("missing", s.or(s.missing, scripts.missing), `Say whether there is no such service.`, fn.Params("name"),
				fn.Example("salt '*' service.missing sshd")),
			fn.Of("status", s.status, `Say whether a service runs; of a pattern, for each service that it means.`, fn.Example("salt '*' service.status ssh")),
			fn.Of("enabled", s.enabled, `Say whether a service starts at boot.`, fn.Params("name", "root"), fn.Example("salt '*' service.enabled ssh")),
			fn.Of("disabled", s.or(s.disabled, scripts.disabled), `Say whether a service does not start at boot.`, fn.Params("name", "root"),
				fn.Example("salt '*' service.disabled ssh")),
			fn.Of("start", s.or(s.act("start"), act("start")), `Start a service.`, plain, fn.Default("no_block", "false"),
				fn.Example("salt '*' service.start ssh")),
			fn.Of("stop", s.or(s.stop, act("stop")), `Stop a service.`, fn.Params("name", "no_block"), fn.Example("salt '*' service.stop ssh")),
			fn.Of("restart", s.or(s.act("restart"), act("restart")), `Restart a service, or start it.`, plain, fn.Example("salt '*' service.restart ssh")),
			fn.Of("reload", s.or(s.act("reload"), act("reload")), `Have a service read its configuration again.`, plain, fn.Default("no_block", "false"),
				fn.Example("salt '*' service.reload ssh")),
			fn.Of("force_reload", s.or(s.act("force-reload"), act("force-reload")), `Have a service read its configuration again, or restart it.`, plain,
				fn.Default("no_block", "true"), fn.Example("salt '*' service.force_reload ssh")),
			fn.Of("enable", s.enable, `Have a service start at boot.`, fn.Default("no_block", "false"),
				fn.Params("name", "no_block", "unmask", "unmask_runtime", "root"), fn.Example("salt '*' service.enable ssh")),
			fn.Of("disable", s.disable, `Have a service not start at boot.`, fn.Default("no_block", "false"), fn.Params("name", "no_block", "root"),
				fn.Example("salt '*' service.disable ssh")),
			fn.Of("mask", s.mask, `Have nothing start a service.`, fn.Params("name", "runtime", "root"), fn.Example("salt '*' service.mask ssh")),
			fn.Of("unmask", s.unmask, `Undo service.mask.`, fn.Params("name", "runtime", "root"), fn.Example("salt '*' service.unmask ssh")),
			fn.Of("masked", s.masked, `Say whether nothing can start a service.`, fn.Params("name", "runtime", "root"),
				fn.Example("salt '*' service.masked ssh")),
			fn.Of("show", s.show, `Return all that systemd knows of a service.`, fn.Params("name", "root"), fn.Example("salt '*' service.show ssh")),
			fn.Of("execs", s.execs, `Return the programs of all services.`, onlyRoot, fn.Example("salt '*' service.execs")),
			fn.Of("systemctl_reload", s.daemonReload, `Have systemd read all units again.`, fn.Example("salt '*' service.systemctl_reload")),
			fn.Of("offline", s.offline, `Say whether systemd does not run, so that services can only be enabled and disabled.`,
				fn.Example("salt '*' service.offline")),
		}}
}

func (s service) when(fn.Reader) (string, bool) {
	if _, ok := initd.Find(s.m); !ok && s.m.Which("systemctl") == "" {
		return "only available on Linux systems with systemd, OpenRC or scripts in /etc/init.d", false
	}
	return "", true
}

// args are the arguments of all functions; each takes some of them.
type args struct {
	Name          string `salt:"name" doc:"name of the service, or of another unit with its kind"`
	NoBlock       *bool  `salt:"no_block" doc:"do not wait until it is done; null is to wait for all but the minion itself" default:"null"`
	Unmask        bool   `salt:"unmask" doc:"undo service.mask first" default:"false"`
	UnmaskRuntime bool   `salt:"unmask_runtime" doc:"undo service.mask with runtime first" default:"false"`
	Runtime       bool   `salt:"runtime" doc:"until the next boot only" default:"false"`
	Root          string `salt:"root" doc:"directory that is the root of the file system to work on" default:"null"`
}

// bootArgs are the arguments of functions that accept any keyword.
type bootArgs struct {
	args
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (s service) on(a args) systemd.Machine { return systemd.Machine{Machine: s.m, Below: a.Root} }

// checked rejects names that systemctl would take for an option, and several
// names in one.
func checked(name string) error {
	if name == "" || name[0] == '-' || strings.ContainsAny(name, " \n\x00/") {
		return fn.Invalidf("%q is no name of a service", name)
	}
	return nil
}

func (s service) getAll(_ context.Context, _ *fn.Call, a args) (any, error) {
	return value.Strings(s.on(a).Units()), nil
}

func (s service) inState(state string) function {
	return func(ctx context.Context, _ *fn.Call, a args) (any, error) {
		names, err := s.on(a).InState(ctx, state)
		return value.Strings(names), expected(err)
	}
}

// expected marks an error to be shown to users as it is.
func expected(err error) error {
	if err == nil {
		return nil
	}
	return fn.Errorf("%w", err)
}

func (s service) getRunning(ctx context.Context, _ *fn.Call, _ none) (*value.List, error) {
	names, err := s.on(args{}).Running(ctx)
	return value.Strings(names), expected(err)
}

func (s service) available(ctx context.Context, c *fn.Call, a args) (any, error) {
	return s.refresh(ctx, c, a)
}

func (s service) missing(ctx context.Context, c *fn.Call, a args) (any, error) {
	known, err := s.refresh(ctx, c, a)
	return !known, err
}

// refresh reloads a unit in systemd if its file changed. known reports whether
// the unit exists. It does nothing for another root.
func (s service) refresh(ctx context.Context, c *fn.Call, a args) (known bool, err error) {
	if err := checked(a.Name); err != nil || a.Root != "" {
		return false, err
	}
	m := s.on(args{})
	st, err := m.State(ctx, a.Name)
	if errors.Is(err, systemd.ErrOffline) {
		return false, fn.Errorf("Cannot run in offline mode. Failed to get information on unit '%s'", a.Name)
	}
	if err != nil || !st.Reload {
		return st.Known, expected(err)
	}
	if _, err := s.daemonReload(ctx, c, none{}); err != nil {
		return false, err
	}
	st, err = m.State(ctx, a.Name)
	return st.Known, expected(err)
}

func (s service) daemonReload(ctx context.Context, _ *fn.Call, _ none) (bool, error) {
	out, err := s.on(args{}).Systemctl(ctx, "--system", "daemon-reload")
	if err == nil && out.Exit != 0 {
		err = errors.New("Problem performing systemctl daemon-reload: " + out.Stderr)
	}
	return err == nil, expected(err)
}

type statusArgs struct {
	Name string `salt:"name" doc:"name of the service, or a pattern"`
	Sig  any    `salt:"sig" doc:"regular expression of the process, which counts in place of what the init system says; has no effect with systemd" default:"null"`
}

func (s service) status(ctx context.Context, c *fn.Call, a statusArgs) (any, error) {
	if err := checked(a.Name); err != nil {
		return nil, err
	}
	if init, ok := s.scripts(c); ok {
		return init.status(ctx, a)
	}
	active := func(name string) (bool, error) {
		if _, err := s.refresh(ctx, c, args{Name: name}); err != nil {
			return false, err
		}
		out, err := s.on(args{}).Systemctl(ctx, "is-active", "--", systemd.FullName(name))
		return err == nil && out.Exit == 0, expected(err)
	}
	if !pattern(a.Name) {
		return active(a.Name)
	}
	glob, found := target.ParseGlob(a.Name), value.NewDict(0)
	for _, name := range s.on(args{}).Units() {
		if !glob.Match(name) {
			continue
		}
		on, err := active(name)
		if err != nil {
			return nil, err
		}
		found.Set(name, on)
	}
	return found, nil
}

func pattern(name string) bool {
	open := strings.IndexByte(name, '[')
	return strings.ContainsAny(name, "*?") || open >= 0 && strings.IndexByte(name[open:], ']') > 1
}

func (s service) enabled(ctx context.Context, c *fn.Call, a bootArgs) (bool, error) {
	if init, ok := s.scripts(c); ok {
		return init.startsAtBoot(ctx, a)
	}
	return s.startsAtBoot(ctx, a.args)
}

func (s service) disabled(ctx context.Context, _ *fn.Call, a args) (any, error) {
	on, err := s.startsAtBoot(ctx, a)
	return !on && err == nil, err
}

func (s service) startsAtBoot(ctx context.Context, a args) (bool, error) {
	if err := checked(a.Name); err != nil {
		return false, err
	}
	m := s.on(a)
	is := func(name string) (host.Output, error) {
		out, err := m.Systemctl(ctx, "is-enabled", "--", systemd.FullName(name))
		return out, expected(err)
	}
	out, err := is(a.Name)
	switch {
	case err != nil:
		return false, err
	case out.Stdout == "alias":
		show, err := m.Systemctl(ctx, "show", "--property=Id", "--", systemd.FullName(a.Name))
		if err != nil {
			return false, expected(err)
		}
		out, err = is(strings.TrimPrefix(show.Stdout, "Id="))
		return err == nil && out.Exit == 0, err
	case out.Exit == 0:
		return true, nil
	case strings.Contains(a.Name, "@"):
		return s.linked(a), nil
	}
	return m.Script(a.Name) && m.ScriptEnabled(ctx, a.Name), nil
}

// linked reports whether a unit made from a template is wanted by another
// unit.
func (s service) linked(a args) bool {
	dir := filepath.Join("/", a.Root, "/etc/systemd/system")
	for _, sub := range s.m.List(dir) {
		for _, name := range s.m.List(dir + "/" + sub) {
			if name == a.Name || name == systemd.FullName(a.Name) {
				return true
			}
		}
	}
	return false
}

// block returns the option about waiting: by default, systemctl does not wait
// for the minion's own service, since the minion could not report the result.
func block(a args) []string {
	own := a.NoBlock == nil && systemd.FullName(a.Name) == "salt-minion.service"
	if own || a.NoBlock != nil && *a.NoBlock {
		return []string{"--no-block"}
	}
	return nil
}

// perform reloads and unmasks the unit as requested, and then runs the action.
func (s service) perform(ctx context.Context, c *fn.Call, a args, action ...string) (host.Output, error) {
	if _, err := s.refresh(ctx, c, a); err != nil {
		return host.Output{}, err
	}
	for _, runtime := range []bool{false, true} {
		if runtime && a.UnmaskRuntime || !runtime && a.Unmask {
			a.Runtime = runtime
			if _, err := s.unmask(ctx, c, a); err != nil {
				return host.Output{}, err
			}
		}
	}
	words := append(block(a), action...)
	out, err := s.on(a).Systemctl(ctx, append(words, "--", systemd.FullName(a.Name))...)
	return out, expected(err)
}

// failed returns the output of systemctl as an error.
func failed(out host.Output) error {
	text := out.Stderr
	if text == "" {
		text = out.Stdout
	}
	return fn.Errorf("%s", text)
}

func (s service) act(action string) function {
	return func(ctx context.Context, c *fn.Call, a args) (any, error) {
		out, err := s.perform(ctx, c, a, action)
		if err == nil && out.Exit != 0 {
			err = failed(out)
		}
		return err == nil, err
	}
}

func (s service) stop(ctx context.Context, c *fn.Call, a args) (any, error) {
	out, err := s.perform(ctx, c, a, "stop")
	return err == nil && out.Exit == 0, err
}

func (s service) enable(ctx context.Context, c *fn.Call, a bootArgs) (any, error) {
	if init, ok := s.scripts(c); ok {
		return init.change(ctx, c, a, init.Enable)
	}
	if ok, done, err := s.script(ctx, a.args, true); done || err != nil {
		return ok, err
	}
	return s.act("enable")(ctx, c, a.args)
}

func (s service) disable(ctx context.Context, c *fn.Call, a bootArgs) (any, error) {
	if init, ok := s.scripts(c); ok {
		return init.change(ctx, c, a, init.Disable)
	}
	if ok, done, err := s.script(ctx, a.args, false); done || err != nil {
		return ok, err
	}
	out, err := s.perform(ctx, c, a.args, "disable")
	return err == nil && out.Exit == 0, err
}

// script enables or disables a System V init script. done is false if there is
// no script of that name.
func (s service) script(ctx context.Context, a args, on bool) (ok, done bool, err error) {
	if err := checked(a.Name); err != nil || !s.on(a).Script(a.Name) {
		return false, false, err
	}
	program, words := "update-rc.d", []string{"-f", a.Name, "remove"}
	if on {
		words = []string{"-f", a.Name, "defaults", "99"}
	}
	if s.m.Which(program) == "" {
		program, words = "chkconfig", []string{a.Name, map[bool]string{true: "on", false: "off"}[on]}
	}
	out, err := s.m.Do(ctx, program, words...)
	if err != nil {
		return false, true, fn.Errorf("Unable to find sysv service manager (tried update-rc.d, chkconfig): %w", err)
	}
	return out.Exit == 0, true, nil
}

func (s service) mask(ctx context.Context, c *fn.Call, a args) (bool, error) {
	out, err := s.perform(ctx, c, args{Name: a.Name, Root: a.Root, NoBlock: new(bool)}, maskWords("mask", a.Runtime)...)
	if err == nil && out.Exit != 0 {
		err = fn.Errorf("Failed to mask service '%s'. Additional info follows:\n\n%w", a.Name, failed(out))
	}
	return err == nil, err
}

func (s service) unmask(ctx context.Context, c *fn.Call, a args) (bool, error) {
	if on, err := s.masked(ctx, c, a); err != nil || !on {
		return err == nil, err
	}
	out, err := s.perform(ctx, c, args{Name: a.Name, Root: a.Root, NoBlock: new(bool)}, maskWords("unmask", a.Runtime)...)
	if err == nil && out.Exit != 0 {
		err = fn.Errorf("Failed to unmask service '%s'. Additional info follows:\n\n%w", a.Name, failed(out))
	}
	return err == nil, err
}

func maskWords(action string, runtime bool) []string {
	if runtime {
		return []string{action, "--runtime"}
	}
	return []string{action}
}

func (s service) masked(_ context.Context, _ *fn.Call, a args) (bool, error) {
	if err := checked(a.Name); err != nil {
		return false, err
	}
	return s.on(a).Masked(a.Name, a.Runtime), nil
}

func (s service) show(ctx context.Context, _ *fn.Call, a args) (*value.Dict, error) {
	if err := checked(a.Name); err != nil {
		return nil, err
	}
	out, err := s.on(a).Systemctl(ctx, "show", "--", systemd.FullName(a.Name))
	if err != nil {
		return nil, expected(err)
	}
	if out.Exit != 0 {
		return nil, failed(out)
	}
	return properties(out.Stdout), nil
}

// properties parses the output of systemctl show.
func properties(text string) *value.Dict {
	d := value.NewDict(64)
	for line := range strings.SplitSeq(text, "\n") {
		key, v, ok := strings.Cut(line, "=")
		switch {
		case !ok:
		case strings.HasPrefix(v, "{"):
			parts := value.NewDict(8)
			for part := range strings.SplitSeq(strings.NewReplacer("{", "", "}", "").Replace(v), " ; ") {
				if k, w, ok := strings.Cut(part, "="); ok {
					parts.Set(strings.TrimSpace(k), strings.TrimSpace(w))
				}
			}
			d.Set(key, parts)
		case key == "Before" || key == "After" || key == "Wants":
			d.Set(key, value.Strings(strings.Fields(v)))
		default:
			d.Set(key, v)
		}
	}
	return d
}

func (s service) execs(ctx context.Context, c *fn.Call, a args) (*value.Dict, error) {
	found := value.NewDict(0)
	for _, name := range s.on(a).Units() {
		d, err := s.show(ctx, c, args{Name: name, Root: a.Root})
		if err != nil {
			return nil, err
		}
		if start := d.Dict("ExecStart"); start != nil {
			found.Set(name, start.At("path"))
		}
	}
	return found, nil
}

func (s service) offline(context.Context, *fn.Call, none) (bool, error) {
	return !s.m.IsDir("/run/systemd/system") && s.m.Which("systemctl") != "", nil
}
