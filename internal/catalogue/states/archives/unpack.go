package archives

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/archive"
	"brine/internal/host/filesys"
	"brine/internal/host/proc"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func (u *unpacking) plan(ctx context.Context) (state.Plan, error) {
	if err := u.resolveHash(ctx); err != nil {
		return state.Plan{}, err
	}
	how := u.how()
	if verifiable := u.src.Hash != "" || how.SkipVerify || how.ETag; verifiable && !u.local() && u.src.Scheme() != "salt" {
		return u.planDownload(), nil
	}
	return u.planFetched(ctx)
}

// planDownload returns the plan for an archive of another server: test mode does not download it.
func (u *unpacking) planDownload() state.Plan {
	return state.Plan{
		Forecast: &state.Result{Comment: "Archive " + u.shown + " would be cached (if necessary) and checked to discover if extraction is needed"},
		Steps: []state.Step{{Do: func(ctx context.Context) (state.Change, error) {
			plan, err := u.planFetched(ctx)
			if err != nil || len(plan.Steps) == 0 {
				return state.Change{Comment: plan.Comment}, err
			}
			return plan.Steps[0].Do(ctx) // there is never a second step
		}}},
	}
}

func (u *unpacking) planFetched(ctx context.Context) (state.Plan, error) {
	if err := u.fetch(ctx); err != nil {
		return state.Plan{}, err
	}
	if err := u.readNote(); err != nil {
		return state.Plan{}, err
	}
	same, err := u.sameHash()
	if err != nil {
		return state.Plan{}, err
	}
	if same {
		return state.Plan{Comment: "Archive " + u.shown +
			" existing source sum is the same as the expected one and skip_files_list_verify argument was set to True. Extraction is not needed"}, nil
	}
	if err := u.list(ctx); err != nil {
		return state.Plan{}, err
	}
	if err := u.compare(); err != nil {
		return state.Plan{}, err
	}
	if len(u.wrong) > 0 && !u.Clean && !u.Force {
		return u.planWrong()
	}
	if u.Overwrite || u.missing || u.updated || len(u.wrong) > 0 {
		return u.planExtraction()
	}
	return u.planKept()
}

// planWrong returns the plan if paths of another type exist.
func (u *unpacking) planWrong() (state.Plan, error) {
	what := "The below paths (relative to " + u.name + ") exist, but are the incorrect type (file instead of directory, symlink instead of file, etc.)."
	paths := "\n"
	for _, w := range u.wrong {
		paths += "\n- " + w
	}
	var plan state.Plan
	if u.CleanParent {
		plan.Forecast = &state.Result{Comment: what +
			" Since the 'clean_parent' option is enabled, the destination parent directory would be removed first and then re-created and the " +
			"archive would be extracted"}
	}
	return plan, fn.Errorf("%s To proceed with extraction, set 'force' to True. Note that this will remove these paths before extracting.%s", what, paths)
}

func (u *unpacking) reason() string {
	switch {
	case u.updated && !u.Overwrite && !u.missing && len(u.wrong) == 0:
		return ", due to source_hash update"
	case u.missing:
		return ", due to absence of one or more files/dirs"
	}
	return ""
}

func (u *unpacking) planExtraction() (state.Plan, error) {
	if err := u.verified(); err != nil {
		return state.Plan{}, err
	}
	would := "Archive " + u.shown + " would be extracted to " + u.name
	if u.Clean {
		would += ", after cleaning destination path(s)"
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: would + u.reason()},
		Do: func(ctx context.Context) (state.Change, error) {
			changes := value.NewDict(2)
			comment, err := u.extract(ctx, changes)
			return state.Change{Diff: changes, Comment: comment}, err
		},
	}}}, nil
}

// planKept returns the plan if all files exist: their owner may be wrong.
func (u *unpacking) planKept() (state.Plan, error) {
	comment := "All files in archive are already present"
	stale := u.notes() && u.noted != u.hash
	if !value.Truth(u.User) && !value.Truth(u.Group) && !stale {
		return state.Plan{Comment: comment}, u.leave()
	}
	owners := &owners{u: u, dry: true}
	owners.enforce()
	if !owners.changed && !stale && len(owners.missing)+len(owners.failed) == 0 {
		return state.Plan{Comment: comment}, u.leave()
	}
	forecast := &state.Result{Verdict: state.Succeeded, Comment: comment}
	if owners.changed {
		forecast = &state.Result{Comment: comment + ". Ownership would be updated on one or more files/directories.",
			Changes: value.DictOf("updated ownership", true)}
	}
	return state.Plan{Forecast: forecast, Steps: []state.Step{{Do: func(context.Context) (state.Change, error) {
		changes := value.NewDict(1)
		comment, err := u.finish(changes, comment)
		return state.Change{Diff: changes, Comment: comment}, err
	}}}}, nil
}

