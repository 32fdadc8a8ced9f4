package jinja

import (
	"fmt"
	"strings"
)

// statementParser turns tokens into a tree of tags and text.
type statementParser struct {
	*tokenReader
	expr  expressionParser
	o     *Options   // the tags that it adds
	tags  []string   // open tags
	ends  [][]string // what may end them
	loops int
	// blocks by name
	blocks map[string]*blockStmt
}

func newStatementParser(o *Options, name, source string) *statementParser {
	r := &tokenReader{name: name, toks: tokenize(o, source)}
	return &statementParser{tokenReader: r, expr: expressionParser{r}, o: o, blocks: map[string]*blockStmt{}}
}

// body parses statements and text up to a tag of ends, which becomes current.
func (p *statementParser) body(ends []string) []stmt {
	p.skip(":")
	p.expect(tBlockEnd)
	out := p.subparse(ends)
	if p.cur().kind == tEOF {
		p.failEOF(ends)
	}
	return out
}

// bodyTo is body, and skips the end tag.
func (p *statementParser) bodyTo(end string) []stmt {
	out := p.body([]string{end})
	p.next()
	return out
}

func (p *statementParser) failEOF(ends []string) {
	p.failUntil("", p.cur().line, ends)
}

func orList(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = quoted(n)
	}
	return strings.Join(q, " or ")
}

// failUntil reports the missing or superfluous tag.
func (p *statementParser) failUntil(name string, line int, ends []string) {
	msg := "Unexpected end of template."
	if name != "" {
		msg = fmt.Sprintf("Encountered unknown tag %s.", quoted(name))
	}
	expected := map[string]bool{}
	for _, e := range p.ends {
		for _, n := range e {
			expected[n] = true
		}
	}
	for _, n := range ends {
		expected[n] = true
	}
	current := ""
	if len(p.ends) > 0 {
		current = orList(p.ends[len(p.ends)-1])
	}
	if len(ends) > 0 {
		current = orList(ends)
	}
	if current != "" {
		if name != "" && expected[name] {
			msg += " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for " + current + "."
		} else {
			msg += " Jinja was looking for the following tags: " + current + "."
		}
	}
	if len(p.tags) > 0 {
		msg += fmt.Sprintf(" The innermost block that needs to be closed is %s.", quoted(p.tags[len(p.tags)-1]))
	}
	p.fail(line, "%s", msg)
}

func (p *statementParser) subparse(ends []string) []stmt {
	p.enter(p.cur().line)
	defer p.leave()
	if ends != nil {
		p.ends = append(p.ends, ends)
		defer func() { p.ends = p.ends[:len(p.ends)-1] }()
	}
	var out []stmt
	var o *outputStmt
	for {
		t := p.cur()
		switch t.kind {
		case tEOF:
			return out
		case tError:
			p.fail(t.line, "%s", t.text)
		case tData, tVariableBegin:
			if o == nil {
				o = &outputStmt{texts: []string{""}, line: t.line}
				out = append(out, o)
			}
			p.output(o)
		case tBlockBegin:
			o = nil
			p.next()
			if ends != nil && p.cur().any(ends) {
				return out
			}
			out = append(out, p.statement()...)
			p.expect(tBlockEnd)
		default:
			p.fail(t.line, "unexpected %s", quoted(describe(t)))
		}
	}
}

func (p *statementParser) output(o *outputStmt) {
	t := p.next()
	if t.kind == tData {
		o.texts[len(o.texts)-1] += t.text
		return
	}
	o.lines = append(o.lines, p.cur().line)
	o.exprs = append(o.exprs, p.expr.tuple(tupleOpts{}))
	o.texts = append(o.texts, "")
	p.expect(tVariableEnd)
}

