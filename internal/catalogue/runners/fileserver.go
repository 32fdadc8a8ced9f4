package runners

import (
	"context"
	"maps"
	"slices"

	"brine/internal/call/fn"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
)

// FileServer is the file server of the master.
type FileServer interface {
	Request(ctx context.Context, load *value.Dict) (any, error)
	Envs(backends ...string) []string
	Backends(names []string) []string
	// Update refreshes the file lists.
	Update(ctx context.Context, backends ...string) ([]fileserver.Changes, error)
	// UpdateOnly updates some of the remotes.
	UpdateOnly(ctx context.Context, names []string, backends ...string) ([]fileserver.Changes, error)
	// Fetchers returns the backends that fetch from remotes.
	Fetchers(backends ...string) []fileserver.Fetcher
	// Forget drops cached lists and hashes, and returns the environments by backend
	// that had lists.
	Forget(envs []string, backends ...string) map[string][]string
}

var _ FileServer = (*fileserver.Server)(nil)

// FileServers returns the file server as it is configured now.
type FileServers interface {
	FileServer() FileServer
	// TellChanges publishes the changes found by an update on the event bus, and notifies the other masters of
	// a cluster of fetched content.
	TellChanges([]fileserver.Changes)
}

type files struct{ server FileServers }

func init() { runners.Register("fileserver", filesModule) }

func filesModule(d Deps) fn.Module {
	f := files{d.Serves}
	return fn.Module{Name: "fileserver", Doc: `The files that this master serves.`, Funcs: []fn.Func{
		fn.Of("envs", f.envs, `List the environments.`, fn.Example("salt-run fileserver.envs")),
		fn.Of("file_list", f.lister("_file_list"), `List the files of an environment.`, fn.Example("salt-run fileserver.file_list saltenv=prod")),
		fn.Of("symlink_list", f.lister("_symlink_list"), `List the symbolic links of an environment.`, fn.Example("salt-run fileserver.symlink_list")),
		fn.Of("dir_list", f.lister("_dir_list"), `List the directories of an environment.`, fn.Example("salt-run fileserver.dir_list")),
		fn.Of("empty_dir_list", f.lister("_file_list_emptydirs"), `List the empty directories of an environment.`,
			fn.Example("salt-run fileserver.empty_dir_list")),
		fn.Of("update", f.update, `Update the file server now.`, fn.Example("salt-run fileserver.update")),
		fn.Of("clear_file_list_cache", f.clearLists, `Drop cached file lists; they are created again on demand.`,
			fn.Example("salt-run fileserver.clear_file_list_cache")),
		fn.Of("clear_cache", f.clearCache, `Drop all cached file data.`, fn.Example("salt-run fileserver.clear_cache")),
		fn.Of("clear_lock", f.clearLock, `Remove locks of backends that fetch. Locks of dead processes expire by themselves.`,
			fn.Example("salt-run fileserver.clear_lock")),
		fn.Of("lock", f.lock, `Keep backends from fetching, for a day at most.`, fn.Example("salt-run fileserver.lock remote='*github*'")),
		fn.Of("remotes", f.remotes, `Return the status of each remote: revision, age and last error (Brine only).`,
			fn.Example("salt-run fileserver.remotes")),
	}}
}

type envsArgs struct {
	Backend any  `salt:"backend" doc:"names of backends; null: all" default:"null"`
	Sources bool `salt:"sources" doc:"list only the names of backends" default:"false"`
}

func (f files) envs(_ context.Context, _ *fn.Call, a envsArgs) (any, error) {
	names := value.Commas(a.Backend)
	if a.Sources {
		return value.Strings(f.server.FileServer().Backends(names)), nil
	}
	return value.Strings(f.server.FileServer().Envs(names...)), nil
}

type fileListArgs struct {
	Saltenv any `salt:"saltenv" doc:"environment" default:"base"`
	Backend any `salt:"backend" doc:"names of backends; null: all" default:"null"`
}

func (f files) lister(cmd string) func(context.Context, *fn.Call, fileListArgs) (any, error) {
	return func(ctx context.Context, _ *fn.Call, a fileListArgs) (any, error) {
		return f.server.FileServer().Request(ctx, value.DictOf("cmd", cmd, "saltenv", a.Saltenv, "fsbackend", value.Strings(value.Commas(a.Backend))))
	}
}

