package report

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func sample() *Report {
	r := &Report{Figures: []*Figure{
		{Name: "a", Title: "A < B", Unit: "ms", AtMost: 2},
		{Name: "c", Title: "Curve", Unit: "ms", X: "minions", AtMost: 1},
		{Name: "none", Title: "Never measured", Unit: "ms"},
		{Name: "d", Title: "Beside stock", Unit: "s", Ratio: 10},
		{Name: "e", Title: "Too slow beside stock", Unit: "s", Ratio: 5},
	}, Machine: []Fact{{Name: "cores", Value: 2}}, Failures: []string{"it rained"}}
	for _, v := range []float64{3, 1, 2.5} {
		r.Add("a", "brine", 0, v)
	}
	r.Add("a", "stock", 0, 25)
	r.Add("a", "stock", 0, 75)
	for _, name := range []string{"d", "e"} {
		r.Add(name, "brine", 0, 1)
	}
	r.Add("d", "stock", 0, 10)
	r.Add("e", "stock", 0, 4.9)
	for _, x := range []float64{10000, 100} {
		r.Add("c", "brine", x, 0.5)
	}
	return r
}

func TestMedian(t *testing.T) {
	f := sample().Figures[0]
	if m, lo, hi, n := f.Median("brine", 0); m != 2.5 || lo != 1 || hi != 3 || n != 3 {
		t.Errorf("odd: %v %v..%v of %d", m, lo, hi, n)
	}
	if m, _, _, _ := f.Median("stock", 0); m != 50 {
		t.Errorf("even: %v", m)
	}
	if _, _, _, n := f.Median("other", 0); n != 0 {
		t.Errorf("%d samples of no figure", n)
	}
}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := sample().Text(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1:20", "2 NO", "1 ok", "1:10 ok", "1:5 NO", "Curve, 100 minions", "Curve, 10000 minions", "it rained"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestJSON(t *testing.T) {
	var b strings.Builder
	if err := sample().JSON(&b); err != nil {
		t.Fatal(err)
	}
	back, err := Read(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if m, _, _, _ := back.Figures[0].Median("brine", 0); m != 2.5 {
		t.Errorf("median %v after reading", m)
	}
}

func TestKeep(t *testing.T) {
	r := &Report{Figures: []*Figure{{Name: "a", Unit: "ms"}, {Name: "c"}, {Name: "new"}}}
	r.Add("c", "brine", 0, 7)
	r.Keep(sample())
	if m, _, _, n := r.Figures[0].Median("brine", 0); m != 2.5 || n != 3 {
		t.Errorf("what was not measured: %v of %d", m, n)
	}
	if xs := r.Figures[1].Xs(); len(xs) != 1 {
		t.Errorf("what was measured has sizes %v of the earlier report", xs)
	}
}

func TestPlots(t *testing.T) {
	r := sample()
	for _, f := range r.Figures[:2] {
		d := xml.NewDecoder(strings.NewReader(f.SVG()))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v\n%s", f.Name, err, f.SVG())
			}
		}
		if strings.Contains(f.SVG(), "NaN") || strings.Contains(f.SVG(), "Inf") {
			t.Errorf("%s has places that are no numbers", f.Name)
		}
	}
	if s := r.Figures[2].SVG(); s != "" {
		t.Errorf("a plot of nothing: %s", s)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 12345: "12345", 123.4: "123", 12.34: "12.3", 5: "5", 1.5: "1.5", 0.25: "0.25", 0.0123: "0.0123",
		1e-6: "1e-06"} {
		if got := number(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}
