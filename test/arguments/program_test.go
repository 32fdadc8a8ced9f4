package arguments

import (
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
	"testing"
)

// program is the type-checked source of this module's packages, with the references of each
// function and the fields that it reads.
type program struct {
	fset     *token.FileSet
	packages []*sourcePackage
	// nodes are functions, function literals, and variables and fields that
	// hold functions. Keys are *types.Func, *ast.FuncLit and *types.Var.
	nodes map[any]*node
	// reads are the selections of fields, by every field in their chain.
	reads map[*types.Var][]*read
	// used are the variables that some code uses.
	used map[*types.Var]bool
	// signatures are the parameters of declared functions with a body.
	signatures map[*types.Func]*types.Tuple
	// bodies are those of declared functions.
	bodies map[*types.Func]*ast.BlockStmt
	// values are the expressions that variables were defined with.
	values map[*types.Var]ast.Expr
	// paramsOption is fn.Params.
	paramsOption *types.Func
}

type sourcePackage struct {
	path  string
	files []*ast.File
	types *types.Package
	info  *types.Info
}

// node is code, or a variable or field that holds code.
type node struct {
	edges map[*node]bool
	id    int
}

// read is a field selection such as a.Embedded.Field.
type read struct {
	in *node
	// chain are the selected fields, including embedded ones that Go inserts.
	chain []*types.Var
	// to is the field to which the value is assigned unchanged, if any: the value then counts as
	// read only if that field is read.
	to *types.Var
}

// load type-checks the packages of this module that match the patterns, and those that they import.
func load(t *testing.T, patterns ...string) *program {
	t.Helper()
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
		Module                  *struct{ Main bool }
	}
	args := append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Module"}, patterns...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	exports := map[string]string{}
	var own []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[l.ImportPath] = l.Export
		if l.Module != nil && l.Module.Main {
			own = append(own, l) // after what it imports
		}
	}

	p := &program{fset: token.NewFileSet(), nodes: map[any]*node{}, reads: map[*types.Var][]*read{}, used: map[*types.Var]bool{},
		signatures: map[*types.Func]*types.Tuple{}, bodies: map[*types.Func]*ast.BlockStmt{}, values: map[*types.Var]ast.Expr{}}
	compiled := importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	checked := map[string]*types.Package{}
	conf := types.Config{Importer: importerFunc(func(path string) (*types.Package, error) {
		if have := checked[path]; have != nil {
			return have, nil
		}
		return compiled.Import(path)
	})}
	for _, l := range own {
		sp := &sourcePackage{path: l.ImportPath, info: &types.Info{
			Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
			Selections: map[*ast.SelectorExpr]*types.Selection{}, Instances: map[*ast.Ident]types.Instance{},
		}}
		for _, name := range l.GoFiles {
			f, err := parser.ParseFile(p.fset, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			sp.files = append(sp.files, f)
		}
		if sp.types, err = conf.Check(l.ImportPath, p.fset, sp.files, sp.info); err != nil {
			t.Fatal(err)
		}
		checked[l.ImportPath] = sp.types
		p.packages = append(p.packages, sp)
	}
	for _, sp := range p.packages {
		p.survey(sp)
	}
	for _, sp := range p.packages {
		p.scan(sp)
	}
	p.resolveInterfaces()
	return p
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }

// node returns the node of a function or variable.
func (p *program) node(key any) *node {
	switch k := key.(type) {
	case *types.Func:
		key = k.Origin()
	case *types.Var:
		key = k.Origin()
	}
	n := p.nodes[key]
	if n == nil {
		n = &node{edges: map[*node]bool{}, id: len(p.nodes)}
		p.nodes[key] = n
	}
	return n
}

// survey records which variables and parameters a package uses.
func (p *program) survey(sp *sourcePackage) {
	for _, obj := range sp.info.Uses {
		if v, ok := obj.(*types.Var); ok {
			p.used[v.Origin()] = true
		}
	}
	for _, f := range sp.files {
		for _, d := range f.Decls {
			if fd, ok := d.(*ast.FuncDecl); ok && fd.Body != nil {
				if fun, ok := sp.info.Defs[fd.Name].(*types.Func); ok {
					p.signatures[fun], p.bodies[fun] = fun.Signature().Params(), fd.Body
					if fun.FullName() == "brine/internal/call/fn.Params" {
						p.paramsOption = fun
					}
				}
			}
		}
	}
}

