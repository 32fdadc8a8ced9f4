package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/host/filesys"
	"brine/internal/net/crypt"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
)

// file is the module file of one machine. The functions that read files are in
// this file, those that change them in file_change.go and file_edit.go, the
// search in file_find.go, and those that run programs in file_tools.go.
type file struct{ m *host.Machine }

func init() { units.Register("file", fileModule) }

func fileModule(m *host.Machine) fn.Module {
	f := file{m}
	all := []fn.Func{
		fn.Of("file_exists", is(filesys.IsFile), `Say whether a path is a file.`, fn.Example("salt '*' file.file_exists /etc/passwd")),
		fn.Of("directory_exists", is(filesys.IsDir), `Say whether a path is a directory.`, fn.Example("salt '*' file.directory_exists /etc")),
		fn.Of("path_exists_glob", f.pathExistsGlob, `Say whether there is anything that a glob finds.`,
			fn.Example("salt '*' file.path_exists_glob '/etc/pam*/pass*'")),
		fn.Of("is_link", is(filesys.IsLink), `Say whether a path is a symbolic link.`, fn.Example("salt '*' file.is_link /etc/mtab")),
		fn.Of("is_hardlink", f.isHardlink, `Say whether a file has more than one name.`, fn.Example("salt '*' file.is_hardlink /etc/passwd")),
		fn.Of("is_fifo", f.kind("pipe"), `Say whether a path is a named pipe.`, fn.Example("salt '*' file.is_fifo /run/initctl")),
		fn.Of("is_chrdev", f.kind("char"), `Say whether a path is a character device.`, fn.Example("salt '*' file.is_chrdev /dev/null")),
		fn.Of("is_blkdev", f.kind("block"), `Say whether a path is a block device.`, fn.Example("salt '*' file.is_blkdev /dev/vda")),
		fn.Of("stats", f.stats, `Describe a file: type, size, owner, mode, times.`, fn.Example("salt '*' file.stats /etc/passwd")),
		fn.Of("lstat", f.lstat, `Return what lstat(2) says of a file.`, fn.Example("salt '*' file.lstat /etc/passwd")),
		fn.Of("statvfs", f.statvfs, `Return what statvfs(3) says of the file system of a path.`, fn.Example("salt '*' file.statvfs /")),
		fn.Of("get_mode", f.fact(func(x filesys.Facts) any { return x.Mode }), `Return the mode of a file.`,
			fn.Example("salt '*' file.get_mode /etc/passwd")),
		fn.Of("get_user", f.fact(func(x filesys.Facts) any { return x.User() }), `Return the user that owns a file.`,
			fn.Example("salt '*' file.get_user /etc/passwd")),
		fn.Of("get_group", f.fact(func(x filesys.Facts) any { return x.Group() }), `Return the group that owns a file.`,
			fn.Example("salt '*' file.get_group /etc/passwd")),
		fn.Of("get_uid", f.fact(func(x filesys.Facts) any { return x.UID }), `Return the number of the user that owns a file.`,
			fn.Example("salt '*' file.get_uid /etc/passwd")),
		fn.Of("get_gid", f.fact(func(x filesys.Facts) any { return x.GID }), `Return the number of the group that owns a file.`,
			fn.Example("salt '*' file.get_gid /etc/passwd")),
		fn.Of("user_to_uid", f.userToUID, `Return the number of a user, "" if there is none.`, fn.Example("salt '*' file.user_to_uid root")),
		fn.Of("group_to_gid", f.groupToGID, `Return the number of a group, "" if there is none.`, fn.Example("salt '*' file.group_to_gid root")),
		fn.Of("uid_to_user", f.uidToUser, `Return the name of a user.`, fn.Example("salt '*' file.uid_to_user 0")),
		fn.Of("gid_to_group", f.gidToGroup, `Return the name of a group.`, fn.Example("salt '*' file.gid_to_group 0")),
		fn.Of("get_hash", f.getHash, `Return the hash of a file.`, fn.Example("salt '*' file.get_hash /etc/passwd")),
		fn.Of("get_sum", f.getSum, `Return the hash of a file.`, fn.Example("salt '*' file.get_sum /etc/passwd sha512")),
		fn.Of("check_hash", f.checkHash, `Say whether a file has a hash.`,
			fn.Example("salt '*' file.check_hash /etc/fstab md5:22b0fa44c7ca1cdf1f1c9ee1c5b5e7f1")),
		fn.Of("read", f.read, `Return the content of a file.`, fn.Example("salt '*' file.read /etc/hostname")),
		fn.Of("seek_read", f.seekRead, `Return a part of a file.`, fn.Example("salt '*' file.seek_read /etc/passwd 4096 0")),
		fn.Of("readdir", f.readdir, `List the names in a directory.`, fn.Example("salt '*' file.readdir /etc")),
		fn.Of("readlink", f.readlink, `Return what a symbolic link leads to.`, fn.Example("salt '*' file.readlink /etc/mtab")),
		fn.Of("access", f.access, `Say whether the minion may read (r), write (w) or run (x) a file, or whether there is one (f).`,
			fn.Example("salt '*' file.access /etc/passwd r")),
		fn.Of("contains", f.contains, `Say whether a file has a text.`, fn.Example("salt '*' file.contains /etc/crontab 'mymaintenance.sh'")),
		fn.Of("contains_regex", f.containsRegex, `Say whether a regular expression finds a line of a file.`,
			fn.Example("salt '*' file.contains_regex /etc/crontab '^SHELL'")),
		fn.Of("contains_glob", f.containsGlob, `Say whether a glob matches the content of a file.`,
			fn.Example("salt '*' file.contains_glob /etc/foobar '*cheese*'")),
		fn.Of("diskusage", f.diskusage, `Return how many bytes a file has, or all files of a directory.`, fn.Example("salt '*' file.diskusage /var/log")),
		fn.Of("get_diff", f.getDiff, `Show how two files differ.`, fn.Example("salt '*' file.get_diff /home/fred/.vimrc /home/ann/.vimrc")),
		fn.Of("pardir", f.pardir, `Return the name of the directory above: "..".`, fn.Example("salt '*' file.pardir")),
		fn.Of("normpath", f.normpath, `Return a path without what is superfluous in it.`, fn.Example("salt '*' file.normpath a/b/c/..")),
		fn.Of("basename", f.basename, `Return the last part of a path.`, fn.Example("salt '*' file.basename /etc/passwd")),
		fn.Of("dirname", f.dirname, `Return a path without its last part.`, fn.Example("salt '*' file.dirname /etc/passwd")),
		fn.Of("join", f.join, `Join the parts of a path.`, fn.Example("salt '*' file.join / usr local bin")),
	}
	all = append(append(all, f.changes()...), f.edits()...)
	all = append(append(all, f.finds()...), f.tools()...)
	all = append(append(all, f.sourced()...), f.managed()...)
	return fn.Module{Name: "file", Doc: `Files, directories and links: what they are and what is in them.`, Funcs: all}
}

