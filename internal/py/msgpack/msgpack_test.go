package msgpack

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"brine/internal/py/value"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type vector struct {
	Case    string `json:"case"`
	Wire    string `json:"wire_hex"`
	IPC     string `json:"ipc_hex"`
	Decoded string `json:"decoded_by_salt"`
}

func readVectors(t testing.TB) []vector {
	t.Helper()
	b, err := os.ReadFile("../../../testdata/vectors/msgpack.json")
	if err != nil {
		t.Fatal(err)
	}
	var f struct{ Cases []vector }
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Cases) == 0 {
		t.Fatal("no vectors")
	}
	return f.Cases
}

// TestVectors compares with bytes and values recorded from Salt.
func TestVectors(t *testing.T) {
	input := map[string]any{ // the values that were encoded
		"str_lengths":    value.DictOf(strings.Repeat("a", 31), strings.Repeat("b", 32)),
		"long_str":       strings.Repeat("c", 300),
		"bytes":          []byte{0x80, 0xff},
		"datetime":       time.Date(2024, 1, 2, 3, 4, 5, 6000, time.UTC),
		"date":           time.Date(2024, 1, 2, 0, 0, 0, 0, time.UTC),
		"bigint":         new(big.Int).Lsh(big.NewInt(1), 64),
		"uint64":         uint64(math.MaxUint64),
		"set_like_tuple": value.Tuple{int64(1), "a"},
		"float":          1.5,
		"neg":            int64(math.MinInt64),
	}
	for _, v := range readVectors(t) {
		t.Run(v.Case, func(t *testing.T) {
			in, ok := input[v.Case]
			if !ok {
				t.Fatal("unknown case in the test")
			}
			for d, want := range map[Dialect]string{Wire: v.Wire, NewSpec: v.IPC} {
				got, err := Marshal(in, d)
				if err != nil || hex.EncodeToString(got) != want {
					t.Errorf("dialect %d: %x, %v; want %s", d, got, err, want)
				}
				back, err := Unmarshal(unhex(t, want))
				if err != nil {
					t.Fatal(err)
				}
				// The recorded text of decoded values is cut at 80 characters.
				if r := value.Repr(back); r != v.Decoded && !(len(v.Decoded) == 80 && strings.HasPrefix(r, v.Decoded)) {
					t.Errorf("decoded %s, want %s", r, v.Decoded)
				}
			}
		})
	}
}

