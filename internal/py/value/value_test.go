package value

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"
)

func bigInt(s string) *big.Int {
	i, ok := new(big.Int).SetString(s, 10)
	if !ok {
		panic(s)
	}
	return i
}

// keys returns the keys of d as one string.
func keys(d *Dict) string { return Repr(&List{Items: d.Keys()}) }

// check fails unless every entry of d is found under its own key.
func check(t *testing.T, d *Dict) {
	t.Helper()
	for i := range d.Len() {
		k, v := d.Entry(i)
		if got, ok := d.Get(k); !ok || !Equal(got, v) {
			t.Fatalf("of %d entries, number %d: key %s gives %s, %v, want %s", d.Len(), i, Repr(k), Repr(got), ok, Repr(v))
		}
	}
}

func TestDictOrder(t *testing.T) {
	for _, n := range []int{0, 1, smallDict, smallDict + 1, 100} {
		d := NewDict(0)
		var want []any
		for i := range n {
			k := fmt.Sprint("k", (i*37)%101)
			d.Set(k, int64(i))
			want = append(want, k)
		}
		for i := range n {
			d.Set(want[n-1-i], int64(-i)) // replacing keeps the position
		}
		if !slices.Equal(d.Keys(), want) || d.Len() != n {
			t.Errorf("%d entries: order %v, want %v", n, d.Keys(), want)
		}
		check(t, d)
	}
}