// scan enters the references and reads of a package.
func (p *program) scan(sp *sourcePackage) {
	for _, f := range sp.files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Body != nil {
					p.scanner(sp, p.node(sp.info.Defs[d.Name].(*types.Func))).walk(d.Body)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					vs, ok := s.(*ast.ValueSpec)
					if !ok {
						continue
					}
					for i, name := range vs.Names {
						v, ok := sp.info.Defs[name].(*types.Var)
						if ok && len(vs.Values) > 0 {
							p.values[v] = vs.Values[min(i, len(vs.Values)-1)]
							p.scanner(sp, p.node(v)).walk(p.values[v])
						}
					}
				}
			}
		}
	}
}

type scanner struct {
	p     *program
	sp    *sourcePackage
	in    *node
	stack []ast.Node
}

func (p *program) scanner(sp *sourcePackage, in *node) *scanner {
	return &scanner{p: p, sp: sp, in: in}
}

func (s *scanner) walk(root ast.Node) {
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			s.stack = s.stack[:len(s.stack)-1]
			return true
		}
		if !s.visit(n) {
			return false
		}
		s.stack = append(s.stack, n)
		return true
	})
}

// visit enters one node of the syntax, and reports whether to descend.
func (s *scanner) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncLit:
		known := s.p.nodes[n] != nil
		s.in.edges[s.p.node(n)] = true
		if !known {
			s.p.scanner(s.sp, s.p.node(n)).walk(n.Body)
		}
		return false
	case *ast.Ident:
		s.refer(s.sp.info.Uses[n])
	case *ast.SelectorExpr:
		if outer, ok := s.parent(0).(*ast.SelectorExpr); !ok || outer.X != n {
			s.selection(n)
		}
	case *ast.AssignStmt:
		for i, l := range n.Lhs {
			s.hold(s.variable(l), n.Rhs[min(i, len(n.Rhs)-1)])
			if v := s.variable(l); v != nil && n.Tok == token.DEFINE {
				s.p.values[v] = n.Rhs[min(i, len(n.Rhs)-1)]
			}
		}
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if len(n.Values) > 0 {
				s.hold(s.variable(name), n.Values[min(i, len(n.Values)-1)])
				if v := s.variable(name); v != nil {
					s.p.values[v] = n.Values[min(i, len(n.Values)-1)]
				}
			}
		}
	case *ast.RangeStmt:
		if n.Value != nil {
			s.hold(s.variable(n.Value), n.X)
		}
	case *ast.CompositeLit:
		s.literal(n)
	case *ast.CallExpr:
		s.conversion(n)
	}
	return true
}

// refer adds an edge to the object of a name.
func (s *scanner) refer(obj types.Object) {
	switch obj := obj.(type) {
	case *types.Func:
		s.in.edges[s.p.node(obj)] = true
	case *types.Var:
		if obj.Parent() == obj.Pkg().Scope() || holdsFunctions(obj.Type()) {
			s.in.edges[s.p.node(obj)] = true
		}
	}
}

// holdsFunctions reports whether a variable of the type can hold functions.
func holdsFunctions(t types.Type) bool {
	switch t := t.Underlying().(type) {
	case *types.Signature:
		return true
	case *types.Slice:
		return holdsFunctions(t.Elem())
	case *types.Array:
		return holdsFunctions(t.Elem())
	case *types.Map:
		return holdsFunctions(t.Elem())
	}
	return false
}

// hold adds edges from a variable that holds functions to the functions of an expression.
func (s *scanner) hold(v *types.Var, expr ast.Expr) {
	if v != nil && holdsFunctions(v.Type()) {
		s.p.scanner(s.sp, s.p.node(v)).functions(expr)
	}
}

// functions adds the references of an expression, but no reads.
func (s *scanner) functions(expr ast.Expr) {
	ast.Inspect(expr, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return s.visit(n)
		case *ast.Ident:
			s.refer(s.sp.info.Uses[n])
		}
		return true
	})
}

// variable returns the variable or field that an expression names.
func (s *scanner) variable(e ast.Expr) *types.Var {
	var obj types.Object
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		if obj = s.sp.info.Defs[e]; obj == nil {
			obj = s.sp.info.Uses[e]
		}
	case *ast.SelectorExpr:
		obj = s.sp.info.Uses[e.Sel]
	case *ast.IndexExpr:
		return s.variable(e.X)
	}
	v, _ := obj.(*types.Var)
	return v
}

