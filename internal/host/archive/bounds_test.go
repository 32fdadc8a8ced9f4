package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// sparseTar returns a tar file with regular files that consist of one hole.
func sparseTar(t *testing.T, size int64, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, name := range names {
		// Go's writer cannot create sparse files: this is a header in GNU tar's old
		// format.
		var one bytes.Buffer
		w := tar.NewWriter(&one)
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Format: tar.FormatGNU}); err != nil {
			t.Fatal(err)
		}
		h := one.Bytes()[:512]
		h[156] = tar.TypeGNUSparse
		number := func(at int, n int64) {
			h[at] = 0x80
			binary.BigEndian.PutUint64(h[at+4:], uint64(n))
		}
		number(386, size) // the only piece of data is empty and at the end
		number(398, 0)
		number(483, size)
		copy(h[148:156], "        ")
		sum := 0
		for _, c := range h {
			sum += int(c)
		}
		copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
		b.Write(h)
	}
	b.Write(make([]byte, 1024))
	return b.Bytes()
}

// TestSparseArchive checks that the holes of an archive take no disk space, and are
// bounded.
func TestSparseArchive(t *testing.T) {
	keep := func(_, _ string, _, _ int) (int, int) { return os.Getuid(), os.Getgid() }
	unpack := func(b []byte) (string, error) {
		file, dest := filepath.Join(t.TempDir(), "x.tar"), t.TempDir()
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Untar(t.Context(), file, dest, keep)
		return dest, err
	}
	const size = 16 << 20
	dest, err := unpack(sparseTar(t, size, "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		st, err := os.Stat(filepath.Join(dest, name))
		if err != nil {
			t.Fatal(err)
		}
		if blocks := st.Sys().(*syscall.Stat_t).Blocks; st.Size() != size || blocks*512 > size/4 {
			t.Errorf("%s has %d bytes and takes %d", name, st.Size(), blocks*512)
		}
	}
	for name, b := range map[string][]byte{"one": sparseTar(t, 1<<60, "a"), "many": sparseTar(t, 1<<60, "a", "b", "c")} {
		if dest, err := unpack(b); err == nil || !strings.Contains(err.Error(), "free") {
			t.Errorf("%s: %v", name, err)
		} else if list, err := os.ReadDir(dest); err != nil || len(list) > 0 {
			t.Errorf("%s: left are %v, %v", name, list, err)
		}
	}
}

// TestOverlappingArchive checks that entries of a zip file that share their data are
// rejected, and so is an entry that is larger than its header says.
func TestOverlappingArchive(t *testing.T) {
	build := func() []byte {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for _, name := range []string{"a", "b"} {
			w, err := z.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			w.Write(bytes.Repeat([]byte("x"), 1<<16))
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	central := []byte("PK\x01\x02")
	overlapping := build()
	second := bytes.LastIndex(overlapping, central)
	copy(overlapping[second+42:second+46], []byte{0, 0, 0, 0}) // offset of its local header
	larger := build()
	first := bytes.Index(larger, central)
	binary.LittleEndian.PutUint32(larger[first+24:], 1000)
	for name, c := range map[string]struct {
		zip  []byte
		want string
	}{
		"good": {build(), ""}, "overlapping": {overlapping, "overlap"}, "larger": {larger, "not a valid zip file"},
	} {
		file, dest := filepath.Join(t.TempDir(), "x.zip"), t.TempDir()
		if err := os.WriteFile(file, c.zip, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Unzip(file, dest, nil, false)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
