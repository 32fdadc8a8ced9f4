package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestStatesCallByName counts the calls of execution modules by name in states. docs/adr/0034 says
// which of them stay; others use packages. The counts are in testdata/byname and may only decrease.
func TestStatesCallByName(t *testing.T) {
	root := filepath.Join("..", "..", "internal", "catalogue", "states")
	dirs, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	found, total := "", 0
	for _, d := range dirs {
		if !d.IsDir() || d.Name() == "statetest" {
			continue
		}
		n := callsByName(t, filepath.Join(root, d.Name()))
		total += n
		if n > 0 {
			found += fmt.Sprintf("%s %d\n", d.Name(), n)
		}
	}
	if total == 0 {
		t.Fatal("no calls were found, not even those of pkg and service: the test does not see them")
	}
	if want, err := os.ReadFile(filepath.Join("testdata", "byname")); err != nil || string(want) != found {
		t.Errorf("calls of execution modules by name: testdata/byname has (%v)\n%s\nthere are\n%s\n"+
			"If a number is higher, use the package of internal/host or internal/catalogue/actions that does the work (docs/adr/0034). "+
			"If all are lower, write them to testdata/byname.", err, want, found)
	}
}

// callsByName counts the calls of Exec in a package. If a function passes on a name that is its
// parameter, the calls of that function count instead.
func callsByName(t *testing.T, dir string) int {
	t.Helper()
	var funcs []*ast.FuncDecl
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files: %v", dir, len(files), err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fd, ok := d.(*ast.FuncDecl); ok {
				funcs = append(funcs, fd)
			}
		}
	}

	// passes maps the functions that call one of their arguments to its index.
	passes := map[string]int{"Exec": 1}
	for n := 0; n != len(passes); {
		n = len(passes)
		for _, fd := range funcs {
			params := parameters(fd)
			eachNamedCall(fd, passes, func(name ast.Expr) {
				if i := firstOf(name, params); i >= 0 {
					passes[fd.Name.Name] = i
				}
			})
		}
	}

	count := 0
	for _, fd := range funcs {
		params := parameters(fd)
		eachNamedCall(fd, passes, func(name ast.Expr) {
			if firstOf(name, params) < 0 {
				count++
			}
		})
	}
	return count
}

// eachNamedCall calls do with the name argument of each call of the functions.
func eachNamedCall(fd *ast.FuncDecl, passes map[string]int, do func(name ast.Expr)) {
	if fd.Body == nil {
		return
	}
	ast.Inspect(fd.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		var name string
		switch f := call.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
		}
		if i, ok := passes[name]; ok && i < len(call.Args) {
			do(call.Args[i])
		}
		return true
	})
}

// parameters returns the names of a function's parameters in their order.
func parameters(fd *ast.FuncDecl) (names []string) {
	for _, f := range fd.Type.Params.List {
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
	}
	return names
}

// firstOf returns the index of the first parameter that an expression uses, or -1. Fields of a
// parameter do not count.
func firstOf(e ast.Expr, params []string) int {
	switch e := e.(type) {
	case *ast.Ident:
		return slices.Index(params, e.Name)
	case *ast.BinaryExpr:
		return max(firstOf(e.X, params), firstOf(e.Y, params))
	case *ast.ParenExpr:
		return firstOf(e.X, params)
	}
	return -1
}
