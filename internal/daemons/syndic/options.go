package syndic

import (
	"slices"
	"time"

	"brine/internal/base/metrics"
	"brine/internal/base/salt"
	"brine/internal/daemons/minion/masters"
	"brine/internal/net/handshake"
)

// Options are the options of the master's configuration that a syndic uses.
type Options struct {
	Masters             masters.Names   `salt:"syndic_master" default:"masterofmasters" doc:"the master of masters, or a list of several that command this master at the same time; for salt-syndic" change:"restart"`
	MasterPort          int             `salt:"syndic_master_port" default:"0" doc:"request port of the masters of masters; 0: master_port of the minion's configuration" change:"restart"`
	Failover            string          `salt:"syndic_failover" default:"random" doc:"order in which several masters of masters are tried for what belongs to none of them: random or ordered (as listed)" change:"restart"`
	ForwardAllEvents    bool            `salt:"syndic_forward_all_events" default:"false" doc:"send events to all masters of masters, not only to one of them" change:"restart"`
	Mode                string          `salt:"syndic_mode" default:"sync" doc:"sync: also send this master's events, and the returns of its own jobs, to a master of masters; cluster: only what belongs to jobs from above" change:"restart"`
	Finger              handshake.Names `salt:"syndic_finger" default:"" doc:"required fingerprint of the key of the master of masters; with a list each of them must have one of these" change:"restart"`
	EventForwardTimeout time.Duration   `salt:"syndic_event_forward_timeout" default:"0.5" doc:"seconds for which a syndic collects returns and events before it sends them" change:"restart"`
	JIDForwardCacheHWM  int             `salt:"syndic_jid_forward_cache_hwm" default:"100" doc:"own jobs of this master whose descriptions a syndic remembers, to send them with the first return" change:"restart"`

	User    string `salt:"syndic_user" default:"" doc:"user that salt-syndic runs as; empty: the user of the master" change:"restart"`
	LogFile string `salt:"syndic_log_file" default:"/var/log/salt/syndic" doc:"log file of salt-syndic" change:"restart"`
	PIDFile string `salt:"syndic_pidfile" default:"/var/run/salt-syndic.pid" doc:"file for the number of the process of salt-syndic" change:"restart"`
	Metrics string `salt:"syndic_metrics_address" default:"" doc:"address and port where salt-syndic serves /metrics for Prometheus, /livez and /readyz, as metrics_address does for other daemons; empty: off (Brine only)" change:"restart"`
}

// The values of syndic_failover and syndic_mode.
const (
	failoverRandom  = "random"
	failoverOrdered = "ordered"
	modeSync        = "sync"
	modeCluster     = "cluster"
)

// Check reports values that a syndic cannot use.
func (o *Options) Check() error {
	switch {
	case len(o.Masters) == 0 || slices.Contains(o.Masters, ""):
		return salt.Errorf(salt.Invalid, "syndic_master names no master of masters")
	case o.Failover != failoverRandom && o.Failover != failoverOrdered:
		return salt.Errorf(salt.Invalid, "syndic_failover: %q is not random or ordered", o.Failover)
	case o.Mode != modeSync && o.Mode != modeCluster:
		return salt.Errorf(salt.Invalid, "syndic_mode: %q is not sync or cluster", o.Mode)
	case o.MasterPort < 0 || o.MasterPort > 65535:
		return salt.Errorf(salt.Invalid, "syndic_master_port: %d is not a port (1 to 65535)", o.MasterPort)
	}
	return metrics.Check("syndic_metrics_address", o.Metrics)
}
