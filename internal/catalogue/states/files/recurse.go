package files

import (
	"context"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/sources"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{state.Of("recurse", f.recurse, `Keep a directory as it is on the file server, with all that is in it.`)}
	})
}

type recurseArgs struct {
	Name          string    `salt:"name" doc:"path of the directory"`
	Source        any       `salt:"source" doc:"salt:// URL of the directory, or a list of which the first that exists counts"`
	KeepSource    bool      `salt:"keep_source" doc:"keep the files in the minion's cache" default:"true"`
	Clean         bool      `salt:"clean" doc:"remove what is neither on the file server nor kept by a state that this one requires" default:"false"`
	Require       any       `salt:"require" doc:"the states that this one requires" default:"null"`
	User          any       `salt:"user" doc:"owner" default:"null"`
	Group         any       `salt:"group" doc:"group" default:"null"`
	DirMode       any       `salt:"dir_mode" doc:"mode of directories" default:"null"`
	FileMode      any       `salt:"file_mode" doc:"mode of files; keep takes that of the source" default:"null"`
	SymMode       any       `salt:"sym_mode" doc:"mode of directories that are made for symbolic links" default:"null"`
	Template      string    `salt:"template" doc:"template engine that makes the contents" default:"null"`
	Context       any       `salt:"context" doc:"variables of the templates" default:"null"`
	Replace       bool      `salt:"replace" doc:"replace the content of files that are there" default:"true"`
	Defaults      any       `salt:"defaults" doc:"variables of the templates that context can override" default:"null"`
	IncludeEmpty  bool      `salt:"include_empty" doc:"make empty directories, too" default:"false"`
	Backup        any       `salt:"backup" doc:"minion keeps copies of the old files in the minion's cache" default:""`
	IncludePat    any       `salt:"include_pat" doc:"glob, or E@ and a regular expression, or a list: only what these find" default:"null"`
	ExcludePat    any       `salt:"exclude_pat" doc:"the same: not what these find; clean spares it, too" default:"null"`
	Maxdepth      *int      `salt:"maxdepth" doc:"how many levels down" default:"null"`
	KeepSymlinks  bool      `salt:"keep_symlinks" doc:"make symbolic links where the file server has them" default:"false"`
	ForceSymlinks bool      `salt:"force_symlinks" doc:"remove what is in the place of a symbolic link" default:"false"`
	Kwargs        fn.Kwargs `salt:"kwargs"`
}

// tree is a directory that is copied from the file server.
type tree struct {
	file
	e *state.Env
	recurseArgs
	src, env string // on the file server
	choose   chooser
	files    []string          // paths relative to src
	dirs     map[string]bool   // directories to create
	links    map[string]string // targets of links, by path relative to src
	keep     map[string]bool
	parts    []part
	writing  group // those parts that write new contents
	removals []string
	// shown has the removals with the content of directories.
	shown []string
}

// part is the plan for one file, directory or link of a tree.
type part struct {
	path string
	plan state.Plan
	err  error
}

func (f file) recurse(ctx context.Context, e *state.Env, a recurseArgs) (state.Plan, error) {
	t := &tree{file: f, e: e, recurseArgs: a, dirs: map[string]bool{}, links: map[string]string{}, keep: map[string]bool{}}
	t.Name = filesys.ExpandUser(a.Name)
	if _, ok := a.Kwargs.Get("mode"); ok {
		return state.Plan{}, fn.Errorf("'mode' is not allowed in 'file.recurse'. Please use 'file_mode' and 'dir_mode'.")
	}
	if !filepath.IsAbs(t.Name) {
		return state.Plan{}, fn.Errorf("Specified file %s is not an absolute path", t.Name)
	}
	t.Name = filepath.Clean(t.Name)
	var err error
	if t.choose, err = newChooser(a.IncludePat, a.ExcludePat); err != nil {
		return state.Plan{}, err
	}
	if err := t.locate(ctx); err != nil {
		return state.Plan{}, err
	}
	if filesys.Exists(t.Name, true) && !filesys.IsDir(t.Name) {
		return state.Plan{}, fn.Errorf("The path %s exists and is not a directory", t.Name)
	}
	if err := t.list(ctx); err != nil {
		return state.Plan{}, err
	}
	return t.plan(ctx)
}