// TestEncode checks the limits of each form; the bytes are those of Python's
// msgpack.
func TestEncode(t *testing.T) {
	s := strings.Repeat
	for _, c := range []struct {
		in            any
		wire, newSpec string // newSpec "" means the same
	}{
		{nil, "c0", ""},
		{true, "c3", ""},
		{false, "c2", ""},
		{0, "00", ""},
		{127, "7f", ""},
		{128, "cc80", ""},
		{255, "ccff", ""},
		{256, "cd0100", ""},
		{65535, "cdffff", ""},
		{65536, "ce00010000", ""},
		{uint32(math.MaxUint32), "ceffffffff", ""},
		{int64(1) << 32, "cf0000000100000000", ""},
		{int64(math.MaxInt64), "cf7fffffffffffffff", ""},
		{-1, "ff", ""},
		{-32, "e0", ""},
		{-33, "d0df", ""},
		{-128, "d080", ""},
		{-129, "d1ff7f", ""},
		{-32768, "d18000", ""},
		{-32769, "d2ffff7fff", ""},
		{math.MinInt32, "d280000000", ""},
		{int64(math.MinInt32 - 1), "d3ffffffff7fffffff", ""},
		{new(big.Int).SetUint64(1 << 63), "cf8000000000000000", ""},
		{big.NewInt(5), "05", ""},
		{new(big.Int).Neg(new(big.Int).Lsh(big.NewInt(1), 64)), "b5" + hex.EncodeToString([]byte("-18446744073709551616")), ""},
		{math.NaN(), "cb7ff8000000000000", ""},
		{math.Copysign(0, -1), "cb8000000000000000", ""},
		{math.Inf(1), "cb7ff0000000000000", ""},
		{"", "a0", ""},
		{s("x", 31), "bf" + s("78", 31), ""},
		{s("x", 32), "da0020" + s("78", 32), "d920" + s("78", 32)},
		{s("x", 255), "da00ff" + s("78", 255), "d9ff" + s("78", 255)},
		{s("x", 256), "da0100" + s("78", 256), ""},
		{s("x", 65535), "daffff" + s("78", 65535), ""},
		{s("x", 65536), "db00010000" + s("78", 65536), ""},
		{"\xff", "a1ff", "c401ff"},
		{[]byte{}, "a0", "c400"},
		{[]byte("x"), "a178", "c40178"},
		{[]byte(s("x", 255)), "da00ff" + s("78", 255), "c4ff" + s("78", 255)},
		{[]byte(s("x", 256)), "da0100" + s("78", 256), "c50100" + s("78", 256)},
		{[]byte(s("x", 65536)), "db00010000" + s("78", 65536), "c600010000" + s("78", 65536)},
		{value.Tuple{}, "90", ""},
		{[]any{1, "a", nil}, "9301a161c0", ""},
		{(*value.List)(nil), "90", ""},
		{(*value.Dict)(nil), "80", ""},
		{make([]any, 15), "9f" + s("c0", 15), ""},
		{make([]any, 16), "dc0010" + s("c0", 16), ""},
		{make([]any, 65536), "dd00010000" + s("c0", 65536), ""},
		{value.DictOf("z", 1, "a", 2, 3, nil), "83a17a01a1610203c0", ""},
		{value.Const{Name: "K", Value: []byte("v")}, "c7064f 92a14b c40176", ""}, // NewSpec inside either dialect
		{value.Ext{Type: -5, Data: []byte{1}}, "d4fb01", ""},
		{value.Ext{Type: 5, Data: []byte{1, 2, 3}}, "c7030501 0203", ""},
		{value.Ext{Type: 5, Data: make([]byte, 16)}, "d805" + s("00", 16), ""},
		{value.Ext{Type: 5, Data: make([]byte, 256)}, "c8010005" + s("00", 256), ""},
	} {
		if c.newSpec == "" {
			c.newSpec = c.wire
		}
		for d, want := range map[Dialect]string{Wire: c.wire, NewSpec: c.newSpec} {
			got, err := Append([]byte("prefix"), c.in, d)
			if err != nil {
				t.Errorf("%.40v: %v", c.in, err)
			}
			if w := append([]byte("prefix"), unhex(t, want)...); !bytes.Equal(got, w) {
				t.Errorf("%.40v in dialect %d: %.60x, want %.60x", c.in, d, got, w)
			}
		}
	}
}

func TestLongMapHeader(t *testing.T) {
	d := value.NewDict(0)
	for i := range 16 {
		d.Set(int64(i), true)
	}
	b, err := Marshal(d, Wire)
	if err != nil || !bytes.HasPrefix(b, []byte{0xde, 0, 16, 0, 0xc3, 1, 0xc3}) {
		t.Errorf("%x, %v", b, err)
	}
	if got := AppendMapHeader(nil, 65536); !bytes.Equal(got, []byte{0xdf, 0, 1, 0, 0}) {
		t.Errorf("%x", got)
	}
}

