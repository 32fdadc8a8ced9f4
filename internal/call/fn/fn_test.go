package fn

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"brine/internal/py/value"
)

type echoArgs struct {
	Text any `salt:"text" doc:"text to return"`
}

func echo(_ context.Context, _ *Call, a echoArgs) (any, error) { return a.Text, nil }

type threeArgs struct {
	A any    `salt:"a" doc:"first"`
	B any    `salt:"b" doc:"second"`
	C int    `salt:"c" doc:"third" default:"1"`
	D string `salt:"d" doc:"fourth" default:"null"`
}

type restArgs struct {
	A    any    `salt:"a" doc:"first"`
	Rest Args   `salt:"rest"`
	K    any    `salt:"k" doc:"by name"`
	O    int    `salt:"o" doc:"by name" default:"2"`
	Kw   Kwargs `salt:"kw"`
}

type onlyArgs struct {
	A any    `salt:"a" doc:"first"`
	X Args   `salt:"x"`
	K any    `salt:"k" doc:"by name" default:"null"`
	M string `salt:"m" doc:"by name"`
}

func all[A any](_ context.Context, _ *Call, a A) (A, error) { return a, nil }

func samples(t testing.TB) *Registry {
	t.Helper()
	r, err := NewRegistry(nil,
		Module{Name: "test", Doc: "Samples.", Aliases: []string{"sample"}, Funcs: []Func{
			Of("echo", echo, `Return the text as it is.`, Example("salt '*' test.echo 'foo bar'")),
			Of("ping", func(context.Context, *Call, struct{}) (bool, error) { return true, nil }, `Say yes.`),
			Of("three", all[threeArgs], `Take three.`, Params("a", "b", "c"), Default("c", "7")),
			Of("rest", all[restArgs], `Take anything.`),
			Of("only", all[onlyArgs], `Take names.`),
			Of("kwarg", func(_ context.Context, _ *Call, a struct {
				Kw Kwargs `salt:"kwargs"`
			}) (*value.Dict, error) {
				return a.Kw.Dict, nil
			}, `Return the keywords.`),
			Of("fail", func(_ context.Context, c *Call, a struct {
				How string `salt:"how"`
			}) (*value.Dict, error) {
				c.SetRetcode(9)
				switch a.How {
				case "command":
					return nil, Errorf("it %s", "broke")
				case "invalid":
					return nil, Invalidf("no way")
				case "fault":
					return nil, errors.New("it broke")
				case "panic":
					var d *value.Dict
					d.Set("a", 1)
				}
				return nil, nil
			}, `Fail in some way.`),
			Of("out", func(_ context.Context, c *Call, a echoArgs) (any, error) {
				if a.Text == "other" {
					c.SetOut("other")
				}
				return a.Text, nil
			}, `Return with an outputter.`, Out("highstate")),
		}},
		Module{Name: "gone", When: func(Reader) (string, bool) { return "not here", false }},
		Module{Name: "gone2", When: func(Reader) (string, bool) { return "", false }},
	)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func list(v ...any) []any { return v }

// The expected messages are Python's for functions with the same signature.
func TestBindErrors(t *testing.T) {
	r := samples(t)
	for _, tt := range []struct {
		fun  string
		args []any
		kw   *value.Dict
		want string
	}{
		{"echo", nil, nil, "echo() missing 1 required positional argument: 'text'"},
		{"echo", list("1", "2", "3"), nil, "echo() takes 1 positional argument but 3 were given"},
		{"echo", list("1"), value.DictOf("text", 2), "echo() got multiple values for argument 'text'"},
		{"echo", list("1"), value.DictOf("x", 2), "echo() got an unexpected keyword argument 'x'"},
		{"ping", list("1"), nil, "ping() takes 0 positional arguments but 1 was given"},
		{"ping", list("1", "2"), nil, "ping() takes 0 positional arguments but 2 were given"},
		{"three", nil, nil, "three() missing 2 required positional arguments: 'a' and 'b'"},
		{"three", nil, value.DictOf("c", 2), "three() missing 2 required positional arguments: 'a' and 'b'"},
		{"three", list("1", "2", "3", "4"), nil, "three() takes from 2 to 3 positional arguments but 4 were given"},
		{"three", list("1", "2", "3", "4"), value.DictOf("c", 2), "three() got multiple values for argument 'c'"},
		{"three", list("1", "2"), value.DictOf("d", 2), "three() got an unexpected keyword argument 'd'"},
		{"three", list("1", "2", "x"), nil, `three() argument 'c': expected a whole number, got the string "x"`},
		{"fail", list(nil), nil, "fail() argument 'how': expected a string, got null"},
		{"rest", nil, nil, "rest() missing 1 required positional argument: 'a'"},
		{"rest", list("1"), nil, "rest() missing 1 required keyword-only argument: 'k'"},
	} {
		f, err := r.Lookup("test." + tt.fun)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Bind(tt.args, tt.kw)
		var arg *ArgumentError
		if !errors.As(err, &arg) || err.Error() != tt.want {
			t.Errorf("%s%v %v:\n got %v\nwant %v", tt.fun, tt.args, tt.kw, err, tt.want)
		}
	}
}

func TestEnumerate(t *testing.T) {
	for want, names := range map[string][]string{
		"'a'": {"'a'"}, "'a' and 'b'": {"'a'", "'b'"}, "'a', 'b', and 'c'": {"'a'", "'b'", "'c'"},
	} {
		if got := enumerate(names); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestKeywordOnlyTooMany(t *testing.T) {
	f := Of("g", all[struct {
		A any  `salt:"a"`
		X Args `salt:"x"`
		K any  `salt:"k"`
	}], `G.`)
	f.sig().args = nil // as in def g(a, *, k)
	for _, tt := range []struct {
		args []any
		kw   *value.Dict
		want string
	}{
		{list("1", "2"), value.DictOf("k", 1), "g() takes 1 positional argument but 2 positional arguments (and 1 keyword-only argument) were given"},
		{list("1", "2"), nil, "g() takes 1 positional argument but 2 were given"},
	} {
		if _, err := f.Bind(tt.args, tt.kw); err == nil || err.Error() != tt.want {
			t.Errorf("got %v\nwant %s", err, tt.want)
		}
	}
}

func TestBind(t *testing.T) {
	r := samples(t)
	call := func(fun string, args []any, kw *value.Dict) reflect.Value {
		f, err := r.Lookup("test." + fun)
		if err != nil {
			t.Fatal(err)
		}
		b, err := f.Bind(args, kw)
		if err != nil {
			t.Fatal(err)
		}
		return b.a.Elem()
	}
	got := call("three", list("x"), value.DictOf("b", 2)).Interface().(threeArgs)
	if want := (threeArgs{A: "x", B: int64(2), C: 7}); got != want {
		t.Errorf("three: got %+v, want %+v", got, want)
	}
	if got := call("three", list("x", nil, nil), nil).Interface().(threeArgs); got.C != 0 {
		t.Errorf("null for an optional number: %+v", got)
	}
	rest := call("rest", list("x", "y", "z"), value.DictOf("k", 1, "m", "n")).Interface().(restArgs)
	if rest.A != "x" || !reflect.DeepEqual(rest.Rest, Args{"y", "z"}) || rest.K != int64(1) || rest.O != 2 || value.Repr(rest.Kw.Dict) != "{'m': 'n'}" {
		t.Errorf("rest: got %+v", rest)
	}
	if e := call("rest", list("x"), value.DictOf("k", 1)).Interface().(restArgs); e.Rest == nil || e.Kw.Dict == nil {
		t.Errorf("rest without further arguments: got %+v", e)
	}
}

// One call must not see changes to another's defaults.
func TestDefaultsAreFresh(t *testing.T) {
	f := Of("f", func(_ context.Context, _ *Call, a struct {
		L *value.List `salt:"l" default:"[]"`
	}) (int, error) {
		a.L.Append("x")
		return a.L.Len(), nil
	}, `F.`)
	for range 2 {
		if n, err := f.Call(t.Context(), &Call{}, nil, nil); err != nil || n != int64(1) {
			t.Fatalf("got %v, %v", n, err)
		}
	}
}

// An invalid declaration panics on first use.
func TestWrongDeclarations(t *testing.T) {
	for name, declare := range map[string]func() Func{
		"required after optional": func() Func {
			return Of("f", all[struct {
				A any `salt:"a" default:"1"`
				B any `salt:"b"`
			}], "")
		},
		"unknown in Params":  func() Func { return Of("f", all[threeArgs], "", Params("x")) },
		"unknown in Default": func() Func { return Of("f", all[threeArgs], "", Default("x", "1")) },
		"default of a type":  func() Func { return Of("f", all[threeArgs], "", Default("c", "text")) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f := declare()
			f.Params()
		})
	}
}

// lateTree is a Late that counts reads.
type lateTree struct{ asked *int }

func (lateTree) Late()              {}
func (l lateTree) Get(string) any   { *l.asked++; return "Linux" }
func (l lateTree) All() *value.Dict { *l.asked++; return value.DictOf("kernel", "Linux") }

func TestLateGrains(t *testing.T) {
	asked := 0
	when := func(kernel string) func(Reader) (string, bool) {
		return func(g Reader) (string, bool) { return "no " + kernel, g.Get("kernel") == kernel }
	}
	funcs := []Func{Of("f", echo, "F.")}
	r, err := NewRegistry(lateTree{&asked}, Module{Name: "a", Funcs: funcs},
		Module{Name: "b", Aliases: []string{"bb"}, When: when("Linux"), Funcs: funcs}, Module{Name: "c", When: when("Plan 9"), Funcs: funcs})
	if err != nil || !r.Has("a.f") || r.Has("x.f") || asked != 0 {
		t.Fatalf("%v, grains asked %d times", err, asked)
	}
	if !r.Has("bb.f") || !r.Has("b.f") || asked != 1 {
		t.Errorf("grains asked %d times", asked)
	}
	if _, err := r.Lookup("c.f"); err == nil || err.Error() != "'c' __virtual__ returned False: no Plan 9" || asked < 2 {
		t.Errorf("%v, grains asked %d times", err, asked)
	}
	r, _ = NewRegistry(lateTree{&asked}, Module{Name: "b", When: when("Linux"), Funcs: funcs}, Module{Name: "c", When: when("Plan 9"), Funcs: funcs})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { r.Lookup("c.f"); r.Names(); r.Missing() })
	}
	wg.Wait()
	if got := strings.Join(r.Names(), " "); got != "b.f" || len(r.Missing()) != 1 || len(r.Docs("*").Keys()) != 1 {
		t.Errorf("names %q, missing %v", got, r.Missing())
	}
}

