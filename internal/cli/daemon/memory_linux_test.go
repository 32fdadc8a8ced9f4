package daemon

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The reserve uses no memory of the system, even where memory was used before.
func TestReserveTakesNothing(t *testing.T) {
	page := os.Getpagesize()
	for i := range 3 {
		b := newReserve(32 << 20)
		pages := make([]byte, len(b)/page+1)
		at := uintptr(unsafe.Pointer(unsafe.SliceData(b))) &^ uintptr(page-1)
		if _, _, e := unix.Syscall(unix.SYS_MINCORE, at, uintptr(len(b)/page*page), uintptr(unsafe.Pointer(&pages[0]))); e != 0 {
			t.Skipf("mincore: %v", e)
		}
		if n := bytes.Count(pages, []byte{1}); n > 2 { // shared with other allocations
			t.Errorf("reserve %d: %d of its pages are in memory", i, n)
		}
		clear(b) // so that this memory has been used
		b = nil
		runtime.GC()
	}
}
