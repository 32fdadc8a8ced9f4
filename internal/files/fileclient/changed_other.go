//go:build !linux

package fileclient

import (
	"syscall"
	"time"
)

// changed is not told everywhere by the same name: nothing counts as old then.
func changed(*syscall.Stat_t) time.Time { return time.Now() }
