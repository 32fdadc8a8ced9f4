package minion

import (
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/runner"
)

// Exit codes of a minion that no master accepts, as in Salt.
const (
	ExitFinger   = link.ExitFinger
	ExitRejected = link.ExitRejected
)

// ExecutorNames returns the names of the executors, sorted.
func ExecutorNames() []string { return runner.ExecutorNames() }
