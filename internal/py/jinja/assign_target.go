package jinja

func (p *statementParser) nameTarget() *nameExpr {
	t := p.expect(tName)
	p.checkTarget(t.text, t.line)
	return &nameExpr{name: t.text, line: t.line, store: true}
}

func (p *statementParser) checkTarget(name string, line int) {
	switch name {
	case "true", "false", "none", "True", "False", "None":
		p.fail(line, "can't assign to 'name'")
	}
}

// assignTarget parses the target of an assignment: names, tuples of them and,
// if allowed, an attribute of a namespace.
func (p *statementParser) assignTarget(o tupleOpts, namespace bool) expr {
	if namespace && p.look().kind == "." {
		t := p.expect(tName)
		p.next()
		attr := p.expect(tName)
		return &nsrefExpr{name: &nameExpr{name: t.text, line: t.line}, attr: attr.text, line: t.line}
	}
	o.simple = true
	line := p.cur().line
	e := p.expr.tuple(o)
	if what := markStore(e); what != "" {
		p.fail(line, "can't assign to '%s'", what)
	}
	return e
}

// markStore makes an expression a target. It returns the kind of an expression
// that cannot be one.
func markStore(e expr) string {
	switch x := e.(type) {
	case *nameExpr:
		x.store = true
		return ""
	case *tupleExpr:
		for _, it := range x.items {
			if markStore(it) != "" {
				return "tuple"
			}
		}
		return ""
	case *constExpr:
		return "const"
	case *listExpr:
		return "list"
	case *dictExpr:
		return "dict"
	}
	return "expression"
}
