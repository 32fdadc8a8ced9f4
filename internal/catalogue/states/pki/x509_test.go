package pki

import (
	"slices"
	"testing"

	"brine/internal/catalogue/modules/core"
	filefuncs "brine/internal/catalogue/modules/files"
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
