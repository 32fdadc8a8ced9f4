// Package minionfs serves the files that minions have pushed to the master with cp.push. Those of the minion
// ID are below the directory ID of one environment.
//
// Minions do not trust the files of each other: a top.sls is never served, and no symbolic link is followed.
package minionfs

import (
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/files/fileserver"
)

// Options are Salt's options of minionfs.
type Options struct {
	Env       string   `salt:"minionfs_env" default:"base" doc:"environment of the files that minions pushed" change:"live"`
	Mount     string   `salt:"minionfs_mountpoint" default:"" doc:"directory below which they appear, such as salt://pushed" change:"live"`
	Whitelist []string `salt:"minionfs_whitelist" default:"[]" doc:"minions whose files are served, by name, pattern or regular expression; empty: all" change:"live" list:"comma"`
	Blacklist []string `salt:"minionfs_blacklist" default:"[]" doc:"minions whose files are not served" change:"live" list:"comma"`
}

// FS is the file server backend.
type FS struct {
	o       Options
	name    string
	dir     string // directory of all minions
	mount   string
	filter  fileserver.Filter
	ignored func(string) bool
}

var _ fileserver.Backend = (*FS)(nil)

// New returns the backend for a cachedir. name is its name in fileserver_backend. receives says whether
// minions may push files.
func New(o Options, name, cacheDir string, receives bool, ignored func(string) bool) (*FS, error) {
	if !receives {
		return nil, salt.Errorf(salt.Invalid, "minions cannot push files to this master: set file_recv: True")
	}
	_, mount, ok := strings.Cut(o.Mount, "://")
	if !ok {
		mount = o.Mount
	}
	return &FS{
		o: o, name: name, dir: filepath.Join(cacheDir, "minions"), mount: strings.Trim(path.Clean("/"+mount), "/"),
		filter: fileserver.NewFilter(o.Whitelist, o.Blacklist), ignored: ignored,
	}, nil
}

// Name implements fileserver.Backend.
func (f *FS) Name() string { return f.name }

// Envs implements fileserver.Backend.
func (f *FS) Envs() []string { return []string{f.o.Env} }

// Find implements fileserver.Backend.
func (f *FS) Find(env, name string, _ map[string]string) (fileserver.Found, bool) {
	if env != f.o.Env || path.Base(name) == "top.sls" {
		return fileserver.Found{}, false
	}
	if f.mount != "" {
		rest, ok := strings.CutPrefix(name, f.mount+"/")
		if !ok {
			return fileserver.Found{}, false
		}
		name = rest
	}
	id, rest, ok := strings.Cut(name, "/")
	if !ok || !f.filter.Has(id) {
		return fileserver.Found{}, false
	}
	full := filepath.Join(f.dir, id, "files", rest)
	if f.ignored(full) || !plain(filepath.Join(f.dir, id), "files/"+rest) {
		return fileserver.Found{}, false
	}
	return fileserver.Found{Path: full, Rel: name}, true
}

// plain reports whether a path below a directory is a regular file, without symbolic links in the path.
func plain(dir, name string) bool {
	p := dir
	parts := strings.Split(name, "/")
	for i, part := range parts {
		p = filepath.Join(p, part)
		st, err := os.Lstat(p)
		if err != nil || i < len(parts)-1 && !st.IsDir() || i == len(parts)-1 && !st.Mode().IsRegular() {
			return false
		}
	}
	return true
}

// Lists implements fileserver.Backend. Empty directories are not listed, as in Salt.
func (f *FS) Lists(ctx context.Context, env string) (*fileserver.Lists, error) {
	out := &fileserver.Lists{Links: map[string]string{}}
	if env != f.o.Env {
		return out, nil
	}
	minions, err := os.ReadDir(f.dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for _, m := range minions {
		if !m.IsDir() || !f.filter.Has(m.Name()) {
			continue
		}
		top := filepath.Join(f.dir, m.Name(), "files")
		err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
			if err != nil || p == top {
				return ctx.Err() // removed in the meantime, or unreadable
			}
			rel, err := filepath.Rel(top, p)
			if err != nil {
				return err
			}
			name := path.Join(f.mount, m.Name(), rel)
			switch {
			case d.IsDir():
				out.Dirs = append(out.Dirs, name)
			case d.Type().IsRegular() && !f.ignored(name):
				out.Files = append(out.Files, name)
			}
			return ctx.Err()
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(out.Files)
	slices.Sort(out.Dirs)
	return out, nil
}

// Update implements fileserver.Backend: pushed files appear at once.
func (f *FS) Update(context.Context) (fileserver.Changes, error) {
	return fileserver.Changes{Backend: "minionfs"}, nil
}

// Forget implements fileserver.Backend: nothing is cached.
func (f *FS) Forget([]string) []string { return nil }
