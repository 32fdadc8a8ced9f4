package system

import (
	"brine/internal/call/fn"
	"brine/internal/sls/state"
)

// elsewhere lists state modules for other operating systems, with Salt's
// reason why they are unavailable.
var elsewhere = map[string]string{
	"chocolatey":        "chocolatey module could not be loaded",
	"cyg":               "cyg module could not be loaded",
	"eselect":           "eselect module could not be loaded",
	"layman":            "layman module could not be loaded",
	"logadm":            "logadm state module can only if the logadm execution module is present",
	"mac_assistive":     "Only supported on Mac OS 10.9+",
	"mac_keychain":      "Only supported on Mac OS",
	"mac_xattr":         "Only supported on Mac OS",
	"macdefaults":       "Only supported on Mac OS",
	"macpackage":        "Only supported on Mac OS",
	"makeconf":          "makeconf module could not be loaded",
	"ntp":               "Only Windows supported",
	"portage_config":    "portage module could not be loaded",
	"ports":             "ports module could not be loaded",
	"rbac_solaris":      "rbac state module can only be loaded on Solaris",
	"rdp":               "rdp module could not be loaded",
	"smartos":           "smartos state module can only be loaded on SmartOS compute nodes",
	"sysrc":             "Command not found: sysrc",
	"win_appx":          "Appx state: Only available on Windows",
	"win_certutil":      "Only Windows supported",
	"win_dacl":          "win_dacl module could not be loaded",
	"win_dism":          "Module only available on Windows",
	"win_dns_client":    "win_dns_client module could not be loaded",
	"win_firewall":      "firewall module could not be loaded",
	"win_iis":           "win_iis module could not be loaded",
	"win_lgpo":          "lgpo module could not be loaded",
	"win_lgpo_reg":      "LGPO_REG State: Only available on Windows",
	"win_license":       "Only Windows OS supported",
	"win_network":       "ip module could not be loaded",
	"win_path":          "win_path module could not be loaded",
	"win_pki":           "win_pki module could not be loaded",
	"win_powercfg":      "PowerCFG: Module only works on Windows",
	"win_servermanager": "win_servermanager module could not be loaded",
	"win_shortcut":      "Shortcut state only available on Windows systems.",
	"win_smtp_server":   "win_smtp_server module could not be loaded",
	"win_snmp":          "win_snmp module could not be loaded",
	"win_system":        "win_system: Only available on Windows",
	"win_task":          "State task: Not a Windows System",
	"win_wua":           "WUA: Only available on Window systems",
	"win_wusa":          "Only available on Windows systems",
	"zone":              "zone state module can only be loaded on Solaris platforms",
}

func init() {
	for name, reason := range elsewhere {
		units.Declare(name, func() state.Module {
			return state.Module{Name: name, Doc: `States of another system.`, When: func(fn.Reader) (string, bool) { return reason, false }}
		})
	}
}
