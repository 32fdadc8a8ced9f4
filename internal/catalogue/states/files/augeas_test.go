package files

import (
	"slices"
	"testing"

	"brine/internal/catalogue/modules/files"
	"brine/internal/catalogue/states/core"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
	"brine/test/tools"
)

// TestAugeas changes files by the real program.
func TestAugeas(t *testing.T) {
	tools.Slow(t)
	tools.Need(t, "augeas-tools", "augtool")
	statetest.Run(t, statetest.Table{Name: "testdata/augeas", States: slices.Concat(Modules(&host.Machine{}), core.Modules()),
		Functions: files.Modules(&host.Machine{})})
}

func TestAugeasRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/augeas") }
