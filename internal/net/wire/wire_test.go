package wire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// sample has one field of each kind.
type sample struct {
	Any   any         `wire:"any,omitempty"`
	Text  string      `wire:"text,required" max:"5"`
	Bytes []byte      `wire:"bytes,omitempty" max:"3"`
	Int   int64       `wire:"int,omitempty"`
	Bool  bool        `wire:"bool,omitempty"`
	Dict  *value.Dict `wire:"dict,omitempty"`
	List  *value.List `wire:"list,omitempty" max:"2"`
	Texts []string    `wire:"texts,omitempty"`
	Rest  *value.Dict `wire:"*"`
}

func TestDecode(t *testing.T) {
	inner := value.DictOf("k", int64(1))
	d := value.DictOf("new", int64(7), "text", "abc", "any", true, "bytes", []byte("x"), "int", int64(-3), "bool", "yes",
		"dict", inner, "list", value.Tuple{"a", int64(1)}, "texts", value.ListOf("a", "b"), int64(5), "a number as key")
	var got sample
	if err := Decode(d, &got); err != nil {
		t.Fatal(err)
	}
	want := sample{Any: true, Text: "abc", Bytes: []byte("x"), Int: -3, Bool: true, Dict: inner, List: value.ListOf("a", int64(1)),
		Texts: []string{"a", "b"}, Rest: value.DictOf("new", int64(7), int64(5), "a number as key")}
	if !reflect.DeepEqual(got.List.Items, want.List.Items) || !value.Equal(got.Rest, want.Rest) {
		t.Errorf("list %v, rest %s", got.List.Items, value.Repr(got.Rest))
	}
	got.List, want.List, got.Rest, want.Rest = nil, nil, nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestDecodeForgets: a struct that is reused keeps nothing of the first
// message.
func TestDecodeForgets(t *testing.T) {
	got := sample{Any: 1, Text: "old", Bytes: []byte("x"), Int: 1, Bool: true, Dict: value.NewDict(0), List: &value.List{}, Texts: []string{"x"},
		Rest: value.DictOf("a", "b")}
	if err := Decode(value.DictOf("text", "new", "int", nil), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, sample{Text: "new"}) {
		t.Errorf("%+v", got)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct {
		d    *value.Dict
		want Error
	}{
		{nil, Error{"text", "a text of at most 5 bytes", ""}},
		{value.DictOf("text", "123456"), Error{"text", "a text of at most 5 bytes", "a text of 6 bytes"}},
		{value.DictOf("text", int64(5)), Error{"text", "a text of at most 5 bytes", "int"}},
		{value.DictOf("int", "x", "text", &value.List{}), Error{"text", "a text of at most 5 bytes", "a list of 0 items"}}, // the order is the struct's
		{value.DictOf("text", "", "bytes", []byte("1234")), Error{"bytes", "bytes of at most 3 bytes", "4 bytes"}},
		{value.DictOf("text", "", "int", "5"), Error{"int", "a number", "a text of 1 bytes"}},
		{value.DictOf("text", "", "int", 1e300), Error{"int", "a number", "float"}},
		{value.DictOf("text", "", "dict", &value.List{}), Error{"dict", "a map", "a list of 0 items"}},
		{value.DictOf("text", "", "list", value.ListOf(nil, nil, nil)), Error{"list", "a list of at most 2 items", "a list of 3 items"}},
		{value.DictOf("text", "", "list", "ab"), Error{"list", "a list of at most 2 items", "a text of 2 bytes"}},
		{value.DictOf("text", "", "texts", value.ListOf("a", int64(1))), Error{"texts", "a list of texts", "a list of 2 items"}},
	} {
		var s sample
		var e *Error
		if err := Decode(c.d, &s); !errors.As(err, &e) || *e != c.want {
			t.Errorf("%s: got %v, want %v", value.Repr(c.d), err, &c.want)
		}
	}
}

func TestEncode(t *testing.T) {
	d := Encode(&sample{Text: "a", Int: 2, Dict: value.NewDict(0), Texts: []string{"x"}, Rest: value.DictOf("z", int64(1), "b", int64(2))})
	if got := value.Repr(d); got != "{'text': 'a', 'int': 2, 'texts': ['x'], 'z': 1, 'b': 2}" {
		t.Error(got)
	}
	type full struct {
		Bytes []byte      `wire:"bytes"`
		Dict  *value.Dict `wire:"dict"`
		List  *value.List `wire:"list"`
		Texts []string    `wire:"texts"`
	}
	if got := value.Repr(Encode(full{})); got != "{'bytes': b'', 'dict': None, 'list': [], 'texts': []}" {
		t.Error(got)
	}
}

func TestWrongDeclarations(t *testing.T) {
	for _, v := range []any{
		struct{ NoTag string }{},
		struct {
			X int `wire:"x"`
		}{},
		struct {
			X string `wire:"x,optional"`
		}{},
		struct {
			X string `wire:"x" max:"much"`
		}{},
		struct {
			X string `wire:"x"`
			Y string `wire:"x"`
		}{},
	} {
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.HasPrefix(p.(string), "wire: ") {
					t.Errorf("%T: %v", v, p)
				}
			}()
			Encode(v)
		}()
	}
}

// TestRecordedRequests: what a stock minion sends is decoded with no key left over,
// but for those that the channel adds.
func TestRecordedRequests(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "stock_requests.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []struct{ Case, Load string }
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	known := map[string]func() (any, func() *value.Dict){
		"_minion_event": func() (any, func() *value.Dict) { m := &MinionEvent{}; return m, func() *value.Dict { return m.Rest } },
		"_return":       func() (any, func() *value.Dict) { m := &Return{}; return m, func() *value.Dict { return m.Rest } },
		"_pillar":       func() (any, func() *value.Dict) { m := &Pillar{}; return m, func() *value.Dict { return m.Rest } },
	}
	seen := 0
	for _, r := range all {
		load, err := base64.StdEncoding.DecodeString(r.Load)
		if err != nil {
			t.Fatal(err)
		}
		v, err := msgpack.Unmarshal(load)
		d, ok := v.(*value.Dict)
		if err != nil || !ok {
			t.Fatalf("%s: %v", r.Case, err)
		}
		build := known[r.Case]
		if build == nil {
			continue
		}
		seen++
		m, rest := build()
		if err := Decode(d, m); err != nil {
			t.Errorf("%s: %v", r.Case, err)
		}
		for _, k := range []string{"tok", "nonce", "ts"} {
			rest().Delete(k)
		}
		if rest().Len() > 0 {
			t.Errorf("%s has keys that its struct does not declare: %s", r.Case, value.Repr(rest()))
		}
	}
	if seen < 2 {
		t.Errorf("%d recordings were compared", seen)
	}
}

// TestViewKeepsWhatDoesNotFit: a value of a wrong type is no error, leaves its field
// empty and is still there when the message is encoded.
func TestViewKeepsWhatDoesNotFit(t *testing.T) {
	d := value.DictOf("text", int64(5), "bytes", "long text", "list", "x", "int", int64(1))
	got := sample{Text: "old"}
	View(d, &got)
	if got.Text != "" || string(got.Bytes) != "long text" || got.List != nil || got.Int != 1 {
		t.Errorf("%+v", got)
	}
	out := Encode(&got)
	if out.At("text") != int64(5) || out.At("list") != "x" {
		t.Error(value.Repr(out))
	}
}
