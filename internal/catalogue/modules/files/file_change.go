package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/py/value"

	"golang.org/x/sys/unix"
)

func (f file) changes() []fn.Func {
	return []fn.Func{
		fn.Of("set_mode", f.setMode, `Change the mode of a file and return it.`, fn.Example("salt '*' file.set_mode /etc/passwd 0644")),
		fn.Of("chown", f.chown(true), `Change the owner of a file. What it returns is why it did not.`,
			fn.Example("salt '*' file.chown /etc/passwd root root")),
		fn.Of("lchown", f.chown(false), `Change the owner of a file or of a symbolic link itself.`, fn.Example("salt '*' file.lchown /etc/mtab root root")),
		fn.Of("chgrp", f.chgrp, `Change the group of a file.`, fn.Example("salt '*' file.chgrp /etc/passwd root")),
		fn.Of("touch", f.touch, `Make an empty file, or set the times of one.`, fn.Example("salt '*' file.touch /var/log/emptyfile")),
		fn.Of("write", f.write, `Write lines to a file, in place of what it has.`, fn.Example(`salt '*' file.write /etc/motd args="['TEST', 'LINE', '2']"`)),
		fn.Of("append", f.append, `Append lines to a file.`, fn.Example("salt '*' file.append /etc/motd 'With all fine ingredients added to Salt.'")),
		fn.Of("prepend", f.prepend, `Put lines before what a file has.`, fn.Example("salt '*' file.prepend /etc/motd 'A first line'")),
		fn.Of("seek_write", f.seekWrite, `Write into the middle of a file and return how many bytes.`,
			fn.Example("salt '*' file.seek_write /path/to/file 'some data' 4096")),
		fn.Of("truncate", f.truncate, `Cut a file off at a length.`, fn.Example("salt '*' file.truncate /path/to/file 512")),
		fn.Of("link", f.link, `Make a hard link.`, fn.Example("salt '*' file.link /path/to/file /path/to/link")),
		fn.Of("symlink", f.symlink, `Make a symbolic link.`, fn.Example("salt '*' file.symlink /path/to/file /path/to/link")),
		fn.Of("rename", f.rename, `Give a file another name.`, fn.Example("salt '*' file.rename /path/to/src /path/to/dst")),
		fn.Of("move", f.move, `Move a file or directory, also to another file system.`, fn.Example("salt '*' file.move /path/to/src /path/to/dst")),
		fn.Of("copy", f.copy, `Copy a file, or with recurse a directory. The copy has the owner and mode of the source.`,
			fn.Example("salt '*' file.copy /path/to/src /path/to/dst")),
		fn.Of("remove", f.remove, `Remove a file, or a directory with all that is in it.`, fn.Example("salt '*' file.remove /tmp/foo")),
		fn.Of("rmdir", f.rmdir, `Remove a directory that is empty.`, fn.Example("salt '*' file.rmdir /tmp/foo")),
		fn.Of("mkdir", f.mkdir, `Make a directory and those above it.`, fn.Example("salt '*' file.mkdir /opt/jetty/context")),
		fn.Of("makedirs", f.makedirs, `Make the directories above a path; one that ends in a slash is a directory itself.`,
			fn.Example("salt '*' file.makedirs /opt/code/")),
		fn.Of("makedirs_perms", f.makedirsPerms, `Make a directory and those above it, with owner and mode.`,
			fn.Example("salt '*' file.makedirs_perms /opt/code")),
	}
}

type setModeArgs struct {
	Path string `salt:"path" doc:"path"`
	Mode any    `salt:"mode" doc:"mode, such as 0644"`
}

func (f file) setMode(_ context.Context, _ *fn.Call, a setModeArgs) (any, error) {
	path := filesys.ExpandUser(a.Path)
	mode := strings.TrimLeft(value.Str(a.Mode), "0Oo")
	if mode == "" {
		mode = "0"
	}
	if !filesys.Exists(path, true) {
		return nil, fn.Errorf("%s: File not found", path)
	}
	bits, err := filesys.ParseMode(mode)
	if err != nil {
		return "Invalid Mode " + mode, nil
	}
	if err := filesys.SetMode(path, bits); err != nil {
		return nil, fn.Errorf("cannot change the mode of %s: %w", path, err)
	}
	x, err := f.look(path, true)
	return x.Mode, err
}

