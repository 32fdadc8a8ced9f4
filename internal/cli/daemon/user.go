package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// noUserError says that the user to run as does not exist.
type noUserError string

func (e noUserError) Error() string {
	return fmt.Sprintf("Failed to prepare the Salt environment for user %s. The user is not available.", string(e))
}

// noSwitchError says that this process may not become the user to run as.
type noSwitchError struct{ want, is string }

func (e noSwitchError) Error() string {
	return fmt.Sprintf("configured to run as user %s, but user %s may not switch to another: start it as root or as %s", e.want, e.is, e.want)
}

// Become makes this process one of the master's user, as that of the daemon is,
// for a program that works with the master's files in its place.
func Become(name string) error { return become(name, nil, nil) }

// become makes this process, all threads of it, one of the named user, "" for
// no change. It is done as Salt does it, before anything is bound or read:
// what the daemon makes then belongs to the user, and ports below 1024 are out
// of reach. Directories, which are made if need be, and files are handed over
// before; of the directories also what is in them.
func become(name string, folders, files []string) error {
	if name == "" {
		return nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return noUserError(name)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if uid == os.Geteuid() {
		return nil
	}
	if os.Geteuid() != 0 {
		is := strconv.Itoa(os.Geteuid())
		if me, err := user.Current(); err == nil {
			is = me.Username
		}
		return noSwitchError{name, is}
	}
	if err := handOver(uid, gid, folders, files); err != nil {
		return fmt.Errorf("cannot hand over to user %s: %w", name, err)
	}
	if err := errors.Join(syscall.Setgroups(groups(u, gid)), syscall.Setgid(gid), syscall.Setuid(uid)); err != nil {
		return fmt.Errorf("cannot become user %s: %w", name, err)
	}
	for k, v := range map[string]string{"HOME": u.HomeDir, "USER": name, "LOGNAME": name} {
		os.Setenv(k, v)
	}
	return nil
}

// groups are the user's own group and all that have the user as a member.
func groups(u *user.User, gid int) []int {
	out := []int{gid}
	ids, err := u.GroupIds()
	if err != nil {
		return out // the own one will do
	}
	for _, id := range ids {
		if n, err := strconv.Atoi(id); err == nil && n != gid {
			out = append(out, n)
		}
	}
	return out
}

func handOver(uid, gid int, folders, files []string) error {
	for _, dir := range folders {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return give(path, d, uid, gid)
		})
		if err != nil {
			return err
		}
	}
	for _, path := range files {
		st, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || path == "" {
			continue
		}
		if err == nil {
			err = give(path, fs.FileInfoToDirEntry(st), uid, gid)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// give makes the user the owner of one thing. Files with more than one name
// stay as they are: the other name may be anywhere, put there by the very
// user, who could get hold of any file in this way.
func give(path string, d fs.DirEntry, uid, gid int) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == uid || !d.IsDir() && (st.Nlink > 1 || !info.Mode().IsRegular()) {
		return nil
	}
	return os.Lchown(path, uid, gid)
}
