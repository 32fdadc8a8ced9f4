package master

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/acl"
	"brine/internal/call/python"
	"brine/internal/files/extmods"
	"brine/internal/net/discovery"
	"brine/internal/py/value"
	"brine/internal/store/returner"
)

// Options of the user's own modules. The aliases are needed because the types are called Options.
type (
	PythonOptions = python.Options
	ModuleOptions = extmods.MasterOptions
)

// Options are the master's own options, with Salt's names and meanings.
type Options struct {
	PythonOptions
	ModuleOptions

	OpenMode          bool   `salt:"open_mode" default:"false" doc:"accept any key of any minion; a danger, for emergencies only" change:"live"`
	MaxMinions        int    `salt:"max_minions" default:"0" doc:"minions that may be connected; further ones are refused; 0 is no limit" change:"live"`
	MaxPending        int    `salt:"max_pending_keys" default:"100000" least:"0" doc:"keys that may wait for acceptance; further unknown minions are turned away, so that unauthenticated peers cannot fill the disk (Brine only)" change:"live"`
	MinionReturnQuota int    `salt:"minion_return_quota" default:"100" least:"0" doc:"MB that one minion may have stored in an hour for jobs that no master published (salt-call, its schedule), so that it cannot fill the disk; 0 is no limit (Brine only)" change:"live"`
	HashType          string `salt:"hash_type" default:"sha256" doc:"hash for file names and fingerprints" change:"restart"`
	AuthEvents        bool   `salt:"auth_events" default:"true" doc:"fire salt/auth events" change:"live"`
	Keysize           int    `salt:"keysize" default:"2048" doc:"size in bits of a key that has to be made" change:"restart"`
	KeyPass           string `salt:"key_pass" default:"" doc:"passphrase of master.pem" change:"restart"`

	MasterSignPubkey         bool   `salt:"master_sign_pubkey" default:"false" doc:"send a signature of the master's public key, for minions with verify_master_pubkey_sign" change:"restart"`
	MasterSignKeyName        string `salt:"master_sign_key_name" default:"master_sign" doc:"base name of the signing key pair in pki_dir" change:"restart"`
	MasterUsePubkeySignature bool   `salt:"master_use_pubkey_signature" default:"false" doc:"send the stored signature, so that the signing key need not be here" change:"restart"`
	MasterPubkeySignature    string `salt:"master_pubkey_signature" default:"master_pubkey_signature" doc:"file in pki_dir with the stored signature" change:"restart"`
	SigningKeyPass           string `salt:"signing_key_pass" default:"" doc:"passphrase of the signing key" change:"restart"`

	MasterPreviousKey     string `salt:"master_previous_key" default:"master_previous" doc:"base name in pki_dir of the key pair that master.pem has replaced: minions that know it take the new one (Brine only)" change:"restart"`
	MasterSignPreviousKey string `salt:"master_sign_previous_key" default:"master_sign_previous" doc:"base name in pki_dir of the signing key pair that the present one has replaced (Brine only)" change:"restart"`

	PublishSession   time.Duration `salt:"publish_session" default:"86400" doc:"seconds after which a minion's session key is replaced" change:"restart"`
	RotateAESKey     bool          `salt:"rotate_aes_key" default:"true" doc:"replace the AES key when a minion's key is deleted or rejected" change:"live"`
	PingOnRotate     bool          `salt:"ping_on_rotate" default:"false" doc:"ping all minions after the AES key was replaced, so that they sign in before the next command" change:"live"`
	LoopInterval     time.Duration `salt:"loop_interval" default:"60" doc:"seconds between rounds of housekeeping" change:"live"`
	PresenceEvents   bool          `salt:"presence_events" default:"false" doc:"fire events about minions that come and go" change:"live"`
	MinionDataEvents bool          `salt:"minion_data_cache_events" default:"true" doc:"fire an event when a minion's data was refreshed" change:"live"`
	OrderMasters     bool          `salt:"order_masters" default:"false" doc:"this master has syndics below it" change:"restart"`
	SyndicMinions    SyndicMinions `salt:"syndic_minions" default:"{}" doc:"which keys are those of syndics, and the minions for which each may return, as globs, as in {site-a: ['a-*']}; without it, any accepted key may be that of a syndic, and it may return for all minions without an accepted key at this master (Brine only)" change:"live"`
	Heartbeat        time.Duration `salt:"heartbeat_interval" default:"2" least:"0" doc:"seconds between pings to quiet peers; one that is silent for three is dropped; 0 turns it off (Brine only)" change:"restart"`
	StandbyJobs      bool          `salt:"standby_jobs" default:"true" doc:"have Brine minions with master_type failover run jobs of this master also while another one is active; without, commands name the active master (Brine only)" change:"live"`
	Nodegroups       *value.Dict   `salt:"nodegroups" default:"null" doc:"named targets" change:"live"`
	Timeout          time.Duration `salt:"timeout" default:"5" doc:"seconds that commands wait for minions" change:"live"`
	GatherJobTimeout time.Duration `salt:"gather_job_timeout" default:"10" doc:"seconds that commands wait for the answer whether a job is still running" change:"live"`
	AllowKeyRevoke   bool          `salt:"allow_minion_key_revoke" default:"true" doc:"let minions delete their own key" change:"live"`
	MasterTops       *value.Dict   `salt:"master_tops" default:"null" doc:"what else tells which SLS files are for a minion: a map of ext_nodes and a command, which gets the minion's id, or of a module in Python and what it wants" change:"live"`
	PillarVersion    int           `salt:"pillar_version" default:"2" doc:"1: answer minions that ask for a pillar in the form of before 2015 in that form, which is encrypted with the session key alone" change:"live"`
	FileBufferSize   int           `salt:"file_buffer_size" default:"1048576" doc:"bytes of a file that are sent at once" change:"live"`
	FileRecv         bool          `salt:"file_recv" default:"false" doc:"let minions push files to this master" change:"live"`
	FileRecvMaxSize  int           `salt:"file_recv_max_size" default:"100" doc:"MB of a file that a minion may push" change:"live"`
	PublisherACL     any           `salt:"publisher_acl" default:"{}" doc:"users of this machine other than root who may give commands, by name or pattern, and which" change:"restart"`
	Roles            *value.Dict   `salt:"permission_roles" default:"null" doc:"roles: named lists of permissions, which lists of external_auth and publisher_acl give by @role:NAME (Brine only)" change:"live"`
	ClientACLVerify  bool          `salt:"client_acl_verify" default:"true" doc:"make keys for the accounts of this machine that a pattern in publisher_acl means" change:"restart"`
	SudoACL          bool          `salt:"sudo_acl" default:"false" doc:"let publisher_acl hold for users who become root by sudo" change:"live"`

	PublisherACLBlacklist *value.Dict `salt:"publisher_acl_blacklist" default:"null" doc:"users and modules (functions) that are refused whatever else allows them" change:"live"`

	ApprovalAbove int `salt:"approval_above" default:"0" least:"0" doc:"number of minions above which a job of a user of external_auth waits until a second user approves it by salt-api; 0: no job does (Brine only)" change:"live"`

	ConsoleStore  string `salt:"console_store" default:"" doc:"returner for PostgreSQL whose server (by its options) also stores what users saved, audit records, runs of states and jobs that wait for approval, so that masters that are no cluster share them: pgjsonb, postgres or postgres_local_cache; brine migrate schema console_store prints its tables (Brine only)" change:"restart"`
	ConsoleSecret string `salt:"console_store_secret" default:"" doc:"secret by which masters with one console_store recognize each other's approvals; needed on all of them if they do not have the same key (Brine only)" change:"restart"`
	ConsoleDays   int    `salt:"console_store_days" default:"90" least:"0" doc:"days that audit records and runs of states are kept in the console_store, but always the last runs of each minion, and days of the master's own history of runs of states; 0: for ever (Brine only)" change:"restart"`

	Peer             any      `salt:"peer" default:"{}" doc:"minions that may publish commands, by regular expression, and which functions" change:"live"`
	PeerRun          any      `salt:"peer_run" default:"{}" doc:"minions that may run runners, by regular expression, and which" change:"live"`
	MineGet          any      `salt:"mine_get" default:"null" doc:"minions that may read mine data, by regular expression, and the functions whose data they may read; unset: all" change:"live"`
	HotMasters       []string `salt:"hot_masters" default:"[]" list:"comma" doc:"other masters with the same master.pem that are no cluster, as host or host:port of ret_port: consoles of all show all of them, and decide on keys at all; list each on the others (Brine only)" change:"restart"`
	JobCacheForStock bool     `salt:"job_cache_for_stock_cli" default:"true" doc:"also write a job's load where Salt's own command line looks for it (Brine only)" change:"live"`
	JobCacheFiles    bool     `salt:"job_cache_files" default:"false" doc:"also write what minions return where Salt's Python programs look for it, in cachedir/jobs (Brine only)" change:"live"`

	Discovery discovery.Options `salt:"discovery" default:"false" doc:"answer minions that look for a master by broadcast: False, True, or a map with port (4520, UDP) and mapping (what this master says about itself)" change:"restart"`
}