type chownArgs struct {
	Path  string `salt:"path" doc:"path"`
	User  any    `salt:"user" doc:"user, by name or number"`
	Group any    `salt:"group" doc:"group, by name or number"`
}

func (f file) chown(follow bool) func(context.Context, *fn.Call, chownArgs) (any, error) {
	return func(ctx context.Context, _ *fn.Call, a chownArgs) (any, error) {
		path := filesys.ExpandUser(a.Path)
		uid, okUser := filesys.UserID(ctx, f.m, a.User)
		gid, okGroup := filesys.GroupID(ctx, f.m, a.Group)
		wrong := ""
		if !okUser {
			wrong += "User does not exist\n"
		}
		if !okGroup {
			wrong += "Group does not exist\n"
		}
		if !filesys.Exists(path, follow) && !filesys.IsLink(path) {
			wrong += "File not found"
		}
		if wrong != "" {
			return wrong, nil
		}
		if err := filesys.SetOwner(path, uid, gid, follow && filesys.Exists(path, true)); err != nil {
			return nil, fn.Errorf("cannot change the owner of %s: %w", path, err)
		}
		return nil, nil
	}
}

type chgrpArgs struct {
	Path  string `salt:"path" doc:"path"`
	Group any    `salt:"group" doc:"group, by name or number"`
}

func (f file) chgrp(ctx context.Context, c *fn.Call, a chgrpArgs) (any, error) {
	if !filesys.Exists(filesys.ExpandUser(a.Path), false) {
		return nil, fn.Errorf("Path not found: %s", filesys.ExpandUser(a.Path))
	}
	return f.chown(true)(ctx, c, chownArgs{Path: a.Path, Group: a.Group})
}

type touchArgs struct {
	Name  string   `salt:"name" doc:"path"`
	Atime *float64 `salt:"atime" doc:"time of the last access, in seconds since 1970" default:"null"`
	Mtime *float64 `salt:"mtime" doc:"time of the last change, in seconds since 1970" default:"null"`
}

func (file) touch(_ context.Context, _ *fn.Call, a touchArgs) (any, error) {
	name := filesys.ExpandUser(a.Name)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err == nil {
		f.Close()
	} else if !filesys.IsDir(name) {
		return nil, fn.Errorf("%w", atomicfile.Cause(err))
	}
	at := func(s *float64) time.Time {
		if s == nil {
			return time.Now()
		}
		return time.Unix(0, int64(*s*1e9))
	}
	if err := os.Chtimes(name, at(a.Atime), at(a.Mtime)); err != nil {
		return nil, fn.Errorf("%w", atomicfile.Cause(err))
	}
	return true, nil
}

type linesArgs struct {
	Path   string    `salt:"path" doc:"path"`
	Args   fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// lines returns the lines given as arguments, or as the keyword args.
func (a linesArgs) lines() ([]string, string) {
	all := []any(a.Args)
	if v, ok := a.Kwargs.Get("args"); ok {
		all = []any{v}
		if l, ok := v.(*value.List); ok {
			all = l.Items
		}
	}
	var out []string
	text := ""
	for _, v := range all {
		out = append(out, value.Str(v))
		text += value.Str(v) + "\n"
	}
	return out, text
}

func put(path, text string) error {
	as := atomicfile.As{Mode: -1, UID: -1, GID: -1, Durable: true}
	if err := atomicfile.ReplaceAs(path, as, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
		return fn.Errorf("cannot write %s: %w", path, atomicfile.Cause(err))
	}
	return nil
}

func wrote(what string, n int, path string) string {
	return what + " " + strconv.Itoa(n) + ` lines to "` + path + `"`
}

func (file) write(_ context.Context, _ *fn.Call, a linesArgs) (any, error) {
	lines, text := a.lines()
	path := filesys.ExpandUser(a.Path)
	return wrote("Wrote", len(lines), path), put(path, text)
}

// append adds to the file in place and with a single write, so that concurrent
// appends by other runs or programs are not lost. Replacing the file would
// lose them.
func (file) append(_ context.Context, _ *fn.Call, a linesArgs) (any, error) {
	lines, text := a.lines()
	path := filesys.ExpandUser(a.Path)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	defer f.Close()
	if open, err := unfinished(f); err != nil {
		return nil, fn.Errorf("%w", err)
	} else if open {
		text = "\n" + text
	}
	if _, err := f.WriteString(text); err != nil {
		return nil, fn.Errorf("cannot append to %s: %w", path, atomicfile.Cause(err))
	}
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) { // EINVAL is the error of a pipe or a terminal
		return nil, fn.Errorf("cannot append to %s: %w", path, atomicfile.Cause(err))
	}
	return wrote("Wrote", len(lines), path), nil
}

