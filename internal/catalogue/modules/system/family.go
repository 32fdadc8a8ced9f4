// Package system holds the execution modules for the machine itself: disk, status, ps, timezone,
// locale, kmod, system, mount, sysctl, cron, aliases and others. They use the packages below host.
package system

import (
	"context"
	"strconv"

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

// run runs a program and returns an error if it fails.
func run(ctx context.Context, m *host.Machine, program string, args ...string) (string, error) {
	out, err := m.Do(ctx, program, args...)
	if err != nil {
		return "", fn.Errorf("cannot run %s: %w", program, err)
	}
	if out.Exit != 0 {
		return "", fn.Errorf("%s failed: %s", program, out.Message())
	}
	return out.Stdout, nil
}

// number converts a string to a number if it is one.
func number(s string) any {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i
	}
	if u, err := strconv.ParseUint(s, 10, 64); err == nil {
		return value.From(u)
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return f
	}
	return s
}

func numbers(words []string) *value.List {
	l := &value.List{Items: make([]any, len(words))}
	for i, w := range words {
		l.Items[i] = number(w)
	}
	return l
}
