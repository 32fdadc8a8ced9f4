package fuzztest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// MaxInput bounds the size of mutated arguments in bytes.
const MaxInput = 64 << 10

// mutator creates inputs from seeds.
type mutator struct {
	*rand.Rand
	seeds [][]any
	parts [][]byte // all byte strings of all seeds, to be spliced
	buf   []byte
}

func newMutator(seed uint64, seeds [][]any) *mutator {
	m := &mutator{Rand: rand.New(rand.NewPCG(seed, 1)), seeds: seeds}
	for _, s := range seeds {
		for _, a := range s {
			switch a := a.(type) {
			case []byte:
				m.parts = append(m.parts, a)
			case string:
				m.parts = append(m.parts, []byte(a))
			}
		}
	}
	return m
}

// next returns a mutated copy of a seed.
func (m *mutator) next() []any {
	seed := m.seeds[m.IntN(len(m.seeds))]
	args := slices.Clone(seed)
	only := m.IntN(len(args)) // this one certainly, the others sometimes
	for i, a := range args {
		if i != only && m.IntN(4) > 0 {
			continue
		}
		switch a := a.(type) {
		case []byte:
			args[i] = bytes.Clone(m.mutate(a))
			if args[i].([]byte) == nil {
				args[i] = []byte{}
			}
		case string:
			args[i] = string(m.mutate([]byte(a)))
		case bool:
			args[i] = m.IntN(2) == 0
		case uint8:
			args[i] = uint8(m.Uint32())
		case uint16:
			args[i] = uint16(m.Uint32())
		case int:
			args[i] = int(m.number(int64(a)))
		case int64:
			args[i] = m.number(a)
		case uint64:
			args[i] = uint64(m.number(int64(a)))
		}
	}
	return args
}

func (m *mutator) number(n int64) int64 {
	switch m.IntN(4) {
	case 0:
		return n + int64(m.IntN(17)) - 8
	case 1:
		return int64(m.IntN(256))
	case 2:
		return -n
	}
	return int64(m.Uint64() >> m.IntN(64))
}

// mutate returns a changed copy of b, which the next call overwrites.
func (m *mutator) mutate(b []byte) []byte {
	m.buf = append(m.buf[:0], b...)
	for n := 1 + m.IntN(4)*m.IntN(3); n > 0; n-- {
		m.once()
	}
	return m.buf[:min(len(m.buf), MaxInput)]
}

// interesting bytes terminate, open or escape something in most formats.
const interesting = "\x00\x01\x7f\x80\xc1\xc4\xc7\xdf\xfe\xff\n\r\t \"'\\{}[]()<>:;,.%#&*!|@/=-+0919eExu_~^$`?"

func (m *mutator) once() {
	b := m.buf
	if len(b) == 0 {
		m.buf = append(b, m.piece(64)...)
		return
	}
	at := m.IntN(len(b))
	switch m.IntN(12) {
	case 0:
		b[at] ^= 1 << m.IntN(8)
	case 1:
		b[at] = byte(m.Uint32())
	case 2:
		b[at] = interesting[m.IntN(len(interesting))]
	case 3:
		m.buf = slices.Insert(b, at, interesting[m.IntN(len(interesting))])
	case 4: // lose some
		m.buf = append(b[:at], b[min(len(b), at+1+m.IntN(16)):]...)
	case 5: // the end is cut off
		m.buf = b[:at]
	case 6: // repeat
		n := min(len(b)-at, 1+m.IntN(32))
		m.buf = slices.Insert(b, at, bytes.Clone(b[at:at+n])...)
	case 7: // repeat often, to nest deeply
		n := min(len(b)-at, 1+m.IntN(4))
		if len(b) < MaxInput/2 {
			m.buf = slices.Insert(b, at, bytes.Repeat(b[at:at+n], 1+m.IntN(1<<m.IntN(10)))...)
		}
	case 8: // from another seed, inserted
		m.buf = slices.Insert(b, at, m.piece(64)...)
	case 9: // from another seed, instead
		copy(b[at:], m.piece(64))
	case 10: // lengths
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(m.number(int64(len(b)))))
		copy(b[at:], n[8-1<<m.IntN(4):])
	case 11: // swap
		n := min(len(b)-at, 1+m.IntN(16))
		from := m.IntN(len(b) - n + 1)
		for i := range n {
			b[at+i], b[from+i] = b[from+i], b[at+i]
		}
	}
}

// piece returns part of a seed.
func (m *mutator) piece(most int) []byte {
	if len(m.parts) > 0 {
		if p := m.parts[m.IntN(len(m.parts))]; len(p) > 0 {
			at := m.IntN(len(p))
			return p[at:min(len(p), at+1+m.IntN(most))]
		}
	}
	return []byte{byte(m.Uint32())}
}
