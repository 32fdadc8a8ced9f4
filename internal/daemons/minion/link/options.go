package link

import (
	"time"

	"brine/internal/ha/roster"
)

// Options are the options of the minion that this package uses.
type Options struct {
	AliveInterval       time.Duration `salt:"master_alive_interval" default:"0" doc:"seconds within which the loss of a master must be noticed; 0 leaves that to heartbeat_interval" change:"restart"`
	Latency             []float64     `salt:"master_latency" default:"[5, 25, 100]" doc:"with master_type cluster, milliseconds that part the masters of a zone into classes by how quickly they answer a sign of life: those of a quicker class are preferred; an empty list: that does not count (Brine only)" change:"restart"`
	RetryDNS            time.Duration `salt:"retry_dns" default:"0" doc:"seconds between look-ups of a name that has no address; 0 is as for any other failure (Salt: 30, and no other master is served meanwhile)" change:"restart"`
	RetryDNSCount       int           `salt:"retry_dns_count" default:"0" doc:"failed look-ups after which the pause is at least 30 seconds; 0 is never (Salt gives the master up)" change:"restart"`
	PublishPort         int           `salt:"publish_port" default:"4505" doc:"the masters' publish port; the default follows what the master announces" change:"restart"`
	AcceptanceWait      time.Duration `salt:"acceptance_wait_time" default:"10" doc:"seconds between attempts while the key waits for acceptance" change:"restart"`
	AcceptanceWaitMax   time.Duration `salt:"acceptance_wait_time_max" default:"0" doc:"seconds up to which that pause doubles; 0 keeps it constant" change:"restart"`
	AuthTimeout         time.Duration `salt:"auth_timeout" default:"5" doc:"seconds for one sign-in" change:"restart"`
	RequestTimeout      time.Duration `salt:"request_channel_timeout" default:"60" doc:"seconds for one other request" change:"restart"`
	RandomReauthDelay   time.Duration `salt:"random_reauth_delay" default:"1" doc:"seconds over which minions spread their sign-ins after a master came back; a command that arrives does not wait for it (Salt: 10)" change:"restart"`
	ReconDefault        int           `salt:"recon_default" default:"100" doc:"milliseconds before the first reconnection (Salt: 1000)" change:"restart"`
	ReconMax            int           `salt:"recon_max" default:"1000" doc:"milliseconds up to which that pause doubles (Salt: 10000)" change:"restart"`
	ReconRandomize      bool          `salt:"recon_randomize" default:"true" doc:"spread reconnections by up to half of the pause" change:"restart"`
	Heartbeat           time.Duration `salt:"heartbeat_interval" default:"1" least:"0" doc:"seconds between pings on a quiet connection; a master silent for two of them is lost; 0 turns it off (Brine only)" change:"restart"`
	StartEventGrains    []string      `salt:"start_event_grains" default:"[]" doc:"grains sent with the start event" change:"restart"`
	LegacyStartupEvents bool          `salt:"enable_legacy_startup_events" default:"true" doc:"also send the event minion_start" change:"restart"`
	SignPubMessages     bool          `salt:"sign_pub_messages" default:"false" doc:"demand that publications are signed, also of masters that do not announce that they sign; Brine masters do" change:"restart"`
	AutosignGrains      []string      `salt:"autosign_grains" default:"[]" doc:"grains offered to the master for automatic acceptance" change:"restart"`
	FilterPublications  bool          `salt:"zmq_filtering" default:"false" doc:"subscribe by topic; the masters must have the same setting" change:"restart"`
	StandbyJobs         bool          `salt:"standby_jobs" default:"true" doc:"with failover and distributed, also run the jobs of up to three Brine masters that stand by, and give job and result to the active master as well (Brine only)" change:"restart"`
	RejectedRetry       bool          `salt:"rejected_retry" default:"true" doc:"go on asking after the master rejected the key (Salt: False, and the process ends)" change:"restart"`
}

// Bounds returns the option master_latency as the bounds of the latency classes.
func (o *Options) Bounds() (out roster.Bounds) {
	for _, ms := range o.Latency {
		out = append(out, time.Duration(ms*float64(time.Millisecond)))
	}
	return out
}

// heartbeat returns the interval of heartbeats: heartbeat_interval, or less if needed to
// notice a lost master within master_alive_interval.
func (o *Options) heartbeat() time.Duration {
	if o.AliveInterval > 0 && (o.Heartbeat <= 0 || o.AliveInterval < 2*o.Heartbeat) {
		return o.AliveInterval / 2
	}
	return max(o.Heartbeat, 0)
}

// probeInterval returns the interval of liveness requests.
func (o *Options) probeInterval() time.Duration {
	if a := o.AliveInterval; a > 0 && a < usualProbe {
		return a
	}
	return usualProbe
}

func (o *Options) probeTimeout() time.Duration {
	return min(max(o.probeInterval(), time.Second), max(o.AuthTimeout, time.Second))
}

// usualProbe is a compromise between quick detection and the load of the master.
const usualProbe = 5 * time.Second
