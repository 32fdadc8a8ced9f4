package compat

import (
	"os"
	"strings"
	"testing"
)

// TestDifferencesAreDocumented: each difference has its row in the documents.
func TestDifferencesAreDocumented(t *testing.T) {
	var docs strings.Builder
	for _, name := range []string{"differences.md", "command-line.md"} {
		text, err := os.ReadFile("../../../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		docs.Write(text)
	}
	for _, d := range differences {
		if d.Row != "" && !strings.Contains(docs.String(), "| "+d.Row) {
			t.Errorf("%v: no row begins with %q", d.Names, d.Row)
		}
	}
}
