package config

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/field"
	"brine/internal/base/log"
	"brine/internal/base/metrics"
	"brine/internal/base/profile"
	"brine/internal/base/trace"
	"brine/internal/call/output"
	"brine/internal/catalogue/actions/certs"
	"brine/internal/catalogue/grains"
	"brine/internal/daemons/minion"
	"brine/internal/files/fileserver"
	"brine/internal/files/fileserver/backends"
	"brine/internal/net/event"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/sls/highstate"
	"brine/internal/sls/pillar"
	"brine/internal/sls/pillar/gitpillar"
	"brine/internal/sls/render"
	"brine/internal/sls/top"
	"brine/internal/store/returner"
)

// Minion is the configuration of the minion and its programs: the Options of
// all their packages.
type Minion struct {
	Overrides Overrides
	Files     MinionFiles `title:"Identity and directories"`
	Network   transport.ClientOptions
	Log       log.Options
	Options   minion.Options          `title:"The minion"`
	Handshake handshake.MinionOptions `title:"Sign-in"`
	Grains    grains.Options
	Events    event.MinionOptions
	Served    fileserver.Options `title:"File server"`
	Elsewhere backends.Options   `title:"File server backends"`
	States    highstate.Options
	Pillar    pillar.Options
	GitPillar gitpillar.Options `title:"Pillar from git"`
	Top       top.Options       `title:"Top files"`
	Templates render.Limits     `title:"Limits of templates"`
	X509      certs.Options     `title:"Certificates"`
	Output    output.Options
	Profile   profile.Options `title:"Profiling"`
	Metrics   metrics.Options `title:"Metrics and health"`
	Traces    trace.Options   `title:"Traces"`
	Returners returner.MinionOptions
}

// MinionFiles are the minion's identity and directories. root_dir is applied to
// the directories.
type MinionFiles struct {
	RootDir          string   `salt:"root_dir" default:"/" doc:"directory that all other directories are below" change:"restart"`
	User             string   `salt:"user" default:"" doc:"user to run as; empty: the one who starts the program" change:"restart"`
	PKIDir           string   `salt:"pki_dir" default:"/etc/salt/pki/minion" doc:"directory of keys" change:"restart"`
	CacheDir         string   `salt:"cachedir" default:"/var/cache/salt/minion" doc:"directory of what may be lost" change:"restart"`
	SockDir          string   `salt:"sock_dir" default:"/var/run/salt/minion" doc:"directory of the minion's socket files" change:"restart"`
	PIDFile          string   `salt:"pidfile" default:"/var/run/salt-minion.pid" doc:"file for the number of the process" change:"restart"`
	ExtensionModules string   `salt:"extension_modules" default:"" doc:"directory of modules from the master; empty: extmods in cachedir" change:"restart"`
	LogDir           string   `salt:"log_dir" default:"" doc:"directory of log files whose names have none" change:"restart"`
	AppendID         []string `salt:"append_minionid_config_dirs" default:"[]" doc:"directories to end in the minion's id: pki_dir, cachedir, extension_modules; pidfile too" change:"restart"`
	Keysize          int      `salt:"keysize" default:"2048" doc:"size in bits of a key that has to be made" change:"restart"`
	DefaultInclude   any      `salt:"default_include" default:"minion.d/*.conf" doc:"further files, relative to this one; later ones win" change:"restart"`
	Include          any      `salt:"include" default:"null" doc:"path, pattern or list of further files, which win over all others" change:"restart"`

	Identity

	// ConfFile is the main file.
	ConfFile string
}

// masterTypes are Salt's names for how a minion uses its masters.
var masterTypes = []string{"str", "failover", "distributed", "cluster", "func", "disable"}

const minionLog = "/var/log/salt/minion"

// usual returns the defaults that the parts do not declare.
func (*Minion) usual() map[string]any {
	return map[string]any{"log_file": minionLog, "file_roots": fileserver.UsualRoots(), "pillar_roots": pillar.UsualRoots()}
}

