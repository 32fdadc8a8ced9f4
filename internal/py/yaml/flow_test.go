package yaml

import (
	"fmt"
	"strings"
	"testing"

	"brine/internal/py/value"
)

// Results of PyYAML 6.0 for flow collections indented less than the enclosing
// block.
func TestOutdentedFlow(t *testing.T) {
	for text, want := range map[string]string{
		"a:\n    b:\n        c: {m: 6,\n    port: ssh, i: 1}\n": "{'a': {'b': {'c': {'m': 6, 'port': 'ssh', " +
			"'i': 1}}}}",
		"a:\n    - c:\n        x: {D: {b: 'q,\n  r', e: f,\n g: h}, i: [1,\n2, {j: k}],\nl: m}\n    - n": "{'a': [{'c': {'x': {'D': {'b': 'q, r', " +
			"'e': 'f', 'g': 'h'}, 'i': [1, 2, {'j': 'k'}], 'l': 'm'}}}, 'n']}",
		"- - - x: {a: 1,\nb: \"c \\\n d\", e: it's, f: 'it''s\n}',\ng: h}\n- y: z\n": `[[[{'x': {'a': 1, 'b': 'c d', 'e': "it's", 'f': "it's }", ` +
			`'g': 'h'}}]], {'y': 'z'}]`,
		"a:\n  b: {c: d, # { not counted\ne: f}\n  g: h\n": "{'a': {'b': {'c': 'd', 'e': 'f'}, 'g': 'h'}}",
	} {
		v, err := Load([]byte(text), "x")
		if err != nil || value.Repr(v) != want {
			t.Errorf("%q\n got %s, %v\nwant %s", text, value.Repr(v), err, want)
		}
	}
	for text, want := range map[string]string{
		"a: b\n c: d\n":                         "x: line 2, column 3: mapping values are not allowed in this context: c: d",
		"a:\n  b: {c: d,\ne: f}\n  g: h\n i: j": "",
		"a:\n  b: {c: d,\ne: f\n":               "",
	} {
		_, err := Load([]byte(text), "x")
		if err == nil || want != "" && err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	// Lines inside and outside of the collections alternate: many rounds.
	var b strings.Builder
	b.WriteString("a:\n  b: " + strings.Repeat("{x: ", 150) + "1")
	for i := range 150 {
		fmt.Fprintf(&b, "},\ny%d: 2", i)
	}
	if _, err := Load([]byte(b.String()), "x"); err == nil {
		t.Error("a collection that is not closed is accepted")
	}
}
