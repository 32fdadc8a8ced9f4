package disk

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWithoutLabel checks every possible position of LVM's label, and devices
// that cannot be read.
func TestWithoutLabel(t *testing.T) {
	dir := t.TempDir()
	device := func(name string, label int) string {
		b := make([]byte, 4096)
		if label >= 0 {
			copy(b[label:], lvmLabel+"\x01\x00")
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	none, data := device("none", -1), device("data", 2048)
	for _, c := range []struct {
		what    string
		devices []string
		want    bool
	}{
		{"no label, an empty one, and one among the data", []string{none, empty, data}, true},
		{"a label in the first sector", []string{none, device("first", 0)}, false},
		{"a label in the second sector", []string{device("second", 512), none}, false},
		{"a label in the fourth sector", []string{device("fourth", 1536)}, false},
		{"one that is not there", []string{none, filepath.Join(dir, "missing")}, false},
		{"no devices", nil, false},
	} {
		if got := withoutLabel(c.devices); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
