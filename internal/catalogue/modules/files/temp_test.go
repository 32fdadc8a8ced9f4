package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

func TestTemp(t *testing.T) {
	r, err := fn.NewRegistry(nil, tempModule())
	if err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	for fun, mode := range map[string]os.FileMode{"dir": os.ModeDir | 0o700, "file": 0o600} {
		v, err := r.Call(t.Context(), &fn.Call{}, "temp."+fun, nil, value.DictOf("prefix", "a-", "suffix", ".b", "parent", parent))
		path, _ := v.(string)
		st, statErr := os.Stat(path)
		if err != nil || statErr != nil || st.Mode() != mode || filepath.Dir(path) != parent || !strings.HasPrefix(filepath.Base(path), "a-") ||
			!strings.HasSuffix(path, ".b") {
			t.Errorf("%s: %v, %v, %v", fun, v, err, statErr)
		}
		if _, err := r.Call(t.Context(), &fn.Call{}, "temp."+fun, nil, value.DictOf("prefix", "../a", "parent", parent)); err == nil {
			t.Errorf("%s: a prefix leads out of the directory", fun)
		}
		if _, err := r.Call(t.Context(), &fn.Call{}, "temp."+fun, nil, value.DictOf("parent", parent+"/none")); err == nil {
			t.Errorf("%s: created in a directory that does not exist", fun)
		}
	}
}
