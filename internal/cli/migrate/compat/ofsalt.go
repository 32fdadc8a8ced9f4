package compat

import (
	"slices"
	"strings"
)

// The functions of Salt 3007 for Linux that Brine lacks, in modules that it has. A test compares them with the lists
// of Salt's names.
var (
	lackingFunctions = map[string]string{
		"apache": "config directives fullversion modules server_status servermods signal useradd userdel version vhosts",
		"config": "gather_bootstrap_script",
		"cp":     "cache_file_ssh hash_file_ssh",
		"http":   "update_ca_bundle",
		"mine":   "get_docker",
		"mount":  "automaster filesystems rm_automaster rm_filesystems rm_vfstab set_automaster set_filesystems set_vfstab vfstab",
		"mysql": "db_check db_optimize db_repair free_slave get_master_status get_slave_status plugin_add plugin_remove processlist showglobal " +
			"showvariables slave_lag verify_login",
		"postgres": "datadir_exists datadir_init owner_to",
		"service":  "firstboot",
		"state":    "orchestrate pkg",
		"status":   "ping_master proxy_reconnect",
		"sys":      "state_schema",
		"system":   "get_reboot_required_witnessed set_reboot_required_witnessed",
	}
	lackingStates = map[string]string{
		"cmd":      "call wait_call",
		"file":     "mod_beacon mod_run_check_cmd shortcut",
		"iptables": "mod_aggregate",
		"pip":      "pip_has_exceptions_mod pip_has_internal_exceptions_mod purge_pip",
		"pkg":      "mod_aggregate mod_beacon mod_init",
		"service":  "mod_beacon",
	}
)

// LackingFunctions returns the execution functions of Salt that Brine lacks, in modules that it has, by module.
func LackingFunctions() map[string]string { return lackingFunctions }

// LackingStates is LackingFunctions for state functions.
func LackingStates() map[string]string { return lackingStates }

// ofSalt reports whether Salt has a function that Brine lacks in a module that it has.
func ofSalt(lacking map[string]string, full string) bool {
	module, name, _ := strings.Cut(full, ".")
	return slices.Contains(strings.Fields(lacking[module]), name)
}
