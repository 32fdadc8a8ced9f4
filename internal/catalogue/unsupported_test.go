package catalogue

import (
	"testing"

	"brine/internal/catalogue/states/orchestration"
	"brine/internal/sls/state"
)

// TestUnsupported fails if an existing module is listed as unsupported.
func TestUnsupported(t *testing.T) {
	if !state.Unsupported("docker_container") || state.Unsupported("docker_container x509") || state.Unsupported("") {
		t.Error("names are not found as they should be")
	}
	for _, m := range States(orchestration.Deps{}) {
		if state.Unsupported(m.Name) {
			t.Errorf("%s is there, but listed in internal/sls/state/unsupported.go as one that is not", m.Name)
		}
	}
}
