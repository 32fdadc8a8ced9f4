// Package metrics writes a daemon's metrics in Prometheus' text format, and serves
// them with the daemon's health.
//
// A Family declares a metric name. A component of a daemon counts in its own
// fields, and writes them to a Page on request: nothing is registered, and nothing
// is computed without a reader. Families are composite literals, which are not
// allocated before main (docs/adr/0038).
package metrics

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Kind is the type of a family's values.
type Kind uint8

// The kinds.
const (
	Gauge    Kind = iota // can increase and decrease
	Counter              // only increases until the process ends
	Duration             // a histogram of seconds
)

func (k Kind) String() string { return [...]string{"gauge", "counter", "histogram"}[k] }

// Family declares the metrics with one name.
type Family struct {
	Name string
	Kind Kind
	// Help describes in one sentence what is measured, with the unit.
	Help string
	// Labels are the names of the labels, in the order of Page's arguments. The
	// number of their values must be bounded: peers must not be able to create new
	// ones.
	Labels []string
}

// Page collects the values of one request. It is not safe for concurrent use.
type Page struct {
	parts map[*Family]*bytes.Buffer
}

// maxLabel bounds the value of a label, in bytes.
const maxLabel = 200

// Set writes a value. labels are the values of the family's labels.
func (p *Page) Set(f *Family, v float64, labels ...string) {
	b := p.part(f)
	p.sample(b, f.Name, f.Labels, labels, "", "")
	b.WriteString(number(v))
	b.WriteByte('\n')
}

// Count sets a counter or another integer.
func (p *Page) Count(f *Family, n int64, labels ...string) { p.Set(f, float64(n), labels...) }

// Bool sets 1 for true or 0 for false.
func (p *Page) Bool(f *Family, on bool, labels ...string) {
	v := 0.0
	if on {
		v = 1
	}
	p.Set(f, v, labels...)
}

// Time writes a time as seconds since 1970. A zero time is omitted.
func (p *Page) Time(f *Family, at time.Time, labels ...string) {
	if !at.IsZero() {
		p.Set(f, float64(at.UnixMilli())/1000, labels...)
	}
}

// Times writes a histogram.
func (p *Page) Times(f *Family, h *Times, labels ...string) {
	b := p.part(f)
	var sum uint64
	for i := range h.counts {
		sum += h.counts[i].Load()
		limit := "+Inf"
		if i < len(limits) {
			limit = number(limits[i].Seconds())
		}
		p.sample(b, f.Name+"_bucket", f.Labels, labels, "le", limit)
		b.WriteString(strconv.FormatUint(sum, 10))
		b.WriteByte('\n')
	}
	p.sample(b, f.Name+"_sum", f.Labels, labels, "", "")
	b.WriteString(number(time.Duration(h.sum.Load()).Seconds()))
	b.WriteByte('\n')
	p.sample(b, f.Name+"_count", f.Labels, labels, "", "")
	b.WriteString(strconv.FormatUint(sum, 10)) // consistent with the buckets
	b.WriteByte('\n')
}

// part returns the lines of a family: lines with the same name must be adjacent.
func (p *Page) part(f *Family) *bytes.Buffer {
	if p.parts == nil {
		p.parts = map[*Family]*bytes.Buffer{}
	}
	b := p.parts[f]
	if b == nil {
		b = &bytes.Buffer{}
		p.parts[f] = b
	}
	return b
}

// sample writes a line up to its value. more is a pair of name and value of one
// additional label.
func (p *Page) sample(b *bytes.Buffer, name string, names, values []string, more, limit string) {
	b.WriteString(name)
	sep := byte('{')
	for i, n := range names {
		v := ""
		if i < len(values) {
			v = values[i]
		}
		sep = label(b, sep, n, v)
	}
	if more != "" {
		sep = label(b, sep, more, limit)
	}
	if sep == ',' {
		b.WriteByte('}')
	}
	b.WriteByte(' ')
}

func label(b *bytes.Buffer, sep byte, name, v string) byte {
	b.WriteByte(sep)
	b.WriteString(name)
	b.WriteString(`="`)
	if len(v) > maxLabel {
		v = v[:maxLabel]
	}
	for _, r := range strings.ToValidUTF8(v, "?") {
		switch r {
		case '\\':
			b.WriteString(`\\`)
		case '"':
			b.WriteString(`\"`)
		case '\n':
			b.WriteString(`\n`)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return ','
}

func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.FormatInt(int64(v), 10)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// Families returns the written families, sorted by name.
func (p *Page) Families() []*Family {
	out := make([]*Family, 0, len(p.parts))
	for f := range p.parts {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *Family) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Bytes returns the page in the text format, version 0.0.4.
func (p *Page) Bytes() []byte {
	var out bytes.Buffer
	for _, f := range p.Families() {
		out.WriteString("# HELP " + f.Name + " " + f.Help + "\n# TYPE " + f.Name + " " + f.Kind.String() + "\n")
		out.Write(p.parts[f].Bytes())
	}
	return out.Bytes()
}

// Type is the content type of Bytes.
const Type = "text/plain; version=0.0.4; charset=utf-8"

// limits are the upper bounds of the histograms' buckets.
var limits = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
	30 * time.Second, time.Minute,
}

// Times counts durations. The zero value is ready, and it is safe for concurrent
// use.
type Times struct {
	counts [len(limits) + 1]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

// Observe counts a duration.
func (h *Times) Observe(d time.Duration) {
	i := 0
	for i < len(limits) && d > limits[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(max(d, 0)))
}

// Longer returns the number of durations above a bucket's bound.
func (h *Times) Longer(than time.Duration) (n int64) {
	for i := range h.counts {
		if i == len(limits) || limits[i] > than {
			n += int64(h.counts[i].Load())
		}
	}
	return n
}

// Counts is what Times has counted at one time.
type Counts struct {
	counts [len(limits) + 1]uint64
	sum    time.Duration
}

// Counts returns what was counted.
func (h *Times) Counts() (c Counts) {
	for i := range h.counts {
		c.counts[i] = h.counts[i].Load()
	}
	c.sum = time.Duration(h.sum.Load())
	return c
}

// Plus returns both.
func (c Counts) Plus(d Counts) Counts {
	for i, n := range d.counts {
		c.counts[i] += n
	}
	c.sum += d.sum
	return c
}

// Minus returns what was counted since earlier.
func (c Counts) Minus(earlier Counts) Counts {
	for i, n := range earlier.counts {
		c.counts[i] -= min(n, c.counts[i])
	}
	c.sum -= earlier.sum
	return c
}

// N returns the number of durations.
func (c Counts) N() (n uint64) {
	for _, some := range c.counts {
		n += some
	}
	return n
}

// Mean returns the mean duration, 0 without any.
func (c Counts) Mean() time.Duration {
	return time.Duration(float64(max(c.sum, 0)) / float64(max(c.N(), 1)))
}

// Most returns the bound of a bucket below which a part of the durations are: 0.95 for all but the longest twentieth. It is 0 without any.
func (c Counts) Most(part float64) time.Duration {
	want, n := part*float64(c.N()), 0.0
	for i, some := range c.counts {
		if n += float64(some); some > 0 && n >= want {
			return limits[min(i, len(limits)-1)]
		}
	}
	return 0
}

// Since counts the time since start.
func (h *Times) Since(start time.Time) { h.Observe(time.Since(start)) }