// unfinished reports whether the last line of a file lacks a line feed.
func unfinished(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false, err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil && err != io.EOF {
		return false, err
	}
	return last[0] != '\n', nil
}

func (file) prepend(_ context.Context, _ *fn.Call, a linesArgs) (any, error) {
	lines, text := a.lines()
	path := filesys.ExpandUser(a.Path)
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fn.Errorf("%w", err)
	}
	return wrote("Prepended", len(lines), path), put(path, text+string(old))
}

type seekWriteArgs struct {
	Path   string `salt:"path" doc:"path"`
	Data   any    `salt:"data" doc:"the text"`
	Offset int64  `salt:"offset" doc:"how many bytes to leave as they are"`
}

func (file) seekWrite(_ context.Context, _ *fn.Call, a seekWriteArgs) (any, error) {
	data, err := raw(a.Data)
	if err != nil {
		return nil, err
	}
	if a.Offset < 0 {
		return nil, fn.Invalidf("offset must not be below 0")
	}
	f, err := os.OpenFile(filesys.ExpandUser(a.Path), os.O_WRONLY, 0)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	n, err := f.WriteAt(data, a.Offset)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return n, err
}

type truncateArgs struct {
	Path   string `salt:"path" doc:"path"`
	Length int64  `salt:"length" doc:"in bytes"`
}

func (file) truncate(_ context.Context, _ *fn.Call, a truncateArgs) (any, error) {
	if err := os.Truncate(filesys.ExpandUser(a.Path), a.Length); err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return nil, nil
}

type twoArgs struct {
	Src  string `salt:"src" doc:"the file"`
	Path string `salt:"path" doc:"the link"`
}

func (file) link(_ context.Context, _ *fn.Call, a twoArgs) (any, error) {
	src := filesys.ExpandUser(a.Src)
	if !filepath.IsAbs(src) {
		return nil, fn.Invalidf("File path must be absolute.")
	}
	if err := os.Link(src, a.Path); err != nil {
		return nil, fn.Errorf("Could not create '%s': %w", a.Path, atomicfile.Cause(err))
	}
	return true, nil
}

type symlinkArgs struct {
	Src    string `salt:"src" doc:"what the link leads to"`
	Path   string `salt:"path" doc:"the link"`
	Force  bool   `salt:"force" doc:"remove a file or link that is there" default:"false"`
	Atomic bool   `salt:"atomic" doc:"replace what is there in one step" default:"false"`
	Follow bool   `salt:"follow_symlinks" doc:"see what a link that is there leads to" default:"true"`
}

func (file) symlink(_ context.Context, _ *fn.Call, a symlinkArgs) (any, error) {
	path := filesys.ExpandUser(a.Path)
	if !filepath.IsAbs(path) {
		return nil, fn.Invalidf("Link path must be absolute: %s", path)
	}
	link := filesys.IsLink(path)
	if link {
		if to, err := os.Readlink(path); err == nil && filepath.Clean(to) == filepath.Clean(a.Src) {
			return true, nil
		}
	}
	there := filesys.Exists(path, a.Follow)
	switch {
	case link && !a.Force && !a.Atomic:
		return nil, fn.Errorf("Found existing symlink: %s", path)
	case there && !a.Force && !a.Atomic:
		return nil, fn.Errorf("Existing path is not a symlink: %s", path)
	}
	if err := atomicfile.Symlink(a.Src, path, nil); err != nil {
		return nil, fn.Errorf("Could not create '%s': %w", path, atomicfile.Cause(err))
	}
	return true, nil
}

type srcDstArgs struct {
	Src string `salt:"src" doc:"the old path"`
	Dst string `salt:"dst" doc:"the new path"`
}

