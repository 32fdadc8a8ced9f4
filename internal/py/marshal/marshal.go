// Package marshal encodes and decodes the value model in Python's marshal format, version
// 2, which every Python 3 reads and writes at the speed of C and with the exact types of
// values: integers of any size, bytes, tuples, sets.
//
// It is for processes that Brine starts, not for messages or files. Sets become tuples,
// which the value model has in their place. A time is a tuple of an ellipsis, "time" and
// seven numbers, since the format has no times, and a date one of "date" and three; Append reports that it wrote one.
//
// Input may be hostile: Unmarshal is bounded by Limits, allocates at most a constant times
// the size of its input, and never panics.
package marshal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"time"
	"unicode/utf8"

	"brine/internal/py/value"
)

var (
	// ErrInvalid means that the input is malformed.
	ErrInvalid = errors.New("invalid marshal data")
	// ErrLimit means that an object is too deep or too large.
	ErrLimit = errors.New("marshal data exceeds the limit")
)

// Limits bounds what Unmarshal accepts. A field that is zero means its default.
type Limits struct {
	Depth int // nesting of containers; default 1000
	Items int // values, keys included; default 8 Mi
}

const (
	defaultDepth = 1000
	defaultItems = 8 << 20
)

// Bits of one digit of a long integer.
const digitBits = 15

// Type codes.
const (
	codeNull      = '0'
	codeNone      = 'N'
	codeFalse     = 'F'
	codeTrue      = 'T'
	codeEllipsis  = '.'
	codeInt       = 'i'
	codeLong      = 'l'
	codeFloat     = 'g'
	codeComplex   = 'y'
	codeBytes     = 's'
	codeText      = 'u'
	codeTuple     = '('
	codeList      = '['
	codeDict      = '{'
	codeSet       = '<'
	codeFrozenSet = '>'
)

// timeName marks a tuple that stands for a time, dateName one for a date.
const (
	timeName = "time"
	dateName = "date"
)

// Append appends the encoding of v. marked reports that it has values that the format
// lacks, which the reader has to restore.
func Append(dst []byte, v any) (out []byte, marked bool, err error) {
	e := encoder{dst: dst}
	err = e.value(v, 0)
	return e.dst, e.marked, err
}

type encoder struct {
	dst    []byte
	marked bool
}

func (e *encoder) size(code byte, n int) error {
	if n > math.MaxInt32 {
		return fmt.Errorf("%w: a part of %d bytes or items", ErrLimit, n)
	}
	e.dst = binary.LittleEndian.AppendUint32(append(e.dst, code), uint32(n))
	return nil
}

func (e *encoder) value(v any, depth int) error {
	if depth > defaultDepth {
		return fmt.Errorf("%w: nested more than %d deep", ErrLimit, defaultDepth)
	}
	switch x := v.(type) {
	case nil:
		e.dst = append(e.dst, codeNone)
	case bool:
		if x {
			e.dst = append(e.dst, codeTrue)
		} else {
			e.dst = append(e.dst, codeFalse)
		}
	case int64:
		e.integer(x)
	case *big.Int:
		e.long(x)
	case float64:
		e.dst = binary.LittleEndian.AppendUint64(append(e.dst, codeFloat), math.Float64bits(x))
	case string:
		if err := e.size(codeText, len(x)); err != nil {
			return err
		}
		e.dst = append(e.dst, x...)
	case []byte:
		if err := e.size(codeBytes, len(x)); err != nil {
			return err
		}
		e.dst = append(e.dst, x...)
	case *value.List:
		if x == nil {
			x = &value.List{}
		}
		return e.items(codeList, x.Items, depth)
	case value.Tuple:
		return e.items(codeTuple, x, depth)
	case *value.Dict:
		return e.dict(x, depth)
	case time.Time:
		e.time(x)
	case value.Const:
		return e.value(x.Value, depth+1)
	case value.Ext:
		return e.value(x.Data, depth+1)
	default:
		return e.value(value.From(v), depth+1)
	}
	return nil
}

func (e *encoder) integer(i int64) {
	if i == int64(int32(i)) {
		e.dst = binary.LittleEndian.AppendUint32(append(e.dst, codeInt), uint32(int32(i)))
		return
	}
	e.long(big.NewInt(i))
}

