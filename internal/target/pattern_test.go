package target

import "testing"

// TestPatience: a pattern that has used up its time is neither met nor missed,
// also under a negation.
func TestPatience(t *testing.T) {
	for _, expr := range []string{"E@(?=a)", "not E@(?=a)", "E@(?!a)"} {
		m, err := Parse("compound", expr, "")
		if err != nil {
			t.Fatal(err)
		}
		s := Data{MinionID: "abc"}
		if expr == "E@(?=a)" && !m.Match(s) {
			t.Errorf("%s does not match", expr)
		}
		m.walk(func(n node, _ bool) {
			if r, ok := n.(regexpNode); ok {
				r.re.(*backtracking).left.Store(0)
			}
		})
		if m.Match(s) || !m.Expect(s) {
			t.Errorf("%s without time: match %v, expect %v", expr, m.Match(s), m.Expect(s))
		}
	}
}
