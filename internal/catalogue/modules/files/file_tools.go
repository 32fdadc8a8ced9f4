package files

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/host/proc"
	"brine/internal/host/process"
	"brine/internal/py/value"
)

// tools returns the functions that run programs on files, make device nodes and manage
// backup copies.
func (f file) tools() []fn.Func {
	return []fn.Func{
		fn.Of("grep", f.grep, `Run grep(1) on a file, or on those that a glob finds, and return what cmd.run_all does.`,
			fn.Example("salt '*' file.grep /etc/passwd nobody"), fn.Example(`salt '*' file.grep /etc/sysconfig/network ipaddr "\-i"`)),
		fn.Of("sed", f.sed, `Replace with sed(1) and return what cmd.run_all does. file.replace is the better choice.`,
			fn.Example("salt '*' file.sed /etc/httpd/httpd.conf 'LogLevel warn' 'LogLevel info'")),
		fn.Of("sed_contains", f.sedContains, `Say whether sed(1) finds an expression in a file.`,
			fn.Example("salt '*' file.sed_contains /etc/crontab 'mymaintenance.sh'")),
		fn.Of("patch", f.patch, `Apply a patch to a file or directory with patch(1), and return what cmd.run_all does.`,
			fn.Example("salt '*' file.patch /opt/file.txt /tmp/file.txt.patch")),
		fn.Of("lsattr", f.lsattr, `Return the attributes of files as lsattr(1) lists them, null without that program.`,
			fn.Example("salt '*' file.lsattr foo1.txt")),
		fn.Of("chattr", f.chattr, `Add or remove attributes of files with chattr(1).
			The keywords are operator (add or remove), attributes, flags and version.`,
			fn.Example("salt '*' file.chattr foo1.txt foo2.txt operator=add attributes=ai")),
		fn.Of("mknod", f.mknod, `Make a pipe (p), a character device (c) or a block device (b).`, fn.Example("salt '*' file.mknod /dev/chr c 180 31")),
		fn.Of("mknod_fifo", f.node("p"), `Make a pipe.`, fn.Params("name", "user", "group", "mode"), fn.Example("salt '*' file.mknod_fifo /dev/fifo")),
		fn.Of("mknod_chrdev", f.node("c"), `Make a character device.`, fn.Params("name", "major", "minor", "user", "group", "mode"),
			fn.Example("salt '*' file.mknod_chrdev /dev/chr 180 31")),
		fn.Of("mknod_blkdev", f.node("b"), `Make a block device.`, fn.Params("name", "major", "minor", "user", "group", "mode"),
			fn.Example("salt '*' file.mknod_blkdev /dev/blk 8 999")),
		fn.Of("get_devmm", f.numbers, `Return the numbers of a device, 0 and 0 of anything else.`, fn.Example("salt '*' file.get_devmm /dev/chr")),
		fn.Of("open_files", f.openFiles, `Return the processes by the files that they have open, or the files by process.`,
			fn.Example("salt '*' file.open_files by_pid=true")),
		fn.Of("list_backups", f.listBackups, `Return the copies of a file that changes left behind, the newest first.`,
			fn.Example("salt '*' file.list_backups /foo/bar/baz.txt")),
		fn.Of("list_backup", f.listBackups, `Same as file.list_backups.`, fn.Example("salt '*' file.list_backup /foo/bar/baz.txt")),
		fn.Of("list_backups_dir", f.listBackupsDir, `Return the copies of all files of a directory, whose path ends with a slash.`,
			fn.Example("salt '*' file.list_backups_dir /foo/bar/baz/")),
		fn.Of("restore_backup", f.restoreBackup, `Put back a copy by its number in file.list_backups.`,
			fn.Example("salt '*' file.restore_backup /foo/bar/baz.txt 0")),
		fn.Of("delete_backup", f.deleteBackup, `Remove a copy by its number in file.list_backups.`,
			fn.Example("salt '*' file.delete_backup /foo/bar/baz.txt 0")),
		fn.Of("remove_backup", f.deleteBackup, `Same as file.delete_backup.`, fn.Example("salt '*' file.remove_backup /foo/bar/baz.txt 0")),
	}
}

