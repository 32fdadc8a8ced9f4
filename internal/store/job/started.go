package job

import (
	"brine/internal/py/value"
)

// startedCmd marks the load of a job that a minion started itself. It is the command with which the
// minion reported the job; published jobs have the command "publish".
const startedCmd = "_return"

// Bounds of a minion's report about a job that it started itself. Job lists show the whole load.
const (
	maxStartedWord = 1 << 10
	maxStartedArg  = 64 << 10
)

// Published reports whether a job's load was published by a master, rather than made from a return.
func Published(load *value.Dict) bool { return !load.Has("return") && load.Str("cmd") != startedCmd }

// StartedLoad makes the load of a job that the minion id started itself from its return. salt-call, the
// schedule and startup_states start such jobs. The load has the shape of a published one: arg, tgt and
// tgt_type say what ran where. Fields of a wrong type or size are left out.
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

// StartedBy reports whether load was made by StartedLoad for the minion id.
func StartedBy(load *value.Dict, id string) bool {
	return load.Str("cmd") == startedCmd && load.Str("id") == id
}

func fits(v any) bool { return value.Weight(v, maxStartedArg) <= maxStartedArg }
