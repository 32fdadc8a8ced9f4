package layers

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// eachPackage type-checks the packages of internal/ and cmd/ from source, and
// reads what they import from the build cache.
func eachPackage(t *testing.T, do func(files []*ast.File, p *types.Package, info *types.Info)) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles", "./internal/...", "./cmd/...")
	cmd.Dir = filepath.Join("..", "..")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	exports := map[string]string{}
	var own []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[l.ImportPath] = l.Export
		if strings.HasPrefix(l.ImportPath, "brine/") {
			own = append(own, l)
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, l := range own {
		var files []*ast.File
		for _, name := range l.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{}}
		p, err := (&types.Config{Importer: imports}).Check(l.ImportPath, fset, files, info)
		if err != nil {
			t.Fatal(err)
		}
		do(files, p, info)
	}
}

// mostMethods is how many methods a type may have, those of embedded types included.
const mostMethods = 40

// large are types that have more. The numbers may only shrink.
var large = map[string]int{
	"daemons/api.call": 53,
}

// TestFewMethods: a type with many methods is several types. Methods that come from other
// modules, as those of an embedded sql.DB, do not count. In the catalogue, methods that
// are handed on as values do not either: they are the functions of a module, which users
// call by name, and the type is their namespace.
func TestFewMethods(t *testing.T) {
	known := 0
	eachPackage(t, func(files []*ast.File, p *types.Package, info *types.Info) {
		handedOn := map[types.Object]bool{}
		if strings.HasPrefix(p.Path(), module+"catalogue/") {
			handedOn = methodValues(files, info)
		}
		for _, name := range p.Scope().Names() {
			tn, ok := p.Scope().Lookup(name).(*types.TypeName)
			if !ok || tn.IsAlias() {
				continue
			}
			known++
			key, n := strings.TrimPrefix(p.Path(), module)+"."+name, methods(tn.Type(), handedOn)
			if n > max(mostMethods, large[key]) {
				t.Errorf("%s has %d methods, those of embedded types included; give parts of it types of their own", key, n)
			}
			if n < large[key] {
				t.Logf("%s has %d methods: lower its number in this test, or remove it", key, n)
			}
		}
	})
	if known < 500 {
		t.Errorf("only %d types found", known)
	}
}

func methods(of types.Type, without map[types.Object]bool) int {
	if !types.IsInterface(of) {
		of = types.NewPointer(of)
	}
	set, n := types.NewMethodSet(of), 0
	for i := range set.Len() {
		if o := set.At(i).Obj(); o.Pkg() != nil && strings.HasPrefix(o.Pkg().Path(), module) && !without[o] {
			n++
		}
	}
	return n
}

// methodValues returns the methods that are used other than by a call.
func methodValues(files []*ast.File, info *types.Info) map[types.Object]bool {
	called := map[*ast.SelectorExpr]bool{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok {
				if s, ok := ast.Unparen(c.Fun).(*ast.SelectorExpr); ok {
					called[s] = true
				}
			}
			return true
		})
	}
	values := map[types.Object]bool{}
	for s, sel := range info.Selections {
		if !called[s] {
			values[sel.Obj()] = true
		}
	}
	return values
}