func (file) rename(_ context.Context, _ *fn.Call, a srcDstArgs) (any, error) {
	src, dst := filesys.ExpandUser(a.Src), filesys.ExpandUser(a.Dst)
	if !filepath.IsAbs(src) {
		return nil, fn.Invalidf("File path must be absolute.")
	}
	if err := os.Rename(src, dst); err != nil { // rename: the user asked for it
		return nil, fn.Errorf("Could not rename '%s' to '%s': %w", src, dst, atomicfile.Cause(err))
	}
	return true, nil
}

type moveArgs struct {
	Src    string `salt:"src" doc:"the old path"`
	Dst    string `salt:"dst" doc:"the new path"`
	NoCopy bool   `salt:"disallow_copy_and_unlink" doc:"fail where the new path is on another file system" default:"false"`
}

func (file) move(_ context.Context, _ *fn.Call, a moveArgs) (any, error) {
	src, dst := filesys.ExpandUser(a.Src), filesys.ExpandUser(a.Dst)
	switch {
	case !filepath.IsAbs(src):
		return nil, fn.Invalidf("Source path must be absolute.")
	case !filepath.IsAbs(dst):
		return nil, fn.Invalidf("Destination path must be absolute.")
	}
	move := filesys.Move
	if a.NoCopy {
		move = os.Rename // rename: the user asked for it
	} else if filesys.IsDir(dst) {
		dst = filepath.Join(dst, filepath.Base(src))
	}
	if err := move(src, dst); err != nil {
		return nil, fn.Errorf("Unable to move '%s' to '%s': %w", src, dst, atomicfile.Cause(err))
	}
	return value.DictOf("result", true, "comment", "'"+src+"' moved to '"+dst+"'"), nil
}

type copyArgs struct {
	Src            string `salt:"src" doc:"the file or directory"`
	Dst            string `salt:"dst" doc:"the copy"`
	Recurse        bool   `salt:"recurse" doc:"copy directories" default:"false"`
	RemoveExisting bool   `salt:"remove_existing" doc:"remove what is there first" default:"false"`
}

func (file) copy(_ context.Context, _ *fn.Call, a copyArgs) (any, error) {
	src, dst := filesys.ExpandUser(a.Src), filesys.ExpandUser(a.Dst)
	switch {
	case !filepath.IsAbs(src):
		return nil, fn.Invalidf("File path must be absolute.")
	case !filesys.Exists(src, true):
		return nil, fn.Errorf("No such file or directory '%s'", src)
	case (filesys.IsDir(src) || filesys.IsDir(dst)) && !a.Recurse:
		return nil, fn.Invalidf("Cannot copy overwriting a directory without recurse flag set to true!")
	}
	var err error
	if a.RemoveExisting && filesys.IsDir(src) {
		err = filesys.Remove(dst)
	}
	if err == nil {
		if real, e := filepath.EvalSymlinks(src); e == nil {
			src = real
		}
		err = filesys.CopyTree(src, dst, true)
	}
	if err != nil {
		return nil, fn.Errorf("Could not copy '%s' to '%s': %w", src, dst, atomicfile.Cause(err))
	}
	return true, nil
}

