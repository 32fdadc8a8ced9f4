package runners

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"testing"
)

// TestDepsStaySmall bounds what a master offers to all runners, and checks that no module keeps all of it.
func TestDepsStaySmall(t *testing.T) {
	d, funcs := reflect.TypeFor[Deps](), 0
	for i := range d.NumField() {
		if d.Field(i).Type.Kind() == reflect.Func {
			funcs++
		}
	}
	if d.NumField() > 17 || funcs > 6 {
		t.Errorf("Deps has %d fields, %d of them functions; group what one module uses in an interface of its file", d.NumField(), funcs)
	}
	paths, err := filepath.Glob("*.go")
	if err != nil || len(paths) < 20 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range s.Fields.List {
				if id, ok := field.Type.(*ast.Ident); ok && id.Name == "Deps" && path != "runners_test.go" {
					t.Errorf("%s: a struct keeps all of Deps; it should keep what it uses", path)
				}
			}
			return true
		})
	}
}
