// Package conversation modifies recorded conversations as a hostile peer would. It interprets a
// byte string chosen by the fuzzer as a list of changes to a list of messages.
package conversation

import (
	"math"
	"strings"

	"brine/internal/py/value"
)

// Operations. The first operand selects the message; the others depend on the operation.
const (
	Drop     = iota // the message
	Repeat          // the message, at the place of the second operand
	Swap            // the message and another
	Truncate        // the rest of the conversation
	Set             // field, value: replaces a value somewhere in the message
	Delete          // field
	Add             // field, value: under the name of any field of any message
	Move            // field, message, field: copies a value from elsewhere
	Nest            // field, depth
	Write           // field, n: the next n bytes of the program
	operations
)

// maxChanges and maxMessages bound a conversation.
const (
	maxChanges  = 24
	maxMessages = 32
)

type program struct{ b []byte }

// below returns a number below n.
func (p *program) below(n int) int {
	if len(p.b) == 0 || n <= 1 {
		return 0
	}
	x := int(p.b[0])
	p.b = p.b[1:]
	return x % n
}

func (p *program) take(n int) []byte {
	n = min(n, len(p.b))
	out := p.b[:n]
	p.b = p.b[n:]
	return out
}

// place is the position of a value.
type place struct {
	dict *value.Dict
	key  any
	list *value.List
	at   int
}

func (p place) get() any {
	if p.dict != nil {
		return p.dict.At(p.key)
	}
	return p.list.Items[p.at]
}

func (p place) set(v any) {
	if p.dict != nil {
		p.dict.Set(p.key, v)
	} else {
		p.list.Items[p.at] = v
	}
}

// maxPlaces bounds the fields that are considered.
const maxPlaces = 256

func places(v any, out []place, depth int) []place {
	if depth > 8 {
		return out
	}
	switch v := v.(type) {
	case *value.Dict:
		for k, x := range v.All() {
			if len(out) < maxPlaces {
				out = places(x, append(out, place{dict: v, key: k}), depth+1)
			}
		}
	case *value.List:
		if v == nil {
			break
		}
		for i, x := range v.Items {
			if len(out) < maxPlaces {
				out = places(x, append(out, place{list: v, at: i}), depth+1)
			}
		}
	}
	return out
}

// Values returns the values to try for every field, including words.
func Values(words ...any) []any {
	deep := any("deep")
	for range 60 {
		deep = value.ListOf(deep)
	}
	long := value.ListOf()
	for range 3000 {
		long.Append(int64(1))
	}
	return append([]any{
		nil, true, false, int64(0), int64(-1), int64(1 << 31), int64(math.MaxInt64), int64(math.MinInt64), value.From(uint64(math.MaxUint64)),
		1e308, math.NaN(), math.Inf(-1), "", "\x00", "..", "../../x", "/etc/passwd", "*", "\xff\xfe", strings.Repeat("A", 100_000),
		strings.Repeat("(a*)*", 40),
		[]byte{}, []byte("\x00\xff"), value.ListOf(), value.NewDict(0), value.ListOf("x", int64(1), nil), value.DictOf("x", "y", int64(1), nil), deep, long,
		value.DictOf("__kwarg__", true, "x", "y"), "20260101000000000000", "{{ 1 }}", "!!python/object:x {}",
	}, words...)
}

// Mutate returns the conversation with the changes of a program. It does not modify talk. values is
// a result of Values.
func Mutate(b []byte, talk []*value.Dict, values []any) []*value.Dict {
	out := make([]*value.Dict, len(talk))
	var names []any
	for i, m := range talk {
		out[i] = value.DeepCopy(m).(*value.Dict)
		for _, p := range places(m, nil, 0) {
			if p.dict != nil && len(names) < maxPlaces {
				names = append(names, p.key)
			}
		}
	}
	p := &program{b}
	for n := 0; len(p.b) > 0 && len(out) > 0 && n < maxChanges; n++ {
		op, i := p.below(operations), 0
		i = p.below(len(out))
		switch op {
		case Drop:
			out = append(out[:i:i], out[i+1:]...)
			continue
		case Repeat:
			if at := p.below(len(out) + 1); len(out) < maxMessages {
				again := value.DeepCopy(out[i]).(*value.Dict)
				out = append(out[:at:at], append([]*value.Dict{again}, out[at:]...)...)
			}
			continue
		case Swap:
			j := p.below(len(out))
			out[i], out[j] = out[j], out[i]
			continue
		case Truncate:
			out = out[:i+1]
			continue
		}
		all := places(out[i], nil, 0)
		if op == Add || len(all) == 0 {
			if len(names) > 0 {
				out[i].Set(names[p.below(len(names))], value.DeepCopy(values[p.below(len(values))]))
			}
			continue
		}
		at := all[p.below(len(all))]
		switch op {
		case Set:
			at.set(value.DeepCopy(values[p.below(len(values))]))
		case Delete:
			if at.dict != nil {
				at.dict.Delete(at.key)
			} else {
				at.list.Items = append(at.list.Items[:at.at:at.at], at.list.Items[at.at+1:]...)
			}
		case Move:
			if other := places(out[p.below(len(out))], nil, 0); len(other) > 0 {
				at.set(value.DeepCopy(other[p.below(len(other))].get()))
			}
		case Nest:
			v := at.get()
			for range p.below(100) {
				v = value.DictOf("x", v)
			}
			at.set(v)
		case Write:
			raw := p.take(p.below(64))
			if _, isBytes := at.get().([]byte); isBytes {
				at.set(append([]byte(nil), raw...))
			} else {
				at.set(string(raw))
			}
		}
	}
	return out
}

// Seeds returns programs with one change each for conversations of n messages: each operation, and
// each value in the first fields.
func Seeds(n int, values []any) (out [][]byte) {
	out = append(out, []byte{Drop, 0}, []byte{Repeat, 0, 1}, []byte{Swap, 0, 1}, []byte{Truncate, 0})
	for i := range n {
		out = append(out, []byte{Delete, byte(i), 0}, []byte{Move, byte(i), 1, byte(i + 1), 1}, []byte{Nest, byte(i), 1, 90},
			append([]byte{Write, byte(i), 1, 6}, "victim"...))
	}
	for v := range values {
		out = append(out, []byte{Set, byte(v), byte(v / 3), byte(v)}, []byte{Add, byte(v), byte(v), byte(v)})
	}
	return out
}
