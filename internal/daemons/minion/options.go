package minion

import (
	"time"

	"brine/internal/call/python"
	"brine/internal/daemons/minion/beacons"
	"brine/internal/daemons/minion/failover"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/masters"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/daemons/minion/runner"
	"brine/internal/daemons/minion/schedule"
	"brine/internal/files/extmods"
)

// Options are the minion's own options, with Salt's names and meanings. Where a
// default differs, a comment gives the reason.
type Options struct {
	MasterOptions
	RunnerOptions
	LinkOptions
	FailoverOptions
	OutboxOptions
	ScheduleOptions
	BeaconOptions
	PythonOptions
	ExtmodOptions

	Zone               string        `salt:"master_zone" default:"" doc:"with master_type cluster, masters whose cluster_zone is this one are preferred; empty: the grain zone (Brine only)" change:"restart"`
	MasterTries        int           `salt:"master_tries" default:"-1" doc:"rounds through the list of masters after which salt-call gives up; the daemon never does (Salt: 1, and the daemon ends)" change:"restart"`
	AuthTries          int           `salt:"auth_tries" default:"7" doc:"sign-ins without an answer after which salt-call gives a master up, if it is the only one; the daemon never does" change:"restart"`
	RandomStartupDelay time.Duration `salt:"random_startup_delay" default:"0" doc:"seconds over which the first connection is spread" change:"restart"`
	JIDQueueHWM        int           `salt:"minion_jid_queue_hwm" default:"100" doc:"finished jobs remembered so that none runs twice" change:"restart"`
	PingInterval       int           `salt:"ping_interval" default:"0" doc:"minutes between minion_ping events; 0 is never" change:"restart"`
	GrainsRefreshEvery int           `salt:"grains_refresh_every" default:"0" doc:"minutes between looks whether grains have changed; 0 is never" change:"restart"`
	MineEnabled        bool          `salt:"mine_enabled" default:"true" doc:"send mine_functions to the masters" change:"restart"`
	MineInterval       int           `salt:"mine_interval" default:"60" doc:"minutes between updates of the mine" change:"restart"`
	MineFunctions      any           `salt:"mine_functions" default:"{}" doc:"functions whose results go to the mine" change:"restart"`
	FileClient         string        `salt:"file_client" default:"remote" doc:"where files come from: remote is the master that orders a run, local the file_roots of this machine" change:"restart"`
	Saltenv            any           `salt:"saltenv" default:"null" doc:"environment for files and states; null: base for files, all of the top file for states" change:"restart"`
	FileBufferSize     int           `salt:"file_buffer_size" default:"262144" doc:"bytes of a file that are sent at once" change:"restart"`
	DisableModules     []string      `salt:"disable_modules" default:"[]" list:"comma" doc:"execution modules that this minion does not have, by the name of their functions or of Salt's file (cmd or cmdmod)" change:"restart"`
	WhitelistModules   []string      `salt:"whitelist_modules" default:"[]" list:"comma" doc:"the only execution modules that this minion has, named likewise; empty is all" change:"restart"`
	PythonFallback     string        `salt:"python_fallback" default:"" doc:"salt: functions and states that Brine does not have are those of a stock Salt that is installed for the Python of the option python; empty: they are not available (Brine only)" change:"restart"`
	DisableReturners   []string      `salt:"disable_returners" default:"[]" list:"comma" doc:"returners that this minion does not have" change:"restart"`
}

// The options of the minion's packages. The aliases are needed to embed types that are all
// called Options.
type (
	RunnerOptions   = runner.Options
	MasterOptions   = masters.Options
	LinkOptions     = link.Options
	FailoverOptions = failover.Options
	OutboxOptions   = outbox.Options
	ScheduleOptions = schedule.Options
	BeaconOptions   = beacons.Options
	PythonOptions   = python.Options
	ExtmodOptions   = extmods.Options
)

// Masters is the option master: a string or a list.
type Masters = masters.Names
