package archives

import (
	"slices"
	"testing"

	"brine/internal/catalogue/modules/files"
	"brine/internal/catalogue/modules/shell"
	"brine/internal/catalogue/states/core"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
)

func TestAgainstStock(t *testing.T) {
	statetest.Needs(t, "tar", "gzip", "bzip2", "xz", "zip", "unzip")
	statetest.Run(t, statetest.Table{Name: "testdata/extracted", States: Modules(&host.Machine{})})
}

func TestRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/extracted") }

// TestSigned checks signatures with the real gpg.
func TestSigned(t *testing.T) {
	statetest.Needs(t, "tar", "gzip", "gpg", "gpgconf")
	statetest.Run(t, statetest.Table{Name: "testdata/signed", States: Modules(&host.Machine{})})
}

func TestSignedRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/signed") }

// TestOdd covers missing and odd arguments, and requisites.
func TestOdd(t *testing.T) {
	statetest.Needs(t, "tar", "gzip", "bzip2", "xz", "zip", "unzip")
	m := &host.Machine{}
	statetest.Run(t, statetest.Table{Name: "testdata/odd", States: append(slices.Clone(Modules(m)), core.Modules()...),
		Functions: slices.Concat(shell.Modules(), files.Modules(m))})
}

func TestOddRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/odd") }
