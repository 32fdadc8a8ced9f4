// Package filesys describes and changes files of a machine: owners and modes,
// whole content, directories, backups. Content is replaced atomically: no
// process sees a part of it, or a wrong owner or mode.
//
// Modes are strings of four octal digits, as in Salt.
package filesys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"brine/internal/base/atomicfile"
	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/py/value"
)

// NormalizeMode returns a mode as a string of at least four digits, "" if none
// is given; "keep" is unchanged. In SLS files, modes are numbers or strings.
func NormalizeMode(v any) string {
	if v == nil {
		return ""
	}
	s := strings.ReplaceAll(value.Str(v), "0o", "0")
	s = strings.TrimLeft(strings.Trim(strings.Trim(s, `"`), "'"), "0")
	return strings.Repeat("0", max(0, 4-len(s))) + s
}

// ParseMode parses a normalized mode; -1 for "".
func ParseMode(mode string) (int, error) {
	if mode == "" {
		return -1, nil
	}
	n, err := strconv.ParseUint(mode, 8, 12)
	if err != nil {
		return -1, fmt.Errorf("%q is not a mode: use octal digits, such as '0644'", mode)
	}
	return int(n), nil
}

// Facts is the metadata of a file.
type Facts struct {
	// Type is file, dir, link, char, block, pipe or socket.
	Type                string
	UID, GID            int
	Mode                string
	Size                int64
	Inode               uint64
	Access, Mod, Change time.Time

	m *host.Machine
}

// IsDir, IsLink and IsFile report the type.
func (f Facts) IsDir() bool  { return f.Type == "dir" }
func (f Facts) IsLink() bool { return f.Type == "link" }
func (f Facts) IsFile() bool { return f.Type == "file" }

// User returns the current name of the owner, "" if the number has none.
func (f Facts) User() string {
	u, _ := account.ByID(f.m, f.UID)
	return u.Name
}

// Group returns the name of the group, "" if the number has none.
func (f Facts) Group() string {
	name, _ := account.GroupName(f.m, f.GID)
	return name
}

// stat calls unix.Stat or, without follow, unix.Lstat, which allocate less
// memory than those of package os.
func stat(path string, follow bool, st *unix.Stat_t) error {
	call, op := unix.Lstat, "lstat"
	if follow {
		call, op = unix.Stat, "stat"
	}
	for {
		switch err := call(path, st); err {
		case nil:
			return nil
		case unix.EINTR:
		default:
			return &fs.PathError{Op: op, Path: path, Err: err}
		}
	}
}

// Look describes a file, or with follow the target of a symbolic link. The
// error matches fs.ErrNotExist if there is none.
func Look(m *host.Machine, path string, follow bool) (Facts, error) {
	var st unix.Stat_t
	if err := stat(path, follow, &st); err != nil {
		return Facts{}, err
	}
	return Facts{
		Type: kind(uint32(st.Mode)), UID: int(st.Uid), GID: int(st.Gid), Mode: modeText(uint32(st.Mode) & 0o7777), Size: st.Size, Inode: uint64(st.Ino),
		Access: time.Unix(st.Atim.Unix()), Mod: time.Unix(st.Mtim.Unix()), Change: time.Unix(st.Ctim.Unix()), m: m,
	}, nil
}

// kind names the type of a file.
func kind(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "dir"
	case unix.S_IFLNK:
		return "link"
	case unix.S_IFIFO:
		return "pipe"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFBLK:
		return "block"
	case unix.S_IFCHR:
		return "char"
	}
	return "file"
}

// modeText formats a mode as four octal digits.
func modeText(bits uint32) string {
	return string([]byte{'0' + byte(bits>>9&7), '0' + byte(bits>>6&7), '0' + byte(bits>>3&7), '0' + byte(bits&7)})
}

func is(path string, follow bool, kinds ...uint32) bool {
	var st unix.Stat_t
	return stat(path, follow, &st) == nil && (len(kinds) == 0 || slices.Contains(kinds, uint32(st.Mode)&unix.S_IFMT))
}

