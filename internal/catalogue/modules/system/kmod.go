package system

import (
	"context"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

type kmod struct{ m *host.Machine }

func kmodModule(m *host.Machine) fn.Module {
	k := kmod{m}
	return fn.Module{Name: "kmod", Doc: `Modules of the kernel.`, Funcs: []fn.Func{
		fn.Of("available", k.available, `Return the names of all modules that there are.`, fn.Example("salt '*' kmod.available")),
		fn.Of("check_available", k.checkAvailable, `Say whether there is a module.`, fn.Example("salt '*' kmod.check_available kvm")),
		fn.Of("lsmod", k.lsmod, `Return the loaded modules with size and users.`, fn.Example("salt '*' kmod.lsmod")),
		fn.Of("mod_list", k.modList, `Return the names of the loaded modules, or of those that are loaded at boot.`, fn.Example("salt '*' kmod.mod_list")),
		fn.Of("is_loaded", k.isLoaded, `Say whether a module is loaded.`, fn.Example("salt '*' kmod.is_loaded kvm")),
		fn.Of("load", k.load, `Load a module, and return the names of those that are new.`, fn.Example("salt '*' kmod.load kvm")),
		fn.Of("remove", k.remove, `Unload a module, and return the names of those that are gone.`, fn.Example("salt '*' kmod.remove kvm")),
	}}
}

func (k kmod) available(context.Context, *fn.Call, none) (*value.List, error) {
	dir := "/lib/modules/" + k.m.Uname().Release
	var names []string
	for _, line := range k.m.Lines(dir + "/modules.builtin") {
		names = append(names, strings.TrimSuffix(path.Base(line), ".ko"))
	}
	root := k.m.Path(dir)
	_ = filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // what cannot be read has no modules for us
		}
		if name, _, ok := strings.Cut(e.Name(), ".ko"); ok && !e.IsDir() {
			names = append(names, strings.ReplaceAll(name, "-", "_"))
		}
		return nil
	})
	slices.Sort(names)
	return value.Strings(names), nil
}

type modArgs struct {
	Mod string `salt:"mod" doc:"name of the module"`
}

func (k kmod) checkAvailable(ctx context.Context, c *fn.Call, a modArgs) (bool, error) {
	all, err := k.available(ctx, c, none{})
	return slices.Contains(all.Items, any(a.Mod)), err
}

func (k kmod) lsmod(context.Context, *fn.Call, none) (*value.List, error) {
	out := &value.List{}
	for _, line := range k.m.Lines("/proc/modules") {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		deps := &value.List{}
		for dep := range strings.SplitSeq(f[3], ",") {
			if dep != "" && dep != "-" {
				deps.Append(dep)
			}
		}
		out.Append(value.DictOf("size", f[1], "module", f[0], "depcount", f[2], "deps", deps))
	}
	return out, nil
}

// loaded returns the sorted names of the loaded modules.
func (k kmod) loaded() []string {
	var names []string
	for _, line := range k.m.Lines("/proc/modules") {
		if name, _, ok := strings.Cut(line, " "); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// bootList is the file of the modules to load at boot.
func (k kmod) bootList(c *fn.Call) string {
	if c.Grains.Get("systemd") != nil {
		return "/etc/modules-load.d/salt_managed.conf"
	}
	return "/etc/modules"
}

// atBoot returns the sorted names in the file of modules to load at boot.
func (k kmod) atBoot(c *fn.Call) []string {
	var names []string
	for _, line := range k.m.Lines(k.bootList(c)) {
		if f := strings.Fields(line); len(f) > 0 && f[0][0] != '#' {
			names = append(names, f[0])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

type modListArgs struct {
	OnlyPersist bool `salt:"only_persist" doc:"those that are loaded at boot" default:"false"`
}

func (k kmod) modList(_ context.Context, c *fn.Call, a modListArgs) (*value.List, error) {
	if a.OnlyPersist {
		return value.Strings(k.atBoot(c)), nil
	}
	return value.Strings(k.loaded()), nil
}

func (k kmod) isLoaded(_ context.Context, _ *fn.Call, a modArgs) (bool, error) {
	return slices.Contains(k.loaded(), a.Mod), nil
}

type loadArgs struct {
	Mod     string `salt:"mod" doc:"name of the module, possibly with its parameters"`
	Persist bool   `salt:"persist" doc:"load it at boot too" default:"false"`
}

// words refuses what modprobe would take for options.
func words(mod string) ([]string, error) {
	f := strings.Fields(mod)
	if len(f) == 0 || slices.ContainsFunc(f, func(w string) bool { return w[0] == '-' || strings.Contains(w, "/") }) {
		return nil, fn.Invalidf("%q is no name of a module", mod)
	}
	return f, nil
}

func (k kmod) load(ctx context.Context, c *fn.Call, a loadArgs) (any, error) {
	args, err := words(a.Mod)
	if err != nil {
		return nil, err
	}
	before := k.loaded()
	out, err := k.m.Do(ctx, "modprobe", args...)
	if err != nil {
		return nil, fn.Errorf("cannot run modprobe: %w", err)
	}
	if out.Exit != 0 {
		return "Error loading module " + a.Mod + ": " + said(out), nil
	}
	changed := without(k.loaded(), before)
	if a.Persist && !slices.Contains(k.atBoot(c), args[0]) {
		if err := k.editBoot(c, func(lines []string) []string { return append(lines, strings.Join(args, " ")) }); err != nil {
			return nil, err
		}
		changed = append(changed, args[0])
	}
	return sortedNames(changed), nil
}

// without returns what is in a and not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

func sortedNames(names []string) *value.List {
	slices.Sort(names)
	return value.Strings(slices.Compact(names))
}

// editBoot changes the file of modules to load at boot.
func (k kmod) editBoot(c *fn.Call, edit func(lines []string) []string) error {
	file := k.bootList(c)
	text := strings.Join(edit(k.m.Lines(file)), "\n")
	if text != "" {
		text += "\n"
	}
	if err := atomicfile.Write(k.m.Path(file), []byte(text), 0o644, false); err != nil {
		return fn.Errorf("cannot write the modules to load at boot: %w", err)
	}
	return nil
}

type removeArgs struct {
	Mod     string `salt:"mod" doc:"name of the module"`
	Persist bool   `salt:"persist" doc:"do not load it at boot any more" default:"false"`
	Comment bool   `salt:"comment" doc:"with persist: make its line a comment instead of removing it" default:"true"`
}

func (k kmod) remove(ctx context.Context, c *fn.Call, a removeArgs) (any, error) {
	args, err := words(a.Mod)
	if err != nil {
		return nil, err
	}
	before := k.loaded()
	out, err := k.m.Do(ctx, "rmmod", args[0])
	if err != nil {
		return nil, fn.Errorf("cannot run rmmod: %w", err)
	}
	if out.Exit != 0 {
		return "Error removing module " + a.Mod + ": " + said(out), nil
	}
	changed := without(before, k.loaded())
	if a.Persist && slices.Contains(k.atBoot(c), args[0]) {
		err := k.editBoot(c, func(lines []string) []string {
			var kept []string
			for _, line := range lines {
				if f := strings.Fields(line); len(f) == 0 || f[0] != args[0] {
					kept = append(kept, line)
				} else if a.Comment {
					kept = append(kept, "#"+line)
				}
			}
			return kept
		})
		if err != nil {
			return nil, err
		}
		changed = append(changed, args[0])
	}
	return sortedNames(changed), nil
}