// isHost reports whether an entry of hot_masters may be a host, or a host with a port.
func isHost(entry string) bool {
	host, port, err := net.SplitHostPort(entry)
	if err != nil {
		return !strings.ContainsAny(strings.TrimSpace(entry), " /")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && host != "" && !strings.ContainsAny(host, " /")
}

// Check reports values that a master cannot use.
func (o *Options) Check() error {
	if name := o.ConsoleStore; name != "" && !slices.Contains(returner.PostgresNames(), name) {
		return salt.Errorf(salt.Invalid, "console_store: %.80q is no returner for PostgreSQL; use one of %s", name, strings.Join(returner.PostgresNames(), ", "))
	}
	for _, m := range []struct {
		option string
		v      any
	}{{"mine_get", o.MineGet}, {"peer", o.Peer}, {"peer_run", o.PeerRun}, {"publisher_acl", o.PublisherACL}} {
		if _, ok := m.v.(*value.Dict); !ok && value.Truth(m.v) {
			return salt.Errorf(salt.Invalid, "%s: expected a mapping, got %s", m.option, value.TypeName(m.v))
		}
	}
	if grants, ok := o.PublisherACL.(*value.Dict); ok {
		if err := acl.CheckGrants(grants, o.Roles); err != nil {
			return salt.Errorf(salt.Invalid, "publisher_acl: %w", err)
		}
	}
	if err := acl.CheckBlacklist(o.PublisherACLBlacklist); err != nil {
		return salt.Errorf(salt.Invalid, "publisher_acl_blacklist: %w", err)
	}
	seen := map[string]bool{}
	for _, name := range o.HotMasters {
		switch {
		case !isHost(name):
			return salt.Errorf(salt.Invalid, "hot_masters: %.80q is not host or host:port", name)
		case strings.TrimSpace(name) == "":
			return salt.Errorf(salt.Invalid, "hot_masters: an entry is empty; name the other masters as host or host:port")
		case seen[name]:
			return salt.Errorf(salt.Invalid, "hot_masters names %s twice", name)
		}
		seen[name] = true
	}
	for option, name := range map[string]string{"master_previous_key": o.MasterPreviousKey, "master_sign_previous_key": o.MasterSignPreviousKey} {
		if strings.Contains(name, "/") {
			return salt.Errorf(salt.Invalid, "%s: %.80q is not the base name of a file in pki_dir", option, name)
		}
		if name == "master" || name != "" && name == o.MasterSignKeyName {
			return salt.Errorf(salt.Invalid, "%s is %s, the present key pair: name the one that it has replaced", option, name)
		}
	}
	return nil
}
