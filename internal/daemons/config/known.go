package config

import (
	_ "embed"
	"slices"
	"strings"
)

// knownText has the name of every option that Salt understands, and those of
// its later cluster options; a name a line.
//
//go:embed known_options.txt
var knownText string

// knownNames returns Salt's names, sorted.
func knownNames() []string { return strings.Fields(knownText) }

// withoutEffect are options of Salt without effect in Brine
// on which a configuration may rely unnoticed. Others without effect concern the speed of Salt's processes
// and modules in Python, or nothing; docs/differences.md lists all.
const withoutEffect = " detect_remote_minions django_auth_path drop_messages_signature_fail eauth_acl_module enable_ssh_minions " +
	"engines fips_mode grains_refresh_pre_exec hgfs_remotes http_max_body log_granular_levels log_rotate_max_bytes mine_return_job " +
	"minion_restart_command range_server require_minion_sign_messages snapper_states sudo_user svnfs_remotes syndic_master thorium_top " +
	"update_url winrepo_remotes winrepo_remotes_ng "

// ofMinions are options of Salt that Brine's minions alone obey: they are warned
// about in the configuration of a daemon that does not declare them.
const ofMinions = " disable_modules disable_returners whitelist_modules "

// WithoutEffect returns the options of Salt's that are warned about because
// they have no effect.
func WithoutEffect() []string { return strings.Fields(withoutEffect) }

func isKnown(name string) bool {
	if strings.HasPrefix(name, "saltgui_") { // SaltGUI reads them by wheel config.values
		return true
	}
	_, ok := slices.BinarySearch(knownNames(), name)
	return ok
}
