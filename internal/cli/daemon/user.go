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

// noUserError means that the user to run as does not exist.
type noUserError string

func (e noUserError) Error() string {
	return fmt.Sprintf("Failed to prepare the Salt environment for user %s. The user is not available.", string(e))
}

// noSwitchError means that this process may not switch to the user to run as.
type noSwitchError struct{ want, is string }

func (e noSwitchError) Error() string {
	return fmt.Sprintf("configured to run as user %s, but user %s may not switch to another: start it as root or as %s", e.want, e.is, e.want)
}

// Become switches this process to the master's user, like the daemon, for a program that works on
// the master's files directly.
func Become(name string) error { return become(name, nil, nil) }

// become switches all threads of this process to the named user, "" for no change. Like Salt, it
// does so before anything is bound or read: new files belong to the user, and ports below 1024
// cannot be bound. Before that it creates missing directories, and changes the owner of the files,
// and of the directories with their contents.
func become(name string, directories, files []string) error {
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
	if err := handOver(uid, gid, directories, files); err != nil {
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

// groups returns the user's primary group and all groups with the user as a member.
func groups(u *user.User, gid int) []int {
	out := []int{gid}
	ids, err := u.GroupIds()
	if err != nil {
		return out // the primary group suffices
	}
	for _, id := range ids {
		if n, err := strconv.Atoi(id); err == nil && n != gid {
			out = append(out, n)
		}
	}
	return out
}

func handOver(uid, gid int, directories, files []string) error {
	for _, dir := range directories {
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

// give changes the owner of one file or directory. It skips files with several hard links: the user
// may have linked a file of another user here, and would become its owner.
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