// Exists reports whether a path exists, and with follow whether the target of a
// link exists.
func Exists(path string, follow bool) bool { return is(path, follow) }

// IsDir reports whether a path is a directory, or a link to one.
func IsDir(path string) bool { return is(path, true, unix.S_IFDIR) }

// IsFile reports whether a path is a regular file, or a link to one.
func IsFile(path string) bool { return is(path, true, unix.S_IFREG) }

// IsLink reports whether a path is a symbolic link.
func IsLink(path string) bool { return is(path, false, unix.S_IFLNK) }

// Regular is a regular file, open for reading. Unlike os.Open it saves the five
// system calls that try to register it with the poller.
type Regular struct {
	fd   int
	path string
	// Size is the size in bytes when the file was opened.
	Size int64
}

// OpenRegular opens a regular file, and never waits for the writer of a pipe.
// The error matches fs.ErrNotExist also for other types of files.
func OpenRegular(path string) (*Regular, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		var st unix.Stat_t
		if err == nil {
			if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
				err = fs.ErrNotExist
			}
			if err != nil {
				unix.Close(fd)
			}
		}
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		return &Regular{fd: fd, path: path, Size: st.Size}, nil
	}
}

// Read implements io.Reader.
func (r *Regular) Read(p []byte) (int, error) {
	for len(p) > 0 {
		n, err := unix.Read(r.fd, p)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, &fs.PathError{Op: "read", Path: r.path, Err: err}
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
	return 0, nil
}

// Close closes the file, which then must not be used.
func (r *Regular) Close() error { return unix.Close(r.fd) }

// UserID returns the id of a user given by name or number; -1 for "". ok is
// false if there is no such user.
func UserID(ctx context.Context, m *host.Machine, user any) (id int, ok bool) {
	return numberOf(user, func(name string) (int, bool) { u, ok := account.ByName(ctx, m, name); return u.UID, ok })
}

// GroupID returns the id of a group given by name or number, like UserID.
func GroupID(ctx context.Context, m *host.Machine, group any) (id int, ok bool) {
	return numberOf(group, func(name string) (int, bool) { g, ok := account.GroupByName(ctx, m, name); return g.GID, ok })
}

func numberOf(v any, byName func(string) (int, bool)) (int, bool) {
	switch v := v.(type) {
	case nil:
		return -1, true
	case int64:
		return int(v), v >= 0
	case string:
		if v == "" {
			return -1, true
		}
		if id, ok := byName(v); ok {
			return id, true
		}
		id, err := strconv.ParseUint(v, 10, 31)
		return int(id), err == nil
	}
	return -1, false
}

// MakeDirs creates the missing directories of a path, each with this owner and
// mode; -1 means the default of this process.
func MakeDirs(path string, uid, gid, mode int) error {
	if IsDir(path) {
		return nil
	}
	if Exists(path, false) {
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	}
	if parent := filepath.Dir(path); parent != path {
		if err := MakeDirs(parent, uid, gid, mode); err != nil {
			return err
		}
	}
	return MakeDir(path, uid, gid, mode)
}

// MakeDir makes a directory.
func MakeDir(path string, uid, gid, mode int) error {
	perm := fs.FileMode(0o777)
	if mode >= 0 {
		perm = 0o700
	}
	if err := os.Mkdir(path, perm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if uid >= 0 || gid >= 0 {
		if err := os.Lchown(path, uid, gid); err != nil {
			return err
		}
	}
	if mode < 0 {
		return nil
	}
	return syscall.Chmod(path, uint32(mode))
}

// SetOwner changes the owner of a file; -1 keeps it. The mode stays.
func SetOwner(path string, uid, gid int, follow bool) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !follow || st.Mode()&fs.ModeSymlink == 0 {
		if err := os.Lchown(path, uid, gid); err != nil || st.Mode()&fs.ModeSymlink != 0 {
			return err
		}
	} else {
		if st, err = os.Stat(path); err != nil {
			return err
		}
		if err := os.Chown(path, uid, gid); err != nil {
			return err
		}
	}
	if raw, ok := st.Sys().(*syscall.Stat_t); ok && raw.Mode&0o6000 != 0 {
		return syscall.Chmod(path, raw.Mode&0o7777) // chown clears the set-id bits
	}
	return nil
}

// SetMode changes the mode of a file, following links.
func SetMode(path string, mode int) error { return syscall.Chmod(path, uint32(mode)) }

// Remove removes a file, or a directory with its content, mounted file systems
// included.
func Remove(path string) error { return os.RemoveAll(path) }

// Backup copies a file below root, as Salt's backup mode "minion" does: under
// the file's path, with the time in its name.
func Backup(path, root string, now time.Time) error {
	dir := filepath.Join(root, filepath.Dir(path))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	stamp := fmt.Sprintf("%s_%06d_%s", now.Format("Mon_Jan_02_15:04:05"), now.Nanosecond()/1000, now.Format("2006"))
	return Copy(path, filepath.Join(dir, filepath.Base(path)+"_"+stamp), true)
}

// Copy copies the content of a file, and with preserve also its owner, mode
// and times.
func Copy(from, to string, preserve bool) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	st, err := src.Stat()
	if err != nil {
		return err
	}
	as := atomicfile.As{Mode: -1, UID: -1, GID: -1}
	raw, ok := st.Sys().(*syscall.Stat_t)
	if preserve && ok {
		as = atomicfile.As{Mode: int(raw.Mode & 0o7777), UID: int(raw.Uid), GID: int(raw.Gid)}
	}
	pour := func(w io.Writer) error { _, err := io.Copy(w, src); return err }
	err = atomicfile.ReplaceAs(to, as, pour)
	if errors.Is(err, fs.ErrPermission) && as.UID >= 0 { // only root may give files away
		as.UID, as.GID = -1, -1
		if _, err = src.Seek(0, io.SeekStart); err == nil {
			err = atomicfile.ReplaceAs(to, as, pour)
		}
	}
	if err == nil && preserve {
		err = os.Chtimes(to, time.Time{}, st.ModTime())
	}
	return err
}

