package master

import (
	"brine/internal/base/trace"
	"brine/internal/call/auth"
	"brine/internal/call/client"
	"brine/internal/catalogue/reactor"
	"brine/internal/daemons/master/sinks"
	"brine/internal/files/fileserver"
	"brine/internal/files/fileserver/backends"
	"brine/internal/ha/cluster"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/net/transport"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
	"brine/internal/sls/pillar/gitpillar"
	"brine/internal/sls/render"
	"brine/internal/sls/top"
	"brine/internal/store/cache"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
	"brine/internal/store/returner"
)

// Listen is a transport that the master serves, with its addresses.
type Listen struct {
	Transport        transport.Transport
	Publish, Request string // host:port
	Options          transport.ListenOptions
}

// Config is the configuration of a master.
type Config struct {
	// ID is the master's id; default: the host name with "_master".
	ID string
	// MasterID is stamped on jobs if the option master_id is set.
	MasterID string
	// HasSyndic is set if the configuration names a master of masters for a syndic beside this
	// master.
	HasSyndic        bool
	PKIDir, CacheDir string
	// ExtensionModules is the directory of the user's own modules.
	ExtensionModules string
	// Interface is the address to listen on for other masters.
	Interface string
	User      string
	Listen    []Listen
	// SSL is the option ssl, for connections to other masters.
	SSL       any
	Options   Options
	Auth      auth.Options
	Channel   channel.Options
	Publish   channel.PublishOptions
	Keys      keystore.Options
	Cache     cache.Options
	Client    client.Options
	Jobs      job.Options
	Returners returner.MasterOptions
	// Tracer sends spans of jobs; nil for none. Run closes it.
	Tracer   *trace.Tracer
	Cluster  cluster.Options
	Events   event.MasterOptions
	Files    fileserver.Options
	Backends backends.Options
	Top      top.Options
	Pillar   pillar.Options
	// Templates bounds the rendering of templates.
	Templates   render.Limits
	GitPillar   gitpillar.Options
	Reactor     reactor.Options
	EventReturn sinks.EventReturnOptions
	Federation  FederationOptions
	// Opts are all options by name, for config.get.
	Opts *value.Dict
}

// keyDir is the directory of minion keys.
func keyDir(cfg *Config) string {
	if cfg.Cluster.On() {
		return cfg.Cluster.PKIDir
	}
	return cfg.PKIDir
}
