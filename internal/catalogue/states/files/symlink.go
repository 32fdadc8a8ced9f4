package files

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/managed"
	"brine/internal/host/account"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{state.Of("symlink", f.symlink,
			`Keep a symbolic link. One that leads elsewhere is changed; a file or directory in its place is an error, unless it may be removed.`)}
	})
}

type symlinkArgs struct {
	Name       string    `salt:"name" doc:"path of the link"`
	Target     string    `salt:"target" doc:"what it leads to"`
	Force      bool      `salt:"force" doc:"remove a file or directory in its place" default:"false"`
	Backupname string    `salt:"backupname" doc:"name to give to a file or directory in its place" default:"null"`
	Makedirs   bool      `salt:"makedirs" doc:"make the directories that are missing" default:"false"`
	User       any       `salt:"user" doc:"owner of the link; by default who the minion runs as" default:"null"`
	Group      any       `salt:"group" doc:"group of the link; by default that of the user" default:"null"`
	Mode       any       `salt:"mode" doc:"mode of directories that are made" default:"null"`
	Atomic     bool      `salt:"atomic" doc:"replace what is there in one step; links always are" default:"false"`
	NoCopy     bool      `salt:"disallow_copy_and_unlink" doc:"fail when the backup is on another file system" default:"false"`
	Inherit    bool      `salt:"inherit_user_and_group" doc:"keep the owner of a link that is there" default:"false"`
	Follow     bool      `salt:"follow_symlinks" ignored:"a link in its place is always looked at itself" default:"true"`
	Kwargs     fn.Kwargs `salt:"kwargs"`
}

// link is a declared symbolic link.
type link struct {
	file
	symlinkArgs
	own    managed.Owner
	now    filesys.Facts
	there  bool // something exists at the path
	isLink bool
	to     string // present target of the link
}

func (f file) symlink(ctx context.Context, _ *state.Env, a symlinkArgs) (state.Plan, error) {
	a.Name = filesys.ExpandUser(a.Name)
	if a.Name == "" {
		return state.Plan{}, fn.Errorf("Must provide name to file.symlink")
	}
	l := &link{file: f, symlinkArgs: a}
	var err error
	l.now, err = filesys.Look(f.m, a.Name, false)
	l.there, l.isLink = err == nil, err == nil && l.now.IsLink()
	if l.isLink {
		l.to, _ = os.Readlink(a.Name)
	}
	if err := l.owners(ctx); err != nil {
		return state.Plan{}, err
	}
	return l.plan()
}

// owners resolves the owner of the link.
func (l *link) owners(ctx context.Context) error {
	user, group := l.User, l.Group
	if l.Inherit && l.isLink {
		if user == nil {
			user = l.now.User()
		}
		if group == nil {
			group = l.now.Group()
		}
	}
	if user == nil {
		if u, ok := account.ByID(l.m, os.Geteuid()); ok {
			user = u.Name
		} else {
			user = int64(os.Geteuid())
		}
	}
	uid, userOK := filesys.UserID(ctx, l.m, user)
	if group == nil {
		gid := os.Getegid()
		if u, ok := account.ByID(l.m, uid); ok {
			gid = u.GID
		}
		group = int64(gid)
		if name, ok := account.GroupName(l.m, gid); ok {
			group = name
		}
	}
	gid, groupOK := filesys.GroupID(ctx, l.m, group)
	bits, err := filesys.ParseMode(filesys.NormalizeMode(l.Mode))
	if err != nil {
		return fn.Errorf("%w", err)
	}
	l.own = managed.Owner{User: user, Group: group, UID: uid, GID: gid, Bits: bits}
	var wrong []string
	if !userOK {
		wrong = append(wrong, "User "+value.Str(user)+" does not exist")
	}
	if !groupOK {
		wrong = append(wrong, "Group "+value.Str(group)+" does not exist")
	}
	if !filepath.IsAbs(l.Name) {
		wrong = append(wrong, "Specified file "+l.Name+" is not an absolute path")
	}
	return together(wrong)
}

// together returns the error of all that is wrong with the arguments of a link, or nil.
func together(wrong []string) error {
	if len(wrong) == 0 {
		return nil
	}
	text := strings.Join(wrong, ". ")
	if len(wrong) > 1 {
		text += "."
	}
	return fn.Errorf("%s", text)
}

func (l *link) ownedRight() bool { return l.now.UID == l.own.UID && l.now.GID == l.own.GID }

