package output

import (
	"math/big"
	"strings"
	"unicode/utf8"

	"brine/internal/py/value"
)

func init() { outputters.Register("nested", (*Printer).nested) }

// nested is the default outputter: every value on its own lines, indented under its key.
func (p *Printer) nested(data any, c Call) (string, error) {
	indent := c.Indent
	if indent == 0 {
		indent = p.opts.NestedIndent
	}
	n := nest{p: p, name: cyan, mark: green}
	if c.Retcode != 0 {
		n.name, n.mark = red, red
	}
	n.add(data, indent, "")
	return strings.Join(n.lines, "\n"), nil
}

// nest collects the lines of one rendering.
type nest struct {
	p          *Printer
	name, mark color // of keys and of list marks
	lines      []string
}

func (n *nest) line(indent int, c color, prefix, text, suffix string) {
	n.lines = append(n.lines, strings.Repeat(" ", indent)+n.p.pal.paint(c, prefix+text)+suffix)
}

func (n *nest) add(v any, indent int, prefix string) {
	switch x := v.(type) {
	case nil, bool, int64, float64, *big.Int:
		n.line(indent, lightYellow, prefix, value.Repr(v), "")
	case string:
		n.text(x, indent, prefix)
	case []byte:
		if utf8.Valid(x) {
			n.text(string(x), indent, prefix)
		} else {
			n.text(value.Repr(x), indent, prefix)
		}
	case *value.List:
		n.list(x.Items, indent)
	case value.Tuple:
		n.list(x, indent)
	case *value.Dict:
		n.dict(x, indent, prefix)
	default:
		n.text(value.Str(v), indent, prefix)
	}
}

func (n *nest) text(s string, indent int, prefix string) {
	for _, line := range value.SplitLines(s, false) {
		n.line(indent, green, prefix, n.p.clean(line), "")
		prefix = strings.Repeat(" ", len(prefix))
	}
}

func (n *nest) list(items []any, indent int) {
	for _, it := range items {
		switch it.(type) {
		case *value.List, value.Tuple, *value.Dict:
			n.line(indent, n.mark, "", "|_", "")
			n.add(it, indent+2, "")
		default:
			n.add(it, indent, "- ")
		}
	}
}

func (n *nest) dict(d *value.Dict, indent int, prefix string) {
	if indent > 0 {
		n.line(indent, n.name, "", "----------", "")
	}
	for _, k := range sortedKeys(d) {
		n.line(indent, n.name, prefix, n.p.clean(value.Str(k)), ":")
		n.add(d.At(k), indent+4, "")
	}
}