type pathArg struct {
	Path string `salt:"path" doc:"path"`
}

func is(test func(string) bool) func(context.Context, *fn.Call, pathArg) (any, error) {
	return func(_ context.Context, _ *fn.Call, a pathArg) (any, error) {
		return test(filesys.ExpandUser(a.Path)), nil
	}
}

func (file) pathExistsGlob(_ context.Context, _ *fn.Call, a pathArg) (any, error) {
	found, err := filepath.Glob(filesys.ExpandUser(a.Path))
	return len(found) > 0, err
}

func (f file) isHardlink(_ context.Context, _ *fn.Call, a pathArg) (any, error) {
	st, err := os.Lstat(filesys.ExpandUser(a.Path))
	if err != nil {
		return value.NewDict(0), nil // as in Salt, which returns the result of lstat
	}
	raw, ok := st.Sys().(*syscall.Stat_t)
	return ok && raw.Nlink > 1, nil
}

type deviceArg struct {
	Name string `salt:"name" doc:"path"`
}

func (f file) kind(kind string) func(context.Context, *fn.Call, deviceArg) (any, error) {
	return func(_ context.Context, _ *fn.Call, a deviceArg) (any, error) {
		name := filesys.ExpandUser(a.Name)
		x, err := filesys.Look(f.m, name, true)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil && x.Type == kind, err
	}
}