// long writes the digits of an integer of any size, the least significant one first. A
// negative number has a negative count of digits.
func (e *encoder) long(i *big.Int) {
	if i == nil {
		e.dst = append(e.dst, codeNone)
		return
	}
	abs := new(big.Int).Abs(i)
	digits := (abs.BitLen() + digitBits - 1) / digitBits
	count := int32(digits)
	if i.Sign() < 0 {
		count = -count
	}
	e.dst = binary.LittleEndian.AppendUint32(append(e.dst, codeLong), uint32(count))
	for n := range digits {
		var d uint16
		for b := range digitBits {
			d |= uint16(abs.Bit(n*digitBits+b)) << b
		}
		e.dst = binary.LittleEndian.AppendUint16(e.dst, d)
	}
}

func (e *encoder) items(code byte, items []any, depth int) error {
	if err := e.size(code, len(items)); err != nil {
		return err
	}
	for _, it := range items {
		if err := e.value(it, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) dict(d *value.Dict, depth int) error {
	e.dst = append(e.dst, codeDict)
	for i := range d.Len() {
		k, v := d.Entry(i)
		if err := e.value(k, depth+1); err != nil {
			return err
		}
		if err := e.value(v, depth+1); err != nil {
			return err
		}
	}
	e.dst = append(e.dst, codeNull)
	return nil
}

func (e *encoder) time(t time.Time) {
	e.marked = true
	name, parts := timeName, []int{t.Year(), int(t.Month()), t.Day()}
	if value.IsDate(t) {
		name = dateName
	} else {
		t = t.UTC()
		parts = []int{t.Year(), int(t.Month()), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond() / 1000}
	}
	e.dst = binary.LittleEndian.AppendUint32(append(e.dst, codeTuple), uint32(2+len(parts)))
	e.dst = append(e.dst, codeEllipsis)
	e.dst = binary.LittleEndian.AppendUint32(append(e.dst, codeText), uint32(len(name)))
	e.dst = append(e.dst, name...)
	for _, n := range parts {
		e.integer(int64(n))
	}
}

// Unmarshal decodes the single object in b, within the default Limits. Text that is not
// valid UTF-8 becomes []byte. The result shares no memory with b.
func Unmarshal(b []byte) (any, error) { return Limits{}.Unmarshal(b) }

// Unmarshal is the function Unmarshal with these limits.
func (l Limits) Unmarshal(b []byte) (any, error) {
	if l.Depth <= 0 {
		l.Depth = defaultDepth
	}
	if l.Items <= 0 {
		l.Items = defaultItems
	}
	d := decoder{b: b, depth: l.Depth, items: l.Items}
	v, err := d.member()
	if err != nil {
		return nil, err
	}
	if len(d.b) > 0 {
		return nil, fmt.Errorf("%w: %d bytes follow the object", ErrInvalid, len(d.b))
	}
	return plain(v), nil
}

// Values that are no part of the value model.
type (
	null     struct{} // the end of a dict
	ellipsis struct{}
)

// plain replaces an ellipsis that stands alone.
func plain(v any) any {
	if _, ok := v.(ellipsis); ok {
		return "Ellipsis"
	}
	return v
}

type decoder struct {
	b     []byte
	depth int
	items int
	owed  int // items announced but not read yet; each takes at least one byte
}

func (d *decoder) take(n int) ([]byte, error) {
	if n < 0 || n > len(d.b) {
		return nil, fmt.Errorf("%w: it ends before an object does", ErrInvalid)
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out, nil
}

func (d *decoder) uint32() (uint32, error) {
	b, err := d.take(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

// body returns the bytes of an object that begins with their number.
func (d *decoder) body() ([]byte, error) {
	n, err := d.uint32()
	if err != nil {
		return nil, err
	}
	return d.take(int(int32(n)))
}

// member returns a value of the model inside a container.
func (d *decoder) member() (any, error) {
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	if _, ok := v.(null); ok {
		return nil, fmt.Errorf("%w: the end of a dict outside of one", ErrInvalid)
	}
	return v, nil
}

func (d *decoder) value() (any, error) {
	if d.items--; d.items < 0 {
		return nil, fmt.Errorf("%w: too many values", ErrLimit)
	}
	code, err := d.take(1)
	if err != nil {
		return nil, err
	}
	switch code[0] {
	case codeNull:
		return null{}, nil
	case codeNone:
		return nil, nil
	case codeFalse:
		return false, nil
	case codeTrue:
		return true, nil
	case codeEllipsis:
		return ellipsis{}, nil
	case codeInt:
		n, err := d.uint32()
		return int64(int32(n)), err
	case codeLong:
		return d.long()
	case codeFloat:
		b, err := d.take(8)
		if err != nil {
			return nil, err
		}
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), nil
	case codeComplex:
		b, err := d.take(16)
		if err != nil {
			return nil, err
		}
		c := complex(math.Float64frombits(binary.LittleEndian.Uint64(b)), math.Float64frombits(binary.LittleEndian.Uint64(b[8:])))
		return fmt.Sprint(c), nil
	case codeBytes:
		b, err := d.body()
		return append([]byte{}, b...), err
	case codeText:
		b, err := d.body()
		if !utf8.Valid(b) {
			return append([]byte{}, b...), err
		}
		return string(b), err
	case codeTuple, codeSet, codeFrozenSet, codeList:
		return d.sequence(code[0])
	case codeDict:
		return d.dict()
	}
	return nil, fmt.Errorf("%w: type code %q", ErrInvalid, code)
}

func (d *decoder) long() (any, error) {
	n, err := d.uint32()
	if err != nil {
		return nil, err
	}
	count, negative := int64(int32(n)), false
	if count < 0 {
		count, negative = -count, true
	}
	if count > int64(len(d.b)/2) {
		return nil, fmt.Errorf("%w: it ends before an integer does", ErrInvalid)
	}
	b, err := d.take(int(2 * count))
	if err != nil {
		return nil, err
	}
	// The digits are put together as bytes, in one pass.
	bits := make([]byte, len(b)+2)
	var acc, have uint32
	at := len(bits)
	for i := 0; i < len(b); i += 2 {
		digit := uint32(binary.LittleEndian.Uint16(b[i:]))
		if digit >= 1<<digitBits {
			return nil, fmt.Errorf("%w: a digit of %d", ErrInvalid, digit)
		}
		acc |= digit << have
		for have += digitBits; have >= 8; have -= 8 {
			at--
			bits[at] = byte(acc)
			acc >>= 8
		}
	}
	at--
	bits[at] = byte(acc)
	i := new(big.Int).SetBytes(bits[at:])
	if negative {
		i.Neg(i)
	}
	return value.Big(i), nil
}

func (d *decoder) enter() error {
	if d.depth == 0 {
		return fmt.Errorf("%w: nested too deep", ErrLimit)
	}
	d.depth--
	return nil
}

func (d *decoder) sequence(code byte) (any, error) {
	n, err := d.uint32()
	if err != nil {
		return nil, err
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	// All announced items have to fit the unread input, so that the space for them is bounded
	// by its size, whatever numbers it has.
	if int64(n)+int64(d.owed) > int64(len(d.b)) || int64(n) > int64(d.items) {
		return nil, fmt.Errorf("%w: a container of %d items", ErrInvalid, n)
	}
	d.owed += int(n)
	items := make([]any, n)
	marked := false
	for i := range items {
		d.owed--
		v, err := d.member()
		if err != nil {
			return nil, err
		}
		if _, ok := v.(ellipsis); ok && i == 0 && code == codeTuple {
			marked = true
		}
		items[i] = plain(v)
	}
	d.depth++
	if code == codeList {
		return &value.List{Items: items}, nil
	}
	if marked {
		if t, ok := readTime(items); ok {
			return t, nil
		}
	}
	return value.Tuple(items), nil
}

func readTime(items []any) (time.Time, bool) {
	isDate := len(items) == 5 && items[1] == dateName
	if !isDate && (len(items) != 9 || items[1] != timeName) {
		return time.Time{}, false
	}
	var n [7]int
	for i, v := range items[2:] {
		x, ok := v.(int64)
		if !ok || x != int64(int32(x)) {
			return time.Time{}, false
		}
		n[i] = int(x)
	}
	if n[0] < 1 || n[0] > 9999 {
		return time.Time{}, false
	}
	if isDate {
		return value.Date(n[0], n[1], n[2]), true
	}
	return time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], n[6]*1000, time.UTC), true
}

func (d *decoder) dict() (any, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	out := value.NewDict(0)
	for {
		k, err := d.value()
		if err != nil {
			return nil, err
		}
		if _, ok := k.(null); ok {
			d.depth++
			return out, nil
		}
		if k = plain(k); !value.Hashable(k) {
			return nil, fmt.Errorf("%w: a %s as key of a dict", ErrInvalid, value.TypeName(k))
		}
		v, err := d.member()
		if err != nil {
			return nil, err
		}
		out.Set(k, plain(v))
	}
}
