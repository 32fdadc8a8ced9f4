package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/managed"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{state.Of("directory", f.directory, `Keep a directory, and as far as recurse says what is in it, with owner and mode.`)}
	})
}

type directoryArgs struct {
	Name         string    `salt:"name" doc:"path of the directory"`
	User         any       `salt:"user" doc:"owner" default:"null"`
	Group        any       `salt:"group" doc:"group" default:"null"`
	Recurse      any       `salt:"recurse" doc:"list of what to keep in all of the directory: user, group, mode; ignore_files, ignore_dirs and silent limit that" default:"null"`
	MaxDepth     *int      `salt:"max_depth" doc:"how many levels down recurse goes" default:"null"`
	DirMode      any       `salt:"dir_mode" doc:"mode of directories" default:"null"`
	FileMode     any       `salt:"file_mode" doc:"mode of files below; by default dir_mode" default:"null"`
	Makedirs     bool      `salt:"makedirs" doc:"make the directories above that are missing" default:"false"`
	Clean        bool      `salt:"clean" doc:"remove what no state that this one requires keeps" default:"false"`
	Require      any       `salt:"require" doc:"the states that this one requires" default:"null"`
	ExcludePat   any       `salt:"exclude_pat" doc:"glob, or E@ and a regular expression, or a list: what clean spares" default:"null"`
	Follow       bool      `salt:"follow_symlinks" doc:"keep what symbolic links stand for, in place of the links" default:"false"`
	Force        bool      `salt:"force" doc:"remove a file in its place" default:"false"`
	Backupname   string    `salt:"backupname" doc:"name to give to a file in its place" default:"null"`
	AllowSymlink bool      `salt:"allow_symlink" doc:"accept a symbolic link to a directory" default:"true"`
	ChildrenOnly bool      `salt:"children_only" doc:"keep what is in the directory, not the directory itself" default:"false"`
	Kwargs       fn.Kwargs `salt:"kwargs"`
}

// directory holds the declared state of a directory.
type directoryPlan struct {
	file
	e *state.Env
	directoryArgs
	dir, files managed.Owner // for directories, and for files below
	what       map[string]bool
	spare      chooser
	blocked    bool // a file or link exists at its path
	changes    *value.Dict
	removals   []string
	exists     bool
}

func (f file) directory(ctx context.Context, e *state.Env, a directoryArgs) (state.Plan, error) {
	d, err := f.newDirectoryPlan(ctx, e, a)
	if err != nil {
		return state.Plan{}, err
	}
	return d.plan()
}

func (f file) newDirectoryPlan(ctx context.Context, e *state.Env, a directoryArgs) (*directoryPlan, error) {
	a.Name = filesys.ExpandUser(a.Name)
	if a.Name == "" {
		return nil, fn.Errorf("Must provide name to file.directory")
	}
	if a.Name != "/" {
		a.Name = strings.TrimSuffix(a.Name, "/")
	}
	if a.MaxDepth != nil && a.Clean {
		return nil, fn.Errorf("Cannot specify both max_depth and clean")
	}
	if v, ok := a.Kwargs.Get("mode"); ok && !value.Truth(a.DirMode) {
		a.DirMode = v
	}
	if !value.Truth(a.FileMode) {
		a.FileMode = a.DirMode
	}
	d := &directoryPlan{file: f, e: e, directoryArgs: a, changes: value.NewDict(0)}
	var err error
	if d.dir, err = f.owner(ctx, a.User, a.Group, filesys.NormalizeMode(a.DirMode)); err != nil {
		return nil, err
	}
	if d.files, err = f.owner(ctx, a.User, a.Group, filesys.NormalizeMode(a.FileMode)); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(a.Name) {
		return nil, fn.Errorf("Specified file %s is not an absolute path", a.Name)
	}
	if d.what, err = recursion(a.Recurse); err != nil {
		return nil, err
	}
	d.spare, err = newChooser(nil, a.ExcludePat)
	return d, err
}

var recursions = []string{"user", "group", "mode", "ignore_files", "ignore_dirs", "silent"}

