package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"brine/test/fuzztest"
)

// FuzzUnzip unpacks mutated archives: nothing is written outside of the
// directory, and files beside it do not change.
func FuzzUnzip(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, entries := range [][][2]string{{{"a/b.txt", "x"}, {"c", ""}}, {{"../victim", "evil"}, {"/etc/x", "y"}}, {{"d/", ""}, {"d/../../victim", "evil"}}} {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for _, e := range entries {
			w, err := z.Create(e[0])
			if err != nil {
				f.Fatal(err)
			}
			w.Write([]byte(e[1]))
		}
		link := &zip.FileHeader{Name: "out"}
		link.SetMode(0o777 | fs.ModeSymlink)
		if w, err := z.CreateHeader(link); err == nil {
			w.Write([]byte("../victim"))
		}
		if w, err := z.Create("out"); err == nil {
			w.Write([]byte("evil"))
		}
		z.Close()
		f.Add(b.Bytes())
	}
	base := f.TempDir()
	victim, file, dest := filepath.Join(base, "victim"), filepath.Join(base, "x.zip"), filepath.Join(base, "dest")
	f.Cleanup(func() { permit(dest) })
	f.Fuzz(func(t *testing.T, b []byte) {
		for path, text := range map[string][]byte{victim: []byte("mine"), file: b} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		permit(dest)
		if err := os.RemoveAll(dest); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dest, 0o700); err != nil {
			t.Fatal(err)
		}
		if c, err := listZip(file); err == nil && len(c.Files)+len(c.Dirs)+len(c.Links) > MaxEntries {
			t.Error("too many entries")
		}
		_, _ = Unzip(file, dest, nil, true)
		if text, err := os.ReadFile(victim); err != nil || string(text) != "mine" {
			t.Errorf("a file outside has become %q, %v", text, err)
		}
		if list, err := os.ReadDir(base); err != nil || len(list) != 3 {
			t.Errorf("outside: %v, %v", list, err)
		}
	})
}

// permit lets any user remove a tree, whatever modes an archive set on its
// directories.
func permit(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
}

// FuzzUntar unpacks mutated archives: nothing is written outside of the
// directory, neither by a path nor through a link, and listing terminates.
func FuzzUntar(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	add := func(headers ...tar.Header) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			h.ModTime, h.Mode = time.Unix(1_800_000_000, 0), 0o644
			content := []byte("evil")
			if h.Typeflag != tar.TypeReg {
				content = nil
			}
			h.Size = int64(len(content))
			if err := w.WriteHeader(&h); err != nil {
				f.Fatal(err)
			}
			w.Write(content)
		}
		w.Close()
		f.Add(b.Bytes())
	}
	add(tar.Header{Name: "d/", Typeflag: tar.TypeDir}, tar.Header{Name: "d/a.txt", Typeflag: tar.TypeReg})
	add(tar.Header{Name: "../victim", Typeflag: tar.TypeReg})
	add(tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, tar.Header{Name: "l/victim", Typeflag: tar.TypeReg})
	add(tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../victim"}, tar.Header{Name: "h", Typeflag: tar.TypeReg})
	add(tar.Header{Name: "p", Typeflag: tar.TypeFifo}, tar.Header{Name: "p", Typeflag: tar.TypeReg})
	add(tar.Header{Name: "x/../../victim", Typeflag: tar.TypeReg}, tar.Header{Name: "..", Typeflag: tar.TypeDir})
	base := f.TempDir()
	victim, file, dest := filepath.Join(base, "victim"), filepath.Join(base, "x.tar"), filepath.Join(base, "dest")
	keep := func(_, _ string, _, _ int) (int, int) { return os.Getuid(), os.Getgid() }
	f.Cleanup(func() { permit(dest) })
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 64<<10 {
			return
		}
		for path, text := range map[string][]byte{victim: []byte("mine"), file: b} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		permit(dest)
		if err := os.RemoveAll(dest); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dest, 0o700); err != nil {
			t.Fatal(err)
		}
		if c, err := listTar(t.Context(), file, nil); err == nil && len(c.Files)+len(c.Dirs)+len(c.Links) > MaxEntries {
			t.Error("too many entries")
		}
		root, err := os.OpenRoot(dest)
		if err != nil {
			t.Fatal(err)
		}
		const free = 1 << 20
		u := &untar{root: root, space: &room{free: func() (int64, error) { return free, nil }}, lookUp: keep, asRoot: os.Geteuid() == 0}
		_, _ = u.unpack(t.Context(), file)
		root.Close()
		if u.space.holes > free {
			t.Errorf("holes of %d bytes", u.space.holes)
		}
		if st, err := os.Lstat(victim); err != nil || st.Mode() != 0o600 {
			t.Errorf("a file outside is now %v, %v", st, err)
		}
		if text, err := os.ReadFile(victim); err != nil || string(text) != "mine" {
			t.Errorf("a file outside has become %q, %v", text, err)
		}
		if list, err := os.ReadDir(base); err != nil || len(list) != 3 {
			t.Errorf("outside are %v, %v", list, err)
		}
	})
}