func TestDeclaredTwice(t *testing.T) {
	m := Module{Name: "a", Funcs: []Func{Of("f", echo, "")}}
	if _, err := NewRegistry(nil, m, m); err == nil {
		t.Error("two functions with the same name were accepted")
	}
}

func TestSplitKwarg(t *testing.T) {
	for _, tt := range []struct {
		in, name, val string
		ok            bool
	}{
		{"a=b", "a", "b", true}, {"a=", "a", "", true}, {"a.b-c_1=x=y", "a.b-c_1", "x=y", true}, {"é=1", "é", "1", true},
		{"_x=1", "_x", "1", true}, {"a=b\n", "a", "b", true},
		{"a==b", "", "", false}, {"=b", "", "", false}, {"1a=b", "", "", false}, {"-a=b", "", "", false}, {"a b=c", "", "", false},
		{"a=b\nc", "", "", false}, {"a", "", "", false}, {"/x=y", "", "", false}, {"\xff=1", "", "", false},
	} {
		if name, val, ok := SplitKwarg(tt.in); name != tt.name || val != tt.val || ok != tt.ok {
			t.Errorf("SplitKwarg(%q) = %q, %q, %v", tt.in, name, val, ok)
		}
	}
}

func TestParseWordsAndWire(t *testing.T) {
	args, kw := ParseWords([]string{"1", "true", "[1, b]", "x y", "n=5", "m=5", "t={a: b}", "20260101000000000000"}, map[string]bool{"n": true})
	if got, want := value.Repr(value.Tuple(args)), "(1, True, [1, 'b'], 'x y', 20260101000000000000)"; got != want {
		t.Errorf("args %s, want %s", got, want)
	}
	if got, want := value.Repr(kw), "{'n': '5', 'm': 5, 't': {'a': 'b'}}"; got != want {
		t.Errorf("kwargs %s, want %s", got, want)
	}
	want := "(1, True, [1, 'b'], 'x y', '20260101000000000000', {'__kwarg__': True, 'n': '5', 'm': 5, 't': {'a': 'b'}})"
	if got := value.Repr(value.Tuple(Wire(args, kw))); got != want {
		t.Errorf("wire %s, want %s", got, want)
	}
	if got := Wire(nil, nil); len(got) != 0 {
		t.Errorf("no words become %v", got)
	}
}

