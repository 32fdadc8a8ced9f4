package filesys

import (
	"os"
	"os/user"
	"strings"
)

// ExpandUser replaces a leading ~ by the home directory of this process's user and
// ~NAME by that of another one, like shells. A path with an unknown user is
// returned unchanged.
func ExpandUser(path string) string { return ExpandUserFrom(path, "") }

// ExpandUserFrom does the same for a caller with its own environment: home is the
// value of HOME, or "" for that of the process.
func ExpandUserFrom(path, home string) string {
	rest, ok := strings.CutPrefix(path, "~")
	if !ok {
		return path
	}
	name, _, _ := strings.Cut(rest, "/")
	switch {
	case name != "":
		u, err := user.Lookup(name)
		if err != nil {
			return path
		}
		home = u.HomeDir
	case home == "":
		if home = os.Getenv("HOME"); home == "" {
			u, err := user.Current()
			if err != nil {
				return path
			}
			home = u.HomeDir
		}
	}
	if full := strings.TrimRight(home, "/") + rest[len(name):]; full != "" {
		return full
	}
	return "/"
}
