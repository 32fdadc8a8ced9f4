package jinja

import (
	"encoding/hex"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/py/value"
)

func dictOf(c *Call) *value.Dict { return c.Bound[0].(*value.Dict) }

func dictMethods() map[string]*Func {
	return table(
		fn("keys(self)", func(c *Call) any { return view{dictOf(c), 'k'} }),
		fn("values(self)", func(c *Call) any { return view{dictOf(c), 'v'} }),
		fn("items(self)", func(c *Call) any { return view{dictOf(c), 'i'} }),
		fn("get(self, key, default=None)", func(c *Call) any {
			if hasKey(dictOf(c), c.any(1)) {
				return dictOf(c).At(plainKey(c.any(1)))
			}
			return c.any(2)
		}),
		fn("pop(self, key, default=missing)", func(c *Call) any {
			d, k := dictOf(c), c.any(1)
			if hasKey(d, k) {
				v := d.At(plainKey(k))
				d.Delete(plainKey(k))
				return v
			}
			if c.any(2) == missing {
				raise("KeyError", "%s", repr(k))
			}
			return c.any(2)
		}),
		fn("popitem(self)", func(c *Call) any {
			d := dictOf(c)
			if d.Len() == 0 {
				raise("KeyError", "'popitem(): dictionary is empty'")
			}
			k, v := d.Entry(d.Len() - 1)
			d.Delete(k)
			return value.Tuple{k, v}
		}),
		fn("setdefault(self, key, default=None)", func(c *Call) any {
			d, k := dictOf(c), c.any(1)
			if hasKey(d, k) {
				return d.At(plainKey(k))
			}
			c.Spend(128)
			setItem(d, k, c.any(2))
			return c.any(2)
		}),
		fn("update(self, other=missing, **kwargs)", func(c *Call) any {
			if c.any(1) != missing {
				updateDict(c, dictOf(c), c.any(1))
			}
			c.Spend(128 * c.any(2).(*value.Dict).Len())
			dictOf(c).Update(c.any(2).(*value.Dict))
			return nil
		}),
		fn("copy(self)", func(c *Call) any { return dictOf(c).Clone() }),
		fn("clear(self)", func(c *Call) any {
			d := dictOf(c)
			for d.Len() > 0 {
				k, _ := d.Entry(d.Len() - 1)
				d.Delete(k)
			}
			return nil
		}),
		fn("fromkeys(self, iterable, value=None)", func(c *Call) any {
			d := value.NewDict(0)
			for _, k := range items(c.any(1)) {
				setItem(d, k, c.any(2))
			}
			return d
		}),
	)
}

// updateDict is d.update(v) with a dict or pairs.
func updateDict(c *Call, d *value.Dict, v any) {
	switch x := v.(type) {
	case *value.Dict:
		c.Spend(128 * x.Len())
		d.Update(x)
		return
	case *Namespace:
		d.Update(x.Attrs)
		return
	case Itemer:
		if it, ok := v.(Iterable); ok {
			next := it.Iterate()
			for k, ok := next(); ok; k, ok = next() {
				w, _ := x.Item(k)
				setItem(d, k, w)
			}
			return
		}
	}
	for i, p := range items(v) {
		pair := pairOf(p, i)
		c.Spend(128)
		setItem(d, pair[0], pair[1])
	}
}

func pairOf(p any, i int) []any {
	if _, ok := iterate(p); !ok {
		raise("TypeError", "cannot convert dictionary update sequence element #%d to a sequence", i)
	}
	pair := items(p)
	if len(pair) != 2 {
		raise("ValueError", "dictionary update sequence element #%d has length %d; 2 is required", i, len(pair))
	}
	return pair
}

func listOf(c *Call) *value.List { return c.Bound[0].(*value.List) }

func listMethods() map[string]*Func {
	m := table(
		fn("append(self, object)", func(c *Call) any {
			c.Spend(32)
			listOf(c).Append(c.any(1))
			return nil
		}),
		fn("extend(self, iterable)", func(c *Call) any {
			more := items(c.any(1))
			c.Spend(32 * len(more))
			listOf(c).Append(more...)
			return nil
		}),
		fn("insert(self, index, object)", func(c *Call) any {
			l, i := listOf(c), c.int(1)
			if i < 0 {
				i = max(0, i+len(l.Items))
			}
			c.Spend(32)
			c.f.rt.work(16 * len(l.Items))
			l.Items = slices.Insert(l.Items, min(i, len(l.Items)), c.any(2))
			return nil
		}),
		fn("pop(self, index=-1)", func(c *Call) any {
			l, i := listOf(c), c.int(1)
			if len(l.Items) == 0 {
				raise("IndexError", "pop from empty list")
			}
			if i < 0 {
				i += len(l.Items)
			}
			if i < 0 || i >= len(l.Items) {
				raise("IndexError", "pop index out of range")
			}
			v := l.Items[i]
			l.Items = slices.Delete(l.Items, i, i+1)
			return v
		}),
		fn("remove(self, value)", func(c *Call) any {
			l := listOf(c)
			i := slices.IndexFunc(l.Items, func(v any) bool { return equal(v, c.any(1)) })
			if i < 0 {
				raise("ValueError", "list.remove(x): x not in list")
			}
			l.Items = slices.Delete(l.Items, i, i+1)
			return nil
		}),
		fn("clear(self)", func(c *Call) any { listOf(c).Items = nil; return nil }),
		fn("copy(self)", func(c *Call) any { return &value.List{Items: slices.Clone(listOf(c).Items)} }),
		fn("reverse(self)", func(c *Call) any { slices.Reverse(listOf(c).Items); return nil }),
		fn("sort(self, key=None, reverse=False)", func(c *Call) any {
			l := listOf(c)
			var key func(any) any
			if k := c.any(1); k != nil {
				key = func(v any) any { return c.f.call(k, []any{v}, nil) }
			}
			l.Items = sorted(c, l.Items, key, c.bool(2))
			return nil
		}),
	)
	for k, f := range seqMethods() {
		m[k] = f
	}
	return m
}

