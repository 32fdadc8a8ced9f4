package config

import (
	"log/slog"
	"path/filepath"

	"brine/internal/base/log"
	"brine/internal/base/metrics"
	"brine/internal/base/profile"
	"brine/internal/base/salt"
	"brine/internal/base/trace"
	"brine/internal/call/auth"
	"brine/internal/call/client"
	"brine/internal/call/output"
	"brine/internal/catalogue/reactor"
	"brine/internal/daemons/master"
	"brine/internal/daemons/master/sinks"
	"brine/internal/daemons/syndic"
	"brine/internal/files/fileserver"
	"brine/internal/files/fileserver/backends"
	"brine/internal/ha/cluster"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/net/transport"
	"brine/internal/net/transport/named"
	"brine/internal/sls/pillar"
	"brine/internal/sls/pillar/gitpillar"
	"brine/internal/sls/render"
	"brine/internal/sls/top"
	"brine/internal/store/cache"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
	"brine/internal/store/returner"
)

// Master is the configuration of the master and its programs: the Options of
// all their packages.
type Master struct {
	Overrides Overrides
	Files     MasterFiles `title:"Identity and directories"`
	Network   transport.Options
	Log       log.Options
	Channel   channel.Options        `title:"Requests and sign-ins"`
	Publish   channel.PublishOptions `title:"Publications"`
	Keys      keystore.Options       `title:"Keys of minions"`
	Cache     cache.Options          `title:"Minion data"`
	Events    event.MasterOptions
	Options   master.Options `title:"The master"`
	Auth      auth.Options   `title:"Authentication of users"`
	Client    client.Options `title:"Commands"`
	Jobs      job.Options
	Returners returner.MasterOptions
	Cluster   cluster.Options    `title:"Clusters"`
	Served    fileserver.Options `title:"File server"`
	// Elsewhere are the options of file server backends other than directories.
	Elsewhere backends.Options `title:"File server backends"`
	Top       top.Options      `title:"Top files"`
	Pillar    pillar.Options
	Templates render.Limits `title:"Limits of templates"`
	Reactor   reactor.Options
	Returns   sinks.EventReturnOptions `title:"Storing events"`
	GitPillar gitpillar.Options        `title:"Pillar from git"`
	Output    output.Options
	Profile   profile.Options `title:"Profiling"`
	Metrics   metrics.Options `title:"Metrics and health"`
	Traces    trace.Options   `title:"Traces"`
	Syndic    syndic.Options  `title:"The syndic (salt-syndic)"`
	// Federation are the options of sites and of the master that commands them.
	Federation master.FederationOptions `title:"Federation of sites"`
}

// MasterFiles are the master's identity and directories. root_dir is applied to
// the directories.
type MasterFiles struct {
	RootDir          string `salt:"root_dir" default:"/" doc:"directory that all other directories are below" change:"restart"`
	User             string `salt:"user" default:"" doc:"user to run as; empty: the one who starts the program" change:"restart"`
	PKIDir           string `salt:"pki_dir" default:"/etc/salt/pki/master" doc:"directory of keys" change:"restart"`
	CacheDir         string `salt:"cachedir" default:"/var/cache/salt/master" doc:"directory of jobs and what is known of minions" change:"restart"`
	SockDir          string `salt:"sock_dir" default:"/var/run/salt/master" doc:"directory of the master's socket files" change:"restart"`
	PIDFile          string `salt:"pidfile" default:"/var/run/salt-master.pid" doc:"file for the number of the process" change:"restart"`
	ExtensionModules string `salt:"extension_modules" default:"" doc:"directory of the user's own modules; empty: extmods in cachedir" change:"restart"`
	LogDir           string `salt:"log_dir" default:"" doc:"directory of log files whose names have none" change:"restart"`
	KeyLogFile       string `salt:"key_logfile" default:"/var/log/salt/key" doc:"log file of salt-key" change:"restart"`
	MasterID         string `salt:"master_id" default:"" doc:"name stamped on jobs, for syndics below more than one master" change:"restart"`
	DefaultInclude   any    `salt:"default_include" default:"master.d/*.conf" doc:"further files, relative to this one; later ones win" change:"restart"`
	Include          any    `salt:"include" default:"null" doc:"path, pattern or list of further files, which win over all others" change:"restart"`

	Identity

	// TokenDir and SyndicDir are in CacheDir.
	TokenDir, SyndicDir string
	// ConfFile is the main file.
	ConfFile string
}

// Parts returns the configuration of a master, without the transports that it
// serves. t is the tree of m.
func (m *Master) Parts(t *Tree) (master.Config, error) {
	opts, err := Dump(t, m)
	if err != nil {
		return master.Config{}, err
	}
	f := m.Files
	opts.Set("conf_file", f.ConfFile)
	opts.Set("config_dir", filepath.Dir(f.ConfFile))
	opts.Set("token_dir", f.TokenDir)
	opts.Set("syndic_dir", f.SyndicDir)
	opts.Set("sqlite_queue_dir", filepath.Join(f.CacheDir, "queues"))
	opts.Set("__role", "master")
	opts.Set("__cli", "salt-master")
	if err := AddUnused(MasterKind, opts); err != nil {
		return master.Config{}, err
	}
	return master.Config{
		ID: f.ID, MasterID: f.MasterID, PKIDir: f.PKIDir, CacheDir: f.CacheDir, ExtensionModules: f.ExtensionModules, User: f.User,
		Options: m.Options, Auth: m.Auth, Channel: m.Channel, Publish: m.Publish, Keys: m.Keys, Cache: m.Cache, Client: m.Client,
		Jobs: m.Jobs, Returners: m.Returners, Cluster: m.Cluster, Interface: m.Network.Interface, Events: m.Events, Files: m.Served,
		Backends: m.Elsewhere, Top: m.Top, Pillar: m.Pillar, Templates: m.Templates, GitPillar: m.GitPillar, Reactor: m.Reactor, EventReturn: m.Returns,
		Federation: m.Federation, HasSyndic: t.Values.At("syndic_master") != nil, Opts: opts,
	}, nil
}

