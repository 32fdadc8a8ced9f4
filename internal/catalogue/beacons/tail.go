package beacons

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"brine/internal/py/value"
)

// maxRead bounds what one check reads of a file, in bytes. The next check reads
// the rest.
const maxRead = 1 << 20

// grown returns what was appended to a file since the last check, nothing at
// the first check. keep returns how many bytes are complete; the rest is
// returned again. A missing file is reported once. A file that appears, was
// replaced or became shorter is read from its beginning.
func grown(memory *value.Dict, path string, keep func([]byte) int) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not block
	if errors.Is(err, fs.ErrNotExist) {
		known := memory.Bool("missing")
		memory.Set("missing", true)
		memory.Set("at", int64(0))
		if known {
			return nil, nil
		}
		return nil, fmt.Errorf("%s does not exist; it is read when it appears", path)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	inode := int64(0)
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = int64(st.Ino)
	}
	at, seen := memory.Get("at")
	begin, _ := at.(int64)
	last, known := memory.At("inode").(int64)
	memory.Set("inode", inode)
	memory.Set("missing", false)
	switch {
	case !seen:
		memory.Set("at", info.Size())
		return nil, nil
	case begin > info.Size() || known && last != inode:
		begin = 0
	}
	data := make([]byte, min(info.Size()-begin, maxRead))
	n, err := file.ReadAt(data, begin)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	data = data[:n]
	whole := keep(data)
	if whole == 0 && n == maxRead {
		whole = n // the last line lacks a line feed
	}
	memory.Set("at", begin+int64(whole))
	return data[:whole], nil
}
