package serialize

import (
	"encoding/base64"
	"os"
	"strings"
	"testing"

	"brine/internal/py/json"
	"brine/internal/py/value"
)

// recorded holds results of Salt, recorded by testdata/record.py.
func recorded(t testing.TB) []*value.Dict {
	t.Helper()
	name := "testdata/stock.json"
	if other := os.Getenv("BRINE_SERIALIZE_RECORDING"); other != "" {
		name = other
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	v, err := json.Load(string(b))
	if err != nil {
		t.Fatal(err)
	}
	var out []*value.Dict
	for _, c := range v.(*value.List).Items {
		out = append(out, c.(*value.Dict))
	}
	return out
}

func TestAsStock(t *testing.T) {
	for _, c := range recorded(t) {
		f, ok := Named(c.Str("format"))
		if !ok {
			t.Fatalf("unknown format %s", c.Str("format"))
		}
		want, wantErr := c.At("text"), c.Str("error")
		var got any
		var err error
		switch {
		case c.Has("value"):
			if c.Has("bytes") {
				want, _ = base64.StdEncoding.DecodeString(c.Str("bytes"))
			}
			got, err = f.Write(c.At("value"), c.Dict("options"))
		case c.Has("read_bytes"):
			b, _ := base64.StdEncoding.DecodeString(c.Str("read_bytes"))
			want = unplain(c.At("got"))
			got, err = f.Read(b, c.Dict("options"))
		default:
			want = unplain(c.At("got"))
			got, err = f.Read([]byte(c.Str("read")), c.Dict("options"))
		}
		if (err != nil) == (wantErr != "") && (err != nil || same(got, want)) || better(c, got) {
			continue
		}
		t.Errorf("%s\n options %s\n value %s\n got %s %v\nwant %s %s", c.Str("format"), value.Str(c.At("options")), value.Str(firstOf(c)), value.Repr(got),
			err, value.Repr(want), wantErr)
	}
}

func firstOf(c *value.Dict) any {
	for _, k := range []string{"value", "read", "read_bytes"} {
		if c.Has(k) {
			return c.At(k)
		}
	}
	return nil
}

// same is Equal that also compares the order of keys and the types of numbers.
func same(a, b any) bool { return value.Repr(a) == value.Repr(b) }

// better reports whether stock Salt fails in a case, or writes a different
// value.
func better(c *value.Dict, got any) bool {
	text := value.Repr(firstOf(c))
	switch c.Str("format") {
	case "toml":
		return c.Has("read") && c.Has("error") && got != nil || strings.Contains(text, `\x`)
	}
	return false
}

// unplain decodes the values of the recording.
func unplain(v any) any {
	switch x := v.(type) {
	case *value.Dict:
		if x.Has("date") {
			return value.Const{Name: tomlDate, Value: strings.Replace(x.Str("date"), "+00:00", "Z", 1)}
		}
		b, _ := base64.StdEncoding.DecodeString(x.Str("bytes"))
		return b
	case *value.List:
		items := x.Items[1:]
		if x.Items[0].(*value.List).Items[0] == "dict" {
			d := value.NewDict(0)
			for _, it := range items {
				two := it.(*value.List).Items
				d.Set(unplain(two[0]), unplain(two[1]))
			}
			return d
		}
		l := &value.List{}
		for _, it := range items {
			l.Append(unplain(it))
		}
		return l
	}
	return v
}
