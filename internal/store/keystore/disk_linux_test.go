package keystore

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brine/internal/base/salt"
)

// smallDisk mounts a small file system, which needs root.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skip("cannot mount a small file system:", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, 0) })
	return dir
}

func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, "size=64k")
	s, err := Open(filepath.Join(dir, "pki"), quiet)
	must(t, err)
	must(t, s.Put(Accepted, "m", keys()[0]))
	filler := filepath.Join(dir, "filler")
	os.WriteFile(filler, make([]byte, 1<<20), 0o600)
	err = s.Put(Accepted, "m", keys()[1])
	check(t, err, salt.Unavailable)
	if !strings.Contains(err.Error(), "no space left on device") || strings.Contains(err.Error(), "tmp-") {
		t.Error(err)
	}
	if _, pub, _ := s.Lookup("m"); pub != keys()[0] {
		t.Errorf("the old key was lost: %q", pub)
	}
	must(t, os.Remove(filler))
	must(t, s.Put(Accepted, "m", keys()[1]))
}

func TestReadOnlyDisk(t *testing.T) {
	dir := smallDisk(t, "size=1m")
	s, err := Open(filepath.Join(dir, "pki"), quiet)
	must(t, err)
	must(t, s.Put(Accepted, "m", keys()[0]))
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	err = s.Put(Pending, "n", keys()[0])
	check(t, err, salt.Unavailable)
	if !strings.Contains(err.Error(), "read-only file system") {
		t.Error(err)
	}
	check(t, s.Move("m", Accepted, Rejected), salt.Unavailable)
	check(t, s.Delete(Accepted, "m"), salt.Unavailable)
	if _, err := s.AcceptedKey("m"); err != nil {
		t.Error(err)
	}
}