type followArgs struct {
	Path   string `salt:"path" doc:"path"`
	Follow bool   `salt:"follow_symlinks" doc:"describe what a symbolic link stands for" default:"true"`
}

func (f file) look(path string, follow bool) (filesys.Facts, error) {
	x, err := filesys.Look(f.m, filesys.ExpandUser(path), follow)
	if errors.Is(err, fs.ErrNotExist) && follow { // a dangling link
		x, err = filesys.Look(f.m, filesys.ExpandUser(path), false)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return x, fn.Errorf("Path not found: %s", filesys.ExpandUser(path))
	}
	return x, err
}

func (f file) fact(pick func(filesys.Facts) any) func(context.Context, *fn.Call, followArgs) (any, error) {
	return func(_ context.Context, _ *fn.Call, a followArgs) (any, error) {
		x, err := f.look(a.Path, a.Follow)
		if err != nil {
			return nil, err
		}
		return pick(x), nil
	}
}

type statsArgs struct {
	Path   string `salt:"path" doc:"path"`
	Hash   string `salt:"hash_type" doc:"hash to add, such as sha256" default:"null"`
	Follow bool   `salt:"follow_symlinks" doc:"describe what a symbolic link stands for" default:"true"`
}

func (f file) stats(_ context.Context, _ *fn.Call, a statsArgs) (any, error) {
	path := filesys.ExpandUser(a.Path)
	x, err := f.look(path, a.Follow)
	if err != nil {
		return nil, err
	}
	d := value.DictOf("inode", int64(x.Inode), "uid", x.UID, "gid", x.GID, "group", x.Group(), "user", x.User(),
		"atime", float64(x.Access.UnixNano())/1e9, "mtime", float64(x.Mod.UnixNano())/1e9, "ctime", float64(x.Change.UnixNano())/1e9, "size", x.Size, "mode",
		x.Mode)
	if a.Hash != "" {
		sum, err := hashOf(path, a.Hash)
		if err != nil {
			return nil, err
		}
		d.Set("sum", sum)
	}
	d.Set("type", x.Type)
	abs, err := filepath.Abs(path)
	if real, e := filepath.EvalSymlinks(abs); a.Follow && e == nil {
		abs = real
	}
	d.Set("target", abs)
	return d, err
}

func (f file) lstat(_ context.Context, _ *fn.Call, a pathArg) (any, error) {
	path := filesys.ExpandUser(a.Path)
	if !filepath.IsAbs(path) {
		return nil, fn.Invalidf("Path to file must be absolute.")
	}
	st, err := os.Lstat(path)
	if err != nil {
		return value.NewDict(0), nil
	}
	raw, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return value.NewDict(0), nil
	}
	seconds := func(t syscall.Timespec) float64 { return float64(t.Nano()) / 1e9 }
	return value.DictOf("st_atime", seconds(raw.Atim), "st_ctime", seconds(raw.Ctim), "st_gid", int(raw.Gid), "st_mode", int(raw.Mode),
		"st_mtime", seconds(raw.Mtim), "st_nlink", int(raw.Nlink), "st_size", raw.Size, "st_uid", int(raw.Uid)), nil
}

func (f file) statvfs(_ context.Context, _ *fn.Call, a pathArg) (any, error) {
	path := filesys.ExpandUser(a.Path)
	if !filepath.IsAbs(path) {
		return nil, fn.Invalidf("File path must be absolute.")
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return nil, fn.Errorf("Could not statvfs '%s'", path)
	}
	return value.DictOf("f_bavail", int64(st.Bavail), "f_bfree", int64(st.Bfree), "f_blocks", int64(st.Blocks), "f_bsize", st.Bsize, "f_favail",
		int64(st.Ffree),
		"f_ffree", int64(st.Ffree), "f_files", int64(st.Files), "f_flag", st.Flags&^0x20, "f_frsize", st.Frsize, "f_namemax", st.Namelen), nil
}

