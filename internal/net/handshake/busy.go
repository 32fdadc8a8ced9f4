package handshake

import (
	"fmt"
	"time"

	"brine/internal/py/value"
)

// TakesHints is the key of a sign-in by which a minion says that it
// understands ComeBack. Salt's minions do not say it, and Salt's masters ignore
// it. The first sign-in of a process goes without, as Salt's own: a crowd that
// is too large for a master is one that comes back.
const TakesHints = "takes_hints"

const comeBack = "come_back"

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
	return value.DictOf("enc", "clear", "load", value.DictOf("ret", comeBack, comeBack, max(wait.Milliseconds(), 1)))
}
