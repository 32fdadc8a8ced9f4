package layers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	"sync"
	"testing"
)

// listed is the output of go list for a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// fset has the positions of all files that eachPackage reads.
var fset = token.NewFileSet()

// checked is a package of internal/ or cmd/.
type checked struct {
	files []*ast.File
	p     *types.Package
	info  *types.Info
}

// eachPackage calls do with the packages of internal/ and cmd/.
func eachPackage(t *testing.T, do func(files []*ast.File, p *types.Package, info *types.Info)) {
	t.Helper()
	all, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		do(c.files, c.p, c.info)
	}
}

// tree type-checks the packages from source, and reads their imports from the build cache.
var tree = sync.OnceValues(func() (all []checked, _ error) {
	cmd := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles", "./internal/...", "./cmd/...")
	cmd.Dir = filepath.Join("..", "..")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	exports := map[string]string{}
	var own []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[l.ImportPath] = l.Export
		if strings.HasPrefix(l.ImportPath, "brine/") {
			own = append(own, l)
		}
	}
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, l := range own {
		c := checked{info: &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{},
			Uses: map[*ast.Ident]types.Object{}}}
		for _, name := range l.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			c.files = append(c.files, f)
		}
		if c.p, err = (&types.Config{Importer: imports}).Check(l.ImportPath, fset, c.files, c.info); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
})

// mostMethods is the maximum number of methods of a type, including those of embedded types.
const mostMethods = 40

// TestFewMethods: a type with too many methods should be several types. Methods from other modules,
// such as those of an embedded sql.DB, do not count. Nor do methods in the catalogue that are used
// as values: they are the functions of a module, which users call by name, and the type is only
// their namespace.
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
			if n := methods(tn.Type(), handedOn); n > mostMethods {
				t.Errorf("%s.%s has %d methods, those of embedded types included; give parts of it types of their own",
					strings.TrimPrefix(p.Path(), module), name, n)
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

// methodValues returns the methods that are used other than in calls.
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
