package control

import (
	"slices"
	"testing"

	"brine/internal/host"
	"brine/internal/modules/core"
	"brine/internal/modules/files"
	"brine/internal/modules/system"
	"brine/internal/states/statetest"
)

// TestAgainstStock watches, waits and ends programs by states.
func TestAgainstStock(t *testing.T) {
	statetest.Run(t, statetest.Table{Name: "testdata/control", States: Modules(), Functions: slices.Concat(core.Modules(), files.Modules(&host.Machine{}), system.Modules(&host.Machine{}))})
}

func TestRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/control") }
