package vcs

import (
	"testing"

	"brine/internal/host"
	"brine/internal/states/statetest"
)

func TestAgainstStock(t *testing.T) {
	statetest.Needs(t, "git")
	statetest.Run(t, statetest.Table{Name: "testdata/git", States: Modules(&host.Machine{})})
}

func TestRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/git") }
