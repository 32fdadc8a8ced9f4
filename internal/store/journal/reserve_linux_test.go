package journal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReserveOnFullDisk checks that on a full disk only notes are written, not records that must
// leave the reserve free, and that the notes survive. When there is space again, everything works
// as before.
func TestReserveOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("cannot mount a small file system:", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	path := filepath.Join(dir, "journal")
	j, _, _ := reopen(t, path)
	if err := j.Reserve(64 << 10); err != nil {
		t.Fatal(err)
	}
	put(t, j, "afirst")
	fill, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}

	if _, err := j.Append('r', make([]byte, 100<<10)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a large record on a full disk: %v", err)
	}
	notes := 0
	for ; notes < 1000; notes++ {
		if _, err = j.AppendNote('n', []byte(strings.Repeat("x", 1000))); err != nil {
			break
		}
	}
	if notes < 60 || notes == 1000 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%d notes were written, then %v", notes, err)
	}
	if err := j.Sync(); err != nil {
		t.Error(err)
	}

	// Not closed, as after a kill; only the lock is released.
	j.lock.Close()
	j.lock = nil
	j, got, cut := reopen(t, path)
	err = nil
	if len(got) != 1+notes || cut != 0 || got[0] != "afirst" {
		t.Errorf("%d records, %d bytes cut", len(got), cut)
	}
	if err := j.Reserve(64 << 10); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("reserve on a full disk: %v", err)
	}
	for more := 0; more < 10 && err == nil; more++ { // the last page may have room
		_, err = j.AppendNote('n', make([]byte, 1000))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("notes without reserve: %v", err)
	}
	if err := errors.Join(fill.Close(), os.Remove(fill.Name())); err != nil {
		t.Fatal(err)
	}
	put(t, j, "zlast")
	err = j.Rewrite(func(emit func(byte, []byte) (Position, error), _ func(Position) ([]byte, error)) error {
		_, err := emit('k', []byte("ept"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil || st.Blocks*512 < 64<<10 {
		t.Errorf("after a rewrite the file has %d bytes of disk, %v", st.Blocks*512, err)
	}
}
