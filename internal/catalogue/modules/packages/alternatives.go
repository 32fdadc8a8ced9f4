package packages

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/packages"
	"brine/internal/py/value"
)

type choices struct{ m *host.Machine }

func init() { units.Register("alternatives", alternativesModule) }

func alternativesModule(m *host.Machine) fn.Module {
	a := choices{m}
	when := func(fn.Reader) (string, bool) {
		if !m.IsDir("/etc/alternatives") {
			return "Cannot load alternatives module: /etc/alternatives dir not found", false
		}
		return "", true
	}
	return fn.Module{Name: "alternatives", When: when, Doc: `Which of several programs stands behind a name.`, Funcs: []fn.Func{
		fn.Of("display", a.display, `Return what there is for a name.`, fn.Example("salt '*' alternatives.display editor")),
		fn.Of("show_link", a.link, `Return the link of a name.`, fn.Example("salt '*' alternatives.show_link editor")),
		fn.Of("show_current", a.current, `Return the path that a name stands for, or false.`, fn.Example("salt '*' alternatives.show_current editor")),
		fn.Of("check_exists", a.exists, `Say whether a path could stand behind a name.`, fn.Example("salt '*' alternatives.check_exists editor /usr/bin/vi")),
		fn.Of("check_installed", a.installed, `Say whether a path stands behind a name.`,
			fn.Example("salt '*' alternatives.check_installed editor /usr/bin/vi")),
		fn.Of("install", a.install, `Let a path be one of those behind a name.`,
			fn.Example("salt '*' alternatives.install editor /usr/bin/editor /usr/bin/emacs23 50")),
		fn.Of("remove", a.remove, `Remove a path from those behind a name.`, fn.Example("salt '*' alternatives.remove editor /usr/bin/vi")),
		fn.Of("auto", a.auto, `Let the priorities decide.`, fn.Example("salt '*' alternatives.auto editor")),
		fn.Of("set", a.set, `Let a path stand behind a name.`, fn.Example("salt '*' alternatives.set editor /usr/bin/vi")),
	}}
}

type alternativeArgs struct {
	Name     string `salt:"name" doc:"the name"`
	Link     string `salt:"link" doc:"link that programs use"`
	Path     string `salt:"path" doc:"path behind the name"`
	Priority any    `salt:"priority" doc:"the highest is used"`
}

func (a choices) at(c *fn.Call) packages.Alternatives {
	program := "update-alternatives"
	if c.Grains.Get("os_family") == "RedHat" {
		program = "alternatives"
	}
	return packages.Alternatives{Machine: a.m, Program: program}
}

func (a choices) run(ctx context.Context, c *fn.Call, args ...string) (string, error) {
	said, _, err := a.at(c).Run(ctx, args...)
	return said, expected(err)
}

type altName struct {
	Name string `salt:"name" doc:"the name"`
}

type altPath struct {
	Name string `salt:"name" doc:"the name"`
	Path string `salt:"path" doc:"path behind the name"`
}

func (a choices) display(ctx context.Context, c *fn.Call, x altName) (string, error) {
	return a.run(ctx, c, "--display", x.Name)
}

func (a choices) link(ctx context.Context, c *fn.Call, x altName) (any, error) {
	if c.Grains.Get("os_family") == "RedHat" {
		if lines := a.m.Lines("/var/lib/alternatives/" + x.Name); len(lines) > 1 {
			return lines[1], nil
		}
		return false, nil
	}
	said, ok, err := a.at(c).Run(ctx, "--query", x.Name)
	if err != nil || !ok {
		return false, expected(err)
	}
	for line := range strings.SplitSeq(said, "\n") {
		if path, found := strings.CutPrefix(line, "Link: "); found {
			return path, nil
		}
	}
	return false, nil
}

func (a choices) current(_ context.Context, c *fn.Call, x altName) (any, error) {
	if path := a.at(c).Current(x.Name); path != "" {
		return path, nil
	}
	return false, nil
}

func (a choices) exists(ctx context.Context, c *fn.Call, x altPath) (bool, error) {
	said, ok, err := a.at(c).Run(ctx, "--display", x.Name)
	if err != nil || !ok {
		return false, expected(err)
	}
	for line := range strings.SplitSeq(said, "\n") {
		if strings.HasPrefix(line, x.Path) {
			return true, nil
		}
	}
	return false, nil
}

func (a choices) installed(_ context.Context, c *fn.Call, x altPath) (bool, error) {
	current := a.at(c).Current(x.Name)
	return current != "" && current == x.Path, nil
}

func (a choices) install(ctx context.Context, c *fn.Call, x alternativeArgs) (string, error) {
	return a.run(ctx, c, "--install", x.Link, x.Name, x.Path, value.Str(x.Priority))
}

func (a choices) remove(ctx context.Context, c *fn.Call, x altPath) (string, error) {
	return a.run(ctx, c, "--remove", x.Name, x.Path)
}

func (a choices) auto(ctx context.Context, c *fn.Call, x altName) (string, error) {
	return a.run(ctx, c, "--auto", x.Name)
}

func (a choices) set(ctx context.Context, c *fn.Call, x altPath) (string, error) {
	return a.run(ctx, c, "--set", x.Name, x.Path)
}