// literal adds edges from the fields of a struct that hold functions to those functions.
func (s *scanner) literal(lit *ast.CompositeLit) {
	for i, e := range lit.Elts {
		if f := s.fieldOf(lit, i); f != nil {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				e = kv.Value
			}
			s.hold(f, e)
		}
	}
}

// fieldOf returns the field that an element of a literal sets, if the literal is a struct.
func (s *scanner) fieldOf(lit *ast.CompositeLit, i int) *types.Var {
	t := s.sp.info.Types[lit].Type
	if ptr, ok := t.Underlying().(*types.Pointer); ok {
		t = ptr.Elem()
	}
	st, ok := t.Underlying().(*types.Struct)
	if !ok {
		return nil
	}
	if kv, ok := lit.Elts[i].(*ast.KeyValueExpr); ok {
		return s.variable(kv.Key)
	}
	return st.Field(i)
}

// conversion handles the conversion of one struct to another, which copies each field.
func (s *scanner) conversion(call *ast.CallExpr) {
	if len(call.Args) != 1 || !s.sp.info.Types[call.Fun].IsType() {
		return
	}
	to, ok := s.sp.info.Types[call.Fun].Type.Underlying().(*types.Struct)
	from, ok2 := s.sp.info.Types[call.Args[0]].Type.Underlying().(*types.Struct)
	if !ok || !ok2 || to.NumFields() != from.NumFields() {
		return
	}
	for i := range from.NumFields() {
		if a, b := from.Field(i).Origin(), to.Field(i).Origin(); a != b {
			s.add(&read{in: s.in, chain: []*types.Var{a}, to: b})
		}
	}
}

func (s *scanner) parent(up int) ast.Node {
	if up >= len(s.stack) {
		return nil
	}
	return s.stack[len(s.stack)-1-up]
}

// selection records the field that a selector reads.
func (s *scanner) selection(sel *ast.SelectorExpr) {
	chain := s.chain(sel)
	if len(chain) == 0 {
		return
	}
	r := &read{in: s.in, chain: chain}
	child, up := ast.Node(sel), 0
	for ; ; up++ {
		if _, ok := s.parent(up).(*ast.ParenExpr); !ok {
			break
		}
		child = s.parent(up)
	}
	switch outer := s.parent(up).(type) {
	case *ast.AssignStmt:
		for _, l := range outer.Lhs {
			if l == child && (outer.Tok == token.ASSIGN || outer.Tok == token.DEFINE) {
				return // written, not read
			}
		}
		for i, e := range outer.Rhs {
			if e == child && len(outer.Lhs) == len(outer.Rhs) {
				if id, ok := outer.Lhs[i].(*ast.Ident); ok && id.Name == "_" {
					return
				}
				if v := s.variable(outer.Lhs[i]); v != nil && v.IsField() {
					r.to = v.Origin()
				}
			}
		}
	case *ast.KeyValueExpr:
		if lit, ok := s.parent(up + 1).(*ast.CompositeLit); ok && outer.Value == child {
			r.to = s.destination(lit, outer)
		}
	case *ast.CompositeLit:
		r.to = s.destination(outer, child)
	case *ast.CallExpr:
		if s.dropped(outer, child) {
			return
		}
	}
	s.add(r)
}

// sent reports whether a field belongs to a message. wire.Encode reads all fields of messages by
// reflection.
func (s *scanner) sent(lit *ast.CompositeLit, f *types.Var) bool {
	st, ok := s.sp.info.Types[lit].Type.Underlying().(*types.Struct)
	for i := 0; ok && i < st.NumFields(); i++ {
		if st.Field(i).Origin() == f.Origin() {
			return strings.Contains(st.Tag(i), `wire:"`)
		}
	}
	return false
}

func (s *scanner) destination(lit *ast.CompositeLit, e ast.Node) *types.Var {
	for i := range lit.Elts {
		if lit.Elts[i] == e {
			if f := s.fieldOf(lit, i); f != nil && !s.sent(lit, f) {
				return f.Origin()
			}
		}
	}
	return nil
}

// dropped reports whether the called function does not use an argument.
func (s *scanner) dropped(call *ast.CallExpr, arg ast.Node) bool {
	var id *ast.Ident
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	default:
		return false
	}
	fun, ok := s.sp.info.Uses[id].(*types.Func)
	if !ok {
		return false
	}
	params := s.p.signatures[fun.Origin()]
	if params == nil {
		return false
	}
	for i, a := range call.Args {
		if a == arg {
			param := params.At(min(i, params.Len()-1))
			return !s.p.used[param.Origin()]
		}
	}
	return false
}