func TestLoad(t *testing.T) {
	r := samples(t)
	pub := value.DictOf("jid", "1", "fun", "x")
	for _, tt := range []struct {
		fun  string
		arg  []any
		want string
	}{
		{"echo", list("5"), "('5',) {}"},
		{"echo", list("text=5"), "() {'text': 5}"},
		{"echo", list("nope=b", value.DictOf("__kwarg__", true, "text", 1, "bad", value.DictOf("a", 1))),
			"The following keyword arguments are not valid: nope=b, bad={'a': 1}"},
		{"echo", list(value.DictOf("a", 1)), "({'a': 1},) {}"},
		{"echo", list(value.DictOf("__kwarg__", "yes", "text", 1)), "({'text': 1},) {}"},
		{"kwarg", list("a=[1]", value.DictOf("__kwarg__", true, "b", 2)), "() {'a': [1], 'b': 2, '__pub_jid': '1', '__pub_fun': 'x'}"},
	} {
		f, err := r.Lookup("test." + tt.fun)
		if err != nil {
			t.Fatal(err)
		}
		args, kw, err := f.Load(tt.arg, pub)
		got := value.Repr(value.Tuple(args)) + " " + value.Repr(kw)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %s\nwant %s", tt.fun, got, tt.want)
		}
	}
}

