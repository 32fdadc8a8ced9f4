package master

import (
	"math"
	"syscall"

	"brine/internal/net/transport/netserve"
)

// newGuests bounds the connections to all ports by the file handles that this
// process may open, less a reserve for its files and local sockets: operators
// reach the master although peers without a key take all that is left.
func newGuests() *netserve.Guests {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return nil // as good as unbounded
	}
	n := int(limit.Cur)
	return netserve.NewGuests(n - max(n/8, min(n/2, 256)))
}
