// Package msgpack encodes and decodes the value model in msgpack, byte for byte
// as Salt's processes do.
//
// Two dialects are in use (type Dialect). Every function decodes both; they
// differ in how text and bytes are written:
//
//	          text                       bytes
//	Wire      fixstr, da, db             the same: indistinguishable
//	NewSpec   fixstr, d9, da, db         c4, c5, c6
//
// Because of Wire there are two decoders. Unmarshal returns text for all valid
// UTF-8, as Salt does with messages. UnmarshalTyped trusts the types, as Salt
// does with event bodies and files. Both return []byte for invalid UTF-8, so a
// string of the value model is always valid.
//
// Extension 78 is a time without zone, 79 a value.Const whose payload is a
// NewSpec array of name and value; any other becomes a value.Ext and is
// written back unchanged.
//
// Input may be hostile: every reader is bounded by Limits, allocates at most a
// constant times the size of its input, and never panics. Errors match
// ErrShort, ErrInvalid or ErrLimit.
//
// Scanner finds the ends of objects in a growing stream; Skip, Field and the
// Append helpers build and split frames without decoding their content.
package msgpack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Dialect is the encoding of text and bytes. The zero Dialect is Wire.
type Dialect uint8

const (
	// Wire has one family for text and bytes, as msgpack before its revision of
	// 2013. Messages use it.
	Wire Dialect = iota
	// NewSpec has separate types for short text and for bytes. Event bodies,
	// files and TCP frames use it.
	NewSpec
)

var (
	// ErrShort means that the input ends before the object does.
	ErrShort = errors.New("msgpack object is cut off")
	// ErrInvalid means that the input is malformed; more input would not help.
	ErrInvalid = errors.New("invalid msgpack")
	// ErrLimit means that an object is too deep or too large.
	ErrLimit = errors.New("msgpack object exceeds the limit")
)

// Extension types that Salt uses.
const (
	extTime  = 78
	extConst = 79
)

// Limits bounds what a reader accepts. A field that is zero or less means its
// default.
type Limits struct {
	Depth int // nesting of containers; default 512 (as Python's encoder), at most 1000
	Items int // values, keys included; default 4 Mi
	Bytes int // size of one object; default 100 MiB (as Python's stream decoder)
}

const (
	defaultDepth = 512
	maxDepth     = 1000
	defaultItems = 4 << 20
	defaultBytes = 100 << 20
)

func (l Limits) orDefault() Limits {
	if l.Depth <= 0 {
		l.Depth = defaultDepth
	}
	l.Depth = min(l.Depth, maxDepth)
	if l.Items <= 0 {
		l.Items = defaultItems
	}
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	return l
}

type kind uint8

const (
	kindNil kind = iota
	kindBool
	kindInt   // num as int64
	kindUint  // num, above the range of int64
	kindFloat // num as bits
	kindStr
	kindBin
	kindExt
	kindArray
	kindMap
)

// head is the parsed head of an object.
type head struct {
	kind  kind
	ext   int8
	width uint8  // bytes of the head itself
	num   uint64 // the number or bool
	body  int64  // bytes that follow the head: text, bytes, extension
	count int64  // objects that follow the head; two for each entry of a map
}

// parseHead reads the head at the start of b.
func parseHead(b []byte) (head, error) {
	if len(b) == 0 {
		return head{}, ErrShort
	}
	c := b[0]
	switch {
	case c <= 0x7f:
		return head{kind: kindInt, width: 1, num: uint64(c)}, nil
	case c <= 0x8f:
		return head{kind: kindMap, width: 1, count: 2 * int64(c&0x0f)}, nil
	case c <= 0x9f:
		return head{kind: kindArray, width: 1, count: int64(c & 0x0f)}, nil
	case c <= 0xbf:
		return head{kind: kindStr, width: 1, body: int64(c & 0x1f)}, nil
	case c >= 0xe0:
		return head{kind: kindInt, width: 1, num: uint64(int64(int8(c)))}, nil
	case c == 0xc1:
		return head{}, fmt.Errorf("%w: byte c1", ErrInvalid)
	}
	return parseLongHead(b, c)
}

// longHeads describes the heads c0 to df: how many bytes of the number follow
// the first byte.
var longHeads = [0x20]struct {
	kind kind
	num  uint8
}{
	{kindNil, 0}, {}, {kindBool, 0}, {kindBool, 0},
	{kindBin, 1}, {kindBin, 2}, {kindBin, 4},
	{kindExt, 1}, {kindExt, 2}, {kindExt, 4},
	{kindFloat, 4}, {kindFloat, 8},
	{kindUint, 1}, {kindUint, 2}, {kindUint, 4}, {kindUint, 8},
	{kindInt, 1}, {kindInt, 2}, {kindInt, 4}, {kindInt, 8},
	{kindExt, 0}, {kindExt, 0}, {kindExt, 0}, {kindExt, 0}, {kindExt, 0},
	{kindStr, 1}, {kindStr, 2}, {kindStr, 4},
	{kindArray, 2}, {kindArray, 4}, {kindMap, 2}, {kindMap, 4},
}

func parseLongHead(b []byte, c byte) (head, error) {
	l := longHeads[c-0xc0]
	h := head{kind: l.kind, width: 1 + l.num}
	if l.kind == kindExt {
		h.width++
	}
	if len(b) < int(h.width) {
		return h, ErrShort
	}
	var n uint64
	switch l.num {
	case 1:
		n = uint64(b[1])
	case 2:
		n = uint64(binary.BigEndian.Uint16(b[1:]))
	case 4:
		n = uint64(binary.BigEndian.Uint32(b[1:]))
	case 8:
		n = binary.BigEndian.Uint64(b[1:])
	}
	switch l.kind {
	case kindBool:
		h.num = uint64(c & 1)
	case kindUint:
		if h.num = n; n <= math.MaxInt64 {
			h.kind = kindInt
		}
	case kindInt:
		shift := 64 - 8*uint(l.num)
		h.num = uint64(int64(n<<shift) >> shift)
	case kindFloat:
		if h.num = n; l.num == 4 {
			h.num = math.Float64bits(float64(math.Float32frombits(uint32(n))))
		}
	case kindStr, kindBin:
		h.body = int64(n)
	case kindArray:
		h.count = int64(n)
	case kindMap:
		h.count = 2 * int64(n)
	case kindExt:
		if h.body = int64(n); l.num == 0 {
			h.body = 1 << (c - 0xd4)
		}
		h.ext = int8(b[h.width-1])
	}
	return h, nil
}
