package pyre

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"brine/test/fuzztest"
)

// recorded holds results of Python's re, see testdata/record.py.
type recorded struct {
	Cases []struct {
		Pattern string
		Error   bool
		Groups  int
		Names   map[string]int
		Texts   []struct {
			Text                string
			Search, Match, Full any
			All                 []any
			Split, Split1       []*string
		}
	}
	Subs []struct {
		Pattern, Repl, Text, All, One string
		N                             int
		Error                         bool
	}
	Escape [][2]string
}

func load(t testing.TB) (r recorded) {
	t.Helper()
	b, err := os.ReadFile("testdata/re.json")
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shape is a match in the form of the recording.
func shape(m *Match) any {
	if m == nil {
		return nil
	}
	groups := []any{}
	for i := 1; i <= m.re.Groups(); i++ {
		if s, ok := m.Group(i); ok {
			groups = append(groups, s)
		} else {
			groups = append(groups, nil)
		}
	}
	b, e := m.Span(0)
	return []any{m.Text(), []any{float64(b), float64(e)}, groups}
}

func TestAgainstPython(t *testing.T) {
	for _, c := range load(t).Cases {
		r, err := Compile(c.Pattern, 0)
		if c.Error {
			if !errors.Is(err, ErrPattern) {
				t.Errorf("%q: %v, Python refuses it", c.Pattern, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.Pattern, err)
			continue
		}
		if r.Groups() != c.Groups || len(c.Names) != len(r.Names()) {
			t.Errorf("%q: %d groups, names %v; want %d, %v", c.Pattern, r.Groups(), r.Names(), c.Groups, c.Names)
		}
		for _, x := range c.Texts {
			check := func(what string, got, want any, err error) {
				t.Helper()
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s of %q in %q: %v, %v; want %v", what, c.Pattern, x.Text, got, err, want)
				}
			}
			m, err := r.Search(x.Text)
			check("search", shape(m), x.Search, err)
			m, err = r.Match(x.Text)
			check("match", shape(m), x.Match, err)
			m, err = r.FullMatch(x.Text)
			check("fullmatch", shape(m), x.Full, err)
			all, err := r.FindAll(x.Text)
			got := []any{}
			for _, m := range all {
				got = append(got, shape(m))
			}
			check("all", got, x.All, err)
			parts, err := r.Split(x.Text, 0)
			check("split", parts, x.Split, err)
			parts, err = r.Split(x.Text, 1)
			check("split once", parts, x.Split1, err)
		}
	}
}

func TestSubAgainstPython(t *testing.T) {
	for _, c := range load(t).Subs {
		r, err := Compile(c.Pattern, 0)
		if err != nil {
			t.Fatal(err)
		}
		got, n, err := r.Sub(c.Repl, c.Text, 0)
		if c.Error {
			if !errors.Is(err, ErrPattern) {
				t.Errorf("%q by %q: %q, %v; Python refuses it", c.Pattern, c.Repl, got, err)
			}
			continue
		}
		if err != nil || got != c.All || n != c.N {
			t.Errorf("%q by %q in %q: %q, %d, %v; want %q, %d", c.Pattern, c.Repl, c.Text, got, n, err, c.All, c.N)
		}
		if got, _, err = r.Sub(c.Repl, c.Text, 1); err != nil || got != c.One {
			t.Errorf("%q by %q in %q, once: %q, %v; want %q", c.Pattern, c.Repl, c.Text, got, err, c.One)
		}
	}
}

func TestEscape(t *testing.T) {
	for _, c := range load(t).Escape {
		if got := Escape(c[0]); got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}

func TestFlags(t *testing.T) {
	for pattern, flags := range map[string]Flags{"b\n  c # x": Verbose, "B.C": IgnoreCase | DotAll, "^c$": MultiLine} {
		r, err := Compile(pattern, flags)
		if err != nil {
			t.Fatal(err)
		}
		text := map[Flags]string{Verbose: "bc"}[flags]
		if text == "" {
			text = "b\nc"
		}
		if m, err := r.Search(text); m == nil || err != nil {
			t.Errorf("%q: %v, %v", pattern, m, err)
		}
	}
	if f, ok := FlagByName("multiline"); !ok || f != MultiLine {
		t.Errorf("multiline: %v, %v", f, ok)
	}
}

func TestCatastrophicBacktracking(t *testing.T) {
	r, err := Compile(`(a*)*b`, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.re.MatchTimeout = Timeout / 50
	if m, err := r.Search(strings.Repeat("a", 5000)); m != nil {
		t.Errorf("found %v, %v", m, err)
	}
	if _, err := Compile(strings.Repeat("a", maxPattern+1), 0); !errors.Is(err, ErrPattern) {
		t.Errorf("a huge pattern: %v", err)
	}
}

func TestLargeTexts(t *testing.T) {
	text := "begin\n" + strings.Repeat("x y z\n", 200_000) + "end\n"
	for _, pattern := range []string{`(?s)begin.*?end`, `(?s)begin.*end`, `(?m)^end$`} {
		r, err := Compile(pattern, 0)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := r.Search(text); m == nil || err != nil {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

func FuzzCompile(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	rec := load(f)
	for _, c := range rec.Cases {
		f.Add(c.Pattern, `\1`, "abc")
	}
	for _, c := range rec.Subs {
		f.Add(c.Pattern, c.Repl, c.Text)
	}
	f.Fuzz(func(t *testing.T, pattern, repl, text string) {
		r, err := Compile(pattern, 0)
		if err != nil {
			return
		}
		r.re.MatchTimeout = Timeout / 100
		_, _, _ = r.Sub(repl, text, 0)
		_, _ = r.Split(text, 3)
	})
}