// run runs a program through the cmd module, so that the result is that of cmd.run_all.
func (file) run(ctx context.Context, c *fn.Call, words ...string) (*value.Dict, error) {
	ret, err := c.Funcs.Call(ctx, c, "cmd.run_all", []any{value.Strings(words)}, value.DictOf("python_shell", false))
	d, _ := ret.(*value.Dict)
	return d, err
}

type grepArgs struct {
	Path    string  `salt:"path" doc:"path or glob"`
	Pattern string  `salt:"pattern" doc:"what to look for"`
	Opts    fn.Args `salt:"opts"`
}

func (f file) grep(ctx context.Context, c *fn.Call, a grepArgs) (any, error) {
	words := []string{"grep"}
	for _, opt := range a.Opts {
		parts, err := proc.Split(value.Str(opt))
		if err != nil {
			return nil, fn.Invalidf("%w", err)
		}
		if len(parts) > 1 {
			return nil, fn.Invalidf("Passing multiple command line arguments in a single string is not supported, please pass the following "+
				"arguments separately: %s", value.Str(opt))
		}
		words = append(words, parts...)
	}
	paths, err := filepath.Glob(filesys.ExpandUser(a.Path))
	if err != nil || len(paths) == 0 {
		paths = []string{filesys.ExpandUser(a.Path)}
	}
	return f.run(ctx, c, append(append(words, a.Pattern), paths...)...)
}

type sedArgs struct {
	Path      string `salt:"path" doc:"path"`
	Before    any    `salt:"before" doc:"regular expression"`
	After     any    `salt:"after" doc:"what to put in its place"`
	Limit     any    `salt:"limit" doc:"regular expression of the lines to look at" default:""`
	Backup    string `salt:"backup" doc:"end of the name of a copy of the old file; none if empty" default:".bak"`
	Options   string `salt:"options" doc:"options of sed" default:"-r -e"`
	Flags     string `salt:"flags" doc:"flags of sed's command" default:"g"`
	EscapeAll bool   `salt:"escape_all" doc:"take the expressions for plain texts" default:"false"`
	Negate    bool   `salt:"negate_match" doc:"look at the lines that limit does not find" default:"false"`
}

