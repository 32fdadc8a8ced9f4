package cli

// absent maps programs of Salt that Brine lacks to the alternative.
var absent = map[string]string{
	"salt-ssh":   "machines are managed by minions only, none by SSH. Install a minion there; salt-ssh of Salt can be used beside",
	"salt-proxy": "there are no proxy minions, for devices on which no minion can run. salt-proxy of Salt can be used with this master",
	"salt-cloud": "machines are not created. Give new ones their keys by salt-key --gen-keys, or have them accepted by the options autosign_file " +
		"or autosign_grains_dir",
	"spm":          "there are no packages of formulas. Put formulas into a directory that the option file_roots names",
	"salt-pip":     "there are no modules in Python to install packages for",
	"salt-extend":  "modules are part of the program, so there are no templates of new ones",
	"salt-unity":   "call brine PROGRAM in its place",
	"salt-support": "there is no salt-support. The option --versions-report of each program, and salt-call status.all_status, tell most of that",
}
