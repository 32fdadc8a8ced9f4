package json

import (
	"errors"
	"math"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// The repr() of the result of Python's json.loads.
func TestLoad(t *testing.T) {
	for in, want := range map[string]string{
		` {"b": 1, "a": [true, null, 1.5, -0], "b": 2} `: "{'b': 2, 'a': [True, None, 1.5, 0]}",
		`"\u00e9\ud83d\ude00\n\/"`:                       `'é😀\n/'`,
		`123456789012345678901234567890`:                 "123456789012345678901234567890",
		`[1e3, 1E-2, -1.0, 0.5]`:                         "[1000.0, 0.01, -1.0, 0.5]",
		`[NaN, Infinity, -Infinity]`:                     "[nan, inf, -inf]",
		`[]`:                                             "[]",
	} {
		v, err := Load(in)
		if err != nil || value.Repr(v) != want {
			t.Errorf("%s: got %s, %v, want %s", in, value.Repr(v), err, want)
		}
	}
}

// The messages of Python's json.loads.
func TestLoadErrors(t *testing.T) {
	for in, want := range map[string]string{
		``:           "Expecting value: line 1 column 1 (char 0)",
		`{"a" 1}`:    "Expecting ':' delimiter: line 1 column 6 (char 5)",
		"[1,\n 2 3]": "Expecting ',' delimiter: line 2 column 4 (char 7)",
		`{a: 1}`:     "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
		`"abc`:       "Unterminated string starting at: line 1 column 1 (char 0)",
		`[1] x`:      "Extra data: line 1 column 5 (char 4)",
		`"\x"`:       `Invalid \escape: line 1 column 2 (char 1)`,
		`nul`:        "Expecting value: line 1 column 1 (char 0)",
	} {
		_, err := Load(in)
		if err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", in, err, want)
		}
	}
	if _, err := Load(strings.Repeat("[", 100000)); err == nil {
		t.Error("a deep list was read")
	}
}

func TestDump(t *testing.T) {
	v := value.DictOf("b", 1, "a", []any{true, nil, 1.5, "é\u2028😀\"\\\n\x01"}, 3, "x")
	for _, c := range []struct {
		f    Format
		want string
	}{
		{Format{}, `{"b": 1, "a": [true, null, 1.5, "é` + "\u2028" + `😀\"\\\n\u0001"], "3": "x"}`},
		{Format{ASCII: true, Comma: ",", Colon: ":"}, `{"b":1,"a":[true,null,1.5,"\u00e9\u2028\ud83d\ude00\"\\\n\u0001"],"3":"x"}`},
		{Format{Indent: Spaces(1)}, "{\n \"b\": 1,\n \"a\": [\n  true,\n  null,\n  1.5,\n  \"é\u2028😀\\\"\\\\\\n\\u0001\"\n ],\n \"3\": \"x\"\n}"},
	} {
		got, err := Dump(v, c.f)
		if err != nil || got != c.want {
			t.Errorf("got %s, %v\nwant %s", got, err, c.want)
		}
	}
	if s, err := Dump(value.ListOf(math.NaN(), math.Inf(-1)), Format{}); err != nil || s != "[NaN, -Infinity]" {
		t.Error(s, err)
	}
	var te *TypeError
	if _, err := Dump([]byte("x"), Format{}); !errors.As(err, &te) || te.Type != "bytes" {
		t.Error(err)
	}
	if _, err := Dump(value.DictOf("a", 1, 2, 3), Format{SortKeys: true}); err == nil {
		t.Error("keys of two types were sorted")
	}
	l := value.ListOf()
	l.Append(l)
	if _, err := Dump(l, Format{}); !errors.Is(err, ErrCircular) {
		t.Error(err)
	}
}

// FuzzLoad checks that a loaded value can be written and loads as the same
// value again.
func FuzzLoad(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{`{"a": [1, 2.5, "x", null, true]}`, `"\ud83d\ude00"`, `[1e400, -0.0, NaN]`, `{"a": {"b": {}}}`, `"\ud800"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := Load(s)
		if err != nil {
			return
		}
		text, err := Dump(v, Format{ASCII: true})
		if err != nil {
			t.Fatal(err)
		}
		w, err := Load(text)
		if err != nil || value.Repr(w) != value.Repr(v) && !strings.Contains(value.Repr(v), `\udc`) {
			t.Fatalf("%q: %s, then %s, %v", s, value.Repr(v), value.Repr(w), err)
		}
	})
}
