// Package kmod reads, loads and unloads modules of the Linux kernel, now and at
// boot.
package kmod

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/host"
)

// Kernel manages the kernel modules of a machine.
type Kernel struct {
	M *host.Machine
	// Systemd means that systemd loads the modules at boot.
	Systemd bool
}

// ProgramError means that modprobe or rmmod failed.
type ProgramError struct{ Doing, Module, Said string }

func (e *ProgramError) Error() string {
	return "Error " + e.Doing + " module " + e.Module + ": " + e.Said
}

// Available returns the sorted names of all installed modules.
func (k Kernel) Available() []string {
	dir := "/lib/modules/" + k.M.Uname().Release
	var names []string
	for _, line := range k.M.Lines(dir + "/modules.builtin") {
		names = append(names, strings.TrimSuffix(path.Base(line), ".ko"))
	}
	_ = filepath.WalkDir(k.M.Path(dir), func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // an unreadable directory counts as empty
		}
		if name, _, ok := strings.Cut(e.Name(), ".ko"); ok && !e.IsDir() {
			names = append(names, strings.ReplaceAll(name, "-", "_"))
		}
		return nil
	})
	slices.Sort(names)
	return names
}

// Module is a loaded module. Size and Users are as the kernel prints them.
type Module struct {
	Name, Size, Users string
	UsedBy            []string
}

// Modules returns the loaded modules in the kernel's order.
func (k Kernel) Modules() []Module {
	var out []Module
	for _, line := range k.M.Lines("/proc/modules") {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		m := Module{Name: f[0], Size: f[1], Users: f[2]}
		for user := range strings.SplitSeq(f[3], ",") {
			if user != "" && user != "-" {
				m.UsedBy = append(m.UsedBy, user)
			}
		}
		out = append(out, m)
	}
	return out
}

// Loaded returns the sorted names of the loaded modules.
func (k Kernel) Loaded() []string {
	var names []string
	for _, line := range k.M.Lines("/proc/modules") {
		if name, _, ok := strings.Cut(line, " "); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// bootList returns the path of the file of modules to load at boot.
func (k Kernel) bootList() string {
	if k.Systemd {
		return "/etc/modules-load.d/salt_managed.conf"
	}
	return "/etc/modules"
}

// AtBoot returns the sorted names in the file of modules to load at boot.
func (k Kernel) AtBoot() []string {
	var names []string
	for _, line := range k.M.Lines(k.bootList()) {
		if f := strings.Fields(line); len(f) > 0 && f[0][0] != '#' {
			names = append(names, f[0])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// words rejects arguments that modprobe would parse as options.
func words(mod string) ([]string, error) {
	f := strings.Fields(mod)
	if len(f) == 0 || slices.ContainsFunc(f, func(w string) bool { return w[0] == '-' || strings.Contains(w, "/") }) {
		return nil, host.Invalidf("%q is no name of a module", mod)
	}
	return f, nil
}

// Load loads a module, given by its name and possibly parameters, and with
// persist also at boot. It returns the sorted names of new modules.
func (k Kernel) Load(ctx context.Context, mod string, persist bool) ([]string, error) {
	args, err := words(mod)
	if err != nil {
		return nil, err
	}
	before := k.Loaded()
	if err := k.run(ctx, "loading", mod, "modprobe", args...); err != nil {
		return nil, err
	}
	changed := without(k.Loaded(), before)
	if persist && !slices.Contains(k.AtBoot(), args[0]) {
		if err := k.editBoot(func(lines []string) []string { return append(lines, strings.Join(args, " ")) }); err != nil {
			return nil, err
		}
		changed = append(changed, args[0])
	}
	slices.Sort(changed)
	return slices.Compact(changed), nil
}

func (k Kernel) run(ctx context.Context, doing, mod, program string, args ...string) error {
	out, err := k.M.Do(ctx, program, args...)
	if err != nil {
		return fmt.Errorf("cannot run %s: %w", program, err)
	}
	if out.Exit != 0 {
		return &ProgramError{doing, mod, out.Message()}
	}
	return nil
}

// without returns the items of a that are not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// editBoot changes the file of modules to load at boot.
func (k Kernel) editBoot(edit func(lines []string) []string) error {
	file := k.bootList()
	text := strings.Join(edit(k.M.Lines(file)), "\n")
	if text != "" {
		text += "\n"
	}
	if err := atomicfile.Write(k.M.Path(file), []byte(text), 0o644, false); err != nil {
		return fmt.Errorf("cannot write the modules to load at boot: %w", err)
	}
	return nil
}

// Remove unloads a module, and with persist no longer loads it at boot: its line
// becomes a comment or is removed. It returns the sorted names of modules that
// are gone.
func (k Kernel) Remove(ctx context.Context, mod string, persist, comment bool) ([]string, error) {
	args, err := words(mod)
	if err != nil {
		return nil, err
	}
	before := k.Loaded()
	if err := k.run(ctx, "removing", mod, "rmmod", args[0]); err != nil {
		return nil, err
	}
	changed := without(before, k.Loaded())
	if persist && slices.Contains(k.AtBoot(), args[0]) {
		err := k.editBoot(func(lines []string) []string {
			var kept []string
			for _, line := range lines {
				if f := strings.Fields(line); len(f) == 0 || f[0] != args[0] {
					kept = append(kept, line)
				} else if comment {
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
	slices.Sort(changed)
	return slices.Compact(changed), nil
}
