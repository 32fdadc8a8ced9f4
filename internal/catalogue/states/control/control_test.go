package control

import (
	"slices"
	"strings"
	"testing"

	"brine/internal/catalogue/modules/core"
	"brine/internal/catalogue/modules/files"
	"brine/internal/catalogue/modules/system"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
	"brine/internal/sls/state"
)

// TestAgainstStock watches, waits for and ends processes with states.
func TestAgainstStock(t *testing.T) {
	statetest.Run(t, statetest.Table{Name: "testdata/control", States: Modules(),
		Functions: slices.Concat(core.Modules(), files.Modules(&host.Machine{}), system.Modules(&host.Machine{}))})
}

func TestRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/control") }

// TestNoPattern checks that an empty pattern, which matches every process, ends none.
func TestNoPattern(t *testing.T) {
	p, err := processAbsent(t.Context(), nil, absentArgs{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []bool{true, false} {
		if r := p.Whole(t.Context(), test); r.Verdict != state.Failed || !strings.Contains(r.Comment, "name is needed") {
			t.Errorf("%+v", r)
		}
	}
}
