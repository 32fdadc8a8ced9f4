package packages

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"brine/internal/host"
)

// errNoHold means that apk cannot hold packages.
var errNoHold = errors.New("apk cannot hold a package; pin its version in /etc/apk/world instead")

func (a apk) change(ctx context.Context, args ...string) error {
	_, err := perform(ctx, a.m, host.Cmd{Program: "apk", Args: args})
	return err
}

func (a apk) Install(ctx context.Context, targets []Target, o InstallOptions) (Changes, error) {
	if err := checkTargets(targets); err != nil {
		return nil, err
	}
	return withChanges(ctx, a, func(map[string]string) error {
		args := []string{"add"}
		if o.From != "" {
			args = append(args, "--repository", o.From)
		}
		for _, t := range targets {
			switch op, version := operator(t.Version); {
			case t.File != "":
				args = append(args, "--allow-untrusted", t.File)
			case t.Version == "":
				args = append(args, "--upgrade", t.Name)
			default:
				args = append(args, t.Name+op+version)
			}
		}
		return a.change(ctx, args...)
	})
}

func (a apk) Remove(ctx context.Context, names []string, purge bool) (gone, left Changes, err error) {
	if err := plain(names...); err != nil {
		return nil, nil, err
	}
	gone, err = withChanges(ctx, a, func(before map[string]string) error {
		targets := Match(before, names)
		if len(targets) == 0 {
			return nil
		}
		args := []string{"del"}
		if purge {
			args = append(args, "--purge")
		}
		return a.change(ctx, append(args, targets...)...)
	})
	return gone, Changes{}, err
}

func (a apk) Upgrade(ctx context.Context, _ InstallOptions) (Changes, error) {
	return withChanges(ctx, a, func(map[string]string) error { return a.change(ctx, "upgrade") })
}

// AutoRemove does nothing: apk never leaves unneeded packages.
func (a apk) AutoRemove(context.Context, bool) (Changes, error) { return Changes{}, nil }

func (apk) Held(context.Context) ([]string, error) { return nil, errNoHold }

func (apk) Hold(context.Context, []string, bool) error { return errNoHold }

func (a apk) Files(ctx context.Context, names []string) (map[string][]string, error) {
	if err := plain(names...); err != nil {
		return nil, err
	}
	files := map[string][]string{}
	for _, name := range names {
		out, exit, err := a.m.Run(ctx, "apk", "info", "-L", "--", name)
		if err != nil {
			return nil, fmt.Errorf("cannot run apk: %w", err)
		}
		if exit != 0 {
			continue
		}
		for line := range strings.SplitSeq(out, "\n") {
			if line != "" && !strings.HasSuffix(line, " contains:") {
				files[name] = append(files[name], "/"+line)
			}
		}
	}
	return files, nil
}

func (a apk) Versions(ctx context.Context, name string, _ Options) ([]string, error) {
	if err := plain(name); err != nil {
		return nil, err
	}
	out, err := ask(ctx, a.m, "apk", "policy", name)
	if err != nil {
		return nil, err
	}
	var versions []string
	for line := range strings.SplitSeq(out, "\n") {
		if v, ok := strings.CutSuffix(line, ":"); ok && strings.HasPrefix(v, "  ") && !strings.HasPrefix(v, "   ") {
			versions = append(versions, strings.TrimSpace(v))
		}
	}
	slices.Reverse(versions)
	return versions, nil
}
