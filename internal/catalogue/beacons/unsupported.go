package beacons

// unsupported lists the beacons of Salt 3007 that Brine lacks, with the reason
// or an alternative.
var unsupported = map[string]string{
	"adb":              "it is for Android devices",
	"aix_account":      "it is for AIX",
	"avahi_announce":   "Brine does not announce services; avahi-publish does",
	"bonjour_announce": "it is for macOS",
	"glxinfo":          "it is for displays; use salt_monitor with cmd.run",
	"haproxy":          "Brine does not have the module haproxy; use salt_monitor with cmd.run",
	"journald":         "it reads every message of the journal; use log with a file, or salt_monitor with cmd.run",
	"junos_rre_keys":   "it is for Juniper devices",
	"napalm":           "it is for network devices",
	"network_settings": "use salt_monitor with network.interfaces",
	"proxy_example":    "Brine has no proxy minions",
	"salt_proxy":       "Brine has no proxy minions",
	"sensehat":         "it is for Raspberry Pi boards",
	"telegram_bot_msg": "it reads messages of a Telegram bot",
	"twilio_txt_msg":   "it reads text messages of Twilio",
	"watchdog":         "use inotify",
	"imgadm":           "it is for SmartOS",
	"vmadm":            "it is for SmartOS",
}

// Unsupported returns why Brine lacks one of Salt's beacons; "" for any other
// name.
func Unsupported(name string) string { return unsupported[name] }