func (s *scanner) add(r *read) {
	for _, f := range r.chain {
		s.p.reads[f] = append(s.p.reads[f], r)
	}
}

// chain returns the fields that a selector goes through.
func (s *scanner) chain(e ast.Expr) []*types.Var {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return s.chain(e.X)
	case *ast.StarExpr:
		return s.chain(e.X)
	case *ast.SelectorExpr:
		sel := s.sp.info.Selections[e]
		if sel == nil {
			return nil // of a package
		}
		way := sel.Index()
		if sel.Kind() != types.FieldVal {
			way = way[:len(way)-1]
		}
		chain, t := s.chain(e.X), sel.Recv()
		for _, i := range way {
			if ptr, ok := t.Underlying().(*types.Pointer); ok {
				t = ptr.Elem()
			}
			st, ok := t.Underlying().(*types.Struct)
			if !ok {
				return chain // a type parameter
			}
			chain, t = append(chain, st.Field(i).Origin()), st.Field(i).Type()
		}
		return chain
	}
	return nil
}

// resolveInterfaces adds edges from methods of interfaces to those of this module's types that
// implement them.
func (p *program) resolveInterfaces() {
	methods := map[string][]*types.Func{} // of concrete types, by name
	for _, sp := range p.packages {
		for _, obj := range sp.info.Defs {
			if fun, ok := obj.(*types.Func); ok && fun.Signature().Recv() != nil && !types.IsInterface(fun.Signature().Recv().Type()) {
				methods[fun.Name()] = append(methods[fun.Name()], fun)
			}
		}
	}
	var abstract []*types.Func
	for key := range p.nodes {
		if fun, ok := key.(*types.Func); ok && fun.Signature().Recv() != nil && types.IsInterface(fun.Signature().Recv().Type()) {
			abstract = append(abstract, fun)
		}
	}
	for _, fun := range abstract {
		iface := fun.Signature().Recv().Type().Underlying().(*types.Interface)
		for _, m := range methods[fun.Name()] {
			recv := m.Signature().Recv().Type()
			if _, ok := recv.(*types.Pointer); !ok {
				recv = types.NewPointer(recv)
			}
			if generic(recv) || types.Implements(recv, iface) {
				p.node(fun).edges[p.node(m)] = true
			}
		}
	}
}

func generic(ptr types.Type) bool {
	named, ok := ptr.(*types.Pointer).Elem().(*types.Named)
	return ok && named.TypeParams().Len() > 0
}

// reached is the set of nodes reachable from a function, by id.
type reached struct{ ids []bool }

// reach returns the nodes reachable from these nodes.
func (p *program) reach(from ...*node) reached {
	r := reached{make([]bool, len(p.nodes))}
	for len(from) > 0 {
		n := from[len(from)-1]
		from = from[:len(from)-1]
		for next := range n.edges {
			if !r.ids[next.id] {
				r.ids[next.id] = true
				from = append(from, next)
			}
		}
	}
	return r
}

func (r reached) has(n *node) bool { return r.ids[n.id] }

// reads reports whether reached code reads the field at the end of a path of nested fields.
func (r reached) reads(p *program, path ...*types.Var) bool {
	return r.follow(p, path, map[string]bool{})
}

func (r reached) follow(p *program, path []*types.Var, tried map[string]bool) bool {
	key := fmt.Sprintf("%p", path)
	for _, f := range path {
		key += fmt.Sprintf(" %p", f)
	}
	key = key[strings.IndexByte(key, ' '):]
	if tried[key] {
		return false
	}
	tried[key] = true
	for _, rd := range p.reads[path[0]] {
		if !r.has(rd.in) {
			continue
		}
		for i, f := range rd.chain {
			if f != path[0] {
				continue
			}
			n := 0
			for n < len(path) && i+n < len(rd.chain) && rd.chain[i+n] == path[n] {
				n++
			}
			rest := path[n:]
			switch {
			case i+n < len(rd.chain) && len(rest) > 0: // another field
			case i+n < len(rd.chain): // a part of the value
				return true
			case rd.to != nil:
				if r.follow(p, append([]*types.Var{rd.to}, rest...), tried) {
					return true
				}
			case len(rest) == 0 || r.follow(p, rest, tried):
				return true
			}
		}
	}
	return false
}
