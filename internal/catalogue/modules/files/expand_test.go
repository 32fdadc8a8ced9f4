package files

import (
	"os/user"
	"testing"
)

// TestPathsOfOtherUsers checks that file.file_exists '~root/x' looks in root's home
// directory.
func TestPathsOfOtherUsers(t *testing.T) {
	want := "~root/x"
	if u, err := user.Lookup("root"); err == nil {
		want = u.HomeDir + "/x"
	}
	got, err := is(func(path string) bool { return path == want })(t.Context(), nil, pathArg{Path: "~root/x"})
	if err != nil || got != true {
		t.Errorf("another path than %s was tested: %v", want, err)
	}
}
