package msgpack

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"time"
	"unicode/utf8"

	"brine/internal/py/value"
)

// Unmarshal decodes the single object in b. Text and bytes of either dialect
// become string if they are valid UTF-8, otherwise []byte; so do the keys of
// maps. Of entries with the same key the last one counts. The result shares no
// memory with b. Default Limits apply.
func Unmarshal(b []byte) (any, error) { return Limits{}.Unmarshal(b) }

// UnmarshalTyped is Unmarshal for input in NewSpec: bytes stay []byte even if
// they are valid UTF-8. Text that is not valid UTF-8 becomes []byte, so that
// one bad file name does not make a whole event unreadable.
func UnmarshalTyped(b []byte) (any, error) { return Limits{}.UnmarshalTyped(b) }

// Unmarshal is the function Unmarshal with these limits.
func (l Limits) Unmarshal(b []byte) (any, error) { return l.unmarshal(b, false) }

// UnmarshalTyped is the function UnmarshalTyped with these limits.
func (l Limits) UnmarshalTyped(b []byte) (any, error) { return l.unmarshal(b, true) }

func (l Limits) unmarshal(b []byte, typed bool) (any, error) {
	l = l.orDefault()
	if len(b) > l.Bytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are taken", ErrLimit, len(b), l.Bytes)
	}
	d := decoder{b: b, typed: typed, depth: l.Depth, items: l.Items}
	return d.whole()
}

type decoder struct {
	b     []byte // unread input
	typed bool
	depth int // containers that may still be entered
	items int // values that may still be announced
	owed  int // values announced but not read yet; each takes at least one byte
	seen  seenText
}

// whole decodes the single object of the input.
func (d *decoder) whole() (any, error) {
	d.owed = 1
	d.items--
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	if len(d.b) > 0 {
		return nil, fmt.Errorf("%w: %d bytes follow the object", ErrInvalid, len(d.b))
	}
	return v, nil
}

func (d *decoder) value() (any, error) {
	h, err := parseHead(d.b)
	if err != nil {
		return nil, err
	}
	d.b = d.b[h.width:]
	d.owed--
	switch h.kind {
	case kindNil:
		return nil, nil
	case kindBool:
		return h.num != 0, nil
	case kindInt:
		return int64(h.num), nil
	case kindUint:
		return new(big.Int).SetUint64(h.num), nil
	case kindFloat:
		return math.Float64frombits(h.num), nil
	case kindArray:
		return d.array(h.count)
	case kindMap:
		return d.dict(h.count)
	}
	if h.body > int64(len(d.b)) {
		return nil, ErrShort
	}
	body := d.b[:h.body]
	d.b = d.b[h.body:]
	switch {
	case h.kind == kindExt:
		return d.extension(h.ext, body)
	case h.kind == kindBin && d.typed:
		return bytes.Clone(body), nil
	}
	return d.seen.text(body), nil
}

// enter announces a container of n values. The caller may allocate space for
// them at once. All owed values must fit the unread input, so the sum of these
// allocations is bounded by the input size, whatever lengths the heads claim.
func (d *decoder) enter(n int64) error {
	if d.depth == 0 {
		return fmt.Errorf("%w: nested too deep", ErrLimit)
	}
	if n > int64(d.items) {
		return fmt.Errorf("%w: too many values", ErrLimit)
	}
	if n+int64(d.owed) > int64(len(d.b)) {
		return ErrShort
	}
	d.depth--
	d.items -= int(n)
	d.owed += int(n)
	return nil
}

func (d *decoder) array(n int64) (any, error) {
	if err := d.enter(n); err != nil {
		return nil, err
	}
	l := &value.List{}
	if n > 0 {
		l.Items = make([]any, n)
	}
	for i := range l.Items {
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		l.Items[i] = v
	}
	d.depth++
	return l, nil
}

func (d *decoder) dict(n int64) (any, error) {
	if err := d.enter(n); err != nil {
		return nil, err
	}
	m := value.NewDict(int(n / 2))
	for range n / 2 {
		k, err := d.value()
		if err != nil {
			return nil, err
		}
		if !value.Hashable(k) {
			return nil, fmt.Errorf("%w: a %s as key of a map", ErrInvalid, value.TypeName(k))
		}
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		m.Set(k, v)
	}
	d.depth++
	return m, nil
}

func (d *decoder) extension(typ int8, body []byte) (any, error) {
	switch typ {
	case extTime:
		return parseTime(body)
	case extConst:
		return d.constant(body)
	}
	return value.Ext{Type: typ, Data: bytes.Clone(body)}, nil
}

func parseTime(body []byte) (any, error) {
	const dot = len("20060102T15:04:05")
	if len(body) > dot+1 && len(body) <= len(timeLayout) && body[dot] == '.' {
		t, err := time.Parse("20060102T15:04:05", string(body))
		if err == nil && t.Year() > 0 {
			return t, nil
		}
	}
	return nil, fmt.Errorf("%w: a time that reads %.40q", ErrInvalid, body)
}

// constant decodes the payload of a value.Const within the remaining limits.
func (d *decoder) constant(body []byte) (any, error) {
	if d.depth == 0 {
		return nil, fmt.Errorf("%w: nested too deep", ErrLimit)
	}
	if d.items <= 0 {
		return nil, fmt.Errorf("%w: too many values", ErrLimit)
	}
	inner := decoder{b: body, typed: true, depth: d.depth - 1, items: d.items}
	v, err := inner.whole()
	if errors.Is(err, ErrShort) { // the payload is complete, more input would not help
		return nil, fmt.Errorf("%w: a constant that is cut off", ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("in a constant: %w", err)
	}
	d.items = inner.items
	if l, ok := v.(*value.List); ok && l.Len() == 2 {
		if name, ok := l.Items[0].(string); ok {
			return value.Const{Name: name, Value: l.Items[1]}, nil
		}
	}
	return nil, fmt.Errorf("%w: a constant that is not a name and a value", ErrInvalid)
}

// seenText caches short strings. Salt's data repeats keys and values ("result",
// "changes", "base"), and a string in an interface costs two allocations. If
// two strings share a slot, the later one replaces the other.
type seenText [64]any

// maxSeen is the maximum length of a cached string.
const maxSeen = 32

// text returns b as a string if it is valid UTF-8, otherwise as []byte.
func (t *seenText) text(b []byte) any {
	if len(b) > maxSeen || len(b) == 0 {
		return newText(b)
	}
	n := uint(len(b))
	h := n*31 + uint(b[0])*7 + uint(b[n/2])*17 + uint(b[n-1])*3
	slot := &t[h%uint(len(t))]
	if s, ok := (*slot).(string); ok && s == string(b) {
		return *slot
	}
	v := newText(b)
	if _, ok := v.(string); ok {
		*slot = v
	}
	return v
}

func newText(b []byte) any {
	if utf8.Valid(b) {
		return string(b)
	}
	return bytes.Clone(b)
}
