package job

import "brine/internal/py/value"

// conflict tells of returns that came twice with different results.
type conflict struct{ hear func(jid, minion string) }

// OnConflict calls hear for each return of a minion that has returned the job before with another result. Two
// machines that use one minion id and its key do that. The first return stays. OnConflict must be called before
// the first return; hear must be quick.
func (c *conflict) OnConflict(hear func(jid, minion string)) { c.hear = hear }

func (c *conflict) tell(o *op, dup bool) {
	if dup && o.differs && c.hear != nil {
		c.hear(o.jid, o.id)
	}
}

// sameResult reports whether two returns have the same result. Minions can cause it at will, so it makes no copy.
func sameResult(stored any, ret *value.Dict) bool {
	d, ok := stored.(*value.Dict)
	if !ok {
		return false
	}
	for _, k := range []string{"return", "retcode"} {
		if !value.Equal(d.At(k), ret.At(k)) {
			return false
		}
	}
	return true
}