func (l *link) plan() (state.Plan, error) {
	dir := filepath.Dir(l.Name)
	hint := ""
	if !filesys.IsDir(dir) {
		hint = "\nDirectory " + dir + " for symlink is not present"
		if l.Makedirs {
			hint = "\n" + dir + " will be created"
		}
	}
	whole := value.Str(l.own.User) + ":" + value.Str(l.own.Group)
	switch {
	case !l.there:
		return l.step(value.DictOf("new", l.Name), "Symlink "+l.Name+" to "+l.Target+" is set for creation"+hint), nil
	case l.isLink && filepath.Clean(l.to) != filepath.Clean(l.Target):
		return l.step(value.DictOf("change", l.Name), "Link "+l.Name+" target is set to be changed to "+l.Target+hint), nil
	case l.isLink && l.ownedRight():
		return state.Plan{Comment: "Symlink " + l.Name + " is present and owned by " + whole, Forecast: &state.Result{
			Verdict: state.Succeeded, Comment: "The symlink " + l.Name + " is present"}}, nil
	case l.isLink:
		comment := fmt.Sprintf("The symlink %s is present, but the ownership of the symlink would be changed from %s:%s to %s", l.Name, l.now.User(),
			l.now.Group(), whole)
		return state.Plan{Steps: []state.Step{{
			Change: state.Change{Diff: value.DictOf("ownership", l.now.User()+":"+l.now.Group()), Comment: comment},
			Do: func(context.Context) (state.Change, error) {
				if err := os.Lchown(l.Name, l.own.UID, l.own.GID); err != nil {
					return state.Change{}, fn.Errorf("Failed to set ownership of symlink %s to %s: %w", l.Name, whole, atomicfile.Cause(err))
				}
				return state.Change{Diff: value.DictOf("ownership", whole), Comment: "Set ownership of symlink " + l.Name + " to " + whole}, nil
			},
		}}}, nil
	}
	return l.inTheWay(hint)
}

// inTheWay returns the plan if a file or directory exists at the link's path.
func (l *link) inTheWay(hint string) (state.Plan, error) {
	if l.Force {
		p := l.step(nil, "The file or directory "+l.Name+" is set for removal to make way for a new symlink targeting "+l.Target+hint)
		return p, nil
	}
	what := "File system entry"
	switch l.now.Type {
	case "file":
		what = "File"
	case "dir":
		what = "Directory"
	}
	refusal := "File or directory exists where the symlink " + l.Name + " should be. Did you mean to use force?"
	if l.Backupname != "" || l.Atomic {
		p := l.step(nil, "")
		p.Forecast = &state.Result{Verdict: state.Failed, Comment: refusal}
		return p, nil
	}
	return state.Plan{Forecast: &state.Result{Verdict: state.Failed, Comment: refusal}}, fn.Errorf("%s exists where the symlink %s should be", what, l.Name)
}

func (l *link) step(predicted *value.Dict, comment string) state.Plan {
	return state.Plan{Steps: []state.Step{{Change: state.Change{Diff: predicted, Comment: comment},
		Do: func(context.Context) (state.Change, error) { return l.make() }}}}
}

func (l *link) make() (state.Change, error) {
	dir := filepath.Dir(l.Name)
	if !filesys.IsDir(dir) {
		if !l.Makedirs {
			return state.Change{}, fn.Errorf("Directory %s for symlink is not present", dir)
		}
		if err := filesys.MakeDirs(dir, l.own.UID, l.own.GID, l.own.Bits); err != nil {
			return state.Change{}, fn.Errorf("cannot make the directory %s: %w", dir, atomicfile.Cause(err))
		}
	}
	if l.there && !l.isLink && l.Backupname != "" {
		if err := l.backUpOld(); err != nil {
			return state.Change{}, err
		}
	}
	if err := l.place(); err != nil {
		return state.Change{}, fn.Errorf("Unable to create new symlink %s -> %s: %w", l.Name, l.Target, atomicfile.Cause(err))
	}
	return state.Change{Diff: value.DictOf("new", l.Name), Comment: "Created new symlink " + l.Name + " -> " + l.Target}, nil
}

func (l *link) backUpOld() error {
	to := l.Backupname
	if !filepath.IsAbs(to) {
		if to != filepath.Base(to) {
			return fn.Errorf("Backupname must be an absolute path or a file name: %s", to)
		}
		to = filepath.Join(filepath.Dir(l.Name), to)
	}
	if filesys.Exists(to, false) {
		if !l.Force {
			return fn.Errorf("Symlink & backup dest exists and Force not set. %s -> %s - backup: %s", l.Name, l.Target, to)
		}
		if err := filesys.Remove(to); err != nil {
			return fn.Errorf("Unable to rename %s to backup %s -> : %w", l.Name, to, atomicfile.Cause(err))
		}
	}
	rename := filesys.Move
	if l.NoCopy {
		rename = os.Rename // rename: the user asked for it
	}
	if err := rename(l.Name, to); err != nil {
		return fn.Errorf("Unable to rename %s to backup %s -> : %w", l.Name, to, atomicfile.Cause(err))
	}
	return nil
}

// place creates the link under a temporary name and renames it, so that the
// old or the new link always exists.
func (l *link) place() error {
	return atomicfile.Symlink(l.Target, l.Name, func(temp string) error {
		if err := os.Lchown(temp, l.own.UID, l.own.GID); err != nil {
			return err
		}
		if filesys.IsDir(l.Name) && !filesys.IsLink(l.Name) {
			return filesys.Remove(l.Name)
		}
		return nil
	})
}
