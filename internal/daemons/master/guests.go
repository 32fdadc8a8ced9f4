package master

import (
	"math"
	"syscall"

	"brine/internal/net/transport/netserve"
)

// newGuests bounds the connections to all ports by the file descriptor limit of
// this process, minus a reserve for files and local sockets. So operators reach
// the master even if unauthenticated peers use up all connections.
func newGuests() *netserve.Guests {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return nil // no practical limit
	}
	n := int(limit.Cur)
	return netserve.NewGuests(n - max(n/8, min(n/2, 256)))
}
