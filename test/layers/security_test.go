package layers

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityNamesRealTests: for each known vulnerability docs/security.md names the test that
// shows that Brine is not affected; each of these tests must exist.
func TestSecurityNamesRealTests(t *testing.T) {
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1) {
		named[m[1]] = true
	}
	if len(named) < 15 {
		t.Fatalf("only %d tests are named", len(named))
	}
	fun := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, root := range []string{"../../internal", "../../test"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			src, err := os.ReadFile(path)
			for _, m := range fun.FindAllStringSubmatch(string(src), -1) {
				delete(named, m[1])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range named {
		t.Errorf("docs/security.md names %s, which there is not", name)
	}
}