func seqMethods() map[string]*Func {
	return table(
		fn("count(self, value)", func(c *Call) any {
			n := int64(0)
			for _, v := range items(c.any(0)) {
				c.Tick()
				if equal(v, c.any(1)) {
					n++
				}
			}
			return n
		}),
		fn("index(self, value, start=0, stop=None)", func(c *Call) any {
			all := items(c.any(0))
			from, _, n := sliceBounds(len(all), c.any(2), c.any(3), nil)
			for i := from; i < from+n; i++ {
				c.Tick()
				if equal(all[i], c.any(1)) {
					return int64(i)
				}
			}
			if _, ok := c.any(0).(*value.List); ok {
				raise("ValueError", "%s is not in list", repr(c.any(1)))
			}
			raise("ValueError", "tuple.index(x): x not in tuple")
			return nil
		}),
	)
}

// sorted returns the items in a stable order.
func sorted(c *Call, in []any, key func(any) any, reverse bool) []any {
	type pair struct{ k, v any }
	ps := make([]pair, len(in))
	for i, v := range in {
		ps[i] = pair{v, v}
		if key != nil {
			ps[i].k = key(v)
		}
	}
	slices.SortStableFunc(ps, func(a, b pair) int {
		c.Tick()
		x, nan, ok := order(a.k, b.k, &walk{})
		if !ok {
			raise("TypeError", "'<' not supported between instances of '%s' and '%s'", typeName(a.k), typeName(b.k))
		}
		switch {
		case nan:
			return 0
		case reverse:
			return -x
		}
		return x
	})
	out := make([]any, len(ps))
	for i := range ps {
		out[i] = ps[i].v
	}
	return out
}

func intMethods() map[string]*Func {
	return table(
		fn("bit_length(self)", func(c *Call) any { n, _ := asInt(c.any(0)); return int64(asBig(n).BitLen()) }),
		fn("bit_count(self)", func(c *Call) any {
			n, _ := asInt(c.any(0))
			return int64(strings.Count(new(big.Int).Abs(asBig(n)).Text(2), "1"))
		}),
		fn("conjugate(self)", func(c *Call) any { n, _ := asInt(c.any(0)); return n }),
		fn("as_integer_ratio(self)", func(c *Call) any { n, _ := asInt(c.any(0)); return value.Tuple{n, int64(1)} }),
		fn("is_integer(self)", func(*Call) any { return true }),
		fn("to_bytes(self, length=1, byteorder='big')", func(c *Call) any {
			n, _ := asInt(c.any(0))
			size := c.int(1)
			c.Reserve(2 * max(0, size))
			b := asBig(n)
			if b.Sign() < 0 || b.BitLen() > size*8 {
				raise("OverflowError", "int too big to convert")
			}
			out := b.FillBytes(make([]byte, size))
			if c.str(2) == "little" {
				slices.Reverse(out)
			}
			return out
		}),
	)
}

func floatMethods() map[string]*Func {
	return table(
		fn("is_integer(self)", func(c *Call) any { f := c.any(0).(float64); return f == math.Trunc(f) && !math.IsInf(f, 0) }),
		fn("conjugate(self)", func(c *Call) any { return c.any(0) }),
		fn("hex(self)", func(c *Call) any { return floatHex(c.any(0).(float64)) }),
		fn("as_integer_ratio(self)", func(c *Call) any {
			r := new(big.Rat)
			if r.SetFloat64(c.any(0).(float64)) == nil {
				raise("ValueError", "cannot convert NaN or Infinity to integer ratio")
			}
			return value.Tuple{value.Big(r.Num()), value.Big(r.Denom())}
		}),
	)
}

