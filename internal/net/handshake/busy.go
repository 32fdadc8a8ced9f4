package handshake

import (
	"fmt"
	"time"

	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// maxWait bounds how long a minion lets itself be put off: the answer is not
// signed, as a signature is what there is no time for.
const maxWait = 30 * time.Second

// Busy is the error of a sign-in for which the master has no time now.
type Busy struct {
	Wait time.Duration // until it will have
}

func (e *Busy) Error() string {
	return fmt.Sprintf("too many minions sign in at once; the master asks this one to come back in %v", e.Wait.Round(time.Millisecond))
}

// ComeBack is the answer to a sign-in that is to be repeated after some time.
func ComeBack(wait time.Duration) *value.Dict {
	return unsignedReply(wire.Unsigned{Ret: wire.ComeBack, ComeBack: max(wait.Milliseconds(), 1)})
}
