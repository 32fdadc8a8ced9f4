// Package arguments checks that the code of each declared function reads every argument that the
// function declares.
package arguments

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// declaration is a call of fn.Of or state.Of.
type declaration struct {
	name string
	in   string // the package
	at   string
	args *types.Struct
	// some means that the function has only the arguments in only.
	some bool
	only []string
	// ignored are the arguments that an option declares as ignored.
	ignored []string
	root    *node // leads to its code
	// state means that it is a state function.
	state bool
}

// argument is a declared argument.
type argument struct {
	name string
	path []*types.Var // from the argument struct, through embedded ones
	// variadic arguments are *args and **kwargs: what is in them need not be used.
	variadic bool
	// ignored means that a reason for not reading it is declared.
	ignored bool
}

// declarations returns the functions that the program declares.
func (p *program) declarations(t *testing.T) []declaration {
	t.Helper()
	var out []declaration
	for _, sp := range p.packages {
		for _, f := range sp.files {
			ast.Inspect(f, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if d, ok := p.declaration(t, sp, call); ok {
						out = append(out, d)
					}
				}
				return true
			})
		}
	}
	return out
}

func (p *program) declaration(t *testing.T, sp *sourcePackage, call *ast.CallExpr) (declaration, bool) {
	t.Helper()
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || sp.path == "brine/internal/sls/state" || len(call.Args) < 3 || text(sp, call.Args[2]) == "" {
		return declaration{}, false
	}
	fun, ok := sp.info.Uses[sel.Sel].(*types.Func)
	if !ok || fun.FullName() != "brine/internal/call/fn.Of" && fun.FullName() != "brine/internal/sls/state.Of" {
		return declaration{}, false
	}
	d := declaration{in: sp.path, at: p.fset.Position(call.Pos()).String(), name: sp.path + "." + text(sp, call.Args[0]),
		state: fun.FullName() == "brine/internal/sls/state.Of"}
	if d.args, ok = sp.info.Instances[sel.Sel].TypeArgs.At(0).Underlying().(*types.Struct); !ok {
		t.Errorf("%s: the arguments of %s are no struct: teach this test to find it", d.at, d.name)
		return d, false
	}
	root := &node{edges: map[*node]bool{}}
	p.scanner(sp, root).functions(call.Args[1])
	d.root = root
	for _, opt := range call.Args[3:] {
		if id, ok := opt.(*ast.Ident); ok {
			if v, ok := sp.info.Uses[id].(*types.Var); ok && p.values[v] != nil {
				opt = p.values[v]
			}
		}
		if c, ok := opt.(*ast.CallExpr); ok && len(c.Args) > 0 {
			if s, ok := c.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Ignored" {
				for _, a := range c.Args[1:] {
					d.ignored = append(d.ignored, constants(sp, a)...)
				}
				continue
			}
		}
		words, found := p.params(sp, opt)
		d.only, d.some = append(d.only, words...), d.some || found
	}
	return d, true
}

// params returns the words of an option that leads to fn.Params, and whether it does. It finds
// words in the expression itself, in the variables that it names, and in the function of this
// package that it calls.
func (p *program) params(sp *sourcePackage, opt ast.Expr) (words []string, found bool) {
	root := &node{edges: map[*node]bool{}}
	p.scanner(sp, root).functions(opt)
	if !p.reach(root).has(p.node(p.paramsOption)) {
		return nil, false
	}
	ast.Inspect(opt, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if n != opt && isOption(sp.info.Types[n].Type) {
				more, _ := p.params(sp, n)
				words = append(words, more...)
				return false
			}
		case *ast.Ident:
			switch obj := sp.info.Uses[n].(type) {
			case *types.Func:
				if p.bodies[obj] != nil && obj.Pkg() == sp.types {
					words = append(words, constants(sp, p.bodies[obj])...)
				}
			case *types.Var:
				if v := p.values[obj]; v != nil {
					words = append(words, p.words(sp, v)...)
				}
			}
		}
		return true
	})
	return append(words, constants(sp, opt)...), true
}

// words returns the constant words of a value, and of the variables in it.
func (p *program) words(sp *sourcePackage, value ast.Expr) []string {
	words := constants(sp, value)
	ast.Inspect(value, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if v, ok := sp.info.Uses[id].(*types.Var); ok && p.values[v] != nil && p.values[v] != value {
				words = append(words, p.words(sp, p.values[v])...)
			}
		}
		return true
	})
	return words
}

func isOption(t types.Type) bool { return t != nil && t.String() == "brine/internal/call/fn.Option" }

