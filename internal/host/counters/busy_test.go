package counters

import (
	"os"
	"path/filepath"
	"testing"

	"brine/internal/host"
)

func TestBusy(t *testing.T) {
	for text, want := range map[string][2]int64{
		"cpu  200 10 100 600 90 0 5 2 1 0\ncpu0 1 2 3 4 5 6 7 8\nbtime 5\n": {317, 1007},
		"cpu  200 10 100 600\n":            {},
		"cpu  200 10 100 600 90 0 5 x 0\n": {},
		"":                                 {},
	} {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "proc"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "proc/stat"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		busy, total, ok := Busy(&host.Machine{Root: root})
		if ok != (want[1] > 0) || ok && (busy != want[0] || total != want[1]) {
			t.Errorf("%q: %d of %d, %v", text, busy, total, ok)
		}
	}
	if busy, total, ok := Busy(&host.Machine{}); !ok || busy <= 0 || busy > total {
		t.Errorf("this machine: %d of %d, %v", busy, total, ok)
	}
}