// extract unpacks the archive.
func (u *unpacking) extract(ctx context.Context, changes *value.Dict) (string, error) {
	if err := u.clear(changes); err != nil {
		return "", err
	}
	made := !filesys.IsDir(u.name)
	if made {
		if err := filesys.MakeDirs(filepath.Clean(u.name), u.uid, -1, -1); err != nil {
			return "", fn.Errorf("cannot make the directory %s: %w", u.name, err)
		}
	}
	names, err := u.unpack(ctx)
	if err != nil {
		if made {
			_ = os.Remove(u.name) // only if it is empty
		}
		return "", fn.Errorf("%w", err)
	}
	if len(names) == 0 {
		return "", fn.Errorf("No files were extracted from %s", u.shown)
	}
	if made {
		changes.Set("directories_created", value.ListOf(u.name))
	}
	if u.trim > 0 && len(names) > u.trim {
		names = names[:u.trim]
		if u.format == "zip" {
			names = append(names, "List trimmed after "+value.Str(int64(u.trim))+" files.")
		}
	}
	changes.Set("extracted_files", value.Strings(names))
	trimmed := u.TrimOutput
	if trimmed == nil {
		trimmed = false
	}
	return u.finish(changes, u.shown+" extracted to "+u.name+u.reason()+". Output was trimmed to "+value.Str(trimmed)+" number of lines")
}

// clear removes paths as clean, clean_parent and force require.
func (u *unpacking) clear(changes *value.Dict) error {
	remove := func(name string) error {
		path := strings.TrimRight(u.name+name, "/")
		if !filesys.Exists(path, false) {
			return nil
		}
		if err := filesys.Remove(path); err != nil {
			return fn.Errorf("cannot remove %s: %w", path, err)
		}
		if !changes.Has("removed") {
			changes.Set("removed", value.ListOf())
		}
		changes.At("removed").(*value.List).Append(u.name + name)
		return nil
	}
	if u.CleanParent {
		if filesys.Exists(u.name, false) {
			if err := filesys.Remove(strings.TrimRight(u.name, "/")); err != nil {
				return fn.Errorf("Unable to remove the directory %s. The following errors were observed:\n\n- %w", u.name, err)
			}
			changes.Set("removed", "Directory "+u.name+" was removed prior to the extraction")
		}
		return nil
	}
	var paths []string
	if u.Clean {
		top := u.content.Top()
		paths = append(append(append(paths, top.Dirs...), top.Files...), top.Links...)
	} else if u.Force {
		paths = u.wrong
	}
	for _, p := range paths {
		if err := remove(p); err != nil {
			return err
		}
	}
	return nil
}

// unpack unpacks the archive and returns the names.
func (u *unpacking) unpack(ctx context.Context) ([]string, error) {
	switch {
	case u.format == "zip" && !u.runsUnzip():
		return archive.Unzip(u.file, u.name, value.Split(u.Excludes), u.ExtractPerms)
	case u.format == "tar" && u.opts == "" && !u.viaProgram:
		return archive.Untar(ctx, u.file, u.name, u.lookUp(ctx))
	}
	words, err := proc.Split(u.opts)
	if err != nil {
		return nil, fn.Errorf("cannot read the options: %w", err)
	}
	c := host.Cmd{Program: "tar", Args: u.tarWords(words), Dir: u.name}
	if u.format == "zip" {
		c = host.Cmd{Program: "unzip", Args: u.unzipWords(words), Dir: u.name}
	}
	out, err := u.m.Command(ctx, c)
	switch {
	case err != nil:
		return nil, fn.Errorf("cannot run %s: %w", c.Program, err)
	case out.Exit != 0:
		return nil, fn.Errorf("%s failed with exit code %d: %s", c.Program, out.Exit, strings.TrimSpace(out.Stdout+"\n"+out.Stderr))
	case out.Stdout == "":
		return []string{"no " + c.Program + " output so far"}, nil
	}
	return strings.Split(out.Stdout, "\n"), nil
}

