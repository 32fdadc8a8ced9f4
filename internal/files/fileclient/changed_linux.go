package fileclient

import (
	"syscall"
	"time"
)

// changed returns when a file last changed, including changes of its names (ctime).
func changed(st *syscall.Stat_t) time.Time { return time.Unix(st.Ctim.Unix()) }
