package job

import "brine/internal/py/value"

// conflict reports repeated returns with a different result.
type conflict struct{ hear func(jid, minion string) }

// OnConflict registers hear, which is called when a minion returns a job again with a different
// result. The cause is two machines with the same minion id and key. The first return stays stored.
// Call OnConflict before the first return; hear must be quick.
func (c *conflict) OnConflict(hear func(jid, minion string)) { c.hear = hear }

func (c *conflict) tell(o *op, dup bool) {
	if dup && o.differs && c.hear != nil {
		c.hear(o.jid, o.id)
	}
}

// sameResult reports whether two returns have the same result. It does not copy them, since minions
// can cause many such calls.
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
