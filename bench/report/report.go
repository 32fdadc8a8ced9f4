// Package report stores measurements and prints them: as text, as JSON, and as a plot for each
// figure.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Figure is one quantity, measured of several kinds of programs, perhaps for
// several sizes.
type Figure struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Unit  string `json:"unit"`
	// AtMost is the limit for Brine; 0 means none.
	AtMost float64 `json:"at_most,omitempty"`
	// Ratio is the minimum factor by which stock Salt must cost more; 0 means none.
	Ratio float64 `json:"ratio,omitempty"`
	// X is the meaning of the sizes; "" if there is only one.
	X       string   `json:"x,omitempty"`
	Samples []Sample `json:"samples"`
}

// Sample is one measurement.
type Sample struct {
	Kind  string  `json:"kind"`
	X     float64 `json:"x,omitempty"`
	Value float64 `json:"value"`
}

// Report is all figures of a run.
type Report struct {
	Machine []Fact    `json:"machine"`
	Limits  []Fact    `json:"limits"`
	Figures []*Figure `json:"figures"`
	// Failures lists the measurements that failed.
	Failures []string `json:"failures,omitempty"`
}

// Fact is a property of the machine.
type Fact struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

// Add adds a measurement to a figure of the report.
func (r *Report) Add(name, kind string, x, v float64) {
	i := slices.IndexFunc(r.Figures, func(f *Figure) bool { return f.Name == name })
	if i < 0 {
		panic("bench: no figure " + name)
	}
	r.Figures[i].Samples = append(r.Figures[i].Samples, Sample{kind, x, v})
}

// Keep copies the samples of an earlier report for figures that have none.
func (r *Report) Keep(old *Report) {
	for _, f := range r.Figures {
		i := slices.IndexFunc(old.Figures, func(o *Figure) bool { return o.Name == f.Name })
		if i >= 0 && len(f.Samples) == 0 {
			f.Samples = old.Figures[i].Samples
		}
	}
}

// Median returns the median, the minimum and the maximum of a kind's samples for a size; n is their
// number.
func (f *Figure) Median(kind string, x float64) (median, least, most float64, n int) {
	var vs []float64
	for _, s := range f.Samples {
		if s.Kind == kind && s.X == x {
			vs = append(vs, s.Value)
		}
	}
	if n = len(vs); n == 0 {
		return 0, 0, 0, 0
	}
	slices.Sort(vs)
	median = vs[n/2]
	if n%2 == 0 {
		median = (vs[n/2-1] + vs[n/2]) / 2
	}
	return median, vs[0], vs[n-1], n
}

// Xs returns the sizes for which there are samples, ascending.
func (f *Figure) Xs() []float64 {
	var xs []float64
	for _, s := range f.Samples {
		if !slices.Contains(xs, s.X) {
			xs = append(xs, s.X)
		}
	}
	slices.Sort(xs)
	return xs
}

// kinds returns the kinds with samples, Brine's first.
func (f *Figure) kinds() []string {
	var ks []string
	for _, s := range f.Samples {
		if !slices.Contains(ks, s.Kind) {
			ks = append(ks, s.Kind)
		}
	}
	slices.SortFunc(ks, func(a, b string) int { return cmp.Compare(a, b) })
	return ks
}

// JSON writes the report as JSON.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// Read reads the output of JSON.
func Read(rd io.Reader) (*Report, error) {
	r := &Report{}
	return r, json.NewDecoder(rd).Decode(r)
}

// Text writes the report as text.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	for _, group := range []struct {
		title string
		facts []Fact
	}{{"Machine", r.Machine}, {"The machine's own limits", r.Limits}} {
		fmt.Fprintf(&b, "%s\n", group.title)
		for _, f := range group.facts {
			fmt.Fprintf(&b, "  %-58s %10s %s\n", f.Name, number(f.Value), f.Unit)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%-66s %-6s %10s %17s %3s %10s %8s %9s\n", "Figure", "unit", "Brine", "least..most", "n", "stock", "ratio", "at most")
	for _, f := range r.Figures {
		for _, x := range f.Xs() {
			b.WriteString(f.line(x))
		}
	}
	if len(r.Failures) > 0 {
		fmt.Fprintf(&b, "\nNot measured:\n  %s\n", strings.Join(r.Failures, "\n  "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line formats one figure for one size.
func (f *Figure) line(x float64) string {
	title := f.Title
	if f.X != "" {
		title = fmt.Sprintf("%s, %s %s", title, number(x), f.X)
	}
	ours, least, most, n := f.Median("brine", x)
	theirs, _, _, m := f.Median("stock", x)
	cells := [...]string{"-", "", "-", "", ""}
	if n > 0 {
		cells[0], cells[1] = number(ours), number(least)+".."+number(most)
	}
	if m > 0 {
		cells[2] = number(theirs)
	}
	if n > 0 && m > 0 && ours > 0 {
		cells[3] = "1:" + number(theirs/ours)
	}
	switch {
	case f.AtMost > 0:
		cells[4] = number(f.AtMost) + " " + verdict(n > 0, ours <= f.AtMost)
	case f.Ratio > 0:
		cells[4] = "1:" + number(f.Ratio) + " " + verdict(n > 0 && m > 0, theirs >= f.Ratio*ours)
	}
	return fmt.Sprintf("%-66s %-6s %10s %17s %3d %10s %8s %9s\n", title, f.Unit, cells[0], cells[1], n, cells[2], cells[3], cells[4])
}

// verdict says whether a limit is kept, if it was measured.
func verdict(measured, kept bool) string {
	switch {
	case !measured:
		return ""
	case kept:
		return "ok"
	}
	return "NO"
}

// number formats v with three digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return trim(fmt.Sprintf("%.1f", v))
	case a >= 1:
		return trim(fmt.Sprintf("%.2f", v))
	case a >= 0.001:
		return trim(fmt.Sprintf("%.*f", 2-int(math.Floor(math.Log10(a))), v))
	}
	return fmt.Sprintf("%.2g", v)
}

func trim(s string) string { return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") }
