// Command vetrules is a tool for go vet with the rules of this project; make lint runs it. Each
// rule reports a kind of defect that occurred here before.
package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/analysis/unitchecker"
	"golang.org/x/tools/go/ast/inspector"
)

func main() { unitchecker.Main(all...) }

var all = []*analysis.Analyzer{mapOrder, errorCompare, logKeys, imports, renames}

var errorType = types.Universe.Lookup("error").Type().Underlying().(*types.Interface)

func rule(name, doc string, run func(*analysis.Pass, *inspector.Inspector)) *analysis.Analyzer {
	return &analysis.Analyzer{Name: name, Doc: doc, Requires: []*analysis.Analyzer{inspect.Analyzer}, Run: func(p *analysis.Pass) (any, error) {
		run(p, p.ResultOf[inspect.Analyzer].(*inspector.Inspector))
		return nil, nil
	}}
}

func isTest(p *analysis.Pass, at token.Pos) bool {
	return strings.HasSuffix(p.Fset.Position(at).Filename, "_test.go")
}

func isError(t types.Type) bool { return t != nil && types.Implements(t, errorType) }

func isNil(p *analysis.Pass, e ast.Expr) bool { return p.TypesInfo.Types[e].IsNil() }

// shown are the packages whose errors tell users what to correct. Elsewhere loops process stored
// data, where any item may fail for the same reason.
var shown = regexp.MustCompile(`^brine/internal/(base|py|files|call|sls|catalogue|cli|daemons/config)(/|$)`)

var mapOrder = rule("maporder", "reports loops over a map that return an error: which one is returned differs from run to run",
	func(p *analysis.Pass, in *inspector.Inspector) {
		if !shown.MatchString(p.Pkg.Path()) {
			return
		}
		in.Preorder([]ast.Node{(*ast.RangeStmt)(nil)}, func(n ast.Node) {
			loop := n.(*ast.RangeStmt)
			if isTest(p, n.Pos()) {
				return
			}
			if _, ok := p.TypesInfo.TypeOf(loop.X).Underlying().(*types.Map); !ok {
				return
			}
			ast.Inspect(loop.Body, func(n ast.Node) bool {
				switch x := n.(type) {
				case *ast.FuncLit:
					return false
				case *ast.ReturnStmt:
					if len(x.Results) == 0 {
						break
					}
					last := x.Results[len(x.Results)-1]
					if isError(p.TypesInfo.TypeOf(last)) && !isNil(p, last) {
						p.Reportf(loop.Pos(), "the first error of a map differs from run to run: range over sorted keys or a slice")
					}
				}
				return true
			})
		})
	})

var errorCompare = rule("errorcompare", "reports comparisons and assertions of errors that miss wrapped ones",
	func(p *analysis.Pass, in *inspector.Inspector) {
		in.Preorder([]ast.Node{(*ast.BinaryExpr)(nil), (*ast.TypeAssertExpr)(nil), (*ast.CallExpr)(nil)}, func(n ast.Node) {
			if isTest(p, n.Pos()) {
				return
			}
			switch x := n.(type) {
			case *ast.BinaryExpr:
				if x.Op != token.EQL && x.Op != token.NEQ || isNil(p, x.X) || isNil(p, x.Y) {
					return
				}
				a, b := p.TypesInfo.TypeOf(x.X), p.TypesInfo.TypeOf(x.Y)
				if types.IsInterface(a) && types.IsInterface(b) && isError(a) && isError(b) && !isEOF(p, x.Y) && !exact(p, x) {
					p.Reportf(x.Pos(), "compare errors with errors.Is: a wrapped one is not equal")
				}
			case *ast.TypeAssertExpr:
				t := p.TypesInfo.TypeOf(x.X)
				if types.IsInterface(t) && types.Identical(t.Underlying(), errorType) && !exact(p, x) {
					p.Reportf(x.Pos(), "use errors.As or errors.AsType: a wrapped error has another type")
				}
			case *ast.CallExpr:
				wrapped(p, x)
			}
		})
	})

// isEOF reports whether an expression is io.EOF, which readers return unwrapped: a wrapped one has
// another meaning.
func isEOF(p *analysis.Pass, e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	return ok && p.TypesInfo.Uses[sel.Sel] != nil && p.TypesInfo.Uses[sel.Sel].String() == "var io.EOF error"
}

// exact reports whether the line ends in a comment "exact: REASON".
func exact(p *analysis.Pass, n ast.Node) bool { return reasoned(p, n, "exact") }

// reasoned reports whether the line ends in a comment with a word and a reason.
func reasoned(p *analysis.Pass, n ast.Node, word string) bool {
	at := p.Fset.Position(n.Pos())
	for _, f := range p.Files {
		if p.Fset.Position(f.Pos()).Filename != at.Filename {
			continue
		}
		for _, group := range f.Comments {
			for _, c := range group.List {
				if p.Fset.Position(c.Pos()).Line == at.Line && strings.HasPrefix(c.Text, "// "+word+": ") {
					return true
				}
			}
		}
	}
	return false
}

