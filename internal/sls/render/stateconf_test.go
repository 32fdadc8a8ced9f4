package render

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"brine/internal/py/json"
	"brine/internal/py/value"
)

// TestStateconf renders the files of testdata/stateconf.txtar in one run, as
// stock Salt did.
func TestStateconf(t *testing.T) {
	files, err := txtar.ParseFile("testdata/stateconf.txtar")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/stateconf.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := json.Load(string(text))
	if err != nil {
		t.Fatal(err)
	}
	recorded := v.(*value.Dict)
	if recorded.Len() != len(files.Files) {
		t.Fatalf("%d recordings of %d files", recorded.Len(), len(files.Files))
	}
	r, kept := New(Options{}), StateConf{}
	for _, f := range files.Files {
		got, err := r.Render(t.Context(), Request{Source: f.Data, SLS: f.Name, Saltenv: "base", StateConf: &kept})
		want := recorded.Dict(f.Name)
		if want.Has("error") {
			var e *Error
			if e, _ = err.(*Error); e == nil || e.Message != want.Str("error") {
				t.Errorf("%s: %v, want the error %q", f.Name, err, want.Str("error"))
			}
			continue
		}
		if err != nil || value.Repr(got) != value.Repr(want.At("data")) {
			t.Errorf("%s: %v\n%s, want\n%s", f.Name, err, value.Repr(got), value.Repr(want.At("data")))
		}
	}
	for source, want := range map[string]string{
		"#!stateconf -x\na: b":                "stateconf has no option -x; it has -G, -o, -s and -p",
		"#!stateconf jinja\na: b":             "stateconf takes two renderers with a dot between them, as in #!stateconf yaml . jinja",
		"#!stateconf yaml . mako\na: b":       `the renderer "mako" runs Python, which is not available here: write the file with jinja and yaml`,
		"#!stateconf -p\na: b":                "",
		"#!stateconf yaml . jinja\n[a, b]\n":  "",
		"#!stateconf yaml . jinja\na: [b]\n":  "",
		"#!stateconf yaml . jinja\na: {b: 5}": "",
	} {
		_, err := r.Render(t.Context(), Request{Source: []byte(source), SLS: "x"})
		var e *Error
		if e, _ = err.(*Error); (e != nil) != (want != "") || e != nil && e.Message != want {
			t.Errorf("%q: %v, want %q", source, err, want)
		}
	}
}
