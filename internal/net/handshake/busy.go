package handshake

import (
	"fmt"
	"time"

	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// maxWait bounds the delay that a minion accepts: the answer is unsigned, because the master has no
// time for a signature.
const maxWait = 30 * time.Second

// Busy is the error of a sign-in for which the master has no time now.
type Busy struct {
	Wait time.Duration // until it has time
}

func (e *Busy) Error() string {
	return fmt.Sprintf("too many minions sign in at once; the master asks this one to come back in %v", e.Wait.Round(time.Millisecond))
}

// ComeBack returns the answer that asks a minion to repeat the sign-in later.
func ComeBack(wait time.Duration) *value.Dict {
	return unsignedReply(wire.Unsigned{Ret: wire.ComeBack, ComeBack: max(wait.Milliseconds(), 1)})
}
