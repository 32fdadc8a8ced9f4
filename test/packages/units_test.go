package packages_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnits: each unit waits until its daemon is ready, and restarts it when it ends or hangs.
func TestUnits(t *testing.T) {
	units, err := filepath.Glob("../../packaging/systemd/*.service")
	if err != nil || len(units) != 6 {
		t.Fatalf("units: %v, %v", units, err)
	}
	for _, path := range units {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"Type=notify", "WatchdogSec=2min", "Restart=always", "StartLimitIntervalSec=0"} {
			if !strings.Contains(string(b), "\n"+line+"\n") {
				t.Errorf("%s has no line %s", path, line)
			}
		}
	}
}
