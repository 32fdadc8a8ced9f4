package gitrepo

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/test/fuzztest"
)

func FuzzTree(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	id := strings.Repeat("a1", 20)
	f.Add([]byte("100644 blob " + id + "      12\ttop.sls\x00120000 blob " + id + " 3\tl\x00040000 tree " + id + " -\td\x00160000 commit " + id +
		" -\tsub\x00100755 blob " + id + " 9\td/x y\x00"))
	f.Add([]byte("100644 blob " + id + " 1\t../x\x00100644 blob " + id + " 1\t/etc/x\x00100644 blob " + id + " 1\ta//b\x00100644 blob " + id +
		" 1\t.git/config\x00"))
	f.Fuzz(func(t *testing.T, out []byte) {
		tree, err := readTree(out)
		if err != nil {
			return
		}
		if !slices.IsSortedFunc(tree.Entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) }) {
			t.Error("the entries are not sorted")
		}
		for _, e := range tree.Entries {
			if !filepath.IsLocal(e.Path) || !isObjectID(e.ID) {
				t.Errorf("%+v", e)
			}
		}
		if len(tree.Odd) > maxOdd {
			t.Errorf("%d odd names", len(tree.Odd))
		}
	})
}
