package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{
			state.Of("absent", f.absent, `Remove a file, link or directory with all that is in it.`),
			state.Of("exists", f.exists, `Fail unless there is something at a path.`),
			state.Of("missing", f.missing, `Fail if there is something at a path.`),
			state.Of("touch", f.touch, `Make an empty file, or set the times of one.`),
			state.Of("rename", f.rename, `Move a file to another place, once.`),
			state.Of("hardlink", f.hardlink, `Keep a hard link to a file.`),
		}
	})
}

type nameArgs struct {
	Name   string    `salt:"name" doc:"path"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (file) absent(_ context.Context, _ *state.Env, a nameArgs) (state.Plan, error) {
	name, err := absolute(a.Name, "Must provide name to file.absent")
	if err != nil {
		return state.Plan{}, err
	}
	if filepath.Clean(name) == "/" {
		return state.Plan{}, fn.Errorf(`Refusing to make "/" absent`)
	}
	if !filesys.Exists(name, false) {
		return state.Plan{Comment: "File " + name + " is not present"}, nil
	}
	kind, noun := "File ", "file "
	if filesys.IsDir(name) && !filesys.IsLink(name) {
		kind, noun = "Directory ", "directory "
	}
	gone := value.DictOf("removed", name)
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: gone, Comment: kind + name + " is set for removal"},
		Do: func(context.Context) (state.Change, error) {
			if err := filesys.Remove(name); err != nil {
				return state.Change{}, fn.Errorf("Failed to remove %s%s: %w", noun, name, atomicfile.Cause(err))
			}
			return state.Change{Diff: gone, Comment: "Removed " + noun + name}, nil
		},
	}}}, nil
}

func (file) exists(_ context.Context, _ *state.Env, a nameArgs) (state.Plan, error) {
	switch name := filesys.ExpandUser(a.Name); {
	case name == "":
		return state.Plan{}, fn.Errorf("Must provide name to file.exists")
	case !filesys.Exists(name, true):
		return state.Plan{}, fn.Errorf("Specified path %s does not exist", name)
	default:
		return state.Plan{Comment: "Path " + name + " exists"}, nil
	}
}

func (file) missing(_ context.Context, _ *state.Env, a nameArgs) (state.Plan, error) {
	switch name := filesys.ExpandUser(a.Name); {
	case name == "":
		return state.Plan{}, fn.Errorf("Must provide name to file.missing")
	case filesys.Exists(name, true):
		return state.Plan{}, fn.Errorf("Specified path %s exists", name)
	default:
		return state.Plan{Comment: "Path " + name + " is missing"}, nil
	}
}

type touchArgs struct {
	Name     string   `salt:"name" doc:"path"`
	Atime    *float64 `salt:"atime" doc:"time of the last access, in seconds since 1970" default:"null"`
	Mtime    *float64 `salt:"mtime" doc:"time of the last change, in seconds since 1970" default:"null"`
	Makedirs bool     `salt:"makedirs" doc:"make the directories that are missing" default:"false"`
}

func (f file) touch(_ context.Context, _ *state.Env, a touchArgs) (state.Plan, error) {
	name, err := absolute(a.Name, "Must provide name to file.touch")
	if err != nil {
		return state.Plan{}, err
	}
	now, err := filesys.Look(f.m, name, false)
	there := err == nil && filesys.Exists(name, true)
	step := state.Step{Do: func(context.Context) (state.Change, error) { return touch(name, a, there) }}
	switch {
	case !there:
		step.Change = state.Change{Diff: value.DictOf("new", name), Comment: "File " + name + " is set to be created"}
	case a.Atime != nil && *a.Atime != seconds(now.Access) || a.Mtime != nil && *a.Mtime != seconds(now.Mod):
		step.Change = state.Change{Diff: value.DictOf("touched", name), Comment: "Times set to be updated on file " + name}
	case a.Atime != nil || a.Mtime != nil:
		return state.Plan{Comment: "File " + name + " exists and has the correct times"}, nil
	default: // like touch(1), each run sets the times to now
		return state.Plan{Steps: []state.Step{step},
			Forecast: &state.Result{Verdict: state.Succeeded, Comment: "File " + name + " exists and has the correct times"}}, nil
	}
	return state.Plan{Steps: []state.Step{step}}, nil
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

func moment(s *float64, otherwise time.Time) time.Time {
	if s == nil {
		return otherwise
	}
	return time.Unix(0, int64(*s*1e9))
}

func touch(name string, a touchArgs, there bool) (state.Change, error) {
	if a.Makedirs {
		if err := filesys.MakeDirs(filepath.Dir(name), -1, -1, -1); err != nil {
			return state.Change{}, fn.Errorf("cannot make the directory %s: %w", filepath.Dir(name), atomicfile.Cause(err))
		}
	}
	if !filesys.IsDir(filepath.Dir(name)) {
		return state.Change{}, fn.Errorf("Directory not present to touch file %s", name)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err == nil {
		err = f.Close()
	} else if errors.Is(err, syscall.EISDIR) {
		err = nil
	}
	now := time.Now()
	atime, mtime := moment(a.Atime, now), moment(a.Mtime, now)
	switch { // as in Salt, a missing time is set to the other
	case a.Atime == nil && a.Mtime != nil:
		atime = mtime
	case a.Mtime == nil && a.Atime != nil:
		mtime = atime
	}
	if err == nil {
		err = os.Chtimes(name, atime, mtime)
	}
	if err != nil {
		return state.Change{}, fn.Errorf("cannot touch %s: %w", name, atomicfile.Cause(err))
	}
	if !there {
		return state.Change{Diff: value.DictOf("new", name), Comment: "Created empty file " + name}, nil
	}
	noun := "file "
	if filesys.IsDir(name) {
		noun = "directory "
	}
	return state.Change{Diff: value.DictOf("touched", name), Comment: "Updated times on " + noun + name}, nil
}

type renameArgs struct {
	Name     string    `salt:"name" doc:"the new path"`
	Source   string    `salt:"source" doc:"the old path"`
	Force    bool      `salt:"force" doc:"replace what is at the new path" default:"false"`
	Makedirs bool      `salt:"makedirs" doc:"make the directories that are missing" default:"false"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

func (file) rename(_ context.Context, _ *state.Env, a renameArgs) (state.Plan, error) {
	name, err := absolute(os.ExpandEnv(a.Name), "Must provide name to file.rename")
	if err != nil {
		return state.Plan{}, err
	}
	source := filesys.ExpandUser(os.ExpandEnv(a.Source))
	switch {
	case !filesys.Exists(source, false):
		return state.Plan{Comment: `Source file "` + source + `" has already been moved out of place`}, nil
	case filesys.Exists(name, false) && !a.Force:
		return state.Plan{Comment: `The target file "` + name + `" exists and will not be overwritten`}, nil
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Comment: `File "` + source + `" is set to be moved to "` + name + `"`},
		Do: func(context.Context) (state.Change, error) {
			if err := parent(name, a.Makedirs, -1, -1, -1); err != nil {
				return state.Change{}, err
			}
			if err := filesys.Move(source, name); err != nil {
				return state.Change{}, fn.Errorf(`Failed to move "%s" to "%s": %w`, source, name, atomicfile.Cause(err))
			}
			return state.Change{Diff: value.DictOf(name, source), Comment: `Moved "` + source + `" to "` + name + `"`}, nil
		},
	}}}, nil
}