// wrapped reports arguments of fmt.Errorf that are errors and not wrapped.
func wrapped(p *analysis.Pass, call *ast.CallExpr) {
	f := callee(p, call)
	if f == nil || f.FullName() != "fmt.Errorf" || len(call.Args) < 2 {
		return
	}
	format := p.TypesInfo.Types[call.Args[0]].Value
	if format == nil || strings.Contains(constant.StringVal(format), "[") {
		return
	}
	if strings.Contains(constant.StringVal(format), "%w") {
		return // the kind of one error is wanted, and that of the other is not
	}
	verbs := regexp.MustCompile(`%[-+# 0-9.*]*([a-zA-Z%])`).FindAllStringSubmatch(constant.StringVal(format), -1)
	i := 1
	for _, v := range verbs {
		if v[1] == "%" {
			continue
		}
		if strings.Contains(v[0], "*") || i >= len(call.Args) {
			return
		}
		if v[1] == "v" && isError(p.TypesInfo.TypeOf(call.Args[i])) {
			p.Reportf(call.Args[i].Pos(), "wrap the error by %%w, so that errors.Is finds it")
		}
		i++
	}
}

func callee(p *analysis.Pass, call *ast.CallExpr) *types.Func {
	var id *ast.Ident
	switch f := call.Fun.(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	default:
		return nil
	}
	f, _ := p.TypesInfo.Uses[id].(*types.Func)
	return f
}

// renamed maps keys of log records to the keys to use instead.
var renamed = map[string]string{"error": "err", "e": "err", "file": "path", "filename": "path", "minion_id": "minion"}

var logKey = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

var logKeys = rule("logkeys", "reports log records whose keys are not constant words in lower case, or have another name elsewhere",
	func(p *analysis.Pass, in *inspector.Inspector) {
		first := map[string]map[string]int{ // argument of each method
			"log/slog":                      {"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "Log": 3, "With": 0},
			"brine/internal/base/ratelimit": {"Log": 2},
		}
		in.Preorder([]ast.Node{(*ast.CallExpr)(nil)}, func(n ast.Node) {
			call := n.(*ast.CallExpr)
			f := callee(p, call)
			if f == nil || f.Pkg() == nil || isTest(p, n.Pos()) || call.Ellipsis.IsValid() {
				return
			}
			from, ok := first[f.Pkg().Path()][f.Name()]
			if !ok || f.Signature().Recv() == nil {
				return
			}
			for i := from; i < len(call.Args); i += 2 {
				if t := p.TypesInfo.TypeOf(call.Args[i]); t != nil && t.String() == "log/slog.Attr" {
					i--
					continue
				}
				v := p.TypesInfo.Types[call.Args[i]].Value
				switch {
				case v == nil || v.Kind() != constant.String:
					p.Reportf(call.Args[i].Pos(), "the key of a log record is not a constant")
				case !logKey.MatchString(constant.StringVal(v)):
					p.Reportf(call.Args[i].Pos(), "the key %s of a log record is not a word in lower case", v)
				case renamed[constant.StringVal(v)] != "":
					p.Reportf(call.Args[i].Pos(), "the key %s of a log record is called %q elsewhere", v, renamed[constant.StringVal(v)])
				}
			}
		})
	})

// refused maps packages that must not be imported to their replacements.
var refused = map[string]string{
	"io/ioutil":             "io and os",
	"log":                   "log/slog",
	"math/rand":             "math/rand/v2, or crypto/rand for secrets",
	"golang.org/x/exp/maps": "maps",
	"github.com/pkg/errors": "errors",
	"gopkg.in/yaml.v3":      "internal/py/yaml",
}

var imports = rule("imports", "reports imports of packages that this project does not use",
	func(p *analysis.Pass, _ *inspector.Inspector) {
		for _, f := range p.Files {
			if isTest(p, f.Pos()) {
				continue
			}
			for _, im := range f.Imports {
				path, err := strconv.Unquote(im.Path.Value)
				if err != nil {
					continue
				}
				if use := refused[path]; use != "" {
					p.Reportf(im.Pos(), "%s is not used here: use %s", path, use)
				}
			}
		}
	})

var renames = rule("renames", "reports os.Rename outside of atomicfile: there the content may reach the disk after its name",
	func(p *analysis.Pass, in *inspector.Inspector) {
		if p.Pkg.Path() == "brine/internal/base/atomicfile" {
			return
		}
		in.Preorder([]ast.Node{(*ast.SelectorExpr)(nil)}, func(n ast.Node) {
			f, ok := p.TypesInfo.Uses[n.(*ast.SelectorExpr).Sel].(*types.Func)
			if ok && f.FullName() == "os.Rename" && !isTest(p, n.Pos()) && !reasoned(p, n, "rename") {
				p.Reportf(n.Pos(), "replace files with atomicfile; if this moves something, end the line in the comment rename: REASON")
			}
		})
	})
