package value

import (
	"encoding/json"
	"math/big"
	"os"
	"strconv"
	"testing"

	"brine/test/fuzztest"
)

// untag decodes the tagged JSON written by testdata/traverse.py.
func untag(t *testing.T, v any) any {
	t.Helper()
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	list := func(v any) []any {
		var out []any
		for _, it := range v.([]any) {
			out = append(out, untag(t, it))
		}
		return out
	}
	for tag, inner := range m {
		switch tag {
		case "d":
			d := NewDict(0)
			for _, pair := range inner.([]any) {
				kv := list(pair)
				d.Set(kv[0], kv[1])
			}
			return d
		case "l":
			return &List{Items: list(inner)}
		case "t":
			return Tuple(list(inner))
		case "f":
			f, err := strconv.ParseFloat(inner.(string), 64)
			if err != nil {
				t.Fatal(err)
			}
			return f
		case "i":
			i, _ := new(big.Int).SetString(inner.(string), 10)
			return Big(i)
		}
	}
	t.Fatalf("unknown tag in %v", m)
	return nil
}

// TestTraverse compares Traverse with recorded results of Salt's function.
func TestTraverse(t *testing.T) {
	text, err := os.ReadFile("testdata/traverse.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Data  any     `json:"data"`
		Cases [][]any `json:"cases"`
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	data := untag(t, golden.Data)
	for _, c := range golden.Cases {
		path, delim, wantOK, want := c[0].(string), c[1].(string), c[2].(bool), untag(t, c[3])
		got, ok := Traverse(data, path, delim)
		if ok != wantOK || !Equal(got, want) {
			t.Errorf("Traverse(%q, %q) = %s, %v; Salt finds %s, %v", path, delim, Repr(got), ok, Repr(want), wantOK)
		}
	}
	if len(golden.Cases) < 100 {
		t.Errorf("only %d cases", len(golden.Cases))
	}
}

func TestTraverseDefaultDelimiter(t *testing.T) {
	got, ok := Traverse(DictOf("a", DictOf("b", 1)), "a:b", "")
	if !ok || got != int64(1) {
		t.Errorf("got %v, %v", got, ok)
	}
}

func FuzzTraverse(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"a:b:0", "1", "0x1", "1.0e+3", "-", "_", "+_1", ""} {
		f.Add(s)
	}
	data := DictOf("a", DictOf("b", ListOf(1, DictOf("x", 2))), 1, "one", 2.5, Tuple{int64(1)})
	f.Fuzz(func(t *testing.T, path string) {
		if v, ok := Traverse(data, path, ":"); ok && v == nil {
			t.Errorf("%q returned nil, which the data does not contain", path)
		}
	})
}
