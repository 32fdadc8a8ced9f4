package shell

import (
	"testing"

	"brine/internal/host"
	"brine/internal/modules/files"
	"brine/internal/modules/shell"
	"brine/internal/states/core"
	"brine/internal/states/statetest"
)

// TestCommands runs real commands.
func TestCommands(t *testing.T) {
	statetest.Needs(t, "/bin/bash")
	statetest.Run(t, statetest.Table{Name: "testdata/cmd", States: append(Modules(), core.Modules()...), Functions: append(shell.Modules(), files.Modules(&host.Machine{})...)})
}

func TestCommandsRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/cmd") }
