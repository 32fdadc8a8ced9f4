package archive

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"brine/test/fuzztest"
)

// FuzzUnzip unpacks changed archives: nothing is written outside of the
// directory, and what lies beside it stays.
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
	f.Fuzz(func(t *testing.T, b []byte) {
		for path, text := range map[string][]byte{victim: []byte("mine"), file: b} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
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
