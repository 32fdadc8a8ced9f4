package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Sizes of a plot.
const (
	width, left, right = 640, 90, 90
	barHeight, barGap  = 26, 12
	curveHeight        = 300
)

var colours = map[string]string{"brine": "#1f77b4", "stock": "#999999"}

// SVG draws a figure: bars, or for several sizes curves with logarithmic axes.
// It returns "" if there is nothing to draw.
func (f *Figure) SVG() string {
	switch {
	case len(f.Samples) == 0, f.Unit == "": // a plot of a count, usually 0, would be empty
		return ""
	case f.X == "":
		return f.bars()
	}
	return f.curves()
}

type canvas struct{ strings.Builder }

func newCanvas(height int, title string) *canvas {
	c := &canvas{}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(c, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	c.text(width/2, 20, "middle", title)
	return c
}

func (c *canvas) text(x, y float64, anchor, s string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(s))
}

func (c *canvas) line(x1, y1, x2, y2 float64, style string) {
	fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2, style)
}

func (c *canvas) end() string {
	c.WriteString("</svg>\n")
	return c.String()
}

const (
	targetStyle = `stroke="#d62728" stroke-dasharray="4 3"`
	gridStyle   = `stroke="#e0e0e0"`
)

// bars draws the medians, with the spread as a thin line.
func (f *Figure) bars() string {
	kinds := f.kinds()
	top := f.AtMost
	for _, s := range f.Samples {
		top = max(top, s.Value)
	}
	if top == 0 {
		top = 1
	}
	height := 40 + len(kinds)*(barHeight+barGap) + 20
	c := newCanvas(height, f.Title+" ("+f.Unit+")")
	at := func(v float64) float64 { return left + v/top*(width-left-right) }
	y := 36.0
	for _, k := range kinds {
		median, least, most, _ := f.Median(k, 0)
		fmt.Fprintf(c, `<rect x="%d" y="%.1f" width="%.1f" height="%d" fill="%s"/>`+"\n", left, y, max(at(median)-left, 1), barHeight, colours[k])
		mid := y + barHeight/2
		c.line(at(least), mid, at(most), mid, `stroke="#000"`)
		c.text(left-8, mid+4, "end", k)
		c.text(at(max(most, median))+6, mid+4, "start", number(median))
		y += barHeight + barGap
	}
	if f.AtMost > 0 {
		c.line(at(f.AtMost), 30, at(f.AtMost), y, targetStyle)
		c.text(at(f.AtMost), y+12, "middle", "at most "+number(f.AtMost))
	}
	return c.end()
}

// scale maps values to coordinates, logarithmically.
type scale struct{ lo, hi, from, to float64 }

func (s scale) at(v float64) float64 {
	return s.from + (math.Log(v)-math.Log(s.lo))/(math.Log(s.hi)-math.Log(s.lo))*(s.to-s.from)
}

// curves draws the medians over the sizes.
func (f *Figure) curves() string {
	xs := f.Xs()
	x := scale{xs[0], max(xs[len(xs)-1], xs[0]*1.01), left, width - right}
	y := f.range10()
	y.from, y.to = curveHeight-40, 40
	c := newCanvas(curveHeight, f.Title+" ("+f.Unit+")")
	for v := y.lo; v <= y.hi*1.001; v *= 10 {
		c.line(left, y.at(v), width-right, y.at(v), gridStyle)
		c.text(left-8, y.at(v)+4, "end", number(v))
	}
	for _, v := range xs {
		c.text(x.at(v), curveHeight-22, "middle", number(v))
	}
	c.text(width/2, curveHeight-6, "middle", f.X)
	for _, k := range f.kinds() {
		var points []string
		for _, v := range xs {
			if m, _, _, n := f.Median(k, v); n > 0 && m > 0 {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x.at(v), y.at(m)))
				fmt.Fprintf(c, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x.at(v), y.at(m), colours[k])
			}
		}
		fmt.Fprintf(c, `<polyline points="%s" fill="none" stroke="%s"/>`+"\n", strings.Join(points, " "), colours[k])
		if n := len(points); n > 0 {
			var px, py float64
			fmt.Sscanf(points[n-1], "%f,%f", &px, &py)
			c.text(px+8, py+4, "start", k)
		}
	}
	if f.AtMost > 0 {
		c.line(left, y.at(f.AtMost), width-right, y.at(f.AtMost), targetStyle)
		c.text(width-right+8, y.at(f.AtMost)+16, "start", "at most")
	}
	return c.end()
}

// range10 returns a scale between powers of ten that covers all values.
func (f *Figure) range10() scale {
	lo, hi := math.Inf(1), 0.0
	see := func(v float64) {
		if v > 0 {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	for _, s := range f.Samples {
		see(s.Value)
	}
	see(f.AtMost)
	if hi == 0 {
		lo, hi = 1, 10
	}
	s := scale{lo: math.Pow(10, math.Floor(math.Log10(lo))), hi: math.Pow(10, math.Ceil(math.Log10(hi)))}
	if s.hi <= s.lo {
		s.hi = s.lo * 10
	}
	return s
}