func setMethods() map[string]*Func {
	self := func(c *Call) *value.Dict { return c.any(0).(*Set).d }
	combine := func(sig string, keep func(a, b *value.Dict, out *value.Dict)) *Func {
		return fn(sig, func(c *Call) any {
			b, out := value.NewDict(0), value.NewDict(0)
			for _, v := range items(c.any(1)) {
				setItem(b, v, true)
			}
			keep(self(c), b, out)
			return &Set{out}
		})
	}
	pick := func(from, other, out *value.Dict, in bool) {
		for _, k := range from.Keys() {
			if other.Has(k) == in {
				out.Set(k, true)
			}
		}
	}
	return table(
		fn("add(self, value)", func(c *Call) any { c.Spend(128); setItem(self(c), c.any(1), true); return nil }),
		fn("discard(self, value)", func(c *Call) any { self(c).Delete(plainKey(c.any(1))); return nil }),
		fn("remove(self, value)", func(c *Call) any {
			if !self(c).Delete(plainKey(c.any(1))) {
				raise("KeyError", "%s", repr(c.any(1)))
			}
			return nil
		}),
		fn("copy(self)", func(c *Call) any { return &Set{self(c).Clone()} }),
		fn("update(self, other)", func(c *Call) any {
			for _, v := range items(c.any(1)) {
				c.Spend(128)
				setItem(self(c), v, true)
			}
			return nil
		}),
		combine("union(self, other)", func(a, b, out *value.Dict) { out.Update(a); out.Update(b) }),
		combine("intersection(self, other)", func(a, b, out *value.Dict) { pick(a, b, out, true) }),
		combine("difference(self, other)", func(a, b, out *value.Dict) { pick(a, b, out, false) }),
		combine("symmetric_difference(self, other)", func(a, b, out *value.Dict) { pick(a, b, out, false); pick(b, a, out, false) }),
		fn("issubset(self, other)", func(c *Call) any {
			s, _ := NewSet(items(c.any(1)))
			return subset("<=", self(c), s.d)
		}),
		fn("issuperset(self, other)", func(c *Call) any {
			s, _ := NewSet(items(c.any(1)))
			return subset(">=", self(c), s.d)
		}),
	)
}

func bytesMethods() map[string]*Func {
	self := func(c *Call) string { return string(c.any(0).([]byte)) }
	arg := func(c *Call, i int) string {
		b, ok := c.any(i).([]byte)
		if !ok {
			raise("TypeError", "a bytes-like object is required, not '%s'", typeName(c.any(i)))
		}
		return string(b)
	}
	wrap := func(name string, do func(string) string) *Func {
		return fn(name+"(self)", func(c *Call) any { return []byte(do(self(c))) })
	}
	return table(
		fn("decode(self, encoding='utf-8', errors='strict')", func(c *Call) any { return decode(c.any(0).([]byte), c.str(1), c.str(2)) }),
		fn("hex(self)", func(c *Call) any { return hex.EncodeToString(c.any(0).([]byte)) }),
		wrap("upper", strings.ToUpper), wrap("lower", strings.ToLower), wrap("strip", strings.TrimSpace),
		fn("startswith(self, prefix)", func(c *Call) any { return strings.HasPrefix(self(c), arg(c, 1)) }),
		fn("endswith(self, suffix)", func(c *Call) any { return strings.HasSuffix(self(c), arg(c, 1)) }),
		fn("find(self, sub)", func(c *Call) any { return int64(strings.Index(self(c), arg(c, 1))) }),
		fn("count(self, sub)", func(c *Call) any { return int64(strings.Count(self(c), arg(c, 1))) }),
		fn("replace(self, old, new)", func(c *Call) any { return []byte(replace(c, self(c), arg(c, 1), arg(c, 2), -1)) }),
		fn("split(self, sep=None)", func(c *Call) any {
			parts := strings.Fields(self(c))
			if c.any(1) != nil {
				parts = strings.Split(self(c), arg(c, 1))
			}
			l := &value.List{}
			for _, p := range parts {
				l.Append([]byte(p))
			}
			return l
		}),
	)
}

func timeMethods() map[string]*Func {
	self := func(c *Call) time.Time { return c.any(0).(time.Time) }
	return table(
		fn("isoformat(self, sep='T')", func(c *Call) any {
			return strings.Replace(value.Str(self(c)), " ", c.str(1), 1)
		}),
		fn("timestamp(self)", func(c *Call) any { return float64(self(c).UnixMicro()) / 1e6 }),
		fn("weekday(self)", func(c *Call) any { return int64(self(c).Weekday()+6) % 7 }),
		fn("isoweekday(self)", func(c *Call) any { return int64(self(c).Weekday()+6)%7 + 1 }),
		fn("strftime(self, format)", func(c *Call) any { return Strftime(self(c), c.str(1)) }),
	)
}

// floatHex is float.hex(): all digits, and an exponent without leading zeros.
func floatHex(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return value.FormatFloat(f)
	}
	if f == 0 {
		return strings.TrimSuffix(strconv.FormatFloat(f, 'x', 1, 64), "0p+00") + "0p+0"
	}
	mant, exp, _ := strings.Cut(strconv.FormatFloat(f, 'x', 13, 64), "p")
	n, _ := strconv.Atoi(exp)
	sign := "+"
	if n < 0 {
		sign = ""
	}
	return mant + "p" + sign + strconv.Itoa(n)
}

// Sorted returns the items in the order of their keys, as Python's sorted()
// does.
func (c *Call) Sorted(items []any, key func(any) any) *value.List {
	return &value.List{Items: sorted(c, items, key, false)}
}
