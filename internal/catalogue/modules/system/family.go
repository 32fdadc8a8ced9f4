// Package system holds the execution modules for the machine itself: disk,
// status, ps, timezone, locale, kmod, system, mount, sysctl, cron and aliases. They are skins over the
// packages below host.
package system

import (
	"context"
	"strconv"

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

// run runs a program that has to succeed.
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

// number makes a number of a text that is one.
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