func TestEncodeRefuses(t *testing.T) {
	deep := func(n int) any {
		l := &value.List{}
		for range n - 1 {
			l = &value.List{Items: []any{l}}
		}
		return l
	}
	if _, err := Marshal(deep(512), Wire); err != nil {
		t.Errorf("512 deep: %v", err)
	}
	cycle := value.NewDict(1)
	cycle.Set("me", cycle)
	for name, v := range map[string]any{"513 deep": deep(513), "cycle": cycle, "deep constant": value.Const{Value: deep(512)}} {
		dst := []byte("kept")
		got, err := Append(dst, v, Wire)
		if !errors.Is(err, ErrLimit) || string(got) != "kept" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := Marshal(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), Wire); !errors.Is(err, ErrInvalid) {
		t.Errorf("year 10000: %v", err)
	}
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		in           string
		loose, typed string // Python's repr; typed "" means the same
	}{
		{"c0", "None", ""},
		{"c3", "True", ""},
		{"d0 80", "-128", ""},
		{"d1 8000", "-32768", ""},
		{"d2 80000000", "-2147483648", ""},
		{"d3 8000000000000000", "-9223372036854775808", ""},
		{"d3 7fffffffffffffff", "9223372036854775807", ""},
		{"cf ffffffffffffffff", "18446744073709551615", ""},
		{"cf 7fffffffffffffff", "9223372036854775807", ""},
		{"ca 3fc00000", "1.5", ""},
		{"cb 7ff8000000000000", "nan", ""},
		{"d9 03 616263", "'abc'", ""},
		{"db 00000003 616263", "'abc'", ""},
		{"c4 03 616263", "'abc'", "b'abc'"},
		{"c5 0003 616263", "'abc'", "b'abc'"},
		{"c6 00000003 616263", "'abc'", "b'abc'"},
		{"c4 00", "''", "b''"},
		{"a1 ff", `b'\xff'`, ""},
		{"a3 eda080", `b'\xed\xa0\x80'`, ""}, // a surrogate is not UTF-8
		{"82 a1ff 01 c40161 02", `{b'\xff': 1, 'a': 2}`, `{b'\xff': 1, b'a': 2}`},
		{"82 a161 01 c40161 02", "{'a': 2}", "{'a': 1, b'a': 2}"},
		{"83 a161 01 a162 00 a161 02", "{'a': 2, 'b': 0}", ""},
		{"82 01 a161 c3 a162", "{1: 'b'}", ""},
		{"84 c0 01 01 02 cb3ff8000000000000 03 c2 04", "{None: 1, 1: 2, 1.5: 3, False: 4}", ""},
		{"dd 00000002 90 80", "[[], {}]", ""},
		{"df 00000001 a161 91 c0", "{'a': [None]}", ""},
		{"d4 05 07", `ExtType(code=5, data=b'\x07')`, ""},
		{"c7 00 fb", `ExtType(code=-5, data=b'')`, ""},
		{"c7 06 4f 92 a14b c40176", "K", ""},
		{"c7 13 4e" + hex.EncodeToString([]byte("20240102T03:04:05.6")), "datetime.datetime(2024, 1, 2, 3, 4, 5, 600000)", ""},
	} {
		if c.typed == "" {
			c.typed = c.loose
		}
		in := unhex(t, c.in)
		if v, err := Unmarshal(in); err != nil || value.Repr(v) != c.loose {
			t.Errorf("%s: %s, %v; want %s", c.in, value.Repr(v), err, c.loose)
		}
		if v, err := UnmarshalTyped(in); err != nil || value.Repr(v) != c.typed {
			t.Errorf("%s typed: %s, %v; want %s", c.in, value.Repr(v), err, c.typed)
		}
		if n, err := Skip(in); n != len(in) || err != nil {
			t.Errorf("Skip(%s) = %d, %v", c.in, n, err)
		}
		for cut := range in {
			if _, err := Unmarshal(in[:cut]); !errors.Is(err, ErrShort) {
				t.Errorf("%s cut at %d: %v", c.in, cut, err)
			}
			if _, err := Skip(in[:cut]); !errors.Is(err, ErrShort) {
				t.Errorf("Skip of %s cut at %d: %v", c.in, cut, err)
			}
		}
	}
}