// Move renames, or copies and removes across file systems. It replaces the
// destination.
func Move(from, to string) error {
	err := os.Rename(from, to) // rename: moves a file
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTDIR) {
		if err = Remove(to); err == nil {
			err = os.Rename(from, to) // rename: moves a file
		}
	}
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	if err := Remove(to); err != nil {
		return err
	}
	if err := CopyTree(from, to, true); err != nil {
		return err
	}
	return Remove(from)
}

// CopyTree copies a file, link or directory.
func CopyTree(from, to string, preserve bool) error {
	st, err := os.Lstat(from)
	if err != nil {
		return err
	}
	switch {
	case st.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err == nil {
			err = os.Symlink(target, to)
		}
		return err
	case !st.IsDir():
		if !st.Mode().IsRegular() {
			return &fs.PathError{Op: "copy", Path: from, Err: errors.New("it is not a regular file")}
		}
		if err := Copy(from, to, preserve); err != nil || preserve {
			return err
		}
		return os.Chmod(to, st.Mode())
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := CopyTree(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()), preserve); err != nil {
			return err
		}
	}
	if raw, ok := st.Sys().(*syscall.Stat_t); ok && preserve {
		if err := os.Lchown(to, int(raw.Uid), int(raw.Gid)); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return os.Chmod(to, st.Mode())
}

// IsText guesses from the first bytes of a file whether it is text: no NUL, and
// at most 30 % of bytes that are neither printable nor UTF-8.
func IsText(block []byte) bool {
	odd, valid := 0, utf8.Valid(withoutCut(block))
	for _, c := range block {
		switch {
		case c == 0:
			return false
		case c >= 0x80 && valid, c >= 32 && c < 127, strings.IndexByte("\n\r\t\f\b", c) >= 0:
		default:
			odd++
		}
	}
	return float64(odd) <= 0.3*float64(len(block))
}

// withoutCut removes an incomplete UTF-8 character at the end.
func withoutCut(b []byte) []byte {
	for i := 1; i <= min(utf8.UTFMax, len(b)); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if c >= 0x80 && !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}
