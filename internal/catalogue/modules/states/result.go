package states

import (
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// setRetcode sets the exit code of what a run came to. high is what it ran,
// if that is known.
func setRetcode(c *fn.Call, results, high *value.Dict) {
	c.SetRetcode(0)
	if !state.AllSucceeded(results, false, high) {
		c.SetRetcode(codeFailure)
	}
}
