package serialize

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"
	"unicode/utf16"

	"brine/internal/py/value"
)

// A binary property list has a header, the objects, a table of their offsets,
// and a trailer with the offset of the table and the number of the root object.
// Lists and dicts refer to their items by number. The layout is Apple's
// CFBinaryPList; the order and the sharing of scalars are Python's.

// appleEpoch is the epoch of dates.
var appleEpoch = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)

// scalarID identifies a scalar: equal ones of a type share one object.
type scalarID struct {
	kind string
	text string
}

func idOf(v any) (scalarID, bool) {
	switch x := v.(type) {
	case string, int64, *big.Int, bool:
		return scalarID{value.TypeName(v), value.Str(x)}, true
	case float64:
		if x == 0 {
			x = 0 // Python treats -0.0 as equal
		}
		return scalarID{"float", value.Str(x)}, true
	case []byte:
		return scalarID{"bytes", string(x)}, true
	case time.Time:
		return scalarID{"datetime", x.String()}, true
	case nil:
		return scalarID{"None", ""}, true
	}
	return scalarID{}, false
}

type binaryWriter struct {
	plistForm
	objects    []any
	scalars    map[scalarID]uint64
	containers map[any]uint64
	out        []byte
	refSize    int
}

func (f plistForm) binary(v any) ([]byte, error) {
	w := &binaryWriter{plistForm: f, scalars: map[scalarID]uint64{}, containers: map[any]uint64{}, out: []byte("bplist00")}
	if hasTuple(v) {
		v = withoutTuples(v)
	}
	if err := w.collect(v); err != nil {
		return nil, err
	}
	w.refSize = sizeFor(uint64(len(w.objects)))
	offsets := make([]uint64, len(w.objects))
	for i, o := range w.objects {
		offsets[i] = uint64(len(w.out))
		if err := w.object(o); err != nil {
			return nil, err
		}
	}
	table := uint64(len(w.out))
	size := sizeFor(table)
	for _, at := range offsets {
		w.number(at, size)
	}
	w.out = append(w.out, 0, 0, 0, 0, 0, 0, byte(size), byte(w.refSize))
	w.number(uint64(len(w.objects)), 8)
	w.number(0, 8)
	w.number(table, 8)
	return w.out, nil
}

// hasTuple reports whether v contains a tuple. Tuples have no identity by which
// they could be numbered.
func hasTuple(v any) bool {
	switch x := v.(type) {
	case value.Tuple:
		return true
	case *value.List:
		return slices.ContainsFunc(x.Items, hasTuple)
	case *value.Dict:
		for _, w := range x.All() {
			if hasTuple(w) {
				return true
			}
		}
	}
	return false
}

func withoutTuples(v any) any {
	var items []any
	switch x := v.(type) {
	case *value.Dict:
		d := value.NewDict(x.Len())
		for k, w := range x.All() {
			d.Set(k, withoutTuples(w))
		}
		return d
	case value.Tuple:
		items = x
	case *value.List:
		items = x.Items
	default:
		return v
	}
	l := &value.List{}
	for _, it := range items {
		l.Append(withoutTuples(it))
	}
	return l
}

func sizeFor(n uint64) int {
	switch {
	case n < 1<<8:
		return 1
	case n < 1<<16:
		return 2
	case n < 1<<32:
		return 4
	}
	return 8
}

// collect numbers an object and its items.
func (w *binaryWriter) collect(v any) error {
	n := uint64(len(w.objects))
	if id, ok := idOf(v); ok {
		if _, ok := w.scalars[id]; ok {
			return nil
		}
		w.scalars[id] = n
		w.objects = append(w.objects, v)
		return nil
	}
	if _, ok := w.containers[v]; ok {
		return nil
	}
	var parts []any
	switch x := v.(type) {
	case *value.List:
		parts = x.Items
	case *value.Dict:
		keys, vals, err := w.entries(x)
		if err != nil {
			return err
		}
		for _, k := range keys {
			parts = append(parts, k)
		}
		parts = append(parts, vals...)
	default:
		return plistType(v)
	}
	w.containers[v] = n
	w.objects = append(w.objects, v)
	for _, p := range parts {
		if err := w.collect(p); err != nil {
			return err
		}
	}
	return nil
}

func (w *binaryWriter) number(n uint64, size int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	w.out = append(w.out, b[8-size:]...)
}

// head writes the kind of an object and its length.
func (w *binaryWriter) head(kind byte, n int) {
	if n < 15 {
		w.out = append(w.out, kind|byte(n))
		return
	}
	w.out = append(w.out, kind|15)
	size := sizeFor(uint64(n))
	w.out = append(w.out, 0x10|map[int]byte{1: 0, 2: 1, 4: 2, 8: 3}[size])
	w.number(uint64(n), size)
}

