package textedit

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Diff returns the unified diff of two texts, with three lines around each
// change, as Python's difflib.unified_diff does: "" if they are equal. The
// names follow "---" and "+++".
func Diff(old, new, oldName, newName string) string {
	return DiffLines(splitAny(old), splitAny(new), oldName, newName)
}

// DiffLines is Diff for texts split into lines.
func DiffLines(a, b []string, oldName, newName string) string {
	return strings.Join(DiffItems(a, b, oldName, newName), "")
}

// DiffItems returns the lines of a diff. Header lines have a line end; the
// others have the ends of the input lines. Text that is not UTF-8 is shown as
// Latin-1, as in Salt.
func DiffItems(a, b []string, oldName, newName string) []string {
	return DiffAround(a, b, oldName, newName, 3)
}

// DiffAround is DiffItems with a number of lines around each change.
func DiffAround(a, b []string, oldName, newName string, around int) []string {
	if slices.Equal(a, b) {
		return nil
	}
	a, b = readable(a), readable(b)
	out := []string{"--- " + oldName + "\n", "+++ " + newName + "\n"}
	put := func(mark string, lines []string) {
		for _, l := range lines {
			out = append(out, mark+l)
		}
	}
	for _, group := range grouped(newMatcher(a, b).opcodes(), around) {
		first, last := group[0], group[len(group)-1]
		out = append(out, fmt.Sprintf("@@ -%s +%s @@\n", span(first.a0, last.a1), span(first.b0, last.b1)))
		for _, op := range group {
			if op.equal {
				put(" ", a[op.a0:op.a1])
				continue
			}
			put("-", a[op.a0:op.a1])
			put("+", b[op.b0:op.b1])
		}
	}
	return out
}

// readable returns the lines as UTF-8.
func readable(lines []string) []string {
	if !slices.ContainsFunc(lines, func(l string) bool { return !utf8.ValidString(l) }) {
		return lines
	}
	out := make([]string, len(lines))
	for i, l := range lines {
		r := make([]rune, len(l))
		for j := range len(l) {
			r[j] = rune(l[j])
		}
		out[i] = string(r)
	}
	return out
}

// span formats a range of lines for a unified diff.
func span(begin, end int) string {
	switch n := end - begin; n {
	case 0:
		return fmt.Sprintf("%d,0", begin)
	case 1:
		return fmt.Sprint(begin + 1)
	default:
		return fmt.Sprintf("%d,%d", begin+1, n)
	}
}

// opcode replaces a[a0:a1] by b[b0:b1], unless they are equal.
type opcode struct {
	equal          bool
	a0, a1, b0, b1 int
}

// grouped splits opcodes where more than twice the context is equal: around is
// its number of lines.
func grouped(ops []opcode, around int) [][]opcode {
	if first := &ops[0]; first.equal {
		first.a0, first.b0 = max(first.a0, first.a1-around), max(first.b0, first.b1-around)
	}
	if last := &ops[len(ops)-1]; last.equal {
		last.a1, last.b1 = min(last.a1, last.a0+around), min(last.b1, last.b0+around)
	}
	var groups [][]opcode
	var group []opcode
	for _, op := range ops {
		if op.equal && op.a1-op.a0 > 2*around {
			groups = append(groups, append(group, opcode{true, op.a0, min(op.a1, op.a0+around), op.b0, min(op.b1, op.b0+around)}))
			group = nil
			op.a0, op.b0 = max(op.a0, op.a1-around), max(op.b0, op.b1-around)
		}
		group = append(group, op)
	}
	if len(group) > 0 && !(len(group) == 1 && group[0].equal) {
		groups = append(groups, group)
	}
	return groups
}

// matcher finds common runs of two lists by the method of Ratcliff and
// Obershelp, as difflib does: the longest common run, then recursively left and
// right of it. Lines are represented by numbers.
type matcher struct {
	a, b  []int
	where [][]int // for each line, its positions in b
	// runs[j] is the length of the run that ends before line i of a and line j
	// of b; next is the same for the following line of a.
	runs, next []int
}

func newMatcher(a, b []string) *matcher {
	ids := map[string]int{}
	number := func(lines []string) []int {
		out := make([]int, len(lines))
		for i, l := range lines {
			id, ok := ids[l]
			if !ok {
				id = len(ids)
				ids[l] = id
			}
			out[i] = id
		}
		return out
	}
	m := &matcher{a: number(a), b: number(b)}
	m.where = make([][]int, len(ids))
	for j, id := range m.b {
		m.where[id] = append(m.where[id], j)
	}
	// In long texts, difflib does not start a run with a frequent line.
	if n := len(m.b); n >= 200 {
		for id, places := range m.where {
			if len(places) > n/100+1 {
				m.where[id] = nil
			}
		}
	}
	m.runs, m.next = make([]int, len(b)+1), make([]int, len(b)+1)
	return m
}

type block struct{ a, b, size int }

// longest finds the longest common run within bounds, the first of several.
func (m *matcher) longest(a0, a1, b0, b1 int) block {
	best := block{a0, b0, 0}
	var touched, touchedNext []int
	for i := a0; i < a1; i++ {
		touchedNext = touchedNext[:0]
		for _, j := range m.where[m.a[i]] {
			if j < b0 {
				continue
			}
			if j >= b1 {
				break
			}
			k := m.runs[j] + 1
			m.next[j+1] = k
			touchedNext = append(touchedNext, j+1)
			if k > best.size {
				best = block{i - k + 1, j - k + 1, k}
			}
		}
		for _, j := range touched {
			m.runs[j] = 0
		}
		m.runs, m.next = m.next, m.runs
		touched, touchedNext = touchedNext, touched
	}
	for _, j := range touched {
		m.runs[j] = 0
	}
	for best.a > a0 && best.b > b0 && m.a[best.a-1] == m.b[best.b-1] {
		best = block{best.a - 1, best.b - 1, best.size + 1}
	}
	for best.a+best.size < a1 && best.b+best.size < b1 && m.a[best.a+best.size] == m.b[best.b+best.size] {
		best.size++
	}
	return best
}

// blocks returns all common runs in order, adjacent ones joined.
func (m *matcher) blocks() []block {
	var found []block
	queue := [][4]int{{0, len(m.a), 0, len(m.b)}}
	for len(queue) > 0 {
		q := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		x := m.longest(q[0], q[1], q[2], q[3])
		if x.size == 0 {
			continue
		}
		found = append(found, x)
		if q[0] < x.a && q[2] < x.b {
			queue = append(queue, [4]int{q[0], x.a, q[2], x.b})
		}
		if x.a+x.size < q[1] && x.b+x.size < q[3] {
			queue = append(queue, [4]int{x.a + x.size, q[1], x.b + x.size, q[3]})
		}
	}
	slices.SortFunc(found, func(x, y block) int { return x.a - y.a })
	var joined []block
	for _, x := range found {
		if n := len(joined); n > 0 && joined[n-1].a+joined[n-1].size == x.a && joined[n-1].b+joined[n-1].size == x.b {
			joined[n-1].size += x.size
		} else {
			joined = append(joined, x)
		}
	}
	return append(joined, block{len(m.a), len(m.b), 0})
}

func (m *matcher) opcodes() []opcode {
	var ops []opcode
	i, j := 0, 0
	for _, x := range m.blocks() {
		if i < x.a || j < x.b {
			ops = append(ops, opcode{false, i, x.a, j, x.b})
		}
		i, j = x.a+x.size, x.b+x.size
		if x.size > 0 {
			ops = append(ops, opcode{true, x.a, i, x.b, j})
		}
	}
	return ops
}