// statement parses one tag with its body.
func (p *statementParser) statement() []stmt {
	t := p.cur()
	if t.kind != tName {
		p.fail(t.line, "tag name expected")
	}
	p.tags = append(p.tags, t.text)
	defer func() { p.tags = p.tags[:len(p.tags)-1] }()
	switch t.text {
	case "for":
		return []stmt{p.parseFor()}
	case "if":
		return []stmt{p.parseIf()}
	case "set":
		return []stmt{p.parseSet()}
	case "macro":
		return []stmt{p.parseMacro()}
	case "call":
		return []stmt{p.parseCall()}
	case "filter":
		return []stmt{p.parseFilterBlock()}
	case "block":
		return []stmt{p.parseBlock()}
	case "extends":
		p.next()
		return []stmt{&extendsStmt{name: p.expr.expression(), line: t.line}}
	case "include":
		return []stmt{p.parseInclude()}
	case "import":
		return []stmt{p.parseImport()}
	case "from":
		return []stmt{p.parseFrom()}
	case "with":
		return []stmt{p.parseWith()}
	case "autoescape":
		p.next()
		val := p.expr.expression()
		return []stmt{&autoescapeStmt{val: val, body: p.bodyTo("endautoescape"), line: t.line}}
	case "print":
		return []stmt{p.parsePrint()}
	case "do":
		p.next()
		return []stmt{&doStmt{val: p.expr.tuple(tupleOpts{}), line: t.line}}
	case "break", "continue":
		p.next()
		f := breakLoop
		if t.text == "continue" {
			f = continueLoop
		}
		if p.loops == 0 {
			p.fail(t.line, "'%s' outside of a loop", t.text)
		}
		return []stmt{&loopStmt{f: f, line: t.line}}
	}
	if out := p.extension(t); out != nil {
		return out
	}
	p.tags = p.tags[:len(p.tags)-1]
	name := t.text
	defer func() { p.tags = append(p.tags, name) }()
	p.failUntil(name, t.line, nil)
	return nil
}

// extension parses the tags added by Options.
func (p *statementParser) extension(t *token) []stmt {
	if c, ok := p.o.CaptureTags[t.text]; ok {
		p.next()
		p.expectName("as")
		target := p.assignTarget(tupleOpts{}, false)
		loops := p.loops
		p.loops = 0
		body := p.bodyTo(c.End)
		p.loops = loops
		return []stmt{&setBlockStmt{target: target, filter: &filterExpr{name: c.Filter, line: t.line}, body: body, line: t.line}}
	}
	if filter, ok := p.o.ImportTags[t.text]; ok {
		im := p.parseImport()
		load := &nameExpr{name: im.target.name, line: t.line}
		set := &setStmt{target: &nameExpr{name: im.target.name, line: t.line, store: true}, line: t.line,
			val: &filterExpr{in: load, name: filter, line: t.line}}
		return []stmt{&timedStmt{label: im.name, source: t.text, body: []stmt{im, set}, line: t.line}}
	}
	if end, ok := p.o.TimedTags[t.text]; ok {
		p.next()
		p.expectName("as")
		label := p.expr.expression()
		return []stmt{&timedStmt{label: label, source: t.text + " block", body: p.bodyTo(end), line: t.line}}
	}
	return nil
}

func (p *statementParser) parseFor() stmt {
	n := &forStmt{line: p.next().line}
	n.target = p.assignTarget(tupleOpts{end: "in"}, false)
	p.expectName("in")
	n.iter = p.expr.tuple(tupleOpts{noCond: true, end: "recursive"})
	if p.skipName("if") {
		n.test = p.expr.expression()
	}
	n.recursive = p.skipName("recursive")
	p.loops++
	n.body = p.body([]string{"endfor", "else"})
	p.loops--
	if p.next().text != "endfor" {
		n.els = p.bodyTo("endfor")
	}
	return n
}

func (p *statementParser) parseIf() stmt {
	n := &ifStmt{}
	line := p.next().line
	for {
		n.lines = append(n.lines, line)
		n.tests = append(n.tests, p.expr.tuple(tupleOpts{noCond: true}))
		n.bodies = append(n.bodies, p.body([]string{"elif", "else", "endif"}))
		t := p.next()
		if t.text == "elif" {
			line = p.cur().line
			continue
		}
		if t.text == "else" {
			n.els = p.bodyTo("endif")
		}
		return n
	}
}

func (p *statementParser) parseSet() stmt {
	line := p.next().line
	target := p.assignTarget(tupleOpts{}, true)
	if p.skip("=") {
		return &setStmt{target: target, val: p.expr.tuple(tupleOpts{}), line: line}
	}
	n := &setBlockStmt{target: target, line: line}
	if f := p.expr.filters(nil, false); f != nil {
		n.filter = f.(*filterExpr)
	}
	n.body = p.bodyTo("endset")
	return n
}

func (p *statementParser) parseWith() stmt {
	n := &withStmt{line: p.next().line}
	for p.cur().kind != tBlockEnd {
		if len(n.targets) > 0 {
			p.expect(",")
		}
		t := p.assignTarget(tupleOpts{}, false)
		asParam(t)
		n.targets = append(n.targets, t)
		p.expect("=")
		n.vals = append(n.vals, p.expr.expression())
	}
	n.body = p.bodyTo("endwith")
	return n
}

func asParam(e expr) {
	switch x := e.(type) {
	case *nameExpr:
		x.param = true
	case *tupleExpr:
		for _, it := range x.items {
			asParam(it)
		}
	}
}

