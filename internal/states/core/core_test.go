package core

import (
	"slices"
	"testing"

	"brine/internal/host"
	"brine/internal/modules/core"
	"brine/internal/modules/files"
	"brine/internal/states/statetest"
)

// TestAgainstStock calls functions and sets variables by states.
func TestAgainstStock(t *testing.T) {
	statetest.Run(t, statetest.Table{Name: "testdata/core", States: Modules(), Functions: slices.Concat(core.Modules(), files.Modules(&host.Machine{}))})
}

func TestRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/core") }
