package jinja

// binder resolves names to variables after parsing.
type binder struct {
	t      *Template
	blocks map[string]*blockStmt // of the template, by name
	fails  *tokenReader          // reports what is well-formed but invalid
}

// place is the position of a statement in a template.
type place struct {
	sym *symbols
	// top: names set here are also set in the context. root: top, and not
	// within an if. soft: within an if, where an unknown filter fails only when
	// used.
	top, root, soft bool
	guard           bool // a template that extends another writes nothing outside of blocks
}

// inner returns the place for statements of a new scope.
func inner(pl place) place {
	return place{sym: newSymbols(pl.sym, pl.sym.fn)}
}

// template binds a whole template.
func (b *binder) template(body []stmt) {
	fn := &function{body: body}
	b.t.root = fn
	pl := place{sym: newSymbols(nil, fn), top: true, root: true, guard: b.extends(body)}
	b.t.selfSlot = -1
	if usesName(body, "self") {
		b.t.selfSlot = pl.sym.param("self")
	}
	pl.sym.stmts(body)
	b.stmts(body, pl)
	fn.entry = pl.sym.entry()
	for name, n := range b.blocks {
		b.t.blocks[name] = b.block(n)
	}
}

// extends reports whether there is an extends tag anywhere.
func (b *binder) extends(body []stmt) bool {
	found := false
	walkStmts(body, func(s stmt) {
		if _, ok := s.(*extendsStmt); ok {
			found = true
		}
	})
	return found
}

func (b *binder) block(n *blockStmt) *function {
	fn := &function{name: n.name, body: n.body, block: n}
	n.fn = fn
	pl := place{sym: newSymbols(nil, fn)}
	n.selfSlot, n.superSlot = -1, -1
	if usesName(n.body, "self") {
		n.selfSlot = pl.sym.param("self")
	}
	if usesName(n.body, "super") {
		n.superSlot = pl.sym.param("super")
	}
	pl.sym.stmts(n.body)
	b.stmts(n.body, pl)
	fn.entry = pl.sym.entry()
	return fn
}

// usesName reports whether a body reads a name outside of its blocks.
func usesName(body []stmt, name string) bool {
	found := false
	see := func(es ...expr) {
		for _, e := range es {
			walkNames(e, func(n *nameExpr) {
				if n.name == name && !n.store && !n.param {
					found = true
				}
			})
		}
	}
	walkStmts(body, func(s stmt) { see(exprsOf(s)...) })
	return found
}

// exprsOf returns the expressions of a statement, without those of its body.
func exprsOf(s stmt) []expr {
	filter := func(f *filterExpr) []expr {
		if f == nil {
			return nil
		}
		return []expr{f}
	}
	switch n := s.(type) {
	case *outputStmt:
		return n.exprs
	case *forStmt:
		return []expr{n.target, n.iter, n.test}
	case *ifStmt:
		return n.tests
	case *setStmt:
		return []expr{n.val, n.target}
	case *setBlockStmt:
		return append(filter(n.filter), n.target)
	case *withStmt:
		return append(append([]expr(nil), n.vals...), n.targets...)
	case *autoescapeStmt:
		return []expr{n.val}
	case *extendsStmt:
		return []expr{n.name}
	case *includeStmt:
		return []expr{n.name}
	case *importStmt:
		return []expr{n.name}
	case *fromStmt:
		return []expr{n.name}
	case *macroStmt:
		return n.defaults
	case *callStmt:
		return append([]expr{n.call}, n.macro.defaults...)
	case *filterStmt:
		return filter(n.filter)
	case *doStmt:
		return []expr{n.val}
	case *timedStmt:
		return []expr{n.label}
	}
	return nil
}

// walkStmts visits all statements except those in blocks.
func walkStmts(body []stmt, do func(stmt)) {
	for _, s := range body {
		do(s)
		switch n := s.(type) {
		case *forStmt:
			walkStmts(n.body, do)
			walkStmts(n.els, do)
		case *ifStmt:
			for _, b := range n.bodies {
				walkStmts(b, do)
			}
			walkStmts(n.els, do)
		case *setBlockStmt:
			walkStmts(n.body, do)
		case *withStmt:
			walkStmts(n.body, do)
		case *autoescapeStmt:
			walkStmts(n.body, do)
		case *macroStmt:
			walkStmts(n.body, do)
		case *callStmt:
			walkStmts(n.macro.body, do)
		case *filterStmt:
			walkStmts(n.body, do)
		case *timedStmt:
			walkStmts(n.body, do)
		}
	}
}

