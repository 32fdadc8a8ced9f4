package value

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"math/big"
	"os"
	"strconv"
	"testing"
	"unicode"
)

// golden is testdata/python.json, written by testdata/generate.py.
type golden struct {
	Strings       [][2]string      `json:"strings"`
	Bytes         [][2]string      `json:"bytes"`
	Floats        [][2]string      `json:"floats"`
	Numbers       []map[string]any `json:"numbers"`
	Compare       [][]int          `json:"compare"`
	SameKey       []int            `json:"same_key"`
	Unprintable   []rune           `json:"unprintable"`
	PrintableRuns [][2]rune        `json:"printable_runs"`
}

func readGolden(t *testing.T) *golden {
	t.Helper()
	text, err := os.ReadFile("testdata/python.json")
	if err != nil {
		t.Fatal(err)
	}
	g := new(golden)
	if err := json.Unmarshal(text, g); err != nil {
		t.Fatal(err)
	}
	if len(g.Strings) == 0 || len(g.Bytes) == 0 || len(g.Floats) == 0 || len(g.Numbers) == 0 || len(g.PrintableRuns) == 0 {
		t.Fatal("testdata/python.json is incomplete")
	}
	return g
}

func float(t *testing.T, bits string) float64 {
	t.Helper()
	u, err := strconv.ParseUint(bits, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return math.Float64frombits(u)
}

func (g *golden) numbers(t *testing.T) []any {
	t.Helper()
	var out []any
	for _, n := range g.Numbers {
		switch {
		case n["bool"] != nil:
			out = append(out, n["bool"])
		case n["float"] != nil:
			out = append(out, float(t, n["float"].(string)))
		default:
			i, ok := new(big.Int).SetString(n["int"].(string), 10)
			if !ok {
				t.Fatalf("bad number %v", n)
			}
			out = append(out, Big(i))
		}
	}
	return out
}

func TestReprMatchesPython(t *testing.T) {
	g := readGolden(t)
	for _, c := range g.Strings {
		if got := Repr(c[0]); got != c[1] {
			t.Errorf("Repr(%+q) = %s, Python has %s", c[0], got, c[1])
		}
		if got := Str(c[0]); got != c[0] {
			t.Errorf("Str(%q) = %q", c[0], got)
		}
	}
	for _, c := range g.Bytes {
		p, err := hex.DecodeString(c[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := Repr(p); got != c[1] {
			t.Errorf("Repr(%x) = %s, Python has %s", p, got, c[1])
		}
	}
	for _, c := range g.Floats {
		f := float(t, c[0])
		if got := Repr(f); got != c[1] {
			t.Errorf("Repr(%g) = %s, Python has %s", f, got, c[1])
		}
	}
}

// TestPrintable covers every character of Python 3.11; later Unicode versions
// may make more of them printable, never fewer.
func TestPrintable(t *testing.T) {
	g := readGolden(t)
	for _, run := range g.PrintableRuns {
		for r := run[0]; r < run[1]; r++ {
			if !printable(r) {
				t.Fatalf("%U is printable in Python", r)
			}
		}
	}
	for _, r := range g.Unprintable {
		if printable(r) && r != 0x180e && unicode.IsPrint(r) {
			t.Errorf("%U is not printable in Python", r)
		}
	}
}

func TestCompareMatchesPython(t *testing.T) {
	g := readGolden(t)
	nums := g.numbers(t)
	for i, a := range nums {
		for j, b := range nums {
			want := g.Compare[i][j]
			if got, ok := Compare(a, b); !ok || got != want {
				t.Errorf("Compare(%s, %s) = %d, %v; Python has %d", Repr(a), Repr(b), got, ok, want)
			}
			if got := Equal(a, b); got != (want == 0) {
				t.Errorf("Equal(%s, %s) = %v", Repr(a), Repr(b), got)
			}
		}
	}
}

// TestKeysMatchPython stores the index of every number, the first one wins, in
// a large dict and in small ones.
func TestKeysMatchPython(t *testing.T) {
	g := readGolden(t)
	nums := g.numbers(t)
	large := NewDict(0)
	for i, n := range nums {
		if !large.Has(n) {
			large.Set(n, i)
		}
		if got := large.At(n); got != g.SameKey[i] {
			t.Errorf("key %s has the value of number %v, in Python %d", Repr(n), got, g.SameKey[i])
		}
		for j, m := range nums {
			small := DictOf(m, true)
			if got, want := small.Has(n), g.Compare[i][j] == 0; got != want {
				t.Errorf("{%s: True} has %s: %v", Repr(m), Repr(n), got)
			}
		}
	}
}

func TestNaN(t *testing.T) {
	nan := math.NaN()
	if Equal(nan, nan) || Equal(nan, int64(1)) || Equal(new(big.Int).Lsh(big.NewInt(1), 80), nan) {
		t.Error("NaN equals something")
	}
}