type removeArgs struct {
	Path   string    `salt:"path" doc:"path"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (file) remove(_ context.Context, _ *fn.Call, a removeArgs) (any, error) {
	path := filesys.ExpandUser(a.Path)
	switch {
	case !filepath.IsAbs(path):
		return nil, fn.Invalidf("File path must be absolute: %s", path)
	case filepath.Clean(path) == "/":
		return nil, fn.Invalidf("the root of the file system is not removed")
	case !filesys.Exists(path, false):
		return false, nil
	}
	if err := filesys.Remove(path); err != nil {
		return nil, fn.Errorf("Could not remove '%s': %w", path, atomicfile.Cause(err))
	}
	return true, nil
}

type rmdirArgs struct {
	Path    string `salt:"path" doc:"path of the directory"`
	Recurse bool   `salt:"recurse" doc:"remove empty directories in it, too" default:"false"`
	Verbose bool   `salt:"verbose" doc:"tell what was removed" default:"false"`
	Older   any    `salt:"older_than" doc:"only directories that were changed last more than so many days ago" default:"null"`
}

func (file) rmdir(_ context.Context, _ *fn.Call, a rmdirArgs) (any, error) {
	path := filesys.ExpandUser(a.Path)
	switch {
	case !filepath.IsAbs(path):
		return nil, fn.Invalidf("File path must be absolute.")
	case !filesys.IsDir(path):
		return nil, fn.Invalidf("A valid directory was not specified.")
	}
	var before time.Time
	if days, err := strconv.Atoi(value.Str(a.Older)); a.Older != nil && err == nil && days != 0 {
		before = time.Now().AddDate(0, 0, -days)
	}
	deleted, failed := value.ListOf(), value.ListOf()
	one := func(p string) {
		if st, err := os.Lstat(p); err != nil || !before.IsZero() && !st.ModTime().Before(before) {
			return
		}
		if err := unix.Rmdir(p); err != nil { // a link to a directory stays
			failed.Append(value.ListOf(p, atomicfile.Cause(err).Error()))
			return
		}
		deleted.Append(p)
	}
	if a.Recurse {
		var dirs []string
		if err := filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() && p != path {
				dirs = append(dirs, p)
			}
			return nil
		}); err != nil {
			return nil, err
		}
		for i := len(dirs) - 1; i >= 0; i-- {
			one(dirs[i])
		}
	}
	one(path)
	ok := failed.Len() == 0 && (a.Recurse || deleted.Len() > 0)
	if a.Verbose {
		return value.DictOf("deleted", deleted, "errors", failed, "result", ok), nil
	}
	return ok, nil
}

type mkdirArgs struct {
	Path  string `salt:"dir_path" doc:"path of the directory"`
	User  any    `salt:"user" doc:"owner" default:"null"`
	Group any    `salt:"group" doc:"group" default:"null"`
	Mode  any    `salt:"mode" doc:"mode" default:"null"`
}

// make creates a directory and its parents with owner and mode.
func (f file) make(ctx context.Context, path string, user, group, mode any) error {
	uid, okUser := filesys.UserID(ctx, f.m, user)
	gid, okGroup := filesys.GroupID(ctx, f.m, group)
	switch {
	case !okUser:
		return fn.Errorf("User %s is not available", value.Str(user))
	case !okGroup:
		return fn.Errorf("Group %s is not available", value.Str(group))
	}
	bits, err := filesys.ParseMode(filesys.NormalizeMode(mode))
	if err == nil {
		err = filesys.MakeDirs(path, uid, gid, bits)
	}
	if err != nil {
		return fn.Errorf("cannot make the directory %s: %w", path, atomicfile.Cause(err))
	}
	return nil
}

func (f file) mkdir(ctx context.Context, _ *fn.Call, a mkdirArgs) (any, error) {
	return true, f.make(ctx, filepath.Clean(filesys.ExpandUser(a.Path)), a.User, a.Group, a.Mode)
}

type makedirsArgs struct {
	Path  string `salt:"path" doc:"path; what is behind the last slash is not made"`
	User  any    `salt:"user" doc:"owner" default:"null"`
	Group any    `salt:"group" doc:"group" default:"null"`
	Mode  any    `salt:"mode" doc:"mode" default:"null"`
}

func (f file) makedirs(ctx context.Context, _ *fn.Call, a makedirsArgs) (any, error) {
	path := filesys.ExpandUser(a.Path)
	dir := filepath.Dir(path)
	switch {
	case filesys.IsDir(dir):
		return "Directory '" + dir + "' already exists", nil
	case filesys.Exists(dir, true):
		return "The path '" + dir + "' already exists and is not a directory", nil
	case !filepath.IsAbs(dir):
		return nil, fn.Invalidf("%s is not an absolute path", path)
	}
	return nil, f.make(ctx, dir, a.User, a.Group, a.Mode)
}

type makedirsPermsArgs struct {
	Name  string `salt:"name" doc:"path of the directory"`
	User  any    `salt:"user" doc:"owner" default:"null"`
	Group any    `salt:"group" doc:"group" default:"null"`
	Mode  any    `salt:"mode" doc:"mode" default:"'0755'"`
}

func (f file) makedirsPerms(ctx context.Context, _ *fn.Call, a makedirsPermsArgs) (any, error) {
	path := filesys.ExpandUser(a.Name)
	if !filepath.IsAbs(path) {
		return nil, fn.Invalidf("%s is not an absolute path", path)
	}
	return nil, f.make(ctx, filepath.Clean(path), a.User, a.Group, a.Mode)
}
