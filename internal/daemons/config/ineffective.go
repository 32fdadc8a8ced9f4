package config

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// Ineffective describes an option of Salt that Brine accepts and does not use.
type Ineffective struct {
	Name string
	// Why is the reason why it has no effect, and what to use instead.
	Why string
	// Refused is true if secrets, access or safety may depend on the option: a daemon starts
	// with it only if ignore_unsupported names it.
	Refused bool
	// usual is Salt's default. That value needs no message.
	usual any
}

// ineffectiveGroup is a group of options with the same reason. A word of options is a name, or
// NAME=DEFAULT if Salt's default is not empty, false or zero.
type ineffectiveGroup struct {
	why     string
	refused bool
	options string
}

var ineffectiveGroups = []ineffectiveGroup{
	{why: "Brine has no FIPS mode: its cryptography is that of Go's standard library, which is not validated", refused: true, options: "fips_mode"},
	{why: "permissions come from external_auth alone, without a module in Python that adds to them", refused: true, options: "eauth_acl_module"},
	{why: "all pillar sources of ext_pillar count; remove the sources from ext_pillar", refused: true, options: "exclude_ext_pillar"},
	{why: "tokens are files below cachedir, which masters of a cluster share", refused: true, options: "eauth_tokens=localfs eauth_redis_host eauth_redis_port"},
	{why: "minion keys are files in pki_dir, or in cluster_pki_dir; to keep them on a server as well, set store_of_record", refused: true,
		options: "keys.cache_driver=localfs_key"},
	{why: "the system django does not exist; use ldap, oidc, pam or file", options: "django_auth_path django_auth_settings"},

	{why: "Brine runs no modules in Python of this kind, or needs no such setting (docs/python-modules.md)",
		options: `add_proxymodule_to_opts autoload_dynamic_modules=true cache_dirs
		clean_dynamic_modules=true client_dirs clouds_dirs cloud_dirs cython_enable enable_zip_modules executors_dirs
		extmod_blacklist extmod_whitelist grains_dirs log_handlers_dirs matchers_dirs metaproxy_dirs module_dirs
		modules_dirs modules_max_memory=-1 netapi_dirs optimization_order=[0,1,2] output_dirs pillar_dirs pkgdb_dirs pkgfiles_dirs
		queue_dirs queues_dirs render_dirs renderers_dirs returner_dirs returners_dirs roster_dirs runner_dirs runners_dirs serializers_dirs
		states_dirs thorium_dirs tokens_dirs top_dirs tops_dirs utils_dirs wrapper_dirs`},
	{why: "there is one module x509, that of x509_v2, and there are no other features to choose", options: `features={"x509_v2":true}`},
	{why: "one process does the work of Salt's many, and needs no such setting", options: `con_cache event_publisher_niceness event_return_niceness
		fileserver_update_niceness ipc_write_buffer key_cache maintenance_niceness max_open_files=100000 multiprocessing=true mworker_niceness
		mworker_queue_niceness pub_server_niceness reactor_niceness req_server_niceness sock_pool_size=1 tcp_master_publish_pull=4514
		tcp_master_workers=4515 worker_threads=5 zmq_monitor fileserver_list_cache_time=20`},
	{why: "there is no salt-ssh", options: `enable_ssh_minions min_extra_mods regen_thin roster roster_defaults roster_dir roster_domain roster_file
		roster_order rosters ssh_auth ssh_config_file ssh_ext_alternatives ssh_identities_only ssh_interface ssh_keepalive
		ssh_keepalive_count_max ssh_keepalive_interval ssh_known_hosts_file ssh_list_nodegroups ssh_log_file=/var/log/salt/ssh ssh_max_procs
		ssh_merge_pillar=true ssh_minion_opts ssh_options ssh_passwd ssh_port='22' ssh_priv_passwd ssh_run_pre_flight ssh_scan_ports='22'
		ssh_scan_timeout=0.01 ssh_sudo ssh_sudo_user ssh_timeout=60 ssh_update_roster ssh_use_home_key ssh_user=root ssh_wipe known_hosts_file thin_exclude_saltexts
		
		thin_extra_mods thin_saltext_allowlist thin_saltext_blocklist detect_remote_minions remote_minions_port=22 netapi_allow_raw_shell`},
	{why: "a syndic keeps returns on the disk and sends them until the master that asked has them", options: "syndic_retries=3"},
	{why: "the list of syndics is in cachedir, and a syndic has no sockets of its own", options: "syndic_dir syndic_sock_dir"},
	{why: "there is no salt-proxy", options: `metaproxy proxy proxy_always_alive=true proxy_deep_merge_pillar_in_opts proxy_keep_alive=true
		proxy_keep_alive_interval=1 proxy_merge_grains_in_module=true proxy_merge_pillar_in_opts proxy_merge_pillar_in_opts_strategy=smart
		proxy_mines_pillar=true napalm_cli_textfsm_parse napalm_host_dns_grain`},
	{why: "there is no salt-cloud", options: `bootstrap_delay deploy_scripts_search_path enable_cloud_grains enable_hard_maps update_bootstrap userdata_template
		cache_event_strip_fields delete_sshkeys diff_cache_events hard_timeout start_action`},
	{why: "there is no spm", options: `formula_path pillar_path reactor_path spm_build_dir spm_build_exclude spm_cache_dir spm_conf_file spm_db spm_db_provider
		spm_default_include spm_dirs spm_files_provider spm_logfile spm_node_type spm_repo_dups spm_repos_config spm_share_dir`},
	{why: "salt-api has the interface of rest_cherrypy alone: write its settings there (docs/rest-api.md)", options: "rest_tornado rest_wsgi"},
	{why: "set netapi_enable_clients to the clients that salt-api may use", options: "netapi_disable_clients"},
	{why: "set log_fmt_console and log_fmt_logfile", options: "log_fmt"},
	{why: "all grains are collected; use grains_blacklist", options: "skip_grains"},
	{why: "there is no Thorium; use reactor", options: "register_returner thorium_interval thorium_roots thorium_top=top.sls thoriumenv"},
	{why: "there are no file server backends hgfs and svnfs; use gitfs or roots", options: `hgfs_base=default hgfs_branch_method=branches hgfs_mountpoint
		hgfs_remotes hgfs_root hgfs_saltenv_blacklist hgfs_saltenv_whitelist hgfs_update_interval=60 svnfs_branches=branches svnfs_mountpoint svnfs_remotes
		svnfs_root svnfs_saltenv_blacklist svnfs_saltenv_whitelist svnfs_tags=tags svnfs_trunk=trunk svnfs_update_interval=60`},
	{why: "the repository of Windows packages is not built here", options: `win_gitrepos win_repo win_repo_cachefile win_repo_mastercachefile
		winrepo_branch winrepo_cache_expire_max=604800 winrepo_cache_expire_min=1800 winrepo_cachefile=winrepo.p winrepo_dir winrepo_dir_ng
		winrepo_fallback winrepo_insecure_auth winrepo_mastercachefile winrepo_passphrase winrepo_password winrepo_privkey winrepo_provider
		winrepo_proxy winrepo_pubkey winrepo_refspecs winrepo_remotes winrepo_remotes_ng winrepo_source_dir=salt://win/repo-ng/
		winrepo_ssl_verify=true winrepo_user`},
	{why: "each message is bound to the minion's key by its connection, and needs no signature of its own (docs/security.md)",
		options: `drop_messages_signature_fail minion_sign_messages request_server_aes_session require_minion_sign_messages auth_mode=1 disable_aes_with_tls`},
	{why: "files are updated each loop_interval, or at the interval of gitfs_update_interval and git_pillar_update_interval",
		options: "minionfs_update_interval=60 roots_update_interval=60 s3fs_update_interval=60"},
	{why: "snapper is not used: no snapshot is made before a state run", options: "snapper_states snapper_states_config=root"},
	{why: "queues are files below cachedir", options: "sqlite_queue_dir=/var/cache/salt/master/queues"},
	{why: "the renderer pass does not exist; use gpg", options: "pass_dir pass_gnupghome pass_strict_fetch pass_variable_prefix"},
	{why: "decrypted values are not kept on the disk", options: "gpg_cache gpg_cache_backend=disk gpg_cache_ttl=86400"},
	{why: "log_level and log_level_logfile hold for all parts", options: "log_granular_levels"},
	{why: "use logrotate; SIGHUP opens the log file again", options: "log_rotate_backup_count log_rotate_max_bytes"},
	{why: "messages go to stderr and log_file",
		options: "fluent_handler logstash_udp_handler logstash_zmq_handler sentry_handler"},
	{why: "the service manager restarts minions", options: "minion_restart_command restart_on_error"},
	{why: "the binary is updated by packages, not by saltutil.update", options: "update_restart_services update_url"},
	{why: "the minion connects again and delivers what waits on its disk without an end of tries", options: `request_channel_tries=3 return_retry_tries=3
		tcp_authentication_retries=5 tcp_reconnect_backoff=1`},
	{why: "the target type range does not exist; use nodegroups", options: "range_server=range:80"},
	{why: "the minion's grains are refreshed by saltutil.refresh_grains and each grains_refresh_every minutes", options: "grains_refresh_pre_exec"},
	{why: "the returns of mine updates are not jobs", options: "mine_return_job"},
	{why: "a sign-in without an answer is always repeated", options: "auth_safemode"},
	{why: "the minion keeps no copy of its pillar on the disk", options: "minion_pillar_cache"},
	{why: "downloads have no bound", options: "http_max_body=107374182400"},
	{why: "tags of events are matched by their beginning unless the caller says otherwise", options: "event_match_type=startswith"},
	{why: "the results of a call with several functions are named by the function", options: "multifunc_ordered"},
	{why: "each job has an id of its own, and its end is stored", options: "unique_jid job_cache_store_endtime"},
	{why: "jobs are stored by the master alone", options: "cache_jobs"},
	{why: "statistics of the master are at /metrics of salt-api", options: "master_stats master_stats_event_iter=60"},
	{why: "the reactor reads its files when they change", options: "reactor_refresh_interval=60"},
	{why: "the master's own files are the minions'", options: `master_roots={"base":["/srv/salt-master"]}`},
	{why: "a setting of Salt's own processes", options: `cache_sreqs=true cluster_mode fileserver_verify_config=true maintenance_interval=3600
		resolve_dns_fallback=true search serial=msgpack verify_env=true beacons_leader=true enforce_mine_cache yaml_utf8 use_yamlloader_old`},
	{why: "the configuration is read from the directory of -c", options: "conf_file"},
	{why: "masters alone use it", options: `file_recv_max_size=100 key_logfile=/var/log/salt/key loop_interval=1 permissive_pki_access reactor
		reactor_worker_hwm=10000 reactor_worker_threads=10`},
	{why: "minions alone use it", options: "enable_gpu_grains=true"},
	{why: "a master has no schedule, which in Salt runs runners; let cron or a systemd timer call salt-run", options: "schedule"},
	{why: "states with parallel: True have no bound", options: "state_max_parallel"},
	{why: "proxies come from the environment (https_proxy)", options: "gitfs_proxy git_pillar_proxy"},
	{why: "stock Salt ignores the option too", options: "masterkeyring pillar_gitfs_ssl_verify=true"},
	{why: "the voters of a cluster are those of cluster_voters (docs/cluster-lease.md)", options: `cluster_auto_replace_voters cluster_demote_cooldown
		cluster_election_max cluster_election_min cluster_max_log_size cluster_max_voters cluster_min_voters cluster_voter_health_check_interval
		cluster_voter_timeout`},
	{why: "masters of a cluster without a shared directory use TLS (docs/cluster-isolated.md)", options: "cluster_encryption_algorithm"},
	{why: "each key is a file; there is no index of keys", options: "pki_index_enabled pki_index_shards=1 pki_index_size=1000000 pki_index_slot_size=128"},
	{why: "the events of sign-ins have no grains", options: "auth_events_autosign_grains auth_events_pend_autosign_grains"},
}

