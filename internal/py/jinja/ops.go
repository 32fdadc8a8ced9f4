package jinja

import (
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"brine/internal/py/value"
)

// maxEqual bounds the nesting of compared values.
const maxEqual = 500

// maxPairs bounds the pairs of values that one comparison visits.
const maxPairs = 4 << 20

// walk is the state of one comparison.
type walk struct{ depth, pairs int }

func (w *walk) enter() {
	if w.depth++; w.depth > maxEqual {
		raise("RecursionError", "maximum recursion depth exceeded in comparison")
	}
	if w.pairs++; w.pairs > maxPairs {
		raise("RecursionError", "a comparison visits more than %d pairs of values", maxPairs)
	}
}

func equal(a, b any) bool {
	var w walk
	return equalDeep(a, b, &w)
}

// Equal is ==. It fails the rendering where Python would.
func Equal(a, b any) bool { return equal(a, b) }

func equalDeep(a, b any, w *walk) bool {
	w.enter()
	same := equalValues(a, b, w)
	w.depth--
	return same
}

func equalValues(a, b any, depth *walk) bool {
	if u, ok := b.(*Undefined); ok {
		a, b = u, a
	}
	switch x := a.(type) {
	case string:
		y, ok := text(b)
		return ok && x == y
	case Markup:
		y, ok := text(b)
		return ok && string(x) == y
	case *value.List:
		y, ok := b.(*value.List)
		return ok && (x == y || equalItems(x.Items, y.Items, depth))
	case value.Tuple:
		y, ok := b.(value.Tuple)
		return ok && equalItems(x, y, depth)
	case *value.Dict:
		y, ok := b.(*value.Dict)
		return ok && (x == y || equalDicts(x, y, depth))
	case *Set:
		y, ok := b.(*Set)
		return ok && equalDicts(x.d, y.d, depth)
	case Range:
		y, ok := b.(Range)
		n := x.Len()
		return ok && n == y.Len() && (n == 0 || x.start == y.start && (n == 1 || x.step == y.step))
	case view:
		y, ok := b.(view)
		if ok && x.kind != 'v' && x.kind == y.kind {
			return equalDicts(x.d, y.d, depth)
		}
		return x == b
	case *Undefined:
		if x.kind == StrictUndefined {
			x.fail()
		}
		_, ok := b.(*Undefined)
		return ok
	case nil, bool, int64, float64, *big.Int, []byte, time.Time, value.Const, value.Ext:
		return value.Equal(a, b)
	}
	return sameObject(a, b)
}

func sameObject(a, b any) bool {
	switch b.(type) {
	case value.Tuple, []byte:
		return false
	}
	return a == b
}

func equalItems(a, b []any, depth *walk) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equalDeep(a[i], b[i], depth) {
			return false
		}
	}
	return true
}

func equalDicts(a, b *value.Dict, depth *walk) bool {
	if a.Len() != b.Len() {
		return false
	}
	for i := range a.Len() {
		k, v := a.Entry(i)
		w, ok := b.Get(k)
		if !ok || !equalDeep(v, w, depth) {
			return false
		}
	}
	return true
}

// order returns -1, 0 or 1. ok is false where Python cannot compare; nan is
// true where no order holds.
func order(a, b any, depth *walk) (c int, nan, ok bool) {
	depth.enter()
	if u, is := a.(*Undefined); is {
		u.fail()
	}
	if u, is := b.(*Undefined); is {
		u.fail()
	}
	if isNaN(a) || isNaN(b) {
		_, ok := value.Compare(a, b)
		return 0, true, ok
	}
	switch x := a.(type) {
	case string, Markup:
		s, _ := text(a)
		t, ok := text(b)
		return strings.Compare(s, t), false, ok
	case *value.List:
		if y, is := b.(*value.List); is {
			return orderItems(x.Items, y.Items, depth)
		}
		return 0, false, false
	case value.Tuple:
		if y, is := b.(value.Tuple); is {
			return orderItems(x, y, depth)
		}
		return 0, false, false
	}
	c, ok = value.Compare(a, b)
	return c, false, ok
}

func isNaN(v any) bool {
	f, ok := v.(float64)
	return ok && math.IsNaN(f)
}

