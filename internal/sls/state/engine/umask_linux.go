package engine

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// withUmask runs f with its own file mode mask. The mask belongs to all threads
// of a process, so f gets a thread that does not share it and ends with f.
// Programs that f starts inherit the mask.
func withUmask(mask *int, f func()) {
	if mask == nil {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // permanently: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			old := unix.Umask(*mask)
			defer unix.Umask(old)
		} else {
			unix.Umask(*mask)
		}
		f()
	}()
	<-done
}
