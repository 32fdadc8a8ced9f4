package job

import (
	"fmt"
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
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, "size=1m")
	s := open(t, dir)
	must(t, s.NewJob(load(jid), nil))
	big := strings.Repeat("z", 50<<10)
	stored, failed := 0, 0
	var err error
	for i := 0; failed < 20 && i < 200; i++ { // freed pages have room for a few more
		if _, err = s.Return(ret(jid, fmt.Sprint("m", i), big)); err == nil {
			stored++
			failed = 0
			continue
		}
		failed++
		check(t, err, salt.Unavailable, "no space left on device")
		if rs, err := s.Returns(jid); len(rs) != stored || err != nil {
			t.Fatal(len(rs), err)
		}
	}
	if stored < 5 || failed < 20 {
		t.Error(stored, failed)
	}
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=8m"))
	if dup, err := s.Return(ret(jid, "more", big)); dup || err != nil {
		t.Error("it does not recover:", dup, err)
	}
	must(t, s.Close())
	again := open(t, dir)
	if rs, err := again.Returns(jid); len(rs) != stored+1 || err != nil {
		t.Error(len(rs), stored, err)
	}
	must(t, again.Close())
}

func TestReadOnlyDisk(t *testing.T) {
	dir := smallDisk(t, "size=1m")
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	_, err := Open(dir, options(t), quiet)
	check(t, err, salt.Unavailable, "read-only file system")
}
