package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every recording of Salt's programs is compared by a test, or listed with the reason why not.
func TestEveryRecordingIsUsed(t *testing.T) {
	tested := map[string]bool{}
	word := regexp.MustCompile(`"(\w+)(?:\.txt)?"`)
	for _, root := range []string{"../../internal", "../../test"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if !strings.Contains(string(text), "golden/cli") && !strings.Contains(string(text), "recordings") {
				return err
			}
			for _, m := range word.FindAllSubmatch(text, -1) {
				tested[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("../../docs/recordings.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "|---|---|\n")
	listed := map[string]bool{}
	for row := range strings.Lines(table) {
		names, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(names, -1) {
			listed[m[1]] = true
		}
	}
	files, err := filepath.Glob("../../testdata/golden/cli/*.txt")
	if err != nil || len(files) < 200 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txt")
		switch {
		case !tested[name] && !listed[name]:
			t.Errorf("%s is neither compared by a test nor listed in docs/recordings.md", name)
		case tested[name] && listed[name]:
			t.Errorf("%s is compared by a test: take it off docs/recordings.md", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("docs/recordings.md lists %s, which is no recording", name)
	}
}
