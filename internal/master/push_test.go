package master

import (
	"testing"

	"brine/internal/value"
)

// A file that a minion pushes has a path that stays in the minion's folder.
func TestPushedNames(t *testing.T) {
	for _, bad := range [][]any{{}, {".."}, {"..", "x"}, {"a", "..", "..", "x"}, {"/etc/passwd"}, {"", "..", "x"}, {"."}, {"a/../../x"}, {"a", "../../x"}, {int64(1)}, {"a\x00b"}} {
		if name, err := pushName(value.DictOf("path", value.ListOf(bad...))); err == nil {
			t.Errorf("%q becomes %q", bad, name)
		}
	}
	if name, err := pushName(value.DictOf("path", value.ListOf("a", "b", "c.txt"))); err != nil || name != "a/b/c.txt" {
		t.Errorf("%q, %v", name, err)
	}
}