// recursion parses the argument recurse.
func recursion(v any) (map[string]bool, error) {
	if !value.Truth(v) {
		return nil, nil
	}
	l, ok := v.(*value.List)
	if !ok {
		return nil, fn.Errorf(`"recurse" must be formed as a list of strings`)
	}
	out := map[string]bool{}
	for _, it := range l.Items {
		s, _ := it.(string)
		if !slices.Contains(recursions, s) {
			return nil, fn.Errorf(`Types for "recurse" limited to "%s".`, strings.Join(recursions, `", "`))
		}
		out[s] = true
	}
	if out["ignore_files"] && out["ignore_dirs"] {
		return nil, fn.Errorf(`Must not specify "recurse" options "ignore_files" and "ignore_dirs" at the same time.`)
	}
	return out, nil
}

func (d *directoryPlan) plan() (state.Plan, error) {
	link := filesys.IsLink(d.Name)
	d.exists = filesys.IsDir(d.Name)
	d.blocked = filesys.IsFile(d.Name) || link && (!d.AllowSymlink || d.Force)
	if d.blocked && !d.Force && d.Backupname == "" {
		kind := "symlink"
		if filesys.IsFile(d.Name) {
			kind = "file"
		}
		return state.Plan{}, fn.Errorf("Specified location %s exists and is a %s", d.Name, kind)
	}
	if d.blocked {
		return d.planBlocked(link)
	}
	if err := d.compare(); err != nil {
		return state.Plan{}, err
	}
	if d.changes.Len() == 0 {
		return state.Plan{Comment: "The directory " + d.Name + " is in the correct state", Forecast: nil}, nil
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Diff: d.changes, Comment: d.predict()}, Do: d.do}}}, nil
}

// planBlocked replaces the file or link at the directory's path.
func (d *directoryPlan) planBlocked(link bool) (state.Plan, error) {
	if d.Backupname != "" {
		if filesys.Exists(d.Backupname, false) && !d.Force {
			return state.Plan{}, fn.Errorf("File exists where the backup target %s should go", d.Backupname)
		}
		diff := value.NewDict(3)
		if filesys.Exists(d.Backupname, false) {
			diff.Set("forced", "Existing file at backup path "+d.Backupname+" would be removed")
		}
		diff.Update(value.DictOf("backup", d.Name+" would be renamed to "+d.Backupname, d.Name, value.DictOf("directory", "new")))
		return state.Plan{Steps: []state.Step{{
			Change: state.Change{Diff: diff, Comment: d.Name + " would be backed up and replaced with a new directory"},
			Do: func(ctx context.Context) (state.Change, error) {
				if err := filesys.Move(d.Name, d.Backupname); err != nil {
					return state.Change{}, fn.Errorf("Unable to rename %s to backup %s: %w", d.Name, d.Backupname, atomicfile.Cause(err))
				}
				d.exists = false
				return d.do(ctx)
			},
		}}}, nil
	}
	kind := "File"
	if link && !filesys.IsFile(d.Name) {
		kind = "Symlink"
	}
	d.changes.Set(d.Name, value.DictOf("directory", "new"))
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: merge(value.DictOf("forced", kind+" would be forcibly replaced"), d.changes), Comment: d.predict()},
		Do: func(ctx context.Context) (state.Change, error) {
			if err := os.Remove(d.Name); err != nil {
				return state.Change{}, fn.Errorf("cannot remove %s: %w", d.Name, atomicfile.Cause(err))
			}
			d.exists = false
			c, err := d.do(ctx)
			c.Diff = merge(value.DictOf("forced", kind+" was forcibly replaced"), c.Diff)
			return c, err
		},
	}}}, nil
}

// predict lists the changes as a test run shows them.
func (d *directoryPlan) predict() string {
	var b strings.Builder
	b.WriteString("The following files will be changed:\n")
	for path, what := range d.changes.All() {
		if m, ok := what.(*value.Dict); ok {
			for k, v := range m.All() {
				fmt.Fprintf(&b, "%s: %s - %s\n", value.Str(path), value.Str(k), value.Str(v))
			}
		}
	}
	return b.String()
}

