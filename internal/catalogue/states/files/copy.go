package files

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/managed"
	"brine/internal/host/account"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/perms"
	"brine/internal/sls/state/sources"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{state.Of("copy", f.copy, `Copy a file or directory of this machine to a place where there is none.`)}
	})
}

type copyArgs struct {
	Name     string    `salt:"name" doc:"path of the copy"`
	Source   string    `salt:"source" doc:"path of what is copied"`
	Force    bool      `salt:"force" doc:"replace what is at the path" default:"false"`
	Makedirs bool      `salt:"makedirs" doc:"make the directories that are missing" default:"false"`
	Preserve bool      `salt:"preserve" doc:"keep owner and mode of the source" default:"false"`
	User     any       `salt:"user" doc:"owner; by default who the minion runs as" default:"null"`
	Group    any       `salt:"group" doc:"group; by default that of the user" default:"null"`
	Mode     any       `salt:"mode" doc:"mode; by default that of the source" default:"null"`
	DirMode  any       `salt:"dir_mode" doc:"mode of directories that are made" default:"null"`
	Subdir   bool      `salt:"subdir" doc:"if the path is a directory, copy into it" default:"false"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

func (f file) copy(ctx context.Context, _ *state.Env, a copyArgs) (state.Plan, error) {
	name, err := absolute(a.Name, "Must provide name to file.copy")
	if err != nil {
		return state.Plan{}, err
	}
	source := filesys.ExpandUser(a.Source)
	from, err := filesys.Look(f.m, source, true)
	if err != nil {
		return state.Plan{}, fn.Errorf(`Source file "%s" is not present`, source)
	}
	done := `Copied "` + source + `" to "` + name + `"`
	own, err := f.copyOwner(ctx, a, from)
	if err != nil {
		return state.Plan{}, err
	}
	if filesys.IsDir(name) && a.Subdir {
		name = filepath.Join(name, filepath.Base(source))
	}
	there := filesys.Exists(name, false)
	if there && !a.Force {
		return state.Plan{Comment: `The target file "` + name + `" exists and will not be overwritten`}, nil
	}
	if there && filesys.IsFile(name) && from.IsFile() {
		if same, err := (&sources.Content{Path: source}).Same(name); err == nil && same {
			done += " - files are identical but force flag is set"
		}
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: `File "` + source + `" is set to be copied to "` + name + `"`},
		Do: func(context.Context) (state.Change, error) {
			if err := own.Available(); err != nil {
				return state.Change{}, err
			}
			if err := f.makeCopy(source, name, a, own, from.IsDir(), there); err != nil {
				return state.Change{}, err
			}
			diff := value.DictOf(name, source)
			if a.Preserve {
				return state.Change{Diff: diff, Comment: done}, nil
			}
			more, err := own.Apply(f.m, name, false)
			return state.Change{Diff: merge(diff, more), Comment: done}, err
		},
	}}}, nil
}

// copyOwner returns the owner that a copy should have.
func (f file) copyOwner(ctx context.Context, a copyArgs, from filesys.Facts) (managed.Owner, error) {
	if a.Preserve {
		return f.owner(ctx, int64(from.UID), int64(from.GID), from.Mode)
	}
	user, group, mode := a.User, a.Group, filesys.NormalizeMode(a.Mode)
	if user == nil {
		user = int64(os.Geteuid())
		if u, ok := account.ByID(f.m, os.Geteuid()); ok {
			user = u.Name
		}
	}
	if group == nil {
		if uid, ok := filesys.UserID(ctx, f.m, user); ok {
			if u, ok := account.ByID(f.m, uid); ok {
				group = int64(u.GID)
				if g, ok := account.GroupName(f.m, u.GID); ok {
					group = g
				}
			}
		}
	}
	if mode == "" {
		mode = from.Mode
	}
	return f.owner(ctx, user, group, mode)
}

func (f file) makeCopy(source, name string, a copyArgs, own managed.Owner, isDir, there bool) error {
	mode := perms.DirMode(own.Mode)
	if a.DirMode != nil {
		var err error
		if mode, err = filesys.ParseMode(filesys.NormalizeMode(a.DirMode)); err != nil {
			return fn.Errorf("dir_mode: %w", err)
		}
	}
	if err := parent(name, a.Makedirs, own.UID, own.GID, mode); err != nil {
		return err
	}
	if there && (isDir || filesys.IsDir(name)) {
		if err := filesys.Remove(name); err != nil {
			return fn.Errorf(`Failed to delete "%s" in preparation for forced move`, name)
		}
	}
	if !isDir {
		if resolved, err := filepath.EvalSymlinks(source); err == nil {
			source = resolved
		}
	}
	if err := filesys.CopyTree(source, name, a.Preserve); err != nil {
		return fn.Errorf(`Failed to copy "%s" to "%s": %w`, source, name, atomicfile.Cause(err))
	}
	if !isDir || a.Preserve {
		return nil
	}
	return filepath.WalkDir(name, func(p string, _ fs.DirEntry, err error) error {
		if err != nil || p == name {
			return err
		}
		return os.Lchown(p, own.UID, own.GID)
	})
}
