package minion

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/base/field"
	"brine/internal/daemons/minion/roles"
	"brine/internal/net/transport/zeromq"
	"brine/internal/py/value"
)

// newMinion builds a minion that does not run.
func newMinion(t testing.TB, change func(*Config)) (*Minion, error) {
	t.Helper()
	return newMinionWithLog(t, slog.New(slog.NewTextHandler(io.Discard, nil)), change)
}

func newMinionWithLog(t testing.TB, log *slog.Logger, change func(*Config)) (*Minion, error) {
	t.Helper()
	dir := t.TempDir()
	cfg := Config{ID: "w1", PKIDir: filepath.Join(dir, "pki"), CacheDir: filepath.Join(dir, "cache"), Opts: value.NewDict(0),
		Transport: zeromq.New(log), CollectGrains: func(context.Context) *value.Dict { return value.NewDict(0) }}
	for _, o := range []any{&cfg.Options, &cfg.Handshake, &cfg.Events} {
		if err := field.Defaults(o); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Events.SockDir = ""
	change(&cfg)
	return New(t.Context(), cfg, log)
}

func TestMasterFromFunction(t *testing.T) {
	m, err := newMinion(t, func(cfg *Config) { cfg.Options.MasterType, cfg.Options.Master = "func", Masters{"test.version"} })
	if err != nil || len(m.links.All()) != 1 || !strings.HasPrefix(m.links.All()[0].Addr.Host, "3007") {
		t.Fatalf("%v, %v", m, err)
	}
	if r := m.links.All()[0].Role(); r != roles.Active {
		t.Errorf("its role is %v", r)
	}
	for fun, text := range map[string]string{"no.such": "no.such", "test.ping": "expected the name of a master"} {
		if _, err := newMinion(t, func(cfg *Config) { cfg.Options.MasterType, cfg.Options.Master = "func", Masters{fun} }); err == nil ||
			!strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", fun, err)
		}
	}
	if _, err := newMinion(t, func(cfg *Config) { cfg.Options.MasterType = "nonsense" }); err == nil {
		t.Error("an unknown master_type is taken")
	}
}