func TestRun(t *testing.T) {
	r := samples(t)
	doc, err := r.Lookup("test.fail")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		fun     string
		arg     []any
		want    string
		retcode int
		out     string
	}{
		{"test.echo", list("x"), "x", 0, ""},
		{"sample.echo", list("x"), "x", 0, ""},
		{"test.echo", list(value.DictOf("result", false)), "{'result': False}", 1, ""},
		{"test.echo", list(value.DictOf("success", nil)), "{'success': None}", 1, ""},
		{"test.echo", list(value.DictOf("success", 1, "result", "x")), "{'success': 1, 'result': 'x'}", 0, ""},
		{"test.echo", list(false), "False", 0, ""},
		{"test.out", list("x"), "x", 0, "highstate"},
		{"test.out", list("other"), "other", 0, "other"},
		{"test.fail", list("retcode"), "None", 9, ""},
		{"test.fail", list("command"), "ERROR: it broke", 1, "nested"},
		{"test.fail", list("invalid"), "ERROR executing 'test.fail': no way", 1, "nested"},
		{"test.fail", list("fault"), "The minion function caused an exception: it broke", 1, "nested"},
		{"test.fail", list("panic"), "The minion function caused an exception: runtime error: invalid memory address or nil pointer dereference", 1, "nested"},
		{"test.fail", nil, "Passed invalid arguments to test.fail: fail() missing 1 required positional argument: 'how'\n" + doc.Doc(), 1, "nested"},
		{"test.fail", list("how=x", "b=c"), "ERROR executing 'test.fail': The following keyword arguments are not valid: b=c", 1, "nested"},
		{"no.such", nil, "'no.such' is not available.", 1, "nested"},
		{"test.pingg", nil, "'test.pingg' is not available.", 1, "nested"},
		{"gone.x", nil, "'gone' __virtual__ returned False: not here", 1, "nested"},
		{"gone2.x", nil, "'gone2' __virtual__ returned False", 1, "nested"},
		{"test.pin", nil, "{'test.ping': '\\n    Say yes.\\n    ', 'test.pin': \"'test.pin' is not available.\"}", 1, "nested"},
	} {
		o := r.Run(t.Context(), &Call{}, Job{Fun: tt.fun, Arg: tt.arg})
		if got := value.Str(o.Return); got != tt.want || o.Retcode != tt.retcode || o.Success != (tt.retcode == 0) || o.Out != tt.out {
			t.Errorf("%s %v: got %q %+v\nwant %q", tt.fun, tt.arg, got, o, tt.want)
		}
	}
}