// sedText escapes a string for a command of sed.
func sedText(v any, plain bool) string {
	s := strings.NewReplacer("'", `'"'"'`, "/", `\/`).Replace(value.Str(v))
	if plain {
		for _, char := range "^.[$()|*+?{" {
			s = strings.ReplaceAll(s, string(char), `\`+string(char))
		}
	}
	return s
}

// sedCommand returns the sed command that replaces text in lines that match limit.
func sedCommand(limit, negate, before, after, flags string) string {
	if limit != "" {
		limit = "/" + limit + "/ "
	}
	return limit + negate + "s/" + before + "/" + after + "/" + flags
}

func (f file) sed(ctx context.Context, c *fn.Call, a sedArgs) (any, error) {
	path := filesys.ExpandUser(a.Path)
	if !filesys.Exists(path, true) {
		return false, nil
	}
	options, err := proc.Split(a.Options)
	if err != nil {
		return nil, fn.Invalidf("%w", err)
	}
	negate := ""
	if a.Negate {
		negate = "!"
	}
	command := sedCommand(sedText(a.Limit, a.EscapeAll), negate, sedText(a.Before, a.EscapeAll), sedText(a.After, a.EscapeAll), a.Flags)
	return f.run(ctx, c, slices.Concat([]string{"sed", "-i" + a.Backup}, options, []string{command, path})...)
}

type sedContainsArgs struct {
	Path  string `salt:"path" doc:"path"`
	Text  any    `salt:"text" doc:"regular expression"`
	Limit any    `salt:"limit" doc:"regular expression of the lines to look at" default:""`
	Flags string `salt:"flags" doc:"flags of sed's command" default:"g"`
}

func (f file) sedContains(ctx context.Context, c *fn.Call, a sedContainsArgs) (any, error) {
	path := filesys.ExpandUser(a.Path)
	if !filesys.Exists(path, true) {
		return false, nil
	}
	d, err := f.run(ctx, c, "sed", "-n", "-r", "-e", sedCommand(sedText(a.Limit, false), "", sedText(a.Text, false), "$", "p"+a.Flags), path)
	return d.Str("stdout")+d.Str("stderr") != "", err
}

type patchArgs struct {
	Original string `salt:"originalfile" doc:"path of the file or directory"`
	Patch    string `salt:"patchfile" doc:"path of the patch"`
	Options  string `salt:"options" doc:"options of patch" default:""`
	DryRun   bool   `salt:"dry_run" doc:"change nothing" default:"false"`
}

func (f file) patch(ctx context.Context, c *fn.Call, a patchArgs) (any, error) {
	if f.m.Which("patch") == "" {
		return nil, fn.Errorf("patch executable not found. Is the distribution's patch package installed?")
	}
	options, err := proc.Split(a.Options)
	if err != nil {
		return nil, fn.Invalidf("%w", err)
	}
	has := func(begins ...string) bool {
		return slices.ContainsFunc(options, func(o string) bool {
			return slices.ContainsFunc(begins, func(b string) bool { return strings.HasPrefix(o, b) })
		})
	}
	words := append([]string{f.m.Which("patch")}, options...)
	if a.DryRun {
		words = append(words, "--dry-run")
	}
	if !slices.Contains(options, "-N") && !slices.Contains(options, "--forward") {
		words = append(words, "--forward") // does not ask questions
	}
	if !slices.Contains(options, "-r") && !has("-r ", "--reject-file") {
		words = append(words, "--reject-file=-")
	}
	words = append(words, "-i", a.Patch)
	if !filesys.IsDir(a.Original) {
		return f.run(ctx, c, append(words, a.Original)...)
	}
	if words = append(words, "-d", a.Original); !has("-p", "--strip=") {
		words = append(words, "--strip=0")
	}
	return f.run(ctx, c, words...)
}

var fileAttribute = regexp.MustCompile(`[aAcCdDeijPsStTu]`)

func (f file) lsattr(ctx context.Context, _ *fn.Call, a pathArg) (any, error) {
	switch {
	case f.m.Which("lsattr") == "":
		return nil, nil
	case !filesys.Exists(a.Path, true):
		return nil, fn.Invalidf("File or directory does not exist: %s", a.Path)
	case a.Path[0] == '-':
		return nil, fn.Invalidf("%q is no path; begin it with ./", a.Path)
	}
	out, err := f.m.Do(ctx, "lsattr", a.Path)
	if err != nil {
		return nil, fn.Errorf("cannot run lsattr: %w", err)
	}
	found := value.NewDict(4)
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		if letters, name, ok := strings.Cut(line, " "); ok && !strings.HasPrefix(line, "lsattr: ") {
			found.Set(strings.TrimSpace(name), value.Strings(fileAttribute.FindAllString(letters, -1)))
		}
	}
	return found, nil
}

type chattrArgs struct {
	Files  fn.Args   `salt:"files"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

var attributeLetters = regexp.MustCompile(`^[A-Za-z]+$`)

func (f file) chattr(ctx context.Context, _ *fn.Call, a chattrArgs) (any, error) {
	sign := map[any]string{"add": "+", "remove": "-"}[a.Kwargs.At("operator")]
	if sign == "" {
		return nil, fn.Invalidf("Need an operator: 'add' or 'remove' to modify attributes.")
	}
	letters := value.Str(a.Kwargs.At("attributes"))
	if a.Kwargs.At("attributes") == nil || !attributeLetters.MatchString(letters) {
		return nil, fn.Invalidf("Need attributes: [aAcCdDeijPsStTu]")
	}
	words := []string{sign + letters}
	if v := a.Kwargs.At("flags"); v != nil {
		words = append(words, "-"+value.Str(v))
	}
	if v := a.Kwargs.At("version"); v != nil {
		words = append(words, "-v", value.Str(v))
	}
	words = append(words, "--")
	for _, name := range a.Files {
		words = append(words, value.Str(name))
	}
	out, err := f.m.Do(ctx, "chattr", words...)
	if err != nil {
		return nil, fn.Errorf("cannot run chattr: %w", err)
	}
	return out.Stdout+out.Stderr == "", nil
}

type mknodArgs struct {
	Name  string `salt:"name" doc:"path"`
	Type  string `salt:"ntype" doc:"p, c or b"`
	Major int    `salt:"major" doc:"number of the driver" default:"0"`
	Minor int    `salt:"minor" doc:"number of the device" default:"0"`
	User  any    `salt:"user" doc:"who shall own it" default:"null"`
	Group any    `salt:"group" doc:"which group shall own it" default:"null"`
	Mode  any    `salt:"mode" doc:"mode" default:"'0600'"`
}

func (f file) mknod(ctx context.Context, c *fn.Call, a mknodArgs) (any, error) {
	if !strings.Contains("cbp", a.Type) || len(a.Type) != 1 {
		return nil, fn.Invalidf("Node type unavailable: '%s'. Available node types are character ('c'), block ('b'), and pipe ('p').", a.Type)
	}
	if dir := filepath.Dir(filesys.ExpandUser(a.Name)); !filesys.Exists(dir, true) {
		if err := f.make(ctx, dir, a.User, a.Group, nil); err != nil {
			return nil, err
		}
	}
	return f.node(a.Type)(ctx, c, nodeArgs{a.Name, a.Major, a.Minor, a.User, a.Group, a.Mode})
}

type nodeArgs struct {
	Name  string `salt:"name" doc:"path"`
	Major int    `salt:"major" doc:"number of the driver"`
	Minor int    `salt:"minor" doc:"number of the device"`
	User  any    `salt:"user" doc:"who shall own it" default:"null"`
	Group any    `salt:"group" doc:"which group shall own it" default:"null"`
	Mode  any    `salt:"mode" doc:"mode" default:"'0660'"`
}

// nodes maps the kinds of nodes to the bits of their mode and their names.
var nodes = map[string]struct {
	bits uint32
	name string
}{"p": {unix.S_IFIFO, "Fifo pipe"}, "c": {unix.S_IFCHR, "Character device"}, "b": {unix.S_IFBLK, "Block device"}}

func (f file) node(kind string) func(context.Context, *fn.Call, nodeArgs) (any, error) {
	return func(ctx context.Context, c *fn.Call, a nodeArgs) (any, error) {
		path := filesys.ExpandUser(a.Name)
		ret := value.DictOf("name", path, "changes", value.NewDict(1), "comment", "", "result", false)
		made := value.DictOf("new", nodes[kind].name+" "+path+" created.")
		if value.Truth(c.Config.Get("test")) {
			ret.Set("changes", made)
			ret.Set("result", nil)
			return ret, nil
		}
		mode, err := filesys.ParseMode(filesys.NormalizeMode(a.Mode))
		if err != nil {
			return nil, fn.Invalidf("%w", err)
		}
		switch err := unix.Mknod(path, nodes[kind].bits|uint32(mode), int(unix.Mkdev(uint32(a.Major), uint32(a.Minor)))); {
		case err == nil:
			ret.Set("changes", made)
			ret.Set("result", true)
		case errors.Is(err, fs.ErrExist):
			ret.Set("comment", "File "+path+" exists and cannot be overwritten")
			if filesys.IsLink(path) {
				return ret, nil
			}
		default:
			return nil, fn.Errorf("cannot make %s: %w", path, err)
		}
		return ret, f.own(ctx, path, a.User, a.Group, mode)
	}
}

// own sets the mode of an existing node, regardless of the umask, and its owners.
func (f file) own(ctx context.Context, path string, user, group any, mode int) error {
	if err := filesys.SetMode(path, mode); err != nil {
		return fn.Errorf("cannot set the mode of %s: %w", path, err)
	}
	uid, okUser := filesys.UserID(ctx, f.m, user)
	gid, okGroup := filesys.GroupID(ctx, f.m, group)
	switch {
	case !okUser:
		return fn.Errorf("User %s is not available", value.Str(user))
	case !okGroup:
		return fn.Errorf("Group %s is not available", value.Str(group))
	}
	if uid < 0 && gid < 0 {
		return nil
	}
	if err := filesys.SetOwner(path, uid, gid, false); err != nil {
		return fn.Errorf("cannot set the owner of %s: %w", path, err)
	}
	return nil
}

func (f file) numbers(_ context.Context, _ *fn.Call, a deviceArg) (any, error) {
	var st unix.Stat_t
	err := unix.Stat(filesys.ExpandUser(a.Name), &st)
	if kind := st.Mode & unix.S_IFMT; err != nil || kind != unix.S_IFCHR && kind != unix.S_IFBLK {
		return value.ListOf(0, 0), nil
	}
	return value.ListOf(unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev))), nil
}

type openArgs struct {
	ByPID bool `salt:"by_pid" doc:"return the files by process" default:"false"`
}

func (f file) openFiles(_ context.Context, _ *fn.Call, a openArgs) (any, error) {
	byFile, byPID := map[string][]int{}, value.NewDict(64)
	for _, pid := range process.PIDs(f.m) {
		d, ok := process.Detail(f.m, pid)
		if !ok {
			continue
		}
		paths := []string{d.Exe}
		for _, fd := range d.FDs {
			paths = append(paths, fd.Path)
		}
		slices.Sort(paths)
		paths = slices.DeleteFunc(slices.Compact(paths), func(p string) bool { return !strings.HasPrefix(p, "/") || !filesys.Exists(p, true) })
		for _, p := range paths {
			byFile[p] = append(byFile[p], pid)
		}
		byPID.Set(int64(pid), value.Strings(paths))
	}
	if a.ByPID {
		return byPID, nil
	}
	all := value.NewDict(len(byFile))
	for _, p := range slices.Sorted(maps.Keys(byFile)) {
		all.Set(p, value.From(byFile[p]))
	}
	return all, nil
}

// backup is a copy of a file in the minion's cache.
type backup struct {
	at   time.Time
	path string
	size int64
}

// backups returns the copies of a file, newest first.
func backups(c *fn.Call, path string) []backup {
	dir, _ := c.Config.Get("cachedir").(string)
	dir = filepath.Join(dir, "file_backup", filepath.Dir(path))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var found []backup
	for _, e := range entries {
		stamp, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+"_")
		at, ok2 := backupTime(stamp)
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if ok && ok2 && err == nil && info.Mode().IsRegular() {
			found = append(found, backup{at, filepath.Join(dir, e.Name()), info.Size()})
		}
	}
	slices.SortFunc(found, func(a, b backup) int { return b.at.Compare(a.at) })
	return found
}

// backupTime parses the suffix of a copy's name: "Sun_Nov_22_01:02:03_000045_2026".
func backupTime(stamp string) (time.Time, bool) {
	const seconds = len("Sun_Nov_22_01:02:03")
	if len(stamp) < seconds+2 {
		return time.Time{}, false
	}
	micro, year, ok := strings.Cut(stamp[seconds+1:], "_")
	n, err := strconv.Atoi(micro)
	at, err2 := time.Parse("Mon_Jan_02_15:04:05 2006", stamp[:seconds]+" "+year)
	return at.Add(time.Duration(n) * time.Microsecond), ok && err == nil && err2 == nil && stamp[seconds] == '_'
}

type backupsArgs struct {
	Path  string `salt:"path" doc:"path of the file"`
	Limit any    `salt:"limit" doc:"how many at most" default:"null"`
}

// shownBackups returns the copies as a map with numbers as keys.
func shownBackups(list []backup, limit any) *value.Dict {
	if n, err := strconv.Atoi(value.Str(limit)); limit != nil && err == nil {
		list = list[:max(0, min(n, len(list)))]
	}
	d := value.NewDict(len(list))
	for i, b := range list {
		d.Set(int64(i), value.DictOf("Backup Time", b.at.Format("Mon Jan 02 2006 15:04:05.000000"), "Size", b.size, "Location", b.path))
	}
	return d
}

func (file) listBackups(_ context.Context, c *fn.Call, a backupsArgs) (any, error) {
	return shownBackups(backups(c, filesys.ExpandUser(a.Path)), a.Limit), nil
}

func (file) listBackupsDir(_ context.Context, c *fn.Call, a backupsArgs) (any, error) {
	dir, _ := c.Config.Get("cachedir").(string)
	parent := filepath.Dir(filesys.ExpandUser(a.Path)) // the part before the last slash
	if strings.HasSuffix(a.Path, "/") {
		parent = filepath.Clean(filesys.ExpandUser(a.Path))
	}
	entries, err := os.ReadDir(filepath.Join(dir, "file_backup", parent))
	found := value.NewDict(4)
	if err != nil {
		return found, nil
	}
	for _, e := range entries {
		name := e.Name()
		for i := range name { // a file's own name may also contain an underscore
			if _, ok := backupTime(strings.TrimPrefix(name[i:], "_")); ok && name[i] == '_' && !found.Has(name[:i]) {
				found.Set(name[:i], shownBackups(backups(c, filepath.Join(parent, name[:i])), a.Limit))
			}
		}
	}
	return found, nil
}

type backupArgs struct {
	Path string `salt:"path" doc:"path of the file"`
	ID   any    `salt:"backup_id" doc:"number of the copy"`
}

// pick returns a copy by its number, or the message for an invalid one.
func (a backupArgs) pick(c *fn.Call) (b backup, said string) {
	text := value.Str(a.ID)
	n, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(n) != text {
		return b, "Invalid backup_id '" + text + "'"
	}
	list := backups(c, filesys.ExpandUser(a.Path))
	if n < 0 || n >= len(list) {
		return b, "backup_id '" + text + "' does not exist for " + filesys.ExpandUser(a.Path)
	}
	return list[n], ""
}

func (file) restoreBackup(_ context.Context, c *fn.Call, a backupArgs) (any, error) {
	b, said := a.pick(c)
	if said != "" {
		return value.DictOf("result", false, "comment", said), nil
	}
	path := filesys.ExpandUser(a.Path)
	dir, _ := c.Config.Get("cachedir").(string)
	if filesys.IsFile(path) {
		if err := filesys.Backup(path, filepath.Join(dir, "file_backup"), time.Now()); err != nil {
			return nil, fn.Errorf("cannot keep the present file: %w", err)
		}
	}
	if err := filesys.Copy(b.path, path, false); err != nil {
		return value.DictOf("result", false, "comment", "Unable to restore "+b.path+" to "+path+": "+err.Error()), nil
	}
	return value.DictOf("result", true, "comment", "Successfully restored "+b.path+" to "+path), nil
}

func (file) deleteBackup(_ context.Context, c *fn.Call, a backupArgs) (any, error) {
	b, said := a.pick(c)
	if said != "" {
		return value.DictOf("result", false, "comment", said), nil
	}
	if err := os.Remove(b.path); err != nil {
		return value.DictOf("result", false, "comment", "Unable to remove "+b.path+": "+err.Error()), nil
	}
	return value.DictOf("result", true, "comment", "Successfully removed "+b.path), nil
}
