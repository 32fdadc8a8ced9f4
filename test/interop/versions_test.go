package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// furtherSalts are the source trees of further versions of Salt: BRINE_STOCK_SALTS names them,
// separated by colons.
func furtherSalts() []string { return filepath.SplitList(os.Getenv("BRINE_STOCK_SALTS")) }

// versionOf returns the version of a source tree.
func versionOf(t *testing.T, tree string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(tree, "salt", "_version.txt"))
	if err != nil {
		t.Fatalf("no source tree of Salt: %v", err)
	}
	return strings.TrimSpace(string(b))
}

// TestVersions combines Brine with further versions of Salt, as master and as minion.
func TestVersions(t *testing.T) {
	if len(furtherSalts()) == 0 {
		t.Skip("BRINE_STOCK_SALTS does not name source trees of further versions of Salt, as in /opt/salt-3006.9:/opt/salt-3008.0")
	}
	for _, tree := range furtherSalts() {
		for _, transport := range []string{"zeromq", "tcp"} { // 3006 has no ws
			for _, p := range []struct{ master, minion kind }{{brine, stock}, {stock, brine}} {
				t.Run(fmt.Sprintf("%s/%s/%s-master", versionOf(t, tree), transport, p.master), func(t *testing.T) {
					t.Setenv("BRINE_STOCK_SALT", tree)
					testPair(t, p.master, p.minion, transport)
				})
			}
		}
	}
}
