package files

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"brine/internal/host"
	modfiles "brine/internal/modules/files"
	"brine/internal/modules/shell"
	"brine/internal/states/statetest"
)

func upkeep(name string) statetest.Table {
	m := &host.Machine{}
	return statetest.Table{Name: "testdata/" + name, States: Modules(m), Functions: append(modfiles.Modules(m), shell.Modules()...)}
}

func TestUpkeep(t *testing.T) {
	statetest.Needs(t, "patch")
	statetest.Run(t, upkeep("upkeep"))
}

func TestUpkeepRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/upkeep") }

// TestNodes makes devices, of which nobody reads.
func TestNodes(t *testing.T) {
	if err := unix.Mknod(filepath.Join(t.TempDir(), "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		t.Skipf("devices cannot be made here: %v", err)
	}
	statetest.Run(t, upkeep("nodes"))
}

func TestNodesRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/nodes") }

// TestMarks has scripts in the place of SELinux's programs.
func TestMarks(t *testing.T) {
	statetest.Needs(t, "chattr", "lsattr")
	at := filepath.Join(t.TempDir(), "x")
	err := os.WriteFile(at, nil, 0o600)
	if err == nil {
		err = exec.Command("chattr", "+Ad", at).Run()
	}
	out, _ := exec.Command("lsattr", at).Output()
	if letters, _, _ := strings.Cut(string(out), " "); err != nil || !strings.Contains(letters, "e") {
		t.Skipf("files have not got the attributes of ext4 here: %v %s", err, out)
	}
	statetest.Run(t, upkeep("marks"))
}

func TestMarksRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/marks") }

func TestINI(t *testing.T) { statetest.Run(t, upkeep("ini")) }

func TestINIRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/ini") }