// Place returns where the master is on this machine, for a client of it. An error means that the
// certificates of the option ssl cannot be read.
func (m *Master) Place() (client.Place, error) {
	conf, err := named.ClientTLS(m.Network.Transport, m.Network.SSL)
	return client.Place{
		Interface: m.Network.Interface, RetPort: m.Network.RetPort, Transport: m.Network.Transport, TLS: conf,
		Sockets: m.Events.Sockets(), CacheDir: m.Files.CacheDir, User: m.Files.User,
	}, err
}

const masterLog = "/var/log/salt/master"

// usual returns the defaults that the parts do not declare.
func (*Master) usual() map[string]any {
	return map[string]any{"log_file": masterLog, "file_roots": fileserver.UsualRoots(), "pillar_roots": pillar.UsualRoots()}
}

// NewMaster sets the master's options from a tree. Its error contains all
// faults. The id is the configured one, or derived from machine with "_master"
// added; it is not saved.
func NewMaster(t *Tree, machine Machine, log *slog.Logger) (*Master, error) {
	m := &Master{}
	faults := faultList{}
	t.checkLog()
	faults.stage(t.normalize()...)
	faults.stage(Decode(t, m))
	faults.stage(t.checkTransport(m.Network.Transport)...)
	faults.stage(t.checkWords()...)
	f := &m.Files
	id, err := f.identify(machine, f.RootDir, false, log)
	faults.stage(t.blame(err)...)
	if err := faults.err(t); err != nil {
		return nil, err
	}
	chosen := f.ID != ""
	if !chosen {
		id += "_master"
	}
	f.ID = id
	f.ConfFile = t.Path
	if m.Served.FileRoots == nil {
		m.Served.FileRoots = fileserver.UsualRoots()
	}
	if m.Pillar.Roots == nil {
		m.Pillar.Roots = pillar.UsualRoots()
	}
	m.Log.Chosen = t.Values.At("log_file") != nil
	m.Log.File = t.logFile(m.Log.File, f.LogDir, masterLog)
	f.SockDir = sockDir(f.SockDir, f.CacheDir)
	m.Events.SockDir = f.SockDir
	if f.ExtensionModules == "" {
		f.ExtensionModules = filepath.Join(f.CacheDir, "extmods")
	}
	if err := rootPaths(m, f.RootDir); err != nil {
		return nil, err
	}
	if err := m.checkCluster(t, chosen, log); err != nil {
		return nil, err
	}
	if len(m.Federation.URLs) == 0 {
		t.warnIdle("federation_urls", t.setWithPrefix("federation_")...)
	}
	if !m.Options.OrderMasters {
		t.warnIdle("order_masters: True", "syndic_minions")
	}
	t.warnIdleTraces(&m.Traces)
	t.warnIdlePython(m.Options.PythonOptions.Helper)
	if !m.Jobs.JobCache && m.Options.JobCacheFiles {
		t.warnIdle("job_cache: True", "job_cache_files")
	}
	f.TokenDir = filepath.Join(f.CacheDir, "tokens")
	f.SyndicDir = filepath.Join(f.CacheDir, "syndics")
	return m, nil
}

// checkCluster completes the options of a cluster as Salt does, and rejects
// those that would fail silently.
func (m *Master) checkCluster(t *Tree, chosen bool, log *slog.Logger) error {
	o := &m.Cluster
	if o.Record == "" && o.RecordSecret != "" {
		log.Warn("store_of_record_secret has no effect: store_of_record names no server")
	}
	if !o.On() {
		for _, name := range t.setWithPrefix("cluster_") {
			if name != "cluster_id" && name != "cluster_peers" { // cluster_peers has Salt's warning, below
				t.warnIdle("cluster_id", name)
			}
		}
		if len(o.Peers) > 0 {
			log.Warn("Cluster peers defined without a cluster_id, ignoring.")
			o.Peers = nil
		}
		return o.CheckRecord()
	}
	if len(m.Options.HotMasters) > 0 {
		return salt.Errorf(salt.Invalid, "hot_masters is for masters that are no cluster: remove it, or cluster_id and cluster_peers")
	}
	if len(o.Peers) == 0 && !o.Isolated { // an isolated cluster gets them from a member
		log.Warn("Cluster id defined without defining cluster peers")
	}
	if !o.Isolated {
		t.warnIdle("cluster_isolated_filesystem: True", isolatedOnly...)
	}
	if o.Secret != "" && !o.Isolated {
		log.Warn("cluster_secret has no effect: masters that share a directory do not join by it. Name each in cluster_peers of all, or set " +
			"cluster_isolated_filesystem (docs/cluster.md)")
	}
	if o.PKIDir == "" {
		log.Warn("Cluster id defined without defining cluster pki, falling back to pki_dir")
		o.PKIDir = m.Files.PKIDir
	}
	return o.Check(m.Files.ID, chosen, m.Network.Interface)
}

// isolatedOnly are options of masters without a shared directory. cluster_secret has a message of its own; others are refused.
var isolatedOnly = []string{"cluster_keep_deleted_seconds", "cluster_pub_fingerprint", "cluster_return_copies"}

// LoadMaster combines Load and NewMaster for a program without options of its
// own. It reports the faults of both together.
func LoadMaster(path string, log *slog.Logger) (*Master, *Tree, error) {
	t, err := Load(path, MasterKind, log)
	m, err2 := NewMaster(t, ThisMachine(), log)
	return m, t, both(t, err, err2)
}
