package link

import (
	"sync/atomic"

	"brine/internal/py/value"
)

// Stock minions with several masters are one minion per master, with that
// master's name as option and grain master. Functions and templates see that
// name here, too, never the list.

// view is the options and grains for one master.
type view struct {
	opts   atomic.Pointer[value.Dict]
	grains atomic.Pointer[grainView]
}

type grainView struct{ base, shown *value.Dict }
