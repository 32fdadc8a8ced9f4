package returner

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestSchemas checks that the printed statements are those of docs/caches.md, which test/jobcache
// runs on real servers, and that each returner with tables has some.
func TestSchemas(t *testing.T) {
	page, err := os.ReadFile("../../../docs/caches.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mysql", "pgjsonb"} {
		if text, ok := Schema(name); !ok || !strings.Contains(string(page), "```sql\n"+text+"```") {
			t.Errorf("docs/caches.md does not have the statements for %s:\n%s", name, text)
		}
	}
	for _, name := range Schemas() {
		text, ok := Schema(name)
		if !ok || !slices.Contains(Names(), name) || strings.Count(text, "CREATE TABLE ") != 3 {
			t.Errorf("%s: %s", name, text)
		}
	}
}