// NewMinion sets the minion's options from a tree. Its error contains all
// faults. If no id is configured, it is derived from machine by Salt's rules,
// and saved for the next start if saveID is set.
func NewMinion(t *Tree, machine Machine, saveID bool, log *slog.Logger) (*Minion, error) {
	m := &Minion{}
	faults := faultList{}
	t.checkLog()
	faults.stage(t.normalize()...)
	faults.stage(Decode(t, m))
	faults.stage(t.checkTransport(m.Network.Transport)...)
	faults.stage(t.checkWords()...)
	faults.stage(t.checkMasters(&m.Options)...)
	if s := m.Options.PythonFallback; s != "" && s != "salt" {
		faults.stage(t.faultf("python_fallback", "expected salt or nothing, got %s", field.Describe(s)))
	}
	f := &m.Files
	id, err := f.identify(machine, f.RootDir, saveID && len(faults.all) == 0, log)
	faults.stage(t.blame(err)...)
	if err := faults.err(t); err != nil {
		return nil, err
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
	m.Log.File = t.logFile(m.Log.File, f.LogDir, minionLog)
	f.appendID()
	f.SockDir = sockDir(f.SockDir, f.CacheDir)
	m.Events.SockDir = f.SockDir
	if f.ExtensionModules == "" {
		f.ExtensionModules = filepath.Join(f.CacheDir, "extmods")
	}
	t.warnIdleTraces(&m.Traces)
	t.warnIdlePython(m.Options.PythonOptions.Helper)
	if m.Options.MasterType != "cluster" {
		t.warnIdle("master_type: cluster", "master_rebalance", "master_zone", "master_latency")
	}
	if !m.Options.OutboxOptions.Outbox {
		t.warnIdle("return_outbox: True", "return_outbox_size")
	}
	return m, rootPaths(m, f.RootDir)
}

// LoadMinion combines Load and NewMinion for a program without options of its
// own. It reports the faults of both together.
func LoadMinion(path string, saveID bool, log *slog.Logger) (*Minion, *Tree, error) {
	t, err := Load(path, MinionKind, log)
	m, err2 := NewMinion(t, ThisMachine(), saveID && err == nil, log)
	return m, t, both(t, err, err2)
}

// checkMasters checks the master options beyond their types.
func (t *Tree) checkMasters(o *minion.Options) []error {
	var faults []error
	if !slices.Contains(masterTypes, o.MasterType) {
		faults = append(faults, t.faultf("master_type", "expected %s or %s, got %s",
			strings.Join(masterTypes[:len(masterTypes)-1], ", "), masterTypes[len(masterTypes)-1], field.Describe(o.MasterType)))
	}
	if len(o.Master) == 0 && o.MasterType != "disable" {
		faults = append(faults, t.faultf("master", "expected the name of a master or a list of names, got none"))
	}
	seen := map[string]bool{}
	for _, name := range o.Master {
		switch {
		case strings.TrimSpace(name) == "":
			faults = append(faults, t.faultf("master", "the name of a master is empty"))
		case seen[name]:
			faults = append(faults, t.faultf("master", "%s is listed twice", name))
		}
		seen[name] = true
	}
	for _, p := range []struct {
		key  string
		port int
	}{{"master_port", o.MasterPort}, {"publish_port", o.PublishPort}} {
		if p.port < 1 || p.port > 65535 {
			faults = append(faults, t.faultf(p.key, "expected a port from 1 to 65535, got the number %d", p.port))
		}
	}
	return faults
}

// appendID adds the id to directories, so that several minions can share a
// configuration.
func (f *MinionFiles) appendID() {
	for _, key := range f.AppendID {
		switch key {
		case "pki_dir":
			f.PKIDir = filepath.Join(f.PKIDir, f.ID)
		case "cachedir":
			f.CacheDir = filepath.Join(f.CacheDir, f.ID)
		case "extension_modules":
			if f.ExtensionModules != "" {
				f.ExtensionModules = filepath.Join(f.ExtensionModules, f.ID)
			}
		case "pidfile":
			f.PIDFile = filepath.Join(filepath.Dir(f.PIDFile), "salt", f.ID, filepath.Base(f.PIDFile))
		}
	}
}
