package job

import (
	"brine/internal/py/value"
)

// startedCmd marks the load of a job that a minion has started itself: it is
// the command by which the minion reported it. Published jobs have "publish".
const startedCmd = "_return"

// Bounds of what a minion may say of a job that it has started itself. All of
// it is shown whenever somebody lists the jobs.
const (
	maxStartedWord = 1 << 10
	maxStartedArg  = 64 << 10
)

// StartedLoad makes the load of a job that the minion id has started itself, as
// salt-call, the schedule and startup_states do, of its return. It has the shape
// of a published load: arg, tgt and tgt_type say what ran where. What has the
// wrong type or is too large is left out.
func StartedLoad(jid, id string, ret *value.Dict) *value.Dict {
	load := value.DictOf("cmd", startedCmd, "id", id, "jid", jid)
	for _, k := range []string{"fun", "user", "schedule"} {
		if s, ok := ret.At(k).(string); ok && s != "" && len(s) <= maxStartedWord {
			load.Set(k, s)
		}
	}
	if names, ok := ret.At("fun").(*value.List); ok && fits(names) { // several functions
		load.Set("fun", names)
	}
	arg := &value.List{}
	if l, ok := ret.At("fun_args").(*value.List); ok && fits(l) {
		arg = l
	}
	load.Set("arg", arg)
	load.Set("tgt", id)
	load.Set("tgt_type", "glob")
	if md, ok := ret.At("metadata").(*value.Dict); ok && fits(md) {
		load.Set("metadata", md)
	}
	return load
}

func fits(v any) bool { return value.Weight(v, maxStartedArg) <= maxStartedArg }