func TestBlackout(t *testing.T) {
	r := samples(t)
	on := value.DictOf("minion_blackout", true, "minion_blackout_whitelist", value.ListOf("test.ping"))
	for _, c := range []Call{{Pillar: Tree{on}}, {Grains: Tree{on}}} {
		one, two := c, c
		o := r.Run(t.Context(), &one, Job{Fun: "test.echo", Arg: list("x"), Blackout: true})
		want := "ERROR executing 'test.echo': Minion in blackout mode. Set 'minion_blackout' to False in pillar or grains " +
			"to resume operations. Only saltutil.refresh_pillar allowed in blackout mode."
		if o.Return != want || o.Retcode != 1 {
			t.Errorf("got %+v", o)
		}
		if o := r.Run(t.Context(), &two, Job{Fun: "test.ping", Blackout: true}); o.Return != true {
			t.Errorf("the whitelist has no effect: %+v", o)
		}
	}
	if o := r.Run(t.Context(), &Call{Pillar: Tree{on}}, Job{Fun: "test.echo", Arg: list("x")}); o.Return != "x" {
		t.Errorf("refused with Blackout false: %+v", o)
	}
}

func TestProgress(t *testing.T) {
	var parts []any
	c := &Call{Progress: func(v any) { parts = append(parts, v) }}
	c.Report(1)
	c.Report("x")
	(&Call{}).Report(1)
	if value.Repr(value.Tuple(parts)) != "(1, 'x')" {
		t.Errorf("got %v", parts)
	}
}

func TestDoc(t *testing.T) {
	r := samples(t)
	f, _ := r.Lookup("test.echo")
	want := `
    Return the text as it is.

    text
        text to return

    CLI Example:

        salt '*' test.echo 'foo bar'
    `
	if got := f.Doc(); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	g := Of("g", all[threeArgs], `
		First line.

		  Indented more.
		Last line.
	`, Params("c"))
	if got, want := g.Doc(), "\n    First line.\n\n      Indented more.\n    Last line.\n\n    c : 1\n        third\n    "; got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if g.Summary() != "First line." {
		t.Errorf("summary %q", g.Summary())
	}
}

func TestArgSpec(t *testing.T) {
	r := samples(t)
	for fun, want := range map[string]string{
		"test.echo":  "{'args': ['text'], 'defaults': None, 'varargs': None, 'kwargs': None}",
		"test.ping":  "{'args': None, 'defaults': None, 'varargs': None, 'kwargs': None}",
		"test.three": "{'args': ['a', 'b', 'c'], 'defaults': (7,), 'varargs': None, 'kwargs': None}",
		"test.rest":  "{'args': ['a', 'k', 'o'], 'defaults': (2,), 'varargs': True, 'kwargs': True}",
	} {
		if got := value.Repr(r.ArgSpecs(fun).At(fun)); got != want {
			t.Errorf("%s: got %s, want %s", fun, got, want)
		}
	}
}