// parent ensures that the directory of a file exists.
func parent(name string, makedirs bool, uid, gid, mode int) error {
	dir := filepath.Dir(name)
	switch {
	case filesys.IsDir(dir):
		return nil
	case !makedirs:
		return fn.Errorf("The target directory %s is not present", dir)
	}
	if err := filesys.MakeDirs(dir, uid, gid, mode); err != nil {
		return fn.Errorf("cannot make the directory %s: %w", dir, atomicfile.Cause(err))
	}
	return nil
}

type hardlinkArgs struct {
	Name     string    `salt:"name" doc:"path of the link"`
	Target   string    `salt:"target" doc:"the file"`
	Force    bool      `salt:"force" doc:"replace a file at the path" default:"false"`
	Makedirs bool      `salt:"makedirs" doc:"make the directories that are missing" default:"false"`
	User     any       `salt:"user" doc:"owner of directories that are made" default:"null"`
	Group    any       `salt:"group" doc:"group of directories that are made" default:"null"`
	DirMode  any       `salt:"dir_mode" doc:"mode of directories that are made" default:"null"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

func (f file) hardlink(ctx context.Context, _ *state.Env, a hardlinkArgs) (state.Plan, error) {
	name, target := filesys.ExpandUser(a.Name), a.Target
	own, err := f.owner(ctx, a.User, a.Group, filesys.NormalizeMode(a.DirMode))
	switch {
	case name == "":
		return state.Plan{}, fn.Errorf("Must provide name to file.hardlink")
	case err != nil:
		return state.Plan{}, err
	}
	var wrong []string
	if _, ok := filesys.UserID(ctx, f.m, a.User); !ok {
		wrong = append(wrong, "User "+value.Str(a.User)+" does not exist")
	}
	if _, ok := filesys.GroupID(ctx, f.m, a.Group); !ok {
		wrong = append(wrong, "Group "+value.Str(a.Group)+" does not exist")
	}
	if !filepath.IsAbs(name) {
		wrong = append(wrong, "Specified file "+name+" is not an absolute path")
	}
	if !filepath.IsAbs(target) {
		wrong = append(wrong, "Specified target "+target+" is not an absolute path")
	}
	if err := together(wrong); err != nil {
		return state.Plan{}, err
	}
	switch {
	case !filesys.Exists(target, true):
		return state.Plan{}, fn.Errorf("Target %s for hard link does not exist", target)
	case filesys.IsDir(target):
		return state.Plan{}, fn.Errorf("Unable to hard link from directory %s", target)
	case filesys.IsDir(name):
		return state.Plan{}, fn.Errorf("Unable to hard link to directory %s", name)
	}
	there, linked := filesys.Exists(name, false), false
	if a, err := os.Lstat(name); err == nil {
		st, ok := a.Sys().(*syscall.Stat_t)
		linked = ok && st.Nlink > 1
		if b, err := os.Stat(target); err == nil && os.SameFile(a, b) {
			return state.Plan{Comment: "Target of hard link " + name + " is already pointing to " + target,
				Forecast: &state.Result{Verdict: state.Succeeded, Comment: "The hard link " + name + " is presently targetting " + target}}, nil
		}
	}
	if there && !linked && !a.Force {
		return state.Plan{Forecast: &state.Result{Verdict: state.Failed, Comment: "File or directory exists where the hard link " + name +
				" should be. Did you mean to use force?"}},
			fn.Errorf("File exists where the hard link %s should be", name)
	}
	predicted, made := value.DictOf("new", name), value.DictOf("new", name)
	comment := "Hard link " + name + " to " + target + " is set for creation"
	done := "Created new hard link "
	switch {
	case linked: // the content has another name
		comment = "Link " + name + " target is set to be changed to " + target
		predicted, done = value.DictOf("change", name), "Set target of hard link "
	case there:
		comment = "The file or directory " + name + " is set for removal to make way for a new hard link targeting " + target
		predicted, made = nil, value.DictOf("forced", "File for hard link was forcibly replaced", "new", name)
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: predicted, Comment: comment},
		Do: func(context.Context) (state.Change, error) {
			if !filesys.IsDir(filepath.Dir(name)) && !a.Makedirs {
				return state.Change{}, fn.Errorf("Directory %s for hard link is not present", filepath.Dir(name))
			}
			err := parent(name, true, own.UID, own.GID, own.Bits)
			if err == nil && there {
				err = os.Remove(name)
			}
			if err == nil {
				err = os.Link(target, name)
			}
			if err != nil {
				return state.Change{}, fn.Errorf("Unable to set target of hard link %s -> %s: %w", name, target, atomicfile.Cause(err))
			}
			return state.Change{Diff: made, Comment: done + name + " -> " + target}, nil
		},
	}}}, nil
}