func TestConstValueIsTyped(t *testing.T) {
	v, err := Unmarshal(unhex(t, "c7 06 4f 92 a14b c40176"))
	if err != nil || !value.Equal(v, value.Const{Name: "K", Value: []byte("v")}) {
		t.Errorf("%#v, %v", v, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	ext := func(typ, payload string) string {
		return hex.EncodeToString(append([]byte{0xc7, byte(len(payload)), unhex(t, typ)[0]}, payload...))
	}
	for in, want := range map[string]error{
		"":                               ErrShort,
		"c1":                             ErrInvalid,
		"91c1":                           ErrInvalid,
		"c0c0":                           ErrInvalid, // something follows
		"8190 01":                        ErrInvalid, // list as key
		"8180 01":                        ErrInvalid, // map as key
		"dd ffffffff":                    ErrLimit,
		"dd 003fffff":                    ErrShort,
		"df 80000000":                    ErrLimit, // twice as many values as an int32 counts
		"db ffffffff":                    ErrShort,
		ext("4e", "yesterday"):           ErrInvalid,
		ext("4e", "20240230T03:04:05.6"): ErrInvalid, // February
		ext("4e", "20240102T03:04:05"):   ErrInvalid,
		ext("4e", "20240102T03:04:05,6"): ErrInvalid,
		ext("4f", ""):                    ErrInvalid,
		ext("4f", "\x91\xa1K"):           ErrInvalid,
		ext("4f", "\x92\x01\x02"):        ErrInvalid, // the name is a number
		ext("4f", "\x92\xa1K\xc0\xc0"):   ErrInvalid,
		ext("4f", "\xa1K"):               ErrInvalid,
	} {
		if v, err := Unmarshal(unhex(t, in)); !errors.Is(err, want) {
			t.Errorf("%s: %v, %v; want %v", in, v, err, want)
		}
	}
}

func TestLimits(t *testing.T) {
	nested := func(n int) []byte {
		return append(bytes.Repeat([]byte{0x91}, n), 0xc0)
	}
	consts := func(n int) []byte {
		v := any(nil)
		for range n {
			v = value.Const{Name: "c", Value: v}
		}
		b, err := Marshal(v, Wire)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		name string
		l    Limits
		ok   []byte
		bad  []byte
	}{
		{"default depth", Limits{}, nested(512), nested(513)},
		{"depth", Limits{Depth: 3}, nested(3), nested(4)},
		{"greatest depth", Limits{Depth: 1 << 30}, nested(1000), nested(1001)},
		{"items", Limits{Items: 3}, unhex(t, "92c0c0"), unhex(t, "93c0c0c0")},
		{"items, nested", Limits{Items: 4}, unhex(t, "9191 91c0"), unhex(t, "91919191c0")},
		{"items, map", Limits{Items: 3}, unhex(t, "810102"), unhex(t, "8201020304")},
		{"default items", Limits{}, unhex(t, "91c0"), append([]byte{0xdd, 0, 0x40, 0, 0}, make([]byte, 1<<22)...)},
		{"bytes", Limits{Bytes: 3}, unhex(t, "a2 6161"), unhex(t, "a3616161")},
	} {
		if _, err := c.l.Unmarshal(c.ok); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if n, err := c.l.Skip(c.ok); err != nil || n != len(c.ok) {
			t.Errorf("%s: Skip = %d, %v", c.name, n, err)
		}
		if _, err := c.l.Unmarshal(c.bad); !errors.Is(err, ErrLimit) {
			t.Errorf("%s: err = %v, want ErrLimit", c.name, err)
		}
		if _, err := c.l.Skip(c.bad); !errors.Is(err, ErrLimit) {
			t.Errorf("%s: Skip: err = %v, want ErrLimit", c.name, err)
		}
	}
	// A constant counts as two levels, and its content counts as values.
	if _, err := (Limits{Depth: 8}).Unmarshal(consts(4)); err != nil {
		t.Error(err)
	}
	if _, err := (Limits{Depth: 8}).Unmarshal(consts(5)); !errors.Is(err, ErrLimit) {
		t.Errorf("deep constants: %v", err)
	}
	if _, err := (Limits{Items: 6}).Unmarshal(consts(4)); !errors.Is(err, ErrLimit) {
		t.Errorf("many constants: %v", err)
	}
}

// TestClaimedLengths decodes heads that announce far more than follows. Allocations
// must depend on the input size, not on the claim.
func TestClaimedLengths(t *testing.T) {
	// Each of 500 nested arrays claims all that could follow it.
	var nest []byte
	for i := range 500 {
		nest = append(nest, 0xdd, 0, 0x01, 0, byte(i))
	}
	nest = append(nest, make([]byte, 1<<16+4000)...)
	for name, in := range map[string][]byte{
		"array":  unhex(t, "dd 003fffff c0"),
		"map":    unhex(t, "df 001fffff c0"),
		"text":   unhex(t, "db ffffffff 61"),
		"nested": nest,
	} {
		before := allocated()
		_, err := Unmarshal(in)
		used := allocated() - before
		if !errors.Is(err, ErrShort) {
			t.Errorf("%s: %v", name, err)
		}
		if used > 64<<10+48*int64(len(in)) {
			t.Errorf("%s: %d bytes of input took %d of memory", name, len(in), used)
		}
	}
}

func TestNoAliasing(t *testing.T) {
	in := unhex(t, "94 a161 c402ffff a2ffff d405ff")
	for _, f := range []func([]byte) (any, error){Unmarshal, UnmarshalTyped} {
		b := bytes.Clone(in)
		v, err := f(b)
		if err != nil {
			t.Fatal(err)
		}
		want := value.Repr(v)
		clear(b)
		if got := value.Repr(v); got != want {
			t.Errorf("value changed with the input: %s, was %s", got, want)
		}
	}
}

func TestFrames(t *testing.T) {
	body, err := Marshal(value.DictOf("enc", "clear"), Wire)
	if err != nil {
		t.Fatal(err)
	}
	b := AppendMapHeader(nil, 3)
	b = AppendString(b, "head", NewSpec)
	b = AppendMapHeader(b, 0)
	b = AppendString(b, "body", NewSpec)
	b = append(b, body...)
	b = AppendString(b, "bin", NewSpec)
	b = AppendBin(b, []byte{1, 2}, NewSpec)

	v, err := Unmarshal(b)
	if want := `{'head': {}, 'body': {'enc': 'clear'}, 'bin': '\x01\x02'}`; err != nil || value.Repr(v) != want {
		t.Errorf("%s, %v", value.Repr(v), err)
	}
	if raw, ok, err := Field(b, "body"); !ok || err != nil || !bytes.Equal(raw, body) {
		t.Errorf("body: %x, %v, %v", raw, ok, err)
	}
	raw, ok, err := Field(b, "bin")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if p, ok := Text(raw); !ok || !bytes.Equal(p, []byte{1, 2}) {
		t.Errorf("Text: %x, %v", p, ok)
	}
	if _, ok := Text(body); ok {
		t.Error("a map was accepted as text")
	}
	if _, ok := Text(append(raw, 0)); ok {
		t.Error("text followed by a byte was accepted")
	}
	if raw, ok, err := Field(b, "tail"); raw != nil || ok || err != nil {
		t.Errorf("tail: %x, %v, %v", raw, ok, err)
	}
}

func TestField(t *testing.T) {
	for _, c := range []struct {
		in, want string
		ok       bool
		err      error
	}{
		{"82 a16b 01 a16b 02", "02", true, nil}, // the last one, as in Unmarshal
		{"82 c4016b 9101 c0 02", "9101", true, nil},
		{"81 a161 a16b", "", false, nil}, // a value, not a key
		{"80", "", false, nil},
		{"82 a16b 01", "", false, ErrShort},
		{"81 a16b", "", false, ErrShort},
		{"", "", false, ErrShort},
		{"91 a16b", "", false, ErrInvalid},
		{"81 a16b 01 00", "", false, ErrInvalid},
		{"82 a16b 01 c1 01", "", false, ErrInvalid},
		{"81 a16b " + strings.Repeat("91", 512) + "c0", "", false, ErrLimit},
	} {
		raw, ok, err := Field(unhex(t, c.in), "k")
		if hex.EncodeToString(raw) != c.want || ok != c.ok || !errors.Is(err, c.err) {
			t.Errorf("%.40s: %x, %v, %v", c.in, raw, ok, err)
		}
	}
}

func TestScannerByteByByte(t *testing.T) {
	objects := [][]byte{
		unhex(t, "82 a161 93 01 02 da000361 6263 c4026161 cb3ff8000000000000"),
		unhex(t, "c0"),
		unhex(t, "80"),
		highstate(t, Wire),
		unhex(t, "9290 9180"),
	}
	stream := bytes.Join(objects, nil)
	var s Scanner
	var got [][]byte
	start := 0
	for end := range len(stream) + 1 {
		for {
			n, err := s.Next(stream[start:end])
			if errors.Is(err, ErrShort) {
				if need := s.Need(); need <= end-start {
					t.Fatalf("at %d: needs %d, has %d", end, need, end-start)
				}
				break
			}
			if err != nil {
				t.Fatalf("at %d: %v", end, err)
			}
			got = append(got, stream[start:start+n])
			start += n
		}
	}
	if len(got) != len(objects) {
		t.Fatalf("%d objects, want %d", len(got), len(objects))
	}
	for i := range got {
		if !bytes.Equal(got[i], objects[i]) {
			t.Errorf("object %d: %.40x", i, got[i])
		}
	}
}

// TestScannerRefusesEarly checks that an object beyond the limits is rejected
// by its head, before a reader has collected it.
func TestScannerRefusesEarly(t *testing.T) {
	for _, in := range []string{
		"db 00001000",    // text of 4096 bytes
		"91 db 00001000", // the same within an array
		"dc 0400",        // 1024 values
		"92 da0100 61",   // ErrShort: 256 bytes still fit
	} {
		s := Scanner{Limits: Limits{Bytes: 1000}}
		_, err := s.Next(unhex(t, in))
		if want := in[:2] == "92"; errors.Is(err, ErrShort) != want || errors.Is(err, ErrLimit) == want {
			t.Errorf("%s: %v", in, err)
		}
	}
}
