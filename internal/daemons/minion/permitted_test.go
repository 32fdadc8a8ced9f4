package minion

import (
	"context"
	"slices"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// TestPermittedModules: neither jobs nor functions and states can call a module
// that the options exclude. The rows were compared with stock Salt except where
// noted.
func TestPermittedModules(t *testing.T) {
	for name, c := range map[string]struct {
		off, only []string
		grains    *value.Dict
		has, not  string
	}{
		"neither":                              {has: "test.ping cmd.run cmdmod.run sys.doc grains.get"},
		"disable_modules":                      {off: []string{"test", "cmdmod"}, has: "sys.doc grains.get state.apply", not: "test.ping cmd.run cmdmod.run"},
		"names of functions (Salt: no effect)": {off: []string{"cmd", "sys"}, has: "test.ping grains.get", not: "cmd.run cmdmod.run sys.doc"},
		"one that is not there":                {off: []string{"nosuch"}, has: "test.ping cmd.run"},
		"apt":                                  {off: []string{"aptpkg"}, has: "lowpkg.list_pkgs", not: "pkg.version"},
		"another system's file":                {off: []string{"yumpkg", "rh_service"}, has: "pkg.version"},
		"whitelist_modules": {only: []string{"test", "state"}, has: "test.ping state.apply",
			not: "cmd.run grains.get sys.doc saltutil.sync_all"},
		"files (Salt: no effect)": {only: []string{"cmdmod", "aptpkg"}, has: "cmd.run pkg.version", not: "test.ping lowpkg.list_pkgs"},
		"both":                    {off: []string{"cmdmod"}, only: []string{"test", "cmd"}, has: "test.ping", not: "cmd.run"},
	} {
		m, err := newMinion(t, func(cfg *Config) {
			cfg.Options.DisableModules, cfg.Options.WhitelistModules = c.off, c.only
			cfg.CollectGrains = func(context.Context) *value.Dict {
				return value.DictOf("os_family", "Debian", "os", "Debian", "kernel", "Linux", "init", "systemd")
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range strings.Fields(c.has) {
			if !m.funcs.Has(f) {
				t.Errorf("%s: there is no %s", name, f)
			}
		}
		for _, f := range strings.Fields(c.not) {
			if _, err := m.funcs.Lookup(f); err == nil || err.Error() != "'"+f+"' is not available." {
				t.Errorf("%s: %s: %v", name, f, err)
			}
			if mod, _, _ := strings.Cut(f, "."); slices.Contains(m.funcs.Modules(), mod) {
				t.Errorf("%s: %s is listed", name, mod)
			}
		}
	}
}

// TestDisabledReturners: no result is sent to a disabled returner.
func TestDisabledReturners(t *testing.T) {
	m, err := newMinion(t, func(cfg *Config) { cfg.Options.DisableReturners = []string{"redis"} })
	if err != nil {
		t.Fatal(err)
	}
	if err := m.caller().Deliver(t.Context(), "redis", "test.ping", nil, fn.Outcome{}); err == nil ||
		!strings.Contains(err.Error(), `there is no returner "redis"`) || strings.Contains(err.Error(), "redis,") || !strings.Contains(err.Error(), "mysql") {
		t.Error(err)
	}
}
