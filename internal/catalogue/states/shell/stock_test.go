package shell

import (
	"testing"

	"brine/internal/catalogue/modules/files"
	"brine/internal/catalogue/modules/shell"
	"brine/internal/catalogue/states/core"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
)

// TestCommands runs real commands.
func TestCommands(t *testing.T) {
	statetest.Needs(t, "/bin/bash")
	statetest.Run(t, statetest.Table{Name: "testdata/cmd", States: append(Modules(), core.Modules()...),
		Functions: append(shell.Modules(), files.Modules(&host.Machine{})...)})
}

func TestCommandsRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/cmd") }
