package files

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brine/internal/py/value"
)

// TestFullDisk checks that a full disk changes neither the old file nor the
// part of a new one that was written before.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	file := filepath.Join(dir, "f")
	large := strings.Repeat("x", 100<<10)
	if o := run(t, "cp.recv_chunked", file, b64("begin"), false, false); o.Return != true {
		t.Fatalf("got %+v", o)
	}
	for _, again := range []bool{true, false} {
		o := run(t, "cp.recv_chunked", file, b64(large), again, false)
		if o.Return != "[Errno 28] No space left on device" || o.Retcode != 1 {
			t.Errorf("append %v: got %+v", again, o)
		}
	}
	if o := run(t, "cp.recv", value.DictOf("f", large), dir); !value.Equal(o.Return, value.DictOf(file, false)) {
		t.Errorf("got %+v", o)
	}
	if got, _ := os.ReadFile(file); string(got) != "begin" {
		t.Errorf("the file now holds %d bytes", len(got))
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}