type userArg struct {
	User any `salt:"user" doc:"user, by name or number"`
}

type groupArg struct {
	Group any `salt:"group" doc:"group, by name or number"`
}

func (f file) userToUID(ctx context.Context, _ *fn.Call, a userArg) (any, error) {
	if a.User == nil {
		return os.Getuid(), nil
	}
	if id, ok := filesys.UserID(ctx, f.m, a.User); ok && id >= 0 {
		return id, nil
	}
	return "", nil
}

func (f file) groupToGID(ctx context.Context, _ *fn.Call, a groupArg) (any, error) {
	if id, ok := filesys.GroupID(ctx, f.m, a.Group); ok && id >= 0 {
		return id, nil
	}
	return "", nil
}

type uidArg struct {
	UID any `salt:"uid" doc:"number of the user"`
}

type gidArg struct {
	GID any `salt:"gid" doc:"number of the group"`
}

func (f file) uidToUser(_ context.Context, _ *fn.Call, a uidArg) (any, error) {
	n, err := strconv.Atoi(value.Str(a.UID))
	if err != nil {
		return "", nil
	}
	if u, ok := account.ByID(f.m, n); ok {
		return u.Name, nil
	}
	return n, nil
}

func (f file) gidToGroup(_ context.Context, _ *fn.Call, a gidArg) (any, error) {
	n, err := strconv.Atoi(value.Str(a.GID))
	if err != nil {
		return a.GID, nil
	}
	if g, ok := account.GroupName(f.m, n); ok {
		return g, nil
	}
	return n, nil
}

type hashArgs struct {
	Path  string `salt:"path" doc:"path"`
	Form  string `salt:"form" doc:"name of the hash" default:"sha256"`
	Chunk any    `salt:"chunk_size" ignored:"it does not change the hash" default:"65536"`
}

type sumArgs struct {
	Path string `salt:"path" doc:"path"`
	Form string `salt:"form" doc:"name of the hash" default:"sha256"`
}

// hashOf returns the hash of a file in hexadecimal.
func hashOf(path, form string) (string, error) {
	h := fileclient.NewHash(form)
	if h == nil {
		return "", fn.Errorf("Invalid hash type: %s", form)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fn.Errorf("%w", err)
	}
	defer f.Close()
	if err := crypt.HashReader(h, f); err != nil {
		return "", fn.Errorf("%w", err)
	}
	return hexadecimal(h.Sum(nil)), nil
}

func hexadecimal(b []byte) string {
	const digits = "0123456789abcdef"
	out := make([]byte, 0, 2*len(b))
	for _, c := range b {
		out = append(out, digits[c>>4], digits[c&15])
	}
	return string(out)
}

func (file) getHash(_ context.Context, _ *fn.Call, a hashArgs) (any, error) {
	return text(hashOf(filesys.ExpandUser(a.Path), a.Form))
}

func (file) getSum(_ context.Context, _ *fn.Call, a sumArgs) (any, error) {
	path := filesys.ExpandUser(a.Path)
	if !filesys.IsFile(path) {
		return "File not found", nil
	}
	return text(hashOf(path, a.Form))
}

