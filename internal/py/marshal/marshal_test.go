package marshal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"math/big"
	"os/exec"
	"strings"
	"testing"
	"time"

	"brine/internal/py/value"
	"brine/test/fuzztest"
	"brine/test/tools"
)

// samples are values with what Python 3.11 writes for them in version 2.
func samples() map[string]any {
	large, _ := new(big.Int).SetString("-123456789012345678901234567890", 10)
	return map[string]any{
		"4e": nil, "46": false, "54": true,
		"69ffffffff":               int64(-1),
		"69ffffff7f":               int64(math.MaxInt32),
		"6c03000000000000000200":   int64(math.MaxInt32) + 1,
		"67182d4454fb210940":       math.Pi,
		"7302000000ff00":           []byte{0xff, 0},
		"7503000000c3a961":         "éa",
		"2802000000750100000061e6": nil, // cut off: an error
		"5b0100000028020000006901000000750100000062": value.ListOf(value.Tuple{int64(1), "b"}),
		"7b7501000000614e30":                         value.DictOf("a", nil),
		hexOf(large):                                 large,
		hexOf(value.Tuple{}):                         value.Tuple{},
		hexOf(time.Date(2026, 11, 24, 7, 0, 1, 5000, time.UTC)):                   time.Date(2026, 11, 24, 7, 0, 1, 5000, time.UTC),
		hexOf(value.DictOf(value.Tuple{int64(1), int64(2)}, value.ListOf(1.5))):   value.DictOf(value.Tuple{int64(1), int64(2)}, value.ListOf(1.5)),
		hexOf(value.ListOf("x", []byte("x"), int64(math.MinInt64), math.Inf(-1))): value.ListOf("x", []byte("x"), int64(math.MinInt64), math.Inf(-1)),
	}
}

func hexOf(v any) string {
	b, _, err := Append(nil, v)
	if err != nil {
		panic(err)
	}
	return hex.EncodeToString(b)
}

func TestRoundTrip(t *testing.T) {
	for text, want := range samples() {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Unmarshal(b)
		if want == nil && text != "4e" {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v, %v", text, got, err)
			}
			continue
		}
		if err != nil || !value.Equal(got, want) || value.TypeName(got) != value.TypeName(want) {
			t.Errorf("%s: %s, %v, want %s", text, value.Repr(got), err, value.Repr(want))
		}
		if again, _, err := Append(nil, want); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s: written as %x, %v", text, again, err)
		}
	}
}

// TestPython has Python read what Append writes, and write it again.
func TestPython(t *testing.T) {
	python := tools.NeedPython(t, "python3", "marshal")
	all := value.NewDict(0)
	for text, v := range samples() {
		if v != nil && !strings.HasPrefix(text, "28090000002e") { // Ellipsis is a single object
			all.Set(text, v)
		}
	}
	in, _, err := Append(nil, all)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", `import marshal, sys
d = marshal.loads(sys.stdin.buffer.read())
for k, v in d.items():
    assert marshal.dumps(v, 2).hex() == k, (k, v, marshal.dumps(v, 2).hex())
sys.stdout.buffer.write(marshal.dumps([{1, 2}, frozenset([3]), 2 ** 100, len(d)], 2))`)
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err, stderr.String())
	}
	got, err := Unmarshal(out)
	want := value.ListOf(value.Tuple{int64(1), int64(2)}, value.Tuple{int64(3)}, new(big.Int).Lsh(big.NewInt(1), 100), all.Len())
	if err != nil || !value.Equal(got, want) {
		t.Error(value.Repr(got), err)
	}
}

func TestBounds(t *testing.T) {
	for name, in := range map[string]string{
		"many":   "5bffffff7f",
		"nested": strings.Repeat("5b01000000", 2000) + "4e",
		"grow":   strings.Repeat("5b00100000", 900),
		"text":   "75ffffffff",
		"digits": "6cffffff7f",
		"code":   "63",
		"key":    "7b5b000000004e30",
		"end":    "30",
		"more":   "4e4e",
		"item":   "5b0100000030",
	} {
		b, err := hex.DecodeString(in)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := Unmarshal(b); !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
}

func FuzzUnmarshal(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for text := range samples() {
		b, err := hex.DecodeString(text)
		if err != nil {
			tf.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Limits{Depth: 100, Items: 10_000}.Unmarshal(b)
		if err != nil {
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrLimit) {
				t.Fatalf("an error that matches no kind: %v", err)
			}
			return
		}
		once, _, err := Append(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Unmarshal(once)
		if err != nil || value.Repr(again) != value.Repr(v) {
			t.Fatalf("%s became %s: %v", value.Repr(v), value.Repr(again), err)
		}
	})
}
