package archives

import (
	"testing"

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
