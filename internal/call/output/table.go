package output

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"brine/internal/py/value"
)

// tableColumn is the width at which the text of a cell is wrapped.
const tableColumn = 50

var errNoTable = errors.New("only lists of maps, of strings or of lists of strings can be shown as a table")

func init() { outputters.Register("table", (*Printer).table) }

// table draws each list of rows as a table under its key.
func (p *Printer) table(data any, c Call) (string, error) {
	t := tableWriter{p: p}
	if err := t.add(data, c.Indent); err != nil {
		return "", err
	}
	return strings.Join(t.lines, "\n"), nil
}

type tableWriter struct {
	p     *Printer
	lines []string
}

func (t *tableWriter) line(indent int, c color, text, suffix string) {
	t.lines = append(t.lines, strings.Repeat(" ", indent)+t.p.pal.paint(c, text)+suffix)
}

func (t *tableWriter) add(v any, indent int) error {
	if rows, ok := items(v); ok {
		return t.rows(rows, indent+4)
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil // a scalar has no table
	}
	for _, k := range sortedKeys(d) {
		t.line(indent, darkGray, t.p.clean(value.Str(k)), ":")
		t.line(indent, darkGray, "----------", "")
		sub := indent + 4
		if _, ok := items(d.At(k)); ok {
			sub = indent
		}
		if err := t.add(d.At(k), sub); err != nil {
			return err
		}
	}
	return nil
}

// rows draws one table. Rows of mixed types are not drawn.
func (t *tableWriter) rows(rows []any, indent int) error {
	if len(rows) == 0 {
		return nil
	}
	for _, r := range rows[1:] {
		if value.TypeName(r) != value.TypeName(rows[0]) {
			return nil
		}
	}
	var cells [][]string
	header := false
	columns := columnsOf(rows)
	if _, ok := rows[0].(*value.Dict); ok {
		header = true
		var labels []string
		for _, k := range columns {
			labels = append(labels, title(strings.ReplaceAll(value.Str(k), "_", " ")))
		}
		cells = append(cells, labels)
	}
	for _, r := range rows {
		row, err := rowCells(r, columns)
		if err != nil {
			return err
		}
		for i := range row {
			row[i] = t.p.clean(row[i])
		}
		cells = append(cells, row)
	}
	t.draw(cells, header, indent)
	return nil
}

// columnsOf returns the keys of all rows that are maps, in order. In Salt the header has those of the
// first row, and other rows are not below it if they have others.
func columnsOf(rows []any) []any {
	all := value.NewDict(16)
	for _, r := range rows {
		if d, ok := r.(*value.Dict); ok {
			for k := range d.All() {
				all.Set(k, nil)
			}
		}
	}
	return sortedKeys(all)
}

func rowCells(row any, columns []any) ([]string, error) {
	switch x := row.(type) {
	case string:
		return []string{x}, nil
	case *value.Dict:
		out := make([]string, 0, len(columns))
		for _, k := range columns {
			cell := ""
			if v, ok := x.Get(k); ok {
				cell = value.Str(v)
			}
			out = append(out, cell)
		}
		return out, nil
	}
	l, ok := items(row)
	if !ok {
		return nil, errNoTable
	}
	out := make([]string, len(l))
	for i, it := range l {
		s, ok := it.(string)
		if !ok {
			return nil, fmt.Errorf("%w: a cell is %s", errNoTable, value.TypeName(it))
		}
		out[i] = s
	}
	return out, nil
}

func (t *tableWriter) draw(rows [][]string, header bool, indent int) {
	wrapped := make([][][]string, len(rows)) // row, cell, line
	var widths []int
	for i, row := range rows {
		wrapped[i] = make([][]string, len(row))
		for j, cell := range row {
			wrapped[i][j] = wrapCell(cell)
			if j == len(widths) {
				widths = append(widths, 0)
			}
			for _, line := range wrapped[i][j] {
				widths[j] = max(widths[j], width(line))
			}
		}
	}
	total := len("| ") + len(" |") + len(" | ")*(len(widths)-1)
	for _, w := range widths {
		total += w
	}
	rule := strings.Repeat("-", max(total, 0))
	t.line(indent, lightGray, rule, "")
	for _, row := range wrapped {
		height := 0
		for _, cell := range row {
			height = max(height, len(cell))
		}
		for h := range height {
			cols := make([]string, len(row))
			for j, cell := range row {
				text := ""
				if h < len(cell) {
					text = cell[h]
				}
				cols[j] = center(text, widths[j])
			}
			t.line(indent, white, "| "+strings.Join(cols, " | ")+" |", "")
		}
		t.line(indent, lightGray, rule, "")
	}
}

// wrapCell breaks text at spaces when a line exceeds the column width.
func wrapCell(s string) []string {
	var lines []string
	var line strings.Builder
	cols := 0
	for i, word := range strings.Split(s, " ") {
		first, _, _ := strings.Cut(word, "\n")
		switch {
		case i == 0:
		case cols+width(first) >= tableColumn:
			lines = append(lines, line.String())
			line.Reset()
			cols = 0
		default:
			line.WriteByte(' ')
			cols++
		}
		for k, piece := range strings.Split(word, "\n") {
			if k > 0 {
				lines = append(lines, line.String())
				line.Reset()
				cols = 0
			}
			line.WriteString(piece)
			cols += width(piece)
		}
	}
	return append(lines, line.String())
}

// center follows Python's str.center, which puts the odd space to the left only in odd columns.
func center(s string, w int) string {
	pad := w - width(s)
	if pad <= 0 {
		return s
	}
	left := pad/2 + pad&w&1
	return strings.Repeat(" ", left) + s + strings.Repeat(" ", pad-left)
}

// title follows Python's str.title.
func title(s string) string {
	inside := false
	return strings.Map(func(r rune) rune {
		first := !inside
		inside = unicode.IsLetter(r)
		if first {
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, s)
}
