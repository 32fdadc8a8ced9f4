package engine

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// withUmask runs f with a file mode mask of its own. The mask of a process
// belongs to all of its threads, so f gets a thread that shares it with none
// and ends with it. Programs that f starts inherit the mask.
func withUmask(mask *int, f func()) {
	if mask == nil {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
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