func text(s string, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

type checkHashArgs struct {
	Path string `salt:"path" doc:"path"`
	Hash string `salt:"file_hash" doc:"the hash, perhaps after its name and a : or ="`
}

var hashLengths = map[int]string{32: "md5", 40: "sha1", 56: "sha224", 64: "sha256", 96: "sha384", 128: "sha512"}

func (file) checkHash(_ context.Context, _ *fn.Call, a checkHashArgs) (any, error) {
	kind, sum := hashLengths[len(a.Hash)], a.Hash
	if i := strings.IndexAny(a.Hash, ":="); i >= 0 {
		kind, sum = a.Hash[:i], a.Hash[i+1:]
	}
	if kind == "" {
		return nil, fn.Invalidf("Hash %s (length: %d) could not be matched to a supported hash type. The supported hash types and lengths are: md5 "+
			"(32), sha1 (40), sha224 (56), sha256 (64), sha384 (96), sha512 (128)",
			a.Hash, len(a.Hash))
	}
	got, err := hashOf(filesys.ExpandUser(a.Path), kind)
	return got == sum, err
}

type readArgs struct {
	Path   string `salt:"path" doc:"path"`
	Binary bool   `salt:"binary" doc:"return bytes, not text" default:"false"`
}

// maxRead bounds the size of a file that is returned, in bytes.
const maxRead = 64 << 20

func (file) read(_ context.Context, _ *fn.Call, a readArgs) (any, error) {
	f, err := os.Open(filesys.ExpandUser(a.Path))
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRead+1))
	switch {
	case err != nil:
		return nil, fn.Errorf("%w", err)
	case len(b) > maxRead:
		return nil, fn.Errorf("%s has more than %d bytes; use file.seek_read", a.Path, maxRead)
	case a.Binary || !utf8.Valid(b):
		return b, nil
	}
	return string(b), nil
}

type seekReadArgs struct {
	Path   string `salt:"path" doc:"path"`
	Size   int64  `salt:"size" doc:"how many bytes"`
	Offset int64  `salt:"offset" doc:"how many bytes to leave out"`
}

func (file) seekRead(_ context.Context, _ *fn.Call, a seekReadArgs) (any, error) {
	if a.Size < 0 || a.Size > maxRead || a.Offset < 0 {
		return nil, fn.Invalidf("size must be from 0 to %d and offset not below 0", maxRead)
	}
	f, err := os.Open(filesys.ExpandUser(a.Path))
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	defer f.Close()
	b := make([]byte, a.Size)
	n, err := f.ReadAt(b, a.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fn.Errorf("%w", err)
	}
	return shown(b[:n]), nil
}

func (file) readdir(_ context.Context, _ *fn.Call, a pathArg) (any, error) {
	path := filesys.ExpandUser(a.Path)
	if !filepath.IsAbs(path) {
		return nil, fn.Invalidf("Dir path must be absolute.")
	}
	if !filesys.IsDir(path) {
		return nil, fn.Invalidf("A valid directory was not specified.")
	}
	names := value.ListOf(".", "..")
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		names.Append(e.Name())
	}
	return names, err
}

type readlinkArgs struct {
	Path         string `salt:"path" doc:"path of the link"`
	Canonicalize bool   `salt:"canonicalize" doc:"follow all links to the end" default:"false"`
}

func (file) readlink(_ context.Context, _ *fn.Call, a readlinkArgs) (any, error) {
	path := os.ExpandEnv(filesys.ExpandUser(a.Path))
	switch {
	case !filepath.IsAbs(path):
		return nil, fn.Invalidf("Path to link must be absolute: %s", path)
	case !filesys.IsLink(path):
		return nil, fn.Invalidf("A valid link was not specified: %s", path)
	case a.Canonicalize:
		return text(filepath.EvalSymlinks(path))
	}
	return text(os.Readlink(path))
}

type accessArgs struct {
	Path string `salt:"path" doc:"path"`
	Mode any    `salt:"mode" doc:"f, r, w or x"`
}

func (file) access(_ context.Context, _ *fn.Call, a accessArgs) (any, error) {
	path := filesys.ExpandUser(a.Path)
	if !filepath.IsAbs(path) {
		return nil, fn.Invalidf("Path to link must be absolute.")
	}
	modes := []string{"f", "x", "w", "", "r"}
	mode := slices.Index(modes, value.Str(a.Mode))
	if n, ok := a.Mode.(int64); ok && (n == 0 || n == 1 || n == 2 || n == 4) {
		mode = int(n)
	}
	if mode < 0 || a.Mode == "" {
		return nil, fn.Invalidf("Invalid mode specified.")
	}
	return syscall.Access(path, uint32(mode)) == nil, nil
}

