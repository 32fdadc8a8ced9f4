package minion

import (
	"time"

	"brine/internal/base/field"
	"brine/internal/base/salt"
	"brine/internal/daemons/minion/beacons"
	"brine/internal/daemons/minion/outbox"
	"brine/internal/daemons/minion/schedule"
	"brine/internal/net/discovery"
	"brine/internal/py/value"
)

// Options are the minion's own settings. Names and meanings are Salt's;
// where a default differs, the reason stands beside it.
type Options struct {
	OutboxOptions
	ScheduleOptions
	BeaconOptions

	Master              Masters       `salt:"master" default:"salt" doc:"the master, or a list of masters, as name, host:port, [v6]:port or name of a DNS service (_salt._tcp.example.com)" change:"restart"`
	MasterType          string        `salt:"master_type" default:"str" doc:"str (all masters of the list at once), failover (one, the next when it is lost), distributed (as failover, each minion begins with another one), cluster (as failover, the masters of a Brine cluster are learned from those named), func (master names a function that returns the masters) or disable" change:"restart"`
	RandomMaster        bool          `salt:"random_master" default:"false" doc:"shuffle the list of masters; with failover and master_failback the first one stays" change:"restart"`
	MasterShuffle       bool          `salt:"master_shuffle" default:"false" doc:"old name of random_master" change:"restart"`
	AliveInterval       time.Duration `salt:"master_alive_interval" default:"0" doc:"seconds within which the loss of a master must be noticed; 0 leaves that to heartbeat_interval" change:"restart"`
	Failback            bool          `salt:"master_failback" default:"false" doc:"with failover, go back to the first master when it is good again" change:"restart"`
	FailbackInterval    time.Duration `salt:"master_failback_interval" default:"0" doc:"seconds that the first master must have been good for that; it doubles when the master is lost again soon; 0 is master_alive_interval, or 30" change:"restart"`
	Zone                string        `salt:"master_zone" default:"" doc:"with master_type cluster, masters whose cluster_zone is this one are preferred; empty: the grain zone (Brine only)" change:"restart"`
	Rebalance           time.Duration `salt:"master_rebalance" default:"300" doc:"with master_type cluster, seconds over which minions go to a preferred master that has joined or come back; 0 is never (Brine only)" change:"restart"`
	Latency             []float64     `salt:"master_latency" default:"[5, 25, 100]" doc:"with master_type cluster, milliseconds that part the masters of a zone into classes by how quickly they answer a sign of life: those of a quicker class are preferred; an empty list: that does not count (Brine only)" change:"restart"`
	MasterTries         int           `salt:"master_tries" default:"-1" doc:"rounds through the list of masters after which salt-call gives up; the daemon never does (Salt: 1, and the daemon ends)" change:"restart"`
	RetryDNS            time.Duration `salt:"retry_dns" default:"0" doc:"seconds between look-ups of a name that has no address; 0 is as for any other failure (Salt: 30, and no other master is served meanwhile)" change:"restart"`
	RetryDNSCount       int           `salt:"retry_dns_count" default:"0" doc:"failed look-ups after which the pause is at least 30 seconds; 0 is never (Salt gives the master up)" change:"restart"`
	AuthTries           int           `salt:"auth_tries" default:"7" doc:"sign-ins without an answer after which salt-call gives a master up, if it is the only one; the daemon never does" change:"restart"`
	AuthSafemode        bool          `salt:"auth_safemode" default:"true" doc:"accepted for compatibility: a sign-in without an answer is always repeated (Salt: False)" change:"restart"`
	MasterPort          int           `salt:"master_port" default:"4506" doc:"the masters' request port" change:"restart"`
	PublishPort         int           `salt:"publish_port" default:"4505" doc:"the masters' publish port; the default follows what the master announces" change:"restart"`
	AcceptanceWait      time.Duration `salt:"acceptance_wait_time" default:"10" doc:"seconds between attempts while the key waits for acceptance" change:"restart"`
	AcceptanceWaitMax   time.Duration `salt:"acceptance_wait_time_max" default:"0" doc:"seconds up to which that pause doubles; 0 keeps it constant" change:"restart"`
	AuthTimeout         time.Duration `salt:"auth_timeout" default:"5" doc:"seconds for one sign-in" change:"restart"`
	RequestTimeout      time.Duration `salt:"request_channel_timeout" default:"60" doc:"seconds for one other request" change:"restart"`
	RandomReauthDelay   time.Duration `salt:"random_reauth_delay" default:"1" doc:"seconds over which minions spread their sign-ins after a master came back; a command that arrives does not wait for it (Salt: 10)" change:"restart"`
	RandomStartupDelay  time.Duration `salt:"random_startup_delay" default:"0" doc:"seconds over which the first connection is spread" change:"restart"`
	ReconDefault        int           `salt:"recon_default" default:"100" doc:"milliseconds before the first reconnection (Salt: 1000)" change:"restart"`
	ReconMax            int           `salt:"recon_max" default:"1000" doc:"milliseconds up to which that pause doubles (Salt: 10000)" change:"restart"`
	ReconRandomize      bool          `salt:"recon_randomize" default:"true" doc:"spread reconnections by up to half of the pause" change:"restart"`
	Heartbeat           time.Duration `salt:"heartbeat_interval" default:"1" doc:"seconds between pings on a quiet connection; a master silent for two of them is lost; 0 turns it off (Brine only)" change:"restart"`
	ProcessCountMax     int           `salt:"process_count_max" default:"-1" doc:"jobs that may run at the same time; further ones wait; -1 is no limit" change:"restart"`
	ModuleExecutors     any           `salt:"module_executors" default:"direct_call" doc:"what functions are called by, one or a list: direct_call, or splay before it" change:"restart"`
	JIDQueueHWM         int           `salt:"minion_jid_queue_hwm" default:"100" doc:"finished jobs remembered so that none runs twice" change:"restart"`
	StartupStates       string        `salt:"startup_states" default:"" doc:"states to run once at the start, whichever master is connected first: highstate, sls (those of sls_list) or top (those of top_file)" change:"restart"`
	SLSList             []string      `salt:"sls_list" default:"[]" doc:"states for startup_states: sls" change:"restart"`
	TopFile             string        `salt:"top_file" default:"" doc:"top file for startup_states: top" change:"restart"`
	StartEventGrains    []string      `salt:"start_event_grains" default:"[]" doc:"grains sent with the start event" change:"restart"`
	LegacyStartupEvents bool          `salt:"enable_legacy_startup_events" default:"true" doc:"also send the event minion_start" change:"restart"`
	SignPubMessages     bool          `salt:"sign_pub_messages" default:"false" doc:"demand that publications are signed, also of masters that do not announce that they sign; Brine masters do" change:"restart"`
	AutosignGrains      []string      `salt:"autosign_grains" default:"[]" doc:"grains offered to the master for automatic acceptance" change:"restart"`
	FilterPublications  bool          `salt:"zmq_filtering" default:"false" doc:"subscribe by topic; the masters must have the same setting" change:"restart"`
	PingInterval        int           `salt:"ping_interval" default:"0" doc:"minutes between minion_ping events; 0 is never" change:"restart"`
	GrainsRefreshEvery  int           `salt:"grains_refresh_every" default:"0" doc:"minutes between looks whether grains have changed; 0 is never" change:"restart"`
	MineEnabled         bool          `salt:"mine_enabled" default:"true" doc:"send mine_functions to the masters" change:"restart"`
	MineInterval        int           `salt:"mine_interval" default:"60" doc:"minutes between updates of the mine" change:"restart"`
	MineFunctions       any           `salt:"mine_functions" default:"{}" doc:"functions whose results go to the mine" change:"restart"`
	RejectedRetry       bool          `salt:"rejected_retry" default:"true" doc:"go on asking after the master rejected the key (Salt: False, and the process ends)" change:"restart"`
	FileClient          string        `salt:"file_client" default:"remote" doc:"where files come from: remote is the master that orders a run, local the file_roots of this machine" change:"restart"`
	Saltenv             any           `salt:"saltenv" default:"null" doc:"environment for files and states; null: base for files, all of the top file for states" change:"restart"`
	FileBufferSize      int           `salt:"file_buffer_size" default:"262144" doc:"bytes of a file that are sent at once" change:"restart"`
	DisableModules      []string      `salt:"disable_modules" default:"[]" list:"comma" doc:"execution modules that this minion does not have, by the name of their functions or of Salt's file (cmd or cmdmod)" change:"restart"`
	WhitelistModules    []string      `salt:"whitelist_modules" default:"[]" list:"comma" doc:"the only execution modules that this minion has, named likewise; empty is all" change:"restart"`
	DisableReturners    []string      `salt:"disable_returners" default:"[]" list:"comma" doc:"returners that this minion does not have" change:"restart"`
	MasterURIFormat     string        `salt:"master_uri_format" default:"default" doc:"default splits host:port, ip_only takes the value as an address" change:"restart"`

	Discovery discovery.Options `salt:"discovery" default:"false" doc:"where master is not set, ask the network for masters by broadcast: False, True, or a map with attempts (3), pause (5 seconds), port (4520, UDP), match (any or all) and mapping (what a master must say about itself)" change:"restart"`
}

// Options of the parts of the minion. The names are needed as the types are all
// called Options.
type (
	OutboxOptions   = outbox.Options
	ScheduleOptions = schedule.Options
	BeaconOptions   = beacons.Options
)

// Masters is the list of masters, written as one text or a list.
type Masters []string

// SetValue takes a text, a list of texts, or a number (port lists are not
// masters, so that is an error).
func (m *Masters) SetValue(v any) error {
	switch x := v.(type) {
	case nil:
		*m = nil
		return nil
	case string:
		*m = Masters{x}
		return nil
	case *value.List:
		out := make(Masters, 0, x.Len())
		for _, it := range x.Items {
			s, ok := it.(string)
			if !ok || s == "" {
				return salt.Errorf(salt.Invalid, "expected names of masters, got %s in the list", value.Repr(it))
			}
			out = append(out, s)
		}
		*m = out
		return nil
	}
	return salt.Errorf(salt.Invalid, "expected the name of a master or a list of names, got %s", value.TypeName(v))
}

var _ field.Setter = (*Masters)(nil)
