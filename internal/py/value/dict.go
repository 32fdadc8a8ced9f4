package value

import (
	"fmt"
	"iter"
	"math"
	"math/big"
	"strings"
)

// smallDict is the number of entries up to which a linear search beats a map.
const smallDict = 24

// Dict is a mutable map that keeps the order of insertion. Keys are scalars or
// tuples, and equal as in Python: 1, 1.0 and True are one key, "1" another.
// The zero Dict is empty and ready to use. It is not safe for concurrent
// writes.
type Dict struct {
	entries []entry
	index   map[any]int // nil while small
}

type entry struct {
	key, val any
}

// NewDict returns an empty dict with room for n entries.
func NewDict(n int) *Dict {
	return &Dict{entries: make([]entry, 0, n)}
}

// DictOf returns a dict of alternating keys and values, each passed through
// From. It panics when a value is missing.
func DictOf(pairs ...any) *Dict {
	if len(pairs)%2 != 0 {
		panic("value.DictOf: a key without a value")
	}
	d := NewDict(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		d.Set(From(pairs[i]), From(pairs[i+1]))
	}
	return d
}

// hashKey maps a key to a comparable Go value. Two results are equal if and
// only if the keys are equal in Python.
func hashKey(k any) any {
	switch x := k.(type) {
	case string, int64, nil:
		return k
	case bool:
		if x {
			return int64(1)
		}
		return int64(0)
	case float64:
		return floatKey(x)
	case *big.Int:
		if x.IsInt64() {
			return x.Int64()
		}
		return bigKey(x.String())
	case []byte:
		return bytesKey(x)
	case Tuple:
		var b strings.Builder
		writeTupleKey(&b, x)
		return tupleKey(b.String())
	}
	return otherKey(TypeName(k) + Repr(k))
}

// floatKey maps a float without fraction to the key of the equal int.
func floatKey(f float64) any {
	if f != math.Trunc(f) || math.IsInf(f, 0) {
		return f
	}
	if f >= -1<<63 && f < 1<<63 {
		return int64(f)
	}
	i, _ := big.NewFloat(f).Int(nil)
	return bigKey(i.String())
}

// writeTupleKey writes the kinds and keys of the items, each with its length,
// so that unequal tuples have different keys.
func writeTupleKey(b *strings.Builder, t Tuple) {
	for _, it := range t {
		h := hashKey(it)
		text := fmt.Sprint(h)
		fmt.Fprintf(b, "%T %d %s,", h, len(text), text)
	}
}

type (
	bigKey   string
	bytesKey string
	tupleKey string
	otherKey string
)

// Hashable reports whether v may be a key.
func Hashable(v any) bool {
	switch x := v.(type) {
	case *List, *Dict:
		return false
	case Tuple:
		for _, it := range x {
			if !Hashable(it) {
				return false
			}
		}
	}
	return true
}

func (d *Dict) find(key any) int {
	if d == nil {
		return -1
	}
	if d.index != nil {
		if i, ok := d.index[hashKey(key)]; ok {
			return i
		}
		return -1
	}
	if s, ok := key.(string); ok { // the usual case, without an allocation
		for i := range d.entries {
			if t, ok := d.entries[i].key.(string); ok && t == s {
				return i
			}
		}
		return -1
	}
	h := hashKey(key)
	for i := range d.entries {
		if hashKey(d.entries[i].key) == h {
			return i
		}
	}
	return -1
}

// Len returns the number of entries. A nil dict is empty.
func (d *Dict) Len() int {
	if d == nil {
		return 0
	}
	return len(d.entries)
}

// Get returns the value of key.
func (d *Dict) Get(key any) (any, bool) {
	if i := d.find(key); i >= 0 {
		return d.entries[i].val, true
	}
	return nil, false
}

// Has reports whether d contains key.
func (d *Dict) Has(key any) bool { return d.find(key) >= 0 }

// At returns the value of key, or nil.
func (d *Dict) At(key any) any {
	v, _ := d.Get(key)
	return v
}

// Str returns the value of key if it is a string (or bytes), else "".
func (d *Dict) Str(key string) string {
	switch x := d.At(key).(type) {
	case string:
		return x
	case []byte:
		return string(x)
	}
	return ""
}

// Bytes returns the value of key if it is bytes or a string, else nil.
func (d *Dict) Bytes(key string) []byte {
	switch x := d.At(key).(type) {
	case []byte:
		return x
	case string:
		return []byte(x)
	}
	return nil
}

