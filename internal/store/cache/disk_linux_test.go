package cache

import (
	"strings"
	"syscall"
	"testing"

	"brine/internal/base/salt"
)

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("cannot mount a small file system:", err)
	}
	defer syscall.Unmount(dir, 0)
	c := New(dir, Options{MinionDataCache: true, MinionDataMemory: 1}, quiet)
	must(t, c.Store("b", "k", "old"))
	err := c.Store("b", "k", strings.Repeat("x", 1<<20))
	if salt.KindOf(err) != salt.Unavailable || !strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}
	if v, _, err := c.Fetch("b", "k"); v != "old" || err != nil {
		t.Error("the old value was lost", err)
	}
	must(t, c.Store("b", "k2", "there is room again"))
}
