package jinja

import "sort"

// function is a part of a template with its own frame: the whole template, a
// block, a macro or a recursive loop.
type function struct {
	parent *function
	nslots int
	// entry initialises the variables of the outermost scope.
	entry entry
	body  []stmt
	name  string // of a block
	block *blockStmt
}

// slotRef locates a variable: number of functions outwards, and slot there.
type slotRef struct{ up, idx int }

// entry initialises the variables of a scope on entry.
type entry []load

type loadKind int

const (
	loadUndefined loadKind = iota
	loadParam              // set by the caller
	loadAlias              // initial value from an outer variable
	loadResolve            // initial value from the context
)

type load struct {
	idx  int
	kind loadKind
	name string
	from slotRef
}

// local is a variable visible to an included template.
type local struct {
	name string
	ref  slotRef
}

// symbols are the names of one scope. As in Jinja the whole scope is analysed
// first: a name set anywhere in it is a variable of the scope, initialised from
// the outer one.
type symbols struct {
	parent *symbols
	fn     *function
	slots  map[string]int // shared by the branches of an if
	refs   map[string]int
	loads  map[int]load
	stores map[string]bool
}

func newSymbols(parent *symbols, fn *function) *symbols {
	return &symbols{parent: parent, fn: fn, slots: map[string]int{}, refs: map[string]int{}, loads: map[int]load{}, stores: map[string]bool{}}
}

func (s *symbols) copy() *symbols {
	c := newSymbols(s.parent, s.fn)
	c.slots = s.slots
	c.update(s)
	return c
}

func (s *symbols) update(o *symbols) {
	for k, v := range o.refs {
		s.refs[k] = v
	}
	for k, v := range o.loads {
		s.loads[k] = v
	}
	for k := range o.stores {
		s.stores[k] = true
	}
}

// find returns the variable of a name, relative to the function from.
func (s *symbols) find(name string, from *function) (slotRef, bool) {
	for ; s != nil; s = s.parent {
		if idx, ok := s.refs[name]; ok {
			up := 0
			for f := from; f != s.fn; f = f.parent {
				up++
			}
			return slotRef{up, idx}, true
		}
	}
	return slotRef{}, false
}

func (s *symbols) define(name string, l load) int {
	idx, ok := s.slots[name]
	if !ok {
		idx = s.fn.nslots
		s.fn.nslots++
		s.slots[name] = idx
	}
	l.idx = idx
	s.refs[name] = idx
	s.loads[idx] = l
	return idx
}

func (s *symbols) param(name string) int {
	s.stores[name] = true
	return s.define(name, load{kind: loadParam})
}

func (s *symbols) load(name string) {
	if _, ok := s.find(name, s.fn); !ok {
		s.define(name, load{kind: loadResolve, name: name})
	}
}

func (s *symbols) store(name string) {
	s.stores[name] = true
	if _, ok := s.refs[name]; ok {
		return
	}
	if outer, ok := s.parent.find(name, s.fn); ok {
		s.define(name, load{kind: loadAlias, from: outer})
		return
	}
	s.define(name, load{kind: loadUndefined})
}

// branches merges the symbols of the branches of an if. A name set by only some
// of them is initialised from the outer one.
func (s *symbols) branches(bs ...*symbols) {
	count := map[string]int{}
	for _, b := range bs {
		for name := range b.stores {
			if !s.stores[name] {
				count[name]++
			}
		}
	}
	for _, b := range bs {
		s.update(b)
	}
	for name, n := range count {
		if n == len(bs) {
			continue
		}
		idx := s.refs[name]
		if outer, ok := s.parent.find(name, s.fn); ok {
			s.loads[idx] = load{idx: idx, kind: loadAlias, from: outer}
		} else {
			s.loads[idx] = load{idx: idx, kind: loadResolve, name: name}
		}
	}
}

// entry returns the initialisation of the scope.
func (s *symbols) entry() entry {
	out := make(entry, 0, len(s.loads))
	for _, l := range s.loads {
		if l.kind != loadParam {
			out = append(out, l)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].idx < out[j].idx })
	return out
}