// ineffectiveOptions returns the options of all groups by name.
var ineffectiveOptions = sync.OnceValue(func() map[string]*Ineffective {
	all := map[string]*Ineffective{}
	for _, g := range ineffectiveGroups {
		for _, word := range strings.Fields(g.options) {
			name, text, _ := strings.Cut(word, "=")
			o := &Ineffective{Name: name, Why: g.why, Refused: g.refused}
			if text != "" {
				o.usual, _ = yaml.Load([]byte(text), name)
			}
			all[name] = o
		}
	}
	return all
})

// IneffectiveOptions returns the options of Salt that have no effect, sorted by name.
func IneffectiveOptions() []Ineffective {
	var all []Ineffective
	for _, o := range ineffectiveOptions() {
		all = append(all, *o)
	}
	slices.SortFunc(all, func(a, b Ineffective) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// insteadOfConsole is the message about the options of the Enterprise console's plugin.
const insteadOfConsole = "Brine does not connect to the Enterprise console; use salt-api with SaltGUI for its pages (docs/rest-api.md), " +
	"gitfs and git_pillar for its files and pillar, and master_job_cache for its job records"

// ineffective returns why an option has no effect with this value; nil if it
// has one, or is Salt's default.
func ineffective(name string, v any) *Ineffective {
	if strings.HasPrefix(name, "sseapi_") {
		return &Ineffective{Name: name, Why: insteadOfConsole}
	}
	o := ineffectiveOptions()[name]
	if d, ok := v.(*value.Dict); o == nil || value.Equal(v, o.usual) || !value.Truth(v) && !value.Truth(o.usual) || ok && d.Len() == 0 {
		return nil
	}
	return o
}

// Overrides are options with which a daemon starts although secrets, access or safety depend on
// options in its configuration that have no effect.
type Overrides struct {
	IgnoreUnsupported []string `salt:"ignore_unsupported" default:"[]" doc:"options of Salt without effect, or OPTION.NAME for a missing module, with which the daemon starts nevertheless (Brine only)" change:"live"`
}

// Unsupported is a part of a configuration that does not exist in Brine.
type Unsupported struct {
	// Key is the option, Unit the module that it names, or empty.
	Key, Unit string
	// Why is what is missing, and what to use instead.
	Why string
}

// Name returns the name under which ignore_unsupported accepts it.
func (u Unsupported) Name() string {
	if u.Unit == "" {
		return u.Key
	}
	return u.Key + "." + u.Unit
}

// Refuse returns an error for each part of the configuration on which secrets,
// access or safety depend, which does not exist, and which ignore_unsupported does
// not name. It logs a warning for others. declare are the structs with the options
// of the daemon.
func (t *Tree) Refuse(o Overrides, declare ...any) (refused []error) {
	needed, other := t.MissingUnits()
	for _, u := range other {
		t.warn(u.Key, u.Why)
	}
	used := map[string]bool{}
	for _, u := range append(needed, t.Unsupported(declare...)...) {
		used[u.Name()], used[u.Key] = true, true
		if slices.Contains(o.IgnoreUnsupported, u.Name()) || slices.Contains(o.IgnoreUnsupported, u.Key) {
			t.warn(u.Key, "starting without it, as ignore_unsupported says: "+u.Why)
			continue
		}
		refused = append(refused, t.fault(u.Key, fmt.Errorf("%s; to start without it, set ignore_unsupported: [%s]", u.Why, u.Name())))
	}
	for _, name := range o.IgnoreUnsupported {
		if !used[name] {
			t.warn("ignore_unsupported", fmt.Sprintf("%.80q has no effect: the configuration has no unsupported part with this name", name))
		}
	}
	return refused
}

// Unsupported returns the options on which secrets, access or safety depend and
// which have no effect. declare are the structs with the options of the daemon.
func (t *Tree) Unsupported(declare ...any) (out []Unsupported) {
	declared := declaredNames(declare)
	for k, v := range t.Values.All() {
		name := value.Str(k)
		if o := ineffective(name, v); o != nil && o.Refused && !declared[name] {
			out = append(out, Unsupported{Key: name, Why: "this option of Salt has no effect in Brine: " + o.Why})
		}
		if ref := findSDB(v, 0, func(uri string) bool { return references{t}.problem(uri) != "" }); ref != "" {
			out = append(out, Unsupported{Key: name, Unit: "sdb", Why: fmt.Sprintf(
				"Brine cannot look up %s, so that the option would have this string as its value: %s", ref, references{t}.problem(ref))})
		}
	}
	return out
}