// tarWords returns the arguments of tar. Short options without a dash come
// first.
func (u *unpacking) tarWords(words []string) []string {
	short, long := "xv", []string(nil)
	for i, w := range words {
		switch {
		case w == "v" || w == "-v" || w == "--verbose":
		case i == 0 && !strings.HasPrefix(w, "-"):
			short += strings.NewReplacer("x", "", "f", "").Replace(w)
		default:
			long = append(long, w)
		}
	}
	return append(append([]string{short}, long...), "-f", u.file)
}

func (u *unpacking) unzipWords(words []string) []string {
	var args []string
	if value.Truth(u.Password) {
		args = append(args, "-P", value.Str(u.Password))
	}
	if u.Overwrite || u.missing || u.updated || len(u.wrong) > 0 {
		args = append(args, "-o") // unzip must not ask
	}
	args = append(append(args, words...), u.file, "-d", u.name)
	if x := value.Split(u.Excludes); len(x) > 0 {
		args = append(append(args, "-x"), x...)
	}
	return args
}

// finish sets the owner of the files and stores the hash.
func (u *unpacking) finish(changes *value.Dict, comment string) (string, error) {
	if value.Truth(u.User) || value.Truth(u.Group) {
		o := &owners{u: u}
		o.enforce()
		if o.changed {
			changes.Set("updated ownership", true)
		}
		if len(o.missing) > 0 {
			comment += "\n\nWhile trying to enforce user/group ownership, the following paths were missing:\n\n- " + strings.Join(o.missing, "\n- ")
		}
		if len(o.failed) > 0 {
			comment += "\n\nWhile trying to enforce user/group ownership, Salt was unable to change ownership on the following paths:\n\n- " +
				strings.Join(o.failed, "\n- ")
		}
		if len(o.failed) > 0 || len(o.missing) > 0 && u.IfMissing == nil {
			return "", fn.Errorf("%s", comment)
		}
	}
	if err := u.writeNote(); err != nil {
		return "", fn.Errorf("cannot note the hash of the archive: %w", err)
	}
	return comment, u.leave()
}

// leave removes the archive from the cache unless it must be kept.
func (u *unpacking) leave() error {
	keep := u.KeepSource
	if keep == nil {
		keep = u.Keep
	}
	if keep == nil || value.Truth(keep) || u.local() {
		return nil
	}
	if err := u.e.Files.Forget(u.src.URL, u.src.Env); err != nil {
		return fn.Errorf("%w", err)
	}
	return nil
}

// owners sets the user and group of files.
type owners struct {
	u       *unpacking
	dry     bool // only check
	changed bool
	missing []string
	failed  []string
}

// enforce visits the top level of the archive, or the path that the SLS names,
// and the directories below.
func (o *owners) enforce() {
	top := o.u.content.Top()
	dirs, others := top.Dirs, append(append([]string(nil), top.Files...), top.Links...)
	at := func(name string) string { return filepath.Join(o.u.name, name) }
	if on := text(o.u.EnforceOn); on != "" {
		at = func(name string) string { return name }
		if dirs, others = nil, []string{on}; filesys.IsDir(on) {
			dirs, others = []string{on}, nil
		}
	}
	for _, d := range dirs {
		path := at(d)
		if !filesys.IsDir(path) {
			o.missing = append(o.missing, path)
			continue
		}
		_ = filepath.WalkDir(path, func(p string, _ fs.DirEntry, err error) error {
			if err != nil {
				o.failed = append(o.failed, p)
				return fs.SkipDir
			}
			o.own(p)
			return nil
		})
	}
	for _, f := range others {
		if path := at(f); filesys.Exists(path, false) {
			o.own(path)
		} else {
			o.missing = append(o.missing, path)
		}
	}
}

func (o *owners) own(path string) {
	now, err := filesys.Look(o.u.m, path, false)
	if err != nil {
		o.failed = append(o.failed, path)
		return
	}
	if (o.u.uid < 0 || now.UID == o.u.uid) && (o.u.gid < 0 || now.GID == o.u.gid) {
		return
	}
	if !o.dry {
		if err := filesys.SetOwner(path, o.u.uid, o.u.gid, false); err != nil {
			o.failed = append(o.failed, path)
			return
		}
	}
	o.changed = true
}
