//go:build unix && !linux

package engine

import (
	"sync"

	"golang.org/x/sys/unix"
)

var umaskMutex sync.Mutex

// withUmask runs f with a file mode mask. It is that of the whole process, so
// that only one state at a time may have one.
func withUmask(mask *int, f func()) {
	if mask == nil {
		f()
		return
	}
	umaskMutex.Lock()
	defer umaskMutex.Unlock()
	old := unix.Umask(*mask)
	defer unix.Umask(old)
	f()
}