func orderItems(a, b []any, depth *walk) (int, bool, bool) {
	for i := range min(len(a), len(b)) {
		if !equalDeep(a[i], b[i], depth) {
			return order(a[i], b[i], depth)
		}
	}
	switch {
	case len(a) < len(b):
		return -1, false, true
	case len(a) > len(b):
		return 1, false, true
	}
	return 0, false, true
}

// less is one of < <= > >=.
func less(op string, a, b any) bool {
	if x, ok := setOf(a); ok {
		if y, ok := setOf(b); ok {
			return subset(op, x, y)
		}
	}
	c, nan, ok := order(a, b, &walk{})
	if !ok {
		raise("TypeError", "'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	}
	if nan {
		return false
	}
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

func setOf(v any) (*value.Dict, bool) {
	switch x := v.(type) {
	case *Set:
		return x.d, true
	case view:
		return x.d, x.kind == 'k'
	}
	return nil, false
}

func subset(op string, a, b *value.Dict) bool {
	if op[0] == '>' {
		a, b = b, a
	}
	if len(op) == 1 && a.Len() == b.Len() {
		return false
	}
	for _, k := range a.Keys() {
		if !b.Has(k) {
			return false
		}
	}
	return true
}

// contains is in.
func contains(f *frame, c, v any) bool {
	switch x := c.(type) {
	case string, Markup:
		s, _ := text(c)
		t, ok := text(v)
		if f != nil {
			f.rt.work(len(s))
		}
		if !ok {
			if u, is := v.(*Undefined); is && u.kind != StrictUndefined {
				raise("TypeError", "'in <string>' requires string as left operand, not %s", typeName(v))
			}
			raise("TypeError", "'in <string>' requires string as left operand, not %s", typeName(v))
		}
		return strings.Contains(s, t)
	case *value.Dict:
		return hasKey(x, v)
	case *Set:
		return hasKey(x.d, v)
	case view:
		if x.kind == 'k' {
			return hasKey(x.d, v)
		}
	case Range:
		i, ok := v.(int64)
		if ok && x.Len() > 0 {
			d := i - x.start
			return d%x.step == 0 && d/x.step >= 0 && d/x.step < int64(x.Len())
		}
	case []byte:
		switch y := v.(type) {
		case []byte:
			return strings.Contains(string(x), string(y))
		case int64:
			return slices.Contains(x, byte(y))
		}
	case Container:
		return x.Contains(plainKey(v))
	}
	next, ok := iterate(c)
	if !ok {
		raise("TypeError", "argument of type '%s' is not iterable", typeName(c))
	}
	for it, ok := next(); ok; it, ok = next() {
		if f != nil {
			f.rt.tick()
		}
		if equal(it, v) {
			return true
		}
	}
	return false
}

func hasKey(d *value.Dict, k any) bool {
	if u, ok := k.(*Undefined); ok && u.kind == StrictUndefined {
		u.fail()
	}
	if !hashable(k) {
		raise("TypeError", "unhashable type: '%s'", typeName(k))
	}
	return d.Has(plainKey(k))
}

var opNames = map[byte]string{'+': "+", '-': "-", '*': "*", '/': "/", 'f': "//", '%': "%", 'p': "** or pow()"}

func badOperands(op byte, a, b any) {
	for _, v := range []any{a, b} {
		if u, ok := v.(*Undefined); ok {
			u.fail()
		}
	}
	if _, ok := text(a); ok && op == '+' {
		raise("TypeError", `can only concatenate str (not "%s") to str`, typeName(b))
	}
	if _, ok := a.(*value.List); ok && op == '+' {
		raise("TypeError", `can only concatenate list (not "%s") to list`, typeName(b))
	}
	if _, ok := a.(value.Tuple); ok && op == '+' {
		raise("TypeError", `can only concatenate tuple (not "%s") to tuple`, typeName(b))
	}
	if op == '*' && (isSequence(a) || isSequence(b)) {
		if isSequence(a) {
			a = b
		}
		raise("TypeError", "can't multiply sequence by non-int of type '%s'", typeName(a))
	}
	raise("TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", opNames[op], typeName(a), typeName(b))
}

func isSequence(v any) bool {
	switch v.(type) {
	case string, Markup, []byte, *value.List, value.Tuple:
		return true
	}
	return false
}

// asInt returns an int or bool as a number.
func asInt(v any) (any, bool) {
	switch x := v.(type) {
	case bool:
		if x {
			return int64(1), true
		}
		return int64(0), true
	case int64, *big.Int:
		return v, true
	}
	return nil, false
}

func asBig(v any) *big.Int {
	if i, ok := v.(int64); ok {
		return big.NewInt(i)
	}
	return v.(*big.Int)
}

// asFloat returns any number as a float.
func asFloat(v any) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case int64:
		return float64(x), true
	case bool:
		if x {
			return 1, true
		}
		return 0, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(x).Float64()
		if math.IsInf(f, 0) {
			raise("OverflowError", "int too large to convert to float")
		}
		return f, true
	}
	return 0, false
}

func arith(f *frame, op byte, a, b any) any {
	if x, ok := a.(int64); ok {
		if y, ok := b.(int64); ok {
			if v, ok := smallInts(op, x, y); ok {
				return v
			}
		}
	}
	if op == '%' {
		if s, ok := text(a); ok {
			return percent(f, s, a, b)
		}
	}
	if x, ok := asInt(a); ok {
		if y, ok := asInt(b); ok {
			switch n := asBig(x).BitLen() + asBig(y).BitLen(); {
			case op == 'p':
				f.rt.work(1 << 18)
			case n > 1024:
				f.rt.work(n)
			}
			return bigInts(op, x, y)
		}
	}
	if x, ok := asFloat(a); ok {
		if y, ok := asFloat(b); ok {
			return floats(op, x, y)
		}
	}
	if v, ok := sequences(f, op, a, b); ok {
		return v
	}
	badOperands(op, a, b)
	return nil
}

// smallInts computes results that fit 64 bits.
func smallInts(op byte, x, y int64) (any, bool) {
	switch op {
	case '+':
		z := x + y
		return z, (z > x) == (y > 0)
	case '-':
		z := x - y
		return z, (z < x) == (y > 0)
	case '*':
		if x == 0 || y == 0 {
			return int64(0), true
		}
		z := x * y
		return z, z/y == x && !(x == -1 && y == math.MinInt64) && !(y == -1 && x == math.MinInt64)
	case '/':
		const exact = 1 << 53
		if y != 0 && x < exact && x > -exact && y < exact && y > -exact {
			return float64(x) / float64(y), true
		}
	case 'f', '%':
		if y == 0 || x == math.MinInt64 {
			return nil, false
		}
		q, r := x/y, x%y
		if r != 0 && (r < 0) != (y < 0) {
			q, r = q-1, r+y
		}
		if op == 'f' {
			return q, true
		}
		return r, true
	}
	return nil, false
}

// maxBits bounds the size of integers.
const maxBits = 1 << 17

func bigInts(op byte, a, b any) any {
	x, y := asBig(a), asBig(b)
	z := new(big.Int)
	switch op {
	case '+':
		z.Add(x, y)
	case '-':
		z.Sub(x, y)
	case '*':
		if x.BitLen()+y.BitLen() > maxBits {
			raise("OverflowError", "an integer exceeds %d bits", maxBits)
		}
		z.Mul(x, y)
	case '/':
		if y.Sign() == 0 {
			raise("ZeroDivisionError", "division by zero")
		}
		q, _ := new(big.Rat).SetFrac(x, y).Float64()
		if math.IsInf(q, 0) {
			raise("OverflowError", "integer division result too large for a float")
		}
		return q
	case 'f', '%':
		if y.Sign() == 0 {
			if op == 'f' {
				raise("ZeroDivisionError", "integer division or modulo by zero")
			}
			raise("ZeroDivisionError", "integer modulo by zero")
		}
		m := new(big.Int)
		z.DivMod(x, y, m)
		if m.Sign() != 0 && y.Sign() < 0 { // Euclid's to floor
			z.Sub(z, big.NewInt(1))
			m.Add(m, y)
		}
		if op == '%' {
			z = m
		}
	case 'p':
		return power(x, y)
	}
	return value.Big(z)
}

func power(x, y *big.Int) any {
	if y.Sign() < 0 {
		fx, _ := asFloat(x)
		fy, _ := asFloat(y)
		return floats('p', fx, fy)
	}
	one := x.IsInt64() && x.Int64() >= -1 && x.Int64() <= 1
	if !one && (!y.IsInt64() || float64(x.BitLen())*float64(y.Int64()) > maxBits) {
		raise("OverflowError", "an integer exceeds %d bits", maxBits)
	}
	if one && !y.IsInt64() {
		y = big.NewInt(2 + int64(y.Bit(0)))
	}
	return value.Big(new(big.Int).Exp(x, y, nil))
}

func floats(op byte, x, y float64) any {
	switch op {
	case '+':
		return x + y
	case '-':
		return x - y
	case '*':
		return x * y
	case '/':
		if y == 0 {
			raise("ZeroDivisionError", "float division by zero")
		}
		return x / y
	case 'f', '%':
		if y == 0 {
			if op == 'f' {
				raise("ZeroDivisionError", "float floor division by zero")
			}
			raise("ZeroDivisionError", "float modulo")
		}
		m := math.Mod(x, y)
		d := (x - m) / y
		if m != 0 {
			if (y < 0) != (m < 0) {
				m += y
				d--
			}
		} else {
			m = math.Copysign(0, y)
		}
		if op == '%' {
			return m
		}
		if d != 0 {
			q := math.Floor(d)
			if d-q > 0.5 {
				q++
			}
			return q
		}
		return math.Copysign(0, x/y)
	}
	if x == 0 && y < 0 {
		raise("ZeroDivisionError", "0.0 cannot be raised to a negative power")
	}
	z := math.Pow(x, y)
	if math.IsInf(z, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		raise("OverflowError", "(34, 'Numerical result out of range')")
	}
	if math.IsNaN(z) && !math.IsNaN(x) && !math.IsNaN(y) {
		raise("ValueError", "a negative number to a fractional power is a complex number, which templates do not know")
	}
	return z
}

func sequences(f *frame, op byte, a, b any) (any, bool) {
	switch op {
	case '+':
		return joined(f, a, b)
	case '*':
		if isSequence(b) {
			a, b = b, a
		}
		n, ok := asInt(b)
		if !ok || !isSequence(a) {
			return nil, false
		}
		return repeated(f, a, n), true
	case '-':
		x, ok := setOf(a)
		y, ok2 := setOf(b)
		if ok && ok2 {
			out := value.NewDict(0)
			for _, k := range x.Keys() {
				if !y.Has(k) {
					out.Set(k, true)
				}
			}
			return &Set{out}, true
		}
	}
	return nil, false
}

func joined(f *frame, a, b any) (any, bool) {
	switch x := a.(type) {
	case string:
		switch y := b.(type) {
		case string:
			f.rt.reserve(len(x) + len(y))
			f.rt.copied(len(x) + len(y))
			s := x + y
			f.rt.made(s)
			return s, true
		case Markup:
			f.rt.reserve(5*len(x) + len(y))
			m := escapeText(x) + y
			f.rt.copied(len(m))
			f.rt.made(m)
			return m, true
		}
	case Markup:
		if t, ok := text(b); ok {
			f.rt.reserve(len(x) + 5*len(t))
			m := x + escape(b)
			f.rt.copied(len(m))
			f.rt.made(m)
			return m, true
		}
	case []byte:
		if y, ok := b.([]byte); ok {
			f.rt.reserve(len(x) + len(y))
			f.rt.copied(len(x) + len(y))
			z := slices.Concat(x, y)
			f.rt.made(z)
			return z, true
		}
	case *value.List:
		if y, ok := b.(*value.List); ok {
			f.rt.reserve(32 * (len(x.Items) + len(y.Items)))
			f.rt.copied(16 * (len(x.Items) + len(y.Items)))
			z := &value.List{Items: slices.Concat(x.Items, y.Items)}
			f.rt.made(z)
			return z, true
		}
	case value.Tuple:
		if y, ok := b.(value.Tuple); ok {
			f.rt.reserve(32 * (len(x) + len(y)))
			f.rt.copied(16 * (len(x) + len(y)))
			z := slices.Concat(x, y)
			f.rt.made(z)
			return z, true
		}
	}
	return nil, false
}

func repeated(f *frame, a, n any) any {
	i, ok := n.(int64)
	if !ok {
		raise("OverflowError", "cannot fit 'int' into an index-sized integer")
	}
	i = max(0, i)
	size, _ := length(a)
	switch a.(type) {
	case *value.List, value.Tuple:
		size *= 32
	case string, Markup:
		s, _ := text(a)
		size = len(s)
	}
	if size > 0 && i > int64(f.rt.env.o.MaxOutput/size) {
		f.rt.reserve(-1)
	}
	f.rt.reserve(size * int(i))
	f.rt.spend(size * int(i))
	if size == 0 {
		i = 0
	}
	switch x := a.(type) {
	case string:
		return strings.Repeat(x, int(i))
	case Markup:
		return Markup(strings.Repeat(string(x), int(i)))
	case []byte:
		return slices.Repeat(x, int(i))
	case value.Tuple:
		return value.Tuple(slices.Repeat([]any(x), int(i)))
	}
	return &value.List{Items: slices.Repeat(a.(*value.List).Items, int(i))}
}

func unary(op byte, v any) any {
	switch x := v.(type) {
	case int64:
		if op == '+' {
			return x
		}
		if x != math.MinInt64 {
			return -x
		}
		return new(big.Int).Neg(big.NewInt(x))
	case float64:
		if op == '-' {
			return -x
		}
		return x
	case bool:
		i, _ := asInt(x)
		return unary(op, i)
	case *big.Int:
		if op == '-' {
			return value.Big(new(big.Int).Neg(x))
		}
		return x
	case *Undefined:
		x.fail()
	}
	raise("TypeError", "bad operand type for unary %c: '%s'", op, typeName(v))
	return nil
}

// slice is v[start:stop:step].
func slice(v, start, stop, step any) any {
	var seq []any
	n := 0
	var rs []rune
	switch x := v.(type) {
	case string, Markup:
		s, _ := text(v)
		rs = []rune(s)
		n = len(rs)
	case []byte:
		n = len(x)
	case *value.List:
		seq, n = x.Items, len(x.Items)
	case value.Tuple:
		seq, n = x, len(x)
	case Range:
		n = x.Len()
	case *Undefined:
		x.fail()
	case *value.Dict:
		raise("TypeError", "unhashable type: 'slice'")
	default:
		raise("TypeError", "'%s' object is not subscriptable", typeName(v))
	}
	from, st, count := sliceBounds(n, start, stop, step)
	switch x := v.(type) {
	case string, Markup:
		out := make([]rune, count)
		for i := range out {
			out[i] = rs[from+i*st]
		}
		if _, ok := v.(Markup); ok {
			return Markup(string(out))
		}
		return string(out)
	case []byte:
		out := make([]byte, count)
		for i := range out {
			out[i] = x[from+i*st]
		}
		return out
	case Range:
		r := Range{x.at(from), 0, x.step * int64(st)}
		r.stop = r.start + int64(count)*r.step
		return r
	}
	out := make([]any, count)
	for i := range out {
		out[i] = seq[from+i*st]
	}
	if _, ok := v.(value.Tuple); ok {
		return value.Tuple(out)
	}
	return &value.List{Items: out}
}

func sliceBounds(n int, start, stop, step any) (from, st, count int) {
	st = 1
	bound := func(v any, def, low, high int) int {
		if v == nil {
			return def
		}
		i := index(v)
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	if step != nil {
		st = index(step)
	}
	switch {
	case st == 0:
		raise("ValueError", "slice step cannot be zero")
	case st > 0:
		from = bound(start, 0, 0, n)
		if to := bound(stop, n, 0, n); to > from {
			count = (to - from + st - 1) / st
		}
	default:
		from = bound(start, n-1, -1, n-1)
		if to := bound(stop, -1, -1, n-1); to < from {
			count = (from - to - st - 1) / -st
		}
	}
	return from, st, count
}

// index returns a bound of a slice, clamped to possible lengths.
func index(v any) int {
	n, ok := asInt(v)
	if !ok {
		if u, is := v.(*Undefined); is {
			u.fail()
		}
		raise("TypeError", "slice indices must be integers or None or have an __index__ method")
	}
	const most = 1 << 40
	if b, ok := n.(*big.Int); ok {
		return most * b.Sign()
	}
	return int(min(max(n.(int64), -most), most))
}

// Less is <. It fails the rendering where Python would.
func Less(a, b any) bool { return less("<", a, b) }
