package states

import (
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// setRetcode sets the exit code for the results of a run. high is the high
// data, if known.
func setRetcode(c *fn.Call, results, high *value.Dict) {
	c.SetRetcode(0)
	if !state.AllSucceeded(results, false, high) {
		c.SetRetcode(codeFailure)
	}
}