type updateArgs struct {
	Backend any       `salt:"backend" doc:"names of backends; null: all" default:"null"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func (f files) update(ctx context.Context, _ *fn.Call, a updateArgs) (any, error) {
	var remotes []string
	for k, v := range a.Kwargs.Clean().All() {
		if k != "remotes" {
			return nil, fn.Errorf("update() got an unexpected keyword argument '%s'", value.Str(k))
		}
		remotes = value.Split(v)
	}
	changes, err := f.server.FileServer().UpdateOnly(ctx, remotes, value.Commas(a.Backend)...)
	f.server.TellChanges(changes)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return true, nil
}

type clearListsArgs struct {
	Saltenv any `salt:"saltenv" doc:"environments, as a list or with commas; null: all" default:"null"`
	Backend any `salt:"backend" doc:"names of backends; null: all" default:"null"`
}

func (f files) clearLists(_ context.Context, _ *fn.Call, a clearListsArgs) (any, error) {
	out := value.NewDict(1)
	forgotten := f.server.FileServer().Forget(value.Split(a.Saltenv), value.Commas(a.Backend)...)
	for _, name := range slices.Sorted(maps.Keys(forgotten)) {
		gone := forgotten[name]
		slices.Sort(gone)
		out.Set(name, value.Strings(gone))
	}
	return out, nil
}

type backendArgs struct {
	Backend any `salt:"backend" doc:"names of backends; null: all" default:"null"`
}

func (f files) clearCache(_ context.Context, _ *fn.Call, a backendArgs) (any, error) {
	names := value.Commas(a.Backend)
	f.server.FileServer().Forget(nil, names...)
	var r report
	for _, b := range f.server.FileServer().Fetchers(names...) { // roots caches nothing on disk
		failed := b.ClearCache()
		r.failed = append(r.failed, failed...)
		if p, ok := b.(fileserver.Partial); ok && !p.Has("clear_cache") {
			continue
		}
		if len(failed) == 0 {
			r.done = append(r.done, "The "+b.Name()+" fileserver cache was successfully cleared")
		}
	}
	return r.say("cleared", "No cache was cleared"), nil
}

type lockArgs struct {
	Backend any `salt:"backend" doc:"names of backends; null: all" default:"null"`
	Remote  any `salt:"remote" doc:"pattern for remotes" default:"null"`
}

// report lists actions and errors.
type report struct{ done, failed []string }

func (r *report) add(done, failed []string) {
	r.done, r.failed = append(r.done, done...), append(r.failed, failed...)
}

// say returns the report in Salt's form, or null if it is empty.
func (r *report) say(verb, none string) any {
	if len(r.done)+len(r.failed) == 0 {
		return none
	}
	out := value.NewDict(2)
	if len(r.done) > 0 {
		out.Set(verb, value.Strings(r.done))
	}
	if len(r.failed) > 0 {
		out.Set("errors", value.Strings(r.failed))
	}
	return out
}

// remote reads the pattern for remotes; ok is false if it is invalid.
func (a lockArgs) remote(r *report) (glob string, ok bool) {
	if a.Remote == nil {
		return "", true
	}
	glob, ok = a.Remote.(string)
	if !ok {
		r.failed = append(r.failed, "Badly formatted remote pattern '"+value.Str(a.Remote)+"'")
	}
	return glob, ok
}

func (f files) clearLock(_ context.Context, _ *fn.Call, a lockArgs) (any, error) {
	var r report
	if glob, ok := a.remote(&r); ok {
		for _, b := range f.server.FileServer().Fetchers(value.Commas(a.Backend)...) {
			r.add(b.ClearLock(glob, "update"))
		}
	}
	return r.say("cleared", "No locks were removed"), nil
}

func (f files) lock(_ context.Context, _ *fn.Call, a lockArgs) (any, error) {
	var r report
	if glob, ok := a.remote(&r); ok {
		for _, b := range f.server.FileServer().Fetchers(value.Commas(a.Backend)...) {
			r.add(b.Lock(glob))
		}
	}
	return r.say("locked", "No locks were set"), nil
}

// remotes returns the status of remotes.
func (f files) remotes(_ context.Context, _ *fn.Call, a backendArgs) (any, error) {
	out := value.NewDict(1)
	for _, b := range f.server.FileServer().Fetchers(value.Commas(a.Backend)...) {
		out.Set(b.Name(), b.Remotes())
	}
	return out, nil
}