func (b *binder) expr(pl place, es ...expr) {
	for _, e := range es {
		walkNames(e, func(n *nameExpr) {
			n.slot, _ = pl.sym.find(n.name, pl.sym.fn)
		})
		b.callables(e, pl.soft)
	}
}

func (b *binder) stmts(body []stmt, pl place) {
	for _, s := range body {
		b.stmt(s, pl)
	}
}

// exported returns the names of a target that are also set in the context.
func exported(target expr, pl place) []*nameExpr {
	if !pl.top {
		return nil
	}
	var out []*nameExpr
	if _, ok := target.(*nsrefExpr); ok {
		return nil
	}
	walkNames(target, func(n *nameExpr) { out = append(out, n) })
	return out
}

func (b *binder) stmt(st stmt, pl place) {
	switch n := st.(type) {
	case *outputStmt:
		n.guard = pl.guard
		b.expr(pl, n.exprs...)
	case *forStmt:
		b.forStmt(n, pl)
	case *ifStmt:
		b.ifStmt(n, pl)
	case *setStmt:
		b.expr(pl, n.val, n.target)
		n.exported = exported(n.target, pl)
	case *setBlockStmt:
		in := inner(pl)
		in.sym.stmts(n.body)
		if n.filter != nil {
			in.sym.expr(n.filter)
			b.expr(in, n.filter)
		}
		b.stmts(n.body, in)
		n.scope = in.sym.entry()
		b.expr(pl, n.target)
		n.exported = exported(n.target, pl)
	case *withStmt:
		in := inner(pl)
		in.sym.expr(n.targets...)
		in.sym.stmts(n.body)
		b.expr(pl, n.vals...)
		b.expr(in, n.targets...)
		b.stmts(n.body, in)
		n.scope = in.sym.entry()
	case *autoescapeStmt:
		in := inner(pl)
		in.sym.expr(n.val)
		in.sym.stmts(n.body)
		b.expr(in, n.val)
		b.stmts(n.body, in)
		n.scope = in.sym.entry()
	case *filterStmt:
		in := inner(pl)
		in.sym.expr(n.filter)
		in.sym.stmts(n.body)
		b.expr(in, n.filter)
		b.stmts(n.body, in)
		n.scope = in.sym.entry()
	case *blockStmt:
		n.guard, n.top = pl.guard, pl.top
		n.locals = pl.sym.locals()
	case *macroStmt:
		b.macro(n, pl)
		n.name.slot, _ = pl.sym.find(n.name.name, pl.sym.fn)
	case *callStmt:
		b.expr(pl, n.call)
		b.macro(n.macro, pl)
	case *doStmt:
		b.expr(pl, n.val)
	case *timedStmt:
		b.expr(pl, n.label)
		b.stmts(n.body, pl)
	default:
		b.loading(st, pl)
	}
}

// loading binds extends, include and import statements.
func (b *binder) loading(st stmt, pl place) {
	switch n := st.(type) {
	case *extendsStmt:
		if !pl.top {
			b.fails.assertion(n.line, "cannot use extend from a non top-level scope")
		}
		b.expr(pl, n.name)
	case *includeStmt:
		b.expr(pl, n.name)
		n.locals = pl.sym.locals()
	case *importStmt:
		b.expr(pl, n.name, n.target)
		n.locals, n.top = pl.sym.locals(), pl.top
	case *fromStmt:
		b.expr(pl, n.name)
		for _, t := range n.targets {
			b.expr(pl, t)
		}
		n.locals, n.top = pl.sym.locals(), pl.top
	}
}

func (b *binder) ifStmt(n *ifStmt, pl place) {
	b.expr(pl, n.tests[0])
	in := pl
	in.root, in.soft = false, true
	for i := 1; i < len(n.tests); i++ {
		b.expr(in, n.tests[i])
	}
	for _, body := range n.bodies {
		b.stmts(body, in)
	}
	b.stmts(n.els, in)
}

