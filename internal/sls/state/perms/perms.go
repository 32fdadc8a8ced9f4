package perms

import (
	"os"
	"syscall"

	"brine/internal/host/filesys"
	"brine/internal/py/value"
)

// Differs returns which of owner, group and mode differ, as a map of the wanted values; nil
// and "" mean no change. The mode of a symbolic link cannot be set.
func Differs(user, group any, mode string, now filesys.Facts) *value.Dict {
	d := value.NewDict(3)
	if given(user) && !same(user, now.User, now.UID) {
		d.Set("user", user)
	}
	if given(group) && !same(group, now.Group, now.GID) {
		d.Set("group", group)
	}
	if mode != "" && !now.IsLink() && mode != now.Mode {
		d.Set("mode", mode)
	}
	return d
}

// New returns what Salt shows for a new file: an owner or group other than the minion's own,
// and the mode, if it must be shown, unless only the owner has permissions. In a directory
// with the setgid bit, the directory's group counts as the minion's own.
func New(user, group any, mode string, now filesys.Facts, dir string) *value.Dict {
	d := value.NewDict(3)
	if given(user) && now.UID != os.Geteuid() {
		d.Set("user", user)
	}
	if given(group) && now.GID != born(dir) {
		d.Set("group", group)
	}
	if now.Mode != "0600" && mode != "" {
		d.Set("mode", now.Mode)
	}
	return d
}

// born returns the group of files that this process creates in a directory.
func born(dir string) int {
	if st, err := os.Stat(dir); err == nil && st.Mode()&os.ModeSetgid != 0 {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			return int(sys.Gid)
		}
	}
	return os.Getegid()
}

func given(v any) bool { return v != nil && v != "" }

func same(want any, name func() string, id int) bool {
	return value.Equal(want, int64(id)) || value.Str(want) == value.Str(int64(id)) || value.Equal(want, name())
}

// DirMode returns the mode of directories created for a file with this mode:
// everyone with a permission for the file may enter them. -1 means none.
func DirMode(mode string) int {
	bits, err := filesys.ParseMode(mode)
	if err != nil || bits < 0 {
		return -1
	}
	bits &= 0o777
	for _, shift := range []int{0, 3, 6} {
		if bits>>shift&7 != 0 {
			bits |= 1 << shift
		}
	}
	return bits
}
