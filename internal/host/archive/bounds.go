package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// room is the space available for unpacking into a directory: a few bytes of an
// archive can represent files of any size.
type room struct {
	free  func() (int64, error) // free disk space
	holes int64                 // bytes of all sparse files so far
}

func roomIn(root *os.Root) *room {
	return &room{free: func() (int64, error) {
		dir, err := root.Open(".")
		if err != nil {
			return 0, err
		}
		defer dir.Close()
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
			return 0, err
		}
		if st.Bavail > uint64(1<<62)/uint64(st.Bsize) {
			return 1 << 62, nil
		}
		return int64(st.Bavail) * st.Bsize, nil
	}}
}

// check rejects a file that does not fit. Holes take time but no disk space; they
// count as if they did, summed over all files.
func (r *room) check(size int64, sparse bool) error {
	free, err := r.free()
	if err != nil {
		return err
	}
	if sparse {
		if r.holes > free-size {
			return fmt.Errorf("its sparse files have more than the %d bytes that are free on the disk", free)
		}
		r.holes += size
	}
	if size > free {
		return fmt.Errorf("it has %d bytes, and %d are free on the disk", size, free)
	}
	return nil
}

// isSparse reports whether a file of a tar archive may have holes.
func isSparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// zeros is a block of zeros.
var zeros [64 << 10]byte

// copySparse copies a file and leaves holes for blocks of zeros.
func copySparse(out *os.File, from io.Reader, want int64) error {
	var size int64
	b := make([]byte, len(zeros))
	for {
		n, err := io.ReadFull(from, b)
		if n > 0 && !bytes.Equal(b[:n], zeros[:n]) {
			if _, err := out.WriteAt(b[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			if size != want {
				return io.ErrUnexpectedEOF
			}
			return out.Truncate(size)
		}
		if err != nil {
			return err
		}
	}
}

// apart rejects a zip file with entries that share their data: such a small
// archive unpacks to any size.
func apart(files []*zip.File) error {
	type span struct{ from, to int64 }
	spans := make([]span, 0, len(files))
	for _, f := range files {
		if f.CompressedSize64 == 0 {
			continue
		}
		from, err := f.DataOffset()
		if err != nil {
			return err
		}
		if f.CompressedSize64 > 1<<62 {
			return zip.ErrFormat
		}
		spans = append(spans, span{from, from + int64(f.CompressedSize64)})
	}
	slices.SortFunc(spans, func(a, b span) int { return int(min(max(a.from-b.from, -1), 1)) })
	for i := 1; i < len(spans); i++ {
		if spans[i].from < spans[i-1].to {
			return errors.New("entries of the archive overlap, as those of zip bombs do: pack it again")
		}
	}
	return nil
}
