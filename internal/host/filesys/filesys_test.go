package filesys

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brine/internal/host"
)

// TestOpenRegular checks that only regular files are opened, and that a pipe
// does not block.
func TestOpenRegular(t *testing.T) {
	dir := t.TempDir()
	text := strings.Repeat("content\n", 10000)
	path, link, pipe := filepath.Join(dir, "f"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Symlink(path, link), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link} {
		f, err := OpenRegular(p)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(f); err != nil || string(b) != text || f.Size != int64(len(text)) {
			t.Errorf("%s: %d bytes of %d, %v", p, len(b), f.Size, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, p := range []string{dir, pipe, filepath.Join(dir, "none")} {
		if f, err := OpenRegular(p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v %v", p, f, err)
		}
	}
}

// TestLook describes one file of each type.
func TestLook(t *testing.T) {
	dir := t.TempDir()
	path, link, pipe := filepath.Join(dir, "f"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	err := errors.Join(os.WriteFile(path, []byte("x"), 0o600), os.Chmod(path, 0o640|fs.ModeSetuid), os.Symlink(path, link), syscall.Mkfifo(pipe, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path   string
		follow bool
		kind   string
	}{{dir, true, "dir"}, {path, true, "file"}, {link, true, "file"}, {link, false, "link"}, {pipe, true, "pipe"}, {"/dev/null", true, "char"}} {
		x, err := Look(&host.Machine{}, test.path, test.follow)
		if err != nil || x.Type != test.kind {
			t.Errorf("%s: %q, %v", test.path, x.Type, err)
		}
	}
	x, err := Look(&host.Machine{}, path, false)
	if err != nil || x.Mode != "4640" || x.Size != 1 || x.UID != os.Geteuid() {
		t.Errorf("%+v, %v", x, err)
	}
	if os.Geteuid() == 0 && x.User() != "root" {
		t.Errorf("the owner is %q", x.User())
	}
	if IsFile(dir) || !IsFile(link) || !IsLink(link) || IsLink(path) || !IsDir(dir) || !Exists(pipe, true) || Exists(path+"0", false) {
		t.Error("types are mixed up")
	}
}
