package cli

import (
	"brine/internal/cli/call"
	"brine/internal/cli/cluster"
	"brine/internal/cli/complete"
	"brine/internal/cli/console"
	"brine/internal/cli/cp"
	"brine/internal/cli/daemon"
	"brine/internal/cli/demo"
	"brine/internal/cli/doc"
	"brine/internal/cli/frame"
	"brine/internal/cli/ha"
	"brine/internal/cli/hostpython"
	"brine/internal/cli/key"
	"brine/internal/cli/man"
	"brine/internal/cli/migrate"
	"brine/internal/cli/run"
	"brine/internal/cli/salt"
	"brine/internal/cli/selfcheck"
	"brine/internal/cli/witness"
)

// Applets returns all programs of the binary. To add a program, add a line here.
func Applets() []frame.Applet {
	all := []frame.Applet{
		daemon.MasterApplet(),
		daemon.MinionApplet(),
		daemon.APIApplet(),
		daemon.SyndicApplet(),
		key.Applet(),
		salt.Applet(),
		run.Applet(),
		call.Applet(),
		cp.Applet(),
		demo.Applet(),
		ha.Applet(),
		cluster.Applet(),
		witness.Applet(),
		console.Applet(),
		hostpython.Applet(),
		migrate.Applet(),
		doc.Applet(),
		selfcheck.Applet(),
	}
	// These describe all programs, including themselves.
	list := func() []frame.Applet { return Applets() }
	return append(all, man.Applet(all), complete.Applet(list), complete.Answer(list))
}
