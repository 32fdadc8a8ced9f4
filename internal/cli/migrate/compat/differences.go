package compat

import (
	"brine/internal/daemons/config"
	"brine/internal/py/value"
)

// Difference is an intended difference from Salt that affects installations that use one of its
// names.
type Difference struct {
	// Kind is option, state, argument (STATE ARGUMENT), function, runner or beacon; Names are the affected names. A name that
	// ends in "." means all functions of a module.
	Kind  string
	Names []string
	// Row is the beginning of its row in docs/differences.md or docs/command-line.md.
	Row string
	// Text describes the difference.
	Text string
}

// differences are the differences that a check can find.
var differences = []Difference{
	{"option", []string{"startup_states"}, "job id of `startup_states`",
		"the minion creates the job id; Salt's minion returns req, and the master creates one"},
	{"option", []string{"disable_modules", "whitelist_modules"}, "`disable_modules` and `whitelist_modules` of a minion",
		"takes the name of functions (cmd) and that of Salt's file (cmdmod); a state that works without the module still runs"},
	{"option", []string{"rest_tornado", "rest_wsgi"}, "`salt-api` with `rest_tornado` or `rest_wsgi` alone", "salt-api reads rest_cherrypy alone"},
	{"option", []string{"recon_default", "recon_max", "random_reauth_delay", "rejected_retry", "return_retry_tries"}, "",
		"Brine's default differs from Salt's (docs/adr/0006-defaults-that-differ.md); this value counts"},
	{"beacon", []string{"wtmp", "btmp"}, "beacons `wtmp` and `btmp` with `groups`",
		"with groups that have no members it reports nothing; Salt reports all users"},
	{"beacon", []string{"log"}, "beacon `log`", "waits for the end of a line, and reads a rotated file from its beginning"},
	{"beacon", []string{"pkg"}, "beacon `pkg`", "uses refresh; Salt's never refreshes"},
	{"function", []string{"git.symbolic_ref"}, "`git.symbolic_ref` with a value", "sets the value; Salt's passes each letter as an argument"},
	{"function", []string{"archive.zip"}, "`archive.zip` into a missing directory", "fails if the directory is missing; Salt's returns an empty list"},
	{"function", []string{"cmd.powershell", "cmd.powershell_all"}, "`cmd.powershell`, `cmd.powershell_all`", "refuses except on Windows"},
	{"function", []string{"cmd.run_chroot"}, "`cmd.run_chroot`", "unmounts only what it has mounted, and refuses / as the directory"},
	{"function", []string{"state.check_request"}, "`state.check_request`", "its keywords lack __pub_*"},
	{"function", []string{"state.soft_kill"}, "`state.soft_kill` of a state that nothing pauses", "ends the run before a state that nothing pauses"},
	{"function", []string{"state.event"}, "`state.event` on a minion or master by others", "needs a count"},
	{"runner", []string{"queue."}, "runners `queue.*`", "there is one backend, the master's cache, under the name sqlite"},
	{"runner", []string{"survey.diff"}, "runner `survey.diff`", "returns the diffs in the key diff of each pool"},
	{"runner", []string{"manage.key_regen"}, "runner `manage.key_regen` in a cluster", "refuses in a cluster"},
	{"runner", []string{"http.update_ca_bundle"}, "runner `http.update_ca_bundle` without a source", "needs a source"},
	{"runner", []string{"auth."}, "runners `auth.*`", "events and the job cache omit the arguments, and the job cache the return"},
	{"runner", []string{"match.compound_matches"}, "runner `match.compound_matches`", "a minion whose data the master does not have never matches"},
	{"runner", []string{"salt.cmd"}, "`salt-run salt.cmd`", "runs read-only functions alone"},
	{"argument", []string{"file.serialize dataset_pillar"}, "state `file.serialize` onto a directory or device, or with a `dataset_pillar`",
		"fails if the pillar key is missing; Salt writes an empty text"},
	{"state", []string{"salt.parallel_runners"}, "`salt.parallel_runners`", "works; in 3007 it always fails with a traceback"},
}

// differs records the differences of a name that is used.
func (c *checker) differs(kind, name, file string, line int) {
	for i := range differences {
		d := &differences[i]
		if d.Kind == kind && d.concerns(name) {
			c.add(Finding{Kind: KindDifference, Name: kind + " " + name, Places: places(file, line), Why: d.Text})
		}
	}
}

func (d *Difference) concerns(name string) bool {
	for _, n := range d.Names {
		if n == name || n[len(n)-1] == '.' && len(name) > len(n) && name[:len(n)] == n {
			return true
		}
	}
	return false
}

// optionDiffers records the differences of an option that is set.
func (k installed) optionDiffers(t *config.Tree, key string) {
	if o, ok := t.Origin(key); ok && value.Truth(t.Values.At(key)) {
		k.c.differs("option", key, o.File, o.Line)
	}
}