// locate finds the directory on the file server.
func (t *tree) locate(ctx context.Context) error {
	all, err := sources.Read(t.Source, "", t.e.Saltenv)
	if err != nil {
		return err
	}
	for i := range all {
		all[i].URL = strings.TrimRight(all[i].URL, "/")
		if all[i].URL == "salt:" {
			all[i].URL = "salt://"
		}
		if all[i].Scheme() != "salt" {
			return fn.Errorf("Invalid source '%s' (must be a salt:// URI)", all[i].URL)
		}
	}
	if len(all) == 0 {
		return fn.Errorf("Invalid source '' (must be a salt:// URI)")
	}
	s, err := sources.FirstThere(ctx, t.e.Files, all)
	if err != nil {
		return fn.Errorf("Recurse failed: %w", err)
	}
	t.src, t.env, _ = fileclient.SplitURL(s.URL)
	t.src = strings.Trim(t.src, "/")
	if t.env == "" {
		t.env = t.e.Saltenv
	}
	if t.src == "" {
		return nil
	}
	dirs, err := t.e.Files.List(ctx, fileclient.Dirs, t.env, t.src)
	if err != nil {
		return fn.Errorf("Recurse failed: %w", err)
	}
	if !slices.ContainsFunc(dirs, func(d string) bool { return strings.Trim(d, "/") == t.src }) {
		return fn.Errorf("The directory '%s' does not exist on the salt fileserver in saltenv '%s'", t.src, t.env)
	}
	return nil
}

// below returns a path of the file server relative to the source. ok is false
// if it is not below it.
func (t *tree) below(p string) (string, bool) {
	if t.src == "" {
		return p, p != ""
	}
	rel, ok := strings.CutPrefix(p, t.src+"/")
	return rel, ok && rel != ""
}

// wanted reports whether a path below the source is selected.
func (t *tree) wanted(rel string) (bool, error) {
	if rel == ".." || strings.HasPrefix(rel, "../") || t.Maxdepth != nil && strings.Count(rel, "/") > *t.Maxdepth {
		return false, nil
	}
	return t.choose.takes(rel)
}

// list lists the directory on the file server.
func (t *tree) list(ctx context.Context) error {
	if t.KeepSymlinks {
		if err := t.listLinks(ctx); err != nil {
			return err
		}
	}
	files, err := t.e.Files.List(ctx, fileclient.Files, t.env, t.src)
	if err != nil {
		return fn.Errorf("Recurse failed: %w", err)
	}
	for _, p := range files {
		rel, ok := t.below(p)
		if !ok || t.throughLink(rel) {
			continue
		}
		take, err := t.wanted(rel)
		if err != nil {
			return err
		}
		if take {
			t.files = append(t.files, rel)
			t.dirs[filepath.Dir(t.at(rel))] = true
			t.keep[t.at(rel)] = true
		}
	}
	if !t.IncludeEmpty {
		return nil
	}
	dirs, err := t.e.Files.List(ctx, fileclient.Dirs, t.env, t.src)
	if err != nil {
		return fn.Errorf("Recurse failed: %w", err)
	}
	for _, p := range dirs {
		rel, ok := t.below(strings.Trim(p, "/"))
		if !ok || t.throughLink(rel) {
			continue
		}
		take, err := t.wanted(rel)
		if err != nil {
			return err
		}
		if take {
			t.dirs[t.at(rel)] = true
			t.keep[t.at(rel)] = true
		}
	}
	return nil
}

func (t *tree) listLinks(ctx context.Context) error {
	links, err := t.e.Files.Symlinks(ctx, t.env, t.src)
	if err != nil {
		return fn.Errorf("Recurse failed: %w", err)
	}
	for k, v := range links.All() {
		rel, ok := t.below(value.Str(k))
		if !ok {
			continue
		}
		take, err := t.wanted(rel)
		if err != nil {
			return err
		}
		if take {
			t.links[rel] = value.Str(v)
			t.keep[t.at(rel)] = true
		}
	}
	return nil
}

// throughLink reports whether a path is a symbolic link, or leads through one.
func (t *tree) throughLink(rel string) bool {
	for ; rel != "." && rel != "/"; rel = path.Dir(rel) {
		if _, ok := t.links[rel]; ok {
			return true
		}
	}
	return false
}

