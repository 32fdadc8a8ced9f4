package jinja

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// hostile templates must end with an error within the limits.
func TestLimits(t *testing.T) {
	deep := func(open, end string, n int) string { return strings.Repeat(open, n) + strings.Repeat(end, n) }
	for name, src := range map[string]string{
		"recursion of a macro":    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"recursion of a loop":     "{% set l = [] %}{% do l.append(l) %}{% for x in l recursive %}{{ loop(x) }}{% endfor %}",
		"include of itself":       "{% include 'main' %}",
		"import of itself":        "{% import 'main' as m with context %}",
		"extends itself":          "{% extends 'main' %}",
		"a big power":             "{{ 2 ** 1000000000 }}",
		"a big string":            "{{ 'a' * 10 ** 12 }}",
		"a big list":              "{{ [1] * 10 ** 12 }}",
		"a string that doubles":   "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
		"a string that doubles 2": "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
		"a string that doubles 3": "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}{% set ns.s = ns.s.replace('a', 'aa') %}{% endfor %}",
		"a string that doubles 4": "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}{% set ns.s = '%s%s' % (ns.s, ns.s) %}{% endfor %}",
		"a string that doubles 5": "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}",
		"a list that doubles":     "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% do ns.s.extend(ns.s) %}{% endfor %}",
		"a wide format":           "{{ '%1000000000d' % 1 }}",
		"a wide format 2":         "{{ '{:1000000000}'.format(1) }}",
		"a wide pad":              "{{ 'a'.center(10 ** 11) }}",
		"a wide indent":           "{{ 'a' | indent(10 ** 11, true) }}",
		"equal to itself":         "{% set a = [] %}{% do a.append(a) %}{% set b = [] %}{% do b.append(b) %}{{ a == b }}",
		"nested deep":             "{{ " + deep("(", ")", 10000) + " }}",
		"nested lists":            "{{ " + deep("[", "]", 10000) + " }}",
		"nested tags":             deep("{% if 1 %}", "{% endif %}", 10000),
		"nested not":              "{{ " + strings.Repeat("not ", 10000) + " 1 }}",
		"nested minus":            "{{ " + strings.Repeat("- ", 10000) + " 1 }}",
		"a long sum":              "{{ 1" + strings.Repeat("+1", 100000) + " }}",
		"a long chain":            "{{ 1" + strings.Repeat("|e", 100000) + " }}",
		"many attributes":         "{{ a" + strings.Repeat(".a", 100000) + " }}",
		"nested cond":             "{{ " + strings.Repeat("1 if 1 else ", 10000) + " 1 }}",
		"a list that grows":       "{% set l = [1] %}{% for x in l %}{% do l.append(x) %}{% endfor %}",
		"deep list, then written": "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
		"wide JSON":               "{{ [1] | tojson(indent=1099511627776) }}",
		"wide, nested JSON":       "{{ " + deep("[", "]", 50) + " | tojson(indent=100000) }}",
		"long digits":             "{{ (10 ** 5000) | string }}",
		"a range too long":        "{% for x in range(1000000000) %}{% endfor %}",
	} {
		t.Run(name, func(t *testing.T) {
			env := New(Options{Undefined: StrictUndefined, MaxOutput: 2 << 20})
			out, err := renderFiles(env, value.DictOf("main", src), nil)
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%d bytes, %v", len(out), err)
			}
		})
	}
}

func TestTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	tpl, err := New(Options{}).Parse("t", "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tpl.Render(ctx, Run{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestErrorPlaces(t *testing.T) {
	env := New(Options{Undefined: StrictUndefined})
	files := value.DictOf("main", "a\n{% import 'lib' as lib %}\n\n{{ lib.m() }}", "lib", "\n{% macro m() %}\n{{ nope }}\n{% endmacro %}")
	_, err := renderFiles(env, files, nil)
	var e *Error
	if !errors.As(err, &e) || e.Template != "lib" || e.Line != 3 || e.Source != files.Str("lib") {
		t.Fatalf("got %+v", err)
	}
	if len(e.Stack) != 2 || e.Stack[1] != (Place{"main", 4}) {
		t.Errorf("stack %v", e.Stack)
	}
}

// An error of the loader is returned unchanged.
func TestLoaderFails(t *testing.T) {
	bad := errors.New("the disk is gone")
	tpl, _ := New(Options{}).Parse("t", "{% include 'x' ignore missing %}")
	_, err := tpl.Render(t.Context(), Run{Load: func(context.Context, string, func(string) any) (*Template, map[string]any, error) {
		return nil, nil, bad
	}})
	if !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
	_, err = tpl.Render(t.Context(), Run{Load: func(context.Context, string, func(string) any) (*Template, map[string]any, error) {
		return nil, nil, fs.ErrNotExist
	}})
	if err != nil {
		t.Errorf("ignore missing: %v", err)
	}
}

// FuzzRender checks that any template renders or fails with an *Error.
func FuzzRender(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	all, cases := golden(f)
	for _, c := range cases {
		f.Add(c.(*value.Dict).Dict("files").Str("main"))
	}
	o := Options{Undefined: StrictUndefined, MaxOutput: 1 << 20, MaxDepth: 50, TrimBlocks: true, LstripBlocks: true, LineStatementPrefix: "%%"}
	env := New(o)
	f.Fuzz(func(t *testing.T, src string) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		tpl, err := env.Parse("t", src)
		if err != nil {
			if e := new(Error); !errors.As(err, &e) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		v := map[string]any{}
		for k, x := range all {
			v[k] = value.DeepCopy(x)
		}
		_, err = tpl.Render(ctx, Run{Vars: v})
		if e := new(Error); err != nil && !errors.As(err, &e) && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%T: %v", err, err)
		}
	})
}

// FuzzLexer checks that the tokens of any text end, and that parsing neither
// hangs nor fails except with an *Error.
func FuzzLexer(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	_, cases := golden(f)
	for _, c := range cases {
		f.Add(c.(*value.Dict).Dict("files").Str("main"), false)
	}
	f.Fuzz(func(t *testing.T, src string, lines bool) {
		o := Options{}
		if lines {
			o.LineStatementPrefix, o.LineCommentPrefix = "#", "##"
		}
		env := New(o)
		toks := tokenize(&env.o, src)
		if toks[len(toks)-1].kind != tEOF {
			t.Fatal("the last token is not the end")
		}
		if _, err := env.Parse("t", src); err != nil {
			if e := new(Error); !errors.As(err, &e) {
				t.Fatalf("%T: %v", err, err)
			}
		}
	})
}
