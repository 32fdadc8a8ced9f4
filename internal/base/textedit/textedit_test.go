package textedit

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"brine/internal/py/pyre"
	"brine/test/fuzztest"
)

// edit is a recorded edit of stock Salt, see testdata/record.py.
type edit struct {
	Text   string
	Args   map[string]any
	Result *string
	Error  string
}

func (e edit) str(key string) string { s, _ := e.Args[key].(string); return s }

func (e edit) ptr(key string) *string {
	if s, ok := e.Args[key].(string); ok {
		return &s
	}
	return nil
}

func (e edit) is(key string) bool { b, _ := e.Args[key].(bool); return b }

type recorded struct {
	Line, Replace, Block, Comment []edit
	Diff                          []struct {
		A, B []string
		Diff string
	}
}

func load(t testing.TB) (r recorded) {
	t.Helper()
	b, err := os.ReadFile("testdata/edits.json")
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// check compares with the result of Salt. Error messages are compared if they
// are Salt's own, not Python's.
func (e edit) check(t *testing.T, got string, err error) {
	t.Helper()
	switch {
	case e.Result == nil && err == nil:
		t.Errorf("%q by %v: %q, want the error %q", e.Text, e.Args, got, e.Error)
	case e.Result != nil && (err != nil || got != *e.Result):
		t.Errorf("%q by %v: %q, %v; want %q", e.Text, e.Args, got, err, *e.Result)
	}
}

func TestLine(t *testing.T) {
	for _, e := range load(t).Line {
		indent := true
		if v, ok := e.Args["indent"].(bool); ok {
			indent = v
		}
		got, err := Line{
			Mode: e.str("mode"), Content: e.ptr("content"), Match: e.str("match"), Location: e.str("location"),
			Before: e.ptr("before"), After: e.ptr("after"), Indent: indent,
		}.Apply(e.Text)
		if strings.Contains(e.Text, "\r") && e.Result != nil { // Salt ends the new line with \n, Brine like the other lines
			if strings.Count(got, "\r") != strings.Count(got, "\n") {
				t.Errorf("%q by %v: mixed ends in %q", e.Text, e.Args, got)
			}
			got = strings.ReplaceAll(got, "\r", "")
			*e.Result = strings.ReplaceAll(*e.Result, "\r", "")
		}
		e.check(t, got, err)
		if err != nil && err.Error() != e.Error {
			t.Errorf("%q by %v: %v, want %q", e.Text, e.Args, err, e.Error)
		}
	}
}

func TestReplace(t *testing.T) {
	for _, e := range load(t).Replace {
		if strings.Contains(e.Error, "codec can't decode") {
			continue // Salt splits a multi-byte character
		}
		o := ReplaceOptions{
			Flags: pyre.MultiLine, Literal: e.is("backslash_literal"), Append: e.is("append_if_not_found"), Prepend: e.is("prepend_if_not_found"),
			NotFound: e.ptr("not_found_content"),
		}
		if n, ok := e.Args["count"].(float64); ok {
			o.Count = int(n)
		}
		if _, ok := e.Args["flags"]; ok {
			o.Flags = pyre.IgnoreCase | pyre.DotAll
		}
		got, err := Replace(e.Text, e.str("pattern"), e.str("repl"), o)
		e.check(t, got, err)
	}
}

func TestBlock(t *testing.T) {
	for _, e := range load(t).Block {
		newline := "no"
		if v, ok := e.Args["append_newline"]; ok {
			newline = map[any]string{true: "yes", nil: "auto"}[v]
		}
		got, err := Block{
			Start: e.str("marker_start"), End: e.str("marker_end"), Content: e.str("content"), Newline: newline, Append: e.is("append_if_not_found"),
			Prepend: e.is("prepend_if_not_found"), Before: e.str("insert_before_match"), After: e.str("insert_after_match"),
		}.Apply(e.Text)
		e.check(t, got, err)
		if err != nil && err.Error() != e.Error {
			t.Errorf("%q by %v: %v, want %q", e.Text, e.Args, err, e.Error)
		}
	}
}

func TestComment(t *testing.T) {
	for _, e := range load(t).Comment {
		do := Uncomment
		if e.is("cmnt") {
			do = Comment
		}
		got, _, err := do(e.Text, e.str("regex"), e.str("char"))
		e.check(t, got, err)
	}
}

func TestDiff(t *testing.T) {
	for _, d := range load(t).Diff {
		if got := DiffLines(d.A, d.B, "", ""); got != d.Diff {
			t.Errorf("%q, %q:\n%swant\n%s", d.A, d.B, got, d.Diff)
		}
	}
}

func TestDiffAround(t *testing.T) {
	old, now := strings.SplitAfter("a\nb\nc\nd\ne\n", "\n"), strings.SplitAfter("a\nB\nc\nd\ne\nf\n", "\n")
	want := "--- \n+++ \n@@ -2 +2 @@\n-b\n+B\n@@ -5,0 +6 @@\n+f\n"
	if got := strings.Join(DiffAround(old[:5], now[:6], "", "", 0), ""); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// apply applies a diff, to check that it is correct.
func apply(old, diff string) string {
	var out strings.Builder
	rest := splitAny(old)
	at := 0
	for i, l := range strings.SplitAfter(diff, "\n") {
		switch {
		case i < 2 || l == "":
		case strings.HasPrefix(l, "@@"):
			var from int
			for _, c := range strings.TrimPrefix(l, "@@ -") {
				if c < '0' || c > '9' {
					break
				}
				from = 10*from + int(c-'0')
			}
			if !strings.Contains(strings.Fields(l)[1], ",0") {
				from--
			}
			for ; at < from; at++ {
				out.WriteString(rest[at])
			}
		case l[0] == ' ':
			out.WriteString(rest[at])
			at++
		case l[0] == '-':
			at++
		case l[0] == '+':
			out.WriteString(l[1:])
		}
	}
	for ; at < len(rest); at++ {
		out.WriteString(rest[at])
	}
	return out.String()
}

func FuzzDiff(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add("a\nb\n", "a\nc\n")
	f.Add(strings.Repeat("x\ny\n", 150), strings.Repeat("y\nx\n", 150))
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 4000 || strings.Contains(a+b, "\r") || !utf8.ValidString(a) || !utf8.ValidString(b) {
			return
		}
		a, b = a+"\n", b+"\n"
		d := Diff(a, b, "", "")
		if (d == "") != (a == b) {
			t.Errorf("%q, %q: %q", a, b, d)
		}
		if d != "" && apply(a, d) != b {
			t.Errorf("%q, %q: the diff yields %q", a, b, apply(a, d))
		}
	})
}

