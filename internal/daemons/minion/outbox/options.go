package outbox

import "time"

// Options are the options of the minion that this package uses.
type Options struct {
	ReturnRetryTimer    time.Duration `salt:"return_retry_timer" default:"5" doc:"seconds that a master has to take a return" change:"restart"`
	ReturnRetryTimerMax time.Duration `salt:"return_retry_timer_max" default:"10" doc:"seconds up to which the pause between attempts to deliver a return grows" change:"restart"`
	ReturnQueue         int           `salt:"return_queue" default:"1000" doc:"returns kept for an unreachable master; if there are more, the oldest is dropped and an error is logged (Brine only; Salt gives up after return_retry_tries)" change:"restart"`
	Outbox              bool          `salt:"return_outbox" default:"true" doc:"keep the ids of jobs, and returns that no master has taken yet, on disk, so that a restart of the minion neither loses a return nor runs a job twice (Brine only)" change:"restart"`
	OutboxSize          int64         `salt:"return_outbox_size" default:"268435456" least:"0" doc:"bytes of returns that wait for masters; if there are more, the oldest is dropped and the event salt/minion/ID/returns_dropped reports it (Brine only)" change:"restart"`
	ReturnTo            string        `salt:"return_to" default:"any" doc:"publisher: a return goes to the masters that published its job, whenever they are there; any: another master of this minion gets it too if none of them has taken it for return_retry_timer seconds (Brine only)" change:"restart"`
	PubRet              bool          `salt:"pub_ret" default:"true" doc:"send returns to the master" change:"restart"`
}
