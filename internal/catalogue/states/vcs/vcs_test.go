package vcs

import (
	"testing"

	"brine/internal/catalogue/modules/shell"
	modvcs "brine/internal/catalogue/modules/vcs"
	"brine/internal/catalogue/states/core"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
	"brine/test/tools"
)

func TestAgainstStock(t *testing.T) {
	statetest.Needs(t, "git")
	statetest.Run(t, statetest.Table{Name: "testdata/git", States: Modules(&host.Machine{})})
}

func TestRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/git") }

// TestHg follows Mercurial repositories.
func TestHg(t *testing.T) {
	tools.Need(t, "mercurial", "hg")
	m := &host.Machine{}
	statetest.Run(t, statetest.Table{Name: "testdata/hg", States: Modules(m), Functions: append(modvcs.Modules(m), shell.Modules()...)})
}

func TestHgRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/hg") }

// TestOdd covers missing and odd arguments, and requisites.
func TestOdd(t *testing.T) {
	statetest.Needs(t, "git")
	m := &host.Machine{}
	statetest.Run(t, statetest.Table{Name: "testdata/odd", States: append(Modules(m), core.Modules()...),
		Functions: append(modvcs.Modules(m), shell.Modules()...)})
}

func TestOddRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/odd") }
