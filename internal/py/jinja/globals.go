package jinja

import (
	"math/rand/v2"
	"strings"

	"brine/internal/py/value"
)

// maxRange is the maximum length of range(), as in Python's sandbox.
const maxRange = 100000

// builtinGlobals are the global names of Jinja2.
func builtinGlobals() map[string]any {
	m := map[string]any{}
	for _, f := range []*Func{
		fn("range(*args)", rangeGlobal),
		fn("dict(other=missing, **kwargs)", func(c *Call) any {
			d := value.NewDict(0)
			if c.any(0) != missing {
				updateDict(c, d, c.any(0))
			}
			d.Update(c.any(1).(*value.Dict))
			return d
		}),
		fn("namespace(other=missing, **kwargs)", func(c *Call) any {
			d := value.NewDict(0)
			if c.any(0) != missing {
				updateDict(c, d, c.any(0))
			}
			d.Update(c.any(1).(*value.Dict))
			return &Namespace{d}
		}),
		fn("cycler(*items)", func(c *Call) any {
			if len(c.any(0).(value.Tuple)) == 0 {
				raise("RuntimeError", "at least one item has to be provided")
			}
			return &cycler{items: c.any(0).(value.Tuple)}
		}),
		fn("joiner(sep=missing)", func(c *Call) any {
			if c.any(0) == missing {
				return &joiner{sep: ", "}
			}
			return &joiner{sep: c.any(0)}
		}),
		fn("lipsum(n=5, html=True, min=20, max=100)", lipsum),
	} {
		m[f.name] = Global(f)
	}
	return m
}

func rangeGlobal(c *Call) any {
	args := c.any(0).(value.Tuple)
	r := Range{step: 1}
	n := make([]int64, len(args))
	for i, a := range args {
		v, ok := asInt(a)
		if !ok {
			if u, is := a.(*Undefined); is {
				u.fail()
			}
			raise("TypeError", "'%s' object cannot be interpreted as an integer", typeName(a))
		}
		n[i] = int64(index(v))
	}
	switch len(n) {
	case 0:
		raise("TypeError", "range expected at least 1 argument, got 0")
	case 1:
		r.stop = n[0]
	case 2, 3:
		r.start, r.stop = n[0], n[1]
		if len(n) == 3 {
			r.step = n[2]
		}
	default:
		raise("TypeError", "range expected at most 3 arguments, got %d", len(n))
	}
	if r.step == 0 {
		raise("ValueError", "range() arg 3 must not be zero")
	}
	if r.Len() > maxRange {
		raise("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return r
}

type cycler struct {
	items value.Tuple
	pos   int
}

func (y *cycler) Attr(name string) (any, bool) {
	switch name {
	case "current":
		return y.items[y.pos], true
	case "pos":
		return int64(y.pos), true
	case "items":
		return y.items, true
	case "next":
		return Function("next", func(*Call) (any, error) {
			v := y.items[y.pos]
			y.pos = (y.pos + 1) % len(y.items)
			return v, nil
		}), true
	case "reset":
		return Function("reset", func(*Call) (any, error) { y.pos = 0; return nil, nil }), true
	}
	return nil, false
}

func (y *cycler) TypeName() string { return "jinja2.utils.Cycler" }

type joiner struct {
	sep  any
	used bool
}

func (j *joiner) Call(*Call) (any, error) {
	if !j.used {
		j.used = true
		return "", nil
	}
	return j.sep, nil
}

func (j *joiner) TypeName() string { return "jinja2.utils.Joiner" }

// lipsum returns paragraphs of filler text.
func lipsum(c *Call) any {
	words := strings.Fields("lorem ipsum dolor sit amet consectetuer adipiscing elit sed diam nonummy nibh euismod tincidunt ut laoreet dolore magna " +
		"aliquam erat volutpat")
	low, high := c.int(2), c.int(3)
	if c.int(0) < 0 || low < 1 || high <= low {
		raise("ValueError", "lipsum needs numbers of which min is less than max")
	}
	c.Reserve(max(c.int(0), 0) * 8)
	c.Reserve(max(c.int(0), 0) * 8 * min(low, 1<<20))
	c.Reserve(low * 16)
	var out []string
	for range c.int(0) {
		n := low + rand.IntN(high-low)
		c.Spend(n * 28)
		ws := make([]string, n)
		for i := range ws {
			ws[i] = words[rand.IntN(len(words))]
		}
		p := strings.Join(ws, " ")
		out = append(out, strings.ToUpper(p[:1])+p[1:]+".")
	}
	if !c.bool(1) {
		return strings.Join(out, "\n\n")
	}
	return Markup("<p>" + strings.Join(out, "</p>\n<p>") + "</p>")
}
