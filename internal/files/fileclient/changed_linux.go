package fileclient

import (
	"syscall"
	"time"
)

// changed is when a file got or lost a name last, or changed otherwise.
func changed(st *syscall.Stat_t) time.Time { return time.Unix(st.Ctim.Unix()) }
