package jinja

import (
	"cmp"
	"reflect"
	"slices"
)

// Use is a place in a template that reads an attribute or item of a variable, at any
// depth: x.a.b, x['a.b'] and x['a']['b'] all have the Path "a.b".
type Use struct {
	Path string
	Line int
	// Called says that the value is called. Args are the strings among the positional
	// arguments, "" for others, and Kwargs the names of the keyword arguments.
	Called bool
	Args   []string
	Kwargs []string
}

// Uses returns the places that use the variable root, in the order of their lines. Only
// the longest path of a place counts. A template that sets or imports a variable of this
// name has none.
func (t *Template) Uses(root string) []Use {
	w := &useWalker{root: root}
	w.visit(reflect.ValueOf(t.root.body))
	if w.set {
		return nil
	}
	slices.SortStableFunc(w.uses, func(a, b Use) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path)) })
	return w.uses
}

// useWalker visits the tree of a template by reflection: every statement and expression
// counts, whatever their types.
type useWalker struct {
	root string
	line int
	uses []Use
	// set says that the template sets the variable.
	set bool
}

var (
	exprType = reflect.TypeFor[expr]()
	stmtType = reflect.TypeFor[stmt]()
)

func (w *useWalker) visit(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			w.visit(v.Elem())
		}
	case reflect.Pointer:
		if v.IsNil() || !v.Type().Implements(exprType) && !v.Type().Implements(stmtType) {
			return
		}
		if w.node(v) {
			return
		}
		w.visit(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			w.visit(v.Index(i))
		}
	case reflect.Struct:
		before := w.line
		if l := v.FieldByName("line"); l.IsValid() && l.CanInt() && l.Int() > 0 {
			w.line = int(l.Int())
		}
		lines := v.FieldByName("lines")
		for i := range v.NumField() {
			f := v.Field(i)
			if lines.IsValid() && f.Kind() == reflect.Slice && f.Len() == lines.Len() {
				for j := range f.Len() {
					w.line = int(lines.Index(j).Int())
					w.visit(f.Index(j))
				}
				continue
			}
			w.visit(f)
		}
		w.line = before
	}
}

// node notes an expression that is a use, and visits what else it contains.
func (w *useWalker) node(v reflect.Value) bool {
	name := v.Type().Elem().Name()
	e := v.Elem()
	switch name {
	case "callExpr":
		path, ok := w.path(e.FieldByName("fn"))
		if !ok || path == "" {
			return false
		}
		u := Use{Path: path, Line: int(e.FieldByName("line").Int()), Called: true}
		args := e.FieldByName("args")
		for i := range args.Len() {
			s, _ := constant(args.Index(i))
			u.Args = append(u.Args, s)
		}
		names := e.FieldByName("names")
		for i := range names.Len() {
			u.Kwargs = append(u.Kwargs, names.Index(i).String())
		}
		w.uses = append(w.uses, u)
		w.visit(e.FieldByName("callArgs"))
		return true
	case "nameExpr":
		if e.FieldByName("name").String() == w.root && (e.FieldByName("store").Bool() || e.FieldByName("param").Bool()) {
			w.set = true
		}
	case "getattrExpr", "getitemExpr":
		path, ok := w.path(v)
		if !ok || path == "" {
			return false
		}
		w.uses = append(w.uses, Use{Path: path, Line: w.line})
		return true
	}
	return false
}

// path returns the path of an expression below the root.
func (w *useWalker) path(v reflect.Value) (path string, ok bool) {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return "", false
	}
	e := v.Elem()
	switch v.Type().Elem().Name() {
	case "nameExpr":
		return "", e.FieldByName("name").String() == w.root
	case "getattrExpr":
		return w.join(e.FieldByName("a"), e.FieldByName("name").String())
	case "getitemExpr":
		key, isText := constant(e.FieldByName("key"))
		if !isText {
			return "", false
		}
		return w.join(e.FieldByName("a"), key)
	}
	return "", false
}

func (w *useWalker) join(a reflect.Value, name string) (string, bool) {
	path, ok := w.path(a)
	if !ok {
		return "", false
	}
	if path == "" {
		return name, true
	}
	return path + "." + name, true
}

// constant returns the string that an expression is.
func constant(v reflect.Value) (s string, ok bool) {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Type().Elem().Name() != "constExpr" {
		return "", false
	}
	c := v.Elem().FieldByName("v")
	for c.Kind() == reflect.Interface {
		c = c.Elem()
	}
	if c.Kind() != reflect.String {
		return "", false
	}
	return c.String(), true
}
