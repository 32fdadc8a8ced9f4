package jinja

// expressionParser turns tokens into expressions. It knows no tags.
type expressionParser struct{ *tokenReader }

type tupleOpts struct {
	simple bool   // only names and literals, as in a for's target
	noCond bool   // no inline if
	parens bool   // in parentheses, where an empty tuple is allowed
	end    string // a name that ends the tuple
}

// tuple parses an expression, or several separated by commas.
func (p *expressionParser) tuple(o tupleOpts) expr {
	line := p.cur().line
	var items []expr
	isTuple := false
	for {
		if len(items) > 0 {
			p.expect(",")
		}
		t := p.cur()
		if t.kind == tVariableEnd || t.kind == tBlockEnd || t.kind == ")" || o.end != "" && t.is(o.end) {
			break
		}
		switch {
		case o.simple:
			items = append(items, p.primary())
		case o.noCond:
			items = append(items, p.or())
		default:
			items = append(items, p.expression())
		}
		if p.cur().kind != "," {
			break
		}
		isTuple = true
		line = p.cur().line
	}
	if !isTuple {
		if len(items) > 0 {
			return items[0]
		}
		if !o.parens {
			p.fail(p.cur().line, "Expected an expression, got %s", quoted(describe(p.cur())))
		}
	}
	return &tupleExpr{items: items, line: line}
}

func (p *expressionParser) expression() expr {
	line := p.cur().line
	p.enter(line)
	defer p.leave()
	e := p.or()
	for n := 0; p.skipName("if"); p.link(&n) {
		c := &condExpr{yes: e, line: line}
		c.test = p.or()
		if p.skipName("else") {
			c.no = p.expression()
		}
		e = c
		line = p.cur().line
	}
	return e
}

// maxChain bounds consecutive operators, filters or subscripts: each is a level
// of the tree.
const maxChain = 2000

// link counts one more element of a chain.
func (p *expressionParser) link(n *int) {
	if *n++; *n > maxChain {
		p.fail(p.cur().line, "an expression has more than %d parts", maxChain)
	}
}

func (p *expressionParser) or() expr {
	e := p.and()
	for n := 0; p.skipName("or"); p.link(&n) {
		e = &orExpr{e, p.and()}
	}
	return e
}

func (p *expressionParser) and() expr {
	e := p.not()
	for n := 0; p.skipName("and"); p.link(&n) {
		e = &andExpr{e, p.not()}
	}
	return e
}

func (p *expressionParser) not() expr {
	if p.cur().is("not") {
		p.enter(p.next().line)
		defer p.leave()
		return &notExpr{p.not()}
	}
	return p.compare()
}

func (p *expressionParser) compare() expr {
	e := p.math1()
	var c *compExpr
	for {
		op := ""
		switch t := p.cur(); {
		case t.kind == "==" || t.kind == "!=" || t.kind == "<" || t.kind == "<=" || t.kind == ">" || t.kind == ">=":
			op = string(t.kind)
		case t.is("in"):
			op = "in"
		case t.is("not") && p.look().is("in"):
			op = "not in"
			p.next()
		}
		if op == "" {
			if c == nil {
				return e
			}
			return c
		}
		p.next()
		if c == nil {
			c = &compExpr{first: e}
		}
		c.ops = append(c.ops, op)
		c.rest = append(c.rest, p.math1())
	}
}

func (p *expressionParser) math1() expr {
	e := p.concat()
	for n := 0; p.cur().kind == "+" || p.cur().kind == "-"; p.link(&n) {
		op := p.next().kind[0]
		e = &binExpr{op, e, p.concat()}
	}
	return e
}

func (p *expressionParser) concat() expr {
	e := p.math2()
	if p.cur().kind != "~" {
		return e
	}
	items := []expr{e}
	for p.skip("~") {
		items = append(items, p.math2())
	}
	return &concatExpr{items}
}

func (p *expressionParser) math2() expr {
	e := p.pow()
	for n := 0; ; p.link(&n) {
		op := byte(0)
		switch p.cur().kind {
		case "*", "/", "%":
			op = p.cur().kind[0]
		case "//":
			op = 'f'
		default:
			return e
		}
		p.next()
		e = &binExpr{op, e, p.pow()}
	}
}

func (p *expressionParser) pow() expr {
	e := p.unary(true)
	for n := 0; p.skip("**"); p.link(&n) {
		e = &binExpr{'p', e, p.unary(true)}
	}
	return e
}

func (p *expressionParser) unary(withFilter bool) expr {
	var e expr
	switch t := p.cur(); t.kind {
	case "-", "+":
		p.enter(t.line)
		p.next()
		e = &negExpr{t.kind[0], p.unary(false)}
		p.leave()
	default:
		e = p.primary()
	}
	e = p.postfix(e)
	if withFilter {
		e = p.filterExpr(e)
	}
	return e
}

func (p *expressionParser) primary() expr {
	t := p.cur()
	switch t.kind {
	case tName:
		p.next()
		switch t.text {
		case "true", "True":
			return &constExpr{true}
		case "false", "False":
			return &constExpr{false}
		case "none", "None":
			return &constExpr{nil}
		}
		return &nameExpr{name: t.text, line: t.line}
	case tString:
		s := p.next().text
		for p.cur().kind == tString {
			s += p.next().text
		}
		return &constExpr{s}
	case tInteger, tFloat:
		return &constExpr{p.next().num}
	case "(":
		p.enter(p.next().line)
		defer p.leave()
		e := p.tuple(tupleOpts{parens: true})
		p.expect(")")
		return e
	case "[":
		return p.list()
	case "{":
		return p.dict()
	}
	p.fail(t.line, "unexpected %s", quoted(describe(t)))
	return nil
}