func (t *tree) at(rel string) string { return filepath.Join(t.Name, filepath.FromSlash(rel)) }

// plan collects the plans of the parts.
func (t *tree) plan(ctx context.Context) (state.Plan, error) {
	for _, rel := range sortedKeys(t.links) {
		p, err := t.symlink(ctx, t.e, symlinkArgs{
			Name: t.at(rel), Target: t.links[rel], Makedirs: true, Force: t.ForceSymlinks, User: t.User, Group: t.Group, Mode: t.SymMode, Follow: true,
		})
		t.parts = append(t.parts, part{t.at(rel), p, err})
	}
	for _, dir := range sortedKeys(t.dirs) {
		t.parts = append(t.parts, t.part(ctx, dir))
	}
	for _, rel := range t.files {
		t.parts = append(t.parts, t.fileOf(ctx, rel))
	}
	if t.Clean && filesys.IsDir(t.Name) {
		keep := map[string]bool{t.Name: true}
		for p := range t.keep {
			keepPath(keep, p)
		}
		var trees []string
		for _, p := range required(t.Require, t.e.Run.Chunks) {
			keepPath(keep, p)
			if filesys.IsDir(p) && strings.HasPrefix(p, t.Name+"/") {
				trees = append(trees, p)
			}
		}
		spare, err := newChooser(nil, t.ExcludePat)
		if err != nil {
			return state.Plan{}, err
		}
		if t.removals, t.shown, err = leftovers(t.Name, keep, trees, spare); err != nil {
			return state.Plan{}, err
		}
		slices.Sort(t.removals)
		slices.Sort(t.shown)
	}
	return t.join(), nil
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (t *tree) part(ctx context.Context, dir string) part {
	if t.Clean && filesys.Exists(dir, false) && !filesys.IsDir(dir) {
		return part{dir, replacing(dir, "Replacing "+dir+" with a directory", "Replaced file with a directory",
			func(ctx context.Context) (state.Plan, error) {
				return t.directory(ctx, t.e, t.directoryArgs(dir))
			}), nil}
	}
	p, err := t.directory(ctx, t.e, t.directoryArgs(dir))
	return part{dir, p, err}
}

func (t *tree) directoryArgs(dir string) directoryArgs {
	return directoryArgs{Name: dir, User: t.User, Group: t.Group, DirMode: t.DirMode, Makedirs: true, AllowSymlink: true}
}

func (t *tree) fileOf(ctx context.Context, rel string) part {
	name := t.at(rel)
	do := func(ctx context.Context, g *group) (state.Plan, error) {
		return newManaged(t.m, t.e, t.managedArgs(name, rel)).planned(ctx, g)
	}
	if t.Clean && t.Replace && filesys.IsDir(name) {
		return part{name, replacing(name, "Replacing directory "+name+" with a file", "Replaced directory with a new file",
			func(ctx context.Context) (state.Plan, error) {
				return do(ctx, nil)
			}), nil}
	}
	p, err := do(ctx, &t.writing)
	return part{name, p, err}
}

func (t *tree) managedArgs(name, rel string) *managedArgs {
	url := fileclient.URL(path.Join(t.src, rel))
	if t.env != "" {
		url += "?saltenv=" + t.env
	}
	a := &managedArgs{
		Name: name, User: t.User, Group: t.Group, Mode: t.FileMode, Makedirs: true, Replace: t.Replace, Backup: t.Backup, ShowChanges: true, Create: true,
		FollowSymlinks: true, Kwargs: t.Kwargs,
	}
	a.Source, a.Template, a.Context, a.Defaults, a.KeepSource, a.AllowEmpty, a.VerifySSL = url, t.Template, t.Context, t.Defaults, t.KeepSource, true, true
	return a
}

// replacing returns the plan to replace a path of the wrong type.
func replacing(name, predicted, done string, then func(context.Context) (state.Plan, error)) state.Plan {
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: predicted},
		Do: func(ctx context.Context) (state.Change, error) {
			if err := filesys.Remove(name); err != nil {
				return state.Change{}, fn.Errorf("cannot remove %s: %w", name, atomicfile.Cause(err))
			}
			p, err := then(ctx)
			if err != nil {
				return state.Change{}, err
			}
			for _, s := range p.Steps {
				if _, err := s.Do(ctx); err != nil {
					return state.Change{}, err
				}
			}
			return state.Change{Diff: value.DictOf("diff", done)}, nil
		},
	}}}
}

