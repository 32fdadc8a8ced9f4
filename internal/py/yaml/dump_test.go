package yaml

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"math/big"
	"os"
	"strconv"
	"testing"

	"brine/internal/py/value"
	"brine/test/fuzztest"
)

var styles = map[string][]Option{
	"block":   nil,
	"auto":    {FlowLeaves()},
	"flow":    {Flow()},
	"indent4": {Indent(4)},
	"ascii":   {ASCII()},
}

// decode decodes a value in the notation of testdata/dump.py.
func decode(t testing.TB, v any) any {
	switch x := v.(type) {
	case []any:
		l := &value.List{}
		for _, it := range x {
			l.Append(decode(t, it))
		}
		return l
	case map[string]any:
		return decodeTyped(t, x)
	}
	return v
}

func decodeTyped(t testing.TB, x map[string]any) any {
	if n, ok := x["n"].(string); ok {
		if i, ok := new(big.Int).SetString(n, 10); ok {
			return value.Big(i)
		}
		f, err := strconv.ParseFloat(n, 64)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if s, ok := x["b"].(string); ok {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if items, ok := x["t"].([]any); ok {
		tu := value.Tuple{}
		for _, it := range items {
			tu = append(tu, decode(t, it))
		}
		return tu
	}
	d := value.NewDict(0)
	for _, pair := range x["d"].([]any) {
		d.Set(decode(t, pair.([]any)[0]), decode(t, pair.([]any)[1]))
	}
	return d
}

func readJSON(t testing.TB, name string, out any) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
}

func TestDumpAsSalt(t *testing.T) {
	var rows []struct {
		Value any
		Texts map[string]string
	}
	readJSON(t, "dump.json", &rows)
	if len(rows) < 1000 {
		t.Fatalf("only %d rows", len(rows))
	}
	for _, r := range rows {
		v := decode(t, r.Value)
		for style, want := range r.Texts {
			if got := Dump(v, styles[style]...); got != want {
				t.Errorf("%s of %s:\ngot  %q\nSalt %q", style, value.Repr(v), got, want)
			}
		}
	}
}

func TestDumpShared(t *testing.T) {
	var want map[string]map[string]string
	readJSON(t, "shared.json", &want)
	a, d, e := value.ListOf(1), value.DictOf("k", "v"), value.ListOf()
	rec := value.ListOf(1)
	rec.Append(rec)
	for name, v := range map[string]any{
		"list":  value.ListOf(a, a),
		"dict":  value.DictOf("x", d, "y", d, "z", value.ListOf(d, a, a)),
		"empty": value.ListOf(e, e),
		"deep":  value.DictOf("a", value.DictOf("b", d), "c", value.DictOf("d", d)),
		"rec":   rec,
	} {
		for style, text := range want[name] {
			if got := Dump(v, styles[style]...); got != text {
				t.Errorf("%s %s:\ngot  %q\nSalt %q", style, name, got, text)
			}
		}
	}
}

func TestDumpOptions(t *testing.T) {
	d := value.DictOf("b", 1, "a", 2)
	if got := Dump(d, KeepOrder()); got != "b: 1\na: 2\n" {
		t.Errorf("KeepOrder: %q", got)
	}
	words := "aaaa bbbb cccc dddd eeee"
	if got := Dump(words, Width(10)); got != "aaaa bbbb cccc\n  dddd eeee\n" {
		t.Errorf("Width: %q", got)
	}
	if got := Dump(value.Const{Name: "X"}); got != "NULL\n" {
		t.Errorf("constant: %q", got)
	}
}

// FuzzDump checks that a dumped value loads as the same value.
func FuzzDump(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, g := range readGolden(f, "load.json") {
		f.Add([]byte(g.Doc))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Load(data, "")
		if err != nil {
			return
		}
		if depth(v) > MaxDepth-4 { // another style may reach the limit earlier than the input
			return
		}
		for name, o := range styles {
			text := Dump(v, o...)
			w, err := Load([]byte(text), "")
			if err != nil {
				t.Fatalf("%s: %v in\n%s", name, err, text)
			}
			if !same(v, w) {
				t.Fatalf("%s: %s became\n%s, which is %s", name, value.Repr(v), text, value.Repr(w))
			}
		}
	})
}

func depth(v any) int {
	n := 0
	switch x := v.(type) {
	case *value.List:
		for _, it := range x.Items {
			n = max(n, depth(it))
		}
	case value.Tuple:
		for _, it := range x {
			n = max(n, depth(it))
		}
	case *value.Dict:
		for _, it := range x.All() {
			n = max(n, depth(it))
		}
	default:
		return 0
	}
	return n + 1
}

// same is equality that treats tuples as lists and NaN as equal to itself.
func same(a, b any) bool {
	switch x := a.(type) {
	case float64:
		y, ok := b.(float64)
		return ok && (x == y || math.IsNaN(x) && math.IsNaN(y))
	case value.Tuple:
		return same(&value.List{Items: x}, b)
	case *value.List:
		y, ok := b.(*value.List)
		if !ok || x.Len() != y.Len() {
			return false
		}
		for i := range x.Items {
			if !same(x.Items[i], y.Items[i]) {
				return false
			}
		}
		return true
	case *value.Dict:
		y, ok := b.(*value.Dict)
		if !ok || x.Len() != y.Len() {
			return false
		}
		for k, v := range x.All() {
			if f, ok := k.(float64); ok && math.IsNaN(f) {
				continue
			}
			w, ok := y.Get(k)
			if !ok || !same(v, w) {
				return false
			}
		}
		return true
	}
	return value.Equal(a, b)
}
