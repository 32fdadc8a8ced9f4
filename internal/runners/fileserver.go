package runners

import (
	"context"
	"slices"
	"strings"

	"brine/internal/fileserver"
	"brine/internal/fn"
	"brine/internal/value"
)

// FileServer is the file server of the master.
type FileServer interface {
	Request(ctx context.Context, load *value.Dict) (any, error)
	Envs(backends ...string) []string
	Backends(names []string) []string
	// Update looks for changed files.
	Update(ctx context.Context, backends ...string) ([]fileserver.Changes, error)
	// Forget drops what is kept of lists and hashes, and returns the
	// environments by backend whose lists there were.
	Forget(envs []string, backends ...string) map[string][]string
}

var _ FileServer = (*fileserver.Server)(nil)

type files struct{ d Deps }

func filesModule(d Deps) fn.Module {
	f := files{d}
	return fn.Module{Name: "fileserver", Doc: `The files that this master serves.`, Funcs: []fn.Func{
		fn.Of("envs", f.envs, `List the environments.`, fn.Example("salt-run fileserver.envs")),
		fn.Of("file_list", f.lister("_file_list"), `List the files of an environment.`, fn.Example("salt-run fileserver.file_list saltenv=prod")),
		fn.Of("symlink_list", f.lister("_symlink_list"), `List the symbolic links of an environment.`, fn.Example("salt-run fileserver.symlink_list")),
		fn.Of("dir_list", f.lister("_dir_list"), `List the folders of an environment.`, fn.Example("salt-run fileserver.dir_list")),
		fn.Of("empty_dir_list", f.lister("_file_list_emptydirs"), `List the empty folders of an environment.`, fn.Example("salt-run fileserver.empty_dir_list")),
		fn.Of("update", f.update, `Look for changed files now.`, fn.Example("salt-run fileserver.update")),
		fn.Of("clear_file_list_cache", f.clearLists, `Drop what is kept of lists; they are made anew when they are asked for.`, fn.Example("salt-run fileserver.clear_file_list_cache")),
		fn.Of("clear_cache", f.clearCache, `Drop all that is kept of files.`, fn.Example("salt-run fileserver.clear_cache")),
		fn.Of("clear_lock", f.clearLock, `Remove locks of file servers that fetch; roots has none.`, fn.Example("salt-run fileserver.clear_lock")),
		fn.Of("lock", f.lock, `Lock file servers that fetch; roots has no locks.`, fn.Example("salt-run fileserver.lock")),
	}}
}

// backendNames reads a list of names, or a text with commas.
func backendNames(v any) []string {
	if s, ok := v.(string); ok {
		return strings.Split(s, ",")
	}
	return fileserver.Texts(v)
}

type envsArgs struct {
	Backend any  `salt:"backend" doc:"names of file servers; all if null" default:"null"`
	Sources bool `salt:"sources" doc:"name the file servers only" default:"false"`
}

func (f files) envs(_ context.Context, _ *fn.Call, a envsArgs) (any, error) {
	names := backendNames(a.Backend)
	if a.Sources {
		return value.Strings(f.d.Files().Backends(names)), nil
	}
	return value.Strings(f.d.Files().Envs(names...)), nil
}

type fileListArgs struct {
	Saltenv any `salt:"saltenv" doc:"environment" default:"base"`
	Backend any `salt:"backend" doc:"names of file servers; all if null" default:"null"`
}

func (f files) lister(cmd string) func(context.Context, *fn.Call, fileListArgs) (any, error) {
	return func(ctx context.Context, _ *fn.Call, a fileListArgs) (any, error) {
		return f.d.Files().Request(ctx, value.DictOf("cmd", cmd, "saltenv", a.Saltenv, "fsbackend", value.Strings(backendNames(a.Backend))))
	}
}

type updateArgs struct {
	Backend any       `salt:"backend" doc:"names of file servers; all if null" default:"null"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func (f files) update(ctx context.Context, _ *fn.Call, a updateArgs) (any, error) {
	if _, err := f.d.Files().Update(ctx, backendNames(a.Backend)...); err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return true, nil
}

type clearListsArgs struct {
	Saltenv any `salt:"saltenv" doc:"environments, as a list or with commas; all if null" default:"null"`
	Backend any `salt:"backend" doc:"names of file servers; all if null" default:"null"`
}

func (f files) clearLists(_ context.Context, _ *fn.Call, a clearListsArgs) (any, error) {
	var envs []string
	for _, e := range backendNames(a.Saltenv) {
		envs = append(envs, strings.TrimSpace(e))
	}
	out := value.NewDict(1)
	for name, gone := range f.d.Files().Forget(envs, backendNames(a.Backend)...) {
		slices.Sort(gone)
		out.Set(name, value.Strings(gone))
	}
	return out, nil
}

type backendArgs struct {
	Backend any `salt:"backend" doc:"names of file servers; all if null" default:"null"`
}

func (f files) clearCache(_ context.Context, _ *fn.Call, a backendArgs) (any, error) {
	f.d.Files().Forget(nil, backendNames(a.Backend)...)
	return "No cache was cleared", nil // roots keeps nothing on disk
}

type lockArgs struct {
	Backend any `salt:"backend" doc:"names of file servers; all if null" default:"null"`
	Remote  any `salt:"remote" doc:"pattern for what they fetch from" default:"null"`
}

func (f files) clearLock(context.Context, *fn.Call, lockArgs) (any, error) {
	return "No locks were removed", nil
}

func (f files) lock(context.Context, *fn.Call, lockArgs) (any, error) {
	return "No locks were set", nil
}