// join merges the plans of the parts.
func (t *tree) join() state.Plan {
	predicted := value.NewDict(0)
	var notes []string
	due, failed := len(t.removals) > 0, false
	note := func(path, text string) {
		if text != "" {
			notes = append(notes, "\n#### "+path+" ####\n"+text)
		}
	}
	for _, p := range t.parts {
		switch {
		case p.err != nil:
			failed = true
			text := p.err.Error()
			if f := p.plan.Forecast; f != nil && f.Verdict == state.Failed {
				text = f.Comment
			}
			note(p.path, text)
		case len(p.plan.Steps) > 0:
			due = true
			diff := value.NewDict(1)
			comment := ""
			for _, s := range p.plan.Steps {
				if s.Change.Diff != nil {
					merge(diff, s.Change.Diff)
				}
				comment = s.Change.Comment
			}
			if diff.Len() > 0 {
				predicted.Set(p.path, diff)
			}
			note(p.path, comment)
		}
	}
	if len(t.removals) > 0 {
		note("removed", strings.Join(t.shown, "\n"))
	}
	right := "The directory " + t.Name + " is in the correct state"
	if !due && !failed {
		if filesys.IsDir(t.Name) {
			return state.Plan{Comment: right}
		}
		// The directory stays empty. It is created without a reported change.
		return state.Plan{Forecast: &state.Result{Verdict: state.Succeeded, Comment: right}, Steps: []state.Step{{Do: t.do}}}
	}
	forecast := &state.Result{Verdict: state.Undecided, Comment: strings.TrimSpace(strings.Join(notes, "\n")), Changes: predicted}
	if failed {
		forecast.Verdict = state.Failed
	}
	if forecast.Comment == "" {
		forecast.Comment = "Recursively updated " + t.Name
	}
	return state.Plan{Forecast: forecast, Steps: []state.Step{{Change: state.Change{Diff: predicted, Comment: forecast.Comment}, Do: t.do}}}
}

// do executes the plans of the parts. A failure does not stop the others.
func (t *tree) do(ctx context.Context) (state.Change, error) {
	changes := value.NewDict(len(t.parts))
	own, err := t.owner(ctx, t.User, t.Group, filesys.NormalizeMode(t.DirMode))
	if err == nil {
		err = own.Available()
	}
	if err != nil {
		return state.Change{}, err
	}
	if err := filesys.MakeDirs(t.Name, own.UID, own.GID, own.Bits); err != nil {
		return state.Change{}, fn.Errorf("cannot make the directory %s: %w", t.Name, atomicfile.Cause(err))
	}
	var notes []string
	for _, p := range t.parts {
		err := p.err
		diff := value.NewDict(1)
		for _, s := range p.plan.Steps {
			if err != nil {
				break
			}
			var c state.Change
			c, err = s.Do(ctx)
			if c.Diff != nil {
				merge(diff, c.Diff)
			}
		}
		if p.path == t.Name && diff.Has(t.Name) { // its creation was just reported
			if d, ok := diff.At(t.Name).(*value.Dict); ok && d.Has("directory") {
				diff.Delete(t.Name)
			}
		}
		if diff.Len() > 0 {
			changes.Set(p.path, diff)
		}
		if err != nil {
			notes = append(notes, "\n#### "+p.path+" ####\n"+err.Error())
		}
	}
	removed := value.ListOf()
	for _, p := range t.removals {
		if err := filesys.Remove(p); err != nil {
			notes = append(notes, "\n#### "+p+" ####\n"+atomicfile.Cause(err).Error())
			continue
		}
		removed.Append(p)
	}
	if removed.Len() > 0 {
		changes.Set("removed", removed)
	}
	if len(notes) > 0 {
		return state.Change{Diff: changes}, fn.Errorf("%s", strings.TrimSpace(strings.Join(notes, "\n")))
	}
	if changes.Len() == 0 {
		return state.Change{Comment: "The directory " + t.Name + " is in the correct state"}, nil
	}
	return state.Change{Diff: changes, Comment: "Recursively updated " + t.Name}, nil
}
