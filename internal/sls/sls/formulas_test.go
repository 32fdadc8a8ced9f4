package sls

import (
	"compress/gzip"
	"io"
	"os"
	"testing"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// formulas has Salt 3007.10's results for public formulas: high data after
// includes, and chunks.
func formulas(t testing.TB) *value.Dict {
	t.Helper()
	f, err := os.Open("testdata/formulas.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	v, err := yaml.Load(data, "formulas.json")
	if err != nil {
		t.Fatal(err)
	}
	return v.(*value.Dict)
}

func TestLowOfFormulas(t *testing.T) {
	n := 0
	for name, v := range formulas(t).All() {
		d := v.(*value.Dict)
		chunks, errs := Options{}.Low(d.Dict("high"))
		for _, e := range errs {
			t.Errorf("%s: %s", name, e.Text)
		}
		want := d.List("low")
		for i, c := range chunks {
			if i < len(want) && !value.Equal(c, want[i]) {
				t.Errorf("%s: chunk %d is\n%s, want\n%s", name, i, value.Repr(c), value.Repr(want[i]))
				break
			}
		}
		if len(chunks) != len(want) {
			t.Errorf("%s: %d chunks, want %d", name, len(chunks), len(want))
		}
		n++
	}
	if n < 30 {
		t.Errorf("only %d formulas", n)
	}
}

func BenchmarkLow(b *testing.B) {
	high := formulas(b).Dict("prometheus").Dict("high")
	b.ReportAllocs()
	for b.Loop() {
		if _, errs := (Options{}).Low(value.DeepCopy(high).(*value.Dict)); len(errs) > 0 {
			b.Fatal(errs[0])
		}
	}
}