func (b *binder) forStmt(n *forStmt, pl place) {
	walkNames(n.target, func(t *nameExpr) {
		if t.name == "loop" {
			b.fails.assertion(n.line, "Can't assign to special loop variable in for-loop target")
		}
	})
	b.expr(pl, n.iter)
	scoped := false
	walkStmts(n.body, func(s stmt) {
		if bl, ok := s.(*blockStmt); ok && bl.scoped {
			scoped = true
		}
	})
	n.needLoop = n.recursive || scoped || usesName(n.body, "loop")
	outer := pl
	if n.recursive {
		n.fn = &function{parent: pl.sym.fn}
	}
	scope := func() place {
		in := inner(outer)
		if n.fn != nil {
			in.sym.fn = n.fn
		}
		return in
	}
	in := scope()
	n.loopSlot = -1
	if n.needLoop {
		n.loopSlot = in.sym.param("loop")
	}
	params(in.sym, n.target)
	in.sym.stmts(n.body)
	b.expr(in, n.target)
	b.stmts(n.body, in)
	n.bodyScope = in.sym.entry()
	if n.test != nil {
		in = scope()
		n.testTarget = cloneTarget(n.target)
		params(in.sym, n.testTarget)
		in.sym.expr(n.test)
		b.expr(in, n.testTarget, n.test)
		n.testScope = in.sym.entry()
	}
	in = scope()
	in.sym.stmts(n.els)
	b.stmts(n.els, in)
	n.elseScope = in.sym.entry()
}

func params(s *symbols, target expr) {
	walkNames(target, func(n *nameExpr) { s.param(n.name) })
}

func cloneTarget(e expr) expr {
	switch x := e.(type) {
	case *nameExpr:
		c := *x
		return &c
	case *tupleExpr:
		c := &tupleExpr{line: x.line}
		for _, it := range x.items {
			c.items = append(c.items, cloneTarget(it))
		}
		return c
	}
	return e
}

func (b *binder) macro(n *macroStmt, pl place) {
	n.fn = &function{parent: pl.sym.fn, body: n.body}
	n.top = pl.top
	in := place{sym: newSymbols(pl.sym, n.fn)}
	given := map[string]int{}
	for i, a := range n.args {
		n.slots = append(n.slots, in.sym.param(a.name))
		given[a.name] = i
	}
	in.sym.expr(n.defaults...)
	in.sym.stmts(n.body)
	special := func(name string) int {
		if i, ok := given[name]; ok {
			if name == "caller" {
				n.explicitCaller = true
				if usesName(n.body, name) && i < len(n.args)-len(n.defaults) {
					b.fails.assertion(n.line, `When defining macros or call blocks the special "caller" argument must be omitted or be given a default.`)
				}
				n.caller = usesName(n.body, name)
			}
			return -1
		}
		if !usesName(n.body, name) {
			return -1
		}
		return in.sym.param(name)
	}
	n.callerSlot = special("caller")
	n.kwargsSlot = special("kwargs")
	n.argsSlot_ = special("varargs")
	n.caller = n.caller || n.callerSlot >= 0
	n.kwargs, n.varargs = n.kwargsSlot >= 0, n.argsSlot_ >= 0
	b.expr(in, n.defaults...)
	b.stmts(n.body, in)
	n.fn.entry = in.sym.entry()
}

// callables looks up the filters and tests in an expression. A missing one is
// an error at once; within an if only when it is evaluated.
func (b *binder) callables(e expr, soft bool) {
	switch x := e.(type) {
	case nil:
		return
	case *condExpr:
		soft = true
	case *filterExpr:
		if x.fn = b.t.env.filters[x.name]; x.fn == nil && !soft {
			b.fails.assertion(x.line, "No filter named %s.", quoted(x.name))
		}
	case *testExpr:
		if x.fn = b.t.env.tests[x.name]; x.fn == nil && !soft {
			b.fails.assertion(x.line, "No test named %s.", quoted(x.name))
		}
	}
	for _, c := range children(e) {
		if c != nil {
			b.callables(c, soft)
		}
	}
}
