package layers

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lookupDirs are the packages whose messages should be structs of internal/net/wire.
var lookupDirs = []string{"daemons/master", "daemons/minion", "call/client", "ha/cluster"}

// TestLookups counts where masters, minions, clients and clusters look up a key of a dictionary by
// a constant string. A message that has a struct in internal/net/wire is read by wire.Decode, or by
// wire.View. The counts are in testdata/lookups and may only decrease.
func TestLookups(t *testing.T) {
	counts := map[string]int{}
	eachPackage(t, func(files []*ast.File, p *types.Package, info *types.Info) {
		path := strings.TrimPrefix(p.Path(), module)
		for _, dir := range lookupDirs {
			if path == dir || strings.HasPrefix(path, dir+"/") {
				counts[dir] += lookups(files, info)
			}
		}
	})
	found, total := "", 0
	for _, dir := range lookupDirs {
		found += fmt.Sprintf("%s %d\n", dir, counts[dir])
		total += counts[dir]
	}
	if total == 0 {
		t.Fatal("no look-ups were found: the test does not see them")
	}
	if want, err := os.ReadFile(filepath.Join("testdata", "lookups")); err != nil || string(want) != found {
		t.Errorf("look-ups by constant strings: testdata/lookups has (%v)\n%s\nthere are\n%s(%d in all)\n"+
			"If a number is higher, read the message with a struct of internal/net/wire. If all are lower, write them to testdata/lookups.", err, want, found, total)
	}
}

// reading are the methods of a dictionary that look up a key.
var reading = map[string]bool{"Get": true, "Has": true, "At": true, "Str": true, "Bytes": true, "Int": true, "Bool": true, "Dict": true, "List": true}

// lookups counts calls of reading methods of *value.Dict, and reads of Go maps from strings to any,
// with a constant key.
func lookups(files []*ast.File, info *types.Info) (n int) {
	constString := func(e ast.Expr) bool {
		v := info.Types[e].Value
		return v != nil && v.Kind() == constant.String
	}
	for _, f := range files {
		ast.Inspect(f, func(node ast.Node) bool {
			switch e := node.(type) {
			case *ast.CallExpr:
				s, ok := e.Fun.(*ast.SelectorExpr)
				if ok && len(e.Args) == 1 && reading[s.Sel.Name] && constString(e.Args[0]) && isDict(info.Types[s.X].Type) {
					n++
				}
			case *ast.IndexExpr:
				if m, ok := info.Types[e.X].Type.(*types.Map); ok && types.IsInterface(m.Elem()) && constString(e.Index) {
					n++
				}
			}
			return true
		})
	}
	return n
}

// isDict reports whether a type is a pointer to value.Dict.
func isDict(t types.Type) bool {
	p, ok := t.(*types.Pointer)
	if !ok {
		return false
	}
	named, ok := p.Elem().(*types.Named)
	return ok && named.Obj().Name() == "Dict" && named.Obj().Pkg().Path() == module+"py/value"
}
