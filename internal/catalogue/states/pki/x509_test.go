package pki

import (
	"slices"
	"testing"

	"brine/internal/catalogue/modules/core"
	filefuncs "brine/internal/catalogue/modules/files"
	"brine/internal/catalogue/modules/shell"
	states "brine/internal/catalogue/states/core"
	"brine/internal/catalogue/states/files"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
	"brine/test/tools"
)

// TestX509 manages keys, certificates, requests and lists in real files, as Salt's states
// do.
func TestX509(t *testing.T) {
	tools.Need(t, "openssl", "openssl")
	m := &host.Machine{}
	statetest.Run(t, statetest.Table{Name: "testdata/x509", States: slices.Concat(Modules(), files.Modules(m)),
		Functions: slices.Concat(core.Modules(), filefuncs.Modules(m))})
}

func TestX509RecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/x509") }

// TestOdd covers missing and odd arguments, and requisites.
func TestOdd(t *testing.T) {
	tools.Need(t, "openssl", "openssl")
	m := &host.Machine{}
	statetest.Run(t, statetest.Table{Name: "testdata/odd", States: slices.Concat(Modules(), files.Modules(m), states.Modules()),
		Functions: slices.Concat(core.Modules(), filefuncs.Modules(m), shell.Modules())})
}

func TestOddRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/odd") }
