package yaml

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/py/value"
)

// golden is a result of Salt's loader, recorded by testdata/load.py.
type golden struct {
	Doc    string  `json:"doc"`
	Value  *string `json:"value"`
	Error  string  `json:"error"`
	Line   int     `json:"line"`
	Column int     `json:"column"`
}

func readGolden(t testing.TB, name string) []golden {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var rows []golden
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// lenient lists documents that Salt rejects and Load accepts, because the YAML
// library accepts them and they are harmless.
var lenient = map[string]bool{
	"- a\n-\tb":                              true, // a tab after the dash
	"[? : a]":                                true,
	strings.Repeat("x", 1025) + ": 1":        true, // a key longer than 1024 without "?"
	"!!omap {a: 1}":                          true, // Salt's renderers accept it, in place of YAML's list
	"'" + strings.Repeat("x", 1100) + "': 1": true,
	"{" + strings.Repeat("x", 1100) + ": 1}": true,
}

func TestLoadAsSalt(t *testing.T) {
	var accepted, refused int
	for _, g := range readGolden(t, "load.json") {
		v, err := Load([]byte(g.Doc), "")
		var e *Error
		switch {
		case g.Value != nil && err != nil:
			t.Errorf("%q: %v; Salt loads %s", g.Doc, err, *g.Value)
		case g.Value != nil:
			accepted++
			if got := value.Repr(v); got != *g.Value {
				t.Errorf("%q: got %s, Salt %s", g.Doc, got, *g.Value)
			}
		case err == nil && lenient[g.Doc]:
		case err == nil:
			t.Errorf("%q: got %s, Salt says %s", g.Doc, value.Repr(v), g.Error)
		case !errors.As(err, &e):
			t.Errorf("%q: error of type %T", g.Doc, err)
		default:
			refused++
			if g.Line != 0 && (e.Line != g.Line || e.Column != g.Column) {
				t.Errorf("%q: error at %d:%d (%v), Salt's at %d:%d (%s)", g.Doc, e.Line, e.Column, err, g.Line, g.Column, g.Error)
			}
		}
	}
	if accepted < 300 || refused < 100 {
		t.Errorf("only %d good and %d bad documents agree", accepted, refused)
	}
}

func TestLoadArgAsSalt(t *testing.T) {
	for _, g := range readGolden(t, "args.json") {
		if got := value.Repr(LoadArg(g.Doc)); got != *g.Value {
			t.Errorf("%q: got %s, Salt %s", g.Doc, got, *g.Value)
		}
	}
}

func TestErrorPosition(t *testing.T) {
	_, err := Load([]byte("a: 1\nb:\n  c: x: y\n"), "/etc/salt/minion")
	const want = `/etc/salt/minion: line 3, column 7: mapping values are not allowed in this context: c: x: y`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	_, err = Load([]byte("a: 1\nb: 2\na: 3\n"), "f")
	var e *Error
	if !errors.As(err, &e) || e.Line != 3 || e.Text != "a: 3" || e.ContextMark.Line != 1 || e.Stage != Constructor {
		t.Errorf("%+v", err)
	}
}

func TestLoadLines(t *testing.T) {
	_, lines, err := LoadLines([]byte("# c\na: 1\n\n0644: x\n<<: {m: 1}\nb:\n  c: 2\n? d\n"), "")
	want := map[string]int{"a": 2, "644": 4, "m": 5, "b": 6, "d": 8}
	if err != nil || !maps.Equal(lines, want) {
		t.Errorf("got %v, %v, want %v", lines, err, want)
	}
	if _, lines, err := LoadLines([]byte("- a"), ""); lines != nil || err != nil {
		t.Errorf("a list has lines %v, %v", lines, err)
	}
}

func TestAliasesShare(t *testing.T) {
	v, err := Load([]byte("a: &x [1]\nb: *x\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	d := v.(*value.Dict)
	if d.At("a").(*value.List) != d.At("b").(*value.List) {
		t.Error("the alias is a copy")
	}
}

func TestBounds(t *testing.T) {
	laughs := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'i'; c++ {
		p := string(c - 1)
		laughs += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+p+",", 10) + "]\n"
	}
	merges := "a: &a {x: 1}\n"
	for c := 'b'; c <= 'z'; c++ {
		p := string(c - 1)
		merges += string(c) + ": &" + string(c) + " {<<: [" + strings.Repeat("*"+p+",", 4) + "]}\n"
	}
	long := "a: &a '" + strings.Repeat("x", 1<<20) + "'\nb: [" + strings.Repeat("*a,", 100) + "]\n"
	for name, doc := range map[string]string{
		"billion laughs":     laughs,
		"merges":             merges,
		"repeated text":      long,
		"flow depth":         strings.Repeat("[", 100000),
		"block depth":        strings.Repeat("- ", 100000),
		"closed flow depth":  strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1),
		"depth by aliases":   deepAliases(MaxDepth + 1),
		"contains itself":    "&a [*a]",
		"contains itself as": "&a {x: {y: [*a]}}",
		"merges itself":      "&a {<<: *a}",
		"size":               strings.Repeat("#", MaxBytes+1),
		"huge number":        strings.Repeat("1:", 1<<20) + "1",
	} {
		if v, err := Load([]byte(doc), ""); err == nil {
			t.Errorf("%s: accepted a %s", name, value.TypeName(v))
		}
	}
}

func deepAliases(n int) string {
	var b strings.Builder
	b.WriteString("- &a0 []\n")
	for i := 1; i <= n; i++ {
		b.WriteString("- &a" + value.Repr(int64(i)) + " [*a" + value.Repr(int64(i-1)) + "]\n")
	}
	return b.String()
}