// compare finds the differences from the declaration.
func (d *directoryPlan) compare() error {
	if !d.exists {
		d.changes.Set(d.Name, value.DictOf("directory", "new"))
		return nil
	}
	if err := d.below(func(path string, now filesys.Facts, want managed.Owner) {
		if diff := d.diff(now, want); diff.Len() > 0 {
			d.changes.Set(path, diff)
		}
	}); err != nil {
		return err
	}
	if !d.ChildrenOnly {
		now, err := filesys.Look(d.m, d.Name, d.Follow)
		if err != nil {
			return fn.Errorf("%w", err)
		}
		if diff := d.diff(now, d.dir); diff.Len() > 0 {
			d.changes.Set(d.Name, diff)
		}
	}
	if !d.Clean {
		return nil
	}
	removals, all, err := d.unwanted(d.e.Run.Chunks)
	d.removals = removals
	for _, path := range all {
		d.changes.Set(path, value.DictOf("removed", "Removed due to clean"))
	}
	return err
}

func (d *directoryPlan) diff(now filesys.Facts, want managed.Owner) *value.Dict {
	return want.Differs(now)
}

// below visits the paths that recurse selects.
func (d *directoryPlan) below(visit func(path string, now filesys.Facts, want managed.Owner)) error {
	if d.what == nil {
		return nil
	}
	limit := func(o managed.Owner) managed.Owner {
		if !d.what["user"] {
			o.User, o.UID = nil, -1
		}
		if !d.what["group"] {
			o.Group, o.GID = nil, -1
		}
		if !d.what["mode"] {
			o.Mode, o.Bits = "", -1
		}
		return o
	}
	dirs, files := limit(d.dir), limit(d.files)
	return walk(d.Name, func(path string, depth int, _ bool) error {
		if d.MaxDepth != nil && depth > *d.MaxDepth {
			return fs.SkipDir
		}
		now, err := filesys.Look(d.m, path, d.Follow)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		isDir := now.IsDir() || filesys.IsDir(path)
		switch {
		case isDir && !d.what["ignore_dirs"]:
			visit(path, now, dirs)
		case !isDir && !d.what["ignore_files"]:
			visit(path, now, files)
		}
		return nil
	})
}

// walk visits the content of a directory without following links: first the
// files, then the directories, then their content. depth is 1 for the directory's
// own entries. On fs.SkipDir, it skips a directory's content.
func walk(root string, visit func(path string, depth int, isDir bool) error) error {
	err := walkFrom(root, 1, visit)
	if err != nil {
		return fn.Errorf("cannot read the directory %s: %w", root, err)
	}
	return nil
}

func walkFrom(dir string, depth int, visit func(path string, depth int, isDir bool) error) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var below []string
	for _, dirs := range []bool{false, true} {
		for _, e := range entries {
			if e.IsDir() != dirs {
				continue
			}
			path := filepath.Join(dir, e.Name())
			switch err := visit(path, depth, dirs); {
			case errors.Is(err, fs.SkipDir):
			case err != nil:
				return err
			case dirs:
				below = append(below, path)
			}
		}
	}
	for _, path := range below {
		if err := walkFrom(path, depth+1, visit); err != nil {
			return err
		}
	}
	return nil
}

// unwanted lists what clean removes: everything that no required state keeps and
// exclude_pat does not match. all also has the content of removed directories.
func (d *directoryPlan) unwanted(chunks []*value.Dict) (removals, all []string, err error) {
	keep := map[string]bool{d.Name: true}
	var trees []string
	for _, name := range required(d.Require, chunks) {
		keepPath(keep, name)
		if filesys.IsDir(name) && strings.HasPrefix(name+"/", d.Name+"/") && name != d.Name {
			trees = append(trees, name)
		}
	}
	return leftovers(d.Name, keep, trees, d.spare)
}

// keepPath marks a path and the directories above it.
func keepPath(keep map[string]bool, path string) {
	for path = filepath.Clean(path); !keep[path]; path = filepath.Dir(path) {
		keep[path] = true
		if path == "/" || path == "." {
			return
		}
	}
}

// required returns the paths of the file states that a requisite names.
func required(require any, chunks []*value.Dict) []string {
	l, _ := require.(*value.List)
	if l == nil {
		return nil
	}
	var out []string
	for _, it := range l.Items {
		r, ok := it.(*value.Dict)
		if !ok || !r.Has("file") {
			continue
		}
		for _, low := range chunks {
			if low.Str("state") == "file" && (value.Equal(low.At("name"), r.At("file")) || value.Equal(low.At("__id__"), r.At("file"))) {
				out = append(out, filesys.ExpandUser(value.Str(low.At("name"))))
			}
		}
	}
	return out
}