func (p *statementParser) parseBlock() stmt {
	n := &blockStmt{line: p.next().line}
	n.name = p.expect(tName).text
	n.scoped = p.skipName("scoped")
	n.required = p.skipName("required")
	if p.cur().kind == "-" {
		p.fail(p.cur().line, "Block names in Jinja have to be valid Python identifiers and may not contain hyphens, use an underscore instead.")
	}
	loops := p.loops
	p.loops = 0
	n.body = p.bodyTo("endblock")
	p.loops = loops
	if n.required && !blank(n.body) {
		p.fail(p.cur().line, "Required blocks can only contain comments or whitespace")
	}
	p.skipName(n.name)
	if p.blocks[n.name] != nil {
		p.assertion(n.line, "block %s defined twice", quoted(n.name))
	}
	p.blocks[n.name] = n
	return n
}

func blank(body []stmt) bool {
	for _, s := range body {
		o, ok := s.(*outputStmt)
		if !ok || len(o.exprs) > 0 || strings.TrimFunc(o.texts[0], isPySpace) != "" {
			return false
		}
	}
	return true
}

// withContext parses "with context" or "without context".
func (p *statementParser) withContext(def bool) (with, given bool) {
	t := p.cur()
	if (t.is("with") || t.is("without")) && p.look().is("context") {
		p.next()
		p.next()
		return t.text == "with", true
	}
	return def, false
}

func (p *statementParser) parseInclude() stmt {
	n := &includeStmt{line: p.next().line}
	n.name = p.expr.expression()
	if p.cur().is("ignore") && p.look().is("missing") {
		p.next()
		p.next()
		n.ignoreMissing = true
	}
	n.withContext, _ = p.withContext(true)
	return n
}

func (p *statementParser) parseImport() *importStmt {
	n := &importStmt{line: p.next().line}
	n.name = p.expr.expression()
	p.expectName("as")
	n.target = p.nameTarget()
	n.withContext, _ = p.withContext(false)
	return n
}

func (p *statementParser) parseFrom() stmt {
	n := &fromStmt{line: p.next().line}
	n.name = p.expr.expression()
	p.expectName("import")
	for {
		if len(n.names) > 0 {
			p.expect(",")
		}
		if p.cur().kind != tName {
			p.expect(tName)
		}
		var given bool
		if n.withContext, given = p.withContext(false); given {
			return n
		}
		t := p.nameTarget()
		if strings.HasPrefix(t.name, "_") {
			p.assertion(t.line, "names starting with an underline can not be imported")
		}
		n.names = append(n.names, t.name)
		if p.skipName("as") {
			t = p.nameTarget()
		}
		n.targets = append(n.targets, t)
		if n.withContext, given = p.withContext(false); given || p.cur().kind != "," {
			return n
		}
	}
}

func (p *statementParser) signature(n *macroStmt) {
	p.expect("(")
	for p.cur().kind != ")" {
		if len(n.args) > 0 {
			p.expect(",")
		}
		a := p.nameTarget()
		a.param = true
		if p.skip("=") {
			n.defaults = append(n.defaults, p.expr.expression())
		} else if len(n.defaults) > 0 {
			p.fail(p.cur().line, "non-default argument follows default argument")
		}
		n.args = append(n.args, a)
	}
	p.expect(")")
}

func (p *statementParser) macroBody(n *macroStmt, end string) {
	loops := p.loops
	p.loops = 0
	n.body = p.bodyTo(end)
	p.loops = loops
}

func (p *statementParser) parseMacro() stmt {
	n := &macroStmt{line: p.next().line}
	n.name = p.nameTarget()
	p.signature(n)
	p.macroBody(n, "endmacro")
	return n
}

func (p *statementParser) parseCall() stmt {
	line := p.next().line
	n := &callStmt{macro: &macroStmt{line: line}, line: line}
	if p.cur().kind == "(" {
		p.signature(n.macro)
	}
	call, ok := p.expr.expression().(*callExpr)
	if !ok {
		p.fail(line, "expected call")
	}
	n.call = call
	p.macroBody(n.macro, "endcall")
	return n
}

func (p *statementParser) parseFilterBlock() stmt {
	n := &filterStmt{line: p.next().line}
	n.filter = p.expr.filters(nil, true).(*filterExpr)
	n.body = p.bodyTo("endfilter")
	return n
}

func (p *statementParser) parsePrint() stmt {
	o := &outputStmt{texts: []string{""}, line: p.next().line}
	for p.cur().kind != tBlockEnd {
		if len(o.exprs) > 0 {
			p.expect(",")
		}
		o.lines = append(o.lines, p.cur().line)
		o.exprs = append(o.exprs, p.expr.expression())
		o.texts = append(o.texts, "")
	}
	return o
}
