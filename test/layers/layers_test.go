// Package layers checks the code against docs/ARCHITECTURE.md: a package imports only packages of
// its own layer and of the layers above it in the table, the table names each package, and every
// package has a package comment.
package layers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layers are the directories of internal/, lowest first.
var layers = []string{"py", "base", "host", "net", "files", "store", "call", "ha", "sls", "catalogue", "daemons", "cli"}

const module = "brine/internal/"

func TestImportsGoDown(t *testing.T) {
	eachFile(t, func(path string, rel string, isTest bool) {
		own := slices.Index(layers, top(rel))
		if own < 0 {
			t.Errorf("internal/%s is in no layer: enter internal/%s here and in docs/ARCHITECTURE.md", rel, top(rel))
			return
		}
		if isTest {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			return
		}
		for _, im := range f.Imports {
			other, ok := strings.CutPrefix(strings.Trim(im.Path.Value, `"`), module)
			if ok && slices.Index(layers, top(other)) > own {
				t.Errorf("internal/%s imports internal/%s, whose layer is a later one", rel, other)
			}
		}
	})
}

// TestArchitectureNamesEveryPackage compares the table of docs/ARCHITECTURE.md
// with the layers and with the directories in each.
func TestArchitectureNamesEveryPackage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)/` \\|([^|]*)\\|").FindAllStringSubmatch(string(text), -1) {
		layer := row[1]
		order = append(order, layer)
		var named, found []string
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[2], -1) {
			named = append(named, m[1])
		}
		dirs, err := os.ReadDir(filepath.Join("..", "..", "internal", layer))
		if err != nil {
			t.Error(err)
		}
		for _, d := range dirs {
			if d.IsDir() && d.Name() != "testdata" {
				found = append(found, d.Name())
			}
		}
		slices.Sort(named)
		if !slices.Equal(named, found) {
			t.Errorf("docs/ARCHITECTURE.md has in internal/%s\n%v; there are\n%v", layer, named, found)
		}
	}
	if !slices.Equal(order, layers) {
		t.Errorf("docs/ARCHITECTURE.md has the layers %v; they are %v", order, layers)
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	eachFile(t, func(path, rel string, isTest bool) {
		if isTest {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Error(err)
			return
		}
		dir := filepath.Dir(rel)
		documented[dir] = documented[dir] || f.Doc != nil
	})
	for dir, ok := range documented {
		if !ok {
			t.Errorf("internal/%s has no package comment", dir)
		}
	}
}

func top(p string) string {
	first, _, _ := strings.Cut(filepath.ToSlash(p), "/")
	return first
}

func eachFile(t *testing.T, do func(path, rel string, isTest bool)) {
	t.Helper()
	root := filepath.Join("..", "..", "internal")
	n := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		rel, err := filepath.Rel(root, path)
		n++
		do(path, rel, strings.HasSuffix(path, "_test.go"))
		return err
	})
	if err != nil || n < 50 {
		t.Fatalf("%d files read: %v", n, err)
	}
	if _, err := os.Stat(filepath.Join("..", "..", "docs", "ARCHITECTURE.md")); err != nil {
		t.Error(err)
	}
}