func BenchmarkDiff(b *testing.B) {
	old := strings.Repeat("the same\n", 50) + strings.Repeat("a line\nanother\n", 1000)
	changed := strings.Replace(old, "another", "one more", 20)
	for b.Loop() {
		Diff(old, changed, "", "")
	}
}

func TestReplaceOfBytes(t *testing.T) {
	if got, err := Replace("\xff a \xfe", "a (.)", `\1-é`, ReplaceOptions{}); err != nil || got != "\xff \xfe-é" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"interface", "master", "master_port", "publish_port", "id"}
	for word, want := range map[string]string{
		"interfcae": "interface", "mastre": "master", "masterport": "master_port", "publishport": "publish_port",
		"interface_": "interface", "completely_else": "", "di": "id", "x": "",
		"master_prot": "master_port",
	} {
		if got := strings.Join(Nearest(word, names), " "); got != want {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}

// TestDiffOfBytes checks that text that is not UTF-8 is shown as Latin-1,
// encoded in UTF-8.
func TestDiffOfBytes(t *testing.T) {
	want := "--- \n+++ \n@@ -1,2 +1,2 @@\n-\u00ff\u00fe\n-\u00c3\u00a9\n+\u00e9\n+b\n"
	if got := Diff("\xff\xfe\n\xc3\xa9\n", "\u00e9\nb\n", "", ""); got != want {
		t.Errorf("got %q", got)
	}
}
