// Package layers holds the code to docs/ARCHITECTURE.md: a package imports
// only packages of rows above its own, and every package says what it is.
package layers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rows are the folders of internal/ from the words at the top to the programs
// at the bottom. A folder may import from earlier rows, and within its own
// tree.
var rows = [][]string{
	{"salt", "value", "atomicfile", "log"},
	{"field", "mersenne", "pyre", "profile"},
	{"msgpack", "yaml", "json", "crypt", "host", "textedit"},
	{"handshake", "roster", "transport", "target", "oplog", "lease", "jinja", "serialize", "jmespath", "discovery", "fetch", "gitrepo", "schedule", "remote"},
	{"channel", "fileserver", "fileclient"},
	{"acl", "audit", "keystore", "cache", "event", "job", "journal", "fn", "output", "revision"},
	{"auth", "cluster", "replica", "state", "render", "returner"},
	{"sls", "top"},
	{"pillar", "highstate"},
	{"beacons", "client", "grains", "migrate", "modules", "states"},
	{"catalogue", "runners", "wheel", "reactor"},
	{"api", "master", "minion"},
	{"config"},
	{"cli"},
}

func rowOf(t *testing.T, folder string) int {
	t.Helper()
	for i, r := range rows {
		for _, f := range r {
			if f == folder {
				return i
			}
		}
	}
	t.Errorf("internal/%s is in no row: enter it here and in docs/ARCHITECTURE.md", folder)
	return len(rows)
}

const module = "brine/internal/"

func TestImportsGoUpwards(t *testing.T) {
	eachFile(t, func(path string, rel string, isTest bool) {
		if isTest {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			return
		}
		own := top(filepath.Dir(rel))
		for _, im := range f.Imports {
			name := strings.Trim(im.Path.Value, `"`)
			other, ok := strings.CutPrefix(name, module)
			if !ok || top(other) == own {
				continue
			}
			if rowOf(t, top(other)) >= rowOf(t, own) {
				t.Errorf("internal/%s imports internal/%s, which is not in a row above", rel, other)
			}
		}
	})
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
