package filesys

import (
	"os/user"
	"testing"
)

func TestExpandUser(t *testing.T) {
	t.Setenv("HOME", "/home/me/")
	root := "~root"
	if u, err := user.Lookup("root"); err == nil {
		root = u.HomeDir
	}
	for _, c := range [][2]string{
		{"", ""}, {"/a/~", "/a/~"}, {"a~", "a~"}, {"~", "/home/me"}, {"~/", "/home/me/"}, {"~/a//b", "/home/me/a//b"},
		{"~root", root}, {"~root/a", root + "/a"}, {"~no such user/a", "~no such user/a"},
	} {
		if got := ExpandUser(c[0]); got != c[1] {
			t.Errorf("%q is %q, want %q", c[0], got, c[1])
		}
	}
	if got := ExpandUserFrom("~/a", "/other"); got != "/other/a" {
		t.Error(got)
	}
	t.Setenv("HOME", "/")
	if got := ExpandUser("~"); got != "/" {
		t.Error(got)
	}
	t.Setenv("HOME", "")
	if u, err := user.Current(); err == nil && u.HomeDir != "" {
		if got := ExpandUser("~/a"); got != ExpandUserFrom("~/a", u.HomeDir) {
			t.Error(got)
		}
	}
}
