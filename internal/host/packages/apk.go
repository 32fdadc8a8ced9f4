package packages

import (
	"context"
	"fmt"
	"strings"

	"brine/internal/host"
)

type apk struct{ m *host.Machine }

// List reads the database of apk, which is a text file.
func (a apk) List(context.Context) ([]Package, error) {
	b, err := a.m.ReadFile("/lib/apk/db/installed")
	if err != nil {
		return nil, fmt.Errorf("cannot read the packages: %w", err)
	}
	var pkgs []Package
	for entry := range strings.SplitSeq(strings.ToValidUTF8(string(b), "\ufffd"), "\n\n") {
		var p Package
		for line := range strings.SplitSeq(entry, "\n") {
			if v, ok := strings.CutPrefix(line, "P:"); ok {
				p.Name = v
			} else if v, ok := strings.CutPrefix(line, "V:"); ok {
				p.Version = v
			}
		}
		if p.Name != "" {
			pkgs = append(pkgs, p)
		}
	}
	return pkgs, nil
}

// Upgrades parses lines such as "(1/2) Upgrading musl (1.2.4-r1 -> 1.2.4-r2)".
func (a apk) Upgrades(ctx context.Context, _ Options) (map[string]string, error) {
	out, err := ask(ctx, a.m, "apk", "upgrade", "-s")
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for line := range strings.SplitSeq(out, "\n") {
		if f := strings.Fields(line); len(f) == 6 && f[1] == "Upgrading" {
			found[f[2]] = strings.TrimSuffix(f[5], ")")
		}
	}
	return found, nil
}

func (a apk) Candidates(ctx context.Context, names []string, o Options) (map[string]string, error) {
	if err := plain(names...); err != nil {
		return nil, err
	}
	upgrades, err := a.Upgrades(ctx, o)
	if err != nil {
		return nil, err
	}
	installed, err := a.List(ctx)
	if err != nil {
		return nil, err
	}
	have := map[string]string{}
	for _, p := range installed {
		have[p.Name] = p.Version
	}
	found := map[string]string{}
	for _, name := range names {
		if v, ok := upgrades[name]; ok {
			found[name] = v
			continue
		}
		out, err := ask(ctx, a.m, "apk", "search", "--", name)
		if err != nil {
			return nil, err
		}
		for line := range strings.SplitSeq(out, "\n") {
			if n, v := splitAPK(line); n == name && v != have[name] {
				found[name] = v
			}
		}
	}
	return found, nil
}

// splitAPK splits name-version-rN.
func splitAPK(s string) (name, version string) {
	if i := strings.LastIndexByte(s, '-'); i > 0 {
		if j := strings.LastIndexByte(s[:i], '-'); j > 0 {
			return s[:j], s[j+1:]
		}
	}
	return "", ""
}

func (a apk) Refresh(ctx context.Context, _ Options) ([]Source, error) {
	if _, err := ask(ctx, a.m, "apk", "update"); err != nil {
		return nil, err
	}
	return []Source{{Name: "all", Fetched: true}}, nil
}

func (a apk) Owner(ctx context.Context, path string) (string, error) {
	out, exit, err := a.m.Run(ctx, "apk", "info", "-W", "--", path)
	if err != nil {
		return "", fmt.Errorf("cannot run apk: %w", err)
	}
	_, owner, ok := strings.Cut(out, " owned by ")
	if exit != 0 || !ok {
		return "", nil
	}
	return strings.TrimSpace(owner), nil
}

func (a apk) Compare(ctx context.Context, x, y string) (int, error) {
	if err := plain(x, y); err != nil {
		return 0, err
	}
	out, err := ask(ctx, a.m, "apk", "version", "-t", "--", x, y)
	if err != nil {
		return 0, err
	}
	switch strings.TrimSpace(out) {
	case "<":
		return -1, nil
	case ">":
		return 1, nil
	}
	return 0, nil
}
