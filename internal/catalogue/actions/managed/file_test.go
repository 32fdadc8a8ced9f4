package managed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state/sources"
)

// TestFile creates, replaces and compares a file, as the state and the execution
// functions do.
func TestFile(t *testing.T) {
	dir, m := t.TempDir(), &host.Machine{}
	own, err := OwnerOf(t.Context(), m, nil, nil, "0640")
	if err != nil {
		t.Fatal(err)
	}
	f := &File{M: m, Name: filepath.Join(dir, "a", "b"), Own: own, Follow: true, Backup: "minion",
		Config: fn.Tree{Dict: value.DictOf("cachedir", dir)}}
	if err := f.MakeParent(); err == nil || err.Error() != "Parent directory not present" {
		t.Fatalf("a directory that may not be made: %v", err)
	}
	f.Parent.Make = true
	if err := f.MakeParent(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Dir(f.Name)); err != nil || st.Mode().Perm() != 0o750 {
		t.Errorf("the directory of a file with mode 0640: %v, %v", st, err)
	}

	changes, err := f.Create(&sources.Content{Data: []byte("one\n")}, false, nil)
	if want := `{'diff': 'New file', 'mode': '0640'}`; err != nil || value.Str(changes) != want {
		t.Errorf("Create returns %s, %v, not %s", value.Str(changes), err, want)
	}
	two := &sources.Content{Data: []byte("two\n")}
	if diff, err := f.DiffUnlessSame(two); err != nil || !strings.Contains(diff, "-one\n+two\n") {
		t.Errorf("diff %q, %v", diff, err)
	}
	f.HideChanges = true
	if diff, err := f.DiffUnlessSame(two); err != nil || diff != "<show_changes=False>" {
		t.Errorf("hidden diff %q, %v", diff, err)
	}
	if err := f.Replace(two, nil); err != nil {
		t.Fatal(err)
	}
	if diff, err := f.DiffUnlessSame(two); err != nil || diff != "" {
		t.Errorf("diff after Replace %q, %v", diff, err)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "file_backup", f.Name+"_*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("copies of the old file: %v, %v", kept, err)
	}
	if b, err := os.ReadFile(kept[0]); err != nil || string(b) != "one\n" {
		t.Errorf("the copy has %q, %v", b, err)
	}
}

// TestMissingOwner checks that a missing user or group is reported by Available, and
// is not replaced by another one.
func TestMissingOwner(t *testing.T) {
	own, err := OwnerOf(t.Context(), &host.Machine{}, "no-such-user-here", "no-such-group-here", "")
	if err != nil || own.UID != -1 || own.GID != -1 || own.Bits != -1 {
		t.Errorf("%+v, %v", own, err)
	}
	if own.Available() == nil {
		t.Error("Available accepts a user that does not exist")
	}
}