func (p *expressionParser) list() expr {
	p.next()
	l := &listExpr{}
	for p.cur().kind != "]" {
		if len(l.items) > 0 {
			p.expect(",")
		}
		if p.cur().kind == "]" {
			break
		}
		l.items = append(l.items, p.expression())
	}
	p.expect("]")
	return l
}

func (p *expressionParser) dict() expr {
	p.next()
	d := &dictExpr{}
	for p.cur().kind != "}" {
		if len(d.keys) > 0 {
			p.expect(",")
		}
		if p.cur().kind == "}" {
			break
		}
		d.keys = append(d.keys, p.expression())
		p.expect(":")
		d.vals = append(d.vals, p.expression())
	}
	p.expect("}")
	return d
}

func (p *expressionParser) postfix(e expr) expr {
	for n := 0; ; p.link(&n) {
		switch p.cur().kind {
		case ".", "[":
			e = p.subscript(e)
		case "(":
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *expressionParser) filterExpr(e expr) expr {
	for n := 0; ; p.link(&n) {
		t := p.cur()
		switch {
		case t.kind == "|":
			e = p.filters(e, false)
		case t.is("is"):
			e = p.test(e)
		case t.kind == "(":
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *expressionParser) subscript(e expr) expr {
	if p.next().kind == "." {
		t := p.next()
		switch t.kind {
		case tName:
			return &getattrExpr{e, t.text}
		case tInteger:
			return &getitemExpr{e, &constExpr{t.num}}
		}
		p.fail(t.line, "expected name or number")
	}
	var args []expr
	for p.cur().kind != "]" {
		if len(args) > 0 {
			p.expect(",")
		}
		args = append(args, p.subscribed())
	}
	line := p.expect("]").line
	if len(args) == 1 {
		if s, ok := args[0].(*loneSlice); ok {
			return &sliceExpr{e, s.start, s.stop, s.step}
		}
		return &getitemExpr{e, args[0]}
	}
	return &getitemExpr{e, &tupleExpr{items: args, line: line}}
}

func (p *expressionParser) subscribed() expr {
	s := &loneSlice{}
	if p.cur().kind != ":" {
		e := p.expression()
		if p.cur().kind != ":" {
			return e
		}
		s.start = e
	}
	p.next()
	done := func() bool { k := p.cur().kind; return k == "]" || k == "," }
	if p.cur().kind != ":" && !done() {
		s.stop = p.expression()
	}
	if p.skip(":") && !done() {
		s.step = p.expression()
	}
	return s
}

func (p *expressionParser) call(e expr) expr {
	line := p.cur().line
	return &callExpr{fn: e, callArgs: p.callArgs(), line: line}
}

func (p *expressionParser) callArgs() callArgs {
	line := p.expect("(").line
	p.enter(line)
	defer p.leave()
	var c callArgs
	ensure := func(ok bool) {
		if !ok {
			p.fail(line, "invalid syntax for function call expression")
		}
	}
	for first := true; p.cur().kind != ")"; first = false {
		if !first {
			p.expect(",")
			if p.cur().kind == ")" {
				break
			}
		}
		switch {
		case p.cur().kind == "*":
			ensure(c.star == nil && c.kwstar == nil)
			p.next()
			c.star = p.expression()
		case p.cur().kind == "**":
			ensure(c.kwstar == nil)
			p.next()
			c.kwstar = p.expression()
		case p.cur().kind == tName && p.look().kind == "=":
			ensure(c.kwstar == nil)
			name := p.next().text
			p.next()
			c.names = append(c.names, name)
			c.vals = append(c.vals, p.expression())
		default:
			ensure(c.star == nil && c.kwstar == nil && len(c.names) == 0)
			c.args = append(c.args, p.expression())
		}
	}
	p.expect(")")
	return c
}

// dotted parses a name with dots.
func (p *expressionParser) dotted() *token {
	t := *p.expect(tName)
	for p.skip(".") {
		t.text += "." + p.expect(tName).text
	}
	return &t
}

// filters parses a chain of filters; inline, the first has no bar before it.
func (p *expressionParser) filters(e expr, inline bool) expr {
	for n := 0; p.cur().kind == "|" || inline; p.link(&n) {
		if !inline {
			p.next()
		}
		t := p.dotted()
		f := &filterExpr{in: e, name: t.text, line: t.line}
		if p.cur().kind == "(" {
			f.callArgs = p.callArgs()
		}
		e = f
		inline = false
	}
	return e
}

func (p *expressionParser) test(e expr) expr {
	line := p.next().line
	negated := p.skipName("not")
	name := p.dotted().text
	n := &testExpr{in: e, name: name, line: line}
	switch t := p.cur(); t.kind {
	case "(":
		n.callArgs = p.callArgs()
	case tName, tString, tInteger, tFloat, "[", "{":
		if t.is("else") || t.is("or") || t.is("and") {
			break
		}
		if t.is("is") {
			p.fail(t.line, "You cannot chain multiple tests with is")
		}
		n.args = []expr{p.postfix(p.primary())}
	}
	if negated {
		return &notExpr{n}
	}
	return n
}