// leftovers lists the content of a directory that is neither kept, nor in one of
// the trees, nor matched by spare. all also has the content of removed
// directories.
func leftovers(root string, keep map[string]bool, trees []string, spare chooser) (out, all []string, err error) {
	going := map[string]bool{}
	err = walk(root, func(path string, _ int, isDir bool) error {
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if going[filepath.Dir(path)] { // goes with its directory; as in Salt, it is not shown if spared
			if goes, err := spare.takes(rel); err != nil {
				return err
			} else if goes {
				all = append(all, path)
			}
			going[path] = isDir
			return nil
		}
		if slices.Contains(trees, path) {
			return fs.SkipDir
		}
		if keep[path] {
			return nil
		}
		goes, err := spare.takes(rel)
		if err != nil || !goes {
			return err
		}
		out, all = append(out, path), append(all, path)
		going[path] = isDir
		return nil
	})
	return out, all, err
}

// do changes the directory to the declared state.
func (d *directoryPlan) do(context.Context) (state.Change, error) {
	if err := d.dir.Available(); err != nil {
		return state.Change{}, err
	}
	if !d.exists {
		return d.create()
	}
	changes := value.NewDict(d.changes.Len() + 3)
	for k, v := range d.changes.All() {
		changes.Set(k, v)
	}
	change := state.Change{Diff: changes}
	if !d.ChildrenOnly {
		diff, err := d.dir.Apply(d.m, d.Name, d.Follow)
		if err != nil {
			return change, err
		}
		merge(changes, diff)
	}
	if d.what["user"] && !given(d.User) {
		return state.Change{Diff: changes}, fn.Errorf("user not specified, but configured as a target for recursive ownership management")
	}
	if d.what["group"] && !given(d.Group) {
		return state.Change{Diff: changes}, fn.Errorf("group not specified, but configured as a target for recursive ownership management")
	}
	if d.what["silent"] {
		changes = value.DictOf("recursion", "Changes silenced")
		change.Diff = changes
	}
	var failed []error
	err := d.below(func(path string, _ filesys.Facts, want managed.Owner) {
		diff, err := want.Apply(d.m, path, d.Follow)
		if err != nil {
			failed = append(failed, err)
		}
		if !d.what["silent"] {
			merge(changes, diff)
		}
	})
	if err = errors.Join(append(failed, err)...); err != nil {
		return change, err
	}
	return d.clean(change)
}

// create creates the directory. If it cannot, the changes are those of a test
// run, as in Salt.
func (d *directoryPlan) create() (state.Change, error) {
	if up := filepath.Dir(d.Name); !filesys.IsDir(up) {
		if !d.Makedirs {
			return state.Change{Diff: d.changes}, fn.Errorf("No directory to create %s in", d.Name)
		}
		if err := filesys.MakeDirs(up, d.dir.UID, d.dir.GID, d.dir.Bits); err != nil {
			return state.Change{Diff: d.changes}, fn.Errorf("cannot make the directory %s: %w", up, atomicfile.Cause(err))
		}
	}
	if filesys.Exists(d.Name, false) && !filesys.IsDir(d.Name) {
		return state.Change{Diff: d.changes}, fn.Errorf("Failed to create directory %s: something else is in its place", d.Name)
	}
	if err := filesys.MakeDir(d.Name, d.dir.UID, d.dir.GID, d.dir.Bits); err != nil {
		return state.Change{Diff: d.changes}, fn.Errorf("Failed to create directory %s: %w", d.Name, atomicfile.Cause(err))
	}
	return state.Change{Diff: value.DictOf(d.Name, value.DictOf("directory", "new"))}, nil
}

// clean removes unwanted files.
func (d *directoryPlan) clean(c state.Change) (state.Change, error) {
	removed := value.ListOf()
	for _, path := range d.removals {
		if err := filesys.Remove(path); err != nil {
			return c, fn.Errorf("cannot remove %s: %w", path, atomicfile.Cause(err))
		}
		removed.Append(path)
	}
	switch {
	case removed.Len() > 0:
		c.Diff.Set("removed", removed)
		c.Comment = "Files cleaned from directory " + d.Name
	case d.ChildrenOnly:
		c.Comment = "Directory " + d.Name + "/* updated"
	default:
		c.Comment = "Directory " + d.Name + " updated"
	}
	return c, nil
}
