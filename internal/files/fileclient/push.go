package fileclient

import (
	"context"
	"errors"
	"io"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// Push sends a local file to the source, which stores it under name. ok is false if the source rejects it.
// part is the size of one request, in bytes.
func (c *Client) Push(ctx context.Context, id, path, name string, part int) (ok bool, err error) {
	f, err := openRegular(path)
	if err != nil {
		return false, missing(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	names := &value.List{}
	for n := range strings.SplitSeq(name, "/") {
		if n != "" && n != "." {
			names.Append(n)
		}
	}
	if names.Len() == 0 {
		return false, salt.Errorf(salt.Invalid, "the name to push %s under is empty", path)
	}
	if part <= 0 {
		part = 256 << 10
	}
	buf := make([]byte, part)
	for loc, first := int64(0), true; ; first = false {
		n, err := io.ReadFull(f, buf)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false, err
		}
		if n == 0 && !first {
			return true, nil
		}
		v, err := c.origin.request(ctx, "_file_recv", "id", id, "path", names, "size", st.Size(), "loc", loc, "data", buf[:n])
		if err != nil {
			return false, err
		}
		if !value.Truth(v) {
			return false, nil
		}
		loc += int64(n)
	}
}
