package files

import (
	"testing"

	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
)

func TestSerialize(t *testing.T) {
	statetest.Run(t, statetest.Table{Name: "testdata/serialize", States: Modules(&host.Machine{})})
}

func TestSerializeRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/serialize") }

func TestKeyvalue(t *testing.T) {
	statetest.Run(t, statetest.Table{Name: "testdata/keyvalue", States: Modules(&host.Machine{})})
}

func TestKeyvalueRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/keyvalue") }