// Int returns the value of key if it is an int64 (or a bool), else 0.
func (d *Dict) Int(key string) int64 {
	switch x := d.At(key).(type) {
	case int64:
		return x
	case bool:
		if x {
			return 1
		}
	case float64:
		return int64(x)
	}
	return 0
}

// Bool reports whether the value of key is true in Python's sense.
func (d *Dict) Bool(key string) bool { return Truth(d.At(key)) }

// Dict returns the value of key if it is a dict, else nil, which is an empty
// dict.
func (d *Dict) Dict(key string) *Dict {
	x, _ := d.At(key).(*Dict)
	return x
}

// List returns the items of key if it is a list or tuple, else nil.
func (d *Dict) List(key string) []any {
	return Items(d.At(key))
}

// Set stores val under key. An existing key keeps its position and its first
// form (1 or 1.0), as in Python. It panics on a list or dict as key.
func (d *Dict) Set(key, val any) {
	if i := d.find(key); i >= 0 {
		d.entries[i].val = val
		return
	}
	if !Hashable(key) {
		panic("value: unhashable key of type " + TypeName(key))
	}
	d.entries = append(d.entries, entry{key, val})
	switch {
	case d.index != nil:
		d.index[hashKey(key)] = len(d.entries) - 1
	case len(d.entries) > smallDict:
		d.reindex()
	}
}

// Insert stores val under key and moves the key to position i, or to the end
// when there are fewer entries. It panics on a list or dict as key.
func (d *Dict) Insert(i int, key, val any) {
	if !Hashable(key) {
		panic("value: unhashable key of type " + TypeName(key))
	}
	d.Delete(key)
	i = min(i, len(d.entries))
	d.entries = append(d.entries, entry{})
	copy(d.entries[i+1:], d.entries[i:])
	d.entries[i] = entry{key, val}
	if d.index != nil || len(d.entries) > smallDict {
		d.reindex()
	}
}

func (d *Dict) reindex() {
	d.index = make(map[any]int, len(d.entries)*2)
	for i := range d.entries {
		d.index[hashKey(d.entries[i].key)] = i
	}
}

// Delete removes key and reports whether it existed. It takes time proportional
// to the size of the dict.
func (d *Dict) Delete(key any) bool {
	i := d.find(key)
	if i < 0 {
		return false
	}
	last := len(d.entries) - 1
	copy(d.entries[i:], d.entries[i+1:])
	d.entries[last] = entry{}
	d.entries = d.entries[:last]
	if d.index != nil {
		if i == last {
			delete(d.index, hashKey(key))
		} else {
			d.reindex()
		}
	}
	return true
}

// All yields the entries in order. The size of the dict must not change
// meanwhile; values may be replaced.
func (d *Dict) All() iter.Seq2[any, any] {
	return func(yield func(any, any) bool) {
		if d == nil {
			return
		}
		for i := 0; i < len(d.entries); i++ {
			if !yield(d.entries[i].key, d.entries[i].val) {
				return
			}
		}
	}
}

// Keys returns the keys in order.
func (d *Dict) Keys() []any {
	ks := make([]any, 0, d.Len())
	for k := range d.All() {
		ks = append(ks, k)
	}
	return ks
}

// Entry returns the i-th key and value.
func (d *Dict) Entry(i int) (key, val any) { return d.entries[i].key, d.entries[i].val }

// Clone returns a copy whose entries can change without affecting d. Nested
// containers are shared; DeepCopy copies those too.
func (d *Dict) Clone() *Dict {
	c := NewDict(d.Len())
	if d == nil {
		return c
	}
	c.entries = append(c.entries, d.entries...)
	if len(c.entries) > smallDict {
		c.reindex()
	}
	return c
}

// Update sets every entry of o in d.
func (d *Dict) Update(o *Dict) {
	for k, v := range o.All() {
		d.Set(k, v)
	}
}

// DeepCopy returns a copy of v that shares no container with it.
func DeepCopy(v any) any {
	switch x := v.(type) {
	case *List:
		l := &List{Items: make([]any, x.Len())}
		for i := range l.Items {
			l.Items[i] = DeepCopy(x.Items[i])
		}
		return l
	case Tuple:
		t := make(Tuple, len(x))
		for i, it := range x {
			t[i] = DeepCopy(it)
		}
		return t
	case *Dict:
		d := NewDict(x.Len())
		for k, w := range x.All() {
			d.Set(k, DeepCopy(w))
		}
		return d
	}
	return v
}