func TestDictKeepsFirstSpelling(t *testing.T) {
	d := DictOf(1, "a")
	d.Set(true, "b")
	d.Set(1.0, "c")
	d.Set("1", "text")
	d.Set([]byte("1"), "bytes")
	if got, want := Repr(d), `{1: 'c', '1': 'text', b'1': 'bytes'}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDictTupleKeys(t *testing.T) {
	same := []any{Tuple{int64(1), "a"}, Tuple{1.0, "a"}, Tuple{true, "a"}, Tuple{big.NewInt(1), "a"}}
	others := []any{Tuple{"1", "a"}, Tuple{int64(1), []byte("a")}, Tuple{Tuple{int64(1)}, "a"}, Tuple{int64(1)}, Tuple{}, Tuple{nil},
		Tuple{"a,b"}, Tuple{"a", "b"}, Tuple{"a", "b,"}, Tuple{Tuple{"a"}, "b"}, Tuple{Tuple{"a", "b"}}, `(1, 'a')`, Tuple{1.5}, Tuple{"1.5"}}
	for _, filler := range []int{0, 20} {
		d := NewDict(0)
		for i := range filler {
			d.Set(fmt.Sprint("filler", i), int64(i))
		}
		d.Set(same[0], "tuple")
		for _, k := range same {
			if d.At(k) != "tuple" {
				t.Errorf("key %s is not found", Repr(k))
			}
		}
		for _, k := range others {
			if d.Has(k) {
				t.Errorf("key %s is there already", Repr(k))
			}
			d.Set(k, Repr(k))
		}
		if d.Len() != filler+1+len(others) {
			t.Errorf("%d entries: %s", d.Len(), keys(d))
		}
		check(t, d)
	}
}

func TestDictDelete(t *testing.T) {
	const n = 30
	d := NewDict(0)
	for i := range n {
		d.Set(int64(i), int64(i*i))
	}
	for i := range n {
		k := int64(i*7) % n
		if !d.Delete(float64(k)) {
			t.Fatalf("key %d is gone", k)
		}
		if d.Delete(k) || d.Has(k) {
			t.Fatalf("key %d is still there", k)
		}
		check(t, d)
		if d.Len() != n-1-i {
			t.Fatalf("length %d after %d deletes", d.Len(), i+1)
		}
	}
	d.Set("again", int64(1))
	check(t, d)
	if got := Repr(d); got != "{'again': 1}" {
		t.Error(got)
	}
}

func TestDictInsert(t *testing.T) {
	// Sizes on both sides of smallDict. Some dicts have shrunk and so have an
	// index though they are small.
	for n := range 2*smallDict + 1 {
		for cut := range n + 1 {
			d := NewDict(0)
			for i := range n {
				d.Set(fmt.Sprint(i), int64(i))
			}
			for i := range cut {
				d.Delete(fmt.Sprint(i))
			}
			d.Insert(0, "new", "x")
			if k, _ := d.Entry(0); k != "new" || d.Len() != n-cut+1 {
				t.Fatalf("n %d cut %d: %s", n, cut, keys(d))
			}
			check(t, d)
			d.Insert(d.Len(), "new", "y") // moves it
			if k, v := d.Entry(d.Len() - 1); k != "new" || v != "y" || d.Len() != n-cut+1 {
				t.Fatalf("n %d cut %d: %s", n, cut, keys(d))
			}
			check(t, d)
		}
	}
}

func TestDictRefusesUnhashable(t *testing.T) {
	for _, k := range []any{ListOf(), NewDict(0), Tuple{"a", Tuple{ListOf()}}} {
		for name, do := range map[string]func(){
			"Set":    func() { NewDict(0).Set(k, 1) },
			"Insert": func() { NewDict(0).Insert(0, k, 1) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s accepts %s as key", name, Repr(k))
					}
				}()
				do()
			}()
		}
	}
}

func TestDictZeroAndNil(t *testing.T) {
	var zero Dict
	zero.Set("a", int64(1))
	if zero.Len() != 1 || zero.At("a") != int64(1) {
		t.Error("the zero dict does not work")
	}
	var none *Dict
	if none.Len() != 0 || none.Has("a") || none.At("a") != nil || none.Str("a") != "" || none.Dict("a").Len() != 0 || none.List("a") != nil ||
		len(none.Keys()) != 0 || none.Clone().Len() != 0 {
		t.Error("a nil dict is not empty")
	}
	for range none.All() {
		t.Error("a nil dict has entries")
	}
	if none.Delete("a") {
		t.Error("deleted from a nil dict")
	}
	var list *List
	if Repr(list) != "[]" || !Equal(list, ListOf()) || DeepCopy(list).(*List).Len() != 0 || Truth(list) {
		t.Error("a nil list is not empty")
	}
}

func TestDictAccessors(t *testing.T) {
	d := DictOf("s", "text", "b", []byte("blob"), "i", 7, "f", 2.9, "t", true, "d", DictOf("x", 1), "l", []string{"p"}, "tu", Tuple{"q"}, "n", nil)
	for _, c := range []struct{ got, want any }{
		{d.Str("s"), "text"}, {d.Str("b"), "blob"}, {d.Str("i"), ""}, {string(d.Bytes("s")), "text"}, {string(d.Bytes("b")), "blob"},
		{d.Int("i"), int64(7)}, {d.Int("f"), int64(2)}, {d.Int("t"), int64(1)}, {d.Int("s"), int64(0)},
		{d.Bool("t"), true}, {d.Bool("n"), false}, {d.Bool("missing"), false}, {d.Dict("d").Int("x"), int64(1)}, {d.Dict("s").Len(), 0},
		{len(d.List("l")), 1}, {len(d.List("tu")), 1}, {len(d.List("s")), 0}, {d.Has("n"), true}, {d.Has("missing"), false},
	} {
		if c.got != c.want {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
}

func TestCloneUpdateDeepCopy(t *testing.T) {
	inner := ListOf(1)
	for _, n := range []int{1, 20} {
		d := DictOf("l", inner)
		for i := range n {
			d.Set(int64(i), int64(i))
		}
		c := d.Clone()
		deep := DeepCopy(Tuple{d}).(Tuple)[0].(*Dict)
		c.Set("new", int64(1))
		c.Delete(int64(0))
		if d.Has("new") || !d.Has(int64(0)) {
			t.Error("a change of the clone shows in the original")
		}
		if c.At("l") != any(inner) || deep.At("l") == any(inner) || !Equal(deep, d) {
			t.Error("clones share nested lists, deep copies do not")
		}
		check(t, c)
		check(t, deep)
		u := DictOf(0, "old", "z", 1)
		u.Update(d)
		if !Equal(u.At(int64(0)), int64(0)) || u.Len() != n+2 {
			t.Errorf("update gives %s", Repr(u))
		}
	}
}

func TestAllReplacesAndStops(t *testing.T) {
	d := DictOf("a", 1, "b", 2, "c", 3)
	for k, v := range d.All() {
		if k == "c" {
			break
		}
		d.Set(k, v.(int64)*10)
	}
	if got := Repr(d); got != "{'a': 10, 'b': 20, 'c': 3}" {
		t.Error(got)
	}
}

func TestReprOfContainers(t *testing.T) {
	when := time.Date(2024, 5, 6, 7, 8, 0, 0, time.UTC)
	for _, c := range []struct {
		v         any
		repr, str string
	}{
		{nil, "None", ""},
		{true, "True", ""},
		{false, "False", ""},
		{int64(-5), "-5", ""},
		{bigInt("123456789012345678901234567890"), "123456789012345678901234567890", ""},
		{ListOf(), "[]", ""},
		{ListOf(1, "a", nil), "[1, 'a', None]", ""},
		{Tuple{}, "()", ""},
		{Tuple{int64(1)}, "(1,)", ""},
		{Tuple{int64(1), 2.0}, "(1, 2.0)", ""},
		{NewDict(0), "{}", ""},
		{DictOf("a", ListOf(DictOf(1, true)), nil, Tuple{"x"}), "{'a': [{1: True}], None: ('x',)}", ""},
		{when, "datetime.datetime(2024, 5, 6, 7, 8)", "2024-05-06 07:08:00"},
		{when.Add(9 * time.Second), "datetime.datetime(2024, 5, 6, 7, 8, 9)", "2024-05-06 07:08:09"},
		{when.Add(500 * time.Microsecond), "datetime.datetime(2024, 5, 6, 7, 8, 0, 500)", "2024-05-06 07:08:00.000500"},
		{Const{Name: "VALUE_TRIMMED", Value: "x"}, "VALUE_TRIMMED", ""},
		{Ext{Type: 5, Data: []byte("a")}, "ExtType(code=5, data=b'a')", ""},
		{"bad \xff utf-8", `'bad \udcff utf-8'`, "bad \xff utf-8"},
	} {
		if got := Repr(c.v); got != c.repr {
			t.Errorf("Repr = %s, want %s", got, c.repr)
		}
		want := c.str
		if want == "" {
			want = c.repr
		}
		if got := Str(c.v); got != want {
			t.Errorf("Str = %s, want %s", got, want)
		}
	}
}

func TestEqual(t *testing.T) {
	huge := bigInt("99999999999999999999")
	for _, c := range []struct {
		a, b any
		want bool
	}{
		{nil, nil, true}, {nil, false, false}, {nil, int64(0), false}, {"", nil, false},
		{"a", "a", true}, {"a", []byte("a"), false}, {[]byte("a"), []byte("a"), true},
		{ListOf(1), ListOf(1.0), true}, {ListOf(1), Tuple{int64(1)}, false}, {Tuple{int64(1)}, Tuple{true}, true},
		{ListOf(1), ListOf(1, 2), false},
		{DictOf("a", 1, "b", 2), DictOf("b", 2, "a", 1), true}, {DictOf("a", 1), DictOf("a", 2), false}, {DictOf("a", 1), DictOf("b", 1), false},
		{DictOf(1, "x"), DictOf(true, "x"), true}, {DictOf("a", nil), DictOf("b", nil), false},
		{huge, bigInt("99999999999999999999"), true}, {huge, int64(1), false}, {huge, 1e20, false}, {big.NewInt(5), int64(5), true},
		{time.Unix(5, 0).UTC(), time.Unix(5, 0), true}, {time.Unix(5, 0), int64(5), false},
		{Const{"A", 1.0}, Const{"A", int64(1)}, true}, {Const{"A", nil}, Const{"B", nil}, false},
		{Ext{1, []byte("a")}, Ext{1, []byte("a")}, true}, {Ext{1, []byte("a")}, Ext{2, []byte("a")}, false},
		{DictOf("a", huge), DictOf("a", huge), true},
	} {
		if Equal(c.a, c.b) != c.want || Equal(c.b, c.a) != c.want {
			t.Errorf("Equal(%s, %s) is not %v both ways", Repr(c.a), Repr(c.b), c.want)
		}
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		a, b any
		want int
	}{
		{"a", "b", -1}, {"a", "a", 0}, {"é", "z", 1}, {[]byte("a"), []byte("b"), -1}, {"", "a", -1},
		{ListOf(1, 2), ListOf(1, 3), -1}, {ListOf(1, 2), ListOf(1), 1}, {ListOf(), ListOf(), 0}, {Tuple{"a"}, Tuple{"b"}, -1},
		{ListOf(nil, 1), ListOf(nil, 2), -1}, // equal items need no order
		{time.Unix(1, 0), time.Unix(2, 0), -1},
		{bigInt("-99999999999999999999"), -1e19, -1},
	} {
		if got, ok := Compare(c.a, c.b); !ok || got != c.want {
			t.Errorf("Compare(%s, %s) = %d, %v, want %d", Repr(c.a), Repr(c.b), got, ok, c.want)
		}
		if got, ok := Compare(c.b, c.a); !ok || got != -c.want {
			t.Errorf("Compare(%s, %s) = %d, %v, want %d", Repr(c.b), Repr(c.a), got, ok, -c.want)
		}
	}
	for _, c := range [][2]any{
		{nil, nil}, {nil, int64(1)}, {"a", int64(1)}, {"a", []byte("a")}, {ListOf(1), Tuple{int64(1)}}, {NewDict(0), NewDict(0)}, {ListOf("a"), ListOf(1)},
		{ListOf(nil), ListOf(1)},
	} {
		if _, ok := Compare(c[0], c[1]); ok {
			t.Errorf("Python raises a TypeError for %s < %s", Repr(c[0]), Repr(c[1]))
		}
	}
}

type (
	namedInt    uint16
	namedString string
)

func (s namedString) String() string { return "<" + string(s) + ">" }

func TestFrom(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{1, "1"}, {int8(-1), "-1"}, {int16(2), "2"}, {int32(3), "3"}, {uint8(4), "4"}, {uint16(5), "5"}, {uint32(6), "6"}, {uint(7), "7"},
		{uint64(1<<64 - 1), "18446744073709551615"}, {float32(0.5), "0.5"}, {[]any{1, "a"}, "[1, 'a']"}, {[]string{"x"}, "['x']"},
		{map[string]any{"b": 1, "a": []int{2}}, "{'a': [2], 'b': 1}"}, {map[string]string{"k": "v"}, "{'k': 'v'}"},
		{[]*Dict{DictOf("a", 1)}, "[{'a': 1}]"}, {1500 * time.Millisecond, "1.5"}, {errors.New("bad"), "'bad'"},
		{namedInt(8080), "8080"}, {namedString("x"), "'<x>'"}, {[]namedInt{1, 2}, "[1, 2]"}, {[]float64{1.5}, "[1.5]"},
		{[2]bool{true, false}, "[True, False]"},
		{nil, "None"}, {struct{ A int }{1}, "'{1}'"},
	} {
		if got := Repr(From(c.v)); got != c.want {
			t.Errorf("From(%T %v) = %s, want %s", c.v, c.v, got, c.want)
		}
	}
	l := ListOf("a")
	if From(l) != any(l) {
		t.Error("a list of the model is copied")
	}
	defer func() {
		if recover() == nil {
			t.Error("DictOf accepts a key without a value")
		}
	}()
	odd := slices.Repeat([]any{"a"}, 1)
	DictOf(odd...)
}

func TestTruthAndTypeName(t *testing.T) {
	for _, c := range []struct {
		v    any
		want bool
		name string
	}{
		{nil, false, "NoneType"}, {true, true, "bool"}, {false, false, "bool"}, {int64(0), false, "int"}, {int64(-1), true, "int"}, {0.0, false, "float"},
		{0.1, true, "float"},
		{new(big.Int), false, "int"}, {bigInt("99999999999999999999"), true, "int"}, {"", false, "str"}, {"0", true, "str"}, {[]byte{}, false, "bytes"},
		{[]byte{0}, true, "bytes"},
		{ListOf(), false, "list"}, {ListOf(nil), true, "list"}, {Tuple{}, false, "tuple"}, {Tuple{nil}, true, "tuple"}, {NewDict(0), false, "dict"},
		{DictOf("a", 1), true, "dict"},
		{time.Time{}, true, "datetime"}, {Const{}, true, "object"},
	} {
		if Truth(c.v) != c.want || TypeName(c.v) != c.name {
			t.Errorf("%s: truth %v, type %s", Repr(c.v), Truth(c.v), TypeName(c.v))
		}
	}
}

func BenchmarkDictGet(b *testing.B) {
	for _, n := range []int{4, 100} {
		d := NewDict(n)
		for i := range n {
			d.Set(fmt.Sprint("key", i), int64(i))
		}
		var key any = fmt.Sprint("key", n-1)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d.Get(key)
			}
		})
	}
}
