package files

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	modfiles "brine/internal/catalogue/modules/files"
	"brine/internal/catalogue/modules/shell"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state/engine"
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

// TestReplaced covers states that name paths for backups and rejects.
func TestReplaced(t *testing.T) {
	statetest.Needs(t, "patch")
	statetest.Run(t, upkeep("replaced"))
}

func TestReplacedRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/replaced") }

// TestParity covers rare arguments and errors.
func TestParity(t *testing.T) { statetest.Run(t, upkeep("parity")) }

func TestParityRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/parity") }

// TestOdd covers odd arguments of states that change lines.
func TestOdd(t *testing.T) { statetest.Run(t, upkeep("odd")) }

func TestOddRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/odd") }

// TestOddBlocks covers odd arguments of states that add text and patch.
func TestOddBlocks(t *testing.T) {
	statetest.Needs(t, "patch")
	statetest.Run(t, upkeep("odd_blocks"))
}

func TestOddBlocksRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/odd_blocks") }

// TestOddTrees covers odd arguments of states that manage trees and links.
func TestOddTrees(t *testing.T) {
	statetest.Needs(t, "/usr/share/zoneinfo/Europe/Berlin")
	statetest.Run(t, upkeep("odd_trees"))
}

func TestOddTreesRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/odd_trees") }

// TestNodes makes device nodes, which are never read.
func TestNodes(t *testing.T) {
	if err := unix.Mknod(filepath.Join(t.TempDir(), "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		t.Skipf("devices cannot be made here: %v", err)
	}
	statetest.Run(t, upkeep("nodes"))
}

func TestNodesRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/nodes") }

// TestMarks uses scripts instead of SELinux's programs.
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

// TestOwner creates files in directories with the setgid bit, and below the home
// directory.
func TestOwner(t *testing.T) { statetest.Run(t, upkeep("owner")) }

func TestOwnerRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/owner") }

func TestINI(t *testing.T) { statetest.Run(t, upkeep("ini")) }

// TestRare covers rare arguments and errors of ini.
func TestRare(t *testing.T) { statetest.Run(t, upkeep("rare")) }

func TestRareRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/rare") }

func TestINIRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/ini") }

// TestRecurseOfNothing checks that a directory is created even if none of its
// content is selected, and that no change is reported.
func TestRecurseOfNothing(t *testing.T) {
	s := newStage(t)
	text := "x"
	s.build(map[string]*string{"srv/d/_a": &text, "w": nil})
	low := func() *value.Dict {
		return value.DictOf("state", "file", "fun", "recurse", "__id__", "a", "name", s.root+"/w/new", "source", "salt://d", "exclude_pat", "_*")
	}
	for _, test := range []bool{true, false, false} {
		res := engine.New(s.deps, engine.Options{Test: test}).Single(t.Context(), low())
		if res.At("result") != true || res.Dict("changes").Len() > 0 || res.Str("comment") != "The directory "+s.root+"/w/new is in the correct state" {
			t.Errorf("test=%v: %s", test, value.Repr(res))
		}
		if st, err := os.Stat(s.root + "/w/new"); (err == nil && st.IsDir()) == test {
			t.Errorf("test=%v: %v", test, err)
		}
	}
	s.build(map[string]*string{"srv/d/_a": &text, "w": nil, "w/new": &text})
	if res := engine.New(s.deps, engine.Options{}).Single(t.Context(), low()); res.At("result") != false {
		t.Errorf("over a file: %s", value.Repr(res))
	}
}