// locals returns the variables set in this scope and the enclosing ones.
func (s *symbols) locals() []local {
	seen := map[string]bool{}
	var out []local
	from := s.fn
	for n := s; n != nil; n = n.parent {
		for name := range n.stores {
			if !seen[name] {
				seen[name] = true
				ref, _ := s.find(name, from)
				out = append(out, local{name, ref})
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out
}

// children returns the subexpressions of an expression; some may be nil.
func children(e expr) []expr {
	args := func(c *callArgs, more ...expr) []expr {
		out := append(more, c.args...)
		return append(append(out, c.vals...), c.star, c.kwstar)
	}
	switch x := e.(type) {
	case *nsrefExpr:
		return []expr{x.name}
	case *listExpr:
		return x.items
	case *tupleExpr:
		return x.items
	case *dictExpr:
		return append(append([]expr(nil), x.keys...), x.vals...)
	case *condExpr:
		return []expr{x.test, x.yes, x.no}
	case *orExpr:
		return []expr{x.a, x.b}
	case *andExpr:
		return []expr{x.a, x.b}
	case *notExpr:
		return []expr{x.a}
	case *compExpr:
		return append([]expr{x.first}, x.rest...)
	case *binExpr:
		return []expr{x.a, x.b}
	case *negExpr:
		return []expr{x.a}
	case *concatExpr:
		return x.items
	case *getattrExpr:
		return []expr{x.a}
	case *getitemExpr:
		return []expr{x.a, x.key}
	case *sliceExpr:
		return []expr{x.a, x.start, x.stop, x.step}
	case *loneSlice:
		return []expr{x.start, x.stop, x.step}
	case *callExpr:
		return args(&x.callArgs, x.fn)
	case *filterExpr:
		return args(&x.callArgs, x.in)
	case *testExpr:
		return args(&x.callArgs, x.in)
	}
	return nil
}

// walkNames calls do for every name in an expression.
func walkNames(e expr, do func(*nameExpr)) {
	if n, ok := e.(*nameExpr); ok {
		do(n)
		return
	}
	for _, c := range children(e) {
		if c != nil {
			walkNames(c, do)
		}
	}
}

// expr records the names of an expression.
func (s *symbols) expr(es ...expr) {
	for _, e := range es {
		walkNames(e, func(n *nameExpr) {
			switch {
			case n.param:
				s.param(n.name)
			case n.store:
				s.store(n.name)
			default:
				s.load(n.name)
			}
		})
	}
}

func (s *symbols) stmts(body []stmt) {
	for _, st := range body {
		s.stmt(st)
	}
}

// stmt records the names that a statement uses in this scope, without those of
// inner scopes.
func (s *symbols) stmt(st stmt) {
	switch n := st.(type) {
	case *outputStmt:
		s.expr(n.exprs...)
	case *forStmt:
		s.expr(n.iter)
	case *ifStmt:
		s.ifStmt(n)
	case *setStmt:
		s.expr(n.val, n.target)
	case *setBlockStmt:
		s.expr(n.target)
	case *withStmt:
		s.expr(n.vals...)
	case *extendsStmt:
		s.expr(n.name)
	case *includeStmt:
		s.expr(n.name)
	case *importStmt:
		s.expr(n.name)
		s.store(n.target.name)
	case *fromStmt:
		s.expr(n.name)
		for _, t := range n.targets {
			s.store(t.name)
		}
	case *macroStmt:
		s.store(n.name.name)
	case *callStmt:
		s.expr(n.call)
	case *filterStmt:
		s.expr(n.filter)
	case *doStmt:
		s.expr(n.val)
	case *timedStmt:
		s.expr(n.label)
		s.stmts(n.body)
	}
}

func (s *symbols) ifStmt(n *ifStmt) {
	s.expr(n.tests[0])
	branch := func(body []stmt) *symbols {
		c := s.copy()
		c.stmts(body)
		return c
	}
	first := branch(n.bodies[0])
	elifs := s.copy()
	for i := 1; i < len(n.tests); i++ {
		elifs.ifStmt(&ifStmt{tests: n.tests[i : i+1], bodies: n.bodies[i : i+1]})
	}
	s.branches(first, elifs, branch(n.els))
}
