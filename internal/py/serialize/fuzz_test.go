package serialize

import (
	"encoding/base64"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// FuzzRead checks all readers: no panic, no deeper nesting than writers accept,
// and every value read can be written.
func FuzzRead(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	names := []string{"configparser", "json", "keyvalue", "msgpack", "plist", "toml", "yaml", "yamlex"}
	at := map[string]byte{}
	for i, n := range names {
		at[n] = byte(i)
	}
	for _, c := range recorded(f) {
		data := []byte(c.Str("text") + c.Str("read"))
		for _, k := range []string{"bytes", "read_bytes"} {
			if c.Has(k) {
				data, _ = base64.StdEncoding.DecodeString(c.Str(k))
			}
		}
		if n, ok := at[c.Str("format")]; ok && !c.Has("error") && len(data) < 400 {
			f.Add(n, data)
		}
	}
	f.Fuzz(func(t *testing.T, n byte, data []byte) {
		name := names[int(n)%len(names)]
		format, _ := Named(name)
		v, err := format.Read(data, nil)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a message")
			}
			return
		}
		if err := depthOK(v, -2*MaxDepth); err != nil && name != "json" {
			t.Fatal(err)
		}
		text, err := format.Write(v, nil)
		if err != nil || name != "toml" {
			return
		}
		again, err := format.Read([]byte(text.(string)), nil)
		if err != nil {
			return // a list with maps in a list, of which only the keys are written
		}
		_ = value.Equal(v, again)
	})
}

func TestBounds(t *testing.T) {
	deep := func(open string, n int) []byte {
		b := []byte("a = ")
		for range n {
			b = append(b, open...)
		}
		return b
	}
	for name, text := range map[string][]byte{"toml": deep("[", 100000), "yaml": deep("[", 100000)[4:], "yamlex": deep("[", 100000)[4:],
		"json": deep("[", 100000)[4:], "plist": append([]byte("<plist>"), deep("<array>", 100000)[4:]...)} {
		f, _ := Named(name)
		if _, err := f.Read(text, nil); err == nil {
			t.Errorf("%s accepts any depth", name)
		}
	}
	for _, name := range []string{"toml", "yaml", "yamlex", "json", "plist", "configparser", "keyvalue", "msgpack"} {
		f, _ := Named(name)
		if _, err := f.Read(make([]byte, MaxBytes+1), nil); err != errLarge {
			t.Errorf("%s accepts any size: %v", name, err)
		}
	}
	loop := value.ListOf()
	loop.Append(loop)
	for _, name := range []string{"toml", "yaml", "yamlex", "json", "plist", "python", "msgpack"} {
		f, _ := Named(name)
		if _, err := f.Write(value.DictOf("a", loop), nil); err == nil {
			t.Errorf("%s writes a list that contains itself", name)
		}
	}
}

// A string that Python's library toml writes wrongly is written as valid TOML.
func TestTOMLStringsThatPythonBreaks(t *testing.T) {
	for _, s := range []string{"\x1b[0m", "C:\\xampp", "\u00a0", "\x7f\x00", `\\x`} {
		text, err := writeTOML(value.DictOf("a", s), nil)
		if err != nil {
			t.Fatal(err)
		}
		back, err := readTOML([]byte(text.(string)), nil)
		if err != nil || !value.Equal(back, value.DictOf("a", s)) {
			t.Errorf("%q became %s and %v (%v)", s, text, back, err)
		}
	}
}

func TestTOMLDatesRoundTrip(t *testing.T) {
	const text = "a = 1979-05-27T07:32:00Z\nb = 1979-05-27T00:32:00.500000-07:00\nc = 1979-05-27\nd = 07:32:00\n"
	v, err := readTOML([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := writeTOML(v, nil)
	if err != nil || out != text {
		t.Errorf("got %v (%v), want %s", out, err, text)
	}
	if p := Plain(v).(*value.Dict); p.Str("c") != "1979-05-27" {
		t.Errorf("a date is shown as %v", p.At("c"))
	}
}

// TestOrderOfTOML reads tables with their keys in various orders.
func TestOrderOfTOML(t *testing.T) {
	const text = `
z.y.b = 1
z.x = 2
z.y.a = 3
[[t]]
y = 1
x = 2
[t.s]
b = 1
a = 2
[[t]]
x = 1
[t.s]
a = 1
b = 2
[[t.s.u]]
[[t.s.u]]
d = [{b = 1, a = 2}, {a = 1, b = 2}, []]
c = 1
[w.v]
[w]
k = 1
`
	const want = `{'z': {'y': {'b': 1, 'a': 3}, 'x': 2}, 't': [{'y': 1, 'x': 2, 's': {'b': 1, 'a': 2}}, {'x': 1, 's': {'a': 1, 'b': 2, 'u': [{}, ` +
		`{'d': [{'b': 1, 'a': 2}, {'a': 1, 'b': 2}, []], 'c': 1}]}}], 'w': {'v': {}, 'k': 1}}`
	v, err := readTOML([]byte(text), nil)
	if err != nil || value.Repr(v) != want {
		t.Errorf("got  %s %v\nwant %s", value.Repr(v), err, want)
	}
}

// TestDepthOfTOML reads nesting on which the library would recurse without a
// limit.
func TestDepthOfTOML(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("a.", 1<<20) + "a = 1",
		"[" + strings.Repeat("a.", 1<<20) + "a]",
		"a = " + strings.Repeat("[", 1<<20),
		"a = " + strings.Repeat("{a=", 1<<20),
		"a = " + strings.Repeat("[ # \" \n", 1<<20),
		"a = " + strings.Repeat("{a.b=[", 1<<20),
	} {
		if _, err := readTOML([]byte(text), nil); err != errDeep {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	const brackets = `a = ["[[[[[[[[", '{{{{{{', """[[[["[[[""", '''...'''] # [[[[[`
	if n := tomlDepth(brackets); n != 1 {
		t.Errorf("depth %d", n)
	}
	if _, err := readTOML([]byte("a = [\n"+strings.Repeat("1.5, '[', # .[\n", 10000)+"]"), nil); err != nil {
		t.Error(err)
	}
}