// constants returns the words of the constant texts below n, except those of
// other options.
func constants(sp *sourcePackage, n ast.Node) []string {
	var words []string
	ast.Inspect(n, func(m ast.Node) bool {
		e, ok := m.(ast.Expr)
		if !ok {
			return true
		}
		if v := sp.info.Types[e].Value; v != nil && v.Kind() == constant.String {
			words = append(words, strings.Fields(constant.StringVal(v))...)
			return false
		}
		call, ok := e.(*ast.CallExpr)
		if !ok || m == n || !isOption(sp.info.Types[call].Type) {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Params"
	})
	return words
}

// text returns the value of a constant, else "?".
func text(sp *sourcePackage, e ast.Expr) string {
	if v := sp.info.Types[e].Value; v != nil && v.Kind() == constant.String {
		return constant.StringVal(v)
	}
	return "?"
}

// arguments returns the arguments that a struct declares, by the rules of package field.
func arguments(st *types.Struct, way []*types.Var) []argument {
	var out []argument
	for i := range st.NumFields() {
		f, tag := st.Field(i), reflect.StructTag(st.Tag(i))
		path := append(slices.Clone(way), f.Origin())
		name, tagged := tag.Lookup("salt")
		if inner, ok := f.Type().Underlying().(*types.Struct); !tagged && f.Embedded() && ok {
			out = append(out, arguments(inner, path)...)
		} else if tagged && name != "-" {
			out = append(out, argument{name, path, variadic(f.Type()), tag.Get("ignored") != ""})
		}
	}
	return out
}

func variadic(t types.Type) bool {
	return t.String() == "brine/internal/call/fn.Args" || t.String() == "brine/internal/call/fn.Kwargs"
}

// arguments returns the arguments that the function must read. The engine passes a name to every
// state, and the function of the watching state to mod_watch.
func (d declaration) arguments() []argument {
	var out []argument
	for _, a := range arguments(d.args, nil) {
		given := d.state && (a.name == "name" || a.name == "sfun")
		if !a.variadic && !given && (!d.some || slices.Contains(d.only, a.name)) {
			out = append(out, a)
		}
	}
	return out
}

// check returns the errors in the arguments of the declared functions.
func (p *program) check(t *testing.T) (problems []string, functions, checked int) {
	t.Helper()
	all := p.declarations(t)
	watch := map[string][]declaration{} // functions named mod_watch, by package
	for _, d := range all {
		if d.name == d.in+".mod_watch" {
			watch[d.in] = append(watch[d.in], d)
		}
	}
	unread := map[*types.Var]bool{} // arguments with a reason that some function does not read
	reasons := map[*types.Var]string{}
	for _, d := range all {
		functions++
		code := p.reach(d.root)
		own := d.arguments()
		if !slices.ContainsFunc(own, func(a argument) bool { return code.reads(p, a.path...) }) {
			// The state waits for changes of others: mod_watch gets its arguments.
			from := []*node{d.root}
			for _, w := range watch[d.in] {
				from = append(from, w.root)
			}
			code = p.reach(from...)
		}
		for _, a := range own {
			checked++
			last := a.path[len(a.path)-1]
			read, declared := code.reads(p, a.path...), slices.Contains(d.ignored, a.name)
			if a.ignored {
				reasons[last] = fmt.Sprintf("%s: %s", d.at, a.name)
				unread[last] = unread[last] || !read
			}
			switch {
			case !read && !a.ignored && !declared:
				problems = append(problems, fmt.Sprintf("%s: %s declares the argument %q, which its code never reads", d.at, d.name, a.name))
			case read && declared:
				problems = append(problems, fmt.Sprintf("%s: %s reads the argument %q, which it declares as ignored", d.at, d.name, a.name))
			}
		}
	}
	for field, at := range reasons {
		if !unread[field] {
			problems = append(problems, at+" is declared as ignored, but is read")
		}
	}
	slices.Sort(problems)
	return problems, functions, checked
}

func TestEveryArgumentIsRead(t *testing.T) {
	problems, functions, checked := load(t, "brine/internal/...").check(t)
	for _, p := range problems {
		t.Error(p)
	}
	t.Logf("%d functions, %d arguments", functions, checked)
	if functions < 1300 || checked < 4000 {
		t.Errorf("only %d functions with %d arguments were found", functions, checked)
	}
}

// TestFindsUnreadArguments proves that the check detects unread arguments.
func TestFindsUnreadArguments(t *testing.T) {
	problems, _, _ := load(t, "./testdata/unread").check(t)
	var got []string
	for _, p := range problems {
		if words := strings.Fields(p); strings.Contains(p, "never reads") {
			name := words[1]
			got = append(got, name[strings.LastIndexByte(name, '.')+1:]+" "+strings.Trim(words[5], `",`))
		} else {
			got = append(got, "old is stale")
		}
	}
	slices.Sort(got)
	want := []string{"extracted keyring", "extracted signature", "old is stale", "passed keyring", "stored keyring", "stored signature"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q:\n%s", got, want, strings.Join(problems, "\n"))
	}
}