func (w *binaryWriter) refs(items []any) {
	for _, it := range items {
		n := uint64(0)
		if id, ok := idOf(it); ok {
			n = w.scalars[id]
		} else {
			n = w.containers[it]
		}
		w.number(n, w.refSize)
	}
}

func (w *binaryWriter) object(v any) error {
	switch x := v.(type) {
	case nil:
		w.out = append(w.out, 0)
	case bool:
		if x {
			w.out = append(w.out, 9)
		} else {
			w.out = append(w.out, 8)
		}
	case int64:
		size := 8
		if x >= 0 {
			size = sizeFor(uint64(x))
		}
		w.out = append(w.out, map[int]byte{1: 0x10, 2: 0x11, 4: 0x12, 8: 0x13}[size])
		w.number(uint64(x), size)
	case *big.Int:
		if err := integerFits(x); err != nil {
			return err
		}
		w.out = append(w.out, 0x14, 0, 0, 0, 0, 0, 0, 0, 0)
		w.number(x.Uint64(), 8)
	case float64:
		w.out = append(w.out, 0x23)
		w.number(math.Float64bits(x), 8)
	case time.Time:
		w.out = append(w.out, 0x33)
		w.number(math.Float64bits(float64(x.Unix()-appleEpoch.Unix())+float64(x.Nanosecond()/1000)/1e6), 8)
	case []byte:
		w.head(0x40, len(x))
		w.out = append(w.out, x...)
	case string:
		w.text(x)
	case *value.List:
		w.head(0xa0, x.Len())
		w.refs(x.Items)
	case *value.Dict:
		keys, vals, err := w.entries(x)
		if err != nil {
			return err
		}
		w.head(0xd0, len(keys))
		for _, k := range keys {
			w.number(w.scalars[scalarID{"str", k}], w.refSize)
		}
		w.refs(vals)
	default:
		return plistType(v)
	}
	return nil
}

func (w *binaryWriter) text(s string) {
	for i := range len(s) {
		if s[i] >= 0x80 {
			units := utf16.Encode([]rune(s))
			w.head(0x60, len(units))
			for _, u := range units {
				w.number(uint64(u), 2)
			}
			return
		}
	}
	w.head(0x50, len(s))
	w.out = append(w.out, s...)
}

var errBinaryPlist = errors.New("plist: the file is not a valid binary property list")

type binaryReader struct {
	data    []byte
	offsets []uint64
	refSize int
	done    map[uint64]any
	open    map[uint64]bool
	values  int // values made so far, repeated ones included
}

// maxPlistValues bounds the values of a binary list, whose objects can be
// referenced many times.
const maxPlistValues = 1 << 20

func readBinaryPlist(data []byte) (any, error) {
	if len(data) < 8+32 {
		return nil, errBinaryPlist
	}
	tail := data[len(data)-32:]
	size, ref := int(tail[6]), int(tail[7])
	count, top, table := binary.BigEndian.Uint64(tail[8:]), binary.BigEndian.Uint64(tail[16:]), binary.BigEndian.Uint64(tail[24:])
	room := uint64(len(data))
	if size < 1 || size > 8 || ref < 1 || ref > 8 || count > room || table > room || count*uint64(size) > room-table || top >= count {
		return nil, errBinaryPlist
	}
	r := binaryReader{data: data, refSize: ref, done: map[uint64]any{}, open: map[uint64]bool{}}
	r.offsets, _ = ints(data[table:], int(count), size)
	return r.object(top, 0)
}

// ints reads n integers of size bytes each.
func ints(data []byte, n, size int) ([]uint64, error) {
	if n < 0 || n > len(data)/size {
		return nil, errBinaryPlist
	}
	out := make([]uint64, n)
	for i := range out {
		for _, c := range data[i*size : (i+1)*size] {
			out[i] = out[i]<<8 | uint64(c)
		}
	}
	return out, nil
}

