package msgpack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"sync"
	"time"
	"unicode/utf8"

	"brine/internal/py/value"
)

// timeLayout is the format of extension 78.
const timeLayout = "20060102T15:04:05.000000"

// scratches pools buffers for output of unknown size, since a growing slice is
// copied several times.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// maxScratch is the maximum capacity of a pooled buffer.
const maxScratch = 64 << 10

// Marshal returns v in msgpack. See Append.
func Marshal(v any, d Dialect) ([]byte, error) {
	s := scratches.Get().(*[]byte)
	defer scratches.Put(s)
	b, err := Append((*s)[:0], v, d)
	if err != nil {
		return nil, err
	}
	if cap(b) > maxScratch {
		return b, nil
	}
	*s = b
	return bytes.Clone(b), nil
}

// Append appends v in msgpack to dst and returns the longer slice. Integers
// take their shortest form, floats 64 bits, maps keep their order. Integers
// beyond 64 bits become decimal text. Types outside of the value model are
// converted by value.From. Errors are ErrLimit for a value nested more than 512
// deep (such as a cycle) or a part of 4 GiB, and ErrInvalid for a time outside
// the years 1 to 9999; dst is then returned unchanged.
func Append(dst []byte, v any, d Dialect) ([]byte, error) {
	e := encoder{dst: dst, dialect: d}
	if err := e.value(v, 0); err != nil {
		return dst, err
	}
	return e.dst, nil
}

type encoder struct {
	dst     []byte
	dialect Dialect
}

func (e *encoder) value(v any, depth int) error {
	switch x := v.(type) {
	case string:
		if err := fits(len(x)); err != nil {
			return err
		}
		e.dst = AppendString(e.dst, x, e.dialect)
	case *value.Dict:
		return e.dict(x, depth)
	case *value.List:
		if x == nil {
			x = &value.List{}
		}
		return e.items(x.Items, depth)
	case value.Tuple:
		return e.items(x, depth)
	case nil:
		e.dst = AppendNil(e.dst)
	case bool:
		e.dst = AppendBool(e.dst, x)
	case int64:
		e.dst = AppendInt(e.dst, x)
	case float64:
		e.dst = AppendFloat(e.dst, x)
	case []byte:
		if err := fits(len(x)); err != nil {
			return err
		}
		e.dst = AppendBin(e.dst, x, e.dialect)
	case *big.Int:
		e.bigInt(x)
	case time.Time:
		return e.time(x)
	case value.Const:
		return e.constant(x, depth)
	case value.Ext:
		if err := fits(len(x.Data)); err != nil {
			return err
		}
		e.dst = append(appendExtHeader(e.dst, x.Type, len(x.Data)), x.Data...)
	default:
		return e.value(value.From(v), depth)
	}
	return nil
}

func (e *encoder) dict(x *value.Dict, depth int) error {
	if err := enter(x.Len(), depth); err != nil {
		return err
	}
	e.dst = AppendMapHeader(e.dst, x.Len())
	for i := range x.Len() {
		k, v := x.Entry(i)
		if err := e.value(k, depth+1); err != nil {
			return err
		}
		if err := e.value(v, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) items(items []any, depth int) error {
	if err := enter(len(items), depth); err != nil {
		return err
	}
	e.dst = AppendArrayHeader(e.dst, len(items))
	for _, it := range items {
		if err := e.value(it, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) bigInt(x *big.Int) {
	switch {
	case x == nil:
		e.dst = AppendNil(e.dst)
	case x.IsInt64():
		e.dst = AppendInt(e.dst, x.Int64())
	case x.IsUint64():
		e.dst = AppendUint(e.dst, x.Uint64())
	default:
		e.dst = AppendString(e.dst, x.String(), e.dialect)
	}
}

func (e *encoder) time(t time.Time) error {
	t = t.UTC()
	if t.Year() < 1 || t.Year() > 9999 {
		return fmt.Errorf("%w: the year %d cannot be sent", ErrInvalid, t.Year())
	}
	e.dst = appendExtHeader(e.dst, extTime, len(timeLayout))
	e.dst = t.AppendFormat(e.dst, timeLayout)
	return nil
}

// constant encodes c. Its payload is always NewSpec.
func (e *encoder) constant(c value.Const, depth int) error {
	if err := enter(0, depth); err != nil {
		return err
	}
	inner := encoder{dialect: NewSpec}
	if err := inner.items([]any{c.Name, c.Value}, depth+1); err != nil {
		return err
	}
	if err := fits(len(inner.dst)); err != nil {
		return err
	}
	e.dst = append(appendExtHeader(e.dst, extConst, len(inner.dst)), inner.dst...)
	return nil
}

// enter checks whether a container of n items may follow at this depth.
func enter(n, depth int) error {
	if depth >= defaultDepth {
		return fmt.Errorf("%w: nested more than %d deep", ErrLimit, defaultDepth)
	}
	return fits(n)
}

func fits(n int) error {
	if uint64(n) > math.MaxUint32 {
		return fmt.Errorf("%w: a part of %d bytes or items", ErrLimit, n)
	}
	return nil
}

// AppendNil appends nil.
func AppendNil(dst []byte) []byte { return append(dst, 0xc0) }

// AppendBool appends a bool.
func AppendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, 0xc3)
	}
	return append(dst, 0xc2)
}

// AppendInt appends i in its shortest form.
func AppendInt(dst []byte, i int64) []byte {
	switch {
	case i >= 0:
		return AppendUint(dst, uint64(i))
	case i >= -32:
		return append(dst, byte(i))
	case i >= math.MinInt8:
		return append(dst, 0xd0, byte(i))
	case i >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(dst, 0xd1), uint16(i))
	case i >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(dst, 0xd2), uint32(i))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xd3), uint64(i))
}

