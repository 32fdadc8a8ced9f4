package grains

import (
	"time"

	"brine/internal/host"
	"brine/internal/host/names"
	"brine/internal/host/netif"
	"brine/internal/py/value"
)

// Options select the grains. The tagged fields are options of the minion's
// configuration; the daemon sets the others.
type Options struct {
	Static *value.Dict `salt:"grains" default:"{}" doc:"grains set in the configuration; they replace all others" change:"live"`
	// Blacklist matches top-level names as a glob or a regular expression.
	Blacklist  []string `salt:"grains_blacklist" default:"[]" doc:"names of grains to leave out, as globs or regular expressions" change:"live"`
	DeepMerge  bool     `salt:"grains_deep_merge" default:"false" doc:"merge dictionaries of different sources of grains instead of replacing them" change:"live"`
	FQDNs      bool     `salt:"enable_fqdns_grains" default:"true" doc:"look up the names of all addresses for the grain fqdns" change:"live"`
	GPU        bool     `salt:"enable_gpu_grains" default:"true" doc:"look for graphics cards for the grains gpus and num_gpus" change:"live"`
	PCI        bool     `salt:"enable_lspci" default:"true" doc:"look at PCI devices for the grains gpus and virtual" change:"live"`
	ISCSI      bool     `salt:"iscsi_grains" default:"false" doc:"provide the grain iscsi_iqn" change:"live"`
	NVMe       bool     `salt:"nvme_grains" default:"false" doc:"provide the grain nvme_nqn" change:"live"`
	Fibre      bool     `salt:"fibre_channel_grains" default:"false" doc:"provide the grain fc_wwn" change:"live"`
	Metadata   bool     `salt:"metadata_server_grains" default:"false" doc:"provide the data of the cloud's metadata server as grains" change:"live"`
	GrainOpts  bool     `salt:"grain_opts" default:"false" doc:"provide the minion's whole configuration as the grain opts" change:"live"`
	CacheGrain bool     `salt:"grains_cache" default:"false" doc:"cache grains in the cache directory" change:"live"`
	// CacheAge is compared with the age of the cache file.
	CacheAge time.Duration `salt:"grains_cache_expiration" default:"300" doc:"seconds after which cached grains are collected again" change:"live"`
	// DNSTimeout bounds all name lookups of one collection together.
	DNSTimeout time.Duration `salt:"grains_dns_timeout" default:"1" doc:"timeout in seconds for all DNS lookups; later answers are left out of the grains" change:"live"`
	// MetadataTimeout bounds all requests to the metadata server together.
	MetadataTimeout time.Duration `salt:"grains_metadata_timeout" default:"5" doc:"timeout in seconds of the metadata server; later answers are left out of the grains" change:"live"`

	// ID is the minion's id.
	ID string
	// Master is the master's address as configured, a string or a list; nil counts
	// as "".
	Master any
	// ConfFile is the minion's configuration file or directory. The file "grains"
	// beside or in it holds static grains. "" means none.
	ConfFile string
	// AppendDomain is the option append_domain; nil when it is not set.
	AppendDomain any
	// Opts is the whole configuration, for grain_opts. It may be nil.
	Opts *value.Dict
	// CacheDir holds the file of grains_cache. "" means none.
	CacheDir string
	// Refresh collects grains again even if cached ones are young enough.
	Refresh bool
	// Version is the version of Brine, for the grain brine_version.
	Version string

	// NoDNS disables DNS, so that Collect never waits for the network: names come
	// from /etc/hosts alone.
	NoDNS bool
	// DNS answers name lookups; nil means the machine's resolver.
	DNS names.Resolver
	// Machine is the machine to describe; nil means the local one.
	Machine *host.Machine
	// MetadataURL is the URL of the metadata server; "" means the usual one.
	MetadataURL string

	// interfaces replaces the kernel's list of interfaces in tests.
	interfaces func() ([]netif.Interface, error)
}
