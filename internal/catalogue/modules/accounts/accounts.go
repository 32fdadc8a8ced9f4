// Package accounts holds the execution modules for users, groups and
// passwords: user, group, shadow and ssh. They are skins over host/account and the
// programs of the shadow suite (useradd, groupadd, chage and so on).
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

// none is the argument of functions without any.
type none struct{}

// units are the modules, which their files register.
var units = modules.Family()

// Modules returns the modules of this family.
func Modules(m *host.Machine) []fn.Module { return units.Modules(m) }

// rootArg is the argument that names another root of the file system.
type rootArg struct {
	Root string `salt:"root" doc:"directory that is the root of the file system to work on" default:"null"`
}

// below returns the machine whose files lie below the root.
func (a rootArg) below(m *host.Machine) *host.Machine {
	if a.Root == "" {
		return m
	}
	return &host.Machine{Root: filepath.Join("/", m.Root, a.Root)}
}

// change says what programs are reported the root.
func (a rootArg) change(option string) []string {
	if a.Root == "" {
		return nil
	}
	return []string{option, a.Root}
}

// plainName refuses names that a program would take for an option, or that
// would break the files.
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

// list reads names as a list, or as a text with commas.
func list(v any) []string {
	switch v.(type) {
	case *value.List, string:
		return value.Split(v)
	}
	return nil
}