type containsArgs struct {
	Path string `salt:"path" doc:"path"`
	Text any    `salt:"text" doc:"the text"`
}

// contents reads a file that is searched for a string. ok is false if it
// cannot be read.
func contents(path string) (text string, ok bool) {
	f, err := os.Open(filesys.ExpandUser(path))
	if err != nil {
		return "", false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRead))
	return string(b), err == nil
}

func (file) contains(_ context.Context, _ *fn.Call, a containsArgs) (any, error) {
	s, ok := contents(a.Path)
	return ok && strings.Contains(s, strings.TrimSpace(value.Str(a.Text))), nil
}

type containsRegexArgs struct {
	Path  string `salt:"path" doc:"path"`
	Regex string `salt:"regex" doc:"regular expression"`
	Lchar string `salt:"lchar" doc:"characters to leave out at the beginning of lines" default:""`
}

func (file) containsRegex(_ context.Context, _ *fn.Call, a containsRegexArgs) (any, error) {
	s, ok := contents(a.Path)
	if !ok {
		return false, nil
	}
	re, err := pyre.Compile(a.Regex, 0)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	for line := range strings.Lines(s) {
		if a.Lchar != "" {
			line = strings.TrimLeft(line, a.Lchar)
		}
		if m, err := re.Search(line); m != nil || err != nil {
			return m != nil, err
		}
	}
	return false, nil
}

type containsGlobArgs struct {
	Path string `salt:"path" doc:"path"`
	Glob string `salt:"glob_expr" doc:"glob"`
}

func (file) containsGlob(_ context.Context, _ *fn.Call, a containsGlobArgs) (any, error) {
	s, ok := contents(a.Path)
	return ok && target.ParseGlob(a.Glob).Match(s), nil
}

func (file) diskusage(_ context.Context, _ *fn.Call, a pathArg) (any, error) {
	root := filesys.ExpandUser(a.Path)
	seen := map[uint64]bool{}
	total := int64(0)
	if st, err := os.Stat(root); err != nil {
		return 0, nil
	} else if !st.IsDir() {
		return st.Size(), nil
	}
	err := filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // unreadable directories count as empty
		}
		st, err := e.Info()
		if err != nil {
			return nil
		}
		if raw, ok := st.Sys().(*syscall.Stat_t); ok {
			if seen[raw.Ino] {
				return nil
			}
			seen[raw.Ino] = true
		}
		total += st.Size()
		return nil
	})
	return total, err
}

func (file) pardir(context.Context, *fn.Call, struct{}) (any, error) { return "..", nil }

func (file) normpath(_ context.Context, _ *fn.Call, a pathArg) (any, error) {
	return filepath.Clean(a.Path), nil
}

func (file) basename(_ context.Context, _ *fn.Call, a pathArg) (any, error) {
	return a.Path[strings.LastIndexByte(a.Path, '/')+1:], nil
}

func (file) dirname(_ context.Context, _ *fn.Call, a pathArg) (any, error) {
	head := a.Path[:strings.LastIndexByte(a.Path, '/')+1]
	if t := strings.TrimRight(head, "/"); t != "" {
		head = t
	}
	return head, nil
}

type joinArgs struct {
	Parts fn.Args `salt:"args"`
}

func (file) join(_ context.Context, _ *fn.Call, a joinArgs) (any, error) {
	if len(a.Parts) == 0 {
		return nil, fn.Invalidf("join() needs at least one part of a path")
	}
	path := ""
	for i, p := range a.Parts {
		s := value.Str(p)
		switch {
		case i == 0 || strings.HasPrefix(s, "/"): // an absolute part replaces those before it
			path = s
		default:
			path = strings.TrimSuffix(path, "/") + "/" + s
		}
	}
	return filepath.Clean(path), nil
}
