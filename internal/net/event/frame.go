package event

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"brine/internal/py/msgpack"
)

// beginFrame returns the header of a frame with a body of n bytes, with capacity for the body.
func beginFrame(n int) []byte {
	b := make([]byte, 0, n+24)
	b = msgpack.AppendMapHeader(b, 2)
	b = msgpack.AppendString(b, "head", msgpack.NewSpec)
	b = msgpack.AppendMapHeader(b, 0)
	b = msgpack.AppendString(b, "body", msgpack.NewSpec)
	return msgpack.AppendBinHeader(b, n, msgpack.NewSpec)
}

// Frame returns the frame of a body: TAG, two line feeds, data.
func Frame(body []byte) []byte { return append(beginFrame(len(body)), body...) }

// Body returns the body of an event with a tag and encoded data.
func Body(tag string, data []byte) []byte {
	b := make([]byte, 0, len(tag)+len(tagEnd)+len(data))
	return append(append(append(b, tag...), tagEnd...), data...)
}

// SplitBody splits a body into tag and data; ok is false if it has no tag.
func SplitBody(body []byte) (tag string, data []byte, ok bool) {
	t, data, ok := bytes.Cut(body, []byte(tagEnd))
	return string(t), data, ok && len(t) > 0 && utf8.Valid(t)
}

// FrameReader reads frames from a stream.
type FrameReader struct{ frames frameReader }

// NewFrameReader returns a reader of frames of at most limit bytes.
func NewFrameReader(r io.Reader, limit int) *FrameReader {
	f := &FrameReader{frameReader{r: r}}
	f.SetLimit(limit)
	return f
}

// Next returns the body of the next frame, which belongs to the caller.
func (f *FrameReader) Next() ([]byte, error) { return f.frames.next() }

// SetLimit changes the size limit of later frames.
func (f *FrameReader) SetLimit(n int) { f.frames.scan.Limits.Bytes = n }

// frameReader reads frames from a stream.
type frameReader struct {
	r    io.Reader
	scan msgpack.Scanner
	buf  []byte
	used int // bytes of buf that the previous frame took
}

const firstBuffer = 16 << 10

// next returns the body of the next frame, which belongs to the caller.
func (f *frameReader) next() ([]byte, error) {
	if f.used > 0 {
		f.buf = append(f.buf[:0], f.buf[f.used:]...)
		f.used = 0
		if cap(f.buf) > 16*firstBuffer && len(f.buf) < firstBuffer {
			f.buf = append(make([]byte, 0, firstBuffer), f.buf...)
		}
	}
	for {
		if len(f.buf) > 0 {
			n, err := f.scan.Next(f.buf)
			if err == nil {
				f.used = n
				return frameBody(f.buf[:n])
			}
			if !errors.Is(err, msgpack.ErrShort) {
				return nil, fmt.Errorf("cannot read a frame of the event bus: %w", err)
			}
		}
		if len(f.buf) == cap(f.buf) {
			// The buffer doubles with the received data, so that an announced size alone allocates
			// nothing.
			f.buf = append(make([]byte, 0, max(firstBuffer, 2*cap(f.buf))), f.buf...)
		}
		n, err := f.r.Read(f.buf[len(f.buf):cap(f.buf)])
		f.buf = f.buf[:len(f.buf)+n]
		if n == 0 && err != nil {
			if err == io.EOF && len(f.buf) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

func frameBody(frame []byte) ([]byte, error) {
	raw, ok, err := msgpack.Field(frame, "body")
	if err != nil || !ok {
		return nil, fmt.Errorf("a frame of the event bus has no body: %w", errors.Join(err, msgpack.ErrInvalid))
	}
	body, ok := msgpack.Text(raw)
	if !ok {
		return nil, fmt.Errorf("the body of a frame of the event bus is not bytes: %w", msgpack.ErrInvalid)
	}
	return append([]byte(nil), body...), nil
}
