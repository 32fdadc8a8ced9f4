// Package grains collects the grains of a Linux machine, with the names and
// types of Salt 3007.10, so that targets, states and templates written for
// Salt's minions work.
//
// Collect runs the families of grains (a file each: os.go, cpu.go, network.go
// …) at the same time and merges what they return in Salt's order: core grains,
// disks, the grains file, the rest, and last the grains of the configuration.
// Facts come from package host, mostly from files; a family starts a program
// only where no other source has Salt's value. A family that finds nothing
// omits its grains, as Salt does.
//
// Where grains differ from Salt's on the same machine:
//
//   - pythonversion, pythonexecutable and pythonpath describe the system's
//     python3 as far as its file name tells, not one that runs Brine. Without
//     any, pythonversion is that of Salt's own packages, for formulas that
//     compare it.
//   - saltversion is the version of Salt that Brine stands in for, and
//     brine_version is Brine's own; saltpath is the directory of the program;
//     zmqversion names the libzmq whose protocol Brine speaks; package is
//     "onedir", since one file holds all.
//   - gpus are found without lspci being installed, interfaces and gateways
//     without ip.
//   - names are asked from /etc/hosts and DNS within grains_dns_timeout, not
//     from other sources in nsswitch.conf.
//   - lists that Salt leaves in random order are sorted.
package grains

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"time"

	"brine/internal/base/registry"
	"brine/internal/host"
	"brine/internal/host/cpu"
	"brine/internal/host/names"
	"brine/internal/py/value"
)

// collector collects a group of grains. It may return nil, and grains together with an
// error that concerns only some of them.
type collector func(context.Context, *collection) (*value.Dict, error)

var collectors = registry.New[collector]("group of grains")

// saltOrder lists Salt's groups in its order: later groups override earlier ones.
// Groups that are not in it come last.
var saltOrder = []string{
	"append_domain", "cwd", "default_gateway", "dns", "fqdns", "machine_id", "master", "hostname",
	"hwaddr_interfaces", "id", "ip_interfaces", "kernelparams", "locale_info", "kernel", "selinux",
	"systemd", "init", "os", "cpu", "gpu", "devicetree", "osarch", "mem", "hardware", "virtual", "ps",
	"osrelease", "path", "python", "versions", "disks", "config", "shell", "transactional", "uefi",
	"fibre_channel", "iscsi", "lvm", "mdadm", "metadata", "minion_process", "nvme", "opts", "package",
	"zfs",
}

// family is a registered group.
type family struct {
	name    string
	collect collector
}

// families are all groups, in their order.
var families = sync.OnceValue(func() []family {
	all := make([]family, 0, len(saltOrder))
	for _, names := range [][]string{saltOrder, collectors.Names()} {
		for _, name := range names {
			collect, ok := collectors.Lookup(name)
			if ok && !slices.ContainsFunc(all, func(f family) bool { return f.name == name }) {
				all = append(all, family{name, collect})
			}
		}
	}
	return all
})

// programTimeout bounds the programs that a collection runs.
const programTimeout = 10 * time.Second

// Collect collects the grains of a machine. It takes some milliseconds, the
// time of the slowest program that it runs, and with DNS at most DNSTimeout
// more. The dict is never nil and as complete as possible even if there is an
// error, which explains to the user what is wrong with the grains file or the
// machine.
func Collect(ctx context.Context, o Options, log *slog.Logger) (*value.Dict, error) {
	start := time.Now()
	if d := readCache(o, start, log); d != nil {
		return d, nil
	}
	c := newCollection(ctx, o, log)
	defer c.cancel()
	families := families()
	found := make([]*value.Dict, len(families))
	faults := make([]error, len(families))
	took := make([]time.Duration, len(families))
	var wg sync.WaitGroup
	for i, f := range families {
		wg.Go(func() {
			began := time.Now()
			found[i], faults[i] = f.collect(c.programs, c)
			took[i] = time.Since(began)
		})
	}
	wg.Wait()
	all := value.NewDict(100)
	for i, d := range found {
		log.Debug("grains found", "family", families[i].name, "count", d.Len(), "took", took[i])
		merge(all, without(d, o.Blacklist), o.DeepMerge)
	}
	merge(all, o.Static, o.DeepMerge)
	log.Debug("grains collected", "count", all.Len(), "took", time.Since(start))
	return all, errors.Join(append(faults, writeCache(o, all))...)
}

// Merge returns the grains of base with each layer merged over them. With deep
// set, dicts are merged instead of replaced. The arguments are not changed.
func Merge(base *value.Dict, deep bool, layers ...*value.Dict) *value.Dict {
	all, _ := value.DeepCopy(base).(*value.Dict)
	for _, l := range layers {
		merge(all, l, deep)
	}
	return all
}

func merge(dst, src *value.Dict, deep bool) {
	for k, v := range src.All() {
		if deep {
			old, okOld := dst.At(k).(*value.Dict)
			over, okNew := v.(*value.Dict)
			if okOld && okNew {
				both := old.Clone() // old may belong to the configuration
				merge(both, over, true)
				v = both
			}
		}
		dst.Set(k, v)
	}
}

// Get returns the grain at a path such as "ip4_interfaces:eth0:0". An empty
// delimiter means a colon. The rules are those of value.Traverse.
func Get(grains *value.Dict, path, delimiter string) (any, bool) {
	return value.Traverse(grains, path, delimiter)
}

// collection is shared by the families of one Collect. Facts that several need
// are looked up once, by the first that asks.
type collection struct {
	Options
	*host.Machine
	log      *slog.Logger
	programs context.Context // ends with the timeout of programs
	lookups  context.Context // ends with the timeout of DNS
	cancel   func()
	names    *names.Finder

	uname      func() host.Uname
	cpu        func() cpu.Info
	dist       func() *value.Dict
	firmware   func() *value.Dict
	virtual    func() *value.Dict
	interfaces func() interfacesResult
	fqdn       func() string
}

func newCollection(ctx context.Context, o Options, log *slog.Logger) *collection {
	c := &collection{Options: o, Machine: o.Machine, log: log}
	if c.Machine == nil {
		c.Machine = &host.Machine{}
	}
	var stopPrograms, stopLookups func()
	c.programs, stopPrograms = context.WithTimeout(ctx, programTimeout)
	c.lookups, stopLookups = context.WithTimeout(ctx, o.DNSTimeout)
	c.cancel = func() { stopLookups(); stopPrograms() }
	c.names = names.New(c.Machine, dnsOf(o, c.Machine))
	c.uname = sync.OnceValue(c.Uname)
	c.cpu = sync.OnceValue(func() cpu.Info { return cpu.Read(c.Machine) })
	c.dist = sync.OnceValue(func() *value.Dict { return distribution(c.Machine) })
	c.firmware = sync.OnceValue(func() *value.Dict { return firmware(c.programs, c.Machine) })
	c.virtual = sync.OnceValue(c.detectVirtual)
	c.interfaces = sync.OnceValue(c.findInterfaces)
	c.fqdn = c.lookUpName()
	return c
}

// lookUpName starts the lookup of the machine's full name, and returns a function
// that waits for it. The family "hostname" always calls that, so that Collect does
// not return earlier.
func (c *collection) lookUpName() func() string {
	done := make(chan struct{})
	name := ""
	go func() {
		defer close(done)
		name = c.names.Canonical(c.lookups, c.uname().Node)
	}()
	return func() string {
		<-done
		return name
	}
}

// lazily compiles a regular expression on first use, so that programs without
// grains start faster.
func lazily(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
