package config

import (
	"slices"
	"strings"

	"brine/internal/base/textedit"
)

// serverOptions are the options of servers, which drivers and returners read by their names: those of
// Brine and, so that they cause no warning, those of Salt's modules. Others may belong to modules of
// the user's own.
var serverOptions = []struct{ prefixes, names string }{
	{"redis cache.redis", `host port db username password ssl ssl_ca_certs ssl_certfile ssl_keyfile ssl_cert_reqs unix_socket_path cluster_mode
		cluster.startup_nodes cluster.skip_full_coverage_check bank_prefix bank_keys_prefix key_prefix timestamp_prefix separator`},
	{"mysql", `host port user pass password db database unix_socket connect_timeout charset ssl_ca ssl_cert ssl_key table_name fresh_connection
		max_allowed_packet use_unicode default_file default_group`},
	{"postgres cache.postgres returner.postgres returner.pgjsonb master_job_cache.postgres", `host port user pass passwd password db database sslmode sslcert
		sslkey sslrootcert sslcrl table_name maintenance_db bins_dir timeout`},
	{"etcd", `host port username password ca ca_cert cert client_cert client_key protocol allow_redirect require_v2 encode_values encode_keys raw_keys
		raw_values unicode_errors srv_domain ttl returner returner_root returner_read_profile returner_write_profile timestamp_suffix path_prefix`},
	{"consul", "host port token scheme consistency dc verify timestamp_suffix url"},
}

// settingsUnder returns the known options that begin with prefix and a dot, without both.
func settingsUnder(prefix string, declared map[string]bool) (names []string) {
	for name := range declared {
		if rest, ok := strings.CutPrefix(name, prefix+"."); ok {
			names = append(names, rest)
		}
	}
	for _, o := range serverOptions {
		if slices.Contains(strings.Fields(o.prefixes), prefix) {
			names = append(names, strings.Fields(o.names)...)
		}
	}
	return names
}

// misspelt returns the option that name, which has a dot, probably is meant to be; "" if there is none.
func misspelt(name string, declared map[string]bool) string {
	for at := strings.LastIndexByte(name, '.'); at > 0; at = strings.LastIndexByte(name[:at], '.') {
		prefix, rest := name[:at], name[at+1:]
		names := settingsUnder(prefix, declared)
		if slices.Contains(names, rest) {
			return ""
		}
		if near := textedit.Nearest(rest, names); len(near) > 0 {
			return prefix + "." + near[0]
		}
	}
	return ""
}