// AppendUint appends u in its shortest form.
func AppendUint(dst []byte, u uint64) []byte {
	switch {
	case u <= math.MaxInt8:
		return append(dst, byte(u))
	case u <= math.MaxUint8:
		return append(dst, 0xcc, byte(u))
	case u <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, 0xcd), uint16(u))
	case u <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, 0xce), uint32(u))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xcf), u)
}

// AppendFloat appends f in 64 bits. NaN is always the one that Python writes.
func AppendFloat(dst []byte, f float64) []byte {
	bits := math.Float64bits(f)
	if math.IsNaN(f) {
		bits = 0x7ff8000000000000
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xcb), bits)
}

// AppendString appends text of less than 4 GiB. In NewSpec a string that is not
// valid UTF-8 is written as bytes, since a strict reader rejects it as text.
func AppendString(dst []byte, s string, d Dialect) []byte {
	if d == NewSpec && !utf8.ValidString(s) {
		return append(appendBinHeader(dst, len(s)), s...)
	}
	return append(appendStrHeader(dst, len(s), d), s...)
}

// AppendBin appends bytes of less than 4 GiB. In Wire they are encoded as text.
func AppendBin(dst, p []byte, d Dialect) []byte {
	return append(AppendBinHeader(dst, len(p), d), p...)
}

// AppendBinHeader appends the head of n bytes; the caller appends the bytes
// next.
func AppendBinHeader(dst []byte, n int, d Dialect) []byte {
	if d == NewSpec {
		return appendBinHeader(dst, n)
	}
	return appendStrHeader(dst, n, d)
}

// AppendMapHeader appends the head of a map of n entries. The caller appends n
// times a key and its value next; a value may be an encoded object.
func AppendMapHeader(dst []byte, n int) []byte {
	if n <= 15 {
		return append(dst, 0x80|byte(n))
	}
	return appendHeader(dst, n, 0, 0xde, 0xdf)
}

// AppendArrayHeader appends the head of an array; the caller appends n items
// next.
func AppendArrayHeader(dst []byte, n int) []byte {
	if n <= 15 {
		return append(dst, 0x90|byte(n))
	}
	return appendHeader(dst, n, 0, 0xdc, 0xdd)
}

func appendStrHeader(dst []byte, n int, d Dialect) []byte {
	switch {
	case n <= 31:
		return append(dst, 0xa0|byte(n))
	case d == Wire:
		return appendHeader(dst, n, 0, 0xda, 0xdb)
	}
	return appendHeader(dst, n, 0xd9, 0xda, 0xdb)
}

func appendBinHeader(dst []byte, n int) []byte {
	return appendHeader(dst, n, 0xc4, 0xc5, 0xc6)
}

func appendExtHeader(dst []byte, typ int8, n int) []byte {
	switch n {
	case 1:
		dst = append(dst, 0xd4)
	case 2:
		dst = append(dst, 0xd5)
	case 4:
		dst = append(dst, 0xd6)
	case 8:
		dst = append(dst, 0xd7)
	case 16:
		dst = append(dst, 0xd8)
	default:
		dst = appendHeader(dst, n, 0xc7, 0xc8, 0xc9)
	}
	return append(dst, byte(typ))
}

// appendHeader appends the shortest of the heads with one, two or four bytes of
// length. c8 is 0 if there is no head with one byte.
func appendHeader(dst []byte, n int, c8, c16, c32 byte) []byte {
	switch {
	case c8 != 0 && n <= math.MaxUint8:
		return append(dst, c8, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, c16), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, c32), uint32(n))
}
