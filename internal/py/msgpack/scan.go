package msgpack

import "fmt"

// Skip returns the size in bytes of the first object of b, without decoding it.
// The error is ErrShort if b ends before the object does, ErrInvalid if it is
// malformed, ErrLimit if default Limits are exceeded. Skip checks structure
// only: Unmarshal may still reject the object, for a list as key of a map or an
// extension of known type with a bad payload.
func Skip(b []byte) (n int, err error) { return Limits{}.Skip(b) }

// Skip is the function Skip with these limits.
func (l Limits) Skip(b []byte) (n int, err error) {
	s := Scanner{Limits: l, open: make([]int64, 0, usualDepth)}
	return s.Next(b)
}

// usualDepth is deep enough for most objects.
const usualDepth = 16

// Scanner finds the end of the object at the start of a growing buffer. It
// resumes where it stopped, so that a slow stream costs no more than a fast
// one. The zero Scanner is ready to use, with default Limits; set Limits before
// the first Next.
//
//	n, err := s.Next(buf)
//	switch {
//	case err == nil:                    // buf[:n] is an object; go on with buf[n:]
//	case errors.Is(err, msgpack.ErrShort): // read more behind buf, try again
//	default:                            // give up the stream
//	}
type Scanner struct {
	Limits Limits

	started bool
	off     int64   // start of the next head; may be after the end of the buffer
	items   int     // values that may still be announced
	owed    int64   // values announced but not read yet
	had     int     // size of the buffer in the last Next
	open    []int64 // values not read yet of each open container
}

// Next returns the size of the object at the start of buf, and is then ready
// for the next object. After ErrShort, call it again with the same bytes
// followed by more. After any other error call Reset.
func (s *Scanner) Next(buf []byte) (n int, err error) {
	lim := s.Limits.orDefault()
	if !s.started {
		s.started = true
		s.items = lim.Items - 1
		s.owed = 1
	}
	s.had = len(buf)
	for s.owed > 0 {
		if s.off+s.owed > int64(lim.Bytes) {
			return 0, fmt.Errorf("%w: at least %d bytes, at most %d are taken", ErrLimit, s.off+s.owed, lim.Bytes)
		}
		if s.off >= int64(len(buf)) {
			return 0, ErrShort
		}
		h, err := parseHead(buf[s.off:])
		if err != nil {
			return 0, err
		}
		if err := s.step(h, lim.Depth); err != nil {
			return 0, err
		}
	}
	if s.off > int64(lim.Bytes) {
		return 0, fmt.Errorf("%w: %d bytes, at most %d are taken", ErrLimit, s.off, lim.Bytes)
	}
	if s.off > int64(len(buf)) {
		return 0, ErrShort
	}
	n = int(s.off)
	s.Reset()
	return n, nil
}

// step skips one head and its body.
func (s *Scanner) step(h head, maxDepth int) error {
	if h.kind == kindArray || h.kind == kindMap {
		if len(s.open) >= maxDepth {
			return fmt.Errorf("%w: nested too deep", ErrLimit)
		}
		if h.count > int64(s.items) {
			return fmt.Errorf("%w: too many values", ErrLimit)
		}
		s.items -= int(h.count)
	}
	s.off += int64(h.width) + h.body
	s.owed += h.count - 1
	if last := len(s.open) - 1; last >= 0 {
		s.open[last]--
	}
	if h.kind == kindArray || h.kind == kindMap {
		s.open = append(s.open, h.count)
	}
	for last := len(s.open) - 1; last >= 0 && s.open[last] == 0; last-- {
		s.open = s.open[:last]
	}
	return nil
}

// Need returns, after ErrShort, the minimum size of the object in bytes. The
// peer claims this size. It is within Limits.Bytes, but allocating it at once
// lets an unauthenticated peer fill the memory by sending a few bytes.
func (s *Scanner) Need() int { return max(int(s.off+s.owed), s.had+1) }

// Reset prepares s for a new stream. It keeps Limits and allocated memory.
func (s *Scanner) Reset() {
	*s = Scanner{Limits: s.Limits, open: s.open[:0]}
}

// Field returns the encoded value of a text key in the map b, without decoding
// it. raw is a part of b. Like Unmarshal it takes the last of several entries
// with the key, and keys of either dialect. ok is false if there is no entry.
// It is an error if b is not a single map, or exceeds default Limits.
func Field(b []byte, key string) (raw []byte, ok bool, err error) {
	h, err := parseHead(b)
	if err != nil {
		return nil, false, err
	}
	if h.kind != kindMap {
		return nil, false, fmt.Errorf("%w: want a map", ErrInvalid)
	}
	if len(b) > defaultBytes {
		return nil, false, fmt.Errorf("%w: %d bytes", ErrLimit, len(b))
	}
	s := Scanner{Limits: Limits{Depth: defaultDepth - 1}, open: make([]int64, 0, usualDepth)}
	next := func() ([]byte, error) {
		n, err := s.Next(b)
		if err != nil {
			return nil, err
		}
		part := b[:n:n]
		b = b[n:]
		return part, nil
	}
	b = b[h.width:]
	for range h.count / 2 {
		k, err := next()
		if err != nil {
			return nil, false, err
		}
		v, err := next()
		if err != nil {
			return nil, false, err
		}
		if text, isText := Text(k); isText && string(text) == key {
			raw, ok = v, true
		}
	}
	if len(b) > 0 {
		return nil, false, fmt.Errorf("%w: %d bytes follow the map", ErrInvalid, len(b))
	}
	return raw, ok, nil
}

// Text returns the content of raw if it is a single text or bytes object of
// either dialect. The result is a part of raw.
func Text(raw []byte) (content []byte, ok bool) {
	h, err := parseHead(raw)
	if err != nil || h.kind != kindStr && h.kind != kindBin || int64(h.width)+h.body != int64(len(raw)) {
		return nil, false
	}
	return raw[h.width:], true
}
