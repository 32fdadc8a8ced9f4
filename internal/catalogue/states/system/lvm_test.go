package system

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/catalogue/states/statetest"
	"brine/test/tools"
)

// lvmTable returns the LVM test table, with two devices backed by files.
func lvmTable(t *testing.T) statetest.Table {
	t.Helper()
	tab := table("lvm")
	if statetest.Inside() {
		return tab
	}
	tools.Need(t, "lvm2", "lvm")
	if os.Geteuid() != 0 {
		t.Skip("devices are for root")
	}
	for _, name := range []string{"A", "B"} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, 64<<20); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("losetup", "--find", "--show", file).Output()
		if err != nil {
			t.Skipf("losetup makes no device here: %v", err)
		}
		device := strings.TrimSpace(string(out))
		t.Cleanup(func() {
			if out, err := exec.Command("losetup", "-d", device).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
		tab.Env = append(tab.Env, "BRINE_LOOP_"+name+"="+device)
	}
	return tab
}

// TestLVM creates, formats and tunes volumes on real devices.
func TestLVM(t *testing.T) {
	tools.Slow(t)
	statetest.Run(t, lvmTable(t))
}

func TestLVMRecordingIsTrue(t *testing.T) { statetest.VerifyTable(t, lvmTable) }