func (r *binaryReader) object(n uint64, depth int) (any, error) {
	switch {
	case n >= uint64(len(r.offsets)) || r.offsets[n] >= uint64(len(r.data)):
		return nil, errBinaryPlist
	case depth > MaxDepth:
		return nil, errDeep
	case r.open[n]:
		return nil, errors.New("plist: a list or dict contains itself")
	}
	if r.values++; r.values > maxPlistValues {
		return nil, fmt.Errorf("plist: there are more than %d values", maxPlistValues)
	}
	if v, ok := r.done[n]; ok {
		return v, nil
	}
	rest := r.data[r.offsets[n]:]
	kind, low := rest[0]&0xf0, int(rest[0]&0x0f)
	rest = rest[1:]
	switch kind {
	case 0xa0, 0xd0:
		r.open[n] = true
		v, err := r.container(kind, low, rest, depth) // made again each time: nothing is shared
		delete(r.open, n)
		return v, err
	}
	v, err := binaryScalar(kind, low, rest)
	r.done[n] = v
	return v, err
}

// length returns the length of an object, and the bytes after it.
func length(low int, rest []byte) (int, []byte, error) {
	if low < 15 {
		return low, rest, nil
	}
	if len(rest) == 0 {
		return 0, nil, errBinaryPlist
	}
	size := 1 << (rest[0] & 3)
	n, err := ints(rest[1:], 1, size)
	if err != nil || n[0] > uint64(len(rest)) {
		return 0, nil, errBinaryPlist
	}
	return int(n[0]), rest[1+size:], nil
}

func (r *binaryReader) container(kind byte, low int, rest []byte, depth int) (any, error) {
	n, rest, err := length(low, rest)
	if err != nil {
		return nil, err
	}
	refs, err := ints(rest, n, r.refSize)
	if err != nil {
		return nil, err
	}
	if kind == 0xa0 {
		l := &value.List{}
		for _, ref := range refs {
			v, err := r.object(ref, depth+1)
			if err != nil {
				return nil, err
			}
			l.Append(v)
		}
		return l, nil
	}
	vals, err := ints(rest[n*r.refSize:], n, r.refSize)
	if err != nil {
		return nil, err
	}
	d := value.NewDict(0)
	for i, ref := range refs {
		k, err := r.object(ref, depth+1)
		if err != nil {
			return nil, err
		}
		if !value.Hashable(k) {
			return nil, errBinaryPlist
		}
		v, err := r.object(vals[i], depth+1)
		if err != nil {
			return nil, err
		}
		d.Set(k, v)
	}
	return d, nil
}

func binaryScalar(kind byte, low int, rest []byte) (any, error) {
	switch kind {
	case 0x00:
		switch low {
		case 0:
			return nil, nil
		case 8, 9:
			return low == 9, nil
		case 15:
			return []byte{}, nil
		}
		return nil, errBinaryPlist
	case 0x10:
		size := 1 << min(low, 5)
		if size > 16 || len(rest) < size {
			return nil, errBinaryPlist
		}
		i := new(big.Int).SetBytes(rest[:size])
		if size >= 8 && rest[0]&0x80 != 0 {
			i.Sub(i, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
		}
		return value.Big(i), nil
	case 0x20, 0x30:
		return binaryFloat(kind, low, rest)
	case 0x40, 0x50, 0x60:
		n, rest, err := length(low, rest)
		if kind == 0x60 {
			n *= 2
		}
		if err != nil || n > len(rest) {
			return nil, errBinaryPlist
		}
		return binaryText(kind, rest[:n])
	case 0x80:
		return nil, errors.New("plist: the UIDs of keyed archives are not supported")
	}
	return nil, errBinaryPlist
}

func binaryFloat(kind byte, low int, rest []byte) (any, error) {
	size := 1 << min(low, 4)
	switch {
	case size != 8 && (size != 4 || kind == 0x30), len(rest) < size:
		return nil, errBinaryPlist
	case size == 4:
		return float64(math.Float32frombits(binary.BigEndian.Uint32(rest))), nil
	}
	f := math.Float64frombits(binary.BigEndian.Uint64(rest))
	if kind == 0x20 {
		return f, nil
	}
	if !(math.Abs(f) < 2e11) {
		return nil, errBinaryPlist
	}
	t := appleEpoch.Add(0)
	whole := math.Floor(f)
	t = time.Unix(t.Unix()+int64(whole), int64(math.Round((f-whole)*1e6))*1000).UTC()
	if t.Year() < 1 || t.Year() > 9999 {
		return nil, errBinaryPlist
	}
	return t, nil
}

func binaryText(kind byte, p []byte) (any, error) {
	switch kind {
	case 0x40:
		return append([]byte{}, p...), nil
	case 0x50:
		for _, c := range p {
			if c >= 0x80 {
				return nil, errBinaryPlist
			}
		}
		return string(p), nil
	}
	units := make([]uint16, len(p)/2)
	for i := range units {
		units[i] = binary.BigEndian.Uint16(p[2*i:])
	}
	return string(utf16.Decode(units)), nil
}
