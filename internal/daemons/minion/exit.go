package minion

import "brine/internal/daemons/minion/link"

// Exit codes of a minion that no master takes, as Salt's.
const (
	ExitFinger   = link.ExitFinger
	ExitRejected = link.ExitRejected
)
