package jinja

import (
	"context"
	"io/fs"
	"os"
	"strings"
	"testing"

	"brine/internal/py/json"
	"brine/internal/py/value"
)

func golden(t testing.TB) (map[string]any, []any) {
	t.Helper()
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := json.Load(string(b))
	if err != nil {
		t.Fatal(err)
	}
	d := v.(*value.Dict)
	return vars(d.Dict("vars")), d.List("cases")
}

func vars(d *value.Dict) map[string]any {
	m := map[string]any{}
	for k, v := range value.DeepCopy(d).(*value.Dict).All() {
		m[k.(string)] = v
	}
	return m
}

func options(d *value.Dict) Options {
	o := Options{Undefined: StrictUndefined}
	for k, v := range d.All() {
		s, _ := v.(string)
		b, _ := v.(bool)
		switch k {
		case "trim_blocks":
			o.TrimBlocks = b
		case "lstrip_blocks":
			o.LstripBlocks = b
		case "keep_trailing_newline":
			o.KeepTrailingNewline = b
		case "autoescape":
			o.Autoescape = b
		case "line_statement_prefix":
			o.LineStatementPrefix = s
		case "line_comment_prefix":
			o.LineCommentPrefix = s
		case "newline_sequence":
			o.NewlineSequence = s
		case "block_start_string":
			o.BlockStart = s
		case "block_end_string":
			o.BlockEnd = s
		case "variable_start_string":
			o.VariableStart = s
		case "variable_end_string":
			o.VariableEnd = s
		case "comment_start_string":
			o.CommentStart = s
		case "comment_end_string":
			o.CommentEnd = s
		case "undefined":
			o.Undefined = map[string]UndefinedKind{"default": DefaultUndefined, "chainable": ChainableUndefined, "debug": DebugUndefined}[s]
		default:
			panic("unknown option " + k.(string))
		}
	}
	return o
}

// renderFiles renders the template main; the others can be loaded.
func renderFiles(env *Env, files *value.Dict, vars map[string]any) (string, error) {
	load := func(_ context.Context, name string, _ func(string) any) (*Template, map[string]any, error) {
		src, ok := files.Get(name)
		if !ok {
			return nil, nil, fs.ErrNotExist
		}
		t, err := env.Parse(name, src.(string))
		return t, nil, err
	}
	t, _, err := load(context.Background(), "main", nil)
	if err != nil {
		return "", err
	}
	return t.Render(context.Background(), Run{Vars: vars, Load: load})
}

// TestGolden compares with the recorded output of Python's jinja2.
func TestGolden(t *testing.T) {
	all, cases := golden(t)
	if len(cases) < 700 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, c := range cases {
		d := c.(*value.Dict)
		t.Run(d.Str("name"), func(t *testing.T) {
			v := map[string]any{}
			for k, x := range all {
				v[k] = value.DeepCopy(x)
			}
			got, err := renderFiles(New(options(d.Dict("opts"))), d.Dict("files"), v)
			if !d.Has("error") {
				if err != nil {
					t.Fatalf("%s\n%s", err, d.Dict("files").Str("main"))
				}
				if want := d.Str("out"); got != want {
					t.Errorf("got  %q\nwant %q\nfrom %q", got, want, d.Dict("files").Str("main"))
				}
				return
			}
			e, ok := err.(*Error)
			if !ok {
				t.Fatalf("got %q, %v, want %s: %s", got, err, d.Str("error"), d.Str("message"))
			}
			only := strings.HasSuffix(d.Str("name"), "~wording") // Python's C code uses another message
			if string(e.Kind) != d.Str("error") || !only && !sameMessage(e.Message, d.Str("message")) {
				t.Errorf("got  %s: %s\nwant %s: %s", e.Kind, e.Message, d.Str("error"), d.Str("message"))
			}
			if int64(e.Line) != d.Int("line") && d.Int("line") != 0 {
				t.Errorf("line %d, want %d", e.Line, d.Int("line"))
			}
		})
	}
}

// sameMessage compares messages, ignoring the names of Python's own functions.
func sameMessage(got, want string) bool {
	_, g, ok1 := strings.Cut(got, "()")
	_, w, ok2 := strings.Cut(want, "()")
	return got == want || ok1 && ok2 && g == w
}
