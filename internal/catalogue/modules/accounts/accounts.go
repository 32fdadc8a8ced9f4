// Package accounts holds the execution modules for users, groups and passwords:
// user, group, shadow and ssh. They use host/account and the programs of the shadow
// suite (useradd, groupadd, chage and so on).
package accounts

import (
	"context"
	"path/filepath"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules"
	"brine/internal/host"
	"brine/internal/py/value"
)

// none is the argument type of functions without arguments.
type none struct{}

// units holds the modules, which the files of this package register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules(m *host.Machine) []fn.Module { return units.Modules(m) }

// rootArg is the argument for another root directory.
type rootArg struct {
	Root string `salt:"root" doc:"directory that is the root of the file system to work on" default:"null"`
}

// below returns the machine whose files are below the root.
func (a rootArg) below(m *host.Machine) *host.Machine {
	if a.Root == "" {
		return m
	}
	return &host.Machine{Root: filepath.Join("/", m.Root, a.Root)}
}

// change returns the option that tells a program the root.
func (a rootArg) change(option string) []string {
	if a.Root == "" {
		return nil
	}
	return []string{option, a.Root}
}

// plainName rejects names that a program would take for an option, or that would
// corrupt the files.
func plainName(what, name string) error {
	if name == "" || name[0] == '-' || strings.ContainsAny(name, ":\n\x00") {
		return fn.Invalidf("%q is no name of a %s", name, what)
	}
	return nil
}

// do runs a program that changes accounts, and logs why it failed.
func do(ctx context.Context, c *fn.Call, m *host.Machine, program string, args ...string) (host.Output, error) {
	out, err := m.Do(ctx, program, args...)
	if err != nil {
		return out, fn.Errorf("cannot run %s: %w", program, err)
	}
	if out.Exit != 0 {
		c.Log.Error("program failed", "program", program, "exit", out.Exit, "stderr", out.Stderr)
	}
	return out, nil
}

// list reads names from a list or a comma-separated string.
func list(v any) []string {
	switch v.(type) {
	case *value.List, string:
		return value.Split(v)
	}
	return nil
}
