package link

import (
	"sync/atomic"

	"brine/internal/py/value"
)

// A stock minion with several masters runs as one minion per master, with the name of that
// master as the option and the grain master. Here, too, functions and templates see that
// name and never the list.

// view has the options and grains for one master.
type view struct {
	opts   atomic.Pointer[value.Dict]
	grains atomic.Pointer[grainView]
}

type grainView struct{ base, shown *value.Dict }