func TestPatterns(t *testing.T) {
	r := samples(t)
	if got := r.Functions("test.e*", "sample.ping"); !reflect.DeepEqual(got, []string{"sample.ping", "test.echo"}) {
		t.Errorf("got %v", got)
	}
	if got := len(r.Functions("test")); got != 8 {
		t.Errorf("module test has %d functions", got)
	}
	if got := len(r.Functions()); got != 16 {
		t.Errorf("there are %d functions", got)
	}
	if got := r.Modules(); !reflect.DeepEqual(got, []string{"sample", "test"}) {
		t.Errorf("modules %v", got)
	}
	for name, n := range map[string]int{"test": 8, "test.": 8, "tes": 0, "test.echo": 1, "*.ping": 2, "": 16} {
		if got := r.Docs(name).Len(); got != n {
			t.Errorf("Docs(%q) has %d, want %d", name, got, n)
		}
	}
	var none *Registry
	if none.Has("x.y") || len(none.Functions("x")) != 0 || none.Docs().Len() != 0 || none.Missing() != nil {
		t.Error("a nil registry is not empty")
	}
}

// A job must return each recorded error message of Salt.
func TestRecordedErrors(t *testing.T) {
	r := samples(t)
	for name, job := range map[string]Job{
		"err_missing_arg":         {Fun: "test.echo"},
		"err_extra_args":          {Fun: "test.echo", Arg: list("a", "b", "c")},
		"err_bad_kwarg":           {Fun: "test.echo", Arg: list(value.DictOf("__kwarg__", true, "text", "a", "nope", "b"))},
		"err_unknown_fun":         {Fun: "nosuch.function"},
		"err_unknown_fun_similar": {Fun: "test.pingg"},
	} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		_, out, _ := strings.Cut(string(data), "-- stdout --\nalpha:\n")
		first, _, _ := strings.Cut(out, "\n") // some are followed by documentation, which differs from ours
		got, _, _ := strings.Cut(value.Str(r.Run(t.Context(), &Call{}, job).Return), "\n")
		if "    "+got != first {
			t.Errorf("%s: got %q\nwant %q", name, got, first)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	r := samples(b)
	b.ReportAllocs()
	for b.Loop() {
		r.Run(b.Context(), &Call{}, Job{Fun: "test.three", Arg: list("a", value.DictOf("__kwarg__", true, "b", 1))})
	}
}

// askingSource is a source that uses the registry during a lookup, as Python modules do.
type askingSource struct{ r *Registry }

func (s askingSource) Find(string, bool) *Func   { return nil }
func (s askingSource) Hides(string) bool         { return false }
func (s askingSource) Claims(string) bool        { return false }
func (s askingSource) Names() ([]string, uint64) { return nil, 0 }
func (s askingSource) Missing() map[string]string {
	s.r.Own("b.f")
	return map[string]string{"x": "gone"}
}

// TestSourceAsks checks that a registry with late grains does not deadlock when its source looks up
// functions.
func TestSourceAsks(t *testing.T) {
	asked := 0
	r, err := NewRegistry(lateTree{&asked}, Module{Name: "b", When: func(Reader) (string, bool) { return "", true }, Funcs: []Func{Of("f", echo, "F.")}})
	if err != nil {
		t.Fatal(err)
	}
	r.Attach(askingSource{r})
	if got := r.Missing()["x"]; got != "gone" {
		t.Errorf("missing: %q", got)
	}
	if _, err := r.Lookup("x.f"); err == nil || err.Error() != "'x' __virtual__ returned False: gone" {
		t.Error(err)
	}
}
